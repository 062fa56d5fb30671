# SPDX-License-Identifier: Apache-2.0
"""Compression from Python: codecs, residuals, compressors, syncs."""

import math
import threading
import time
from array import array

from members import SECONDS, Watched, needs_numpy, numpy, together

import hearth


def numbers(count, rank=0, step=0):
    """Gradients of some kind, different on every member and in every step."""
    return array("f", [math.sin(i * 0.37 + rank + step * 0.11) for i in range(count)])


class Buffers(Watched):
    def test_there_and_back(self):
        values = numbers(1000)
        for codec, error in (("none", 0), ("fp16", 1e-3), ("bf16", 1e-2), ("int8", 2e-2)):
            back = hearth.decompress(hearth.compress(codec, values), array("f", [0] * 1000))
            self.assertLessEqual(max(abs(a - b) for a, b in zip(values, back)), error, codec)
        self.assertLess(len(hearth.compress("topk:0.01", values)), 200)

    def test_residual_keeps_what_is_missing(self):
        values, residual = numbers(1000), array("f", [0] * 1000)
        data = hearth.compress("topk:0.1", values, residual)
        back = hearth.decompress(data, array("f", [0] * 1000))
        for got, left, was in zip(back, residual, values):
            self.assertAlmostEqual(got + left, was, places=6)
        self.assertGreater(sum(map(abs, residual)), 0)

    def test_keys(self):
        values = numbers(1000)
        first, again, other = (hearth.compress("randomk:0.1", values, key=key) for key in (5, 5, 6))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_refused(self):
        values = numbers(100)
        with self.assertRaisesRegex(hearth.Invalid, "topk:RATIO"):
            hearth.codec_check("zip")
        with self.assertRaises(hearth.Invalid):
            hearth.compress("zip", values)
        with self.assertRaises(TypeError):
            hearth.codec_check(3)
        with self.assertRaisesRegex(hearth.Invalid, "residual has 99 elements"):
            hearth.compress("int8", values, array("f", [0] * 99))
        with self.assertRaisesRegex(hearth.Invalid, "residual is f64"):
            hearth.compress("int8", values, array("d", [0] * 100))
        with self.assertRaises(hearth.Invalid):
            hearth.compress("int8", values, key=-1)
        with self.assertRaises(hearth.Error):
            hearth.compress("auto:int8", values)
        with self.assertRaises(hearth.Error):
            hearth.compress("int8", bytearray(8))
        with self.assertRaises(hearth.Poisoned):
            hearth.compress("int8", array("f", [math.nan]))
        data, target = hearth.compress("int8", values), array("f", [5] * 99)
        with self.assertRaises(hearth.Invalid):
            hearth.decompress(data, target)
        with self.assertRaises(hearth.ProtocolError):
            hearth.decompress(b"\xff" + data[1:], array("f", [0] * 100))
        with self.assertRaises(hearth.Error):
            hearth.decompress(data[:-1], array("f", [0] * 100))
        self.assertEqual(list(target), [5] * 99)


class Compressed(Watched):
    def test_all_reduce_compressed(self):
        def work(group):
            values, residual = numbers(5000, group.rank), array("f", [0] * 5000)
            self.assertIs(group.all_reduce_compressed(values, "int8", residual, op="avg"), values)
            group.all_reduce_compressed_nb(numbers(5000, group.rank, 1), "topk:0.01", residual).result(20)
            self.assertTrue(group.same(values))
            return values.tolist()
        for result in together(work, 3):
            for i in range(0, 5000, 500):
                wanted = sum(numbers(i + 1, rank)[i] for rank in range(3)) / 3
                self.assertAlmostEqual(result[i], wanted, delta=0.05)

    def test_the_nodes_codec_is_the_default(self):
        def work(group):
            values = numbers(5000, group.rank)
            group.all_reduce_compressed(values)
            return sum(1 for value in values if value != 0)
        self.assertLessEqual(max(together(work, 2, codec="topk:0.01")), 100)

    def test_refused(self):
        def work(group):
            values = numbers(100)
            for words, buffer, codec, residual in (
                    ("residual has 99", values, "int8", array("f", [0] * 99)),
                    ("residual is f64; for f32", values, "int8", array("d", [0] * 100)),
                    ("residual is f32; for f64", array("d", [0]), "int8", array("f", [0])),
                    ("zip", values, "zip", None), ("dtype is u8", bytearray(4), "int8", None)):
                with self.assertRaisesRegex(hearth.ArgumentError, words):
                    group.all_reduce_compressed(buffer, codec, residual)
            with self.assertRaisesRegex(hearth.Unsupported, "op is max"):
                group.all_reduce_compressed(values, "int8", op="max")
            with self.assertRaises(TypeError):
                group.all_reduce_compressed(values, 8)
            poison = numbers(100)
            if group.rank == 1:
                poison[7] = math.inf
            with self.assertRaises(hearth.Poisoned) as caught:
                group.all_reduce_compressed(poison, "int8")
            return caught.exception.peer
        self.assertEqual(together(work, 2), [1, 1])


