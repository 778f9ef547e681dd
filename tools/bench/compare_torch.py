#!/usr/bin/env python3
"""One GPT training step, Pando against PyTorch, on this machine's processor.

Each measurement is a process of its own with the same thread count. All PyTorch variants run
once (torch_step.py lists them), then the best of them and Pando run in turn, A B A B, --rounds
times; best and median over all timed steps and the peak resident memory are reported; `cpu s` is
the least processor time of a step, which neighbours on a shared machine disturb least (with
--env OMP_WAIT_POLICY=passive, or waiting threads count too).

The peer is taken at its best. On an AMD processor f32 PyTorch is also timed with MKL persuaded to
use AVX512 (`+mkl512`, see alternate.py). The `pure` variants count, though without f32 masters
small updates are lost in them.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from alternate import MKL_SUFFIX, mkl_shim, processor
from torch_step import VARIANTS

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH_STEP = os.path.join(HERE, "torch_step.py")
PANDO = "bazel-bin/tools/bench/step_bench"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--context", type=int, default=64, help="tokens per sample")
    parser.add_argument("--batch", type=int, default=4, help="samples per step")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--precision", choices=sorted(VARIANTS), default="f32")
    parser.add_argument("--steps", type=int, default=5, help="timed steps per process")
    parser.add_argument("--rounds", type=int, default=3, help="processes per side")
    parser.add_argument("--variants", help="PyTorch variants to consider, comma-separated")
    parser.add_argument("--all-rounds", action="store_true",
                        help="run every variant in every round, not only the best")
    parser.add_argument("--pando", default=PANDO, help="Pando's benchmark, a command line")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="environment of both sides, e.g. OMP_WAIT_POLICY=passive")
    parser.add_argument("--wait-idle", type=float, default=0, metavar="SECONDS",
                        help="before each process, wait at most so long for an idle processor")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    args = parser.parse_args()
    if any("=" not in item for item in args.env):
        parser.error("--env takes NAME=VALUE")
    return args


def run_measured(command, env):
    """Runs a command that prints a JSON line; returns (its object, peak bytes) or an error text.

    The peak is ru_maxrss of the process, or of the largest process that it waited for.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            child = subprocess.Popen(command, stdout=out, stderr=err, env=env)
        except OSError as error:
            return None, f"cannot run {command[0]}: {error.strerror}"
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
        if child.returncode != 0 or not lines:
            last = err.read().strip().splitlines()[-1:] or ["no output"]
            return None, f"exit code {child.returncode}: {last[0]}"
    try:
        report = json.loads(lines[-1])
        report["step_seconds_best"], report["step_seconds_median"]  # what everything below needs
    except (ValueError, KeyError) as error:
        return None, f"not the expected JSON ({error!r})"
    return report, usage.ru_maxrss * 1024


