# SPDX-License-Identifier: Apache-2.0
"""hearth.local and hearth.launch: results by rank, the right exception, and nobody left behind however they end."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from pathlib import Path

from members import SECONDS, Watched

import hearth


def total(group, factor=1):
    return group.all_reduce(array("q", [factor * (group.rank + 1)] * 3)).tolist()


class Local(Watched):
    def test_results_by_rank(self):
        self.assertEqual(hearth.local(total, 4, 10), [[100] * 3] * 4)
        self.assertEqual(hearth.local(lambda group: (group.rank, group.size), 3), [(0, 3), (1, 3), (2, 3)])

    def test_configuration(self):
        self.assertEqual(hearth.local(total, 2, op_timeout=5.0, algo="ring"), [[3] * 3] * 2)
        with self.assertRaises(TypeError):
            hearth.local(total, 2, op_timout=5.0)

    def test_the_first_exception_ends_the_others(self):
        def work(group):
            if group.rank == 1:
                raise KeyError("rank 1 has no data")
            group.barrier()

        before = threading.active_count()
        with self.assertRaisesRegex(KeyError, "rank 1 has no data"):
            hearth.local(work, 3)
        self.assertEqual(threading.active_count(), before)

    def test_nodes_are_closed(self):
        groups = hearth.local(lambda group: group, 2)
        with self.assertRaises(hearth.Closed):
            groups[0].barrier()

    def test_ctrl_c(self):
        def work(group):
            if group.rank == 0:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                group.barrier(timeout=SECONDS)

        with self.assertRaises(KeyboardInterrupt):
            hearth.local(work, 2)

    def test_a_world_of_one_and_of_none(self):
        self.assertEqual(hearth.local(total, 1), [[1] * 3])
        with self.assertRaises(hearth.Invalid):
            hearth.local(total, 0)


def by_environment():
    with hearth.open(open_timeout=20.0) as node:
        return node.rank, total(node.world), {name: os.environ[name] for name in (
            "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")}


def one_fails(how):
    with hearth.open(open_timeout=20.0) as node:
        node.world.barrier()
        if node.rank == 1:
            how()
        node.world.barrier()


def fail():
    raise ValueError("nothing to learn from")


class Odd(Exception):
    """Pickle takes it, but cannot make it again."""

    def __init__(self, first, second):
        super().__init__(first)


class Launch(Watched):
    def children(self):
        return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()

    def setUp(self):
        super().setUp()
        before = self.children()
        self.addCleanup(lambda: self.assertEqual(self.children(), before, "a process is left behind"))

    def test_results_by_rank(self):
        ranks = hearth.launch(by_environment, 3, timeout=SECONDS)
        for rank, (own, values, variables) in enumerate(ranks):
            self.assertEqual((own, values), (rank, [6] * 3))
            self.assertEqual(variables["RANK"], str(rank))
            self.assertEqual(variables["LOCAL_RANK"], str(rank))
            self.assertEqual((variables["WORLD_SIZE"], variables["LOCAL_WORLD_SIZE"]), ("3", "3"))
            self.assertEqual(variables["MASTER_PORT"], ranks[0][2]["MASTER_PORT"])
        self.assertNotIn("HEARTH_RANK", os.environ)

    def test_functions_of_a_notebook(self):
        """Defined here, with what it sees around it: nothing of it has to be pickled."""
        seen = [5]
        self.assertEqual(hearth.launch(lambda a, b: (a + b + seen[0], os.environ["RANK"]), 2, 1, 2),
                         [(8, "0"), (8, "1")])

    def test_a_node_that_nobody_closes(self):
        def work():
            global kept
            kept = hearth.open(open_timeout=20.0)
            return total(kept.world)

        self.assertEqual(hearth.launch(work, 3, timeout=SECONDS), [[6] * 3] * 3)

    def test_an_open_node_here(self):
        """The children harm nothing of ours."""
        nodes = hearth.open_local(2)
        self.assertEqual(hearth.launch(lambda: total(hearth.open().world), 2, timeout=SECONDS), [[3] * 3] * 2)
        futures = [node.world.all_reduce_nb(array("q", [1])) for node in nodes]
        self.assertEqual([future.result(10).tolist() for future in futures], [[2], [2]])
        for node in nodes:
            node.close()

    def test_much_comes_back(self):
        self.assertEqual(hearth.launch(lambda: bytes(5 << 20), 2), [bytes(5 << 20)] * 2)

    def test_an_exception_comes_back_whole(self):
        with self.assertRaisesRegex(ValueError, "nothing to learn from") as caught:
            hearth.launch(one_fails, 3, fail, timeout=SECONDS)
        self.assertRegex(str(caught.exception.__cause__), r"in rank 1 \(pid \d+\):\n(?s:.*)raise ValueError")

    def test_death_names_the_rank(self):
        with self.assertRaisesRegex(hearth.PeerLost, r"rank 1 \(pid \d+\) was killed by signal 9") as caught:
            hearth.launch(one_fails, 3, lambda: os.kill(os.getpid(), signal.SIGKILL), timeout=SECONDS)
        self.assertEqual((caught.exception.peer, caught.exception.reason), (1, "peer_closed"))

    def test_exits(self):
        self.assertEqual(hearth.launch(sys.exit, 2), [None, None])
        with self.assertRaisesRegex(hearth.PeerLost, r"rank 0 .* called sys.exit\(3\)"):
            hearth.launch(sys.exit, 1, 3)
        with self.assertRaisesRegex(hearth.PeerLost, r"rank 0 .* exit status 4 before its function did"):
            hearth.launch(os._exit, 1, 4)

    def test_what_cannot_be_pickled(self):
        with self.assertRaisesRegex(TypeError, "cannot be pickled"):
            hearth.launch(lambda: threading.Lock(), 1)

        def odd():
            raise Odd(1, 2)
        with self.assertRaises(TypeError):
            pickle.loads(pickle.dumps(Odd(1, 2)))
        with self.assertRaisesRegex(RuntimeError, "Odd: 1") as caught:
            hearth.launch(odd, 1)
        self.assertIn("raise Odd(1, 2)", str(caught.exception.__cause__))

    def test_timeout_names_who_is_late(self):
        def work():
            if os.environ["RANK"] == "1":
                time.sleep(SECONDS)

        with self.assertRaisesRegex(TimeoutError, r"rank 1 \(pid \d+\) had not finished after 1.0 s$"):
            hearth.launch(work, 2, timeout=1.0)

    def test_who_does_not_want_to_end(self):
        def work():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(1)

        with self.assertRaises(TimeoutError):
            hearth.launch(work, 2, timeout=0.5)

    def test_ctrl_c(self):
        def work(parent):
            if os.environ["RANK"] == "0":
                os.kill(parent, signal.SIGINT)
            time.sleep(SECONDS)

        with self.assertRaises(KeyboardInterrupt):
            hearth.launch(work, 2, os.getpid())

    def test_a_grandchild_holds_the_pipe(self):
        """The death of a child is seen though a process of its own lives on."""
        with tempfile.TemporaryDirectory() as directory:
            note = Path(directory) / "pid"

            def work():
                pid = os.fork()
                if pid == 0:
                    time.sleep(SECONDS)
                    os._exit(0)
                note.write_text(str(pid))
                os.kill(os.getpid(), signal.SIGKILL)

            with self.assertRaisesRegex(hearth.PeerLost, "killed by signal 9"):
                hearth.launch(work, 1)
            os.kill(int(note.read_text()), signal.SIGKILL)

    def test_the_parent_is_killed(self):
        """Its children end too: they hold the write end of a pipe of which we then read the end."""
        program = ("import hearth, os, time\n"
                   "def work():\n"
                   "    os.write(1, b'ready\\n')\n"
                   "    time.sleep(1000)\n"
                   "hearth.launch(work, 2)\n")
        with subprocess.Popen([sys.executable, "-B", "-c", program], stdout=subprocess.PIPE, text=True) as parent:
            said = [parent.stdout.readline() for _ in range(2)]
            parent.kill()
            self.assertEqual(said, ["ready\n"] * 2)
            self.assertEqual(parent.stdout.read(), "")

    def test_bad_arguments(self):
        for count in (0, -1):
            with self.assertRaisesRegex(hearth.Invalid, "processes is"):
                hearth.launch(total, count)
