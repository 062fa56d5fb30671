# SPDX-License-Identifier: Apache-2.0
"""Nodes from opening to closing: settings, logs, Ctrl-C, fork, and the end of the interpreter."""

import copy
import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
import warnings
import weakref
from array import array

from members import SECONDS, Script, Watched, together

import hearth
from hearth import _handles
from hearth._nodes import FIELDS, configure, rate_of


class Settings(Watched):
    def test_keywords_become_fields(self):
        config, _ = configure(dict(op_timeout=1.5, rate="2.5mbit", algo="ring", log_level="debug", peers=["a:1", "b:2"],
                                   rank=1, job="x", port=7, trust_network=True, spin_us=5, site="attic",
                                   compress_threads=2, open_timeout=3, chunk_bytes=65536, codec=None), "open")
        self.assertEqual((config.op_timeout_ms, config.rate, config.tuning[0].algo, config.log_level), (1500, 2500000, 1, 4))
        self.assertEqual((config.peers, config.rank, config.job, config.port), (b"a:1,b:2", 1, b"x", 7))
        self.assertEqual((config.trust_network, config.tuning[0].spin_us, config.site), (1, 5, b"attic"))
        self.assertEqual((config.compress_threads, config.open_timeout_ms, config.tuning[0].chunk_bytes), (2, 3000, 65536))
        self.assertEqual((config.codec, config.tuning[0].ops_max), (b"none", 1024))

    def test_the_environment_comes_first(self):
        os.environ["HEARTH_OP_TIMEOUT_MS"], os.environ["HEARTH_CODEC"] = "7000", "int8"
        try:
            config, _ = configure({}, "open")
            self.assertEqual((config.op_timeout_ms, config.codec), (7000, b"int8"))
            config, _ = configure({"op_timeout": 2}, "open")
            self.assertEqual((config.op_timeout_ms, config.codec), (2000, b"int8"))
            os.environ["HEARTH_OP_TIMEOUT_MS"] = "soon"
            with self.assertRaisesRegex(hearth.Invalid, "HEARTH_OP_TIMEOUT_MS is \"soon\""):
                hearth.open()
        finally:
            del os.environ["HEARTH_OP_TIMEOUT_MS"], os.environ["HEARTH_CODEC"]

    def test_rates(self):
        self.assertEqual([rate_of(text) for text in ("0", "64kbit", "100mbit", "2.5gbit", "70000", 5)],
                         [0, 64000, 10**8, 2500000000, 70000, 5])
        for bad in ("fast", "1mb", "-1", "1.5.5gbit", ""):
            with self.assertRaisesRegex(hearth.Invalid, "rate is"):
                rate_of(bad)

    def test_keywords_that_there_are_not(self):
        with self.assertRaisesRegex(TypeError, "open takes no keyword 'op_timeot'; did you mean op_timeout"):
            hearth.open(op_timeot=3)
        with self.assertRaisesRegex(TypeError, "open_local takes no keyword 'op_timeout_ms'; did you mean op_timeout"):
            hearth.open_local(2, op_timeout_ms=3)
        with self.assertRaisesRegex(TypeError, "'xyz'; there are op_timeout, "):
            hearth.open(xyz=3)
        self.assertNotIn("launcher", FIELDS)

    def test_values_that_do_not_fit(self):
        for keywords in (dict(op_timeout="3"), dict(rank=1.5), dict(job=3), dict(log=3), dict(ops_max="many")):
            with self.assertRaisesRegex(TypeError, f"{list(keywords)[0]} is"):
                hearth.open(**keywords)
        for keywords in (dict(ops_max=-1), dict(port=1 << 16), dict(algo="best"), dict(log_level="loud"),
                         dict(op_timeout=float("nan")), dict(op_timeout=-1), dict(rate="quick"), dict(codec="zip"),
                         dict(chunk_bytes=1), dict(job="a\0b"), dict(transport="pigeon")):
            with self.assertRaisesRegex(hearth.Invalid, list(keywords)[0]):
                hearth.open(**keywords)
        for count in (0, 65, -1, 1.5):
            with self.assertRaisesRegex(hearth.Invalid, "count is"):
                hearth.open_local(count)

    def test_op_timeout_counts(self):
        nodes = hearth.open_local(2, op_timeout=0.05)
        with self.assertRaises(hearth.Timeout):
            nodes[0].world.barrier()
        for node in nodes:
            node.close()

    def test_nobody_to_meet(self):
        with self.assertRaisesRegex(hearth.Timeout, "missing") as caught:
            hearth.open(rendezvous=f"unix:@hearth-test-{os.getpid()}", world_size=2, rank=0, open_timeout=0.2)
        self.assertIsNone(caught.exception.rank)


