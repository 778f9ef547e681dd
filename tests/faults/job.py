"""A job of several ranks under pando launch, whose processes a test finds and harms."""

import os
import signal
import struct
import time

import pando_process as p

PEER_LOST = 76
PHASES = ("starting", "forming", "forward", "backward", "gather", "reduce-scatter", "optimizer", "evaluation",
          "save", "done")


def environment_of(pid):
    """The environment that a process was started with; empty if it is gone."""
    try:
        entries = p.read("/proc/%d/environ" % pid).split(b"\0")
    except OSError:
        return {}
    return dict(e.decode(errors="replace").split("=", 1) for e in entries if b"=" in e)


def children_of(pid):
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = p.read("/proc/%s/stat" % name).decode(errors="replace")
        except OSError:
            continue
        if int(stat.rsplit(")", 1)[1].split()[1]) == pid:
            found.append(int(name))
    return found


def alive(pid):
    """Whether the process is there, and no zombie."""
    try:
        stat = p.read("/proc/%d/stat" % pid).decode(errors="replace")
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


class JobTest(p.PandoTest):
    def launch(self, workers, *command, **options):
        job = self.start("launch", "--workers=%d" % workers, *command, **options)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        job.kill()
        job.communicate()

    def run_job(self, workers, *command, code=p.DONE, **options):
        job = self.launch(workers, *command, **options)
        out, err = job.communicate(timeout=p.PATIENCE)
        self.assertEqual(job.returncode, code, err)
        return out, err

    def ranks(self, job, workers):
        """Process ids of a job's ranks on one node, by rank, once all have been started."""
        end = time.monotonic() + p.PATIENCE
        while time.monotonic() < end and job.poll() is None:
            by_rank = {}
            for pid in children_of(job.pid):
                rank = environment_of(pid).get("RANK")
                if rank is not None:
                    by_rank[int(rank)] = pid
            if len(by_rank) == workers:
                return by_rank
            time.sleep(0.005)
        self.fail("the ranks did not start: " + job.communicate()[1])

    def wait_for(self, pid, phase, step=0):
        """Until the process says that it is in this phase, of this step or a later one."""
        fd = environment_of(pid).get("PANDO_PROGRESS")
        end = time.monotonic() + p.PATIENCE
        with open("/proc/%d/fd/%s" % (pid, fd), "rb", buffering=0) as page:
            while time.monotonic() < end:
                _, now, at_step, _ = struct.unpack("4q", os.pread(page.fileno(), 32, 0))
                if at_step >= step and PHASES[now] == phase:
                    return
                if PHASES[now] == "done" or not alive(pid):
                    break
        self.fail("rank never seen in %s of step %d" % (phase, step))

    def assert_blamed(self, job, pids, rank, *parts):
        """The job ends, blames this rank first, and leaves nothing running."""
        _, err = job.communicate(timeout=p.PATIENCE)
        self.assertNotEqual(job.returncode, 0, err)
        verdict = [line for line in err.splitlines() if line.startswith("pando launch: rank")]
        self.assertTrue(verdict, err)
        self.assertIn("rank %d " % rank, verdict[0] + " ", err)
        for part in parts:
            self.assertIn(part, verdict[0])
        self.assert_gone(pids)
        return err

    def assert_gone(self, pids):
        end = time.monotonic() + p.PATIENCE
        while any(alive(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse([pid for pid in pids if alive(pid)])


def stop(pid):
    os.kill(pid, signal.SIGSTOP)


def kill(pid):
    os.kill(pid, signal.SIGKILL)
