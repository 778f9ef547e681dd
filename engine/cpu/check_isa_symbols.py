#!/usr/bin/python3
"""Checks that kernels compiled for one instruction-set level define no symbol that others could use.

usage: check_isa_symbols.py (LEVEL ARCHIVE...)...      (LEVEL: v2, v3 or v4)

The linker keeps one copy of every inline function and template instance, from whichever object comes
first. Were that object compiled for x86-64-v4, a processor without AVX512 would die in code that has
nothing to do with kernels. So each symbol that leaves these objects has to carry the namespace
isa_LEVEL in its name, as part of its own name or of a template argument: then no other level, and no
ordinary source, defines the same one.
"""

import re
import subprocess
import sys

# A reference to the compiler's own exception routine: data without code, the same at every level.
HARMLESS = re.compile(r"^DW\.ref\.__gxx_personality_v0$")


def exported(archive):
    """(object, nm's letter, mangled name) of every symbol of `archive` that a linker can bind to."""
    out = subprocess.run(["nm", "--defined-only", "--extern-only", "--print-file-name", "--format=posix",
                          archive], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in out.splitlines():
        where, name, letter = line.split()[:3]
        yield re.sub(r"^.*\[(.*)\]:$", r"\1", where), letter, name


def readable(name):
    return subprocess.run(["c++filt", name], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def check(level, archive):
    """Names what is wrong with one archive; returns whether all is well."""
    namespace = "isa_" + level
    mark = "%d%s" % (len(namespace), namespace)  # as the Itanium ABI mangles it
    symbols = list(exported(archive))
    bad = [s for s in symbols if mark not in s[2] and not HARMLESS.match(s[2])]
    for obj, letter, name in bad:
        print("%s: %s (%s) is not in namespace %s" % (obj, readable(name), letter, namespace))
    if not symbols:
        print("%s has no symbols: these are not the kernels that cpu_kernels built" % archive)
    return bool(symbols) and not bad


def main():
    level, results = None, []
    for arg in sys.argv[1:]:
        if re.fullmatch(r"v[234]", arg):
            level = arg
        else:
            results.append(check(level, arg))
    if not all(results):
        sys.exit("Compiled for one instruction-set level, these could replace the copy that all of the program "
                 "uses. Kernel sources may include only functions that are PANDO_HOST_DEVICE or always_inline, "
                 "and keep their own in namespace pando::PANDO_ISA.")
    if not results:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
