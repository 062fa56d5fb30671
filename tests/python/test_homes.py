# SPDX-License-Identifier: Apache-2.0
"""Home clusters from Python: nodes that find each other by a seed on this machine, groups formed and formed again."""

import gc
import os
import signal
import threading
import time
from array import array

from members import SECONDS, Script, Watched

import hearth

SECRET = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
SETTINGS = dict(discover="mdns", mdns="", secret=SECRET, key_file="fresh", bind="127.0.0.1", port=0,
                health="low-latency", form_timeout=30.0, op_timeout=20.0)


def cluster(count, **settings):
    """Nodes that know each other."""
    nodes = [hearth.open(**{**SETTINGS, **settings})]
    seed = f"127.0.0.1:{nodes[0].status()['self']['port']}"
    nodes += [hearth.open(seeds=[seed], **{**SETTINGS, **settings}) for _ in range(count - 1)]
    for node in nodes:
        node.wait_for_peers(count - 1)
    return nodes


def at_once(*functions):
    """Each in a thread of its own; their results. The first error is raised when all have ended."""
    results, errors = [None] * len(functions), []

    def work(place, function):
        try:
            results[place] = function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    if errors:
        raise errors[0]
    return results


def formed(nodes, job="train"):
    """Groups of all nodes. Only the last one insists on all of them; the others go on without it."""
    def join(node):
        deadline = time.monotonic() + SECONDS
        while node is not nodes[-1] and not node.status()["jobs"] and time.monotonic() < deadline:
            time.sleep(0.01)  # until the last one has asked
        return node.form(job, len(nodes) if node is nodes[-1] else 1)

    return at_once(*[lambda node=node: join(node) for node in nodes])


def total(group):
    """What all members sum up to, with 1 of each."""
    return group.all_reduce(array("i", [1]))[0]


