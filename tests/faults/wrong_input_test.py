#!/usr/bin/python3
"""What a user can get wrong: one clear line, the promised exit code, and nothing destroyed."""

import os
import struct
import unittest

import pando_process as p


class WrongData(p.PandoTest):
    """Data that can't be trained on; the run's folder is not even made."""

    def refused(self, data, *parts, more=()):
        self.assert_train_refused(["--data=" + data, *more], p.WRONG_INPUT, *parts)
        self.assertFalse(os.path.exists(self.out))

    def test_missing(self):
        self.refused(self.path("no such file"), "no such file", "there is no such file or folder")

    def test_empty(self):
        self.refused(self.write("empty.txt", ""), "empty.txt", "is empty")

    def test_empty_folder(self):
        os.mkdir(self.path("nothing"))
        self.refused(self.path("nothing"), "nothing", "train.bin")

    def test_shorter_than_the_context(self):
        self.refused(self.write("short.txt", "too short"), "short.txt", "context of 16",
                     "shorter context or more data")

    def test_no_utf8(self):
        self.refused(self.write("latin1.txt", b"caf\xe9 " * 100), "latin1.txt", "UTF-8")

    def test_token_file_of_odd_length(self):
        self.refused(self.write("odd.bin", b"\1\0" * 200 + b"\1"), "odd.bin", "cut short")

    def test_truncated_token_file_with_a_header(self):
        header = struct.pack("<256i", 20240520, 1, 1000, *[0] * 253)
        self.refused(self.write("shard.bin", header + b"\1\0" * 999), "shard.bin",
                     "cut short or damaged")

    def test_tokens_outside_the_vocabulary(self):
        self.refused(self.write("large.bin", struct.pack("<200H", *[60000] * 200)), "large.bin",
                     "60000", "vocabulary")

    def test_no_such_tokenizer(self):
        self.refused(self.data, "no such tokenizer", more=["--tokenizer=no such tokenizer"])


class WrongOptions(p.PandoTest):
    """Options that make no sense."""

    def refused(self, more, *parts):
        self.assert_train_refused(more, p.WRONG_INPUT, *parts)
        self.assertFalse(os.path.exists(self.out))

    def test_heads_that_do_not_divide_the_width(self):
        self.refused(["--heads=3"], "width of 16", "3 heads", "multiple")

    def test_unknown_option(self):
        self.refused(["--laeyrs=2"], "--laeyrs", "--help")

    def test_left_over_argument(self):
        self.refused(["more"], "more", "--help")

    def test_unknown_model(self):
        self.refused(["--model=gpt5"], "gpt5", "gpt2-124m")

    def test_no_number(self):
        self.refused(["--steps=many"], "--steps", "many")

    def test_too_large_a_number(self):
        for option in ("--steps=99999999999999999999", "--width=99999999999999999999",
                       "--global-batch=99999999999999999999", "--keep=99999999999"):
            with self.subTest(option):
                self.refused([option], option.split("=")[0])

    def test_out_of_range(self):
        for option in ("--steps=-1", "--global-batch=0", "--micro-batch=-2", "--context=0",
                       "--layers=0", "--heads=0", "--width=-16", "--dropout=1", "--dropout=nan",
                       "--lr=-1", "--lr=nan", "--lr=inf", "--beta1=1", "--grad-clip=-1",
                       "--checkpoint-interval=0", "--keep=0", "--threads=-1", "--eval-interval=-1",
                       "--warmup-steps=-1"):
            with self.subTest(option):
                self.refused([option], option[2:].split("=")[0])

    def test_negative_number_as_an_argument_of_its_own(self):
        self.refused(["--steps", "-5"], "--steps -5", "negative")

    def test_unknown_choice(self):
        for option in ("--precision=f8", "--schedule=step", "--resume=maybe"):
            with self.subTest(option):
                self.refused([option], option.split("=")[0])

    def test_memory_budget_that_is_none(self):
        for budget in ("much", "16XB", "GB", "-1GB", "0", "1e9", "99999999999TB", ".", "1.2.3GB"):
            with self.subTest(budget):
                self.refused(["--memory-budget=" + budget], budget, "16GB or 512MiB")

    def test_profile_that_cannot_be_written(self):
        self.assert_train_refused(["--profile=" + self.path("no/such/folder.json")],
                                  p.WRONG_INPUT, "--profile", "no/such/folder.json")

    def test_no_command(self):
        for arguments in ([], ["trian"]):
            code, _, err = self.pando(*arguments)
            self.assertEqual(code, p.WRONG_INPUT)
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertTrue(err.startswith("pando: "), err)

    def test_help_names_every_exit_code(self):
        code, out, _ = self.pando("--help")
        self.assertEqual(code, p.DONE)
        for number in ("0 done", "1 failed", "2 wrong", "3 the loss", "4 out of memory", "75"):
            self.assertIn(number, " ".join(out.split()))


