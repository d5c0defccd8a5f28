#!/usr/bin/env python3
"""Decoding on a GPU, one query a sequence: onchip beside PyTorch's flash and cuDNN kernels.

    h200_decode.py LIBONCHIP.so [--json FILE] [--rounds N] [--types bf16,i8,e4m3]

32 query heads share 8 of keys and values, D 128. Calls go round over copies of the cache that together are several times
the L2, captured in one CUDA graph for each contestant, in turns; the median of replays. GB/s count keys and values once.
Peers' FlashAttention-3 comes from h200_peers.json by way of cuDNN, as in h200_forward.py. Caches of 8 bits have scales per
head, and no peer.
"""
import argparse
import json
import statistics

import torch
from torch.nn.attention import sdpa_kernel

import h200_forward as forward
import onchip_ctypes as onchip

SHAPES = [(1, 4096), (1, 32768), (1, 131072), (8, 8192), (32, 8192), (128, 4096)]
HEADS, KV_HEADS, D = 32, 8, 128
ROTATED_BYTES = 256 << 20
STORED = {"bf16": torch.bfloat16, "i8": torch.int8, "e4m3": torch.float8_e4m3fn}


def caches(kind, b, s):
    """Copies of keys and values, each [B, S, 8, 128]."""
    one = 2 * b * s * KV_HEADS * D * STORED[kind].itemsize
    count = max(2, -(-ROTATED_BYTES // one))
    make = lambda: torch.randn(b, s, KV_HEADS, D, device="cuda")
    scaled = {"bf16": lambda x: x.bfloat16(), "i8": lambda x: (x * 32).round().clamp(-127, 127).to(torch.int8),
              "e4m3": lambda x: x.to(torch.float8_e4m3fn)}[kind]
    return [(scaled(make()), scaled(make())) for _ in range(count)]


def paged(k, page_size=16):
    """The same rows in shuffled pages, and the table that finds them."""
    b, s = k.shape[:2]
    pages = b * s // page_size
    order = torch.randperm(pages, device="cuda")
    pool = torch.empty(pages, page_size, *k.shape[2:], dtype=k.dtype, device="cuda")
    pool[order] = k.reshape(pages, page_size, *k.shape[2:])
    return pool, order.int().reshape(b, s // page_size), order


def graph_of(calls):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def time_graphs(graphs, calls, rounds):
    """Microseconds a call."""
    times = {name: [] for name in graphs}
    for graph in graphs.values():
        graph.replay()
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / calls)
    return {name: statistics.median(us) for name, us in times.items()}


def measure(library, kind, b, s, rounds, pages):
    q = torch.randn(b, 1, HEADS, D, device="cuda").bfloat16()
    o = torch.full_like(q, float("nan"))
    copies = caches(kind, b, s)
    ours = []
    for k, v in copies:
        tensors = {"q": q, "k": k, "v": v, "o": o}
        if kind != "bf16":
            tensors["k_scale"] = tensors["v_scale"] = torch.full((KV_HEADS,), 1 / 32 if kind == "i8" else 1.0, device="cuda")
        if pages:
            tensors["k"], table, order = paged(k)
            tensors["v"] = torch.empty_like(tensors["k"])
            tensors["v"][order] = v.reshape(tensors["v"].shape)
            tensors["page_table"] = table
            tensors["seqused_k"] = torch.full((b,), s, dtype=torch.int32, device="cuda")
        ours.append(onchip.Call(library, onchip.FORWARD, tensors))
    contestants = {"onchip": ours}
    if kind == "bf16" and not pages:
        for name, backend in forward.PEERS.items():
            contestants[name] = [forward.peer_call(backend, q, k, v, False) for k, v in copies]
    graphs = {name: graph_of(calls) for name, calls in contestants.items()}
    us = time_graphs(graphs, len(copies), rounds)
    info = ours[0].info
    return {"case": "paged16" if pages else "decode", "type": kind, "b": b, "s": s, "implementation": ours[0].implementation(),
            "splits": info.num_splits, "workspace_bytes": info.workspace_bytes, "us": us,
            "gbps": 2 * b * s * KV_HEADS * D * STORED[kind].itemsize / us["onchip"] / 1e3}


def published():
    with open(forward.os.path.join(forward.os.path.dirname(forward.os.path.abspath(__file__)), "h200_peers.json")) as file:
        return {(row["case"], row["b"], row["s"]): row for row in json.load(file)["rows"] if row["pass"] == "decode"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--types", default="bf16,i8,e4m3")
    options = parser.parse_args()
    library, known = onchip.load(options.library), published()
    cases = [(kind, b, s, False) for kind in options.types.split(",") for b, s in SHAPES] + [("bf16", 32, 8192, True)]
    print(f"onchip, {torch.cuda.get_device_name()}, PyTorch {torch.__version__}; microseconds a call")
    print(f"{'case':8}{'type':5}{'B':>4}{'keys':>8}{'onchip':>9}{'flash':>9}{'cudnn':>9}{'FA2 known':>10}{'flash/':>8}{'cudnn/':>8}{'FA3/':>7}{'GB/s':>7}{'splits':>7}{'workspace':>11}")
    rows = []
    for kind, b, s, pages in cases:
        row = measure(library, kind, b, s, options.rounds, pages)
        rows.append(row)
        us, peer = row["us"], known.get((row["case"], b, s), {}) if kind == "bf16" else {}
        speed = {name: us[name] / us["onchip"] for name in forward.PEERS if name in us}
        if "cudnn" in speed and "fa3" in peer:
            speed["fa3"] = speed["cudnn"] * peer["fa3"] / peer["cudnn"]
        row["speed_over"] = speed
        print(f"{row['case']:8}{kind:5}{b:4}{s:8}" + "".join(forward.number(us.get(n), 9, 1) for n in ("onchip", *forward.PEERS))
              + forward.number(peer.get("flash"), 10, 1)
              + "".join(forward.number(speed.get(n), w, 2) for n, w in (("flash", 8), ("cudnn", 8), ("fa3", 7)))
              + f"{row['gbps']:7.0f}{row['splits']:7}{row['workspace_bytes']:11}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
