#!/usr/bin/env python3
"""DRAM and L2 bytes of one forward call, from hardware counters: onchip, PyTorch's flash and cuDNN (Nsight Compute).

    h200_bytes.py LIBONCHIP.so [--heads 16] [--length 8192] [--dim 128] [--causal] [--only NAME]

Each contestant runs in a process of its own under ncu, which measures the kernels of its second call one by one, with the
caches flushed between them and the clocks left alone. L2 bytes are those between L2 and the multiprocessors.
"""
import argparse
import csv
import io
import subprocess
import sys

METRICS = {"dram__bytes_read.sum": "DRAM read", "dram__bytes_write.sum": "DRAM written", "lts__t_bytes.sum": "L2",
           "gpu__time_duration.sum": "time"}
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "nsecond": 1e-9,
         "usecond": 1e-6, "msecond": 1e-3}


def run_child(options):
    import torch
    import h200_forward as forward
    import onchip_ctypes as onchip
    q, k, v = (torch.randn(1, options.length, options.heads, options.dim, device="cuda").bfloat16() for _ in range(3))
    o, lse = torch.empty_like(q), torch.empty(1, options.heads, options.length, device="cuda")
    if options.child == "onchip":
        call = onchip.Call(onchip.load(options.library), onchip.FORWARD, {"q": q, "k": k, "v": v, "o": o, "lse": lse}, causal=options.causal)
    else:
        call = forward.peer_call(forward.PEERS[options.child], q, k, v, options.causal)
    call()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    call()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def measure(name, arguments):
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--metrics", ",".join(METRICS), "--csv",
               "--print-units", "base", sys.executable, *arguments, "--child", name]
    result = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in result.stdout.splitlines() if line.startswith('"')]
    if result.returncode or not lines:
        raise SystemExit(f"ncu failed for {name}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    totals = {label: 0.0 for label in METRICS.values()}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        totals[METRICS[row["Metric Name"]]] += float(row["Metric Value"].replace(",", "")) * UNITS.get(row["Metric Unit"], 1)
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--only", choices=("onchip", "flash", "cudnn"))
    parser.add_argument("--child", choices=("onchip", "flash", "cudnn"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_child(options)
    tensor_mb = options.length * options.heads * options.dim * 2 / 1e6
    print(f"B 1, H {options.heads}, S {options.length}, D {options.dim}, bf16; MB. Least possible: {3 * tensor_mb:.1f} read, "
          f"{tensor_mb + options.length * options.heads * 4 / 1e6:.1f} written")
    print(f"{'':8}{'DRAM read':>11}{'DRAM written':>14}{'L2':>9}{'us':>9}")
    for name in (options.only,) if options.only else ("onchip", "flash", "cudnn"):
        t = measure(name, sys.argv)
        print(f"{name:8}{t['DRAM read'] / 1e6:11.1f}{t['DRAM written'] / 1e6:14.1f}{t['L2'] / 1e6:9.0f}{t['time'] * 1e6:9.0f}", flush=True)


if __name__ == "__main__":
    main()
