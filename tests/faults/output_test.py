#!/usr/bin/python3
"""What pando train writes, beside checkpoints: JSON, traces, the log; and --config files."""

import json
import os
import unittest

import pando_process as p

KERNELS = {"Matmul", "AttentionForward", "AttentionBackward", "AdamW"}


class Json(p.PandoTest):
    """--json."""

    KEYS = ["steps", "train_loss", "val_loss", "tokens_per_second", "step_seconds_median",
            "model_flops_per_second", "peak_memory_bytes"]

    def last_line(self, *more):
        out, _ = self.train("--json", *more)
        result = json.loads(out.splitlines()[-1])
        self.assertEqual(len(out.splitlines()), 1)
        self.assertEqual(list(result), self.KEYS)
        return result

    def test_promised_keys(self):
        result = self.last_line("--steps=9")
        steps = [x for x in p.log_of(self.out) if "loss" in x]
        self.assertEqual(result["steps"], 9)
        self.assertEqual(result["train_loss"], steps[-1]["loss"])
        self.assertEqual(result["val_loss"], p.log_of(self.out)[-1]["val_loss"])
        self.assertAlmostEqual(result["tokens_per_second"] * result["step_seconds_median"], 4 * 16,
                               delta=1e-9)
        # Per token: 6 N + 12 L C T, N: all but the positions' parameters. Of a block: 12 C^2 in
        # matrices, 13 C in biases and norms.
        width, layers, vocabulary = 16, 2, 13
        n = layers * (12 * width**2 + 13 * width) + 2 * width + vocabulary * width
        flops = 6 * n + 12 * layers * width * 16
        self.assertAlmostEqual(result["model_flops_per_second"],
                               result["tokens_per_second"] * flops, delta=1e-3)
        self.assertGreater(result["peak_memory_bytes"], 4 * 4 * n)

    def test_no_validation_data(self):
        os.mkdir(self.path("text"))
        self.write("text/train.txt", p.text())
        self.write("text/val.txt", "r")  # no target
        self.assertIsNone(self.last_line("--data=" + self.path("text"))["val_loss"])

    def test_no_steps(self):
        self.assertEqual(self.last_line("--steps=0")["steps"], 0)


class Trace(p.PandoTest):
    """--profile."""

    def test_is_a_chrome_trace(self):
        for steps in (1, 3, 20):
            with self.subTest(steps):
                path = self.path("trace%d.json" % steps)
                out = self.path("run%d" % steps)
                self.train("--steps=%d" % steps, "--profile=" + path, "--json", out=out)
                events = json.loads(p.read(path))["traceEvents"]
                for event in events:
                    self.assertEqual(event["ph"], "X")
                    self.assertGreaterEqual(event["dur"], 0)
                    self.assertGreater(event["ts"], 0)
                    self.assertTrue(event["name"].isidentifier(), event["name"])
                names = [event["name"] for event in events]
                self.assertLessEqual(KERNELS, set(names))
                # Two micro-batches a step; the first step is left out where there are others.
                self.assertEqual(names.count("forward"), 2 * min(5, max(1, steps - 1)))
                self.assertEqual(names.count("backward"), names.count("forward"))


class Config(p.PandoTest):
    """--config."""

    def run_of(self, *arguments):
        out = self.path("run%d" % len(arguments))
        code, _, err = self.pando("train", "--out=" + out, "--data=" + self.data, *arguments)
        self.assertEqual(code, p.DONE, err)
        return p.log_of(out)

    OPTIONS = {"layers": 1, "heads": 2, "width": 16, "context": 8, "dropout": 0.25,
               "global-batch": 4, "micro-batch": 2, "steps": 5, "lr": 0.01, "warmup-steps": 2,
               "schedule": "linear", "precision": "bf16", "recompute": True, "json": True,
               "eval-interval": 2, "seed": 5, "grad-clip": 0.5}

    def test_equals_options(self):
        toml = "# a small run\n" + "".join(
            "%s = %s\n" % (k, json.dumps(v)) for k, v in self.OPTIONS.items())
        options = ["--%s" % k if v is True else "--%s=%s" % (k, v)
                   for k, v in self.OPTIONS.items()]
        by_file = self.run_of("--config", self.write("run.toml", toml))
        self.assertEqual(by_file, self.run_of(*options))
        self.assertEqual(len(by_file), 5 + 2 + 1)

    def test_command_line_wins(self):
        path = self.write("run.toml", "steps = 7\nseed = 1\njson = true\n")
        tiny = p.TINY
        on_the_line = self.run_of("--config=" + path, "--steps=2", "--seed=9", *tiny)
        self.assertEqual(on_the_line, self.run_of("--steps=2", "--seed=9", *tiny))
        before_the_file = self.run_of("--steps=3", "--seed=9", *tiny, "--config", path)
        self.assertEqual([x["step"] for x in before_the_file if "loss" in x], [0, 1, 2])


class Diverging(p.PandoTest):
    """A loss that is no number any more."""

    def test_stops_and_says_where(self):
        self.assert_train_refused(
            ["--steps=400", "--lr=1e5", "--grad-clip=0", "--schedule=constant", "--warmup-steps=0",
             "--checkpoint-interval=1"], p.DIVERGED, "step ", "first bad tensor", "in h.",
            "lower learning rate")
        # The last checkpoint is of the state before.
        log = [x for x in p.log_of(self.out) if "loss" in x]
        code, out, _ = self.pando("inspect", self.out)
        self.assertEqual(code, p.DONE)
        self.assertIn("step-%08d" % len(log), out)


class TokenFiles(p.PandoTest):
    """Data that is tokenized already."""

    def test_gpt2_vocabulary_is_for_token_files_alone(self):
        self.write("train.bin", b"\0".join(bytes([i]) for i in range(256)) + b"\0")
        _, err = self.train("--data=" + self.path("train.bin"), "--steps=1", "--micro-batch=1",
                            "--global-batch=1")
        self.assertIn("vocabulary 50257", err)
        _, err = self.train("--steps=1", out=self.path("text"))
        self.assertIn("vocabulary 13", err)

    def test_text_without_line_breaks(self):
        self.write("data.txt", "the quick brown fox " * 100)
        out, _ = self.train("--steps=1")
        self.assertGreater(len(out), 100)


if __name__ == "__main__":
    unittest.main(verbosity=2)
