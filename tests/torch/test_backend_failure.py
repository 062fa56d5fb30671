# SPDX-License-Identifier: Apache-2.0
"""Backend "hearth" when things go wrong: dead ranks, mismatched calls, deadlines, Ctrl-C, exits, a missing extension."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rank_processes
import hearth
import hearth.torch

rank_processes.need_extension()

SCRIPT = Path(__file__).with_name("train_with_backend.py")
VICTIM = 1


def raised(call):
    """What the call raises; it must raise."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def tell(word):
    """By the store, which works without the group."""
    dist.distributed_c10d._get_default_store().set(word, "")


def hear(word):
    dist.distributed_c10d._get_default_store().wait([word], timedelta(seconds=30))


def names_victim(error):
    """An error that came by torch's future. With the process group in Python torch has made a text of it."""
    if rank_processes.in_python():
        return "PeerLost: " in str(error) and f"rank {VICTIM} is lost" in str(error)
    return isinstance(error, hearth.Error) and error.peer == VICTIM and f"rank {VICTIM}" in str(error)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


# ---- what ranks do ----

def dead_in_a_collective():
    dist.all_reduce(torch.ones(10))
    if dist.get_rank() == VICTIM:
        die()
    error = raised(lambda: [dist.all_reduce(torch.ones(1000)) for _ in range(100)])
    assert isinstance(error, hearth.Error) and f"rank {VICTIM}" in str(error), repr(error)
    assert error.rank == dist.get_rank() and error.peer == VICTIM, (error.rank, error.peer, error)
    assert error.reason == "peer_closed", (error.reason, error)
    again = raised(lambda: dist.barrier())
    assert isinstance(again, hearth.Error) and f"rank {VICTIM}" in str(again), repr(again)
    dist.destroy_process_group()  # without the barrier of those that are well
    return type(error).__name__


def dead_behind_a_future():
    if dist.get_rank() == VICTIM:
        hear("started")  # an operation of a broken group would not start
        die()
    future = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
    tell("started")
    error = raised(lambda: future.then(lambda done: done.value()).wait())
    assert f"rank {VICTIM}" in str(error), repr(error)
    error = raised(future.wait)
    assert names_victim(error), repr(error)
    dist.destroy_process_group()  # without the barrier of those that are well


def dead_in_training():
    ddp = DistributedDataParallel(torch.nn.Linear(100, 100))

    def steps():
        for step in range(100):
            if step == 3 and dist.get_rank() == VICTIM:
                die()
            ddp(torch.ones(2, 100)).sum().backward()
    error = raised(steps)
    assert names_victim(error), repr(error)
    dist.destroy_process_group()  # without the barrier of those that are well


def mismatch():
    """Everybody is told, and the group goes on."""
    rank = dist.get_rank()
    calls = [
        lambda: dist.all_reduce(torch.ones(10 + rank)),
        lambda: dist.all_reduce(torch.ones(10, dtype=torch.float64 if rank else torch.float32)),
        lambda: dist.all_reduce(torch.ones(10), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM),
        lambda: dist.barrier() if rank else dist.all_reduce(torch.ones(3)),
    ]
    for call in calls:
        error = raised(call)
        assert isinstance(error, hearth.Mismatch) and "rank 1" in str(error), repr(error)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0].item() == dist.get_world_size()


def deadline():
    rank = dist.get_rank()
    short = dist.new_group(timeout=timedelta(seconds=2))  # it is made within this time, too
    if rank == 0:
        error = raised(lambda: dist.all_reduce(torch.ones(1), group=short))
        assert isinstance(error, hearth.Timeout) and isinstance(error, TimeoutError), repr(error)
        assert "rank 1" in str(error), error
    dist.barrier()
    if rank == 0:
        options = dist.BarrierOptions()
        options.timeout = timedelta(milliseconds=300)
        error = raised(dist.distributed_c10d._get_default_group().barrier(options).wait)
        assert isinstance(error, hearth.Timeout) and "rank 1" in str(error), repr(error)
        tell("time is over")
    else:
        hear("time is over")
        error = raised(dist.barrier)  # learns of it there
        assert isinstance(error, hearth.Error) and "rank 0" in str(error), repr(error)
    dist.barrier()


def interrupted():
    if dist.get_rank() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()  # in the wait, on busy machines too
            dist.all_reduce(torch.ones(1))
            raise AssertionError("the interrupt was not seen")
        except KeyboardInterrupt:
            tell("interrupted")
    else:
        hear("interrupted")
        error = raised(lambda: dist.all_reduce(torch.ones(1)))
        assert isinstance(error, hearth.Aborted) and "rank 0" in str(error), repr(error)
    dist.barrier()


