#!/usr/bin/python3
"""Checks that no kernel has floating-point atomics, which would add in whatever order comes.

usage: float_atomics_test.py PTX... --bad PTX...       (the latter: of float_atomics.cu.cc, to see it bite)
Without arguments, in a build without CUDA, there is nothing to check.
"""

import re
import sys

# Atomic operations and reductions (PTX ISA, "Parallel Synchronization and Communication
# Instructions") name their operands' type among what follows the dots.
ATOMIC = re.compile(r"(?<![\w.%$])((?:atom|red|multimem\.red|cp\.reduce)\.[\w.:]+)")
FLOATING = re.compile(r"\.(?:f16|f16x2|bf16|bf16x2|f32|f64|e4m3\w*|e5m2\w*)\b")
ENTRY = re.compile(r"\.entry\s+(\w+)")


def floating_atomics(path):
    """Yields (kernel, instruction) of each."""
    with open(path, encoding="utf-8") as fh:
        text = fh.read()
    entries = list(ENTRY.finditer(text))
    if not entries:
        sys.exit("%s: no kernels, so not PTX as nvcc writes it" % path)
    for m in ATOMIC.finditer(text):
        if FLOATING.search(m.group(1)):
            before = [e.group(1) for e in entries if e.start() < m.start()]
            yield before[-1] if before else "a function", m.group(1)


def main():
    if len(sys.argv) == 1:
        print("skipped: built without CUDA, so there is no PTX")
        return
    bad = sys.argv.index("--bad")
    found = [f for path in sys.argv[bad + 1:] for f in floating_atomics(path)]
    kernels = {kernel for kernel, _ in found}
    assert len(found) == len(kernels) == 4 and not any("GlobalI32" in k for k in kernels), found
    good = sys.argv[1:bad]
    errors = ["%s: %s has %s" % (path, kernel, instruction)
              for path in good for kernel, instruction in floating_atomics(path)]
    print("\n".join(errors) or "%d files of PTX without floating-point atomics" % len(good))
    sys.exit(1 if errors or not good else 0)


if __name__ == "__main__":
    main()
