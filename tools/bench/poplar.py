#!/usr/bin/env python3
"""Poplar's clusters and models (docs/poplar.md): what `pando plan` expects of each strategy at each ZeRO
stage, as Markdown; and a picture of the ratios."""

import argparse
import json
import os
import subprocess
import tempfile

CLUSTERS = {
    "A: 4 x A100-80 + 4 x A100-40": (100, [("A100-80", 4), ("A100-40", 4)]),
    "B: 2 x V100-16 + 2 x T4": (100, [("V100-16", 2), ("T4", 2)]),
    "C: 4 x A800-80 + 4 x V100S-32": (100, [("A800-80", 4), ("V100S-32", 4)]),
}
MODELS = ["llama-0.5b", "llama-1.1b", "bert-1.1b", "gpt2-1.5b"]
OTHERS = ["even split", "strongest only", "by peak FLOP/s", "Poplar's", "Cephalo's"]


def plan(pando, cluster, model, stage):
    gbit, nodes = cluster
    text = "network_gbit = %d\n" % gbit + "".join(
        '[[node]]\ngpu = "%s"\ngpus = %d\n' % node for node in nodes)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cluster.toml")
        with open(path, "w", encoding="ascii") as fh:
            fh.write(text)
        done = subprocess.run([pando, "plan", "--cluster=" + path, "--model=" + model,
                               "--global-tokens=2M", "--zero-stage=%d" % stage, "--json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def cell(other, tokens):
    return "-" if not other else "%.2f" % (tokens / other["tokens_per_second"])


def bars(rows, path):
    """How many times faster than Poplar's plan, as SVG."""
    width, height, left = 760, 18, 330
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" '
             'font-size="12">' % (width, height * len(rows) + 30),
             '<text x="4" y="16">Speed of the plan over even split (grey) and over Poplar\'s '
             'batches (green)</text>']
    scale = (width - left - 60) / max(max(r[1], r[2]) for r in rows)
    for i, (name, even, poplar) in enumerate(rows):
        y = 30 + i * height
        lines.append('<text x="4" y="%d">%s</text>' % (y + 11, name))
        for k, (value, colour) in enumerate(((even, "#b0b0b0"), (poplar, "#3a8f5c"))):
            lines.append('<rect x="%d" y="%d" width="%.1f" height="6" fill="%s"/>'
                         % (left, y + 1 + 7 * k, value * scale, colour))
        lines.append('<text x="%.1f" y="%d">%.2f, %.2f</text>'
                     % (left + max(even, poplar) * scale + 4, y + 11, even, poplar))
    with open(path, "w", encoding="ascii") as fh:
        fh.write("\n".join(lines + ["</svg>\n"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pando", default="bazel-bin/tools/pando/pando")
    parser.add_argument("--picture", help="SVG file to write")
    args = parser.parse_args()
    rows = []
    for name, cluster in CLUSTERS.items():
        print("\n**%s**\n" % name)
        print("| model | stage | tokens/s | over even split | strongest only | by peak | Poplar's | "
              "Cephalo's | shares | recompute |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for model in MODELS:
            for stage in range(4):
                found = plan(args.pando, cluster, model, stage)
                if found is None:
                    print("| %s | %d | does not fit | | | | | | | |" % (model, stage))
                    continue
                tokens = found["tokens_per_second"]
                ratios = [cell(found["others"].get(o), tokens) for o in OTHERS]
                used = [d for d in found["devices"] if d["used"]]
                shares = ", ".join("%.0f %%" % (100 * d["share"]) for d in used)
                recompute = ", ".join("yes" if d["recompute"] else "no" for d in used)
                print("| %s | %d | %.0f | %s | %s | %s |" % (
                    model, stage, tokens, " | ".join(ratios), "" if stage == 0 else shares, recompute))
                even, poplar = (found["others"].get(o) for o in ("even split", "Poplar's"))
                if even and poplar:
                    rows.append(("%s %s stage %d" % (name.split(":")[0], model, stage),
                                 tokens / even["tokens_per_second"],
                                 tokens / poplar["tokens_per_second"]))
    if args.picture:
        bars(rows, args.picture)


if __name__ == "__main__":
    main()
