#!/usr/bin/env python3
"""One new token on the CPU against caches of every type, and plain reading, taking turns.

    pip install torch numpy
    bench/cpu_decode.py [--library build/release/lib/libonchip.so] [--threads 2] [--keys 32768] [--json FILE]

Prints GB/s of unique keys and values (medians), their share of what PyTorch's sum reads of 256 MiB, and tokens relative to
an f16 cache.
"""
import argparse
import json
import pathlib

import torch

import onchip_ctypes as onchip
from cpu_peers import take_turns

SHAPES = [(8, 8, 64), (8, 8, 128), (32, 8, 128)]  # query heads, KV heads, head dimension
CACHES = {"f32": (torch.float32, torch.float32), "f16": (torch.float16, torch.float16),
          "bf16": (torch.bfloat16, torch.bfloat16), "int8": (torch.float32, torch.int8),
          "e4m3": (torch.float32, torch.float8_e4m3fn), "e5m2": (torch.float32, torch.float8_e5m2)}


def cache(shape, dtype):
    return torch.randint(-127, 128, shape, dtype=dtype) if dtype == torch.int8 else torch.randn(shape).to(dtype)


def call_of(library, args, heads, kv_heads, head_dim, dtype, kv_dtype):
    tensors = {name: cache((1, args.keys, kv_heads, head_dim), kv_dtype) for name in ("k", "v")}
    tensors |= {name: torch.randn(1, 1, heads, head_dim).to(dtype) for name in ("q", "o")}
    if kv_dtype.itemsize == 1:
        scale = torch.tensor([1 / 40 if kv_dtype == torch.int8 else 1.0])
        tensors |= {"k_scale": scale, "v_scale": scale}
    return onchip.Call(library, onchip.FORWARD, tensors, backend="cpu", num_threads=args.threads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/lib/libonchip.so")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--keys", type=int, default=32768)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each type of a shape")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    library = onchip.load(args.library)
    torch.set_num_threads(args.threads)
    numbers = torch.ones(64 << 20)
    rows = []
    print("heads  D    cache   read GB/s   GB/s  share  tokens/f16")
    for heads, kv_heads, head_dim in SHAPES:
        calls = {name: call_of(library, args, heads, kv_heads, head_dim, *types) for name, types in CACHES.items()}
        seconds = take_turns(calls | {"read": numbers.sum}, args.seconds)
        read = numbers.nbytes / seconds["read"] / 1e9
        for name, (_, kv_dtype) in CACHES.items():
            rate = 2 * args.keys * kv_heads * head_dim * kv_dtype.itemsize / seconds[name] / 1e9
            rows.append({"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "cache": name, "keys": args.keys,
                         "gb_per_s": rate, "read_gb_per_s": read, "tokens_vs_f16": seconds["f16"] / seconds[name]})
            print(f"{heads}/{kv_heads:<4} {head_dim:<4} {name:<6} {read:9.1f}  {rate:7.1f}  {rate / read:4.0%}  "
                  f"{seconds['f16'] / seconds[name]:8.2f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
