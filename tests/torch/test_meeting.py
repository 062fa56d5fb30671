# SPDX-License-Identifier: Apache-2.0
"""Members that share a torch store meet as a Hearth node, and hear who did not come; what a stranger writes to the store
changes no setting; which parameters go plain."""

import json
import threading
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import hearth
from hearth.torch import _layout, _meeting, _policy

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


class HostileStore:
    """A store whose stranger answers in the place of rank 0, or calls in the place of another rank."""

    def __init__(self, kind, value):
        self.inner, self.kind, self.value = dist.HashStore(), kind, value

    def get(self, key):
        return self.value if f"/{self.kind}/" in key else self.inner.get(key)

    def wait(self, keys, timeout):
        if not all(f"/{self.kind}/" in key for key in keys):
            self.inner.wait(keys, timeout)

    def set(self, key, value):
        self.inner.set(key, value)

    def delete_key(self, key):
        return self.inner.delete_key(key)


class Strangers(unittest.TestCase):
    """The store has no authentication: it may name a place and a job, in rank 0's own form, and nothing else."""

    GOOD = {"rendezvous": "10.0.0.7:23456", "job": "torch-0123456789abcdef"}
    CALL = {"host": "boot 1 0", "call": "0123456789abcdef" * 2}

    def opened(self, kind, value, rank):
        """What hearth.open is called with, and the error."""
        value = value if isinstance(value, bytes) else json.dumps(value).encode()
        with mock.patch.object(hearth, "open") as opened:
            try:
                _meeting.meet(HostileStore(kind, value), rank, 2, timeout=5.0)
            except hearth.ProtocolError as error:
                return opened.mock_calls, str(error)
        return [call.kwargs for call in opened.mock_calls], None

    def assert_refused(self, kind, value, rank, text):
        opened, error = self.opened(kind, value, rank)
        self.assertEqual(opened, [], value)
        self.assertIsNotNone(error, value)
        self.assertIn(text, error)
        self.assertLess(len(error), 400)

    def test_place_and_job_are_taken(self):
        for place in (self.GOOD["rendezvous"], "[fe80::1%eth0]:1", "node-1.lan:23456", "unix:@hearth-torch-" + "0a" * 16):
            opened, error = self.opened("answer", {**self.GOOD, "rendezvous": place}, 1)
            self.assertIsNone(error)
            self.assertEqual(len(opened), 1)
            opened[0].pop("spin_us", None)
            self.assertEqual(opened[0], {"rendezvous": place, "job": self.GOOD["job"], "rank": 1, "world_size": 2})

    def test_settings_are_refused_by_name(self):
        for key, value in (("plain", True), ("trust_network", True), ("secret", "0" * 64), ("key_file", "fresh"), ("rank", 0),
                           ("world_size", 1), ("secret_fd", 0), ("discover", True), ("", 1), ("x" * 10000, 1)):
            self.assert_refused("answer", {**self.GOOD, key: value}, 1, f"sets {key[:40]!r}")
        self.assert_refused("answer", {"missing": [1], "plain": True}, 1, "bad list")
        self.assert_refused("call", {**self.CALL, "plain": True}, 0, "the call of rank 1 sets 'plain'")

    def test_values_of_another_form_are_refused(self):
        for place in (7, None, True, ["a:1"], {"a": 1}, "", "x" * 100000, "a:1" * 100, "unix:/tmp/x", "unix:@other", "a:123456",
                      "a:1\n", "a b:1", "ä:1", "a:1\0", "[::1", "[::1]:1 plain", "-:x"):
            self.assert_refused("answer", {**self.GOOD, "rendezvous": place}, 1, "bytes" if place and len(str(place)) > 90000
                                else "rendezvous")
        for job in (7, "torch-", "home", "torch-0123456789abcdef0", "torch-0123456789abcdeF"):
            self.assert_refused("answer", {**self.GOOD, "job": job}, 1, "job")
        for missing in (1, [], ["1"], [0], [2], [-1], [True], [1, 1], {"1": 1}, None):
            self.assert_refused("answer", {"missing": missing}, 1, "missing ranks")
        for call in ("", "x" * 32, "../answer", 7, "0" * 33):
            self.assert_refused("call", {**self.CALL, "call": call}, 0, "call")

    def test_what_is_no_object_is_refused(self):
        for value in (b"", b"plain", b"1", b"null", b"[]", b"\xff\xfe", b"[" * 10000, b'{"job": "a", "job": "b"}', b"{" + b" " * 10 ** 6):
            self.assert_refused("answer", value, 1, "the answer of rank 0")
            self.assert_refused("call", value, 0, "the call of rank 1")
        self.assert_refused("answer", {"rendezvous": self.GOOD["rendezvous"]}, 1, "does not set job")

    def test_no_counter_leads_to_a_place(self):
        """A stranger who moves counters and has answers ready beforehand is not heard."""
        store = dist.HashStore()
        for number in range(4):
            store.add(f"hearth/{number}", 1)
            store.set(f"hearth/{number}/where", json.dumps({"rendezvous": "127.0.0.1:1", "job": "x", "plain": True}))
            store.set(f"hearth/answer/{number}", json.dumps(self.GOOD))

        def come(rank):
            with _meeting.meet(store, rank, 2, open_timeout=30.0) as node:
                return node.world.all_reduce(torch.full((3,), float(rank))).tolist()

        with mock.patch.object(hearth, "open", wraps=hearth.open) as opened:
            self.assertEqual(together(2, come), [[1.0] * 3] * 2)
        for call in opened.mock_calls:
            self.assertLessEqual(set(call.kwargs), {"rendezvous", "job", "rank", "world_size", "open_timeout", "spin_us"})

    def test_a_meeting_that_failed_leaves_nothing(self):
        store = dist.HashStore()
        results = together(2, lambda rank: rank == 0 or _meeting.meet(store, rank, 2, timeout=0.1))
        self.assertIsInstance(results[1], TimeoutError)

        def come(rank):
            with _meeting.meet(store, rank, 2, open_timeout=30.0) as node:
                return node.world.all_reduce(torch.full((3,), 1.0)).tolist()

        self.assertEqual(together(2, come), [[2.0] * 3] * 2)


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
