# SPDX-License-Identifier: Apache-2.0
"""Remote calls: handlers, replies now and later, errors by status, asyncio, and nodes that close meanwhile."""

import asyncio
import gc
import os
import signal
import threading
import time
import weakref
from array import array
from concurrent.futures import Future, ThreadPoolExecutor

from members import SECONDS, Script, Watched, together

import hearth


class Pair(Watched):
    """The second node serves the first, in one thread."""

    def setUp(self):
        super().setUp()
        self.nodes = hearth.open_local(2, op_timeout=20.0)
        self.a, self.b = (node.world for node in self.nodes)
        self.server = self.nodes[1]

    def tearDown(self):
        for node in self.nodes:
            node.close()
        super().tearDown()


class Replies(Pair):
    def test_call_and_reply(self):
        seen = []

        @self.server.rpc("double")
        def double(request, call):
            seen.append((request, call.rank, call.group is self.b, 0 < call.time_left <= 20))
            return request * 2
        self.assertEqual(self.a.call(1, "double", b"ab"), b"abab")
        self.assertEqual(self.a.call_nb(1, "double", array("h", [1])).result(20), bytes(array("h", [1, 1])))
        self.assertEqual(self.a.call(1, "double"), b"")
        self.assertEqual(self.b.call(1, "double", b"me"), b"meme")
        self.assertEqual(seen[0], (b"ab", 0, True, True))
        self.assertEqual((seen[3][1], type(seen[0][0])), (1, bytes))
        self.assertTrue(callable(double))

    def test_replies_of_every_kind(self):
        for reply, bytes_ in ((None, b""), (b"abc", b"abc"), (bytearray(3), bytes(3)), (array("i", [7]), bytes(array("i", [7]))),
                              (memoryview(b"abcd")[1:3], b"bc"), (b"x" * 1000000, b"x" * 1000000)):
            self.server.rpc("give")(lambda request, call: reply)
            self.assertEqual(self.a.call(1, "give"), bytes_)
            self.server.remove_rpc("give")

    def test_later_from_another_thread(self):
        kept, calls = [], []

        @self.server.rpc("later")
        def later(request, call):
            calls.append(call)
            kept.append(Future())
            return kept[-1]
        futures = [self.a.call_nb(1, "later", bytes([number])) for number in range(3)]
        for _ in range(1000):
            if len(kept) == 3:
                break
            time.sleep(0.01)
        self.assertFalse(any(future.wait(0.01) for future in futures))
        kept[0].set_result(b"done"), kept[1].set_exception(ValueError("no")), kept[2].cancel()
        replies = [future.exception(20) or future.result() for future in futures]
        self.assertIn(b"done", replies)
        texts = sorted(str(reply) for reply in replies if reply != b"done")
        self.assertRegex(texts[0] + texts[1], "CancelledError.*ValueError: no")
        self.assertEqual([call.time_left for call in calls], [0.0] * 3)
        self.assertEqual([call.group for call in calls], [None] * 3)
        self.assertIn("answered", repr(calls[0]))

    def test_by_a_pool(self):
        with ThreadPoolExecutor(2) as pool:
            self.server.rpc("pool")(lambda request, call: pool.submit(lambda: request[::-1]))
            futures = [self.a.call_nb(1, "pool", bytes([number, 0])) for number in range(100)]
            self.assertEqual([reply for reply in hearth.wait_all(futures, 20)], [bytes([0, n]) for n in range(100)])

    def test_a_handler_calls_hearth(self):
        def work(group):
            group.node.rpc("pass on")(lambda request, call: group.call(group.rank + 1, "pass on", request + b".")
                                      if group.rank + 1 < group.size else request + b"end")
            group.barrier()
            told = group.call(1, "pass on", b"") if group.rank == 0 else None
            group.barrier()
            return told
        self.assertEqual(together(work, 4)[0], b"..end")

    def test_in_a_group_of_some(self):
        def work(group):
            with group.split(group.rank % 2, -group.rank) as half:
                seen = []
                group.node.rpc("who")(lambda request, call: seen.append((call.rank, call.group is half)))
                group.barrier()
                half.call(1 - half.rank, "who")
                group.barrier()
                return seen
        self.assertEqual(together(work, 4), [[(0, True)], [(0, True)], [(1, True)], [(1, True)]])


