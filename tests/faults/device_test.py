#!/usr/bin/python3
"""--device and --precision: what is not there is refused in one line, or done without."""

import unittest

import pando_process as p


class Device(p.PandoTest):
    """On a machine without a GPU, or on one with."""

    def has_gpu(self):
        _, _, err = self.pando(*self.train_command("--device=auto", "--steps=0", out=self.path("auto")))
        lines = [line for line in err.splitlines() if line.startswith("device: ")]
        self.assertEqual(len(lines), 1, err)
        return "cuda:0" in lines[0], lines[0]

    def test_auto_falls_back_to_the_cpu_and_says_why(self):
        gpu, line = self.has_gpu()
        if gpu:
            self.skipTest("there is a GPU")
        self.assertRegex(line, "^device: cpu: .*(CUDA|NVIDIA).*; precision: f32$")

    def test_cuda_without_a_gpu(self):
        if self.has_gpu()[0]:
            self.skipTest("there is a GPU")
        for device in ("cuda", "cuda:1"):
            self.assert_train_refused(["--device=" + device], p.WRONG_INPUT, "cuda:", "NVIDIA" if
                                      "NVIDIA" in self.has_gpu()[1] else "CUDA")
        self.train()
        self.assert_refused(["sample", "--checkpoint=" + self.out, "--device=cuda"], p.WRONG_INPUT,
                            "cuda:0: ")

    def test_no_such_device(self):
        for device in ("gpu", "cuda:", "cuda:x", "cuda:-1", "cuda1", "", "cuda:99999999999"):
            with self.subTest(device):
                self.assert_train_refused(["--device=" + device], p.WRONG_INPUT, "--device")

    def test_precision_of_the_cpu(self):
        for precision in ("f16", "tf32"):
            self.assert_train_refused(["--precision=" + precision], p.WRONG_INPUT,
                                      "--precision " + precision, "f32 and bf16", "--device cuda")

    def test_sample_says_the_device(self):
        self.train()
        code, out, err = self.pando("sample", "--checkpoint=" + self.out, "--device=cpu",
                                    "--tokens=5")
        self.assertEqual(code, p.DONE)
        self.assertEqual(err, "device: cpu\n")
        self.assertGreaterEqual(len(out), 6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