class Compressors(Watched):
    def test_steps_and_stats(self):
        def work(group):
            compressor = hearth.Compressor(group, "topk:0.01", exclude="*.bias")
            for step in range(3):
                weight = memoryview(numbers(10000, group.rank, step)).cast("B").cast("f", (100, 100))
                self.assertIs(compressor.all_reduce("layer.weight", weight), weight)
                compressor.all_reduce("layer.bias", numbers(5000, group.rank, step), shape=(50, 100))
                compressor.all_reduce("small", numbers(10, group.rank, step), op="sum")
            self.assertTrue(group.same(weight))
            stats, weights, bias = compressor.stats(), compressor.stats("layer.weight"), compressor.stats("layer.bias")
            self.assertEqual((stats.tensors, stats.steps, weights.steps), (3, 9, 3))
            self.assertGreater(weights.ratio, 10)
            self.assertEqual(bias.ratio, 1)
            self.assertGreater(weights.residual_norm, 0)
            self.assertGreater(weights.captured, 0)
            self.assertEqual(stats.sent_bytes, sum(compressor.stats(name).sent_bytes
                                                   for name in ("layer.weight", "layer.bias", "small")))
            told = compressor.explain("layer.weight"), compressor.explain("layer.bias")
            self.assertIn("topk:0.01", told[0])
            self.assertIn("none", told[1])
            compressor.reset("layer.weight")
            with self.assertRaisesRegex(hearth.Invalid, "layer.weight"):
                compressor.stats("layer.weight")
            compressor.close()
            compressor.close()
            with self.assertRaisesRegex(hearth.Closed, "the compressor is closed"):
                compressor.stats()
        together(work, 2)

    def test_many_at_once(self):
        def work(group):
            with hearth.Compressor(group, "int8", min_count=1, vectors=True) as compressor:
                for step in range(3):
                    buffers = [numbers(1000 + i, group.rank, step) for i in range(20)]
                    futures = [compressor.all_reduce_nb(f"t{i}", buffer, tag=i) for i, buffer in enumerate(buffers)]
                    for future, buffer in zip(futures, hearth.wait_all(futures, 30)):
                        self.assertTrue(future.done())
                    for buffer in buffers:
                        self.assertTrue(group.same(buffer))
                return compressor.stats().steps
        self.assertEqual(together(work, 2), [60, 60])

    def test_save_and_load_go_on_bit_for_bit(self):
        def work(group):
            def steps(compressor, some):
                results = []
                for step in some:
                    results.append(bytes(compressor.all_reduce("x", numbers(8192, group.rank, step), shape=(64, 128))))
                return results
            for codec in ("topk:0.01", "powersgd:2", "randomk:0.05", "onebit"):
                with hearth.Compressor(group, codec) as whole:
                    wanted = steps(whole, range(4))
                with hearth.Compressor(group, codec) as first:
                    results = steps(first, range(2))
                    saved = first.save()
                with hearth.Compressor(group, codec) as second:
                    second.load(saved)
                    results += steps(second, range(2, 4))
                    with self.assertRaises(hearth.Invalid):
                        second.load(saved[:-1])
                    with self.assertRaises(hearth.Invalid):
                        second.load(b"")
                self.assertEqual(results, wanted, codec)
        together(work, 2)

    def test_rules(self):
        def work(group):
            with hearth.Compressor(group, "int8", min_count=1, vectors=True, include=["a*", "b*"]) as compressor:
                compressor.rule("b*", "fp16")
                for name in ("a", "b", "c"):
                    compressor.all_reduce(name, numbers(4096, group.rank))
                with self.assertRaisesRegex(hearth.Invalid, "zip"):
                    compressor.rule("a", "zip")
                return [compressor.explain(name).split(": ")[1].split(" ")[0] for name in ("a", "b", "c")]
        self.assertEqual(together(work, 2), [["int8", "fp16", "none"]] * 2)

    def test_warmup_and_scale(self):
        def work(group):
            with hearth.Compressor(group, "topk:0.01", vectors=True, warmup_steps=1) as compressor:
                compressor.all_reduce("x", numbers(8192, group.rank))
                self.assertEqual(compressor.stats("x").residual_norm, 0)
                compressor.all_reduce("x", numbers(8192, group.rank))
                before = compressor.stats("x").residual_norm
                compressor.scale(2.0)
                return compressor.stats("x").residual_norm / before
        for ratio in together(work, 2):
            self.assertAlmostEqual(ratio, 2.0, places=4)

    def test_refused(self):
        def work(group):
            with hearth.Compressor(group, "int8") as compressor:
                values = numbers(100)
                for words, call in (
                        ("it must have 99", lambda: compressor.all_reduce("x", values, shape=(9, 11))),
                        (r"shape is \(-10, -10\)", lambda: compressor.all_reduce("x", values, shape=(-10, -10))),
                        ("name has 1 to", lambda: compressor.all_reduce("", values)),
                        ("zero byte", lambda: compressor.all_reduce("a\0b", values)),
                        ("zero byte", lambda: compressor.rule("a", "int8\0")),
                        ("op is 'most'", lambda: compressor.all_reduce("x", values, "most")),
                        ("is u8", lambda: compressor.all_reduce("x", bytearray(4))),
                        ("dimensions", lambda: compressor.all_reduce("x", values, shape=(1,) * 8 + (100,))),
                        ("not C-contiguous", lambda: compressor.all_reduce("x", memoryview(values)[::2])),
                        ("unknown", lambda: compressor.reset("unknown")),
                        ("unknown", lambda: compressor.stats("unknown"))):
                    with self.assertRaisesRegex(hearth.ArgumentError, words):
                        call()
                with self.assertRaises(TypeError):
                    compressor.all_reduce(3, values)
                with self.assertRaisesRegex(TypeError, "did you mean timeout"):
                    compressor.all_reduce("x", values, timeuot=3)
                compressor.all_reduce("x", values)
                with self.assertRaisesRegex(hearth.Invalid, "since its first call"):
                    compressor.all_reduce("x", numbers(99))
            for keywords in (dict(codec="zip"), dict(min_count=-1), dict(warmup_steps=-1)):
                with self.assertRaises(hearth.Invalid):
                    hearth.Compressor(group, **keywords)
        together(work, 1)

    def test_closing_with_operations_in_flight(self):
        def work(group):
            if group.rank == 1:
                group.barrier(tag=5)
                return None
            compressor = hearth.Compressor(group, "int8", min_count=1, vectors=True)
            future = compressor.all_reduce_nb("x", numbers(10000))
            time.sleep(0.01)
            compressor.close()
            error = future.exception(20)
            group.barrier(tag=5)
            return type(error)
        self.assertIn(together(work, 2)[0], (hearth.Closed, hearth.Cancelled))

    def test_a_node_that_is_closed_takes_them_with_it(self):
        nodes = hearth.open_local(2)
        compressor = hearth.Compressor(nodes[0].world, "int8", min_count=1, vectors=True)
        sync = hearth.Sync(compressor)
        own = hearth.Sync(nodes[0].world)
        inner = own.compressor
        future = compressor.all_reduce_nb("x", numbers(10000))
        nodes[0].close()
        self.assertIsInstance(future.exception(), hearth.Closed)
        for call in (compressor.stats, sync.wait, own.wait, inner.save, own.compressor.stats, lambda: sync.ready(0)):
            with self.assertRaises(hearth.Closed):
                call()
        for thing in (own, sync, inner, compressor, nodes[1]):
            thing.close()

    @needs_numpy
    def test_shape_of_numpy(self):
        def work(group):
            with hearth.Compressor(group, "powersgd:1", min_count=1) as compressor:
                rows = numpy.outer(numpy.arange(1, 33), numpy.arange(1, 65)).astype("f4") * (group.rank + 1)
                compressor.all_reduce("x", rows, op="sum")
                return "[32, 64]" in compressor.explain("x") and float(rows[1, 1])
        for value in together(work, 2):
            self.assertAlmostEqual(value, 12.0, delta=0.1)


