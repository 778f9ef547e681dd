#!/usr/bin/env python3
"""`pando train --plan auto` on clusters of unlike ranks that are emulated on this machine (--emulate-speed),
beside other ways to use them, and beside plans near to its own, all run. A rank's kernels sleep for most of
their time, so that ranks do not compete for the processor: a run whose emulation was overrun by more
than 1 %, or that used more than 60 % of the machine, does not count."""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import time

CASES = {
    "1, 1, .5, .25": [1, 1, .5, .25],
    "1, 1, 1, .3": [1, 1, 1, .3],
    "3 of one kind + 1": [1, 1, 1, .4],
    "2 + 5 of two kinds": [1, 1, .3, .3, .3, .3, .3],
}


class Cluster:
    def __init__(self, args, speeds, folder):
        self.args, self.speeds, self.folder = args, speeds, folder
        self.data = os.path.join(folder, "text.txt")
        draw = random.Random(1)
        with open(self.data, "w", encoding="ascii") as fh:
            fh.write("".join(draw.choice("abcdefgh \n") for _ in range(50000)))
        self.runs = 0

    def run(self, *options):
        """(seconds of the median step, predicted seconds or None, plan or None); None: void."""
        self.runs += 1
        out = os.path.join(self.folder, "run%d" % self.runs)
        speeds = " ".join(str(self.args.scale * s) for s in self.speeds)
        train = [self.args.pando, "train", "--data=" + self.data, "--tokenizer=byte", "--layers=4",
                 "--heads=4", "--width=192", "--context=64", "--dropout=0", "--device=cpu",
                 "--schedule=constant", "--eval-interval=0", "--eval-batches=1",
                 "--steps=%d" % self.args.steps, "--out=" + out, "--emulate-jitter=0.05", *options]
        script = "set -- %s; shift $RANK; exec %s --emulate-speed=$1" % (speeds, " ".join(train))
        before, start = os.times(), time.monotonic()
        done = subprocess.run([self.args.pando, "launch", "--workers=%d" % len(self.speeds), "sh", "-c",
                               script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              encoding="utf-8", errors="replace", check=False)
        after, wall = os.times(), time.monotonic() - start
        if done.returncode != 0:
            raise SystemExit(done.stdout)
        used = (after.children_user + after.children_system - before.children_user
                - before.children_system) / wall / os.cpu_count()
        overrun = max(float(x) for x in re.findall(r"overrun ([0-9.]+) %", done.stdout))
        if used > 0.6 or overrun > 1:
            print("    void: %.0f %% of the machine used, overrun %.2f %%" % (100 * used, overrun))
            return None
        with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as log:
            seconds = [json.loads(line).get("seconds") for line in log]
        predicted = re.search(r"about ([0-9.]+) s a step", done.stdout)
        plan = os.path.join(out, "plan.json")
        return (statistics.median([s for s in seconds if s][3:]),
                float(predicted.group(1)) if predicted else None,
                plan if os.path.exists(plan) else None)

    def write_plan(self, stage, batches, shares):
        ranks = [{"micro_batch": b[0], "micro_steps": b[1], "last_micro_batch": b[2], "share": s}
                 for b, s in zip(batches, shares)]
        path = os.path.join(self.folder, "plan%d.json" % self.runs)
        with open(path, "w", encoding="ascii") as fh:
            json.dump({"zero_stage": stage, "ranks": ranks}, fh)
        return "--plan=" + path


def split(total, weights):
    """Whole numbers in proportion, of that sum."""
    out, given, reached = [], 0, 0.0
    for w in weights:
        reached += w / sum(weights) * total
        out.append(round(reached) - given)
        given += out[-1]
    return out


def near(plan, draw):
    """The plan with a sample moved from a rank to another, if its micro-steps allow it."""
    ranks = [dict(r) for r in plan["ranks"]]
    for r in ranks:
        r["samples"] = ((r["micro_steps"] - 1) * r["micro_batch"] + r["last_micro_batch"]
                        if r["micro_steps"] else 0)
    giver, taker = draw.sample(range(len(ranks)), 2)
    if ranks[giver]["samples"] < 2:
        return None
    ranks[giver]["samples"] -= 1
    ranks[taker]["samples"] += 1
    return [(max(1, r["micro_batch"]), r["samples"]) for r in ranks]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pando", default=os.path.abspath("bazel-bin/tools/pando/pando"))
    parser.add_argument("--scale", type=float, default=0.15, help="speed of the fastest rank")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--global-batch", type=int, default=24)
    parser.add_argument("--near", type=int, default=4, help="plans near its own to run")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    draw = random.Random(1)
    batch = args.global_batch
    for name in args.cases:
        speeds = CASES[name]
        n = len(speeds)
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(args, speeds, folder)
            print("%s" % name, flush=True)
            auto = cluster.run("--plan=auto", "--global-batch=%d" % batch)
            if auto is None:
                continue
            with open(auto[2], encoding="ascii") as fh:
                plan = json.load(fh)
            print("  auto: %.3f s a step (predicted %.3f); stage %d, samples %s" % (
                auto[0], auto[1], plan["zero_stage"],
                [(r["micro_batch"], r["micro_steps"], r["last_micro_batch"]) for r in plan["ranks"]]),
                  flush=True)
            rivals = {"even split, stage %d" % s: ["--global-batch=%d" % batch, "--zero-stage=%d" % s,
                                                   "--micro-batch=%d" % -(-batch // n)]
                      for s in (0, 3)}
            for stage in (0, 3):
                samples = split(batch, speeds)
                rivals["by peak, stage %d" % stage] = [cluster.write_plan(
                    stage, [(b, 1, b) for b in samples], [1 / n] * n)]
                cluster.runs += 1
            for i in range(args.near):
                moved = near(plan, draw)
                if moved is None or plan["zero_stage"] > 1:
                    continue
                batches = [(m, -(-k // m), k - (-(-k // m) - 1) * m) if k else (0, 0, 0)
                           for m, k in moved]
                rivals["near %d: %s" % (i, [k for _, k in moved])] = [cluster.write_plan(
                    plan["zero_stage"], batches, [r["share"] for r in plan["ranks"]])]
                cluster.runs += 1
            for rival, options in rivals.items():
                result = cluster.run(*options)
                if result:
                    print("  %-34s %.3f s a step: auto has %.3f of its speed"
                          % (rival, result[0], result[0] / auto[0]), flush=True)


if __name__ == "__main__":
    main()
