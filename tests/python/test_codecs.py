# SPDX-License-Identifier: Apache-2.0
"""Codecs written in Python: values there and back, all-reduces, and methods that fail."""

import ctypes
import math
import struct
import subprocess
import sys
import threading
from array import array

from members import SECONDS, Watched, needs_numpy, numpy, together

import hearth
from hearth import _library


class Rounded:
    """Multiples of a grain, a signed byte each, without the zeros at the end."""

    def __init__(self):
        self.keys, self.threads = set(), set()

    @staticmethod
    def grain(parameters):
        return float(parameters or 0.125)

    def check(self, parameters):
        if not 0 < self.grain(parameters) < math.inf:
            raise ValueError("a grain above 0")

    def bound(self, count, parameters):
        return count if count < 100000 else 0

    def encode(self, values, key, parameters):
        self.keys.add(key)
        self.threads.add(threading.get_ident())
        grain = self.grain(parameters)
        return bytes(max(min(round(value / grain), 127), -127) & 255 for value in values).rstrip(b"\0")

    def decode(self, payload, values, key, parameters):
        if b"\x80" in payload:
            raise ValueError("-128 is no number of this codec")
        grain = self.grain(parameters)
        for i, number in enumerate(struct.unpack(f"{len(payload)}b", payload)):
            values[i] = number * grain


class Broken(Rounded):
    """`fault` says what it does instead."""

    fault = None

    def encode(self, values, key, parameters):
        if isinstance(self.fault, type):
            raise self.fault("encode does not want to")
        if self.fault == "long":
            return b"\1" * (len(values) + 1)
        if self.fault == "text":
            return "text"
        if self.fault == "number":
            return 5
        if self.fault == "-128":
            return b"\x80"
        if self.fault == "write":
            values[0] = 1.0
        return super().encode(values, key, parameters)


class Vectorised:
    """The same by numpy, f32 as they are; payloads of another length, or of nothing but zeros, are refused."""

    kept = []

    def bound(self, count, parameters):
        return 4 * count

    def encode(self, values, key, parameters):
        array_ = numpy.frombuffer(values, "f4")
        if not array_.any():
            raise ValueError("nothing but zeros")
        self.kept.append(array_)
        return array_

    def decode(self, payload, values, key, parameters):
        target = numpy.frombuffer(values, "f4")
        self.kept.append(target)
        target[:] = numpy.frombuffer(payload, "f4")


ROUNDED, BROKEN = Rounded(), Broken()


def numbers(count, rank=0):
    return array("f", [math.sin(i * 0.37 + rank) for i in range(count)])


