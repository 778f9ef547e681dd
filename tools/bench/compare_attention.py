#!/usr/bin/env python3
"""Attention at the shape of GPT-2 124M (12 causal heads of 64), Pando against PyTorch, on the CPU.

PyTorch's side is scaled_dot_product_attention on views of packed activations: its flash kernel, or
with dropout, which that lacks, the composed form. The sides take turns, --rounds times, and the best
time of each counts (see alternate.py).
"""

import json
import sys

import alternate

PANDO = "bazel-bin/tools/bench/attention_bench"
HEADS, DIM = 12, 64
# pass, batch, queries, keys
CASES = [("forward", 1, 1024, 1024), ("backward", 1, 1024, 1024), ("forward", 4, 64, 64),
         ("backward", 4, 64, 64), ("forward", 1, 1, 1024)]


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


def main():
    parser = alternate.parser(__doc__, PANDO)
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0])
    args = parser.parse_args()
    if args.worker:
        return alternate.work(args, torch_case)
    if not args.json:
        print("| dtype | pass | batch | queries | keys | dropout | Pando ms | PyTorch ms | PyTorch/Pando |")
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    with alternate.mkl_shim() as shim:
        sides = alternate.Sides(args, __file__, shim)
        for dtype in args.dtypes:
            for dropout in args.dropout:
                for which, batch, queries, keys in CASES:
                    words = (dtype, which, batch, queries, keys, dropout)
                    seconds = sides.measure(" ".join(map(str, words)))
                    if args.json:
                        print(json.dumps({"case": words, "seconds": seconds}), flush=True)
                        continue
                    ours, theirs = seconds["pando"], alternate.peer(seconds)
                    print(f"| {' | '.join(map(str, words))} | {1e3 * ours:.3f} | {1e3 * theirs:.3f} | "
                          f"{theirs / ours:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
