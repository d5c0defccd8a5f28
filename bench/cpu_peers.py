#!/usr/bin/env python3
"""Attention on the CPU: onchip, its standard attention and PyTorch's scaled_dot_product_attention, taking turns.

    pip install torch numpy
    bench/cpu_peers.py [--library build/release/lib/libonchip.so] [--threads 2] [--quick] [--json FILE]

Prints GFLOP/s (4·H·N²·D forward, 2.5 times that backward, half when causal; medians) and ratios. The share is of the
multiply-add peak that `onchip doctor --measure` finds at the start.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

import onchip_ctypes as onchip

HEADS = 8


def take_turns(calls, seconds):
    """Median seconds of each call; they alternate until each had `seconds` in all, at least three turns."""
    for call in calls.values():
        call()
    times = {name: [] for name in calls}
    start = time.perf_counter()
    while min(map(len, times.values())) < 3 or time.perf_counter() - start < seconds * len(calls):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(t) for name, t in times.items()}


def calls_of(library, args, seqlen, head_dim, dtype, causal, backward):
    shape = (1, HEADS, seqlen, head_dim)
    q, k, v = (torch.randn(shape).to(dtype) for _ in range(3))
    rows = {name: t.transpose(1, 2) for name, t in (("q", q), ("k", k), ("v", v))}
    out = dict(rows, o=torch.empty(shape, dtype=dtype).transpose(1, 2), lse=torch.empty(1, HEADS, seqlen))
    forward = onchip.Call(library, onchip.FORWARD, out, causal=causal, backend="cpu", num_threads=args.threads)
    options = {"causal": causal, "num_threads": args.threads}
    if not backward:
        return {
            "onchip": forward,
            "standard": onchip.Call(library, onchip.FORWARD, out, backend="standard", **options),
            "torch": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        }
    forward()
    gradients = {"d" + n: torch.empty(shape, dtype=dtype).transpose(1, 2) for n in ("q", "k", "v", "out")}
    gradients["dout"].normal_()
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    torch_out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    dout = gradients["dout"].transpose(1, 2).contiguous()
    return {
        "onchip": onchip.Call(library, onchip.BACKWARD, out | gradients, backend="cpu", **options),
        "standard": onchip.Call(library, onchip.BACKWARD, out | gradients, backend="standard", **options),
        "torch": lambda: torch.autograd.grad(torch_out, leaves, dout, retain_graph=True),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/lib/libonchip.so")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="f32 at 2048 alone")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each call of a row")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    library = onchip.load(args.library)
    binary = pathlib.Path(args.library).resolve().parent.parent / "bin" / "onchip"
    doctor = json.loads(subprocess.run([binary, "doctor", "--measure", "--json"], check=True, capture_output=True).stdout)
    peak = doctor["measured"]["all_threads"]["f32_flops_per_second"] / 1e9
    print(f"multiply-add peak f32, {args.threads} threads: {peak:.0f} GFLOP/s; torch {torch.__version__}")

    cases = [(n, d, t, False, b) for d in (64, 128) for n in (512, 2048, 4096)
             for t in (torch.float32, torch.bfloat16, torch.float16) for b in (False, True)
             if not (b and t != torch.float32)]
    cases += [(4096, d, torch.float32, True, b) for d in (64, 128) for b in (False, True)]
    if args.quick:
        cases = [c for c in cases if c[0] == 2048 and c[2] == torch.float32]
    rows = []
    print("pass  D    N     type      causal   onchip  share  standard  torch    vs standard  vs torch")
    for seqlen, head_dim, dtype, causal, backward in cases:
        seconds = take_turns(calls_of(library, args, seqlen, head_dim, dtype, causal, backward), args.seconds)
        flops = 4 * HEADS * seqlen**2 * head_dim * (2.5 if backward else 1) / (2 if causal else 1)
        rate = {name: flops / s / 1e9 for name, s in seconds.items()}
        row = {"pass": "backward" if backward else "forward", "head_dim": head_dim, "seqlen": seqlen,
               "dtype": str(dtype).removeprefix("torch."), "causal": causal, "gflops": rate, "peak_gflops": peak}
        rows.append(row)
        print(f"{'bwd' if backward else 'fwd'}   {head_dim:<4} {seqlen:<5} {row['dtype']:<9} {str(causal):<6} "
              f"{rate['onchip']:8.1f}  {rate['onchip'] / peak:5.0%}  {rate['standard']:8.1f}  {rate['torch']:7.1f}"
              f"  {rate['onchip'] / rate['standard']:9.2f}  {rate['onchip'] / rate['torch']:9.2f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
