"""Runs the pando program for the tests of this folder: real processes, tiny models."""

import json
import os
import random
import shutil
import subprocess
import tempfile
import unittest

PANDO = os.path.abspath(os.environ["PANDO"])

# Exit codes that tools/pando/command_line.h promises.
DONE, FAILED, WRONG_INPUT, DIVERGED, OUT_OF_MEMORY, INTERRUPTED = 0, 1, 2, 3, 4, 75

TINY = ["--layers=2", "--heads=2", "--width=16", "--context=16", "--micro-batch=2",
        "--global-batch=4", "--eval-interval=0", "--threads=1", "--device=cpu"]

# Seconds until a process counts as stuck: sanitizers and busy machines are slow.
PATIENCE = 600

# What a run measures rather than computes.
MEASURED = ("seconds", "tokens_per_second", "flops_per_second", "memory_bytes")


def text(characters=4000):
    """A text of that length, always the same, of words from a small alphabet."""
    draw = random.Random(1)
    out = ""
    while len(out) < characters:
        out += draw.choice(["aspen ", "root ", "stem ", "leaf\n"])
    return out[:characters]


def read(path):
    with open(path, "rb") as fh:
        return fh.read()


def log_of(folder):
    """The lines of a run's log, without what was measured. All must be whole ones."""
    content = read(os.path.join(folder, "log.jsonl")).decode()
    lines = content.splitlines()
    if content and not content.endswith("\n"):
        raise AssertionError("a line is cut off: " + lines[-1])
    return [{k: v for k, v in json.loads(line).items() if k not in MEASURED} for line in lines]


def weights_of(folder, step):
    return read(os.path.join(folder, "step-%08d" % step, "model.safetensors"))


def snapshot(folder):
    """Every file below a folder, with its bytes."""
    return {os.path.join(at, name): read(os.path.join(at, name))
            for at, _, names in os.walk(folder) for name in names}


def fast_folder():
    """In memory, if there is such a place: hundreds of saves would wait for a busy disk."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK | os.X_OK) and shutil.disk_usage(memory).free > 256 << 20:
        return memory
    return os.environ.get("TEST_TMPDIR")


class PandoTest(unittest.TestCase):
    """A folder of its own, a text in it, and the program."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pando-test-", dir=fast_folder())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.data = self.write("data.txt", text())
        self.out = self.path("run")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        path = self.path(name)
        with open(path, "wb") as fh:
            fh.write(content if isinstance(content, bytes) else content.encode())
        return path

    def start(self, *arguments, before=(), **options):
        """`before`: a command that runs the rest of its line."""
        return subprocess.Popen([*before, PANDO, *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, universal_newlines=True,
                                cwd=self.folder, **options)

    def pando(self, *arguments):
        """Runs it to its end; returns (exit code, standard output, standard error)."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def train_command(self, *more, out=None):
        """A small training run; later options win."""
        return ["train", "--data=" + self.data, "--out=" + (out or self.out), "--steps=4",
                *TINY, *more]

    def train(self, *more, out=None, code=DONE):
        got, stdout, stderr = self.pando(*self.train_command(*more, out=out))
        self.assertEqual(got, code, stderr)
        return stdout, stderr

    def assert_refused(self, arguments, code, *parts):
        """The program refuses in one clear line that has all `parts`, with this exit code."""
        got, _, err = self.pando(*arguments)
        self.assertEqual(got, code, err)
        lines = [line for line in err.splitlines() if line.startswith("pando %s: " % arguments[0])]
        self.assertEqual(len(lines), 1, err)
        self.assertEqual(err.splitlines()[-1], lines[0], "more follows the message")
        for part in parts:
            self.assertIn(part, lines[0])
        for trace in ("terminate called", "what():", "Aborted", "Segmentation", " at 0x"):
            self.assertNotIn(trace, err)
        return err

    def assert_train_refused(self, more, code, *parts, out=None):
        return self.assert_refused(self.train_command(*more, out=out), code, *parts)
