# SPDX-License-Identifier: Apache-2.0
"""Messages between members: every buffer, lengths, tags, parts, codecs, futures, errors, and nodes that close."""

import asyncio
import builtins
import gc
import os
import pickle
import signal
import threading
import time
import weakref
from array import array

from members import SECONDS, Script, Watched, needs_numpy, needs_torch, numpy, together, torch

import hearth

LARGE = 3 << 20  # waits for its receive


class Pair(Watched):
    """Two nodes in one thread."""

    def setUp(self):
        super().setUp()
        self.nodes = hearth.open_local(2, op_timeout=20.0)
        self.a, self.b = (node.world for node in self.nodes)

    def tearDown(self):
        for node in self.nodes:
            node.close()
        super().tearDown()

    def pass_on(self, thing, into):
        """Sends it from a to b, short or long."""
        future = self.a.send_nb(thing, 1)
        got = self.b.recv(into, 0)
        self.assertIsNone(future.result(20))
        return got


class Bytes(Pair):
    def test_every_length(self):
        for length in (0, 1, 4, 4096, 65537, LARGE):
            data, into = os.urandom(length), bytearray(LARGE)
            self.assertEqual(self.pass_on(data, into), (0, 0, length))
            self.assertEqual(into[:length], data)

    def test_blocking_calls_of_two_members(self):
        def work(group):
            other = 1 - group.rank
            into = bytearray(LARGE)
            if group.rank == 0:
                self.assertIsNone(group.send(b"x" * LARGE, other, 5))
                return group.recv(into, other, 5)
            self.assertEqual(group.recv(into, other, 5), (0, 5, LARGE))
            self.assertEqual(into, b"x" * LARGE)
            group.send(b"y", to=other, tag=5)
        self.assertEqual(together(work, 2)[0], hearth.Received(rank=1, tag=5, len=1))

    def test_buffers_of_the_standard_library(self):
        for thing, into in ((b"abc", bytearray(3)), (memoryview(b"abcd")[1:3], bytearray(2)),
                            (array("h", [1, -2]), array("h", [0, 0])), (array("d", [0.5]), array("d", [0]))):
            self.pass_on(thing, into)
            self.assertEqual(bytes(into), bytes(thing))

    @needs_numpy
    def test_numpy_arrays_of_every_type(self):
        for kind in ("f4", "f8", "f2", "i1", "i2", "u2", "i8", "c8", "c16", "?", ">i4", "S3"):
            given = numpy.zeros((2, 3), kind)
            given.view("u1")[...] = numpy.arange(given.view("u1").size).reshape(2, -1) % 2
            into = numpy.zeros_like(given)
            self.assertEqual(self.pass_on(given, into).len, given.nbytes)
            self.assertEqual(into.tobytes(), given.tobytes())
        for thing in (numpy.zeros((4, 4), "c8")[:, 1], numpy.zeros((4, 4), "f4").T):
            with self.assertRaisesRegex(hearth.Invalid, "send: data is not C-contiguous"):
                self.a.send(thing, 1)
        with self.assertRaisesRegex(hearth.Unsupported, "send: data"):
            self.a.send(numpy.array([object()]), 1)

    @needs_torch
    def test_tensors_of_every_type(self):
        for kind in (torch.float32, torch.bfloat16, torch.int16, torch.complex64, torch.bool, torch.uint8):
            for shape in ((), (2, 3), (0,)):
                given, into = torch.ones(shape).to(kind), torch.zeros(shape).to(kind)
                self.pass_on(given, into)
                self.assertTrue(torch.equal(given, into), kind)
        with self.assertRaisesRegex(hearth.Invalid, "not C-contiguous"):
            self.a.send(torch.zeros(3, 3, dtype=torch.int16).t(), 1)

    def test_what_cannot_be_sent_or_received(self):
        with self.assertRaisesRegex(TypeError, "send: data is of type builtins.str"):
            self.a.send("text", 1)
        with self.assertRaisesRegex(hearth.Invalid, "recv: buffer is read-only"):
            self.a.recv(b"abc")
        with self.assertRaisesRegex(hearth.Invalid, r"recvv: parts\[1\] is read-only"):
            self.a.recvv([bytearray(2), memoryview(array("h", [1])).toreadonly()])

    def test_to_itself(self):
        self.a.send(b"me", 0)
        self.assertEqual(self.a.recv_message(0), (b"me", 0, 0))


