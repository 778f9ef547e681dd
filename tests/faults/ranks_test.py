#!/usr/bin/python3
"""Training over several processes: the same as in one, whoever goes on; and what happens when a rank
dies, stops or gives up."""

import os
import random
import signal
import unittest

import job as j
import pando_process as p

# Of a run that is to be harmed: long enough, and with something of everything.
LONG = ["--steps=100000", "--width=64", "--context=64", "--checkpoint-interval=20",
        "--eval-interval=10", "--eval-batches=2", "--schedule=constant"]


class SameRun(j.JobTest):
    STEPS = ["--schedule=constant", "--warmup-steps=0", "--dropout=0.1", "--global-batch=6"]

    def losses(self, out):
        return [line["loss"] for line in p.log_of(self.path(out)) if "loss" in line]

    def assert_near(self, got, want):
        """f32 sums in another order: 1e-6."""
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertLessEqual(abs(a - b), 1e-6 * b)

    def single(self, steps=8):
        self.train(*self.STEPS, "--steps=%d" % steps, out=self.path("single"))
        return self.losses("single")

    def test_goes_on_at_any_stage_and_world_size(self):
        want = self.single()
        # Each goes on where the one before has stopped.
        for name, plans in {
                "a": [(3, ["--zero-stage=3", "--shards=.7,0,.3"]), (1, []),
                      (2, ["--zero-stage=2", "--micro-batch=1,2"]), (4, ["--zero-stage=1"])],
                "b": [(1, []), (2, ["--zero-stage=3"]), (3, ["--zero-stage=0"]),
                      (2, ["--zero-stage=3", "--micro-batch=3,0"])]}.items():
            for i, (workers, more) in enumerate(plans):
                command = self.train_command(*self.STEPS, "--steps=%d" % (2 * i + 2), *more,
                                             out=self.path(name))
                self.run_job(workers, *command)
            self.assert_near(self.losses(name), want)

    def test_goes_on_exactly_with_the_same_plan(self):
        plan = ["--zero-stage=3", "--shards=.2,.8", "--micro-batch=1,2"]
        self.run_job(2, *self.train_command(*self.STEPS, *plan, "--steps=8", out=self.path("one")))
        for steps in (3, 8):
            self.run_job(2, *self.train_command(*self.STEPS, *plan, "--steps=%d" % steps,
                                                out=self.path("two")))
        self.assertEqual(self.losses("one"), self.losses("two"))
        self.assertEqual(p.weights_of(self.path("one"), 8), p.weights_of(self.path("two"), 8))

    def test_a_plan_file(self):
        want = self.single()
        plan = self.write("plan.json", """{"zero_stage": 1, "ranks": [
          {"micro_batch": 2, "micro_steps": 2, "last_micro_batch": 1, "share": 0.25},
          {"micro_batch": 3, "micro_steps": 1, "last_micro_batch": 3, "share": 0.75}]}""")
        steps = [o for o in self.STEPS if "batch" not in o]
        command = [o for o in self.train_command(*steps, "--steps=8", out=self.path("plan"))
                   if "batch" not in o]
        self.run_job(2, *command, "--plan=" + plan)
        self.assert_near(self.losses("plan"), want)

    def test_stops_and_goes_on(self):
        command = self.train_command(*LONG, "--zero-stage=2")
        job = self.launch(2, *command)
        pids = self.ranks(job, 2)
        self.wait_for(pids[0], "forward", step=3)
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=p.PATIENCE)
        self.assertEqual(job.returncode, p.INTERRUPTED, err)
        done = len(self.losses("run"))
        self.run_job(2, *command, "--steps=%d" % (done + 2))
        self.assertEqual(len(self.losses("run")), done + 2)

    def test_weights_to_start_from(self):
        self.run_job(2, *self.train_command("--steps=2"))
        # A folder of weights by Hugging Face's names, which two ranks take and one does.
        folder = self.path("run/step-00000002")
        sizes = ("--layers", "--heads", "--width", "--context")
        for name, workers in (("x", 1), ("y", 2)):
            command = [o for o in self.train_command(*self.STEPS, "--init-from=" + folder,
                                                     out=self.path(name))
                       if not o.startswith(sizes)]
            self.run_job(workers, *command, *(["--zero-stage=3"] if workers == 2 else []))
        self.assert_near(self.losses("y"), self.losses("x"))

    def test_wrong_input(self):
        for more, part in ((["--shards=1,2,3"], "--shards has 3 values for 2 ranks"),
                           (["--micro-batch=1,1,1"], "--micro-batch has 3 values for 2 ranks"),
                           (["--zero-stage=4"], "--zero-stage"),
                           (["--shards=0"], "somebody must hold something"),
                           (["--shards=-1,2"], "share of -1"),
                           (["--interface=no.such.host.invalid"], "no.such.host.invalid"),
                           (["--plan=" + self.data], "--plan")):
            _, err = self.run_job(2, *self.train_command(*more), code=p.WRONG_INPUT)
            self.assertIn(part, err)

    def test_ranks_with_other_data(self):
        other = self.write("other.txt", p.text(5000))
        script = "exec %s train --data=$([ $RANK = 1 ] && echo %s || echo %s) %s" % (
            p.PANDO, other, self.data, " ".join(self.train_command()[2:]))
        _, err = self.run_job(2, "sh", "-c", script, code=p.WRONG_INPUT)
        self.assertIn("rank 1 has", err)


