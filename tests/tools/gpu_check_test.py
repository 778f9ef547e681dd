#!/usr/bin/env python3
"""Packs gpu_check, unpacks it in an empty folder and starts it there: on a machine without a GPU it
gets to the line that says so. Arguments: gpu_check and the programs that it packs."""

import os
import subprocess
import sys
import tarfile

GPU_CHECK = sys.argv[1]
FOLDER = os.environ["TEST_TMPDIR"]


def run(command, **options):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)


def require(condition, words):
    if not condition:
        sys.exit(f"FAILED: {words}")


def main():
    archive = os.path.join(FOLDER, "packed.tar.gz")
    packed = run([GPU_CHECK, "pack", "--built", os.getcwd(), "--out", archive])
    if "built without CUDA" in packed.stdout:
        print("skipped: this build has no CUDA")
        return
    require(packed.returncode == 0, packed.stdout)
    require(os.path.getsize(archive) < 64 << 20, packed.stdout)

    empty = os.path.join(FOLDER, "empty")
    with tarfile.open(archive) as tar:
        tar.extractall(empty)
    unpacked = os.path.join(empty, "gpu_check")
    carried = os.listdir(os.path.join(unpacked, "lib"))
    require(any(name.startswith("libstdc++") for name in carried), f"no libstdc++ in {carried}")
    require(not any(name.startswith(("libcu", "libc.so")) for name in carried),
            f"{carried} has libraries that are the other machine's own")

    for part in ("correct", "sanitize", "speed", "peer"):
        done = run(["./gpu_check", "run", part], cwd=unpacked,
                   env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""})
        lines = done.stdout.splitlines()
        require(done.returncode == 3 and len(lines) == 1 and "no GPU" in lines[0],
                f"run {part}: exit status {done.returncode}\n{done.stdout}")
    require(not os.path.exists(os.path.join(unpacked, "results")), "results without a GPU")

    # A library that is missing is named, rather than a GPU that is not there.
    os.rename(os.path.join(unpacked, "bin", "step_bench"), os.path.join(unpacked, "bin", "gone"))
    with open(os.path.join(unpacked, "bin", "step_bench"), "w", encoding="utf-8") as script:
        script.write("#!/bin/sh\necho libabsent.so: cannot open >&2\nexit 127\n")
    os.chmod(script.name, 0o755)
    done = run(["./gpu_check", "run", "speed"], cwd=unpacked, env={"PATH": "/usr/bin:/bin"})
    require(done.returncode == 2 and "step_bench does not start: libabsent.so" in done.stdout,
            f"exit status {done.returncode}\n{done.stdout}")


main()
