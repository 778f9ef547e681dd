#!/usr/bin/python3
"""A run that is killed, interrupted or repeated is the same run, bit for bit."""

import os
import random
import shutil
import signal
import time
import unittest

import pando_process as p


class SameTwice(p.PandoTest):
    """Two runs of one command."""

    def same(self, *more):
        for out in ("one", "two"):
            self.train("--steps=20", "--dropout=0.1", *more, out=self.path(out))
        self.assertEqual(p.log_of(self.path("one")), p.log_of(self.path("two")))
        for name in ("model.safetensors", "optimizer.safetensors"):
            one, two = (p.read(self.path(out + "/step-00000020/" + name)) for out in ("one", "two"))
            self.assertEqual(one, two, name)
        return p.log_of(self.path("one"))

    def test_f32(self):
        losses = [line["loss"] for line in self.same() if "loss" in line]
        self.assertEqual(len(losses), 20)
        self.assertEqual(len(set(losses)), 20)  # something is learnt

    def test_bf16(self):
        self.same("--precision=bf16")

    def test_recompute(self):
        self.same("--recompute")

    def test_all_threads(self):
        # The last --threads wins: all there are.
        self.same("--threads=0", "--width=64", "--context=32", "--micro-batch=4")

    def test_another_seed_is_another_run(self):
        self.train("--seed=1", out=self.path("one"))
        self.train("--seed=2", out=self.path("two"))
        self.assertNotEqual(p.log_of(self.path("one")), p.log_of(self.path("two")))


class Killed(p.PandoTest):
    """SIGKILL at random moments, many of them during a save, because every step is saved."""

    STEPS = 150
    KILLS = 20
    MORE = ["--steps=%d" % STEPS, "--checkpoint-interval=1", "--dropout=0.1", "--eval-interval=7",
            "--eval-batches=1"]

    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("PANDO_TEST_SEED", random.randrange(1 << 30)))
        print("seed %d (set PANDO_TEST_SEED to repeat)" % seed)
        self.draw = random.Random(seed)

    def saved(self):
        if not os.path.isdir(self.out):
            return 0
        return max([int(n[5:]) for n in os.listdir(self.out) if n.startswith("step-")], default=0)

    def unfinished(self):
        """The checkpoints in the making, or left so by a kill."""
        return {name for name in os.listdir(self.out)
                if ".tmp-" in name and "step-" in name} if os.path.isdir(self.out) else set()

    def kill_once(self, step_seconds):
        """Starts the run and kills it a little after it has saved something new, or before; every
        other time at the next sight of a save. Returns whether it lived until then, and whether it was in
        a save."""
        wanted = self.saved() + self.draw.randrange(3)
        in_a_save = self.draw.randrange(2) == 0
        delay = self.draw.uniform(0, 2 * step_seconds)
        left = self.unfinished()
        with self.start(*self.train_command(*self.MORE)) as process:
            while self.saved() < wanted and process.poll() is None:
                time.sleep(0.001)
            if in_a_save:
                while self.unfinished() <= left and process.poll() is None:
                    pass
            else:
                time.sleep(delay)
            process.kill()
            _, err = process.communicate(timeout=p.PATIENCE)
        self.assertIn(process.returncode, (-signal.SIGKILL, p.DONE), err)
        return process.returncode != p.DONE, not self.unfinished() <= left

    def assert_begins(self, whole):
        """What the killed run has logged is what the unbroken one did, in whole lines."""
        if os.path.exists(os.path.join(self.out, "log.jsonl")):
            lines = p.log_of(self.out)
            self.assertEqual(lines, whole[:len(lines)])

    def test_killed_and_resumed(self):
        unbroken = self.path("unbroken")
        start = time.monotonic()
        self.train(*self.MORE, out=unbroken)
        step_seconds = (time.monotonic() - start) / self.STEPS
        whole = p.log_of(unbroken)
        kills = kills_in_a_save = runs = 0
        while kills < self.KILLS or kills_in_a_save == 0:
            killed, in_a_save = self.kill_once(step_seconds)
            self.assert_begins(whole)
            kills += killed
            kills_in_a_save += in_a_save
            if not killed:  # it was faster: once more from the beginning
                shutil.rmtree(self.out)
                runs += 1
                self.assertLess(runs, 10, "it ends before it can be killed")
        print("%d kills, %d during a save, at step %d" % (kills, kills_in_a_save, self.saved()))
        self.train(*self.MORE)
        self.assertEqual(p.log_of(self.out), whole)
        self.assertEqual(p.weights_of(self.out, self.STEPS), p.weights_of(unbroken, self.STEPS))
        leftovers = [name for name in os.listdir(self.out) if name.startswith(".step")]
        self.assertEqual(leftovers, [])