class Harmed(j.JobTest):
    WORKERS = 3

    def harm(self, how, phase, rank, stage=3, step=1, timeout=60):
        job = self.launch(self.WORKERS, *self.train_command(
            *LONG, "--zero-stage=%d" % stage, "--timeout=%d" % timeout))
        pids = self.ranks(job, self.WORKERS)
        self.wait_for(pids[rank], phase, 0 if phase == "forming" else step)
        how(pids[rank])
        return job, pids

    def test_killed(self):
        for rank, (phase, stage) in enumerate((("forming", 0), ("forward", 1), ("gather", 3),
                                               ("reduce-scatter", 2), ("optimizer", 3),
                                               ("evaluation", 3), ("save", 3))):
            with self.subTest(phase=phase):
                rank %= self.WORKERS
                job, pids = self.harm(lambda pid: os.kill(pid, signal.SIGKILL), phase, rank, stage)
                self.assert_blamed(job, pids.values(), rank, "killed by signal 9")
                self.out = self.path("after-" + phase)

    def test_stopped(self):
        for rank, phase in ((0, "forward"), (2, "gather")):
            with self.subTest(phase=phase):
                job, pids = self.harm(j.stop, phase, rank, timeout=3)
                self.assert_blamed(job, pids.values(), rank, "has not run")
                self.out = self.path("after-" + phase)

    def test_a_rank_without_memory(self):
        script = "exec %s %s $([ $RANK = 1 ] && echo --memory-budget=1MiB)" % (
            p.PANDO, " ".join(self.train_command(*LONG)))
        job = self.launch(self.WORKERS, "sh", "-c", script)
        self.assert_blamed(job, [], 1, "exit code %d" % p.OUT_OF_MEMORY)

    def test_goes_on_after_a_death(self):
        job, pids = self.harm(lambda pid: os.kill(pid, signal.SIGKILL), "forward", 1, step=25)
        self.assert_blamed(job, pids.values(), 1)
        done = 20  # the last checkpoint
        self.run_job(2, *self.train_command(*LONG, "--zero-stage=1", "--steps=%d" % (done + 3)))
        losses = [line for line in p.log_of(self.out) if "loss" in line]
        self.assertEqual([line["step"] for line in losses], list(range(done + 3)))

    @unittest.skipUnless(os.environ.get("PANDO_RANDOM_KILLS"), "set PANDO_RANDOM_KILLS=100")
    def test_random(self):
        seed = random.randrange(1 << 30)
        print("seed", seed)
        draw = random.Random(seed)
        for i in range(int(os.environ["PANDO_RANDOM_KILLS"])):
            rank = draw.randrange(self.WORKERS)
            phase = draw.choice(["forming", "forward", "gather", "reduce-scatter", "optimizer",
                                 "evaluation", "save"])
            stopped = draw.random() < 0.3
            stage = 3 if phase == "gather" else draw.randrange(2 if phase == "reduce-scatter" else 0, 4)
            with self.subTest(i=i, rank=rank, phase=phase, stopped=stopped, stage=stage):
                self.out = self.path("run-%d" % i)
                how = j.stop if stopped else lambda pid: os.kill(pid, signal.SIGKILL)
                job, pids = self.harm(how, phase, rank, stage, step=draw.randrange(10), timeout=3)
                self.assert_blamed(job, pids.values(), rank)


if __name__ == "__main__":
    unittest.main()
