# SPDX-License-Identifier: Apache-2.0
"""tools/test.py counts what programs print: no failure may get lost."""

import contextlib
import importlib.util
import io
import subprocess
import sys
import unittest
from concurrent import futures
from unittest import mock

from places import SOURCE

spec = importlib.util.spec_from_file_location("runner", SOURCE / "tools/test.py")
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)

CMOCKA = """[==========] Running 3 test(s).
[ RUN      ] one
some words
[       OK ] one
[ RUN      ] two
[  ERROR   ] --- 1 != 2
[   LINE   ] --- a.c:1: error: Failure!
[  FAILED  ] two
[ RUN      ] three
[  SKIPPED ] three
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] three
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] two
"""
UNITTEST = """test_one (__main__.A) ... ok
test_two (__main__.A.test_two)
With a word about it. ... FAIL
test_three (__main__.A) ... skipped 'no compiler'
"""


class Counting(unittest.TestCase):
    def counts(self, output, failed):
        with contextlib.redirect_stdout(io.StringIO()):
            return str(runner.cases("program", output, failed))

    def test_cmocka(self):
        self.assertEqual(self.counts(CMOCKA, True), "1 passed, 1 failed, 1 skipped")

    def test_unittest(self):
        self.assertEqual(self.counts(UNITTEST, True), "1 passed, 1 failed, 1 skipped")

    def test_death_between_cases(self):
        self.assertEqual(self.counts("[ RUN      ] one\n[       OK ] one\n[ RUN      ] two\n", True), "1 passed, 1 failed")

    def test_any_other_program(self):
        self.assertEqual(self.counts("", False), "1 passed, 0 failed")
        self.assertEqual(self.counts("", True), "0 passed, 1 failed")


class Needs(unittest.TestCase):
    """A suite that cannot run here is skipped, and says why."""

    def suite(self, name, reason):
        said = io.StringIO()
        with mock.patch.dict(runner.NEEDS, {name: lambda: reason}), contextlib.redirect_stdout(said):
            prepared = futures.Future()
            prepared.set_result(runner.prepare(name, False))
            return str(runner.run_suite(name, prepared)), said.getvalue()

    def test_the_reason_is_printed(self):
        for name in runner.NEEDS:
            count, said = self.suite(name, "there is no such thing: run ./setup --all")
            self.assertEqual(count, "0 passed, 0 failed, 1 skipped")
            self.assertIn(f"skipped: {name}: there is no such thing: run ./setup --all\n", said)

    def test_no_python_with_torch(self):
        done = subprocess.CompletedProcess([], 1, "", "/usr/bin/python3 has no torch: run ./setup --all\n")
        with mock.patch.object(runner, "run", return_value=done):
            self.assertEqual(runner.torch(), "/usr/bin/python3 has no torch: run ./setup --all")

    def pick(self, *arguments):
        return subprocess.run([sys.executable, "-B", SOURCE / "tools/pick_python.py", *arguments], capture_output=True,
                              text=True)

    def test_the_python_that_is_picked(self):
        self.assertIn("python", self.pick().stdout)
        self.assertEqual(self.pick("--need", "json").stdout, self.pick("json").stdout)
        done = self.pick("--need", "json", "no_such_module")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("has no no_such_module: run ./setup --all", done.stderr)
        self.assertEqual(self.pick("json", "no_such_module").returncode, 0)
