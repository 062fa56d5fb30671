#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Members that share a torch store meet as a Hearth node, and hear who did not come; which parameters go plain."""

import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/python"))
try:
    import torch
    import torch.distributed as dist

    import hearth
    from hearth.torch import _layout, _meeting, _policy
    SKIP = ""
except ImportError as error:
    SKIP = str(error)

SECONDS = 60  # against hanging


def together(size, function):
    """function(rank) on a thread each; results or exceptions, in order."""
    results = [None] * size

    def run(rank):
        try:
            results[rank] = function(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return results


@unittest.skipIf(SKIP, SKIP)
class Meeting(unittest.TestCase):
    def test_three_meet_again_and_again(self):
        store = dist.HashStore()

        def twice(rank):
            sums = []
            for turn in (1, 2):
                with _meeting.meet(store, rank, 3, open_timeout=30.0) as node:
                    sums.append((node.rank, node.size,
                                 node.world.all_reduce(torch.full((3,), float(turn * rank))).tolist()))
            return sums

        for rank, sums in enumerate(together(3, twice)):
            self.assertEqual(sums, [(rank, 3, [3.0] * 3), (rank, 3, [6.0] * 3)])

    def test_who_is_missing_is_named(self):
        store = dist.HashStore()
        results = together(4, lambda rank: rank == 2 or _meeting.meet(store, rank, 4, timeout=1.5))
        for rank in (0, 1, 3):
            self.assertIsInstance(results[rank], TimeoutError)
            self.assertIn("rank 2 did not come to the meeting within 1.5 s", str(results[rank]))

    def test_rank_0_is_missing(self):
        store = dist.HashStore()
        (_, error) = together(2, lambda rank: rank == 0 or _meeting.meet(store, rank, 2, timeout=0.2))
        self.assertIsInstance(error, TimeoutError)
        self.assertIn("rank 0 did not say where to meet", str(error))


@unittest.skipIf(SKIP, SKIP)
class Policy(unittest.TestCase):
    CASES = [
        (dict(codec="int8"), ["a.weight"]),
        (dict(codec="int8", min_count=10), ["a.weight", "b.small"]),
        (dict(codec="int8", vectors=True), ["a.weight", "a.bias"]),
        (dict(codec="int8", include="b*,*?bias", min_count=1, vectors=True), ["b.small", "a.bias"]),
        (dict(codec="int8", exclude="a.w?ight"), []),
        (dict(codec="none", rules={"*": "int8", "a.*": "none"}), ["b.small"]),
        (dict(codec="none", rules={"b.small": "fp16"}), ["b.small"]),
        (dict(codec="int8", include="[ab].*"), []),
    ]
    SHAPES = {"a.weight": (64, 128), "b.small": (4, 8), "a.bias": (8192,)}

    @staticmethod
    def by_library(group, options):
        """Names that the library's compressor compresses."""
        options = dict(options)
        rules = options.pop("rules", {})
        with hearth.Compressor(group, **options) as compressor:
            for rule in rules.items():
                compressor.rule(*rule)
            for name, shape in Policy.SHAPES.items():
                compressor.all_reduce(name, torch.ones(shape))
            texts = {name: compressor.explain(name) for name in Policy.SHAPES}
        return [name for name, text in texts.items() if "int8" in text or "fp16" in text], texts

    def test_as_the_library_decides(self):
        results = hearth.local(lambda group: [self.by_library(group, options) for options, _ in self.CASES], 2)
        for (options, expected), (found, texts) in zip(self.CASES, results[0]):
            policy = _policy.Policy(**{"min_count": 4096, "vectors": False, "include": None, "exclude": None, **options,
                                       "rules": tuple(options.get("rules", {}).items())})
            ours = [name for name, shape in self.SHAPES.items() if _policy.plain_reason(policy, name, shape) is None]
            self.assertEqual(ours, expected, options)
            self.assertEqual(found, expected, f"{options}: {texts}")


@unittest.skipIf(SKIP, SKIP)
class Layout(unittest.TestCase):
    def make(self, *counts, coded=()):
        parameters = [torch.zeros(count) for count in counts]
        return _layout.make(parameters, 4, lambda p: f"p{p.numel()}" if p.numel() in coded else None)

    def test_plain_is_one_stretch(self):
        layout = self.make(10, 20, 0, 30)
        self.assertEqual((layout.coded, layout.direct, layout.gathered), ([], [(0, 60)], []))

    def test_small_ones_are_gathered(self):
        layout = self.make(10, 5, 20, 300000, 6, 7, coded=(5, 6))
        self.assertEqual(layout.direct, [(15, 300020)])
        self.assertEqual(layout.gathered, [(0, 10), (300041, 7)])
        self.assertEqual([c.where for c in layout.coded], [(10, 5), (300035, 6)])
        self.assertEqual(layout.plain_count, 300037)

    def test_one_small_one_stays_where_it_is(self):
        layout = self.make(5, 20, coded=(5,))
        self.assertEqual((layout.direct, layout.gathered), ([(5, 20)], []))

    def test_gather_and_scatter(self):
        layout = self.make(3, 5, 2, 6, 1, coded=(5, 6))
        self.assertEqual(layout.gathered, [(0, 3), (8, 2), (16, 1)])
        buffer = torch.arange(17.0)
        layout.gather(buffer).neg_()
        layout.scatter(buffer)
        self.assertEqual(buffer.tolist(), [-0.0, -1, -2, 3, 4, 5, 6, 7, -8, -9, 10, 11, 12, 13, 14, 15, -16])


if __name__ == "__main__":
    unittest.main(verbosity=2)
