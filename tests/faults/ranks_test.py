#!/usr/bin/python3
"""Training over several processes: the same as in one, whoever goes on; and what happens when a rank
dies, stops or gives up."""

import os
import random
import signal
import unittest

import exit_from_outside
import job as j
import network
import pando_process as p

# Of a run that is to be harmed: long enough, and with something of everything.
LONG = ["--steps=100000", "--width=64", "--context=64", "--checkpoint-interval=20",
        "--eval-interval=10", "--eval-batches=2", "--schedule=constant"]


PHASES = ["forming", "forward", "backward", "gather", "reduce-scatter", "optimizer", "evaluation",
          "save"]
# Of ranks that are killed in CI each phase has one; stopping and cutting take their timeout each.
ALL = os.environ.get("PANDO_ALL_FAULTS") is not None


def stage_for(phase, draw=random):
    """One at which ranks are in this phase for long enough to be seen."""
    return {"gather": 3, "reduce-scatter": draw.randrange(2, 4)}.get(phase, draw.randrange(4))


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
        self.harm_in(PHASES, j.kill, "killed by signal 9")

    @unittest.skipUnless(exit_from_outside.possible(), "registers are known for x86-64 only")
    def test_exits(self):
        self.harm_in(PHASES if ALL else ["forward", "reduce-scatter"],
                     exit_from_outside.exit_from_outside, "exit code 1")

    def test_stopped(self):
        # One that is stopped while it forms may not have been heard of yet.
        self.harm_in(PHASES if ALL else ["forming", "gather"], j.stop, "", timeout=3)

    def harm_in(self, phases, how, part, timeout=60):
        for i, phase in enumerate(phases):
            for rank in range(self.WORKERS) if ALL else [i % self.WORKERS]:
                stage = stage_for(phase)
                with self.subTest(phase=phase, rank=rank, stage=stage):
                    self.out = self.path("in-%s-%d" % (phase, rank))
                    job, pids = self.harm(how, phase, rank, stage, timeout=timeout)
                    self.assert_blamed(job, pids.values(), rank, part)

    def test_a_rank_without_memory(self):
        script = "exec %s %s $([ $RANK = 1 ] && echo --memory-budget=1MiB)" % (
            p.PANDO, " ".join(self.train_command(*LONG)))
        job = self.launch(self.WORKERS, "sh", "-c", script)
        self.assert_blamed(job, [], 1, "exit code %d" % p.OUT_OF_MEMORY)

    def test_goes_on_after_a_death(self):
        job, pids = self.harm(j.kill, "forward", 1, step=25)
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
            phase = draw.choice(PHASES)
            stopped = draw.random() < 0.3
            stage = stage_for(phase, draw)
            with self.subTest(i=i, rank=rank, phase=phase, stopped=stopped, stage=stage):
                self.out = self.path("run-%d" % i)
                job, pids = self.harm(j.stop if stopped else j.kill, phase, rank, stage, step=draw.randrange(10), timeout=3)
                self.assert_blamed(job, pids.values(), rank)


@unittest.skipIf(network.missing(), network.missing())
class Cut(j.JobTest):
    """Three nodes of one rank each, one of which loses its link."""

    NODES = 3

    def start_nodes(self, *train):
        self.network = network.Network(self.NODES)
        self.addCleanup(self.network.close)
        environment = dict(os.environ, PANDO_STORE_SECRET="of the test", OMP_NUM_THREADS="1")
        jobs, store = [], []
        for i in range(self.NODES):
            interface = "--interface=" + self.network.address(i)
            job = self.start_within(self.network.nodes[i], "launch", "--nodes=%d" % self.NODES,
                                    "--node-rank=%d" % i, interface, *store, *train, interface,
                                    env=environment)
            if i == 0:
                store = ["--store=" + job.stderr.readline().split("--store ")[1].split()[0]]
            jobs.append(job)
        return jobs

    def start_within(self, namespace, *arguments, **options):
        job = self.start(*arguments, before=self.network.within(namespace), **options)
        self.addCleanup(self.end, job)
        return job

    def test_a_link_that_is_cut(self):
        for i, phase in enumerate(PHASES if ALL else ["forward", "reduce-scatter"]):
            # Node 0 has the store: without it nobody knows more than that it is gone.
            for rank in range(self.NODES) if ALL else [2 - i]:
                with self.subTest(phase=phase, rank=rank):
                    self.out = self.path("cut-%s-%d" % (phase, rank))
                    self.cut(phase, rank)

    def cut(self, phase, rank):
        jobs = self.start_nodes(*self.train_command(
            *LONG, "--zero-stage=%d" % stage_for(phase), "--timeout=3"))
        pids = {}
        for i, job in enumerate(jobs):
            pids[i] = self.ranks(job, 1)[i]
        self.wait_for(pids[rank], phase, 0 if phase == "forming" else 1)
        self.network.cut(rank)
        for i, job in enumerate(jobs):
            _, err = job.communicate(timeout=p.PATIENCE)
            self.assertEqual(job.returncode, j.PEER_LOST, err)
            verdict = [line for line in err.splitlines() if line.startswith("pando launch: rank")]
            # Node 0 has the store: who can't reach it knows no more than that.
            blamed = 0 if i == rank else rank
            self.assertIn("rank %d " % blamed, verdict[0], err)
        self.assert_gone(pids.values())
        self.network.close()


if __name__ == "__main__":
    unittest.main()
