#!/usr/bin/python3
"""Checkpoints that are damaged, or of another run."""

import os
import unittest

import pando_process as p


class Damaged(p.PandoTest):
    """Damage to the checkpoints of a run of 4 of 8 steps, all of them kept."""

    MORE = ["--steps=8", "--checkpoint-interval=1", "--keep=9"]

    def setUp(self):
        super().setUp()
        # Steps 5 to 8 are taken away again: the schedule has to know all 8.
        self.train(*self.MORE)
        self.whole = p.log_of(self.out)
        self.weights = p.weights_of(self.out, 8)
        for step in range(5, 9):
            self.remove(step)

    def at(self, step, name=""):
        return os.path.join(self.out, "step-%08d" % step, name)

    def remove(self, step):
        for name in os.listdir(self.at(step)):
            os.remove(self.at(step, name))
        os.rmdir(self.at(step))

    def flip(self, step, name):
        content = bytearray(p.read(self.at(step, name)))
        content[len(content) // 2] ^= 1
        with open(self.at(step, name), "wb") as fh:
            fh.write(content)

    def goes_on(self, step, *reasons):
        _, err = self.train(*self.MORE)
        self.assertIn("going on from %s, after step %d" % (self.at(step, "")[:-1], step), err)
        for reason in reasons:
            self.assertIn(reason, err)
        self.assertEqual(p.log_of(self.out), self.whole)
        self.assertEqual(p.weights_of(self.out, 8), self.weights)

    def test_none(self):
        self.goes_on(4)

    def test_a_bit_of_any_file(self):
        for name in sorted(os.listdir(self.at(4))):
            with self.subTest(name):
                self.flip(4, name)
                self.goes_on(3, "passed over " + self.at(4)[:-1] + ": ", name)
                for step in range(5, 9):
                    self.remove(step)

    def test_cut_short(self):
        with open(self.at(4, "optimizer.safetensors"), "r+b") as fh:
            fh.truncate(1000)
        self.goes_on(3, "passed over", "has 1000 bytes instead of")

    def test_unfinished(self):
        os.remove(self.at(4, "manifest.json"))
        self.goes_on(3, "passed over", "manifest.json")

    def test_several(self):
        self.flip(4, "model.safetensors")
        os.remove(self.at(3, "config.json"))
        self.goes_on(2, "passed over " + self.at(4)[:-1], "passed over " + self.at(3)[:-1])

    def test_all(self):
        for step in range(1, 5):
            self.flip(step, "model.safetensors")
        before = p.snapshot(self.out)
        err = self.assert_train_refused(self.MORE, p.WRONG_INPUT, "no checkpoint in", "is good",
                                        "another --out")
        self.assertEqual(err.count("passed over"), 4, err)
        after = p.snapshot(self.out)
        lock = os.path.join(self.out, ".pando-lock")  # says who used the folder last
        self.assertEqual({**after, lock: b""}, {**before, lock: b""})

    def test_sampling_takes_the_one_before(self):
        self.flip(4, "model.safetensors")
        arguments = ["sample", "--tokens=20", "--prompt=r", "--checkpoint="]
        newest = self.pando(*arguments[:-1], arguments[-1] + self.out)
        third = self.pando(*arguments[:-1], arguments[-1] + self.at(3))
        self.assertEqual((newest[0], newest[1]), (p.DONE, third[1]))
        self.assert_refused(arguments[:-1] + [arguments[-1] + self.at(4)], p.WRONG_INPUT,
                            "model.safetensors")

    def test_inspecting(self):
        code, out, _ = self.pando("inspect", self.out)
        self.assertEqual((code, out.count("every byte matches")), (p.DONE, 4))
        self.flip(4, "model.safetensors")
        code, out, _ = self.pando("inspect", self.out)
        self.assertEqual((code, out.count("NOT VALID"), out.count("every byte matches")),
                         (p.FAILED, 1, 3))
        code, out, _ = self.pando("inspect", self.at(4), "--json")
        self.assertEqual(code, p.FAILED)
        self.assertIn('"valid":false', out)


class OfAnotherRun(p.PandoTest):
    """A folder with a run that is not the one that the options describe."""

    def setUp(self):
        super().setUp()
        self.train()

    def refused(self, more, *parts):
        before = p.snapshot(self.out)
        self.assert_train_refused(["--steps=8", *more], p.WRONG_INPUT, *parts)
        self.assertEqual({k: v for k, v in p.snapshot(self.out).items() if "lock" not in k},
                         {k: v for k, v in before.items() if "lock" not in k})

    def test_another_model(self):
        for option in ("--width=32", "--layers=1", "--no-bias"):
            with self.subTest(option):
                self.refused([option], "another model", "another --out")

    def test_another_length_of_samples(self):
        self.refused(["--context=8"], "context 16", "8")

    def test_other_data(self):
        self.refused(["--data=" + self.write("other.txt", p.text()[1:])], "data", "another --out")

    def test_another_seed(self):
        self.refused(["--seed=7"], "seed 1", "7")

    def test_another_global_batch(self):
        self.refused(["--global-batch=8"], "global-batch 4", "8")

    def test_never_resume(self):
        self.refused(["--resume=never"], "has checkpoints", "--resume never")


if __name__ == "__main__":
    unittest.main(verbosity=2)
