#!/usr/bin/python3
"""Folders that can't hold a run, and disks that are full: before and in the middle of one."""

import errno
import os
import subprocess
import time
import unittest

import pando_process as p


class FoldersOfRuns(p.PandoTest):
    """--out that can't be used."""

    def test_below_a_file(self):
        # Not even root can write there.
        out = self.write("file", "not a folder") + "/run"
        self.assert_train_refused([], p.WRONG_INPUT, "file/run", out=out)
        self.assertEqual(p.read(self.path("file")), b"not a folder")

    def test_in_a_file_system_of_the_kernel(self):
        self.assert_train_refused([], p.WRONG_INPUT, "/proc/pando", out="/proc/pando")

    def test_without_permission(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everywhere")
        os.mkdir(self.out, 0o555)
        self.assert_train_refused([], p.WRONG_INPUT, "run")

    def test_with_files_of_somebody_else(self):
        os.mkdir(self.out)
        self.write("run/thesis.tex", "years of work")
        os.mkdir(self.path("run/step-00000001"))
        self.write("run/step-00000001/photo.jpg", "a face")
        before = p.snapshot(self.out)
        self.assert_train_refused([], p.WRONG_INPUT, "run", "not empty", "new or an empty folder")
        self.assertEqual(p.snapshot(self.out), before)

    def test_files_of_somebody_else_beside_a_run(self):
        self.train("--steps=1", "--checkpoint-interval=1")
        self.write("run/notes.txt", "mine")
        self.write("run/step-00000001/photo.jpg", "a face")
        self.train("--steps=4", "--checkpoint-interval=1", "--keep=1")
        self.assertEqual(p.read(self.path("run/notes.txt")), b"mine")
        self.assertEqual(p.read(self.path("run/step-00000001/photo.jpg")), b"a face")

    def test_in_use(self):
        with self.start(*self.train_command("--steps=1000000")) as process:
            for line in process.stderr:
                if line.startswith("step "):
                    break
            try:
                self.assert_train_refused([], p.WRONG_INPUT, "in use by process %d" % process.pid)
            finally:
                process.kill()


class FullDisks(p.PandoTest):
    """A small disk of our own."""

    def mount(self, size):
        if os.geteuid() != 0:
            self.skipTest("only root can mount a small disk")
        disk = self.path("disk")
        os.mkdir(disk)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % size, "none", disk],
                                 stderr=subprocess.PIPE, universal_newlines=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no disk can be mounted here: " + mounted.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=True)
        return disk

    def test_at_the_start(self):
        # Two checkpoints of 1 MiB and more have to fit.
        disk = self.mount(1 << 20)
        self.assert_train_refused([], p.WRONG_INPUT, "disk/run", "free", "two checkpoints",
                                  out=disk + "/run")

    def fill(self, disk, leave):
        """Leaves about so many bytes."""
        stat = os.statvfs(disk)
        size = stat.f_bavail * stat.f_frsize - leave
        with open(disk + "/filler", "wb", buffering=0) as fh:
            try:
                while size > 0:
                    size -= fh.write(b"\0" * size)
            except OSError as e:  # the run has taken the rest
                self.assertEqual(e.errno, errno.ENOSPC)

    def test_in_the_middle(self):
        disk = self.mount(8 << 20)
        out = disk + "/run"
        more = ["--steps=4000", "--checkpoint-interval=2000"]
        # The disk fills up while the program runs.
        with self.start(*self.train_command(*more, out=out)) as process:
            for line in process.stderr:
                if line.startswith("step "):
                    break
            while not p.log_of(out):  # a step is said before it is logged
                time.sleep(0.001)
            self.fill(disk, leave=0)
            _, err = process.communicate(timeout=p.PATIENCE)
        self.assertEqual(process.returncode, p.FAILED, err)
        last = err.splitlines()[-1]
        self.assertTrue(last.startswith("pando train: "), err)
        self.assertIn("No space left on device", last)
        self.assertGreater(len(p.log_of(out)), 0)
        # With room again, the same command goes on, and nothing is missing.
        os.remove(disk + "/filler")
        self.train(*more, out=out)
        self.train(*more, out=self.path("whole"))
        self.assertEqual(p.log_of(out), p.log_of(self.path("whole")))
        self.assertEqual(p.weights_of(out, 4000), p.weights_of(self.path("whole"), 4000))

    def test_in_a_save(self):
        disk = self.mount(8 << 20)
        out = disk + "/run"
        # The disk that was large enough at the start is full when the second save comes.
        more = ["--steps=2000", "--checkpoint-interval=1000", "--width=64", "--keep=5"]
        with self.start(*self.train_command(*more, out=out)) as process:
            while not os.path.exists(out + "/step-00001000") and process.poll() is None:
                time.sleep(0.001)
            self.fill(disk, leave=400000)  # enough for the log, not for 1.2 MB
            _, err = process.communicate(timeout=p.PATIENCE)
        self.assertEqual(process.returncode, p.FAILED, err)
        last = err.splitlines()[-1]
        self.assertTrue(last.startswith("pando train: the checkpoint of step 2000"), err)
        self.assertIn("No space left on device", last)
        self.assertIn("earlier ones are untouched", last)
        self.assertEqual([n for n in os.listdir(out) if "step" in n], ["step-00001000"])
        # At the start it is noticed before anything is computed.
        self.assert_train_refused(more, p.WRONG_INPUT, "free some space", out=out)
        os.remove(disk + "/filler")
        _, err = self.train(*more, out=out)
        self.assertIn("going on from %s/step-00001000" % out, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
