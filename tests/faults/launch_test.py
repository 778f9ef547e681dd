#!/usr/bin/python3
"""pando launch: what it tells ranks and a person, and how jobs end."""

import base64
import json
import os
import signal
import time
import unittest
import urllib.request

import job as j
import pando_process as p


class Launch(j.JobTest):
    def test_tells_ranks_who_they_are(self):
        script = ("echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK "
                  "${PANDO_STORE%%:*} ${#PANDO_STORE_SECRET} $OMP_WAIT_POLICY; echo done >&2")
        out, err = self.run_job(3, "sh", "-c", script)
        self.assertEqual(sorted(out.splitlines()),
                         ["[%d] %d/3 %d/3 0 http 32 passive" % (r, r, r) for r in range(3)])
        self.assertEqual(sorted(err.splitlines()), ["[%d] done" % r for r in range(3)])

    def test_json_of_rank_0_goes_through_as_it_is(self):
        out, _ = self.run_job(2, "sh", "-c", "echo '{\"rank\": '$RANK'}'")
        self.assertEqual(sorted(out.splitlines()), ["[1] {\"rank\": 1}", "{\"rank\": 0}"])

    def test_lines_stay_whole(self):
        script = "i=0; while [ $i -lt 200 ]; do echo $RANK-$i-xxxxxxxxxxxxxxxxxxxx; i=$((i+1)); done"
        out, _ = self.run_job(4, "sh", "-c", script + "; printf unfinished")
        lines = out.splitlines()
        self.assertEqual(len(lines), 4 * 201)
        for rank in range(4):
            mine = [line for line in lines if line.startswith("[%d] " % rank)]
            self.assertEqual(mine, ["[%d] %d-%d-xxxxxxxxxxxxxxxxxxxx" % (rank, rank, i)
                                    for i in range(200)] + ["[%d] unfinished" % rank])

    def test_output_of_all_kinds(self):
        out, _ = self.run_job(2, "sh", "-c", "head -c 3000000 /dev/zero; head -c 1000 /dev/urandom",
                              errors="replace")
        self.assertGreater(len(out), 6000000)

    def test_the_first_failure_ends_all(self):
        script = "test $RANK = 1 && { echo because >&2; exit 7; }; sleep 1000"
        job = self.launch(3, "sh", "-c", script)
        err = self.assert_blamed(job, [], 1, "exit code 7")
        self.assertEqual(job.returncode, 7)
        self.assertIn("[1] because", err.split("pando launch: rank 1")[1])

    def test_leaves_no_session_of_its_own_behind(self):
        marker = "session-%d" % os.getpid()
        script = "setsid bash -c 'exec -a %s sleep 1000' & sleep 0.3" % marker
        self.run_job(2, "bash", "-c", script)
        self.assertEqual(self.running(marker), [])

    def test_a_killed_agent_leaves_nothing_behind(self):
        # Not what ranks have started either, and though it ignores signals.
        marker = "orphan-%d" % os.getpid()
        script = ("trap '' TERM HUP; bash -c 'exec -a %s sleep 1000' & "
                  "sleep 0.3; echo ready; wait" % marker)
        job = self.launch(2, "bash", "-c", script, bufsize=1)
        for _ in range(2):
            self.assertIn("ready", job.stdout.readline())
        self.assertEqual(len(self.running(marker)), 2)
        job.kill()
        end = time.monotonic() + p.PATIENCE
        while self.running(marker) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(self.running(marker), [])

    def test_leaves_nothing_behind(self):
        # A grandchild of a rank that ignores SIGTERM.
        marker = "sleep-%d" % os.getpid()
        script = "trap '' TERM; sh -c \"trap '' TERM; exec -a %s sleep 1000\" & " % marker
        script += "test $RANK = 1 && sleep 0.3 && exit 3; wait"
        self.run_job(2, "bash", "-c", script, code=3)
        self.assertEqual(self.running(marker), [])

    def running(self, name):
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self.runs(pid, name)]

    @staticmethod
    def runs(pid, name):
        try:
            return p.read("/proc/%s/cmdline" % pid).startswith(name.encode())
        except OSError:
            return False

    def test_dies_with_its_agent(self):
        job = self.launch(3, "sleep", "1000")
        pids = self.ranks(job, 3)
        job.kill()
        self.assert_gone(pids.values())

    def test_passes_signals_on(self):
        script = "trap 'echo asked; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
        job = self.launch(2, "sh", "-c", script, bufsize=1)
        for _ in range(2):
            self.assertIn("ready", job.stdout.readline())
        job.send_signal(signal.SIGTERM)
        out, _ = job.communicate(timeout=p.PATIENCE)
        self.assertEqual(sorted(out.splitlines()), ["[0] asked", "[1] asked"])

    def test_who_ends_when_asked_has_not_failed(self):
        job = self.launch(2, "sh", "-c", "echo ready; exec sleep 1000", bufsize=1)
        for _ in range(2):
            self.assertIn("ready", job.stdout.readline())
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=p.PATIENCE)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)
        self.assertNotIn("killed by", err)

    def test_last_lines_of_output_where_there_are_no_errors(self):
        job = self.launch(1, "sh", "-c", "echo because; exit 7")
        _, err = job.communicate(timeout=p.PATIENCE)
        self.assertIn("[0] because", err)

    def test_a_rank_that_the_kernel_kills_for_its_memory(self):
        group = "/sys/fs/cgroup/memory/pando-test-%d" % os.getpid()
        try:
            os.mkdir(group)
            self.addCleanup(os.rmdir, group)
            with open(group + "/memory.limit_in_bytes", "w") as file:
                file.write("33554432")
        except OSError:
            self.skipTest("memory can't be limited here")
        script = ("test $RANK = 0 && exec sleep 1000; echo $$ > %s/cgroup.procs || exit 9; "
                  "exec python3 -c 'b\"x\" * (1 << 28)'" % group)
        job = self.launch(2, "sh", "-c", script)
        self.assert_blamed(job, [], 1, "killed by signal 9", "memory runs out")

    def test_a_second_signal_means_it(self):
        job = self.launch(2, "sh", "-c", "trap '' INT; echo ready; while true; do sleep 0.05; done")
        pids = self.ranks(job, 2)
        for _ in range(2):
            job.stdout.readline()
        for _ in range(2):
            job.send_signal(signal.SIGINT)
            time.sleep(0.1)
        job.communicate(timeout=p.PATIENCE)
        self.assertNotEqual(job.returncode, 0)
        self.assert_gone(pids.values())

    def test_wrong_input(self):
        for arguments, part in ((["no-such-program"], "no program no-such-program"),
                                ([self.data], "can't be executed"),
                                (["--workers=0", "true"], "--workers"),
                                (["--workers=x", "true"], "--workers"),
                                (["--nodes=2", "--node-rank=2", "true"], "--node-rank"),
                                (["--nodes=2", "--node-rank=1", "true"], "--store"),
                                (["--store=10.0.0.1", "true"], "http://"),
                                (["--nodes=2", "--interface=0.0.0.0", "true"], "--interface"),
                                (["--no-such-option", "true"], "unknown option"),
                                ([], "what is to be launched")):
            self.assert_refused(["launch", *arguments], p.WRONG_INPUT, part)


