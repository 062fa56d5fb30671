# SPDX-License-Identifier: Apache-2.0
"""Every collective, blocking and not, on every kind of buffer, with results that a person can check."""

import ctypes
import re
from array import array

from members import Watched, needs_numpy, numpy, together, torch

import hearth
from hearth import _buffers


class OnlyDLPack:
    def __init__(self, values):
        self.array = values

    def __dlpack__(self, **_):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return 1, 0

    def tolist(self):
        return self.array.tolist()


def kinds():
    """Ways to make a buffer of int32 or so: name, function of a list of small numbers, function back to a list."""
    def raw(values):
        block = (ctypes.c_int32 * len(values))(*values)
        return hearth.Memory(ctypes.addressof(block), len(values), "i32", block)

    found = {
        "array": (lambda values: array("i", values), list),
        "bytearray": (bytearray, list),
        "memoryview": (lambda values: memoryview(bytearray(values)), list),
        "shaped": (lambda values: memoryview(array("d", values)), lambda view: [int(x) for x in view.tolist()]),
        "ctypes": (lambda values: (ctypes.c_int32 * len(values))(*values), list),
        "Memory": (raw, lambda memory: list(memory.keep)),
    }
    if numpy is not None:
        for name in ("f4", "f8", "f2", "i1", "i4", "i8", "u1", "u4", "u8"):
            found[f"numpy {name}"] = (lambda values, name=name: numpy.array(values, name),
                                      lambda values: [int(x) for x in values])
        found["dlpack"] = (lambda values: OnlyDLPack(numpy.array(values, "i4")), lambda values: values.tolist())
    if torch is not None:
        for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8):
            found[f"{kind}"] = (lambda values, kind=kind: torch.tensor(values, dtype=kind),
                                lambda values: [int(x) for x in values.tolist()])
    return found


def every(group, call, make, back):
    """All collectives of one member; call(name, *arguments) runs one. What each gave, as lists."""
    rank, size = group.rank, group.size
    zeros = lambda count: make([0] * count)  # noqa: E731
    own = lambda: make([rank + 1, 2])  # noqa: E731
    told = {}
    told["all_reduce"] = back(call("all_reduce", own()))
    told["all_reduce to"] = back(call("all_reduce", own(), zeros(2), "max"))
    told["min"] = back(call("all_reduce", own(), None, "min"))
    told["prod"] = back(call("all_reduce", own(), None, "prod"))
    told["avg"] = back(call("all_reduce", own(), None, "avg"))
    told["reduce"] = call("reduce", own(), zeros(2), "sum", 1)
    told["reduce in place"] = call("reduce", own())
    told["broadcast"] = back(call("broadcast", own(), 2))
    told["all_gather"] = back(call("all_gather", own(), zeros(2 * size)))
    told["all_gather in place"] = back(call("all_gather", None, make([[1, 0, 0], [0, 2, 0], [0, 0, 3]][rank])))
    counts = [1, 0, 3]
    told["all_gatherv"] = back(call("all_gatherv", make([rank] * counts[rank]), zeros(4), counts))
    parts = make([[7, 0, 0, 0], [0] * 4, [0, 8, 9, 6]][rank])
    told["all_gatherv in place"] = back(call("all_gatherv", None, parts, counts))
    told["reduce_scatter"] = back(call("reduce_scatter", make([1, 2, 3]), zeros(1)))
    told["reduce_scatterv"] = back(call("reduce_scatterv", make([1, 2, 3, 4]), zeros(counts[rank]), counts))
    told["gather"] = call("gather", make([rank]), zeros(size) if rank == 0 else None)
    told["gather in place"] = call("gather", *((None, make([9, 9, 2])) if rank == 2 else (make([rank]), None)), 2)
    told["gatherv"] = call("gatherv", make([rank] * counts[rank]), zeros(4) if rank == 1 else None,
                           counts if rank == 1 else None, 1)
    told["scatter"] = back(call("scatter", make([4, 5, 6]) if rank == 0 else None, zeros(1)))
    told["scatterv"] = back(call("scatterv", make([4, 5, 6, 7]) if rank == 2 else None, counts if rank == 2 else None,
                                 zeros(counts[rank]), 2))
    told["all_to_all"] = back(call("all_to_all", make([10 * rank + i for i in range(size)]), zeros(size)))
    told["all_to_all in place"] = back(call("all_to_all", make([10 * rank + i for i in range(size)])))
    told["all_to_allv"] = back(call("all_to_allv", make([rank] * 3), [rank == 0, rank == 1, 3 - (rank < 2)],
                                    zeros([1, 1, 7][rank]), [[1, 0, 0], [0, 1, 0], [2, 2, 3]][rank]))
    told["scan"] = back(call("scan", own()))
    told["exclusive_scan"] = back(call("exclusive_scan", own(), zeros(2)))
    told["barrier"] = call("barrier")
    return {name: back(value) if value is not None and not isinstance(value, list) else value
            for name, value in told.items()}


