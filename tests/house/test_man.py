# SPDX-License-Identifier: Apache-2.0
"""The manual page and the command's own help speak of the same version, commands and options."""

import re
import unittest

from house import run, version
from places import BINARY, SOURCE

PAGE = (SOURCE / "docs/man/hearth.1").read_text().replace("\\-", "-")
COMMAND = BINARY / "hearth"
COMMANDS = (["demo"], ["run"], ["plan"], ["sim"], ["bench", "allreduce"], ["bench", "messages"], ["bench", "cluster"],
            ["up"], ["id"], ["init"], ["join"], ["trust", "list"], ["trust", "add"], ["trust", "remove"], ["trust", "forget"],
            ["job", "list"], ["job", "forget"], ["status"], ["nodes"], ["topology"], ["doctor"])


def flags(text):
    return set(re.findall(r"--[a-z][a-z-]*", text))


class Man(unittest.TestCase):
    def test_version(self):
        self.assertIn(f'"hearth {version()}"', PAGE)
        self.assertEqual(run(COMMAND, "--version"), f"hearth {version()}\n")

    def test_commands(self):
        listed = re.findall(r"^  ([a-z]+) ", run(COMMAND, "--help"), re.M)
        self.assertLessEqual({c[0] for c in COMMANDS}, set(listed))
        for name in set(listed) - {"help", "hearth"}:
            self.assertRegex(PAGE, rf"(?m)^\.B hearth {name}\b")

    def test_options(self):
        explained = set(re.findall(r"^\.TP\n\.B[IR]? (--[a-z-]+)", PAGE, re.M))
        helped = {"--version", "--help"}.union(*(flags(run(COMMAND, *c, "--help")) for c in COMMANDS))
        self.assertEqual(explained, helped)
