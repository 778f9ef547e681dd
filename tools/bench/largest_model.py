#!/usr/bin/env python3
"""The most layers of width 768 that train with a memory budget per rank, at each ZeRO stage, found by
running: doubling, then bisection. Beside it what the formulas of docs/zero.md leave room for: the
parameters whose state alone fills the budget."""

import argparse
import os
import random
import subprocess
import tempfile

BYTES = {0: lambda s: 16, 1: lambda s: 8 + 8 * s, 2: lambda s: 4 + 12 * s, 3: lambda s: 16 * s}


def parameters(layers, width=768, vocab=256, context=64):
    return layers * (12 * width * width + 13 * width) + (vocab + context + 2) * width


def trains(pando, workers, budget, stage, layers, folder, data):
    command = [pando, "launch", "--workers=%d" % workers, "train", "--data=" + data,
               "--tokenizer=byte", "--width=768", "--heads=12", "--layers=%d" % layers,
               "--context=64", "--micro-batch=1", "--steps=2", "--eval-interval=0", "--recompute",
               "--device=cpu", "--memory-budget=" + budget, "--zero-stage=%d" % stage,
               "--checkpoint-interval=1000000", "--out=" + folder]
    # The end of a run saves, which is not what counts here.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding="ascii", errors="replace") as job:
        trained = any("step 2/2" in line for line in job.stdout)
        job.kill()
    return trained


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pando", default="bazel-bin/tools/pando/pando")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--budget-mb", type=int, default=1500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "text.txt")
        draw = random.Random(1)
        with open(data, "w", encoding="ascii") as fh:
            fh.write("".join(draw.choice("abcdefgh \n") for _ in range(20000)))
        runs = 0

        def fits(stage, layers):
            nonlocal runs
            runs += 1
            return trains(args.pando, args.workers, "%dMB" % args.budget_mb, stage, layers,
                          os.path.join(folder, "run%d" % runs), data)

        print("stage  layers  parameters   of what state alone leaves room for")
        for stage in range(4):
            low, high = 1, 2
            while fits(stage, high):
                low, high = high, 2 * high
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if fits(stage, middle) else (low, middle)
            most = args.budget_mb * 1e6 / BYTES[stage](1 / args.workers)
            print("%5d  %6d  %8.1f M   %.2f" % (stage, low, parameters(low) / 1e6,
                                               parameters(low) / most), flush=True)


if __name__ == "__main__":
    main()