class Logs(Watched):
    def test_lines_come_with_level_and_name(self):
        lines = []
        nodes = hearth.open_local(2, log=lambda *line: lines.append(line), log_level="debug")
        threads = [threading.Thread(target=node.world.all_reduce, args=(bytearray(1 << 20),)) for node in nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        for node in nodes:
            node.close()
        self.assertTrue(lines)
        for level, name, text in lines:
            self.assertIn(level, ("error", "warn", "info", "debug"))
            self.assertRegex(name, r"^HEARTH-[A-Z0-9-]+$")
            self.assertIsInstance(text, str)
        self.assertIn("HEARTH-PLAN", {name for _, name, _ in lines})

    def test_a_log_function_that_calls_hearth_is_told_so(self):
        caught = []

        def careless(*_):
            try:
                nodes[0].metrics()
            except hearth.Invalid as error:
                caught.append(str(error))

        nodes = hearth.open_local(2, log=careless, log_level="debug")
        nodes[1].close()
        with self.assertRaises(hearth.Error):
            nodes[0].world.barrier(timeout=5)
        nodes[0].close()
        self.assertIn("a log function must not call Hearth", caught)
        self.assertEqual(_handles.LOGGING, [])

    def test_futures_and_nodes_that_a_log_function_drops(self):
        kept = hearth.open_local(2)
        kept.append(kept[0].world.barrier_nb())

        def dropping(*_):
            kept.clear()
            gc.collect()

        nodes = hearth.open_local(2, log=dropping, log_level="debug")
        nodes[1].close()
        with self.assertRaises(hearth.Error):
            nodes[0].world.barrier(timeout=5)
        nodes[0].close()
        self.assertEqual(kept, [])


class Garbage(Watched):
    def test_a_node_that_nobody_holds_is_closed_at_once(self):
        nodes = hearth.open_local(2)
        gone = weakref.ref(nodes[0])
        handle = nodes[0]._handle
        group = nodes[0].world
        nodes[0] = None
        self.assertIsNotNone(gone())  # its group is held
        group.node.metrics()
        del group
        self.assertIsNone(gone())
        self.assertIsNone(handle.address)
        with self.assertRaises((hearth.PeerError, hearth.GroupError)):
            nodes[1].world.barrier(timeout=10)
        nodes[1].close()

    def test_world_is_one_object_while_it_is_held(self):
        with hearth.open() as node:
            world = node.world
            self.assertIs(node.world, world)
            world.close()  # a world is its node's
            world.barrier()

    def test_memory_of_a_node_holds_it(self):
        memory = hearth.open().alloc(64)
        gc.collect()
        memory[:3] = b"abc"
        self.assertEqual(bytes(memory[:4]), b"abc\0")
        self.assertEqual((memory.nbytes, memory.readonly, memory.format), (64, False, "B"))

    def test_groups_and_compressors_that_nobody_holds(self):
        def work(group):
            for step in range(20):
                part = group.split(0)
                hearth.Compressor(part, "int8", min_count=1).all_reduce("x", array("f", [1] * 8))
                del part
            return len(group.node._handle.children)
        self.assertEqual(together(work, 2), [1, 1])

    def test_syncs_and_their_compressors(self):
        def work(group):
            for step in range(10):
                sync = hearth.Sync(group, "int8")
                sync.add("x", array("f", [1] * 8))
                kept = sync.compressor
                del sync
                kept.stats()  # who holds it holds the sync
                del kept
            return len(group._handle.children)
        self.assertEqual(together(work, 2), [0, 0])

    def test_nothing_can_be_copied(self):
        with hearth.open() as node:
            group = node.world
            compressor = hearth.Compressor(group)
            for thing in (node, group, compressor, hearth.Sync(compressor), group.barrier_nb()):
                for way in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                        way(thing)
            group.barrier()

    def test_closing_again_and_by_several(self):
        node = hearth.open()
        threads = [threading.Thread(target=node.close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        node.close()
        self.assertIn("closed", repr(node))
        self.assertEqual((node.rank, node.size, node.world.rank), (0, 1, 0))

    def test_texts(self):
        with hearth.open() as node:
            self.assertIn("hearth_", node.metrics())
            self.assertIsInstance(node.links(), str)


PENDING = """
import hearth, sys
nodes = hearth.open_local(2)
futures = [nodes[0].world.all_reduce_nb(bytearray(100)) for _ in range(3)]
compressor = hearth.Compressor(nodes[0].world, "int8", min_count=1)
waiting = compressor.all_reduce_nb("x", memoryview(bytearray(400)).cast("f"), tag=1)
sync = hearth.Sync(nodes[1].world)
"""


class Exit(Watched):
    """The interpreter ends while nodes are open: no crash, no hang, no noise."""

    def ends(self, code, status=0):
        told = Script(code).end()
        self.assertEqual(told, (status, "", ""), code)

    def test_nodes_open_and_operations_pending(self):
        self.ends(PENDING)

    def test_in_a_cycle_of_garbage(self):
        self.ends(PENDING + "class Box: pass\nbox = Box()\nbox.all = [box, nodes, futures, compressor, sync, waiting]\n"
                  "del nodes, futures, compressor, sync, waiting, box\n")

    def test_held_by_modules_in_odd_places(self):
        self.ends(PENDING + "import builtins\nbuiltins.kept = futures\nsys.kept = nodes\nhearth.kept = sync\n")

    def test_an_exception_ends_the_program(self):
        status, out, errors = Script(PENDING + "raise SystemExit(7)").end()
        self.assertEqual((status, out, errors), (7, "", ""))

    def test_a_daemon_thread_is_in_a_wait(self):
        self.ends(PENDING + "import threading, time\n"
                  "threading.Thread(target=lambda: nodes[0].world.barrier(), daemon=True).start()\n"
                  "threading.excepthook = lambda *_: None\ntime.sleep(0.05)\n")

    def test_a_daemon_thread_is_in_a_call_that_cannot_be_cut_short(self):
        self.ends("import hearth, threading, time\nnodes = hearth.open_local(2)\n"
                  "threading.excepthook = lambda *_: None\n"
                  "threading.Thread(target=lambda: nodes[0].world.split(0), daemon=True).start()\ntime.sleep(0.05)\n")

    def test_a_log_function_is_still_called(self):
        self.ends("import hearth, threading\nlines = []\n"
                  "nodes = hearth.open_local(2, log=lambda *line: lines.append(line), log_level='debug')\n"
                  "nodes[1].close()\n")

    def test_importing_brings_no_numpy_and_no_torch(self):
        self.ends("import hearth, sys\nassert not {'numpy', 'torch'} & set(sys.modules)\n")


INTERRUPTED = """
import hearth, os, signal, sys, threading, time
nodes = hearth.open_local(2, op_timeout=100.0)
group, other = nodes[0].world, nodes[1].world
signal.signal(signal.SIGINT, signal.default_int_handler)
%s
try:
    print("ready", flush=True)
    %s
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


class Interrupt(Watched):
    """Ctrl-C is seen in whatever wait the main thread is."""

    def interrupted(self, call, after="", before=""):
        with Script(INTERRUPTED % (before, call) + after) as script:
            self.assertEqual(script.line(), "ready")
            time.sleep(0.2)  # most likely it is in the wait then; if not, the test passes for less
            script.process.send_signal(signal.SIGINT)
            status, out, errors = script.end(30)
        self.assertEqual((status, errors), (0, ""))
        self.assertTrue(out.startswith("interrupted\n"), out)
        return out.splitlines()[1:]

    def test_a_blocking_call_is_taken_back_for_all(self):
        before = ("def kill():\n    while not group._handle.users:\n        time.sleep(0.001)\n    time.sleep(0.05)\n"
                  "    signal.raise_signal(signal.SIGINT)\nthreading.Thread(target=kill).start()\n")
        after = ("try:\n    other.all_reduce(bytearray(8))\nexcept hearth.Aborted as error:\n"
                 "    print('aborted', error.peer)\n")
        with Script(INTERRUPTED % (before, "group.all_reduce(bytearray(8))") + after) as script:
            self.assertEqual(script.end(30), (0, "ready\ninterrupted\naborted 0\n", ""))

    def test_waits_for_futures_leave_them_pending(self):
        for wait in ("future.result()", "future.wait()", "hearth.wait_all([future])", "hearth.wait_any([future])"):
            after = "print(future.done()); other.barrier_nb().result(20); print(future.wait(20))\n"
            told = self.interrupted(wait, after, "future = group.barrier_nb()")
            self.assertEqual(told, ["False", "True"])

    def test_in_asyncio(self):
        self.interrupted("asyncio.run(work())",
                         before="import asyncio\nasync def work():\n    await group.barrier_nb()")

    def test_a_compressed_call(self):
        self.interrupted("compressor.all_reduce('x', memoryview(bytearray(64)).cast('f', (4, 4)))",
                         before="compressor = hearth.Compressor(group, 'int8', min_count=1)")

    def test_calls_that_cannot_be_cut_short_are_left(self):
        for call in ("group.split(0)", "group.same(b'abc')", "sync = hearth.Sync(group); sync.add('x', "
                     "memoryview(bytearray(64)).cast('f')); sync.ready(0); sync.wait()"):
            self.interrupted(call, "nodes[0].close()\n")

    def test_opening(self):
        self.interrupted("hearth.open(rendezvous=place, world_size=2, rank=0, open_timeout=60)",
                         before="place = f'unix:@hearth-test-alone-{os.getpid()}'")


class Fork(Watched):
    """A child (of multiprocessing, of a DataLoader) can do nothing with the node and no harm to it."""

    def setUp(self):
        super().setUp()
        self.nodes = hearth.open_local(2, op_timeout=20.0)
        self.groups = [node.world for node in self.nodes]
        self.compressor = hearth.Compressor(self.groups[0], "int8")
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: forking beside threads is what we test

    def tearDown(self):
        for node in self.nodes:
            node.close()
        super().tearDown()

    def refused(self, pending):
        """In the child: what does not raise Forked."""
        group, values, wrong = self.groups[0], array("f", [1] * 8), []
        calls = {"all_reduce": lambda: group.all_reduce(values), "nb": lambda: group.all_reduce_nb(values),
                 "barrier": group.barrier, "same": lambda: group.same(b"x"), "split": lambda: group.split(0),
                 "compressed": lambda: group.all_reduce_compressed(values, "int8"),
                 "compressor": lambda: self.compressor.all_reduce("x", values), "stats": self.compressor.stats,
                 "open a compressor": lambda: hearth.Compressor(group), "sync": lambda: hearth.Sync(group),
                 "metrics": self.nodes[0].metrics, "links": self.nodes[0].links,
                 "alloc": lambda: self.nodes[0].alloc(5),
                 "result": pending.result, "done": pending.done, "cancel": pending.cancel, "fileno": pending.fileno}
        for name, call in calls.items():
            try:
                call()
                if name not in ("done", "cancel"):  # there is nothing left to cancel
                    wrong.append(f"{name}: nothing raised")
            except hearth.Forked as error:
                if not str(error):
                    wrong.append(f"{name}: no text")
            except BaseException as error:
                if name != "fileno" or not isinstance(error, hearth.Invalid):
                    wrong.append(f"{name}: {error!r}")
        return wrong

    def parent_goes_on(self, pending):
        self.groups[1].barrier_nb(tag=1).result(20)
        pending.result(20)
        futures = [group.all_reduce_nb(array("i", [1])) for group in self.groups]
        self.assertEqual([future.result(20)[0] for future in futures], [2, 2])

    def child(self, function):
        """Exit status of a forked child that runs function and then ends as programs do."""
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            status = 99
            try:
                signal.alarm(SECONDS // 2)  # the parent's watchdog is not here
                os.close(read)
                os.write(write, repr(function()).encode())
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        with os.fdopen(read) as pipe:
            told = pipe.read()
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), told

    def test_calls_in_a_child(self):
        pending = self.groups[0].barrier_nb(tag=1)
        self.assertEqual(self.child(lambda: self.refused(pending)), (0, "[]"))
        self.parent_goes_on(pending)

    def test_closing_and_dropping_in_a_child(self):
        pending = self.groups[0].barrier_nb(tag=1)

        def end():
            self.nodes[0].close()
            self.compressor.close()
            self.compressor = self.groups[1] = self.nodes[1] = None
            gc.collect()
            try:
                self.groups[0].barrier()
            except hearth.Closed:
                return "closed"
        self.assertEqual(self.child(end), (0, "'closed'"))
        self.parent_goes_on(pending)

    def test_multiprocessing(self):
        pending = self.groups[0].barrier_nb(tag=1)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()

        def work():
            signal.alarm(SECONDS // 2)  # the parent's watchdog is not here
            queue.put(self.refused(pending))
        workers = [context.Process(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(SECONDS)
            self.assertEqual(worker.exitcode, 0)
            self.assertEqual(queue.get(), [])
        self.parent_goes_on(pending)

    def test_a_child_that_ends_like_a_program(self):
        code = ("import hearth, os, sys\nnodes = hearth.open_local(2)\nf = nodes[0].world.barrier_nb()\n"
                "child = os.fork()\nif child == 0:\n    sys.exit(5)\n"
                "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n"
                "nodes[1].world.barrier_nb().result(20); f.result(20); print('fine')\n")
        self.assertEqual(Script(code).end(), (0, "fine\n", ""))

    def test_forking_while_threads_are_at_work(self):
        stop = threading.Event()

        def work(group):
            while not stop.is_set():
                group.all_reduce(bytearray(100), tag=3)
            group.node.close()
        threads = [threading.Thread(target=self._quietly, args=(work, group), daemon=True) for group in self.groups]
        for thread in threads:
            thread.start()
        for _ in range(10):
            def end():
                self.nodes[0].close()
                return 0
            self.assertEqual(self.child(end), (0, "0"))
        stop.set()
        for thread in threads:
            thread.join(SECONDS)
            self.assertFalse(thread.is_alive())

    def _quietly(self, work, group):
        try:
            work(group)
        except (hearth.PeerLost, hearth.GroupBroken, hearth.Closed):
            pass  # the other one was told to stop first