class Matching(Pair):
    def test_tags_in_any_order_and_order_within_a_tag(self):
        for number in range(30):
            self.a.send(bytes([number]), 1, tag=number % 3)
        for tag in (2, 0, 1):
            told = [self.b.recv_message(0, tag).data[0] for _ in range(10)]
            self.assertEqual(told, list(range(tag, 30, 3)))

    def test_any_rank_and_any_tag(self):
        def work(group):
            if group.rank:
                group.send(bytes([group.rank]), 0, tag=group.rank * 1000)
                return
            told = [group.recv_message(hearth.ANY_RANK, hearth.ANY_TAG) for _ in range(group.size - 1)]
            return sorted((message.rank, message.tag, message.data) for message in told)
        self.assertEqual(together(work, 4)[0], [(rank, rank * 1000, bytes([rank])) for rank in (1, 2, 3)])

    def test_the_largest_tag(self):
        self.a.send(b"x", 1, (1 << 64) - 2)
        self.assertEqual(self.b.recv_message(0, hearth.ANY_TAG).tag, (1 << 64) - 2)

    def test_ranks_and_tags_that_there_are_not(self):
        for rank in (2, -1, -2, 1 << 40):
            with self.assertRaisesRegex(hearth.Invalid, f"send: to is {rank}; the group has ranks 0 to 1"):
                self.a.send(b"", rank)
        for rank in (2, -1, -3):
            for receive in (lambda: self.a.recv(bytearray(1), rank), lambda: self.a.recv_message(rank),
                            lambda: self.a.probe(rank), lambda: self.a.recvv_nb([], rank)):
                with self.assertRaisesRegex(hearth.Invalid, rf"source is {rank}; the group has"):
                    receive()
        for tag in (-1, 1 << 64, hearth.ANY_TAG):
            with self.assertRaisesRegex(hearth.Invalid, "send: tag is"):
                self.a.send(b"", 1, tag)
        for tag in (-1, 1 << 64):
            with self.assertRaisesRegex(hearth.Invalid, "recv: tag is"):
                self.a.recv(bytearray(1), 1, tag)
        for call in (lambda: self.a.send(b"", "1"), lambda: self.a.send(b"", 1, 1.5),
                     lambda: self.a.send(b"", 1, timeout="soon"), lambda: self.a.send(b"", 1, codec=7),
                     lambda: self.a.recv(bytearray(1), None), lambda: self.a.probe(timeout="soon")):
            with self.assertRaisesRegex(TypeError, "it takes"):
                call()
        for wrong in (dict(priority="urgent"), dict(priority=["high"]), dict(timeout=-1), dict(codec="zip"),
                      dict(codec="a\0b")):
            with self.assertRaisesRegex(hearth.Error, list(wrong)[0]):
                self.a.send(array("f", [1]), 1, **wrong)
        self.assertIsNone(self.b.probe(tag=hearth.ANY_TAG, timeout=0))

    def test_options(self):
        for priority in ("high", "normal", "bulk"):
            self.a.send(priority.encode(), 1, priority=priority, timeout=5)
            self.assertEqual(self.b.recv_message(timeout=5).data, priority.encode())

    def test_in_a_group_of_some(self):
        def work(group):
            with group.split(group.rank % 2) as half:
                if half.rank == 0:
                    half.send(bytes([group.rank]), 1)
                    group.barrier()
                    return None
                group.barrier()
                self.assertIsNone(group.probe(tag=hearth.ANY_TAG, timeout=0))  # groups do not match each other
                return half.recv_message().data[0]
        self.assertEqual(together(work, 4), [None, None, 0, 1])


