#!/usr/bin/python3
"""Checks that dependencies run one way, over the whole tree.

Bazel's visibility refuses a dependency that runs upwards (see the package groups in the top
BUILD.bazel), provided that each package carries its floor's group. That is checked here, as is what
the groups say, and every #include between floors, to name the line rather than a missing header.

usage: floors_test.py TOP_BUILD_FILE        (the tree is where that file really lies)
"""

import builtins
import os
import re
import sys

# floor -> the floors that it may use.
USES = {
    "engine": [],
    "ops": ["engine"],
    "models": ["engine", "ops"],
    "dist": ["engine"],
    "ckpt": ["engine", "dist"],
    "train": ["engine", "ops", "models", "dist", "ckpt"],
    "tools": ["engine", "ops", "models", "dist", "ckpt", "train"],
}
SOURCES = (".h", ".cc", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([a-z]+)/', re.MULTILINE)


class Calls(dict):
    """Globals for a BUILD file run as Python: each rule called is noted as (rule, arguments)."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __missing__(self, name):
        def note(*_, **arguments):
            self.made.append((name, arguments))
            return []

        return getattr(builtins, name, note)


def calls(path):
    with open(path, encoding="utf-8") as fh:
        noted = Calls()
        exec(compile(fh.read(), path, "exec"), noted)  # pylint: disable=exec-used
    return noted.made


def group_errors(top_build):
    """The package groups admit exactly the floors that USES lets in."""
    groups = {args["name"]: args["packages"] for rule, args in calls(top_build) if rule == "package_group"}
    for floor in USES:
        if floor == "engine":
            continue
        barred = {"-//%s/..." % f for f in USES if f != floor and floor not in USES[f]}
        have = groups.get("may_use_" + floor, [])
        if set(have) != barred | {"//..."}:
            yield "BUILD.bazel: may_use_%s admits %s; it should be //... without %s" % (
                floor, sorted(have), sorted(barred))


def build_errors(path, floor):
    """Every package of a floor is visible to those above it, and to no others."""
    group = "//visibility:public" if floor == "engine" else "//:may_use_" + floor
    made = calls(path)
    default = [args.get("default_visibility") for rule, args in made if rule == "package"]
    if default != [[group]]:
        yield '%s: needs package(default_visibility = ["%s"])' % (path, group)
    for _, args in made:
        if floor != "engine" and "//visibility:public" in (args.get("visibility") or []):
            yield "%s: %s is public; leave its visibility to the package's" % (path, args.get("name"))


def include_errors(path, floor):
    with open(path, encoding="utf-8") as fh:
        text = fh.read()
    for m in INCLUDE.finditer(text):
        if m.group(1) in USES and m.group(1) != floor and m.group(1) not in USES[floor]:
            yield "%s:%d: %s includes from %s, which is not below it" % (
                path, text.count("\n", 0, m.start(1)) + 1, floor, m.group(1))


def main():
    top_build = os.path.realpath(sys.argv[1])
    os.chdir(os.path.dirname(top_build))
    errors = list(group_errors(top_build))
    packages = 0
    for floor in USES:
        for folder, _, files in os.walk(floor):
            for path in (os.path.join(folder, f) for f in sorted(files)):
                if path.endswith("/BUILD.bazel"):
                    packages += 1
                    errors += build_errors(path, floor)
                elif path.endswith(SOURCES):
                    errors += include_errors(path, floor)
    print("\n".join(errors) or "%d packages keep to their floors" % packages)
    sys.exit(1 if errors or not packages else 0)


if __name__ == "__main__":
    main()
