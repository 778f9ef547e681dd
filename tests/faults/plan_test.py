#!/usr/bin/python3
"""pando plan: what it shows, what train makes of its file, and what it says to nonsense."""

import json
import unittest

import job as j
import pando_process as p

CLUSTER = """
network_gbit = 100
[[node]]
gpu = "A100-80"
gpus = 2
[[node]]
gpu = "T4"
gpus = 1
count = 2
memory_gb = 14
"""


class Plan(j.JobTest):
    def setUp(self):
        super().setUp()
        self.cluster = self.write("cluster.toml", CLUSTER)

    def plan(self, *more):
        code, out, err = self.pando("plan", "--cluster=" + self.cluster, *more)
        self.assertEqual(code, p.DONE, err)
        return out

    def test_shows_a_plan_and_its_rivals(self):
        said = json.loads(self.plan("--model=gpt2-1.5b", "--global-tokens=500k", "--json"))
        samples = sum(d["count"] * ((d["micro_steps"] - 1) * d["micro_batch"] + d["last_micro_batch"])
                      for d in said["devices"] if d["micro_steps"])
        self.assertAlmostEqual(samples, 500000 // 1024, delta=2)  # of a row the first is shown
        for d in said["devices"]:
            self.assertLessEqual(d["needs"], d["memory"])
        self.assertLessEqual({d["memory"] for d in said["devices"]}, {73600000000, 12880000000})
        for other in said["others"].values():
            if other:
                self.assertLessEqual(said["seconds"], other["seconds"])
        for stage in said["by_stage"]:
            self.assertLessEqual(said["seconds"], stage["seconds"])
        # A parameter takes 48 bytes of host RAM.
        self.assertEqual(said["host_bytes"], 48 * said["parameters"])
        words = self.plan("--model=gpt2-1.5b")
        for part in ("bottleneck: ", "host RAM", "Poplar's", "A100-80", "busy", "tokens/s"):
            self.assertIn(part, words)

    def test_train_takes_the_file(self):
        plan = self.path("plan.json")
        self.plan("--model=gpt2-124m", "--global-tokens=8192", "--zero-stage=3", "--out=" + plan)
        ranks = len(json.loads(p.read(plan))["ranks"])
        train = [o for o in self.train_command("--plan=" + plan) if "batch" not in o]
        self.run_job(ranks, *train)

    PROFILE = ["profile", "--device=cpu", "--layers=1", "--heads=1", "--width=16", "--context=16",
               "--vocab=64", "--threads=1", "--largest=4", "--seconds=1"]

    def test_plans_from_what_was_measured(self):
        for name in ("one", "two"):
            code, _, err = self.pando(*self.PROFILE, "--out=" + self.path(name + ".json"))
            self.assertEqual(code, p.DONE, err)
        profile = json.loads(p.read(self.path("one.json")))
        self.assertEqual([w["recompute"] for w in profile["ways"]], [False, True])
        for way in profile["ways"]:
            self.assertEqual(sorted(batch for batch, _ in way["points"]), [1, 2, 4])
            self.assertTrue(all(seconds > 0 for _, seconds in way["points"]))
        # Embeddings 64 x 16 and 16 x 16; a block's four matrices, and eight vectors of up to 128
        # elements each with padding; the last norm's two.
        self.assertEqual([elements for elements, _ in profile["units"]],
                         [1280, (48 + 16 + 64 + 64) * 16 + 8 * 128, 2 * 128])
        # One of which half as fast as the other.
        for way in profile["ways"]:
            way["points"] = [[b, 100.0 * b] for b in (1, 2, 4)]
        self.write("one.json", json.dumps(profile))
        for way in profile["ways"]:
            way["points"] = [[b, 200.0 * b] for b in (1, 2, 4)]
        self.write("two.json", json.dumps(profile))
        self.write("cluster.toml", """
            network_gbit = 10
            [[node]]
            profile = "%s"
            [[node]]
            profile = "%s"
            """ % (self.path("one.json"), self.path("two.json")))
        said = json.loads(self.plan("--global-tokens=192", "--zero-stage=1", "--json"))
        batches = [(d["micro_steps"] - 1) * d["micro_batch"] + d["last_micro_batch"]
                   for d in said["devices"]]
        self.assertEqual(batches, [8, 4])
        self.assertAlmostEqual(said["seconds"], 800, delta=1)

    def test_train_measures_and_plans(self):
        steps = ["--global-batch=6", "--dropout=0.1", "--schedule=constant"]
        train = [o for o in self.train_command(*steps) if not o.startswith("--micro-batch")]
        single = [o for o in self.train_command(*steps, out=self.path("single"))
                  if not o.startswith("--micro-batch")]
        code, _, err = self.pando(*single)
        self.assertEqual(code, p.DONE, err)
        # A rank with less memory than the other.
        script = "exec %s %s --plan=auto --memory-budget=$([ $RANK = 1 ] && echo 30MB || echo 100MB)" % (
            p.PANDO, " ".join(train))
        _, err = self.run_job(2, "sh", "-c", script)
        self.assertIn("plan: ZeRO stage", err)
        plan = json.loads(p.read(self.path("run/plan.json")))
        samples = [(r["micro_steps"] - 1) * r["micro_batch"] + r["last_micro_batch"]
                   for r in plan["ranks"] if r["micro_steps"]]
        self.assertEqual(sum(samples), 6)
        losses = [[line["loss"] for line in p.log_of(self.path(d)) if "loss" in line]
                  for d in ("single", "run")]
        self.assertEqual(len(losses[1]), 4)
        for a, b in zip(*losses):
            self.assertLessEqual(abs(a - b), 1e-6 * a)
        # What was planned can be given to another run.
        again = [o for o in train if "batch" not in o] + ["--out=" + self.path("again")]
        self.run_job(2, *again, "--plan=" + self.path("run/plan.json"))
        self.assertEqual(p.log_of(self.path("again"))[-1]["val_loss"],
                         p.log_of(self.path("run"))[-1]["val_loss"])
        for workers, more, part in ((1, ["--emulate-speed=0"], "a speed of 0"),
                                    (1, ["--plan=auto"], "several ranks"),
                                    (2, ["--plan=auto", "--shards=.5"], "--plan says all")):
            _, err = self.run_job(workers, *train, *more, code=p.WRONG_INPUT)
            self.assertIn(part, err)

    def test_a_slow_rank_gets_less(self):
        train = [o for o in self.train_command("--global-batch=12", "--width=64", "--heads=2")
                 if not o.startswith("--micro-batch")]
        # A tenth of the other's speed.
        script = "exec %s %s --plan=auto --emulate-speed=$([ $RANK = 1 ] && echo .02 || echo .2)" % (
            p.PANDO, " ".join(train))
        _, err = self.run_job(2, "sh", "-c", script)
        self.assertEqual(err.count("emulated: kernels took"), 2)
        ranks = json.loads(p.read(self.path("run/plan.json")))["ranks"]
        samples = [(r["micro_steps"] - 1) * r["micro_batch"] + r["last_micro_batch"]
                   if r["micro_steps"] else 0 for r in ranks]
        self.assertGreater(samples[0], 2 * samples[1])

    def test_wrong_profiles(self):
        self.assert_refused([*self.PROFILE, "--share=0"], p.WRONG_INPUT, "--share")
        self.assert_refused([*self.PROFILE, "--length=17"], p.WRONG_INPUT, "--length")
        self.assert_refused([*self.PROFILE, "--heads=3"], p.WRONG_INPUT, "heads")
        self.assert_refused([*self.PROFILE, "--memory-budget=1kB"], p.OUT_OF_MEMORY, "budget")
        good = json.dumps({"device": "cpu", "model": "m", "length": 16, "precision": "f32",
                           "memory": 1000000, "optimizer_seconds": 1e-9, "units": [[128, 2]],
                           "ways": [{"recompute": False, "fixed_bytes": 0, "bytes_per_sample": 1,
                                     "points": [[1, 1.0]]}]})
        good_path = self.write("good.json", good)
        for old, new, part in (("{", "[", "parse error"), ("\"length\": 16", "\"length\": -1", "above 0"),
                               ("f32", "f64", "precision f64"), ("[1, 1.0]", "[1, -1.0]", "measurement"),
                               ("\"units\"", "\"unit\"", "units"),
                               ("\"m\"", "\"another\"", "the same model")):
            bad = self.write("bad.json", good.replace(old, new, 1))
            cluster = self.write("c.toml", """
                network_gbit = 10
                [[node]]
                profile = "%s"
                [[node]]
                profile = "%s"
                """ % (good_path, bad))
            self.assert_refused(["plan", "--cluster=" + cluster], p.WRONG_INPUT, part)
        mixed = self.write("m.toml", CLUSTER + '[[node]]\nprofile = "%s"\n' % good_path)
        self.assert_refused(["plan", "--cluster=" + mixed], p.WRONG_INPUT, "all nodes have a profile")

    def test_wrong_input(self):
        def refused(cluster, part, *more, code=p.WRONG_INPUT):
            path = self.write("wrong.toml", cluster)
            self.assert_refused(["plan", "--cluster=" + path, *more], code, part)

        self.assert_refused(["plan"], p.WRONG_INPUT, "--cluster")
        self.assert_refused(["plan", "--cluster=" + self.path("none")], p.WRONG_INPUT, "none")
        refused("", "no [[node]]")
        refused("[[node", "line 1")
        refused("[[node]]\ngpus = 2", "needs gpu")
        refused("[[node]]\ngpu = \"T5\"\ngpus = 2", "no GPU called T5 is known; there are T4, ")
        refused("[[node]]\ngpu = \"T4\"\ngpus = -2", "node 0: gpus must be a number above 0")
        refused("[[node]]\ngpu = \"T4\"\ngpus = 1.5", "not a count")
        refused("[[node]]\ngpu = \"T4\"\nmemory_gb = 20", "has 16")
        refused("[[node]]\ngpu = \"T4\"\nmemory = 20", "unknown field memory")
        refused("[[node]]\ngpu = \"T4\"\ncount = 2", "network_gbit")
        refused("[[node]]\ngpu = \"T4\"", "nothing fits", "--model=llama-8b", code=p.OUT_OF_MEMORY)
        for more, part in ((["--model=gpt5"], "no model called gpt5"),
                           (["--global-tokens=0"], "--global-tokens"),
                           (["--global-tokens=12x"], "--global-tokens"),
                           (["--global-tokens=10"], "a sample has"),
                           (["--zero-stage=4"], "there are 0 to 3"),
                           (["--out=/no/such/folder/plan.json"], "--out")):
            refused(CLUSTER, part, *more)


if __name__ == "__main__":
    unittest.main()
