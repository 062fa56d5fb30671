# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them, compiled with include/hearth.h and linked with the shared library alone. Three processes
train, one is killed, a newcomer takes its place; each checks every step that is committed (client/elastic_client.c). Three
share a queue of work by messages, one is killed; every task is answered once (client/queue_client.c)."""

import os
import subprocess
import sys
import time
import unittest

from cluster_fixture import Fixture
from places import BINARY, HEARTH, SOURCE, require, unbuilt
from ports import free_port

SECONDS = 60  # for all of it; about three on an idle machine
STEPS = 6  # with the same members, before the next thing happens
SPACING = 8  # of the ports: the groups of a node take those after its own
VICTIM, NEWCOMER = 1, 3

require(None if sys.platform.startswith("linux") else "the library is found as on Linux")
require(unbuilt(HEARTH, BINARY / "libhearth.so"))


class Client(unittest.TestCase):
    def setUp(self):
        self.deadline = time.monotonic() + SECONDS
        self.fixture = Fixture()
        self.addCleanup(self.fixture.close)
        self.fixture.hearth("init", "den")
        self.program, self.stop = self.fixture.file("client"), self.fixture.file("stop")
        self.port = free_port(4 * SPACING)

    def compile(self, name):
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_DEFAULT_SOURCE", "-O1", "-Wall", "-Wextra",
                        "-Wconversion", "-Wshadow", "-Werror", f"-I{SOURCE / 'include'}", "-o", self.program,
                        SOURCE / f"tests/process/client/{name}.c", f"-L{BINARY}", "-lhearth", "-lm",
                        f"-Wl,-rpath,{BINARY}"], check=True, timeout=SECONDS)

    def left(self):
        """Seconds until the deadline."""
        return max(self.deadline - time.monotonic(), 0)

    def start(self, member, *arguments):
        seeds = ",".join(f"127.0.0.1:{self.port + SPACING * i}" for i in range(3))
        return self.fixture.start([self.program, member, *arguments, self.stop], HEARTH_SEEDS=seeds,
                                  HEARTH_PORT=self.port + SPACING * member, HEARTH_BIND="127.0.0.1",
                                  HEARTH_TRANSPORT="auto", HEARTH_FORM_TIMEOUT_MS=30000)

    def trained(self, process, ids):
        """Waits until it has made some steps with exactly these members."""
        process.wait_for(lambda: sum(line.get("ids") == ids for line in process.lines) >= STEPS, f"steps with {ids}",
                         self.left())

    def test_queue_and_loss(self):
        self.compile("queue_client")
        members = {i: self.start(i) for i in range(3)}
        while not os.path.exists(self.stop):  # half of the tasks are answered
            self.assertGreater(self.left(), 0, [m.told() for m in members.values()])
            time.sleep(0.01)
        victim = members.pop(VICTIM)
        victim.child.kill()
        for process in members.values():
            self.assertEqual(process.end(self.left()), 0, process.told())
        victim.end(self.left())
        tasks = 3000
        self.assertEqual([line["what"] for line in members[0].lines], ["end"], members[0].told())
        self.assertEqual(members[0].lines[0]["sum"], sum(i * i + 7 for i in range(tasks)))
        self.assertGreaterEqual(members[0].lines[0]["groups"], 2, "the loss was noticed")

    def test_loss_and_newcomer(self):
        self.compile("elastic_client")
        members = {i: self.start(i, 2) for i in range(3)}
        for process in members.values():
            self.trained(process, [0, 1, 2])
        victim = members.pop(VICTIM)
        victim.child.kill()
        for process in members.values():
            self.trained(process, [0, 2])
        members[NEWCOMER] = self.start(NEWCOMER, 1)
        for process in members.values():
            self.trained(process, [0, 2, 3])
        open(self.stop, "x", encoding="ascii").close()
        for process in members.values():
            self.assertEqual(process.end(self.left()), 0, process.told())
        victim.end(self.left())
        steps = members[0].lines
        self.assertEqual([line["step"] for line in steps], list(range(len(steps))), "none is missing, none came twice")
        for process in (*members.values(), victim):
            self.assertEqual([line for line in process.lines if line["what"] != "step"], [])
            begin = process.lines[0]["step"]
            self.assertEqual(process.lines, steps[begin:begin + len(process.lines)], "all committed the same steps")
