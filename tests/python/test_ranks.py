# SPDX-License-Identifier: Apache-2.0
"""Real processes that meet at a rendezvous, over shared memory and over tcp."""

import os
import signal
import tempfile
from pathlib import Path

from members import Script, Watched

WORK = """
import asyncio, sys
from array import array
import hearth

node = hearth.open(open_timeout=30.0, op_timeout=30.0)
group = node.world
rank, size = group.rank, group.size
assert node.rank == rank and node.size == size == 2
values = array("f", [rank + 1] * 100000)
assert group.all_reduce(values)[99999] == 3
assert group.same(values)
assert group.all_gather(array("i", [rank]), array("i", [0, 0])).tolist() == [0, 1]
futures = [group.all_reduce_nb(array("d", [tag + rank]), tag=tag) for tag in range(50)]
assert [result[0] for result in hearth.wait_all(futures, 30)] == [2 * tag + 1 for tag in range(50)]

async def later():
    return [(await group.broadcast_nb(array("i", [rank]), root=root))[0] for root in range(size)]
assert asyncio.run(later()) == [0, 1]

shared = memoryview(node.alloc(1 << 20)).cast("f")
shared[5] = rank + 1
assert group.all_reduce(shared)[5] == 3
compressor = hearth.Compressor(group, "topk:0.01", vectors=True)
gradient = array("f", [(i * 7 + rank) % 13 for i in range(50000)])
for _ in range(3):
    compressor.all_reduce("x", gradient)
assert group.same(gradient)
assert compressor.stats().ratio > 10
assert sys.argv[1] in node.links(), node.links()
assert "hearth_" in node.metrics()
part = group.split(rank)
assert (part.rank, part.size) == (0, 1)
print("fine", rank)
"""

LATENCY = """
import sys, time
from array import array
import hearth
from hearth._library import lib

def median(function, count=2000):
    times = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        function()
        times.append(time.perf_counter_ns() - begin)
    return sorted(times)[count // 2] / 1000

with hearth.open(open_timeout=30.0, op_timeout=30.0) as node:
    group, values = node.world, array("f", [0])
    address, length = values.buffer_info()
    handle = group._handle.address
    python = median(lambda: group.all_reduce(values))
    c = median(lambda: lib.all_reduce(handle, address, address, 1, 0, 0, None))
    print(f"4 bytes, {sys.argv[1]}: {python:.1f} us by Group.all_reduce, {c:.1f} us by the C function through ctypes")
"""

LOST = """
import os, signal, sys
import hearth

node = hearth.open(open_timeout=30.0, op_timeout=60.0)
print("open", flush=True)
if node.rank == 1:
    signal.pause()
try:
    node.world.all_reduce(bytearray(1000))
except (hearth.PeerLost, hearth.GroupBroken) as error:  # in the middle of it, or just before
    print(error.rank, error.peer, "rank 1" in str(error), flush=True)
try:
    node.world.barrier()
except hearth.GroupBroken as error:
    print(error.code, flush=True)
"""


class Ranks(Watched):
    def setUp(self):
        super().setUp()
        self.place = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.place.cleanup()
        super().tearDown()

    def start(self, code, transport, **variables):
        meeting = f"unix:{Path(self.place.name, 'meeting')}"
        return [Script(code, transport, HEARTH_RENDEZVOUS=meeting, HEARTH_WORLD_SIZE="2", HEARTH_RANK=str(rank),
                       HEARTH_TRANSPORT=transport, **variables) for rank in range(2)]

    def run_all(self, code, transport):
        scripts = self.start(code, transport)
        try:
            return [script.end() for script in scripts]
        finally:
            for script in scripts:
                script.__exit__()

    def test_shared_memory(self):
        self.assertEqual(self.run_all(WORK, "shm"), [(0, "fine 0\n", ""), (0, "fine 1\n", "")])

    def test_tcp(self):
        self.assertEqual(self.run_all(WORK, "tcp"), [(0, "fine 0\n", ""), (0, "fine 1\n", "")])

    def test_what_a_small_call_costs(self):
        for transport in ("shm", "tcp"):
            told = self.run_all(LATENCY, transport)
            self.assertEqual([status for status, _, _ in told], [0, 0], told)
            print(told[0][1].strip())

    def test_a_member_that_is_killed_is_named(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport):
                survivor, victim = self.start(LOST, transport)
                with survivor, victim:
                    self.assertEqual((survivor.line(), victim.line()), ("open", "open"))
                    os.kill(victim.process.pid, signal.SIGKILL)
                    self.assertEqual(survivor.end(), (0, "0 1 True\nHEARTH_GROUP_BROKEN\n", ""))