def busy_share(seconds):
    """Share of the processor's time that was not idle during the next `seconds`; 0 if unknown."""
    def ticks():
        with open("/proc/stat", encoding="ascii") as stat:
            fields = [int(x) for x in stat.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # all; idle and waiting for a disk
    try:
        before = ticks()
        time.sleep(seconds)
        after = ticks()
    except OSError:
        return 0.0
    return 1.0 - (after[1] - before[1]) / max(1, after[0] - before[0])


def wait_until_idle(limit):
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and busy_share(2.0) > 0.05:
        pass


class Side:
    """One competitor: how to run it, and what its runs have shown."""

    def __init__(self, name, command, env, wait_idle):
        self.name, self.command, self.env, self.wait_idle = name, command, env, wait_idle
        self.reports, self.peaks, self.error = [], [], None

    def run(self):
        wait_until_idle(self.wait_idle)
        print(f"  {self.name} ...", end=" ", file=sys.stderr, flush=True)
        report, peak = run_measured(self.command, self.env)
        if report is None:
            self.error = peak
            print(f"failed: {self.error}", file=sys.stderr)
            return
        self.reports.append(report)
        self.peaks.append(peak)
        print(f"best {report['step_seconds_best']:.3f} s, "
              f"median {report['step_seconds_median']:.3f} s", file=sys.stderr)

    @property
    def best(self):
        return min((r["step_seconds_best"] for r in self.reports), default=float("inf"))

    def summary(self, tokens):
        if not self.reports:
            return {"name": self.name, "error": self.error}
        return {
            "name": self.name,
            "step_seconds_best": self.best,
            "step_seconds_median": statistics.median(
                r["step_seconds_median"] for r in self.reports),
            "step_cpu_seconds_best": min(
                (r["step_cpu_seconds_best"] for r in self.reports
                 if "step_cpu_seconds_best" in r), default=None),
            "tokens_per_second": tokens / self.best,
            "peak_memory_bytes": max(self.peaks),
            "runs": len(self.reports),
            "loss_first": self.reports[0].get("loss_first"),
            "loss_last": self.reports[0].get("loss_last"),
            "error": self.error,
        }


def torch_sides(args, options, env, shim):
    variants = VARIANTS[args.precision]
    if shim and args.precision == "f32":  # bfloat16 products are oneDNN's, not MKL's
        variants = variants + [variant + MKL_SUFFIX for variant in variants]
    if args.variants:
        variants = args.variants.split(",")
    sides = []
    for name in variants:
        variant = name.removesuffix(MKL_SUFFIX)
        own = dict(env, LD_PRELOAD=shim) if variant != name and shim else env
        command = [args.python, TORCH_STEP, "--variant", variant, *options]
        sides.append(Side("torch " + name, command, own, args.wait_idle))
    return sides


def measure(args, torch, pando):
    """Runs everything; returns the fastest PyTorch side, or None."""
    for side in torch:
        side.run()
    best = min(torch, key=lambda side: side.best)
    if pando:
        pando.run()
    for _ in range(args.rounds - 1):
        for side in torch if args.all_rounds else [best]:
            if side.error is None:
                side.run()
        if pando and pando.error is None:
            pando.run()
    best = min(torch, key=lambda side: side.best)
    return best if best.reports else None


def print_table(result):
    s = result["setting"]
    print(f"GPT {s['layers']} layers, {s['heads']} heads, width {s['width']}, vocabulary "
          f"{s['vocab']}; {s['batch']} x {s['context']} tokens a step; {s['precision']}, "
          f"{s['threads']} threads")
    print(f"{result['processor']}; load {result['load_before'][0]:.1f} before, "
          f"{result['load_after'][0]:.1f} after; {result['environment']}")
    print(f"{result['torch_program']}: {result['torch_matrix_library']}")
    if result["pando_matrix_library"]:
        print(f"Pando: {result['pando_matrix_library']}")
    print(f"\n{'':28}{'best s':>9}{'median s':>10}{'cpu s':>9}{'tokens/s':>10}{'peak MiB':>10}"
          f"{'runs':>6}")
    for row in result["rows"]:
        if "step_seconds_best" not in row:
            print(f"{row['name']:28}{row['error']}")
            continue
        cpu = row["step_cpu_seconds_best"]
        print(f"{row['name']:28}{row['step_seconds_best']:9.3f}{row['step_seconds_median']:10.3f}"
              f"{'-' if cpu is None else f'{cpu:.3f}':>9}{row['tokens_per_second']:10.0f}"
              f"{row['peak_memory_bytes'] / 2**20:10.0f}{row['runs']:6d}")
    print()
    if result["ratio_best"]:
        print(f"Pando is {result['ratio_best']:.2f}x as fast as {result['torch_best']} "
              f"(best against best; medians {result['ratio_median']:.2f}x), with "
              f"{result['ratio_memory']:.2f}x its memory.")
    else:
        print(f"Pando was not timed: {result['pando_missing']}.")


def main():
    args = parse_arguments()
    threads = str(args.threads)
    env = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
    env.update(item.split("=", 1) for item in args.env)
    options = ["--json"]
    for name in ("layers", "heads", "width", "context", "vocab", "threads", "precision", "steps"):
        options += ["--" + name, str(getattr(args, name))]
    options += ["--micro-batch", str(args.batch)]

    command = shlex.split(args.pando)
    missing = None
    if shutil.which(command[0]) is None:
        missing = (f"{command[0]} is not there "
                   "(bazel build -c opt //tools/bench:step_bench, or --pando COMMAND)")
    pando = None if missing else Side("pando", command + options, env, args.wait_idle)

    load_before = os.getloadavg()
    with mkl_shim() as shim:
        torch = torch_sides(args, options, env, shim)
        best = measure(args, torch, pando)
    tokens = args.batch * args.context
    rows = [side.summary(tokens) for side in torch + ([pando] if pando else [])]
    if best is None:
        sys.exit(f"PyTorch could not be timed: {torch[0].error}")
    peer = best.summary(tokens)
    mine = pando.summary(tokens) if pando and pando.reports else None
    omp = {k: v for k, v in env.items() if k.startswith(("OMP_", "MKL_", "GOMP_", "KMP_", "DNNL_"))}
    result = {
        "setting": {k: getattr(args, k) for k in (
            "layers", "heads", "width", "context", "batch", "vocab", "threads", "precision")},
        "processor": processor()[0],
        "environment": " ".join(f"{k}={v}" for k, v in sorted(omp.items())),
        "load_before": load_before,
        "load_after": os.getloadavg(),
        "torch_program": best.reports[0].get("program"),
        "torch_matrix_library": best.reports[0].get("matrix_library"),
        "pando_matrix_library": pando.reports[0].get("matrix_library") if mine else None,
        "pando_missing": missing or (pando.error if not mine else None),
        "torch_best": best.name,
        "ratio_best": peer["step_seconds_best"] / mine["step_seconds_best"] if mine else None,
        "ratio_median": peer["step_seconds_median"] / mine["step_seconds_median"] if mine else None,
        "ratio_memory": mine["peak_memory_bytes"] / peer["peak_memory_bytes"] if mine else None,
        "rows": rows,
    }
    if args.json:
        print(json.dumps(result))
    else:
        print_table(result)


if __name__ == "__main__":
    main()
