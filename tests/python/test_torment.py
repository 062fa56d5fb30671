# SPDX-License-Identifier: Apache-2.0
"""Threads that start, wait, cancel, drop and close at random: everything ends, and nothing is used after its end.

What goes wrong here shows as a crash, best under the address sanitizer. HEARTH_TEST_ROUNDS makes it longer.
"""

import gc
import os
import random
import threading
import time
from array import array

from members import SECONDS, Watched

import hearth
from hearth import _handles

ROUNDS = int(os.environ.get("HEARTH_TEST_ROUNDS", "60"))
EXPECTED = (hearth.OperationError, hearth.PeerError, hearth.GroupError, hearth.NodeError)
IN_USE = ("descriptor is gone", "has not ended", "in use", "ready")  # what a call may be told that comes too early


class Member:
    """One thread of a node; other threads may have the same node, and all share some futures."""

    def __init__(self, node, seed, shared):
        self.node, self.group, self.shared = node, node.world, shared
        self.random = random.Random(seed)
        self.futures, self.syncs = [], []
        self.surprise = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        deeds = (self.start, self.start, self.start, self.cancel, self.wait, self.forget, self.share, self.look,
                 self.compress, self.wait_any, self.barrier, self.sync, self.end_sync)
        try:
            for _ in range(self.random.randrange(5, 200)):
                self.random.choice(deeds)()
        except EXPECTED:
            pass
        except hearth.Invalid as error:
            if not any(words in str(error) for words in IN_USE):
                self.surprise = error
        except BaseException as error:
            self.surprise = error
        if self.random.random() < 0.5:
            self.node.close()
        self.futures = self.syncs = self.group = self.node = None

    def start(self):
        buffer = bytearray(self.random.randrange(1, 5000))
        self.futures.append(self.group.all_reduce_nb(buffer, tag=self.random.randrange(4)))

    def cancel(self):
        if self.futures:
            self.random.choice(self.futures).cancel()

    def wait(self):
        if self.futures:
            self.random.choice(self.futures).wait(self.random.random() * 0.01)

    def forget(self):
        del self.futures[:self.random.randrange(len(self.futures) + 1)]
        if self.random.random() < 0.05:
            gc.collect()

    def share(self):
        if self.futures:
            self.shared.append(self.futures[-1])

    def look(self):
        if self.shared:
            future = self.random.choice(self.shared)
            future.wait(0.002)
            future.done()
            self.futures[-1:] and self.futures[-1].fileno()

    def compress(self):
        compressor = hearth.Compressor(self.group, "int8", min_count=1, vectors=True)
        self.futures.append(compressor.all_reduce_nb("x", array("f", [1] * 100), tag=9))
        if self.random.random() < 0.3:
            compressor.close()

    def wait_any(self):
        try:
            hearth.wait_any(self.futures + self.shared or [self.group.barrier_nb(tag=7)], 0.003)
        except TimeoutError:
            pass

    def barrier(self):
        self.group.barrier(tag=8, timeout=0.005)

    def sync(self):
        sync = hearth.Sync(self.group, "int8")
        sync.add("x", array("f", [1] * 5000), shape=(50, 100))
        sync.ready(0)
        self.syncs.append(sync)
        sync.compressor.rule("y", "int8")

    def end_sync(self):
        if self.syncs:
            sync = self.syncs.pop()
            if self.random.random() < 0.5:
                sync.close()
            elif self.random.random() < 0.5:
                sync.wait(timeout=0.002)


class Torment(Watched):
    def test_everything_ends(self):
        for number in range(ROUNDS):
            nodes, shared = hearth.open_local(3, op_timeout=2.0), []
            members = [Member(nodes[i % 3], 100 * number + i, shared) for i in range(6)]
            for member in members:
                member.thread.start()
            time.sleep(number % 5 * 0.01)
            if number % 3 == 0:
                nodes[number % 2].close()
            for member in members:
                member.thread.join(SECONDS)
                self.assertFalse(member.thread.is_alive())
                self.assertIsNone(member.surprise, f"round {number}")
            if number % 2:
                for node in nodes:
                    node.close()
            del nodes, shared, members, member
        node = None  # noqa: F841  (the loop's)
        gc.collect()
        self.assertEqual(_handles.NODES, set())