def destroyed_in_flight():
    """Rank 0 leaves while an operation waits for rank 1: both are told."""
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        future, store = work.get_future(), dist.distributed_c10d._get_default_store()
        dist.destroy_process_group()
        error = raised(work.wait)
        assert isinstance(error, hearth.OperationError), repr(error)
        late = raised(future.wait)
        assert type(late) is type(error) or rank_processes.in_python() and type(error).__name__ in str(late), repr(late)
        store.set("gone", "")
        store.wait(["understood"], timedelta(seconds=30))  # the store lives here
    else:
        store = dist.distributed_c10d._get_default_store()
        hear("gone")
        error = raised(lambda: [dist.all_reduce(torch.ones(1)) for _ in range(3)])
        assert isinstance(error, hearth.Error) and "rank 0" in str(error), repr(error)
        store.set("understood", "")
        dist.destroy_process_group()


def after_the_end():
    dist.barrier()
    group = dist.distributed_c10d._get_default_group()
    dist.destroy_process_group()
    group.shutdown()
    error = raised(lambda: group.allreduce([torch.ones(1)]))
    assert isinstance(error, hearth.Closed), repr(error)


def while_others_wait():
    """A thread that waits does not hold the interpreter."""
    if dist.get_rank() == 0:
        counted, thread = [0], threading.Thread(target=dist.barrier)
        thread.start()
        while thread.is_alive() and counted[0] < 1000:
            counted[0] += 1
            time.sleep(0)
        assert counted[0] == 1000, "the thread in the barrier kept the others from running"
        dist.all_reduce(torch.ones(1), group=dist.new_group(backend="gloo"))
        thread.join()
    else:
        dist.all_reduce(torch.ones(1), group=dist.new_group(backend="gloo"))
        dist.barrier()


def many_threads():
    """Works of several groups, from several threads, some waited for, some by future, some forgotten."""
    groups, bad = [dist.new_group() for _ in range(4)], []

    def work(group):
        try:
            for i in range(200):
                tensor = torch.full((100,), 1.0)
                pending = dist.all_reduce(tensor, group=group, async_op=True)
                if i % 3 == 0:
                    pending.wait()
                elif i % 3 == 1:
                    pending.get_future().wait()
                if i % 3 < 2:
                    assert tensor[99] == dist.get_world_size(), tensor
            dist.barrier(group=group)
        except BaseException as error:
            bad.append(error)

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad, bad


class Failure(unittest.TestCase):
    def test_a_killed_rank_is_named_by_the_others(self):
        for count in (2, 4):
            found = rank_processes.run(count, dead_in_a_collective, dead=(VICTIM,))
            self.assertIn("PeerLost", found)

    def test_a_killed_rank_behind_a_future(self):
        rank_processes.run(2, dead_behind_a_future, dead=(VICTIM,))

    def test_a_killed_rank_in_the_backward_pass(self):
        rank_processes.run(4, dead_in_training, dead=(VICTIM,))

    def test_mismatched_calls(self):
        rank_processes.run(2, mismatch)

    def test_deadlines_name_who_was_waited_for(self):
        rank_processes.run(2, deadline)

    def test_control_c_ends_a_wait_and_tells_the_others(self):
        rank_processes.run(2, interrupted)

    def test_destroying_a_group_ends_what_is_in_flight(self):
        rank_processes.run(2, destroyed_in_flight)

    def test_calls_after_the_end(self):
        rank_processes.run(2, after_the_end)

    def test_waiting_leaves_python_to_other_threads(self):
        rank_processes.run(2, while_others_wait)

    def test_many_threads_and_groups(self):
        rank_processes.run(2, many_threads)


class Exit(unittest.TestCase):
    def script(self, how, **variables):
        paths = [str(Path(hearth.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1",
                       "MASTER_ADDR": "127.0.0.1", **variables}
        return subprocess.Popen([sys.executable, "-B", SCRIPT, how], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def ends(self, *processes):
        """Exit status and output of each."""
        try:
            return [(process.communicate(timeout=rank_processes.SECONDS)[0], process.returncode) for process in processes]
        finally:
            for process in processes:
                process.kill()

    def test_without_destroy_process_group(self):
        """Also with operations under way, alone and in a pair: the interpreters end, and nothing bad is printed."""
        for how in ("leave", "leave_in_flight"):
            port = str(rank_processes.free_port())
            pair = [self.script(how, RANK=str(rank), WORLD_SIZE="2", MASTER_PORT=port) for rank in range(2)]
            self.assertEqual(self.ends(*pair), [("trained\n", 0)] * 2, how)

    def test_a_missing_extension_that_was_asked_for(self):
        process = self.script("leave", RANK="0", WORLD_SIZE="1", HEARTH_TORCH_BACKEND="/nowhere/hearth_backend.so",
                              HEARTH_TORCH_PROCESS_GROUP="cpp", MASTER_PORT=str(rank_processes.free_port()))
        (output, status), = self.ends(process)
        self.assertEqual(status, 1)
        for word in ("ImportError", "/nowhere/hearth_backend.so", "HEARTH_TORCH=ON", "python3-torch"):
            self.assertIn(word, output)
