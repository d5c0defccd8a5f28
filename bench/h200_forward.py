#!/usr/bin/env python3
"""Forward attention on a GPU: onchip beside PyTorch's flash and cuDNN kernels, alternating in one process.

    h200_forward.py LIBONCHIP.so [--json FILE] [--at-least NAME] [--types bf16,f16,f32,tf32] [--dims 64,128,256]
                    [--lengths 1024,…] [--rounds N] [--sustained SECONDS] [--no-costs]

Bursts: the median of single launches timed with events, in turns. Sustained: the same call for some seconds on end, with
SM clock, watts and GFLOP/J, since the board's power limit decides what lasts. FLOPs are 4·B·H·S²·D, half of that when
causal; inputs are random normal. The ratio to FlashAttention-3, which PyTorch does not have, is ours over cuDNN's now
times cuDNN's over FlashAttention-3's in h200_peers.json. --at-least refuses onchip's implementations that rank below the
named one; the table says which one ran. Also the cost of a first call and of one from the cubin cache.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import gpu_power
import onchip_ctypes as onchip

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "tf32": torch.float32}
PEERS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
HEADS = {64: 32, 128: 16, 256: 8}
LENGTHS = (1024, 2048, 4096, 8192, 16384)
TOTAL_TOKENS = 16384


@dataclass(frozen=True)
class Case:
    case: str
    type: str
    d: int
    causal: bool
    s: int
    b: int
    h: int
    hk: int

    def flops(self):
        return 4 * self.b * self.h * self.s * self.s * self.d / (2 if self.causal else 1)


def grid(types, dims, lengths):
    for kind in types:
        for d in dims:
            if kind in ("f32", "tf32") and d > 128:
                continue
            for causal in (False, True):
                for s in lengths if kind == "bf16" else [n for n in lengths if n == 4096]:
                    yield Case("dense", kind, d, causal, s, TOTAL_TOKENS // s, HEADS[d], HEADS[d])
    if "bf16" in types and 128 in dims:
        if 8192 in lengths:
            yield Case("gqa4", "bf16", 128, True, 8192, 2, 32, 8)
        if 16384 in lengths:
            yield Case("long", "bf16", 128, True, 32768, 1, 16, 16)


def peer_call(backend, q, k, v, causal):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    grouped = q.shape[1] != k.shape[1]

    def call():
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    return call


class Contest:
    """The calls of one case, on the same tensors."""

    def __init__(self, library, case, at_least):
        self.case = case
        b, s, d = case.b, case.s, case.d
        self.q = torch.randn(b, s, case.h, d, device="cuda").to(TYPES[case.type])
        self.k, self.v = (torch.randn(b, s, case.hk, d, device="cuda").to(TYPES[case.type]) for _ in range(2))
        self.o = torch.full_like(self.q, float("nan"))
        lse = torch.full((b, case.h, s), float("nan"), device="cuda")
        tensors = {"q": self.q, "k": self.k, "v": self.v, "o": self.o, "lse": lse}
        ours = onchip.Call(library, onchip.FORWARD, tensors, causal=case.causal, allow_tf32=case.type == "tf32",
                           at_least=at_least)
        self.implementation = ours.implementation()
        self.calls = {"onchip": ours}
        if case.type in ("bf16", "f16"):
            self.calls |= {name: peer_call(backend, self.q, self.k, self.v, case.causal) for name, backend in PEERS.items()}
        for call in self.calls.values():
            call()
            call()

    def max_error(self):
        """Of the first head, against float64."""
        first = (x[:1, :, :1].transpose(1, 2).double() for x in (self.q, self.k, self.v))
        exact = torch.nn.functional.scaled_dot_product_attention(*first, is_causal=self.case.causal)
        return (self.o[:1, :, :1].transpose(1, 2).double() - exact).abs().max().item()

    def burst(self, rounds):
        times = {name: [] for name in self.calls}
        for _ in range(rounds):
            for name, call in self.calls.items():
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                call()
                end.record()
                end.synchronize()
                times[name].append(begin.elapsed_time(end))
        return {name: {"tflops": self.case.flops() / statistics.median(ms) / 1e9,
                       "spread": (max(ms) - min(ms)) / statistics.median(ms)} for name, ms in times.items()}

    def sustained(self, seconds):
        return {name: run_on_end(call, self.case.flops(), seconds) for name, call in self.calls.items()}


def run_on_end(call, flops, seconds):
    """The call for `seconds` without a pause: the queue is kept some calls deep, so that the GPU never waits."""
    depth, marks = 8, []
    torch.cuda.synchronize()
    with gpu_power.Meter() as meter:
        begin, calls = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            call()
            calls += 1
            mark = torch.cuda.Event()
            mark.record()
            marks.append(mark)
            if len(marks) >= depth:
                marks.pop(0).synchronize()
        torch.cuda.synchronize()
    return {"tflops": calls * flops / meter.seconds / 1e12, "mhz": meter.mhz, "watts": meter.watts,
            "gflop_per_joule": calls * flops / meter.joules / 1e9}


def load_published():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "h200_peers.json")) as file:
        rows = json.load(file)["rows"]
    fields = ("case", "type", "d", "causal", "s", "b", "h", "hk")
    return {Case(*(row[f] for f in fields)): row for row in rows if row["pass"] == "forward"}


def ratios(case, burst, published):
    found = {name: burst["onchip"]["tflops"] / burst[name]["tflops"] for name in PEERS if name in burst}
    row = published.get(case)
    if row and "cudnn" in found and "cudnn" in row and "fa3" in row:
        found["fa3"] = found["cudnn"] * row["cudnn"] / row["fa3"]
    return found


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


def print_costs(path):
    with tempfile.TemporaryDirectory() as cache:
        costs = {"first_call_s": first_call_seconds(path, cache), "cached_call_s": first_call_seconds(path, cache)}
    print("first call {first_call_s:.2f} s, from the cache {cached_call_s:.4f} s".format(**costs))
    return costs


def number(value, width, digits):
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"


def print_burst(row):
    c, burst, ratio = row["case"], row["burst"], row["ratios"]
    rates = "".join(number(burst.get(n, {}).get("tflops"), 8, 1 if c["type"] in ("f32", "tf32") else 0) for n in ("onchip", *PEERS))
    print(f"{c['case']:6}{c['type']:5}{c['d']:4}{'yes' if c['causal'] else 'no':>7}{c['s']:7}{rates}"
          + "".join(number(ratio.get(n), 8, 2) for n in (*PEERS, "fa3")) + f"  {row['max_error']:.1e}  {row['implementation']}",
          flush=True)


def print_sustained(row):
    for name, r in row["sustained"].items():
        print(f"       sustained {name:8}{r['tflops']:7.0f} TFLOP/s {r['mhz']:6.0f} MHz {r['watts']:5.0f} W "
              f"{r['gflop_per_joule']:6.0f} GFLOP/J", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--json")
    parser.add_argument("--at-least", default="")
    parser.add_argument("--types", default="bf16,f16,f32,tf32")
    parser.add_argument("--dims", default="64,128,256")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sustained", type=float, default=0, help="seconds; of bf16 at the longest length and 4,096")
    parser.add_argument("--no-costs", action="store_true")
    options = parser.parse_args()
    library, published = onchip.load(options.library), load_published()
    print(f"onchip, {torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    results = {"device": torch.cuda.get_device_name(), "costs": {} if options.no_costs else print_costs(options.library), "rows": []}
    print(f"{'':6}{'type':5}{'D':>4}{'causal':>7}{'S':>7}{'onchip':>8}{'flash':>8}{'cudnn':>8}{'/flash':>8}{'/cudnn':>8}{'/FA3':>8}  error")
    lengths = [int(x) for x in options.lengths.split(",")]
    for case in grid(options.types.split(","), [int(x) for x in options.dims.split(",")], lengths):
        contest = Contest(library, case, options.at_least)
        burst = contest.burst(options.rounds)
        row = {"case": asdict(case), "implementation": contest.implementation, "max_error": contest.max_error(),
               "burst": burst, "ratios": ratios(case, burst, published)}
        print_burst(row)
        if options.sustained > 0 and case.case == "dense" and case.type == "bf16" and case.s in (4096, max(lengths)):
            row["sustained"] = contest.sustained(options.sustained)
            print_sustained(row)
        results["rows"].append(row)
        del contest
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
