"""What the compare_*.py scripts share: Pando's benchmark and PyTorch's worker take turns at cases.

A side is a process that is sent a case in a line and answers with its best seconds in a line. On an
AMD processor MKL keeps to its AVX2 kernels; there PyTorch also runs with MKL persuaded by a
preloaded two-line library to use AVX512 (`torch+mkl512`), and the better of the two is the peer.
"""

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

MKL_SUFFIX = "+mkl512"
MKL_SHIM = """int mkl_serv_intel_cpu_true(void) { return 1; }
int mkl_serv_intel_cpu(void) { return 1; }
"""


def processor():
    """(model name, is it AMD's)."""
    name, amd = platform.processor() or platform.machine(), False
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            amd = amd or "AuthenticAMD" in value
    return name, amd


@contextlib.contextmanager
def mkl_shim():
    """The library that lets MKL choose AVX512 on AMD; None elsewhere, or without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not processor()[1] or compiler is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        source, library = os.path.join(folder, "shim.c"), os.path.join(folder, "shim.so")
        with open(source, "w", encoding="ascii") as file:
            file.write(MKL_SHIM)
        command = [compiler, "-shared", "-fPIC", "-o", library, source]
        yield library if subprocess.run(command, check=False).returncode == 0 else None


def parser(doc, pando):
    """The options that all comparisons of cases have."""
    p = argparse.ArgumentParser(description=doc,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtypes", nargs="+", choices=("f32", "bf16"), default=["f32", "bf16"])
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--seconds", type=float, default=0.1, help="per case, side and round")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--cpu-time", action="store_true",
                   help="count the processor time of all threads, divided by their number: for a "
                        "busy machine, with OMP_WAIT_POLICY=passive")
    p.add_argument("--pando", default=pando, help="Pando's benchmark")
    p.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    p.add_argument("--json", action="store_true", help="print JSON instead of the table")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return p


def work(args, closure):
    """PyTorch's side: for each line of standard input, times closure(torch, line)."""
    import torch  # only here: the other side of the pipe may run without it
    torch.set_num_threads(args.threads)

    def now():
        return time.process_time() / args.threads if args.cpu_time else time.perf_counter()

    for line in sys.stdin:
        run = closure(torch, line)
        run()
        best, total, runs = float("inf"), 0.0, 0
        while runs < 3 or total < args.seconds:
            start = now()
            run()
            took = now() - start
            best, total, runs = min(best, took), total + took, runs + 1
        print(best, flush=True)


class _Side:
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


class Sides:
    """Pando's benchmark and PyTorch's workers, which are `script` with --worker."""

    def __init__(self, args, script, shim):
        self.rounds = args.rounds
        env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
        common = [f"--seconds={args.seconds}", f"--threads={args.threads}"]
        common += ["--cpu-time"] if args.cpu_time else []
        torch = [args.python, os.path.abspath(script), "--worker", *common]
        self.sides = {"pando": _Side([args.pando, "--interactive", *common], env),
                      "torch": _Side(torch, env)}
        if shim:
            self.sides["torch" + MKL_SUFFIX] = _Side(torch, dict(env, LD_PRELOAD=shim))

    def measure(self, case, with_mkl=True):
        """The best seconds of each side, which take turns."""
        best = {}
        for _ in range(self.rounds):
            for name, side in self.sides.items():
                if with_mkl or not name.endswith(MKL_SUFFIX):
                    best[name] = min(best.get(name, float("inf")), side.seconds(case))
        return best


def peer(seconds):
    """The best of PyTorch's times."""
    return min(s for name, s in seconds.items() if name != "pando")