class WrongConfigFile(p.PandoTest):
    """--config files."""

    def refused(self, content, *parts):
        path = self.write("run.toml", content)
        self.assert_train_refused(["--config=" + path], p.WRONG_INPUT, "run.toml", *parts)
        self.assertFalse(os.path.exists(self.out))

    def test_missing(self):
        self.assert_train_refused(["--config", "nowhere.toml"], p.WRONG_INPUT, "nowhere.toml",
                                  "can't be read")

    def test_a_folder(self):
        self.assert_train_refused(["--config=" + self.folder], p.WRONG_INPUT, "can't be read")

    def test_unknown_key(self):
        self.refused("steps = 3\nlaeyrs = 2\n", '"laeyrs"', "no option of pando train")

    def test_key_in_a_section(self):
        self.refused("[model]\nlayers = 2\n", "model.layers")

    def test_no_toml(self):
        self.refused("This is a letter.\n", "This is a letter")

    def test_wrong_value(self):
        path = self.write("run.toml", 'warmup-steps = "many"\n')
        self.assert_train_refused(["--config=" + path], p.WRONG_INPUT, "warmup-steps", "many")


class TooLittleMemory(p.PandoTest):
    """Budgets that do not do."""

    def test_the_estimate_says_so(self):
        self.assert_train_refused(["--memory-budget=10KB"], p.OUT_OF_MEMORY, "MiB", "--micro-batch",
                                  "--recompute", "--memory-budget")
        self.assertFalse(os.path.exists(self.out))

    def test_the_estimate_was_too_low(self):
        # Blocks come in segments of 4 MiB, of which the estimate (0.2 MiB) knows nothing.
        self.assert_train_refused(["--memory-budget=1MB"], p.OUT_OF_MEMORY, "no room for",
                                  "--memory-budget")

    def test_enough(self):
        out, _ = self.train("--memory-budget=64MiB", "--json")
        self.assertIn('"steps":4', out)


class WrongInitialWeights(p.PandoTest):
    """--init-from."""

    def refused(self, folder, *parts, more=()):
        self.assert_train_refused(["--init-from=" + folder, *more], p.WRONG_INPUT, *parts)

    def train_command(self, *more, out=None):
        # The model is the folder's.
        return ["train", "--data=" + self.data, "--out=" + (out or self.out), "--steps=1",
                "--tokenizer=byte", "--threads=1", *more]

    def test_missing(self):
        self.refused(self.path("nowhere"), "--init-from", "nowhere", "no such folder")

    def test_another_kind_of_folder(self):
        os.mkdir(self.path("photos"))
        self.refused(self.path("photos"), "photos/config.json", "can't be read")

    def test_another_kind_of_model(self):
        os.mkdir(self.path("bert"))
        self.write("bert/config.json", '{"model_type": "bert"}')
        self.refused(self.path("bert"), "bert/config.json", "only gpt2 is known")

    def test_no_weights(self):
        os.mkdir(self.path("half"))
        self.write("half/config.json", '{"model_type": "gpt2", "vocab_size": 256, "n_layer": 1,'
                   '"n_positions": 16, "n_head": 2, "n_embd": 16}')
        self.refused(self.path("half"), "half", "model.safetensors")

    def test_options_of_another_model(self):
        os.mkdir(self.path("any"))
        for option in ("--layers=2", "--model=gpt2-124m", "--no-bias"):
            self.refused(self.path("any"), option.split("=")[0], "--init-from", more=[option])


class WrongSampling(p.PandoTest):
    """pando sample and pando inspect."""

    def setUp(self):
        super().setUp()
        self.train("--steps=1")

    def refused(self, more, *parts):
        arguments = ["sample", "--checkpoint=" + self.out, "--tokens=4", *more]
        self.assert_refused(arguments, p.WRONG_INPUT, *parts)

    def test_no_checkpoint(self):
        self.refused(["--checkpoint=" + self.path("nowhere")], "nowhere", "no such folder")

    def test_a_folder_without_weights(self):
        os.mkdir(self.path("empty"))
        self.refused(["--checkpoint=" + self.path("empty")], "empty")

    def test_options(self):
        for option in ("--temperature=-1", "--temperature=nan", "--top-k=-1", "--top-p=0",
                       "--top-p=2", "--tokens=-1", "--threads=-1"):
            with self.subTest(option):
                self.refused([option], option[2:].split("=")[0])

    def test_prompt_outside_the_vocabulary(self):
        self.refused(["--prompt=Pando"], "prompt", "U+0050")
        code, out, _ = self.pando("sample", "--checkpoint=" + self.out, "--prompt=Pando")
        self.assertEqual((code, out), (p.WRONG_INPUT, ""))

    def test_nothing_to_inspect(self):
        self.assert_refused(["inspect", self.path("nowhere")], p.WRONG_INPUT, "nowhere")

    def test_right(self):
        code, out, err = self.pando("sample", "--checkpoint=" + self.out, "--prompt=root",
                                    "--tokens=5", "--temperature=0")
        self.assertEqual(code, p.DONE, err)
        self.assertEqual(len(out), len("root") + 5 + 1)
        self.assertTrue(out.startswith("root"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