def expected(rank):
    """What three members must get."""
    only = lambda who, values: values if rank == who else None  # noqa: E731
    return {
        "all_reduce": [6, 6], "all_reduce to": [3, 2], "min": [1, 2], "prod": [6, 8], "avg": [2, 2],
        "reduce": only(1, [6, 6]), "reduce in place": only(0, [6, 6]), "broadcast": [3, 2],
        "all_gather": [1, 2, 2, 2, 3, 2], "all_gather in place": [1, 2, 3],
        "all_gatherv": [0, 2, 2, 2], "all_gatherv in place": [7, 8, 9, 6],
        "reduce_scatter": [[3], [6], [9]][rank], "reduce_scatterv": [[3], [], [6, 9, 12]][rank],
        "gather": only(0, [0, 1, 2]), "gather in place": only(2, [0, 1, 2]), "gatherv": only(1, [0, 2, 2, 2]),
        "scatter": [4 + rank], "scatterv": [[4], [], [5, 6, 7]][rank],
        "all_to_all": [rank, 10 + rank, 20 + rank], "all_to_all in place": [rank, 10 + rank, 20 + rank],
        "all_to_allv": [[0], [1], [0, 0, 1, 1, 2, 2, 2]][rank],
        "scan": [[1, 2], [3, 4], [6, 6]][rank], "exclusive_scan": [[0, 0], [1, 2], [3, 4]][rank], "barrier": None,
    }


