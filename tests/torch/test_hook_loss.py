# SPDX-License-Identifier: Apache-2.0
"""A rank dies in the middle of a backward pass: the others raise, and say which one."""

import signal
import unittest

import torchranks
from test_hook import SCENES


class Killed(unittest.TestCase):
    def killed(self, size):
        ranks = torchranks.run(SCENES, ["killed"], size, seconds=60)
        self.assertEqual(ranks[1].status, -signal.SIGKILL, ranks[1].log[-4000:])
        for number in {*range(size)} - {1}:
            rank = ranks[number]
            self.assertEqual(rank.status, 0, f"rank {number}:\n{rank.log[-4000:]}")
            text, again, kind, peer, seconds = rank.results["killed"]
            self.assertRegex(text, r"rank 1\b")
            self.assertRegex(again, r"rank 1\b")
            self.assertIn(kind, ("PeerLost", "GroupBroken"))  # lost in an operation, or before the next
            self.assertEqual(peer, 1)
            print(f"rank {number} of {size}: told after {seconds:.2f} s, ended "
                  f"{rank.ended - ranks[1].ended:.2f} s after it")

    def test_of_two(self):
        self.killed(2)

    def test_of_four(self):
        self.killed(4)
