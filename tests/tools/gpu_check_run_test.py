#!/usr/bin/env python3
"""What gpu_check makes of what its programs say, with stand-ins for these: no GPU is needed.
Argument: gpu_check."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import unittest

PROGRAM = pathlib.Path(sys.argv.pop()).absolute()
TEMPORARY = pathlib.Path(os.environ["TEST_TMPDIR"])

# Loss falls from 7 by steps that depend on the device; 64 samples are too many for its memory.
STEP_BENCH = """#!/usr/bin/env python3
import json, sys
said = dict(zip(sys.argv, sys.argv[1:]))
if said.get("--micro-batch") == "32":
    sys.exit("step_bench: cuda:0: out of memory")
slope = 0.02 if said.get("--device") == "cpu" else DEVICE_SLOPE
print(json.dumps({"losses": [7 - slope * i for i in range(200)], "step_seconds_best": 0.1,
                  "tokens_per_second": 163840.0, "model_flops_per_second": 494.7e12,
                  "model_flops_formula": "6 N", "peak_device_bytes": 2 << 30,
                  "parameters": 1000}))
"""
KERNEL_BENCH = """#!/usr/bin/env python3
import json
names = ["linear qkv", "linear proj", "linear fc", "linear fcproj", "linear head", "attention"]
print(json.dumps({"copy_bytes_per_second": 4e12, "product_flops_per_second": 8e14, "kernels": [
    {"kernel": n, "seconds": 1e-3, "floor_seconds": 5e-4, "ratio": 2.0} for n in names]
    + [{"kernel": "adamw", "seconds": 3e-3, "floor_seconds": 2e-3, "ratio": 1.5},
       {"kernel": "softmax", "error": "out of memory"}]}))
"""
GPU_TESTS = """#!/usr/bin/env python3
import json, sys
failures = FAILURES
report = [a.split(":", 1)[1] for a in sys.argv if a.startswith("--gtest_output=json:")]
if report:
    tests = [{"name": "Add"}, {"name": "Sum", **({"failures": ["x"]} if failures else {})}]
    with open(report[0], "w") as f:
        json.dump({"tests": 2, "testsuites": [{"name": "Op", "testsuite": tests}]}, f)
    sys.exit(1 if failures else 0)
"""


def load():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    module.find_gpu = lambda: {"name": "NVIDIA H200", "memory_bytes": 1 << 37}
    return module


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = TEMPORARY / self.id()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "bin").mkdir(parents=True)
        (self.folder / "about.json").write_text('{"commit": "abc", "archs": "90"}')
        self.module = load()
        self.module.__file__ = str(self.folder / "gpu_check")

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def programs(self, slope=0.02, failures=False):
        self.program("step_bench", STEP_BENCH.replace("DEVICE_SLOPE", str(slope)))
        self.program("kernel_bench", KERNEL_BENCH)
        self.program("gpu_tests", GPU_TESTS.replace("FAILURES", str(failures)))

    def run_part(self, part):
        sys.argv = ["gpu_check", "run", part, "--results", str(self.folder / "results")]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = self.module.main()
        data = json.loads((self.folder / "results" / f"{part}.json").read_text())
        self.assertEqual(data["about"]["commit"], "abc")
        return status, output.getvalue(), data

    def test_correct(self):
        self.programs(slope=0.0200001)
        status, output, data = self.run_part("correct")
        self.assertEqual(status, 0, output)
        self.assertEqual(data["tests"], {"count": 2, "failures": []})
        self.assertLess(data["losses_f32"]["worst"], 1e-5)

    def test_losses_that_part_fail(self):
        self.programs(slope=0.0201)
        status, output, _ = self.run_part("correct")
        self.assertEqual(status, 1)
        self.assertIn("200 steps in f32   FAILED", output)
        self.assertIn("200 steps in bf16  ok", output)

    def test_failed_tests_are_named(self):
        self.programs(failures=True)
        status, output, data = self.run_part("correct")
        self.assertEqual(status, 1)
        self.assertEqual(data["tests"]["failures"], ["Op.Sum"])
        self.assertIn("Op.Sum", output)

    def test_speed(self):
        self.programs()
        status, output, data = self.run_part("speed")
        self.assertEqual(status, 0, output)
        step = data["steps"]["gpt2-124m"]
        self.assertEqual(step["samples"], 16)  # half of what memory had no room for
        self.assertAlmostEqual(step["mfu"], 494.7 / 989.4)
        # Twelve layers of five kernels as measured, the head, and AdamW at the rate of a copy.
        self.assertAlmostEqual(step["floor_seconds"], 12 * 5e-3 + 1e-3 + 2e-3)
        self.assertIn("MFU 50.0%", output)
        self.assertIn("out of memory", output)

    def test_sanitize_without_the_tool(self):
        self.programs()
        self.module.shutil = type("NoTool", (), {"which": staticmethod(lambda _: "/absent")})
        status, output, _ = self.run_part("sanitize")
        self.assertEqual(status, 0)
        self.assertIn("skipped", output)

    def test_peer_without_pytorch(self):
        self.programs()
        bare = self.folder / "path"
        bare.mkdir()
        (bare / "python3").write_text("#!/bin/sh\nexit 1\n")
        (bare / "python3").chmod(0o755)
        self.module.library_folders = lambda: []
        part = self.module.Part

        class WithBarePath(part):
            def execute(self, command, limit=None):
                if command[0] == "python3":
                    command = [str(bare / "python3"), *command[1:]]
                return super().execute(command, limit)

        self.module.Part = WithBarePath
        status, output, _ = self.run_part("peer")
        self.assertEqual(status, 0)
        self.assertIn("skipped", output)


unittest.main()
