#!/usr/bin/env python3
"""Attention at the shape of GPT-2 124M (12 causal heads of 64), Pando against PyTorch, on the CPU.

PyTorch's side is scaled_dot_product_attention on views of packed activations: its flash kernel, or
with dropout, which that lacks, the composed form. The sides take turns, --rounds times, and the best
time of each counts. On an AMD processor PyTorch also runs with MKL persuaded to use AVX512 (see
compare_torch.py), and the better of the two is the peer.
"""

import argparse
import json
import os
import sys
import tempfile
import time

from compare_matmul import peer, start_sides
from compare_torch import build_mkl_shim

PANDO = "bazel-bin/tools/bench/attention_bench"
HEADS, DIM = 12, 64
# pass, batch, queries, keys
CASES = [("forward", 1, 1024, 1024), ("backward", 1, 1024, 1024), ("forward", 4, 64, 64),
         ("backward", 4, 64, 64), ("forward", 1, 1, 1024)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="+", choices=("f32", "bf16"), default=["f32", "bf16"])
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.1, help="per case, side and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true",
                        help="count the processor time of all threads, divided by their number: for a "
                             "busy machine, with OMP_WAIT_POLICY=passive")
    parser.add_argument("--pando", default=PANDO, help="Pando's benchmark")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def torch_case(torch, line):
    """A closure that computes one case."""
    dtype, which, batch, queries, keys, dropout = line.split()
    batch, queries, keys = int(batch), int(queries), int(keys)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]

    def heads(rows, part):
        x = torch.randn(batch, rows, 3 * HEADS * DIM).to(kind)
        view = x[..., part * HEADS * DIM:(part + 1) * HEADS * DIM].view(batch, rows, HEADS, DIM)
        return view.transpose(1, 2).detach().requires_grad_(which == "backward")

    q, k, v = heads(queries, 0), heads(keys, 1), heads(keys, 2)

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, dropout_p=float(dropout), is_causal=queries == keys)

    if which == "forward":
        return forward
    out = forward()
    gradient = torch.randn(batch, queries, HEADS, DIM).to(kind).transpose(1, 2)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def worker(args):
    """PyTorch's side: a case a line in, its best seconds a line out."""
    import torch  # only here: the other side of the pipe may run without it
    torch.set_num_threads(args.threads)

    def now():
        return time.process_time() / args.threads if args.cpu_time else time.perf_counter()

    for line in sys.stdin:
        run = torch_case(torch, line)
        run()
        best, total, runs = float("inf"), 0.0, 0
        while runs < 3 or total < args.seconds:
            start = now()
            run()
            took = now() - start
            best, total, runs = min(best, took), total + took, runs + 1
        print(best, flush=True)


def measure(args, sides, case):
    best = {}
    for _ in range(args.rounds):
        for name, side in sides.items():
            best[name] = min(best.get(name, float("inf")), side.seconds(case))
    return best


def main():
    args = parse_arguments()
    if args.worker:
        return worker(args)
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
        amd = "AuthenticAMD" in cpuinfo.read()
    if not args.json:
        print("| dtype | pass | batch | queries | keys | dropout | Pando ms | PyTorch ms | PyTorch/Pando |")
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        sides = start_sides(args, build_mkl_shim(folder) if amd else None, __file__)
        for dtype in args.dtypes:
            for dropout in args.dropout:
                for which, batch, queries, keys in CASES:
                    words = (dtype, which, batch, queries, keys, dropout)
                    seconds = measure(args, sides, " ".join(map(str, words)))
                    if args.json:
                        print(json.dumps({"case": words, "seconds": seconds}), flush=True)
                        continue
                    ours, theirs = seconds["pando"], peer({"seconds": seconds})
                    print(f"| {' | '.join(map(str, words))} | {1e3 * ours:.3f} | {1e3 * theirs:.3f} | "
                          f"{theirs / ours:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