class Everything(Watched):
    def check(self, run):
        for kind, (make, back) in kinds().items():
            with self.subTest(kind):
                told = together(lambda group: every(group, lambda *call: run(group, *call), make, back))
                for rank, results in enumerate(told):
                    self.assertEqual(results, expected(rank))

    def test_blocking(self):
        self.check(lambda group, name, *arguments: getattr(group, name)(*arguments))

    def test_non_blocking(self):
        self.check(lambda group, name, *arguments: getattr(group, f"{name}_nb")(*arguments).result(20))

    def test_with_options(self):
        options = dict(timeout=10, tag=5, rank_order=True)
        self.check(lambda group, name, *arguments: getattr(group, name)(*arguments, **options))

    def test_the_target_is_what_is_returned(self):
        def work(group):
            source, target = bytearray(2), bytearray(2)
            self.assertIs(group.all_reduce(source), source)
            self.assertIs(group.all_reduce(source, target), target)
            self.assertIs(group.all_reduce(source, source), source)
            self.assertIs(group.all_reduce_nb(source, target).result(), target)
            self.assertIs(group.broadcast(source), source)
        together(work, 2)

    def test_nothing_at_all(self):
        def work(group):
            self.assertEqual(group.all_reduce(bytearray()), bytearray())
            self.assertEqual(group.all_gather(b"", bytearray()), bytearray())
            self.assertTrue(group.same(b""))
        together(work, 2)

    def test_weights(self):
        def work(group):
            return group.all_reduce(array("d", [group.rank]), op="avg", weight=3.0 if group.rank else 1.0)[0]
        self.assertEqual(together(work, 2), [0.75, 0.75])

    def test_many_at_once_under_tags_in_any_order(self):
        def work(group):
            order = range(20) if group.rank % 2 else range(19, -1, -1)
            futures = {tag: group.all_reduce_nb(array("i", [tag]), tag=tag) for tag in order}
            return [futures[tag].result(20)[0] for tag in range(20)]
        self.assertEqual(together(work, 3), [[3 * tag for tag in range(20)]] * 3)

    def test_same(self):
        def work(group):
            return (group.same(b"abc"), group.who_differs(b"abc"), group.same(bytes([group.rank == 1])),
                    group.who_differs(array("i", [5, group.rank // 2])))
        self.assertEqual(together(work, 3), [(True, None, False, 2)] * 3)

    def test_split(self):
        def work(group):
            odd = group.split(group.rank % 2, key=-group.rank)
            told = odd.rank, odd.size, odd.all_reduce(array("i", [group.rank]))[0], odd.node is group.node
            self.assertIsNone(group.split(-1))
            self.assertIsNone(group.split(None))
            odd.close()
            with self.assertRaisesRegex(hearth.Closed, "the group is closed"):
                odd.barrier()
            group.barrier()
            with group.split(0, timeout=5) as all_of_them:
                all_of_them.barrier()
            return told
        self.assertEqual(together(work, 4), [(1, 2, 2, True), (1, 2, 4, True), (0, 2, 2, True), (0, 2, 4, True)])

    @needs_numpy
    def test_bits_of_integers(self):
        def work(group):
            mine = numpy.array([0b1100, 0b1010, -1], "i4") if group.rank else numpy.array([0b1010, 0b0110, 6], "i4")
            found = {op: group.all_reduce(mine.copy(), op=op).tolist() for op in ("band", "bor", "bxor")}
            self.assertEqual(found, {"band": [8, 2, 6], "bor": [14, 14, -1], "bxor": [6, 12, -7]})
            flags = numpy.array([group.rank == 0, True])
            self.assertEqual(group.all_reduce(flags.copy(), op="bxor").tolist(), [True, False])
            self.assertEqual(group.all_reduce(flags.copy(), op="band").tolist(), [False, True])
            with self.assertRaisesRegex(hearth.Invalid, "bor combines the bits of integers, and dtype is f32"):
                group.all_reduce(numpy.zeros(3, "f4"), op="bor")
        together(work, 2)

    @needs_numpy
    def test_truth_can_be_moved_and_compared_but_not_added(self):
        def work(group):
            values = numpy.array([group.rank == 0, group.rank == 1])
            self.assertEqual(group.all_reduce(values.copy(), op="max").tolist(), [True, True])
            self.assertEqual(group.all_reduce(values.copy(), op="min").tolist(), [False, False])
            self.assertEqual(group.broadcast(values, root=1).tolist(), [False, True])
            with self.assertRaisesRegex(hearth.Unsupported, "bools cannot be combined by sum"):
                group.all_reduce(values)
        together(work, 2)

    @needs_numpy
    def test_memory_of_the_node(self):
        def work(group):
            values = numpy.frombuffer(group.node.alloc(4096), "f4")
            values[:] = group.rank
            return float(group.all_reduce(values).sum())
        self.assertEqual(together(work, 2), [1024.0, 1024.0])


class Refused(Watched):
    """Nothing reaches C that would read or write beyond a buffer; the group goes on."""

    def refused(self, words, *calls):
        """Each is refused on every member, before anything is sent."""
        def work(group):
            for call in calls:
                with self.assertRaisesRegex(hearth.ArgumentError, words):
                    call(group)
            return group.all_reduce(array("i", [1]))[0]
        self.assertEqual(together(work, 3), [3] * 3)

    def test_targets_that_are_too_small_or_too_large(self):
        for count in (0, 5, 7):
            self.refused(rf"target has {count} elements; it must have 6",
                         lambda g: g.all_gather(bytearray(2), bytearray(count)),
                         lambda g: g.gather(bytearray(2), bytearray(count), root=g.rank),
                         lambda g: g.all_gatherv(bytearray(2), bytearray(count), [2, 2, 2]),
                         lambda g: g.gatherv(bytearray(2), bytearray(count), [2, 2, 2], root=g.rank),
                         lambda g: g.all_to_allv(bytearray(3), [1, 1, 1], bytearray(count), [2, 2, 2]))
        self.refused("target has 3 elements; it must have 2",
                     lambda g: g.all_reduce(bytearray(2), bytearray(3)),
                     lambda g: g.scan_nb(bytearray(2), bytearray(3)),
                     lambda g: g.exclusive_scan(bytearray(2), bytearray(3)),
                     lambda g: g.reduce(bytearray(2), bytearray(3), root=g.rank))

    def test_sources_that_are_too_small_or_too_large(self):
        for count in (5, 7):
            self.refused(rf"source has {count} elements; it must have 6",
                         lambda g: g.reduce_scatter(bytearray(count), bytearray(2)),
                         lambda g: g.reduce_scatterv(bytearray(count), bytearray(2), [2, 2, 2]),
                         lambda g: g.scatter(bytearray(count), bytearray(2), root=g.rank),
                         lambda g: g.scatterv(bytearray(count), [2, 2, 2], bytearray(2), root=g.rank),
                         lambda g: g.all_to_allv(bytearray(count), [2, 2, 2], bytearray(6), [2, 2, 2]))
        self.refused("no multiple of the 3 members",
                     lambda g: g.all_to_all(bytearray(4)),
                     lambda g: g.all_gather(None, bytearray(4)),
                     lambda g: g.gather(None, bytearray(4), root=g.rank))

    def test_parts_that_are_not_what_counts_say(self):
        self.refused(r"has 2 elements; it must have 1 \(counts\[",
                     lambda g: g.all_gatherv(bytearray(2), bytearray(3), [1, 1, 1]),
                     lambda g: g.gatherv(bytearray(2), bytearray(3), [1, 1, 1], root=g.rank),
                     lambda g: g.reduce_scatterv(bytearray(3), bytearray(2), [1, 1, 1]),
                     lambda g: g.scatterv(bytearray(3), [1, 1, 1], bytearray(2), root=g.rank))
        self.refused("counts has 2 numbers, but the group has 3",
                     lambda g: g.all_gatherv(bytearray(1), bytearray(2), [1, 1]),
                     lambda g: g.all_to_allv(bytearray(1), [1, 0], bytearray(2), [1, 1, 1]))
        self.refused("counts is .*-1", lambda g: g.all_gatherv(b"", bytearray(1), [2, -1, 0]))

    def test_types_that_differ(self):
        self.refused("source is i32, but target is u8",
                     lambda g: g.all_reduce(array("i", [1]), bytearray(1)),
                     lambda g: g.all_gather(array("i", [1]), bytearray(3)),
                     lambda g: g.gather(array("i", [1]), bytearray(3), root=g.rank),
                     lambda g: g.scatter(array("i", [1] * 3), bytearray(1), root=g.rank),
                     lambda g: g.all_to_all(array("i", [1] * 3), bytearray(3)))

    def test_read_only_and_strided(self):
        strided = memoryview(bytearray(6))[::2]
        self.refused("read-only",
                     lambda g: g.all_reduce(b"abc"), lambda g: g.all_reduce(b"abc", b"abc"),
                     lambda g: g.broadcast(b"abc", root=(g.rank + 1) % 3), lambda g: g.all_gather(b"a", b"abc"))
        self.refused("not C-contiguous",
                     lambda g: g.all_reduce(strided), lambda g: g.all_reduce(bytearray(3), strided),
                     lambda g: g.broadcast(strided), lambda g: g.all_gather(strided, bytearray(9)),
                     lambda g: g.same(strided))

    def test_a_root_may_broadcast_what_it_cannot_write(self):
        def work(group):
            return bytes(group.broadcast(b"abc" if group.rank == 0 else bytearray(3)))
        self.assertEqual(together(work, 2), [b"abc", b"abc"])

    def test_names_and_numbers(self):
        self.refused(r"op is 'add'; there are sum, avg", lambda g: g.all_reduce(bytearray(1), op="add"))
        self.refused(r"algo is 'fast'; there are auto, ring", lambda g: g.barrier(algo="fast"))
        self.refused(r"root is 3; the group has ranks 0 to 2", lambda g: g.broadcast(bytearray(1), root=3),
                     lambda g: g.reduce(bytearray(1), root=3), lambda g: g.gather(b"a", root=3))
        self.refused(r"root is -1", lambda g: g.scatter(None, bytearray(1), root=-1))
        self.refused(r"timeout is -1", lambda g: g.barrier(timeout=-1))
        self.refused(r"tag is -1", lambda g: g.barrier(tag=-1))
        self.refused(r"weight is -1", lambda g: g.all_reduce(bytearray(1), op="avg", weight=-1))
        self.refused(r"needs (a target|a source|counts)",
                     lambda g: g.gather(b"a", root=g.rank), lambda g: g.scatter(None, bytearray(1), g.rank),
                     lambda g: g.gatherv(b"a", bytearray(3), root=g.rank), lambda g: g.reduce_scatter(b"abc", None))
        self.refused("prefix", lambda g: g.scan(bytearray(1), op="avg"))
        self.refused("overlap", lambda g: overlapping(g))

    def test_values_of_the_wrong_type_are_named(self):
        """Python's own TypeErrors do not say which argument it was."""
        def work(group):
            for name, value in (("timeout", "5"), ("timeout", [5]), ("tag", "5"), ("tag", 1.5), ("weight", "much"),
                                ("weight", None)):
                with self.assertRaisesRegex(TypeError, f"^{name} is {re.escape(repr(value))}; it takes "):
                    group.barrier(**{name: value})
            with self.assertRaisesRegex(TypeError, "^broadcast: root is '0'; it takes a rank"):
                group.broadcast(bytearray(1), root="0")
            future = group.barrier_nb()
            for wait in (future.wait, future.result, lambda timeout: hearth.wait_all([future], timeout),
                         lambda timeout: hearth.wait_any([future], timeout)):
                with self.assertRaisesRegex(TypeError, "^timeout is '5'; it takes seconds"):
                    wait("5")
            future.wait(5)
        together(work, 1)
        with self.assertRaisesRegex(TypeError, "^timeout is '5'; it takes seconds"):
            hearth.launch(str, 1, timeout="5")

    def test_keywords_that_there_are_not(self):
        def work(group):
            with self.assertRaisesRegex(TypeError, "'timout'; did you mean timeout"):
                group.barrier(timout=3)
            with self.assertRaisesRegex(TypeError, "'color'; there are timeout, tag"):
                group.all_reduce_nb(bytearray(1), color=3)
        together(work, 1)


def overlapping(group):
    memory = memoryview(bytearray(6))
    group.all_reduce(memory[:4], memory[2:])


class Elsewhere:
    """A buffer on a device, as far as the binding can see: C works on a copy, which is fetched and brought back."""

    def __init__(self, values):
        self.values, self.host = list(values), array("i", [0] * len(values))

    def before(self):
        self.host[:] = array("i", self.values)

    def after(self):
        self.values = list(self.host)


class Staged(Watched):
    def setUp(self):
        super().setUp()
        _buffers._readers[Elsewhere] = self.read

    def tearDown(self):
        del _buffers._readers[Elsewhere]
        super().tearDown()

    @staticmethod
    def read(thing, writable, what):
        address, count = thing.host.buffer_info()
        return _buffers.View(address, count, _buffers.DTYPES["i32"], thing, stage=thing)

    def test_copies_before_and_after(self):
        def work(group):
            source, target = Elsewhere([group.rank, 1]), Elsewhere([7, 7])
            group.all_reduce(source, target)
            first = source.values, target.values
            future = group.all_reduce_nb(target)
            second = future.result(20).values
            return first, second, group.same(target), group.broadcast(Elsewhere([group.rank])).values
        self.assertEqual(together(work, 2), [(([rank, 1], [1, 2]), [2, 4], True, [0]) for rank in range(2)])

    def test_nothing_is_brought_back_after_an_error(self):
        def work(group):
            target = Elsewhere([5])
            with self.assertRaises(hearth.Mismatch):
                group.all_reduce(target, op="max" if group.rank else "sum")
            return target.values
        self.assertEqual(together(work, 2), [[5], [5]])


class Errors(Watched):
    """They say what, who and whom."""

    def test_mismatch_names_who_differs(self):
        def work(group):
            with self.assertRaises(hearth.Mismatch) as caught:
                group.all_reduce(bytearray(4 if group.rank == 1 else 3))
            return caught.exception
        for rank, error in enumerate(together(work, 3)):
            self.assertEqual((error.code, error.status, error.rank), ("HEARTH_MISMATCH", -204, rank))
            self.assertEqual(error.peer, 1)
            self.assertIn("rank 1", str(error))

    def test_timeout(self):
        def work(group):
            if group.rank == 0:
                with self.assertRaises(hearth.Timeout) as caught:
                    group.barrier(timeout=0.05)
                self.assertIsInstance(caught.exception, TimeoutError)
                self.assertEqual(caught.exception.code, "HEARTH_TIMEOUT")
                group.barrier(tag=1)
            else:
                group.barrier(tag=1)
        together(work, 2)

    def test_a_member_that_closes_is_lost(self):
        def work(group):
            if group.rank == 1:
                group.node.close()
                return None
            with self.assertRaises(hearth.PeerLost) as caught:
                group.all_reduce(bytearray(4))
            self.assertIsInstance(caught.exception, ConnectionError)
            with self.assertRaises(hearth.GroupError):
                group.barrier()
            return caught.exception.peer, caught.exception.reason
        self.assertEqual(together(work, 2), [(1, "peer_left"), None])

    def test_unsupported_algorithm(self):
        def work(group):
            with self.assertRaises(hearth.Unsupported) as caught:
                group.barrier(algo="ring")
            return caught.exception.rank
        self.assertEqual(together(work, 2), [0, 1])
