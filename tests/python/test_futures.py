# SPDX-License-Identifier: Apache-2.0
"""Futures: waiting, asyncio, cancelling, being dropped, and nodes that are closed meanwhile."""

import asyncio
import builtins
import gc
import pickle
import select
import threading
import time
import weakref
from array import array

from members import SECONDS, Watched, together

import hearth


class Pair(Watched):
    """Two nodes in one thread: calls of one stay pending until the other's come."""

    def setUp(self):
        super().setUp()
        self.nodes = hearth.open_local(2, op_timeout=20.0)
        self.a, self.b = (node.world for node in self.nodes)

    def tearDown(self):
        for node in self.nodes:
            node.close()
        super().tearDown()

    def both(self, value=1, **options):
        return [group.all_reduce_nb(array("i", [value]), **options) for group in (self.a, self.b)]


class Waiting(Pair):
    def test_pending_and_done(self):
        one = self.a.all_reduce_nb(array("i", [1]))
        self.assertFalse(one.done())
        self.assertFalse(one.wait(0))
        self.assertFalse(one.wait(0.01))
        self.assertIn("pending", repr(one))
        two = self.b.all_reduce_nb(array("i", [2]))
        self.assertTrue(one.wait(20))
        self.assertTrue(one.done())
        self.assertEqual([list(one.result()), list(two.result())], [[3], [3]])
        self.assertEqual(list(one.result(0)), [3])
        self.assertIsNone(one.exception())
        self.assertIn("HEARTH_OK", repr(one))
        self.assertTrue(one.wait())

    def test_a_wait_that_runs_out_does_not_cancel(self):
        one = self.a.all_reduce_nb(array("i", [1]))
        for ask in (one.result, one.exception):
            with self.assertRaisesRegex(builtins.TimeoutError, "it goes on") as caught:
                ask(0.01)
            self.assertNotIsInstance(caught.exception, hearth.Error)
        self.b.all_reduce_nb(array("i", [1])).result(20)
        self.assertEqual(list(one.result(20)), [2])

    def test_cancel(self):
        one, two = self.both()
        one.result(20), two.result(20)
        self.assertFalse(one.cancel())
        one = self.a.barrier_nb()
        self.assertTrue(one.cancel())
        self.assertFalse(one.cancel())
        with self.assertRaises(hearth.Cancelled) as caught:
            one.result()
        self.assertEqual((caught.exception.code, caught.exception.rank), ("HEARTH_CANCELLED", 0))
        two = self.b.barrier_nb()
        self.assertIsInstance(two.exception(20), hearth.Aborted)
        self.assertEqual((two.exception().peer, two.exception().reason), (0, "cancelled"))
        again = pickle.loads(pickle.dumps(two.exception()))
        self.assertEqual((type(again), again.peer, again.reason), (hearth.Aborted, 0, "cancelled"))
        self.assertIsNot(two.exception(), None)
        self.assertEqual([list(future.result(20)) for future in self.both()], [[2], [2]])

    def test_wait_all(self):
        futures = [future for tag in range(5) for future in self.both(tag, tag=tag)]
        self.assertEqual([list(result) for result in hearth.wait_all(futures, 20)],
                         [[2 * tag] for tag in range(5) for _ in "ab"])
        self.assertEqual(hearth.wait_all([]), [])
        lonely = self.a.barrier_nb()
        with self.assertRaises(builtins.TimeoutError):
            hearth.wait_all([*self.both(tag=1), lonely], 0.05)
        lonely.cancel()
        with self.assertRaises(hearth.Cancelled):
            hearth.wait_all([*self.both(tag=2), lonely], 20)

    def test_wait_any(self):
        lonely = self.a.barrier_nb(tag=7)
        with self.assertRaises(builtins.TimeoutError):
            hearth.wait_any([lonely], 0.05)
        one, two = self.both()
        self.assertIn(hearth.wait_any([lonely, one, two], 20), (one, two))
        self.assertIs(hearth.wait_any([lonely, one], 20), one)
        self.assertTrue(lonely.cancel())
        self.assertIs(hearth.wait_any([lonely], 20), lonely)
        with self.assertRaises(ValueError):
            hearth.wait_any([])

    def test_descriptor(self):
        one = self.a.all_reduce_nb(array("i", [1]))
        descriptor = one.fileno()
        self.assertEqual(one.fileno(), descriptor)
        self.assertEqual(select.select([one], [], [], 0.01)[0], [])
        two = self.b.all_reduce_nb(array("i", [1]))
        self.assertEqual(select.select([one], [], [], 20)[0], [one])
        self.assertTrue(one.done())
        one.result()
        self.assertEqual(select.select([descriptor], [], [], 20)[0], [descriptor])  # lives as long as the future
        two.result(20)
        with self.assertRaisesRegex(hearth.Invalid, "descriptor is gone"):
            two.fileno()

    def test_several_threads_wait_for_one(self):
        one, results = self.a.all_reduce_nb(array("i", [1])), []
        threads = [threading.Thread(target=lambda: results.append(one.result(20)[0]), daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        self.b.all_reduce_nb(array("i", [1])).result(20)
        for thread in threads:
            thread.join(SECONDS)
        self.assertEqual(results, [2] * 8)

    def test_other_threads_run_while_one_waits(self):
        # The interpreter's lock is free: a thread counts while the main thread is in a wait.
        counted, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counted[0] += 1
            self.b.barrier_nb().result(20)

        future = self.a.barrier_nb()
        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        self.assertFalse(future.wait(0.2))
        seen = counted[0]
        self.assertFalse(future.wait(0.2))
        self.assertGreater(counted[0], seen)
        stop.set()
        self.assertTrue(future.wait(20))
        thread.join(SECONDS)


class Dropped(Pair):
    def test_goes_on_to_its_end(self):
        target = array("i", [1])
        self.a.all_reduce_nb(target)
        gc.collect()
        self.assertEqual(list(self.b.all_reduce_nb(array("i", [4])).result(20)), [5])
        self.both(tag=1)[0].result(20)
        self.assertEqual(list(target), [5])

    def test_buffers_live_until_then(self):
        class Held(bytearray):
            pass
        buffer = Held(1 << 20)
        alive = weakref.ref(buffer)
        self.a.all_reduce_nb(buffer)
        del buffer
        gc.collect()
        self.assertIsNotNone(alive())
        self.b.all_reduce_nb(bytearray(1 << 20)).result(20)
        for _ in range(100):  # freed by a later call, once the operation is through
            hearth.wait_all(self.both(tag=1), 20)
            gc.collect()
            if alive() is None:
                break
        self.assertIsNone(alive())
        self.assertEqual(self.a._handle.orphans, [])

    def test_buffers_are_free_when_the_operation_is_done(self):
        buffer = bytearray(8)
        for ask in (lambda future: None, hearth.Future.fileno):
            future = self.a.all_reduce_nb(buffer)
            ask(future)
            with self.assertRaises(BufferError):
                buffer.append(0)
            self.b.all_reduce_nb(bytearray(buffer)).result(20)
            future.result(20)
            buffer.append(0)

    def test_thousands_leave_nothing_behind(self):
        for _ in range(3000):
            self.both()
        hearth.wait_all(self.both(), 20)
        hearth.wait_all(self.both(), 20)
        self.assertLess(len(self.a._handle.children), 10)

    def test_the_node_lives_as_long_as_a_future(self):
        nodes = hearth.open_local(2)
        one = nodes[0].world.all_reduce_nb(array("i", [1]))
        two = nodes[1].world.all_reduce_nb(array("i", [2]))
        del nodes
        gc.collect()
        self.assertEqual([one.result(20)[0], two.result(20)[0]], [3, 3])


class Asyncio(Pair):
    def run_loop(self, coroutine):
        return asyncio.run(asyncio.wait_for(coroutine, 30))

    def test_await(self):
        async def work():
            one, two = self.both(3)
            return [list(await one), list(await two), list(await one)]
        self.assertEqual(self.run_loop(work()), [[6], [6], [6]])

    def test_the_loop_runs_meanwhile(self):
        async def work():
            one, ticks = self.a.all_reduce_nb(array("i", [1])), 0
            task = asyncio.ensure_future(_wait(one))
            for _ in range(5):
                await asyncio.sleep(0.005)
                ticks += 1
            self.assertFalse(task.done())
            self.b.all_reduce_nb(array("i", [1]))
            await task
            return ticks
        self.assertEqual(self.run_loop(work()), 5)

    def test_many_at_once(self):
        async def member(group, count):
            results = await asyncio.gather(*[_wait(group.all_reduce_nb(array("i", [tag]), tag=tag))
                                             for tag in range(count)])
            return [result[0] for result in results]

        async def work():
            return await asyncio.gather(member(self.a, 100), member(self.b, 100))
        self.assertEqual(self.run_loop(work()), [[2 * tag for tag in range(100)]] * 2)

    def test_several_await_one(self):
        async def work():
            one = self.a.all_reduce_nb(array("i", [1]))
            tasks = [asyncio.ensure_future(_wait(one)) for _ in range(5)]
            await asyncio.sleep(0.01)
            self.b.all_reduce_nb(array("i", [1]))
            return [result[0] for result in await asyncio.gather(*tasks)]
        self.assertEqual(self.run_loop(work()), [2] * 5)

    def test_cancelling_the_task_cancels_the_operation(self):
        async def work():
            one = self.a.barrier_nb()
            task = asyncio.ensure_future(_wait(one))
            await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertIsInstance(one.exception(20), hearth.Cancelled)
            with self.assertRaises(hearth.Aborted):
                await self.b.barrier_nb()
            one, two = self.both()
            return (await one)[0]
        self.assertEqual(self.run_loop(work()), 2)

    def test_wait_for_cancels_and_shield_does_not(self):
        async def work():
            one = self.a.all_reduce_nb(array("i", [1]))
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(_wait(one)), 0.02)
            two = self.b.all_reduce_nb(array("i", [1]))
            self.assertEqual(((await one)[0], (await two)[0]), (2, 2))
            one = self.a.barrier_nb()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(_wait(one), 0.02)
            self.assertIsInstance(one.exception(20), hearth.Cancelled)
        self.run_loop(work())

    def test_errors_are_raised(self):
        async def work():
            one, two = self.a.all_reduce_nb(bytearray(1)), self.b.all_reduce_nb(bytearray(2))
            for future in (one, two):
                with self.assertRaises(hearth.Mismatch):
                    await future
        self.run_loop(work())

    def test_a_node_that_is_closed_wakes_those_who_wait(self):
        async def work():
            task = asyncio.ensure_future(_wait(self.a.barrier_nb()))
            await asyncio.sleep(0.01)
            self.nodes[0].close()
            with self.assertRaises(hearth.Closed):
                await task
        self.run_loop(work())


async def _wait(future):
    return await future


class Closing(Pair):
    def test_pending_futures_end_with_closed_here_and_lost_there(self):
        here, there = self.a.all_reduce_nb(bytearray(4)), self.b.all_reduce_nb(bytearray(4), tag=1)
        self.nodes[0].close()
        for ask in (here.result, here.result):
            with self.assertRaisesRegex(hearth.Closed, "the node was closed") as caught:
                ask()
        self.assertEqual((caught.exception.code, caught.exception.rank), ("HEARTH_CLOSED", 0))
        self.assertIsInstance(there.exception(20), hearth.PeerLost)
        self.assertFalse(here.cancel())
        self.assertTrue(here.done())
        with self.assertRaises(hearth.Closed):
            self.a.barrier()
        with self.assertRaises(hearth.Closed):
            self.a.barrier_nb()
        with self.assertRaises(hearth.Closed):
            self.nodes[0].metrics()
        with self.assertRaises(hearth.Closed):
            here.fileno()

    def test_what_had_ended_keeps_its_result(self):
        one, two = self.both(2)
        self.assertEqual(select.select([one], [], [], 20)[0], [one])  # it has ended, and nobody has asked yet
        self.nodes[0].close()
        self.assertEqual(list(one.result()), [4])
        two.exception(20)

    def test_waits_in_other_threads_end(self):
        for wait in (lambda: self.a.barrier_nb().result(), lambda: self.a.barrier(),
                     lambda: hearth.wait_any([self.a.barrier_nb()]).result(),
                     lambda: hearth.wait_all([self.a.barrier_nb()])):
            caught = []

            def work():
                try:
                    wait()
                except BaseException as error:
                    caught.append(error)
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            time.sleep(0.02)
            self.nodes[0].close()
            thread.join(SECONDS)
            self.assertFalse(thread.is_alive())
            self.assertIsInstance(caught[0], hearth.Closed)
            self.nodes[1].close()
            self.nodes = hearth.open_local(2)
            self.a, self.b = (node.world for node in self.nodes)

    def test_a_group_that_is_closed_cancels_its_own(self):
        def work(group):
            part = group.split(0)
            pending = part.barrier_nb() if group.rank == 0 else None
            group.barrier()
            part.close()
            if pending is not None:
                self.assertIsInstance(pending.exception(20), (hearth.Closed, hearth.Cancelled))
            return group.all_reduce(array("i", [1]))[0]
        self.assertEqual(together(work, 2), [2, 2])

    def test_while_many_threads_are_at_it(self):
        # Whatever they are doing, nobody reaches a handle that is gone, and all of them end.
        for _ in range(5):
            nodes = hearth.open_local(2, op_timeout=20.0)
            ended, surprises = [], []

            def work(group, number):
                kept = []
                try:
                    while True:
                        kept.append(group.all_reduce_nb(bytearray(1000), tag=number))
                        kept[-1].wait(0.001)
                        kept[-1].done()
                        del kept[:-3]
                        group.node.metrics()
                except hearth.Error as error:
                    ended.append(error)
                except BaseException as error:
                    surprises.append(error)
            threads = [threading.Thread(target=work, args=(node.world, number), daemon=True)
                       for node in nodes for number in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            for node in nodes:
                node.close()
            for thread in threads:
                thread.join(SECONDS)
            self.assertEqual((len(ended), surprises), (8, []))
            for error in ended:
                self.assertIsInstance(error, (hearth.Closed, hearth.PeerLost, hearth.GroupBroken))
