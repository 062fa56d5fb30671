# SPDX-License-Identifier: Apache-2.0
"""python3 -m hearth.selftest: every part has a line, and what fails is seen in the exit status."""

import contextlib
import io
import os
import re
import subprocess
import sys
import unittest
from unittest import mock

from hearth import selftest

SECONDS = 100  # against hanging


class Selftest(unittest.TestCase):
    def main(self, *parts):
        """Exit status and what was said, with these parts alone."""
        said = io.StringIO()
        with mock.patch.object(selftest, "PARTS", parts), contextlib.redirect_stdout(said):
            return selftest.main(), said.getvalue()

    def test_as_a_program(self):
        done = subprocess.run([sys.executable, "-B", "-m", "hearth.selftest"], capture_output=True, text=True,
                              timeout=SECONDS, stdin=subprocess.DEVNULL, cwd="/",
                              env={**os.environ, "PYTHONPATH": os.path.abspath(os.environ.get("PYTHONPATH", "")),
                                   "HEARTH_LIBRARY": os.path.abspath(os.environ.get("HEARTH_LIBRARY", ""))})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        for part, line in zip(selftest.PARTS, lines[1:]):
            self.assertRegex(line, rf"^(ok|skipped) +{part.__name__.replace('_', ' ')}: \S+ .*\(\d+\.\d s\)$")
        for name in ("library", "types", "shared memory", "loopback", "compression"):  # these need nothing
            self.assertRegex(done.stdout, rf"(?m)^ok +{name}: ")
        self.assertEqual(len(lines), len(selftest.PARTS) + 2)
        self.assertRegex(lines[-1], r"^\d+ ok, 0 failed, \d+ skipped$")

    def test_a_failure_is_told(self):
        def broken():
            raise AssertionError("a sum is wrong")

        status, said = self.main(selftest.library, broken)
        self.assertEqual(status, 1)
        self.assertRegex(said, r"(?m)^failed +broken: AssertionError: a sum is wrong")
        self.assertIn("1 ok, 1 failed, 0 skipped", said)

    def test_a_skip_is_no_failure(self):
        def absent():
            raise selftest.Skip("there is none")

        status, said = self.main(absent)
        self.assertEqual(status, 0)
        self.assertRegex(said, r"(?m)^skipped +absent: there is none")

    def test_a_wrong_sum_is_seen(self):
        """Each comparison can fail: what is expected is changed, and the part notices."""
        wrong = {**selftest.ONES, "i32": ("=i", -1, -4)}
        with mock.patch.object(selftest, "ONES", wrong):
            status, said = self.main(selftest.types)
        self.assertEqual(status, 1, said)
        self.assertIn("a sum of i32 is wrong", said)

    def test_every_type(self):
        from hearth._buffers import NAMES
        self.assertEqual(sorted(selftest.ONES), sorted(NAMES.values()))
        self.assertTrue(re.match(r"\d+\.\d+\.\d+", selftest.library().split()[1]))