class SlowNode(j.JobTest):
    """Three nodes, of which the test is the last one."""

    def test_who_ends_at_once_is_known_to_all(self):
        environment = dict(os.environ, PANDO_STORE_SECRET="of the test")
        first = self.launch(1, "--nodes=3", "true", env=environment)
        url = first.stderr.readline().split("--store ")[1].split()[0]
        store = StoreByHand(url, "of the test")
        second = self.launch(1, "--nodes=3", "--node-rank=1", "--store=" + url, "true",
                             env=environment)
        store.put("pando/job/node/2", "1 127.0.0.1 1")
        end = time.monotonic() + p.PATIENCE
        while not store.get("pando/job/done/1") and time.monotonic() < end:
            time.sleep(0.01)
        # It has ended, and would be forgotten now, but that this node has not joined.
        time.sleep(0.5)
        self.assertTrue(store.get("pando/job/node/1"))
        self.assertIsNone(second.poll())
        store.put("pando/job/joined/2", "")
        store.put("pando/job/done/2", "")
        for job in (second, first):
            _, err = job.communicate(timeout=p.PATIENCE)
            self.assertEqual(job.returncode, 0, err)


class StoreByHand:
    """The store's HTTP interface, which is etcd's."""

    def __init__(self, url, secret):
        self.url, self.secret = url, secret

    def call(self, method, **fields):
        data = {k: base64.b64encode(v.encode()).decode() for k, v in fields.items()}
        request = urllib.request.Request(self.url + "/v3/kv/" + method, json.dumps(data).encode(),
                                         {"Authorization": self.secret})
        with urllib.request.urlopen(request, timeout=p.PATIENCE) as answer:
            return json.load(answer)

    def put(self, key, value):
        self.call("put", key=key, value=value)

    def get(self, key):
        return self.call("range", key=key).get("kvs")