class Codecs(Watched):
    def setUp(self):
        super().setUp()
        hearth.register_codec("rounded", ROUNDED)
        hearth.register_codec("broken", BROKEN)
        BROKEN.fault, self.shown = None, []
        before, sys.excepthook = sys.excepthook, lambda kind, *_: self.shown.append(kind)
        self.addCleanup(setattr, sys, "excepthook", before)

    def test_there_and_back(self):
        for code in "fd":
            values, residual = array(code, numbers(1000)), array(code, [0] * 1000)
            data = hearth.compress("rounded:0.25", values, residual, key=77)
            self.assertLess(len(data), 1100)
            self.assertIn(77, ROUNDED.keys)
            back = hearth.decompress(data, array(code, [5] * 1000))
            for got, left, was in zip(back, residual, values):
                self.assertEqual(got % 0.25, 0)
                self.assertAlmostEqual(got + left, was, places=6)
        self.assertEqual(len(hearth.compress("rounded", array("f", [0] * 10))), 56 + 1 + len("rounded"))

    def test_texts(self):
        hearth.codec_check("rounded:0.5,feedback=off")
        for text in ("rounded:0", "rounded:x", "rounded:-1", "round", "rounded:1,2"):
            with self.assertRaises(hearth.Invalid):
                hearth.codec_check(text)
        with self.assertRaisesRegex(hearth.Unsupported, "does not take 100000"):
            hearth.compress("rounded", array("f", [0] * 100000))
        self.assertEqual(self.shown, [])

    def test_refused(self):
        for name in ("int8", "auto", "Upper", "", "a b", "ä"):
            with self.assertRaises(hearth.Invalid):
                hearth.register_codec(name, ROUNDED)
        with self.assertRaisesRegex(TypeError, "no method bound"):
            hearth.register_codec("object", object())
        with self.assertRaises(TypeError):
            hearth.register_codec(3, ROUNDED)

    def test_all_reduce(self):
        def work(group):
            residual, total = array("f", [0] * 1000), array("d", [0] * 1000)
            for _ in range(4):
                values = numbers(1000, group.rank)
                group.all_reduce_compressed(values, "rounded:0.5", residual)
                self.assertTrue(group.same(values))
                total = array("d", [a + b for a, b in zip(total, values)])
            return total, residual
        for size in (2, 3):
            results = together(work, size)
            for i in range(1000):
                wanted = 4 * sum(math.sin(i * 0.37 + rank) for rank in range(size))
                got = results[0][0][i] + sum(residual[i] for _, residual in results)
                self.assertAlmostEqual(got, wanted, places=4)

    def test_compressor_sync_and_config(self):
        def work(group):
            weight = memoryview(bytearray(4 * 64 * 64)).cast("f", (64, 64))
            with hearth.Compressor(group) as compressor:
                compressor.rule("ruled", "rounded:0.5")
                for name in ("ruled", "weight"):
                    compressor.all_reduce(name, weight)
                explained = compressor.explain("ruled"), compressor.explain("weight")
            with hearth.Sync(group) as sync:
                index = sync.add("weight", weight)
                sync.ready(index)
                sync.wait()
                self.assertEqual(sync.compressor.stats().steps, 1)
            return explained
        for ruled, weight in together(work, 2, codec="rounded:0.25"):
            self.assertIn("rounded:0.5 by allgather", ruled)
            self.assertIn("rounded:0.25 by allgather", weight)

    def test_methods_that_fail(self):
        values, residual = numbers(100), array("f", [0.5] * 100)
        for fault, error, words, shown in (
                (ValueError, hearth.Invalid, "encode of 100 elements failed", None),
                (MemoryError, hearth.NoMemory, "encode of 100 elements failed", None),
                (KeyError, hearth.Invalid, "encode of 100 elements failed", KeyError),
                (KeyboardInterrupt, hearth.Invalid, "encode of 100 elements failed", KeyboardInterrupt),
                ("long", hearth.Invalid, "more than its bound of 100 bytes .it says 101", None),
                ("text", hearth.Invalid, "encode of 100 elements failed", TypeError),
                ("number", hearth.Invalid, "encode of 100 elements failed", TypeError),
                ("write", hearth.Invalid, "encode of 100 elements failed", TypeError),
                ("-128", hearth.Invalid, "what it encoded itself", None)):
            with self.subTest(fault):
                BROKEN.fault = fault
                self.shown.clear()
                with self.assertRaisesRegex(error, words):
                    hearth.compress("broken", values, residual)
                self.assertEqual(list(residual), [0.5] * 100)
                self.assertEqual(self.shown, [shown] if shown else [])

    def test_a_fault_in_an_all_reduce_changes_nothing(self):
        def work(group):
            values, residual = numbers(1000, group.rank), array("f", [0.5] * 1000)
            with self.assertRaises(hearth.Error) as caught:  # all fail here: who tells the others is left open
                group.all_reduce_compressed(values, "broken", residual)
            self.assertEqual((values, list(residual)), (numbers(1000, group.rank), [0.5] * 1000))
            group.barrier()
            return caught.exception.code
        BROKEN.fault = ValueError
        self.assertIn("HEARTH_INVALID", together(work, 3))

    def test_a_member_that_lacks_it(self):
        def work(group):
            values = numbers(1000, group.rank)
            with self.assertRaisesRegex(hearth.Error, "absent") as caught:
                group.all_reduce_compressed(values, "absent" if group.rank == 1 else "rounded")
            group.all_reduce_compressed(values, "rounded")
            return caught.exception.code
        self.assertEqual(together(work, 3), ["HEARTH_ABORTED", "HEARTH_INVALID", "HEARTH_ABORTED"])

    @needs_numpy
    def test_numpy(self):
        hearth.register_codec("vectorised", Vectorised())
        values = numpy.arange(1, 1001, dtype="f4")
        data = hearth.compress("vectorised", values)
        self.assertTrue((hearth.decompress(data, numpy.zeros(1000, "f4")) == values).all())
        with self.assertRaises(hearth.Invalid):
            hearth.compress("vectorised", numpy.zeros(10, "f4"))
        self.assertEqual(self.shown, [])
        for kept in Vectorised.kept:  # a view that outlives its call does no harm
            self.assertTrue((kept == values).all())
        self.assertGreaterEqual(len(Vectorised.kept), 3)
        Vectorised.kept.clear()

    def test_malformed_bytes(self):
        data = bytearray(hearth.compress("rounded", numbers(100)))
        target = array("f", [5] * 100)
        with self.assertRaises(hearth.ProtocolError):
            hearth.decompress(data[:-1], target)
        self.assertEqual(list(target), [5] * 100)

    def test_another_object_under_the_name(self):
        hearth.register_codec("exchanged", Rounded())
        first = hearth.compress("exchanged", array("f", [1]))
        other = Broken()
        hearth.register_codec("exchanged", other)
        other.fault = "long"
        with self.assertRaises(hearth.Invalid):
            hearth.compress("exchanged", array("f", [1]))
        self.assertEqual(list(hearth.decompress(first, array("f", [0]))), [1])

    def test_the_same_again(self):
        for _ in range(300):  # more than there may be registrations
            hearth.register_codec("rounded", ROUNDED)

    def test_the_structs(self):
        self.assertEqual(ctypes.sizeof(_library.CodecFunctions), 48)
        self.assertEqual(ctypes.sizeof(_library.CodecCall), 32)

    def test_the_end_of_the_program(self):
        """Python ends while an operation waits in a codec of Python's."""
        program = """
import sys, threading, time
from array import array
import hearth
class Slow:
    def bound(self, count, parameters): return count
    def encode(self, values, key, parameters):
        started.set()
        time.sleep(0.2)
        return b""
    def decode(self, payload, values, key, parameters): pass
started = threading.Event()
hearth.register_codec("slow", Slow())
nodes = hearth.open_local(2)
futures = [node.world.all_reduce_compressed_nb(array("f", [1] * 100), "slow") for node in nodes]
started.wait()
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=SECONDS, env={"PYTHONPATH": ":".join(sys.path)})
