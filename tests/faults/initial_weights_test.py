#!/usr/bin/python3
"""Fine-tuning from a folder that transformers has saved."""

import json
import os
import unittest

import pando_process as p


class InitialWeights(p.PandoTest):
    """--init-from."""

    HUGGING_FACE = os.path.abspath("tests/models/testdata/hf_gpt2_tiny")

    def tensors_of(self, path):
        """name -> (shape, bytes) of a safetensors file."""
        content = p.read(path)
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + length])
        header.pop("__metadata__", None)
        return {name.replace("transformer.", "", 1): (
            t["shape"], content[8 + length:][t["data_offsets"][0]:t["data_offsets"][1]])
                for name, t in header.items()}

    def fine_tune(self, *more, code=p.DONE):
        data = self.write("ids.bin", b"".join(bytes([i * i % 97, 0]) for i in range(500)))
        got, _, err = self.pando("train", "--init-from=" + self.HUGGING_FACE, "--data=" + data,
                                 "--out=" + self.out, "--global-batch=4", "--threads=1", *more)
        self.assertEqual(got, code, err)
        return err

    def test_weights_and_configuration_are_those_of_the_folder(self):
        self.fine_tune("--steps=0")
        saved = self.path("run/step-00000000/")
        self.assertEqual(self.tensors_of(saved + "model.safetensors"),
                         self.tensors_of(self.HUGGING_FACE + "/model.safetensors"))
        ours, theirs = (json.loads(p.read(folder + "/config.json"))
                        for folder in (saved, self.HUGGING_FACE))
        for key in ("vocab_size", "n_positions", "n_layer", "n_head", "n_embd"):
            self.assertEqual(ours[key], theirs[key])

    def test_learns_also_with_shorter_samples(self):
        for context in (32, 16):
            self.out = self.path("run%d" % context)
            self.fine_tune("--steps=30", "--context=%d" % context, "--lr=0.01")
            losses = [x["loss"] for x in p.log_of(self.out) if "loss" in x]
            self.assertLess(losses[-1], losses[0] - 0.5)
        self.fine_tune("--steps=1", "--context=64", code=p.WRONG_INPUT)

    def test_resumed(self):
        self.fine_tune("--steps=6", "--checkpoint-interval=3", "--keep=5")
        log = p.log_of(self.out)
        for name in os.listdir(self.path("run/step-00000006")):
            os.remove(self.path("run/step-00000006/" + name))
        os.rmdir(self.path("run/step-00000006"))
        self.assertIn("going on from", self.fine_tune("--steps=6", "--checkpoint-interval=3"))
        self.assertEqual(p.log_of(self.out), log)

    def test_sampling_needs_a_tokenizer(self):
        self.assert_refused(["sample", "--checkpoint=" + self.HUGGING_FACE], p.WRONG_INPUT,
                            "tokenizer.json")
        self.assert_refused(["sample", "--checkpoint=" + self.HUGGING_FACE, "--tokenizer=byte"],
                            p.WRONG_INPUT, "256", "97")


if __name__ == "__main__":
    unittest.main(verbosity=2)