class Log(p.PandoTest):
    """log.jsonl of a run that broke off."""

    def test_no_line_crosses_a_page(self):
        # Then a kill can't cut it: Linux writes a page as a whole.
        self.train("--steps=60", "--checkpoint-interval=40")
        shutil.rmtree(self.path("run/step-00000060"))
        self.train("--steps=60", "--checkpoint-interval=40")  # appends to a log that is there
        at = 0
        for line in p.read(self.path("run/log.jsonl")).splitlines(keepends=True):
            self.assertEqual(at // 4096, (at + len(line) - 1) // 4096)
            at += len(line)
        self.assertGreater(at, 2 * 4096)

    def test_what_is_no_whole_line_is_dropped(self):
        # As a dying machine may leave it.
        self.train("--checkpoint-interval=2")
        whole, content = p.log_of(self.out), p.read(self.path("run/log.jsonl"))
        third = content.splitlines(keepends=True)[2]
        start = content.index(third)
        for rest in (third[:-1], third[:-2], third[:9], b"{", b"\0" * 100, b"null\n[]\n7", b"\xff\n"):
            with self.subTest(rest):
                shutil.rmtree(self.path("run/step-00000004"))
                self.write("run/log.jsonl", content[:start] + rest)
                self.train("--checkpoint-interval=2")
                self.assertEqual(p.log_of(self.out), whole)


class Interrupted(p.PandoTest):
    """SIGINT and SIGTERM."""

    MORE = ["--steps=1500", "--dropout=0.1", "--eval-interval=500"]

    def interrupt(self, number, command, line_start):
        """Sends the signal once a line that starts so has come; returns standard error."""
        with self.start(*command) as process:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if line.startswith(line_start):
                    break
            process.send_signal(number)
            _, rest = process.communicate(timeout=p.PATIENCE)
        err = "".join(lines) + rest
        self.assertEqual(process.returncode, p.INTERRUPTED, err)
        self.assertIn("interrupted and saved after step ", err.splitlines()[-1])
        return err

    def test_finishes_the_step_saves_and_goes_on(self):
        for number, precision in ((signal.SIGINT, "f32"), (signal.SIGTERM, "bf16")):
            with self.subTest(number):
                more = self.MORE + ["--precision=" + precision]
                unbroken = self.path("unbroken-" + precision)
                self.train(*more, out=unbroken)
                out = self.path("run%d" % number)
                command = self.train_command(*more, out=out)
                err = self.interrupt(number, command, "step 1/")
                step = int(err.split("interrupted and saved after step ")[1].split(":")[0])
                self.assertLess(step, 1500)
                self.assertIn("step-%08d" % step, os.listdir(out))
                self.assertEqual([x["step"] for x in p.log_of(out) if "loss" in x],
                                 list(range(step)))
                self.train(*more, out=out)
                self.assertEqual(p.log_of(out), p.log_of(unbroken))
                self.assertEqual(p.weights_of(out, 1500), p.weights_of(unbroken, 1500))

    def catches(self, process, number):
        """Whether a process has a handler for a signal; it must still run."""
        self.assertIsNone(process.poll())
        with open("/proc/%d/status" % process.pid) as fh:
            caught = [line.split()[1] for line in fh if line.startswith("SigCgt:")][0]
        return bool(int(caught, 16) >> (number - 1) & 1)

    def test_a_second_one_ends_it_at_once(self):
        # In the middle of a step that would go on for minutes.
        command = self.train_command("--steps=1", "--global-batch=1000000")
        for first in (signal.SIGINT, signal.SIGTERM):
            for second in (signal.SIGINT, signal.SIGTERM):
                with self.subTest((first, second)), self.start(*command) as process:
                    try:
                        while not self.catches(process, first):
                            time.sleep(0.001)
                        process.send_signal(first)
                        while self.catches(process, second):  # until the first one has come
                            time.sleep(0.001)
                        process.send_signal(second)
                        _, err = process.communicate(timeout=p.PATIENCE)
                    finally:
                        process.kill()
                    self.assertEqual(process.returncode, -second, err)
        self.train("--steps=1")  # the folder is as good as new

    def test_in_an_evaluation(self):
        os.mkdir(self.path("text"))
        self.write("text/train.txt", p.text())
        self.write("text/val.txt", p.text() * 250)  # seconds of evaluation
        command = self.train_command("--data=" + self.path("text"), "--steps=2")
        self.interrupt(signal.SIGTERM, command, "step 2/2")
        self.assertFalse([x for x in p.log_of(self.out) if "val_loss" in x])
        self.assertIn("step-00000002", os.listdir(self.out))

    def test_a_finished_run_evaluates_again_and_changes_nothing(self):
        first, _ = self.train("--json")
        log, weights = p.log_of(self.out), p.weights_of(self.out, 4)
        again, err = self.train("--json")
        self.assertIn("going on from", err)
        self.assertEqual(p.log_of(self.out), log)
        self.assertEqual(p.weights_of(self.out, 4), weights)
        self.assertEqual(first.split('"val_loss":')[1].split(",")[0],
                         again.split('"val_loss":')[1].split(",")[0])

    def test_the_profile_of_a_short_run_is_written(self):
        self.train("--steps=1", "--profile=" + self.path("trace.json"))
        self.assertIn(b"traceEvents", p.read(self.path("trace.json")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