class Parts(Pair):
    def test_are_one_message(self):
        first, second, third = bytearray(2), array("i", [0]), bytearray(LARGE)
        future = self.a.sendv_nb([b"ab", b"", array("i", [77]), b"rest" * 1000], 1)
        self.assertEqual(self.b.recvv([first, second, third], 0), (0, 0, 4006))
        future.result(20)
        self.assertEqual((first, second[0], third[:4000]), (b"ab", 77, b"rest" * 1000))
        self.assertIsNone(self.a.sendv([b"x", b"y"], 1, sync=False, priority="high"))
        self.assertEqual(self.b.recv_message().data, b"xy")
        self.a.send(b"xyz", 1)
        future = self.b.recvv_nb([first, bytearray(1)])
        self.assertEqual((future.result(20).len, first), (3, b"xy"))

    def test_none_and_too_many(self):
        self.a.sendv([], 1)
        self.assertEqual(self.b.recvv([]), (0, 0, 0))
        with self.assertRaisesRegex(hearth.Invalid, "1025 parts"):
            self.a.sendv([b""] * 1025, 1)

    def test_long_ones_keep_their_memory(self):
        parts = [bytearray(b"x" * LARGE), bytearray(b"y" * LARGE)]
        alive = [memoryview(part) for part in parts]
        future = self.a.sendv_nb(parts, 1)
        del parts
        with self.assertRaises(BufferError):
            alive[0].obj.append(0)
        into = bytearray(2 * LARGE)
        self.b.recv(into)
        future.result(20)
        self.assertEqual((into[0], into[-1]), (b"x"[0], b"y"[0]))


