#!/usr/bin/env python3
"""Forward attention on a GPU: onchip beside PyTorch's flash and cuDNN kernels, alternating in one process.

    h200_forward.py LIBONCHIP.so [--json FILE] [--rounds N] [--types bf16,f16,f32,tf32] [--dims 64,128,256]

TFLOP/s from the median of single launches timed with events. FLOPs are 4·B·H·S²·D, half of that when causal; inputs are
random normal. Also the cost of a first call and of one from the cubin cache.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import onchip_ctypes as onchip

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "tf32": torch.float32}
HEADS = {64: 32, 128: 16, 256: 8}
TOTAL_TOKENS = 16384


def grid(types, dims):
    for kind in types:
        lengths = (1024, 2048, 4096, 8192, 16384) if kind == "bf16" else (4096,)
        for d in dims:
            if kind in ("f32", "tf32") and d > 128:
                continue
            for causal in (False, True):
                for s in lengths:
                    yield kind, d, causal, s


def time_once(call):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def peer(backend, q, k, v, causal):
    def call():
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return call


def measure(library, kind, d, causal, s, rounds):
    b, h = TOTAL_TOKENS // s, HEADS[d]
    q, k, v = (torch.randn(b, s, h, d, device="cuda").to(TYPES[kind]) for _ in range(3))
    o = torch.full_like(q, float("nan"))
    lse = torch.full((b, h, s), float("nan"), device="cuda")
    tensors = {"q": q, "k": k, "v": v, "o": o, "lse": lse}
    calls = {"onchip": onchip.Call(library, onchip.FORWARD, tensors, causal=causal, allow_tf32=kind == "tf32")}
    if kind in ("bf16", "f16"):
        t = [x.transpose(1, 2) for x in (q, k, v)]
        calls["flash"] = peer(SDPBackend.FLASH_ATTENTION, *t, causal)
        calls["cudnn"] = peer(SDPBackend.CUDNN_ATTENTION, *t, causal)
    for call in calls.values():
        call()
        call()
    reference = torch.nn.functional.scaled_dot_product_attention(
        *(x[:1, :, :1].transpose(1, 2).double() for x in (q, k, v)), is_causal=causal)
    error = (o[:1, :, :1].transpose(1, 2).double() - reference).abs().max().item()
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(time_once(call))
    flops = 4 * b * h * s * s * d / (2 if causal else 1)
    row = {"type": kind, "d": d, "causal": causal, "s": s, "b": b, "h": h, "max_error": error}
    for name, list_ms in times.items():
        row[name] = flops / statistics.median(list_ms) / 1e9
        row[name + "_spread"] = (max(list_ms) - min(list_ms)) / statistics.median(list_ms)
    return row


def first_call_seconds(path, cache):
    """A new process's first call, onchip's part of it alone. NVRTC's own cache goes with ours."""
    program = ("import sys, time, torch; sys.path.insert(0, sys.argv[2]); import onchip_ctypes as onchip\n"
               "q = torch.randn(1, 1024, 16, 128, device='cuda').bfloat16(); o = torch.empty_like(q)\n"
               "library = onchip.load(sys.argv[1]); torch.cuda.synchronize(); begin = time.perf_counter()\n"
               "onchip.Call(library, onchip.FORWARD, dict(q=q, k=q, v=q, o=o), causal=True)(); torch.cuda.synchronize()\n"
               "print(time.perf_counter() - begin)")
    result = subprocess.run([sys.executable, "-c", program, path, os.path.dirname(os.path.abspath(__file__))],
                            env=dict(os.environ, ONCHIP_CACHE=cache, CUDA_CACHE_PATH=cache), capture_output=True, text=True, check=True)
    return float(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--types", default="bf16,f16,f32,tf32")
    parser.add_argument("--dims", default="64,128,256")
    options = parser.parse_args()
    library = onchip.load(options.library)
    print(f"onchip, {torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    with tempfile.TemporaryDirectory() as cache:
        costs = {"first_call_s": first_call_seconds(options.library, cache),
                 "cached_call_s": first_call_seconds(options.library, cache)}
    print("first call {first_call_s:.2f} s, from the cache {cached_call_s:.4f} s".format(**costs))
    rows = []
    print(f"{'type':5}{'D':>5}{'causal':>8}{'S':>7}{'onchip':>9}{'flash':>8}{'cudnn':>8}{'/flash':>8}{'/cudnn':>8}  max error")
    for kind, d, causal, s in grid(options.types.split(","), [int(x) for x in options.dims.split(",")]):
        row = measure(library, kind, d, causal, s, options.rounds)
        rows.append(row)
        peers = "".join(f"{row[n]:8.0f}" if n in row else f"{'-':>8}" for n in ("flash", "cudnn"))
        ratios = "".join(f"{row['onchip'] / row[n]:8.2f}" if n in row else f"{'-':>8}" for n in ("flash", "cudnn"))
        print(f"{kind:5}{d:5}{'yes' if causal else 'no':>8}{s:7}{row['onchip']:9.1f}{peers}{ratios}  {row['max_error']:.2e}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"costs": costs, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