class TwoNodes(j.JobTest):
    """Two agents on one machine."""

    def start_first(self, workers, *command, secret="of the test"):
        environment = dict(os.environ, PANDO_STORE_SECRET=secret)
        first = self.launch(workers, "--nodes=2", *command, env=environment)
        line = first.stderr.readline()
        self.assertIn("--store http://", line)
        store = line.split("--store ")[1].split()[0]
        return first, ["--nodes=2", "--node-rank=1", "--store=" + store], environment

    def test_unequal_numbers_of_ranks(self):
        command = ["sh", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK"]
        first, options, environment = self.start_first(1, *command)
        out, _ = self.run_job(2, *options, *command, env=environment)
        self.assertEqual(sorted(out.splitlines()), ["[1] 1/3 0/2 1", "[2] 2/3 1/2 1"])
        out, err = first.communicate(timeout=p.PATIENCE)
        self.assertEqual(first.returncode, 0, err)
        self.assertEqual(out.splitlines(), ["[0] 0/3 0/1 0"])

    def test_where_programs_like_torchruns_meet(self):
        command = ["sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT"]
        first, options, environment = self.start_first(1, "--interface=127.0.0.1", *command)
        out, _ = self.run_job(1, *options, "--interface=127.0.0.2", *command, env=environment)
        first_out, err = first.communicate(timeout=p.PATIENCE)
        self.assertEqual(first.returncode, 0, err)
        where = first_out.split()[1]
        self.assertEqual(out.split()[1], where)
        address, port = where.split(":")
        self.assertEqual(address, "127.0.0.1")
        self.assertGreater(int(port), 1023)

    def test_a_failure_ends_both(self):
        command = ["sh", "-c", "test $RANK = 1 && { sleep 0.5; exit 9; }; sleep 1000"]
        first, options, environment = self.start_first(1, *command)
        second = self.launch(2, *options, *command, env=environment)
        self.assert_blamed(second, [], 1, "exit code 9")
        self.assert_blamed(first, [], 1, "exit code 9")
        self.assertEqual(first.returncode, 9)

    def test_a_node_that_is_lost(self):
        first, options, environment = self.start_first(1, "sleep", "1000")
        second = self.launch(1, *options, "sleep", "1000", env=environment)
        self.ranks(first, 1)
        pids = self.ranks(second, 1)
        second.kill()
        self.assert_blamed(first, pids.values(), 1, "node 1", "lost")

    def test_the_node_of_the_store_is_lost(self):
        first, options, environment = self.start_first(1, "sleep", "1000")
        second = self.launch(1, *options, "sh", "-c", "echo ready; sleep 1; exit %d" % j.PEER_LOST,
                             env=environment, bufsize=1)
        self.assertIn("ready", second.stdout.readline())
        first.kill()
        self.assert_blamed(second, [], 0, "lost")

    def test_trains(self):
        train = self.train_command("--zero-stage=3")
        first, options, environment = self.start_first(1, *train, "--json")
        self.run_job(2, *options, *train, env=environment)
        out, err = first.communicate(timeout=p.PATIENCE)
        self.assertEqual(first.returncode, 0, err)
        self.assertEqual(json.loads(out)["steps"], 4)

    def test_a_node_that_does_not_come(self):
        code, _, err = self.pando("launch", "--nodes=2", "--join-timeout=1", "true")
        self.assertEqual(code, p.FAILED)
        self.assertIn("node 1 of 2 did not come", err)

    def test_a_node_rank_that_is_taken(self):
        _, options, environment = self.start_first(1, "sleep", "1000")
        self.launch(1, *options, "sleep", "1000", env=environment)
        time.sleep(0.5)
        _, err = self.run_job(1, *options, "true", code=p.FAILED, env=environment)
        self.assertIn("node 1 of job job is there already", err)

    def test_a_wrong_secret(self):
        _, options, _ = self.start_first(1, "true")
        _, err = self.run_job(1, *options, "true", code=p.FAILED,
                              env=dict(os.environ, PANDO_STORE_SECRET="another"))
        self.assertIn("secret", err)


if __name__ == "__main__":
    unittest.main()
