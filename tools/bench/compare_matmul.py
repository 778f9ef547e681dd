#!/usr/bin/env python3
"""The matrix products of a GPT-2 124M training step, each alone: Pando against PyTorch.

For each product (fwd: forward; dx: gradient of the input; dw: of the weight, Pando's in f32, PyTorch's
in the input's type; dw+: of the weight, added to an earlier one) the sides take turns, --rounds
times, and the best time of each counts (see alternate.py). "Whole step" is all of a step with one
micro-batch: no dw+.
"""

import json
import sys

import alternate

PANDO = "bazel-bin/tools/bench/matmul_bench"
# name: inputs, outputs, weight stored [out, in], how many in the model
LAYERS = {"qkv": (768, 2304, False, 12), "proj": (768, 768, False, 12), "fc": (768, 3072, False, 12),
          "fcproj": (3072, 768, False, 12), "head": (768, 50304, True, 1)}
FORMS = ("fwd", "dx", "dw", "dw+")


def torch_product(torch, case):
    """A closure that computes one product into memory that is there already."""
    dtype, layer, form, tokens = case.split()
    tokens = int(tokens)
    inputs, outputs, out_in, _ = LAYERS[layer]
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    x, dy = torch.randn(tokens, inputs).to(kind), torch.randn(tokens, outputs).to(kind)
    stored = torch.randn(*((outputs, inputs) if out_in else (inputs, outputs))).to(kind)
    weight = stored.t() if out_in else stored
    if form == "fwd" and not out_in:
        bias, y = torch.randn(outputs).to(kind), torch.empty_like(dy)
        return lambda: torch.addmm(bias, x, weight, out=y)
    operands = {"fwd": (x, weight), "dx": (dy, weight.t()),
                "dw": (dy.t(), x) if out_in else (x.t(), dy)}[form.rstrip("+")]
    result = torch.mm(*operands)
    if form == "dw+":  # as autograd does it
        return lambda: result.add_(torch.mm(*operands))
    return lambda: torch.mm(*operands, out=result)


def measure(sides, dtype, tokens):
    rows = []
    for layer, (inputs, outputs, _, count) in LAYERS.items():
        for form in FORMS:
            # PyTorch's bfloat16 products are oneDNN's, not MKL's.
            best = sides.measure(f"{dtype} {layer} {form} {tokens}", with_mkl=dtype == "f32")
            rows.append({"dtype": dtype, "tokens": tokens, "layer": layer, "form": form,
                         "count": count, "gflop": 2e-9 * tokens * inputs * outputs, "seconds": best})
    return rows


def print_table(rows):
    print("| dtype | tokens | product | | Pando GF/s | PyTorch GF/s | Pando/PyTorch |")
    print("|---|---:|---|---|---:|---:|---:|")
    for row in rows:
        ours, theirs = row["seconds"]["pando"], alternate.peer(row["seconds"])
        print(f"| {row['dtype']} | {row['tokens']} | {row['layer']} | {row['form']} | "
              f"{row['gflop'] / ours:.0f} | {row['gflop'] / theirs:.0f} | {theirs / ours:.2f} |")
    step = [row for row in rows if row["form"] != "dw+"]
    ours = sum(row["count"] * row["seconds"]["pando"] for row in step)
    theirs = sum(row["count"] * alternate.peer(row["seconds"]) for row in step)
    gflop = sum(row["count"] * row["gflop"] for row in step)
    print(f"| {rows[0]['dtype']} | {rows[0]['tokens']} | whole step | | {gflop / ours:.0f} | "
          f"{gflop / theirs:.0f} | {theirs / ours:.2f} |", flush=True)


def main():
    parser = alternate.parser(__doc__, PANDO)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024])
    args = parser.parse_args()
    if args.worker:
        return alternate.work(args, torch_product)
    with alternate.mkl_shim() as shim:
        sides = alternate.Sides(args, __file__, shim)
        for dtype in args.dtypes:
            for tokens in args.tokens:
                rows = measure(sides, dtype, tokens)
                if args.json:
                    print(json.dumps(rows), flush=True)
                else:
                    print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
