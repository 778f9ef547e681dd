#!/usr/bin/env python3
"""The matrix products of a GPT-2 124M training step, each alone: Pando against PyTorch.

For each product (fwd: forward; dx: gradient of the input; dw: of the weight, Pando's in f32, PyTorch's
in the input's type; dw+: of the weight, added to an earlier one) the sides take turns, --rounds
times, and the best time of each counts. "Whole step" is all of a step with one micro-batch: no dw+. On an AMD processor MKL keeps to its AVX2 kernels; then f32 PyTorch also runs
with MKL persuaded to use AVX512 (see compare_torch.py), and the better of the two is the peer.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PANDO = "bazel-bin/tools/bench/matmul_bench"
# name: inputs, outputs, weight stored [out, in], how many in the model
LAYERS = {"qkv": (768, 2304, False, 12), "proj": (768, 768, False, 12), "fc": (768, 3072, False, 12),
          "fcproj": (3072, 768, False, 12), "head": (768, 50304, True, 1)}
FORMS = ("fwd", "dx", "dw", "dw+")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--dtypes", nargs="+", choices=("f32", "bf16"), default=["f32", "bf16"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.1, help="per product, side and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true",
                        help="count the processor time of all threads, divided by their number: for a "
                             "busy machine, with OMP_WAIT_POLICY=passive")
    parser.add_argument("--pando", default=PANDO, help="Pando's benchmark")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def torch_product(torch, dtype, layer, form, tokens):
    """A closure that computes one product into memory that is there already."""
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


def worker(args):
    """PyTorch's side: a case a line in, its best seconds a line out."""
    import torch  # only here: the other side of the pipe may run without it
    torch.set_num_threads(args.threads)

    def now():
        return time.process_time() / args.threads if args.cpu_time else time.perf_counter()

    for line in sys.stdin:
        dtype, layer, form, tokens = line.split()
        product = torch_product(torch, dtype, layer, form, int(tokens))
        product()
        best, total, runs = float("inf"), 0.0, 0
        while runs < 3 or total < args.seconds:
            start = now()
            product()
            took = now() - start
            best, total, runs = min(best, took), total + took, runs + 1
        print(best, flush=True)


class Side:
    """A process that times cases sent to it."""

    def __init__(self, command, env):
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def seconds(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended: {self.process.wait()}")
        return float(line)


def start_sides(args, shim, script=__file__):
    """Pando's benchmark and PyTorch's workers, which are `script` with --worker."""
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    common = [f"--seconds={args.seconds}", f"--threads={args.threads}"]
    common += ["--cpu-time"] if args.cpu_time else []
    torch = [args.python, os.path.abspath(script), "--worker", *common]
    sides = {"pando": Side([args.pando, "--interactive", *common], env), "torch": Side(torch, env)}
    if shim:
        sides["torch+mkl512"] = Side(torch, dict(env, LD_PRELOAD=shim))
    return sides


def measure(args, sides, dtype, tokens):
    rows = []
    for layer, (inputs, outputs, _, count) in LAYERS.items():
        for form in FORMS:
            best = {}
            for _ in range(args.rounds):
                for name, side in sides.items():
                    if name == "torch+mkl512" and dtype != "f32":
                        continue
                    best[name] = min(best.get(name, float("inf")),
                                     side.seconds(f"{dtype} {layer} {form} {tokens}"))
            rows.append({"dtype": dtype, "tokens": tokens, "layer": layer, "form": form,
                         "count": count, "gflop": 2e-9 * tokens * inputs * outputs, "seconds": best})
    return rows


def peer(row):
    return min(seconds for name, seconds in row["seconds"].items() if name != "pando")


def print_table(rows):
    print("| dtype | tokens | product | | Pando GF/s | PyTorch GF/s | Pando/PyTorch |")
    print("|---|---:|---|---|---:|---:|---:|")
    for row in rows:
        ours = row["seconds"]["pando"]
        print(f"| {row['dtype']} | {row['tokens']} | {row['layer']} | {row['form']} | "
              f"{row['gflop'] / ours:.0f} | {row['gflop'] / peer(row):.0f} | {peer(row) / ours:.2f} |")
    step = [row for row in rows if row["form"] != "dw+"]
    ours = sum(row["count"] * row["seconds"]["pando"] for row in step)
    theirs = sum(row["count"] * peer(row) for row in step)
    gflop = sum(row["count"] * row["gflop"] for row in step)
    print(f"| {rows[0]['dtype']} | {rows[0]['tokens']} | whole step | | {gflop / ours:.0f} | "
          f"{gflop / theirs:.0f} | {theirs / ours:.2f} |", flush=True)


def main():
    args = parse_arguments()
    if args.worker:
        return worker(args)
    from compare_torch import build_mkl_shim
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
        amd = "AuthenticAMD" in cpuinfo.read()
    with tempfile.TemporaryDirectory() as folder:
        sides = start_sides(args, build_mkl_shim(folder) if amd else None)
        for dtype in args.dtypes:
            for tokens in args.tokens:
                rows = measure(args, sides, dtype, tokens)
                if args.json:
                    print(json.dumps(rows), flush=True)
                else:
                    print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