class Asyncio(Pair):
    def test_await_and_coroutines(self):
        async def work():
            @self.server.rpc("slow")
            async def slow(request, call):
                await asyncio.sleep(0.01)
                if request == b"bad":
                    raise KeyError("bad")
                return request + b"!"
            told = await asyncio.gather(*[_wait(self.a.call_nb(1, "slow", bytes([n]))) for n in range(50)])
            with self.assertRaisesRegex(hearth.CallFailed, "KeyError: 'bad'"):
                await self.a.call_nb(1, "slow", b"bad")
            return told
        self.assertEqual(asyncio.run(work()), [bytes([n]) + b"!" for n in range(50)])
        with self.assertRaises(hearth.CallFailed):  # the loop is closed
            self.a.call(1, "slow", b"", timeout=10)

    def test_a_coroutine_needs_a_loop(self):
        async def handler(request, call):
            pass
        with self.assertRaisesRegex(hearth.Invalid, "event loop"):
            self.server.rpc("x")(handler)

    def test_a_cancelled_task_reaches_the_handler(self):
        left = []

        @self.server.rpc("wait")
        def wait(request, call):
            for _ in range(1000):
                if call.time_left == 0:
                    break
                time.sleep(0.01)
            left.append(call.time_left)

        async def work():
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(_wait(self.a.call_nb(1, "wait")), 0.05)
        asyncio.run(work())
        self.server.remove_rpc("wait")  # returns when it has ended
        self.assertEqual(left, [0.0])


async def _wait(future):
    return await future


class Errors(Pair):
    def test_no_such_call(self):
        with self.assertRaisesRegex(hearth.NoSuchCall, "nothing") as caught:
            self.a.call(1, "nothing")
        self.assertEqual((caught.exception.peer, caught.exception.fate, caught.exception.rank), (1, "not_delivered", 0))
        self.assertIsInstance(caught.exception, LookupError)

    def test_the_text_of_an_exception_travels(self):
        def fail(request, call):
            raise ValueError("the shelf is \0empty: \xe9")
        self.server.rpc("fail")(fail)
        with self.assertRaisesRegex(hearth.CallFailed, r"ValueError: the shelf is  empty: \\xe9") as caught:
            self.a.call(1, "fail")
        self.assertEqual((caught.exception.fate, caught.exception.peer), ("delivered", 1))
        for reply in ("text", 7, object(), memoryview(bytearray(8))[::2]):
            self.server.rpc("odd")(lambda request, call: reply)
            with self.assertRaisesRegex(hearth.CallFailed, "the handler's reply"):
                self.a.call(1, "odd")
            self.server.remove_rpc("odd")

        def leave(request, call):
            raise SystemExit(3)
        self.server.rpc("leave")(leave)
        with self.assertRaisesRegex(hearth.CallFailed, "SystemExit: 3"):
            self.a.call(1, "leave")

    def test_limits(self):
        stop = threading.Event()
        self.server.rpc("small", request_max=10, reply_max=5)(lambda request, call: request)
        self.assertEqual(self.a.call(1, "small", b"12345"), b"12345")
        with self.assertRaises(hearth.TooLong) as caught:
            self.a.call(1, "small", b"x" * 11)
        self.assertEqual(caught.exception.fate, "not_delivered")
        with self.assertRaises(hearth.TooLong) as caught:
            self.a.call(1, "small", b"123456")
        self.assertEqual(caught.exception.fate, "delivered")
        self.server.rpc("one", running=1, waiting=1)(lambda request, call: stop.wait(20) and None)
        futures = [self.a.call_nb(1, "one") for _ in range(3)]
        ended = hearth.wait_any(futures, 20)
        self.assertIsInstance(ended.exception(), hearth.Busy)
        stop.set()
        self.assertEqual(sorted(str(type(future.exception(20)).__name__) for future in futures),
                         ["Busy", "NoneType", "NoneType"])

    def test_deadlines(self):
        stop = threading.Event()
        self.server.rpc("long")(lambda request, call: stop.wait(20) and None)
        with self.assertRaises(hearth.Timeout) as caught:
            self.a.call(1, "long", timeout=0.05)
        self.assertEqual(caught.exception.fate, "unknown")
        stop.set()

    def test_arguments(self):
        handler = lambda request, call: None  # noqa: E731
        for wrong in (dict(request_max=-1), dict(running=1 << 40), dict(waiting=1 << 33)):
            with self.assertRaisesRegex(hearth.Invalid, list(wrong)[0]):
                self.server.rpc("x", **wrong)(handler)
        with self.assertRaisesRegex(TypeError, "request_max is '1'"):
            self.server.rpc("x", request_max="1")
        for name in ("", "x" * 64, "\xe9", "a\0b"):
            with self.assertRaises(hearth.Invalid):
                self.server.rpc(name)(handler)
            with self.assertRaises(hearth.Invalid):
                self.a.call(1, name)
        with self.assertRaisesRegex(TypeError, "the handler is 7"):
            self.server.rpc("x")(7)
        with self.assertRaisesRegex(TypeError, "name is 7"):
            self.server.rpc(7)
        self.server.rpc("x")(handler)
        with self.assertRaisesRegex(hearth.Invalid, "has a handler already"):
            self.server.rpc("x")(handler)
        self.assertEqual(len(self.server._handle.keep), 2)  # with the log function
        for rank in (-1, 2, -2):
            with self.assertRaisesRegex(hearth.Invalid, "call: rank is"):
                self.a.call(rank, "x")
        with self.assertRaisesRegex(TypeError, "call: payload"):
            self.a.call(1, "x", "text")

    def test_a_handler_must_not_register(self):
        self.server.rpc("x")(lambda request, call: self.server.rpc("y")(print) and None)
        self.server.rpc("z")(lambda request, call: self.server.remove_rpc("z"))
        for name in ("x", "z"):
            with self.assertRaisesRegex(hearth.CallFailed, "a handler must not register"):
                self.a.call(1, name)

    def test_remove(self):
        class Held:
            def __call__(self, request, call):
                return b"here"
        held = Held()
        gone = weakref.ref(held)
        self.server.rpc("x")(held)
        self.assertEqual(self.a.call(1, "x"), b"here")
        del held
        gc.collect()
        self.assertIsNotNone(gone())  # the node holds it
        self.server.remove_rpc("x")
        gc.collect()
        self.assertIsNone(gone())
        with self.assertRaises(hearth.NoSuchCall):
            self.a.call(1, "x")