class Syncs(Watched):
    def test_steps(self):
        def work(group):
            with hearth.Sync(group, "int8") as sync:
                gradients = [numbers(n, group.rank) for n in (10, 5000, 20000)]
                order = [sync.add(f"t{i}", gradient, shape=(len(gradient) // 10, 10))
                         for i, gradient in enumerate(gradients)]
                self.assertEqual(order, [0, 1, 2])
                for step in range(3):
                    for index in reversed(order):
                        gradients[index][:] = numbers(len(gradients[index]), group.rank, step)
                        sync.ready(index)
                    sync.wait()
                    for gradient in gradients:
                        self.assertTrue(group.same(gradient))
                self.assertEqual(sync.compressor.stats().steps, 6)  # the small one travels beside it
                self.assertIs(sync.compressor, sync.compressor)
                return gradients[0][0]
        wanted = (numbers(1, 0, 2)[0] + numbers(1, 1, 2)[0]) / 2
        for value in together(work, 2):
            self.assertAlmostEqual(value, wanted, places=5)

    def test_on_a_compressor_with_data_set_later(self):
        def work(group):
            with hearth.Compressor(group, "topk:0.1", vectors=True) as compressor:
                with hearth.Sync(compressor, op="sum") as sync:
                    self.assertIs(sync.compressor, compressor)
                    index = sync.add("x", shape=(5000,), dtype="f32")
                    with self.assertRaisesRegex(hearth.Invalid, "has no buffer"):
                        sync.ready(index)
                    for step in range(2):
                        gradient = numbers(5000, group.rank, step)
                        sync.set_data(index, gradient)
                        sync.ready(index)
                        sync.wait(timeout=10)
                        self.assertTrue(group.same(gradient))
                return compressor.stats().steps
        self.assertEqual(together(work, 2), [2, 2])

    def test_weights(self):
        def work(group):
            with hearth.Sync(group) as sync:
                gradient = array("f", [group.rank])
                sync.add("x", gradient)
                sync.set_weight(3.0 if group.rank else 1.0)
                sync.ready(0)
                sync.wait()
                return gradient[0]
        self.assertEqual(together(work, 2), [0.75, 0.75])

    def test_refused(self):
        def work(group):
            with hearth.Sync(group) as sync:
                sync.add("x", numbers(4))
                for words, call in (
                        ("registered already", lambda: sync.add("x", numbers(4))),
                        ("shape and dtype", lambda: sync.add("y")),
                        ("shape and dtype", lambda: sync.add("y", shape=(3,))),
                        ("there are f32", lambda: sync.add("y", shape=(3,), dtype="f99")),
                        ("buffer is f32", lambda: sync.add("y", numbers(4), dtype="f64")),
                        ("must have 6", lambda: sync.add("y", numbers(4), shape=(2, 3))),
                        ("read-only", lambda: sync.add("y", bytes(4))),
                        ("must have 4", lambda: sync.set_data(0, numbers(5))),
                        ("buffer is f64", lambda: sync.set_data(0, array("d", [0] * 4))),
                        ("index is 1", lambda: sync.set_data(1, numbers(4))),
                        ("index is -1", lambda: sync.set_data(-1, numbers(4))),
                        ("tensor 1", lambda: sync.ready(1)), ("tensor -1", lambda: sync.ready(-1)),
                        ("weight", lambda: sync.set_weight(-1)), ("x", lambda: sync.wait())):
                    with self.assertRaisesRegex(hearth.ArgumentError, words):
                        call()
                sync.drop()
            with self.assertRaises(hearth.Closed):
                sync.ready(0)
            with self.assertRaises(hearth.Unsupported):
                hearth.Sync(group, op="max")
            with hearth.Compressor(group) as compressor, self.assertRaises(TypeError):
                hearth.Sync(compressor, "int8")
        together(work, 1)

    def test_a_step_that_fails_is_dropped_and_the_next_one_counts(self):
        def work(group):
            gradient = numbers(5000, group.rank)
            with hearth.Sync(group, "int8") as sync:
                sync.add("x", gradient, shape=(50, 100))
                if group.rank == 1:
                    gradient[3] = math.nan
                sync.ready(0)
                with self.assertRaises(hearth.Poisoned) as caught:
                    sync.wait()
                self.assertEqual(caught.exception.peer, 1)
                sync.drop()
                gradient[:] = numbers(5000, group.rank)
                sync.ready(0)
                sync.wait()
                return group.same(gradient)
        self.assertEqual(together(work, 2), [True, True])

    def test_ready_from_many_threads(self):
        def work(group):
            with hearth.Sync(group) as sync:
                gradients = [array("f", [group.rank] * 100) for _ in range(8)]
                for i, gradient in enumerate(gradients):
                    sync.add(f"t{i}", gradient)
                for _ in range(3):
                    threads = [threading.Thread(target=sync.ready, args=(i,)) for i in range(8)]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join(SECONDS)
                    sync.wait()
                return {gradient[5] for gradient in gradients}
        self.assertEqual(together(work, 2), [{0.5}, {0.5}])

    def test_waiting_in_the_main_thread(self):
        nodes = hearth.open_local(2, op_timeout=20.0)
        syncs = [hearth.Sync(node.world) for node in nodes]
        gradients = [array("f", [rank]) for rank in range(2)]
        for sync, gradient in zip(syncs, gradients):
            sync.add("x", gradient)
            sync.ready(0)
        other = threading.Thread(target=syncs[1].wait, daemon=True)
        other.start()
        syncs[0].wait()
        other.join(SECONDS)
        self.assertEqual([list(gradient) for gradient in gradients], [[0.5], [0.5]])
        syncs[0].ready(0)
        with self.assertRaises(hearth.Timeout):
            syncs[0].wait(timeout=0.05)
        for thing in syncs + nodes:
            thing.close()