class Codecs(Pair):
    def test_elements_travel_compressed(self):
        given = array("f", [1 + number / 1000 for number in range(LARGE // 4)])
        for codec, error in (("bf16", 0.01), ("fp16", 0.001), ("int8", 0.02), ("none", 0)):
            into = array("f", bytes(LARGE))
            before = self.a.traffic()[0]
            future = self.a.send_nb(given, 1, codec=codec)
            self.assertEqual(self.b.recv(into, 0), (0, 0, LARGE))
            future.result(20)
            sent = self.a.traffic()[0] - before
            self.assertLess(sent, LARGE * {"bf16": 0.51, "fp16": 0.51, "int8": 0.27, "none": 1.01}[codec])
            worst = max(abs(one - other) / one for one, other in zip(given, into))
            self.assertLessEqual(worst, error, codec)

    def test_another_type(self):
        for kind, data in (("d", array("d", [0])), ("B", bytearray(8))):
            self.a.send(array("f", [1, 2]), 1, codec="bf16")
            with self.assertRaises(hearth.Mismatch):
                self.b.recv(data)
        self.a.send(array("d", [1, 2]), 1, codec="bf16")
        self.assertEqual(array("d", self.b.recv_message(dtype="f64").data), array("d", [1, 2]))
        self.a.send(array("f", [3]), 1, codec="bf16")
        self.assertEqual(array("f", self.b.recv_message_nb().result(20).data), array("f", [3]))
        with self.assertRaisesRegex(hearth.Unsupported, "recv_message: dtype is 'f31'"):
            self.b.recv_message(dtype="f31")

    def test_what_no_codec_takes(self):
        with self.assertRaises(hearth.ArgumentError):
            self.a.send(b"bytes", 1, codec="bf16")
        with self.assertRaises(hearth.Poisoned):
            self.a.send(array("f", [float("nan")]), 1, codec="int8")


class Unknown(Pair):
    def test_messages_of_any_length(self):
        for length in (0, 5, LARGE):
            data = os.urandom(length)
            future = self.a.send_nb(data, 1, 3)
            message = self.b.recv_message(0, 3)
            future.result(20)
            self.assertEqual(message, hearth.Message(data=data, rank=0, tag=3))
            self.assertIsInstance(message.data, bytes)

    def test_bytes_outlive_the_node(self):
        self.a.send(b"z" * 1000, 1)
        message = self.b.recv_message()
        for node in self.nodes:
            node.close()
        self.assertEqual(pickle.loads(pickle.dumps(message)).data, b"z" * 1000)

    def test_memory_of_the_library_is_given_back(self):
        def held():
            lines = self.nodes[1].metrics().splitlines()
            return int(next(line for line in lines if line.startswith("hearth_memory_bytes")).split()[-1])
        ways = {"blocking": lambda: self.b.recv_message(), "future": lambda: self.b.recv_message_nb().result(20),
                "dropped": lambda: self.b.recv_message_nb() and None, "asked": lambda: self.b.recv_message_nb().fileno()}
        for name, way in ways.items():
            for turn in range(21):
                future = self.a.send_nb(bytes(LARGE), 1)
                way()
                future.result(20)
                self.b.node.world.barrier_nb(tag=turn + 1).cancel()  # sweeps
                if turn == 0:
                    before = held()
            gc.collect()
            for _ in range(100):
                self.b.barrier_nb(tag=99).cancel()
                if held() < before + LARGE:
                    break
                time.sleep(0.01)
            self.assertLess(held(), before + LARGE, name)

    def test_probe(self):
        self.assertIsNone(self.b.probe(timeout=0))
        self.assertIsNone(self.b.probe(0, 7, timeout=0.02))
        threading.Timer(0.25, lambda: self.a.send(b"late", 1, 7)).start()  # a wait of several slices
        self.assertEqual(self.b.probe(hearth.ANY_RANK, hearth.ANY_TAG), (0, 7, 4))
        self.assertEqual(self.b.probe(0, 7, timeout=0), (0, 7, 4))
        self.assertEqual(self.b.recv_message(0, 7).data, b"late")
        self.assertIsNone(self.b.probe(tag=hearth.ANY_TAG, timeout=0))

    def test_probe_has_the_deadline_of_the_node(self):
        nodes = hearth.open_local(2, op_timeout=0.05)
        self.assertIsNone(nodes[0].world.probe())
        for node in nodes:
            node.close()

    def test_closing_ends_a_probe(self):
        caught = []

        def work():
            try:
                self.b.probe()
            except hearth.Error as error:
                caught.append(type(error))
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        time.sleep(0.05)
        self.nodes[1].close()
        thread.join(SECONDS)
        self.assertEqual(caught, [hearth.Closed])


class Futures(Pair):
    def test_receives_that_wait(self):
        into = bytearray(4)
        futures = [self.b.recv_nb(into), self.b.recv_message_nb(0, 1), self.b.recvv_nb([bytearray(2)], 0, 2)]
        self.assertFalse(any(future.done() for future in futures))
        with self.assertRaises(BufferError):
            into.append(0)
        for tag, data in enumerate((b"abcd", b"efg", b"h")):
            self.a.send(data, 1, tag)
        self.assertEqual(hearth.wait_all(futures, 20), [(0, 0, 4), (b"efg", 0, 1), (0, 2, 1)])
        self.assertEqual(into, b"abcd")
        into.append(0)
        self.assertIsInstance(futures[0].result(), hearth.Received)

    def test_synchronous_sends(self):
        self.a.send_nb(b"x", 1).result(20)
        future = self.a.send_nb(b"y", 1, sync=True)
        self.assertFalse(future.wait(0.05))
        self.assertEqual([self.b.recv_message().data for _ in range(2)], [b"x", b"y"])
        future.result(20)

    def test_several_threads_take_one_result(self):
        for _ in range(50):
            future, told = self.b.recv_message_nb(), []
            threads = [threading.Thread(target=lambda: told.append(future.result(20).data)) for _ in range(6)]
            for thread in threads:
                thread.start()
            self.a.send(b"once", 1)
            for thread in threads:
                thread.join(SECONDS)
            self.assertEqual(told, [b"once"] * 6)

    def test_cancel_leaves_both_sides_usable(self):
        future = self.a.send_nb(bytes(LARGE), 1, 1)  # a receive of its own tag might still meet it, and be aborted
        self.assertTrue(future.cancel())
        self.assertEqual((type(future.exception()), future.exception().fate), (hearth.Cancelled, "not_delivered"))
        for start in (lambda: self.b.recv_nb(bytearray(9)), self.b.recv_message_nb):
            future = start()
            self.assertTrue(future.cancel())
            self.assertIsInstance(future.exception(), hearth.Cancelled)
        self.a.send(b"next", 1)
        self.assertEqual(self.b.recv_message().data, b"next")

    def test_buffers_live_until_the_end(self):
        class Held(bytearray):
            pass
        data = Held(LARGE)
        alive = weakref.ref(data)
        self.a.send_nb(data, 1)
        del data
        gc.collect()
        self.assertIsNotNone(alive())
        self.b.recv(bytearray(LARGE))
        for _ in range(100):
            self.a.send(b"", 0, 9)
            self.a.recv_message(0, 9)
            gc.collect()
            if alive() is None:
                break
            time.sleep(0.01)
        self.assertIsNone(alive())

    def test_asyncio(self):
        async def ask(group, other, count):
            for number in range(count):
                await group.send_nb(bytes([number]), other, number)
            told = await asyncio.gather(*[_wait(group.recv_message_nb(other, number)) for number in range(count)])
            return [message.data[0] for message in told]

        async def work():
            return await asyncio.gather(ask(self.a, 1, 20), ask(self.b, 0, 20))
        self.assertEqual(asyncio.run(work()), [list(range(20))] * 2)

    def test_a_cancelled_task_cancels_the_receive(self):
        async def work():
            future = self.b.recv_message_nb()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(_wait(future), 0.02)
            self.assertIsInstance(future.exception(20), hearth.Cancelled)
        asyncio.run(work())

    def test_beside_collectives(self):
        def work(group):
            for step in range(20):
                future = group.recv_message_nb((group.rank + 1) % group.size, step)
                both = group.all_reduce_nb(array("i", [1]), tag=step)
                group.send(bytes([step]), (group.rank - 1) % group.size, step)
                self.assertEqual(both.result(20)[0], group.size)
                self.assertEqual(future.result(20).data, bytes([step]))
        together(work, 3)


async def _wait(future):
    return await future


class Errors(Pair):
    def test_too_long(self):
        future, into = self.a.send_nb(bytes(LARGE), 1), bytearray(10)
        with self.assertRaisesRegex(hearth.TooLong, f"has {LARGE} bytes, the receive has room for 10") as caught:
            self.b.recv(into)
        self.assertEqual((caught.exception.peer, caught.exception.rank, caught.exception.code), (0, 1, "HEARTH_TOO_LONG"))
        self.assertEqual(into, bytes(10))
        error = future.exception(20)
        self.assertEqual((type(error), error.fate, error.peer), (hearth.TooLong, "not_delivered", 1))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), again.fate, str(again)), (hearth.TooLong, "not_delivered", str(error)))

    def test_deadlines(self):
        with self.assertRaisesRegex(hearth.Timeout, "rank 0 has sent nothing") as caught:
            self.b.recv(bytearray(1), 0, timeout=0.05)
        self.assertIsInstance(caught.exception, builtins.TimeoutError)
        with self.assertRaises(hearth.Timeout) as caught:
            self.a.send(bytes(LARGE), 1, timeout=0.05)
        self.assertEqual((caught.exception.peer, caught.exception.fate), (1, "not_delivered"))
        with self.assertRaises(hearth.Timeout):
            self.b.recv_message(tag=9, timeout=0.01)

    def test_collectives_have_no_fate(self):
        with self.assertRaises(hearth.Timeout) as caught:
            self.a.barrier(timeout=0.01)
        self.assertEqual(caught.exception.fate, "none")

    def test_a_member_that_leaves_leaves_its_messages(self):
        self.b.send(b"bye", 0, sync=False)
        pending, lost = self.a.send_nb(bytes(LARGE), 1), self.a.recv_message_nb(1, 8)
        self.nodes[1].close()
        self.assertIsInstance(lost.exception(20), (hearth.PeerError, hearth.GroupError))
        self.assertEqual(pending.exception(20).fate, "not_delivered")
        self.assertEqual(self.a.recv_message(1).data, b"bye")

    def test_closing_with_messages_in_flight(self):
        futures = [self.a.recv_message_nb(), self.a.recv_nb(bytearray(9), 1, 1), self.a.send_nb(bytes(LARGE), 1, 2),
                   self.a.recvv_nb([bytearray(9)], 1, 3)]
        self.b.send(b"unseen", 0, 4)
        unseen = self.a.recv_message_nb(1, 4)
        unseen.fileno()
        self.nodes[0].close()
        for future in futures:
            with self.assertRaises(hearth.Closed):
                future.result()
        self.assertIn(type(unseen.exception()), (type(None), hearth.Closed))
        with self.assertRaises(hearth.Closed):
            self.a.send(b"", 1)
        with self.assertRaises(hearth.Closed):
            self.a.probe()

    def test_closing_a_group_while_messages_come(self):
        def work(group):
            for step in range(50):
                part = group.split(0)
                if part.rank == 0:
                    for _ in range(4):
                        part.send_nb(b"x" * 100000, 1)
                else:
                    for _ in range(4):
                        part.recv_message_nb()
                group.barrier()
                part.close()
        together(work, 2)

    def test_in_a_forked_child(self):
        self.a.send(b"x" * 100, 1)
        pending, done = self.b.recv_message_nb(0, 1), self.b.recv_message_nb()
        child = os.fork()
        if child == 0:
            status = 9
            try:
                signal.alarm(SECONDS // 2)
                for call in (lambda: self.a.send(b"", 1), self.b.recv_message, lambda: self.b.probe(timeout=0),
                             lambda: self.b.recv(bytearray(1)), pending.result, done.result):
                    try:
                        call()
                        os._exit(8)
                    except hearth.Forked:
                        pass
                del pending, done
                gc.collect()
                self.nodes[1].close()
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.a.send(b"y", 1, 1)
        self.assertEqual((pending.result(20).data, done.result(20).data), (b"y", b"x" * 100))

    def test_exit_with_messages_in_flight(self):
        code = ("import hearth, threading, time\nnodes = hearth.open_local(2)\na, b = (node.world for node in nodes)\n"
                "kept = [a.send_nb(bytes(1 << 22), 1), b.recv_message_nb(0, 5), b.recv_nb(bytearray(4), 0, 6)]\n"
                "a.send(b'x', 1, 7)\nkept.append(b.recv_message_nb(0, 7))\nthreading.excepthook = lambda *_: None\n"
                "threading.Thread(target=lambda: b.recv_message(0, 8), daemon=True).start()\n"
                "threading.Thread(target=lambda: b.probe(0, 8), daemon=True).start()\ntime.sleep(0.05)\n")
        self.assertEqual(Script(code).end(), (0, "", ""))

    def test_ctrl_c_takes_a_receive_back(self):
        code = ("import hearth, signal, threading, time\nnodes = hearth.open_local(2)\na, b = (n.world for n in nodes)\n"
                "def interrupt():\n    time.sleep(0.2)\n    signal.raise_signal(signal.SIGINT)\n"
                "for wait in (b.recv_message, b.probe):\n    threading.Thread(target=interrupt).start()\n"
                "    try:\n        wait()\n    except KeyboardInterrupt:\n        print('interrupted')\n"
                "a.send(b'x', 1)\nprint(b.recv_message().data)\n")
        self.assertEqual(Script(code).end(), (0, "interrupted\ninterrupted\nb'x'\n", ""))
