# SPDX-License-Identifier: Apache-2.0
"""The secret that hearth run leaves in a descriptor: the first node reads and closes it, further nodes of the process have
it, programs that the process starts later have not."""

import socket
import subprocess
import sys
import unittest

from places import HEARTH

SECONDS = 90

RANK = """
import subprocess, sys
import hearth

def seen():
    peek = ["sh", "-c", "cat /dev/fd/$HEARTH_SECRET_FD"]
    return b"hearth1-" in subprocess.run(peek, close_fds=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout

before = seen()
with hearth.open() as node:
    first, during = node.size, seen()
with hearth.open(rendezvous=sys.argv[1], job="second", transport="tcp") as node:
    second = node.size, "tls" in node.links()
print("RESULT", before, during, seen(), first, *second)
"""


class Inherited(unittest.TestCase):
    def test_a_child_cannot_read_it(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{probe.getsockname()[1]}"
        done = subprocess.run([HEARTH, "run", "-n", "2", "--no-prefix", "--", sys.executable, "-B", "-c", RANK, place],
                              timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        results = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
        self.assertEqual(results, ["RESULT True False False 2 2 True"] * 2, done.stdout)