class Lifetimes(Pair):
    def test_closing_the_server(self):
        began, kept = threading.Event(), Future()

        @self.server.rpc("later")
        def later(request, call):
            began.set()
            return kept
        future = self.a.call_nb(1, "later")
        self.assertTrue(began.wait(20))
        self.server.close()
        error = future.exception(20)
        self.assertIsInstance(error, (hearth.PeerLost, hearth.GroupBroken))
        self.assertEqual(error.fate, "unknown")
        kept.set_result(b"too late")

    def test_closing_while_handlers_wait_in_hearth(self):
        ended = []

        @self.server.rpc("barrier")
        def barrier(request, call):
            try:
                call.group.barrier(tag=9)
            except hearth.Error as error:
                ended.append(type(error))
                raise
        futures = [self.a.call_nb(1, "barrier") for _ in range(2)]
        time.sleep(0.1)
        self.server.close()
        for future in futures:
            self.assertIsInstance(future.exception(20), hearth.Error)
        self.assertIn(hearth.Closed, ended)

    def test_closing_the_caller(self):
        kept = Future()
        self.server.rpc("later")(lambda request, call: kept)
        future = self.a.call_nb(1, "later")
        time.sleep(0.05)
        self.nodes[0].close()
        self.assertIsInstance(future.exception(), hearth.Closed)
        kept.set_result(b"too late")

    def test_closing_while_calls_come(self):
        for _ in range(5):
            nodes = hearth.open_local(2, op_timeout=20.0)
            nodes[1].rpc("echo")(lambda request, call: request)
            ended = []

            def work(group):
                try:
                    while True:
                        group.call(1, "echo", b"x" * 100)
                except hearth.Error as error:
                    ended.append(error)
            threads = [threading.Thread(target=work, args=(nodes[0].world,), daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            nodes[1].close()
            for thread in threads:
                thread.join(SECONDS)
            nodes[0].close()
            self.assertEqual(len(ended), 4)

    def test_a_node_with_handlers_is_garbage_like_others(self):
        nodes = hearth.open_local(1)
        nodes[0].rpc("x")(lambda request, call: None)
        gone = weakref.ref(nodes[0])
        nodes.clear()
        self.assertIsNone(gone())

    def test_in_a_forked_child(self):
        self.server.rpc("x")(lambda request, call: b"here")
        pending = self.a.call_nb(1, "x")
        child = os.fork()
        if child == 0:
            status = 9
            try:
                signal.alarm(SECONDS // 2)
                for call in (lambda: self.a.call(1, "x"), lambda: self.server.rpc("y")(print),
                             lambda: self.server.remove_rpc("x"), pending.result):
                    try:
                        call()
                        os._exit(8)
                    except hearth.Forked:
                        pass
                self.server.close()
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual((pending.result(20), self.a.call(1, "x")), (b"here", b"here"))

    def test_exit_with_handlers_running(self):
        start = "import hearth, threading, time\nfrom concurrent.futures import Future\nnodes = hearth.open_local(2)\n"
        for body in ("time.sleep(0.3)", "call.group.barrier()", "return Future()", "time.sleep(100)"):
            code = (f"{start}def handler(request, call):\n    {body}\nnodes[1].rpc('x')(handler)\n"
                    "kept = nodes[0].world.call_nb(1, 'x')\ntime.sleep(0.1)\n")
            began = time.monotonic()
            self.assertEqual(Script(code).end(), (0, "", ""), body)
            self.assertLess(time.monotonic() - began, 20, body)
