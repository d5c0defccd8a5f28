#!/usr/bin/env python3
"""Write the queries, keys and values of all-MiniLM-L6-v2 on a text as safetensors, one file a layer, for `onchip attend`.

Each file holds q, k, v (f32, [B, S, H, D] with one line of the text a sequence, padded to the longest) and seqused_k (i32, [B]).
"""
import argparse
import sys
from pathlib import Path

from minilm import InputError, MiniLM, fixed_order_matmul, numpy_attention, read_lines, write_tensors

HERE = Path(__file__).resolve().parent


def attention_inputs(model, texts, num_layers):
    """The arguments of attention in the first num_layers layers, by name."""
    layers = []

    def record(q, k, v, seqused_k):
        layers.append({"q": q, "k": k, "v": v, "seqused_k": seqused_k})
        return numpy_attention(q, k, v, seqused_k)

    ids, lengths = model.tokenize(texts, model.max_positions)
    x = model.embed_tokens(ids)
    for index in range(num_layers):
        x = model.layer(index, x, lengths, record)
    return layers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", type=Path, default=HERE / "passages.txt", help="UTF-8, one sequence a line (default: %(default)s)")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for layerN.safetensors")
    parser.add_argument("--layers", type=int, nargs="+", help="layers to write, from 0 (default: all)")
    args = parser.parse_args()

    texts = read_lines(args.text)
    model = MiniLM(fixed_order_matmul)
    wanted = range(model.num_layers) if args.layers is None else args.layers
    if not all(0 <= index < model.num_layers for index in wanted):
        parser.error(f"--layers: the model has layers 0 to {model.num_layers - 1}, got {args.layers}")

    layers = attention_inputs(model, texts, max(wanted) + 1)
    args.out.mkdir(parents=True, exist_ok=True)
    for index in wanted:
        path = args.out / f"layer{index}.safetensors"
        write_tensors(path, layers[index], f"all-MiniLM-L6-v2, layer {index}, {args.text.name}")
        print(f"{path}: [B, S, H, D] = {list(layers[index]['q'].shape)}, seqused_k = {layers[index]['seqused_k'].tolist()}")


if __name__ == "__main__":
    try:
        main()
    except (InputError, OSError) as error:
        sys.exit(f"extract.py: {error}")
