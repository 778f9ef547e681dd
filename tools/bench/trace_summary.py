#!/usr/bin/python3
"""Where the time goes: sums a Chrome trace (pando train --profile, step_bench --profile) by kernel.

usage: tools/bench/trace_summary.py TRACE.json
"""

import collections
import json
import sys

PHASES = {"forward", "backward"}  # contain the kernels


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    with open(sys.argv[1], encoding="utf-8") as fh:
        events = json.load(fh)["traceEvents"]
    time, calls = collections.Counter(), collections.Counter()
    for e in events:
        if e["name"] not in PHASES:
            time[e["name"]] += e["dur"]
            calls[e["name"]] += 1
    total = sum(time.values())
    span = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    print("%-26s %8s %10s %7s" % ("kernel", "calls", "ms", "share"))
    for name, us in time.most_common():
        print("%-26s %8d %10.1f %6.1f%%" % (name, calls[name], us / 1e3, 100 * us / total))
    print("%-26s %8s %10.1f  of %.1f ms between first and last" % ("all kernels", "", total / 1e3, span / 1e3))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # piped into head
        sys.stderr.close()
