#!/usr/bin/python3
"""tools/summary.py on event files and test.xml files written here.

usage: summary_test.py SUMMARY
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

SUMMARY = os.path.abspath(sys.argv.pop(1))

PASSED = '<testcase name="a" status="run" result="completed"/>'
FAILED = '<testcase name="b" status="run"><failure message="no"/></testcase>'
SKIPPED = '<testcase name="c" status="run" result="skipped"><skipped/></testcase>'
DISABLED = '<testcase name="d" status="notrun" result="suppressed"/>'


class SummaryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.events = []

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as fh:
            fh.write(text)
        return path

    def add_test(self, label, *attempts):
        """One test target; each attempt is (status, text of the cases in its test.xml or None)."""
        self.events.append({"id": {"targetConfigured": {"label": label}},
                            "configured": {"targetKind": "cc_test rule"}})
        for n, (status, cases) in enumerate(attempts, 1):
            outputs = [{"name": "test.log", "uri": "file:///nowhere"}]
            if cases is not None:
                xml = self.write("%s %d.xml" % (label.strip("/"), n),
                                 "<testsuites><testsuite>%s</testsuite></testsuites>" % cases)
                outputs.append({"name": "test.xml", "uri": "file://" + xml.replace(" ", "%20")})
            self.events.append({"id": {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": n}},
                                "testResult": {"status": status, "testActionOutput": outputs}})

    def summary(self, status="0", *more):
        path = self.write("events", "\n".join(json.dumps(e) for e in self.events))
        return run("--sum", "tests", status, counts(path), *more)

    def test_counts_cases_of_all_tests(self):
        self.add_test("//a", ("PASSED", PASSED * 3 + SKIPPED))
        self.add_test("//b", ("PASSED", PASSED + DISABLED))
        self.assertEqual(self.summary(), (0, ["4 passed, 0 failed, 2 skipped"]))

    def test_files_that_the_events_do_not_name_are_not_counted(self):
        self.write("stale.xml", "<testsuites>%s</testsuites>" % FAILED)
        self.add_test("//a", ("PASSED", PASSED))
        self.assertEqual(self.summary(), (0, ["1 passed, 0 failed, 0 skipped"]))

    def test_failed_cases(self):
        self.add_test("//a", ("FAILED", PASSED + FAILED))
        self.assertEqual(self.summary("3"),
                         (1, ["FAILED: tests (exit status 3)", "1 passed, 1 failed, 0 skipped"]))

    def test_the_last_attempt_tells(self):
        self.add_test("//a", ("FAILED", FAILED), ("PASSED", PASSED))
        self.assertEqual(self.summary(), (0, ["1 passed, 0 failed, 0 skipped"]))

    def test_a_test_that_died_has_failed(self):
        self.add_test("//a", ("TIMEOUT", None))
        self.add_test("//b", ("FAILED", PASSED))
        self.add_test("//c", ("FAILED", ""))
        self.assertEqual(self.summary("3")[1][-1], "1 passed, 3 failed, 0 skipped")

    def test_a_test_that_did_not_build_has_failed(self):
        self.add_test("//a", ("PASSED", PASSED))
        self.add_test("//b")
        self.events.append({"id": {"targetCompleted": {"label": "//a"}}, "completed": {"success": True}})
        self.events.append({"id": {"targetCompleted": {"label": "//b"}}, "completed": {}})
        self.assertEqual(self.summary("1")[1][-1], "1 passed, 1 failed, 0 skipped")

    def test_a_part_that_fails_without_failed_tests_counts_once(self):
        self.add_test("//a", ("PASSED", PASSED))
        self.assertEqual(self.summary("0", "format", "7", counts("-")),
                         (1, ["FAILED: format (exit status 7)", "1 passed, 1 failed, 0 skipped"]))
        self.assertEqual(self.summary("1")[1][-1], "1 passed, 1 failed, 0 skipped")

    def test_a_run_that_wrote_no_events(self):
        self.assertEqual(counts(os.path.join(self.folder, "no such file")), "0 0 0")

    def test_nothing_passed_is_a_failure(self):
        self.assertEqual(self.summary(), (1, ["0 passed, 0 failed, 0 skipped"]))


def counts(events):
    status, lines = run("--count", events)
    assert status == 0 and len(lines) == 1, lines
    return lines[0]


def run(*args):
    done = subprocess.run([SUMMARY, *args], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


if __name__ == "__main__":
    unittest.main()
