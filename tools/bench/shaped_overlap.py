#!/usr/bin/env python3
"""overlap_bench as processes on a network whose links are limited by the kernel (tc's token bucket),
instead of by the benchmark itself. As root."""

import argparse
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "faults"))
import network  # pylint: disable=wrong-import-position


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pando", default="bazel-bin/tools/pando/pando")
    parser.add_argument("--bench", default="bazel-bin/tools/bench/overlap_bench")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=50, help="of a link, per second")
    args = parser.parse_args()
    why_not = network.missing()
    if why_not:
        sys.exit(why_not)
    # Headers of Ethernet, IP and TCP: 66 bytes of 1514.
    payload = args.megabytes * 1e6 * (1 - 66 / 1514)
    nodes = network.Network(args.ranks)
    jobs, store = [], []
    environment = dict(os.environ, PANDO_STORE_SECRET=os.urandom(8).hex(), OMP_NUM_THREADS="1")
    try:
        for i, node in enumerate(nodes.nodes):
            nodes.ip(node, "qdisc add dev eth root tbf rate %dkbit burst 64kb latency 50ms"
                     % (args.megabytes * 8000), program="tc")
            address = "--interface=" + nodes.address(i)
            jobs.append(subprocess.Popen(
                [*nodes.within(node), args.pando, "launch", "--nodes=%d" % args.ranks,
                 "--node-rank=%d" % i, address, *store, os.path.abspath(args.bench), address,
                 "--latency=0", "--bandwidth=%f" % payload],
                env=environment, stderr=subprocess.PIPE, universal_newlines=True))
            if i == 0:
                store = ["--store=" + jobs[0].stderr.readline().split("--store ")[1].split()[0]]
        for job in jobs:
            _, err = job.communicate()
            if job.returncode != 0:
                sys.exit(err)
    finally:
        nodes.close()


if __name__ == "__main__":
    main()
