#!/usr/bin/python3
"""The pando program on the emulated cuda:0: from options to checkpoints and samples."""

import json
import os
import shutil
import unittest

import job as j
import pando_process as p


class OnCuda(j.JobTest):
    """Short runs: emulated, a step takes its time."""

    MORE = ["--device=cuda", "--heads=1", "--width=16", "--context=8", "--layers=1", "--dropout=0.1"]

    def test_auto_takes_the_gpu_and_says_so(self):
        _, err = self.train("--steps=1", *self.MORE, "--device=auto")
        self.assertRegex(err, r"(?m)^device: cuda:0 \(.*compute capability 9.0.*\); precision: f32$")

    def test_f32_is_the_cpus_run(self):
        self.train(*self.MORE, out=self.path("cuda"))
        self.train(*self.MORE, "--device=cpu", out=self.path("cpu"))
        cuda, cpu = (p.log_of(self.path(d)) for d in ("cuda", "cpu"))
        self.assertEqual(len(cuda), len(cpu))
        for a, b in zip(cuda, cpu):
            for key in ("loss", "val_loss", "grad_norm"):
                if key in b:
                    self.assertLess(abs(a[key] - b[key]), 1e-5 * b[key], key)

    def test_two_ranks_share_a_gpu(self):
        self.train(*self.MORE, out=self.path("one"))
        self.run_job(2, *self.train_command(*self.MORE, "--zero-stage=3", "--shards=.3,.7",
                                            out=self.path("two")))
        one, two = (p.log_of(self.path(d)) for d in ("one", "two"))
        for a, b in zip(one, two):
            if "loss" in a:
                self.assertLess(abs(a["loss"] - b["loss"]), 1e-6 * a["loss"])

    def test_f16_goes_on_with_its_loss_scale(self):
        more = [*self.MORE, "--precision=f16", "--steps=6", "--checkpoint-interval=3"]
        self.train(*more, out=self.path("whole"))
        whole = p.log_of(self.path("whole"))
        self.assertEqual([line["loss_scale"] for line in whole if "loss" in line], [65536] * 6)
        self.assertFalse(any(line.get("skipped") for line in whole))
        # The same from the middle, and from a checkpoint that says another scale.
        self.train(*more)
        shutil.rmtree(self.path("run/step-00000006"))
        _, err = self.train(*more)
        self.assertIn("after step 3", err)
        self.assertEqual(p.log_of(self.out), whole)
        self.assertEqual(p.weights_of(self.out, 6), p.weights_of(self.path("whole"), 6))
        _, out, _ = self.pando("inspect", self.out, "--json")
        said = {c["step"]: c["metadata"] for c in json.loads(out)}
        self.assertEqual(said[3]["loss-scale"], "65536")
        self.assertEqual(said[3]["loss-scale-good-steps"], "3")
        self.assertEqual(said[6]["loss-scale-good-steps"], "6")

    def test_a_checkpoint_goes_from_device_to_device(self):
        self.train(*self.MORE, "--steps=2")
        self.train(*self.MORE, "--steps=4", "--device=cpu")
        self.assertEqual([line["step"] for line in p.log_of(self.out) if "loss" in line],
                         [0, 1, 2, 3])
        texts = []
        for device in ("cuda", "cpu"):
            code, out, err = self.pando("sample", "--checkpoint=" + self.out, "--device=" + device,
                                        "--tokens=12", "--temperature=0", "--prompt=stem ")
            self.assertEqual(code, p.DONE, err)
            texts.append(out)
        self.assertEqual(texts[0], texts[1])

    def test_out_of_memory(self):
        # A budget, and more than the emulated GPU has.
        self.assert_train_refused([*self.MORE, "--memory-budget=100kB"], p.OUT_OF_MEMORY,
                                  "--memory-budget")
        self.assert_train_refused([*self.MORE, "--width=4096", "--layers=8"], p.OUT_OF_MEMORY,
                                  "there are 1024 MiB")

    def test_no_such_gpu(self):
        self.assert_train_refused([*self.MORE, "--device=cuda:1"], p.WRONG_INPUT,
                                  "cuda:1: there is 1 GPU, cuda:0")
        self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    unittest.main(verbosity=2)