class Homes(Watched):
    def setUp(self):
        super().setUp()
        self.nodes = []

    def tearDown(self):
        for node in self.nodes:
            node.close()
        super().tearDown()

    def up(self, count, **settings):
        self.nodes += cluster(count, **settings)
        return list(self.nodes)

    def test_closing_after_the_last_operation(self):
        """Whoever is done first closes at once; the others finish what they are at."""
        def once(node):
            with node.form("last", 3) as group:
                return group.all_reduce(array("f", [1.0]) * 2_000_000)[-1]

        nodes = self.up(3)
        for _ in range(5):
            self.assertEqual(at_once(*[lambda node=node: once(node) for node in nodes]), [3.0] * 3)

    def test_nodes_find_each_other_and_form_a_group(self):
        nodes = self.up(3)
        groups = formed(nodes)
        self.assertEqual(sorted((group.rank, group.size) for group in groups), [(0, 3), (1, 3), (2, 3)])
        groups.sort(key=lambda group: group.rank)
        self.assertEqual(at_once(*[lambda group=group: total(group) for group in groups]), [3, 3, 3])
        self.assertRegex(nodes[0].links(), r"^job train, rank \d of 3:\nrank 0  .*\nrank 1  .*\nrank 2  .*\n$")
        status = nodes[1].status()
        self.assertEqual(len(status["view"]["members"]), 3)
        ids = {member["id"] for member in status["view"]["members"]}
        member = groups[0].member(1)
        self.assertEqual((member.rank, member.id in ids, member.address, member.same_host),
                         (1, True, "127.0.0.1", True))
        self.assertEqual({groups[2].member(rank).id for rank in range(3)}, ids)
        with self.assertRaisesRegex(hearth.Invalid, "member: rank is 3"):
            groups[0].member(3)

    def test_groups_adapt_together(self):
        groups = formed(self.up(2))
        at_once(*[group.adapt for group in groups])
        self.assertEqual(at_once(*[lambda group=group: total(group) for group in groups]), [2, 2])
        waiting = groups[0].all_reduce_nb(array("i", [1]))

        def refused(group, error):
            with self.assertRaisesRegex(error, "in flight"):
                group.adapt()

        at_once(lambda: refused(groups[0], hearth.Invalid), lambda: refused(groups[1], hearth.Aborted))
        groups[1].all_reduce(array("i", [1]))
        waiting.result()
        with hearth.open(discover="off") as alone:
            alone.world.adapt()

    def test_the_same_group_object_goes_on_after_a_loss(self):
        first, second, third = formed(self.up(3))
        compressors = [hearth.Compressor(group, "int8", min_count=1, vectors=True) for group in (first, second, third)]
        gradients = [array("f", [group.rank + 0.1] * 300) for group in (first, second, third)]
        at_once(*[lambda pair=pair: pair[0].all_reduce("w", pair[1]) for pair in zip(compressors, gradients)])
        pairs = at_once(*[lambda group=group: group.split(0) for group in (first, second, third)])
        waiting = first.all_reduce_nb(array("i", [1]))
        third.close()
        self.assertIsInstance(waiting.exception(), hearth.ViewChanged)
        with self.assertRaises(hearth.ViewChanged):
            second.barrier()
        self.assertEqual([first.member(rank).completed for rank in range(3)], [0, 0, 0])
        again = at_once(first.reform, second.reform)
        self.assertTrue(all(first.member(rank).completed > 0 for rank in range(2)))
        self.assertIs(again[0], first)
        self.assertEqual(sorted((group.rank, group.size) for group in (first, second)), [(0, 2), (1, 2)])
        self.assertEqual(at_once(lambda: total(first), lambda: total(second)), [2, 2])
        self.assertIsInstance(waiting.exception(), hearth.ViewChanged)  # still, though its group's past is gone
        at_once(*[lambda pair=pair: pair[0].all_reduce("w", pair[1]) for pair in zip(compressors[:2], gradients)])
        self.assertEqual(gradients[0], gradients[1])
        self.assertEqual(compressors[0].stats().steps, 2)
        with self.assertRaises(hearth.Closed):
            pairs[0].barrier()
        with self.assertRaises(hearth.Closed):
            third.barrier()

    def test_a_sync_goes_on_with_the_next_group(self):
        groups = formed(self.up(3))
        syncs = [hearth.Sync(group, "none") for group in groups]
        buffers = [array("f", [1.0] * 64) for _ in groups]

        def step(place):
            buffers[place][0] = 1.0
            syncs[place].ready(0)
            syncs[place].wait()
            return buffers[place][0]

        for sync, buffer in zip(syncs, buffers):
            sync.add("w", buffer)
        self.assertEqual(at_once(*[lambda place=place: step(place) for place in range(3)]), [1.0] * 3)
        self.assertEqual(syncs[0].steps, 1)
        for place in range(2):
            buffers[place][0] = 5.0
            syncs[place].ready(0)
        groups[2].close()
        for place in range(2):
            with self.assertRaises(hearth.ViewChanged):
                syncs[place].wait()
            self.assertEqual(buffers[place][0], 5.0, "what stands in the buffer is the input")
        at_once(groups[0].reform, groups[1].reform)
        self.assertFalse(groups[0].behind or groups[1].behind)
        buffers[0][0] = 7.0
        at_once(syncs[0].wait, syncs[1].wait)  # sent as it stands now
        self.assertEqual((buffers[0][0], buffers[1][0], syncs[0].steps, syncs[1].steps), (6.0, 6.0, 2, 2))
        self.assertEqual(at_once(lambda: step(0), lambda: step(1)), [1.0, 1.0])

    def test_operations_in_flight_end_when_a_member_forms_again(self):
        first, second = formed(self.up(2))
        pending = first.all_reduce_nb(array("i", [1]))
        blocked = []

        def block():
            try:
                first.barrier(tag=7)
            except hearth.Error as error:
                blocked.append(error)

        thread = threading.Thread(target=block, daemon=True)
        thread.start()
        at_once(first.reform, second.reform)
        thread.join(SECONDS)
        self.assertIsInstance(pending.exception(), hearth.ViewChanged)
        self.assertIsInstance(blocked[0], hearth.ViewChanged)
        self.assertEqual(at_once(lambda: total(first), lambda: total(second)), [2, 2])

    def test_a_group_that_cannot_be_formed_again_can_be_tried_again(self):
        first, second = formed(self.up(2, form_timeout=0.5))
        with self.assertRaises(hearth.Timeout):
            first.reform()
        with self.assertRaises(hearth.ViewChanged):
            first.barrier()
        at_once(*[lambda group=group: patiently(group.reform) for group in (first, second)])
        self.assertEqual(at_once(lambda: total(first), lambda: total(second)), [2, 2])

    def test_closing_while_it_is_formed_again(self):
        first, second = formed(self.up(2, form_timeout=1.0))
        failed = []

        def again():
            try:
                first.reform()
            except hearth.Error as error:
                failed.append(error)

        thread = threading.Thread(target=again, daemon=True)
        thread.start()
        while not first._handle.moving and thread.is_alive():
            time.sleep(0.001)
        with self.assertRaisesRegex(hearth.Invalid, "reform: another thread"):
            first.reform()
        first.close()
        thread.join(SECONDS)
        self.assertIsInstance(failed[0], hearth.Timeout)
        with self.assertRaises(hearth.Closed):
            first.reform()
        second.close()

    def test_ctrl_c_leaves_the_forming_again(self):
        first, second = formed(self.up(2))

        def interrupt():
            while not first._handle.moving:
                time.sleep(0.001)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            threading.Thread(target=interrupt, daemon=True).start()
            first.reform()
        self.assertFalse(first._handle.moving)
        with self.assertRaises(hearth.ViewChanged):
            first.barrier()
        at_once(first.reform, second.reform)
        self.assertEqual(at_once(lambda: total(first), lambda: total(second)), [2, 2])

    def test_who_drops_a_group_leaves_it(self):
        groups = formed(self.up(2))
        kept = at_once(*[lambda group=group: group.split(0) for group in groups])
        last = groups.pop(0)
        del groups
        gc.collect()
        self.assertEqual(at_once(*[lambda group=group: total(group) for group in kept]), [2, 2])
        del kept
        gc.collect()
        with self.assertRaises(hearth.ViewChanged):
            last.barrier()

    def test_events(self):
        first, second = self.up(2)
        second.close()
        seen = []
        for event in first.events(timeout=10.0):
            seen.append(event.kind)
            if event.kind == "left":
                self.assertEqual(len(event.id), 64)
                break
        self.assertIn("joined", seen)
        self.assertIn("view", seen)
        list(first.events(timeout=0.0))
        threading.Timer(0.1, first.close).start()
        self.assertEqual([event.kind for event in first.events() if event.kind == "joined"], [])  # ends with the node

    def test_waiting_for_nobody_says_who_is_missing(self):
        [node] = self.up(1)
        with self.assertRaisesRegex(hearth.Timeout, "0 of 2 other members"):
            node.wait_for_peers(2, timeout=0.15)
        with self.assertRaises(hearth.Timeout):
            node.wait_for_peers(timeout=0)

    def test_bad_calls(self):
        [node] = self.up(1)
        for call in (lambda: node.form("", 1), lambda: node.form("a\nb", 1), lambda: node.form("a", 0),
                     lambda: node.form("a", 65), lambda: node.form("a", 1 << 40), lambda: node.wait_for_peers(-1),
                     lambda: node.wait_for_peers(1, -1.0), lambda: node.next_event(-1.0)):
            with self.assertRaises(hearth.Invalid):
                call()
        with self.assertRaises(hearth.Unsupported):
            node.world.reform()
        with hearth.open(discover="off") as alone:
            for call in (lambda: alone.form("a"), alone.wait_for_peers, alone.next_event, alone.status):
                with self.assertRaisesRegex(hearth.Unsupported, "home cluster"):
                    call()

    def test_ctrl_c_leaves_all_that_waits(self):
        code = f"""
import hearth, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
node = hearth.open(**{SETTINGS!r})
for wait in (lambda: node.form("lonely", 2), lambda: node.wait_for_peers(3), lambda: list(node.events())):
    try:
        print("ready", flush=True)
        wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(node.form("lonely", 1).size, flush=True)
"""
        with Script(code) as script:
            for _ in range(3):
                self.assertEqual(script.line(), "ready")
                time.sleep(0.2)
                os.kill(script.process.pid, signal.SIGINT)
                self.assertEqual(script.line(), "interrupted")
            self.assertEqual(script.line(), "1")  # and nobody wishes for two of them any more

    def test_interrupt_ends_what_others_wait_for(self):
        [node] = self.up(1)
        for wait in (lambda: node.form("lonely", 2), lambda: node.wait_for_peers(3), lambda: list(node.events())):
            waiting = Waiting(wait)
            while waiting.is_alive():
                node.interrupt()
                time.sleep(0.01)
            self.assertIsInstance(waiting.error, hearth.Cancelled)
        node.interrupt()
        self.assertEqual(node.form("lonely", 1).size, 1)

    def test_ctrl_c_in_one_thread_leaves_the_events_of_another(self):
        [node] = self.up(1)
        events = Waiting(lambda: list(node.events()))
        threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            node.form("lonely", 2)
        self.assertTrue(events.is_alive())
        node.close()
        events.join(SECONDS)
        self.assertIsNone(events.error)

    def test_closing_does_not_wait_for_those_who_form(self):
        [node] = self.up(1)
        forming = Waiting(lambda: node.form("lonely", 2))
        while not node._handle.users:
            time.sleep(0.001)
        node.close()
        self.assertIsNone(node._handle.address)  # not left to a thread in the background
        forming.join(SECONDS)
        self.assertIsInstance(forming.error, hearth.Closed)


class Waiting(threading.Thread):
    """A call in a thread, and the error that ends it."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.error = call, None
        self.start()

    def run(self):
        try:
            self.call()
        except hearth.Error as error:
            self.error = error


def patiently(function):
    """Both members try again and again, until their half seconds meet."""
    while True:
        try:
            return function()
        except hearth.Timeout:
            pass
