# SPDX-License-Identifier: Apache-2.0
"""The process group in Python: all tests of the one in C++, when it is chosen, and both kinds in one group."""

import os

os.environ["HEARTH_TORCH_PROCESS_GROUP"] = "python"  # before the tests are imported

import importlib.metadata  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import unittest  # noqa: E402
from unittest import mock  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import rank_processes  # noqa: E402
import test_backend  # noqa: E402
from alike import same  # noqa: E402
from hearth.torch import _backend, _work  # noqa: E402
from hearth.torch._process_group import PythonProcessGroup  # noqa: E402
from test_backend import Collectives, Life  # noqa: E402,F401
from test_backend_failure import Exit, Failure  # noqa: E402,F401
from test_backend_gloo import AsGloo  # noqa: E402,F401
from test_backend_training import Training  # noqa: E402,F401


def group():
    return dist.distributed_c10d._get_default_group()


# ---- what ranks do ----

def chosen():
    dist.init_process_group("hearth")
    return type(group()).__name__


def without_extension():
    _backend.places = lambda: []
    sys.modules.pop(_backend.MODULE, None)
    return chosen()


def other_version():
    """An extension for another torch is as good as none."""
    def refuse(module, path):
        raise ImportError("it was built for torch 9.9")
    sys.modules.pop(_backend.MODULE, None)
    _backend._check = refuse
    return chosen()


def both_kinds():
    """What members with C++ and members with Python send is the same."""
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, isinstance(group(), PythonProcessGroup))
    assert len(set(told)) == 2, told
    for body in (test_backend.moves, test_backend.moves_of_whole_tensors, test_backend.coalesced_moves,
                 test_backend.uneven, test_backend.reductions_without_gloo, test_backend.coalesced_reductions,
                 test_backend.objects):
        body()
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.eye(4)[rank % 4].to_sparse()
    dist.all_reduce(tensor)
    expected = sum(torch.eye(4)[member % 4] for member in range(size))
    assert torch.equal(tensor.to_dense(), expected), tensor


def single_tensors():
    """The forms of torch's own classes that take a tensor instead of a list, and an operation instead of options."""
    rank, size, ours = dist.get_rank(), dist.get_world_size(), group()
    gloo = dist.new_group(backend="gloo")
    found = []
    for one in (ours, gloo):
        own = torch.arange(4.) + rank
        results = [own.clone() for _ in range(3)]
        one.allreduce(results[0]).wait()
        one.allreduce(results[1], dist.ReduceOp.MAX).wait()
        one.broadcast(results[2], 1).wait()
        reduced = own.clone()
        one.reduce(reduced, 0, dist.ReduceOp.SUM).wait()
        results += [reduced] if rank == 0 else []
        gathered = [torch.zeros(4) for _ in range(size)]
        one.allgather(gathered, own).wait()
        results += gathered
        found.append(torch.stack(results))
    assert torch.equal(*found), found


def coalesced_of_torch_2():
    """Methods that torch 1.13 does not call, by hand."""
    rank, size, ours = dist.get_rank(), dist.get_world_size(), group()
    every = [[torch.full((2, 3), 10. * member), torch.arange(4.) + member] for member in range(size)]
    outputs = [torch.zeros(2 * size, 3), torch.zeros(4 * size)]
    ours.allgather_into_tensor_coalesced(outputs, every[rank]).wait()
    same(outputs, [torch.cat([one[i] for one in every]) for i in range(2)], "all_gather")
    inputs = [torch.arange(2. * size) + rank, torch.ones(3 * size)]
    outputs = [torch.zeros(2), torch.zeros(3)]
    ours.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    total = torch.arange(2. * size) * size + sum(range(size))
    same(outputs, [total[2 * rank:2 * rank + 2], torch.full((3,), float(size))], "reduce_scatter")
    ours.start_coalescing(torch.device("cpu"))
    tensors = [torch.ones(2), torch.ones(3)]
    for tensor in tensors:
        ours.allreduce([tensor])
    work = ours.end_coalescing(torch.device("cpu"))
    assert len(work.get_future().wait()) == 2 and work.wait() and work.is_completed()
    same(tensors, [torch.full((2,), float(size)), torch.full((3,), float(size))], "coalesced")


def works_that_only_torch_holds():
    """C++ drops the Python object of a work at once: what is defined in Python must not be lost with it."""
    _work.GRACE_SECONDS = -1.0  # works complete before torch waits for them
    for _ in range(100):
        tensors = [torch.full((1000,), float(dist.get_rank())) for _ in range(8)]
        dist._broadcast_coalesced(group(), tensors, 4096, 0)
        assert all(not tensor.any() for tensor in tensors)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    for _ in range(5):
        model.zero_grad()
        model(torch.ones(2, 10)).sum().backward()
    assert torch.equal(model.module.bias.grad, torch.full((10,), 2.)), model.module.bias.grad


def future_at_the_last_moment():
    """A watching thread has begun to complete a work when its future is asked for: what hangs on the future waits for
    another work, and somebody must watch for that one."""
    begun, asked, complete = threading.Event(), threading.Event(), _work.Work.complete

    def late(work):
        if threading.current_thread().name == "hearth.torch":
            begun.set()
            asked.wait(20)
        complete(work)

    def another(future):
        return dist.all_reduce(future.value()[0].clone(), async_op=True).get_future().wait()[0]

    _work.Work.complete = late
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert begun.wait(20)
    future = work.get_future().then(another)
    asked.set()
    assert torch.equal(future.wait(), torch.full((3,), dist.get_world_size() ** 2.)), future.value()


class Choice(unittest.TestCase):
    def one(self, body, **variables):
        (name,) = rank_processes.run(1, body, backend=None, **{"HEARTH_TORCH_PROCESS_GROUP": "auto", **variables})
        return name

    def test_python_where_there_is_no_extension(self):
        self.assertEqual(self.one(without_extension, HEARTH_TORCH_BACKEND=""), "PythonProcessGroup")

    def test_by_the_variable(self):
        self.assertEqual(self.one(chosen, HEARTH_TORCH_PROCESS_GROUP="python"), "PythonProcessGroup")
        with self.assertRaisesRegex(rank_processes.RankFailed, "'rust'; it takes auto, cpp, python"):
            self.one(chosen, HEARTH_TORCH_PROCESS_GROUP="rust")

    def test_by_the_entry_point(self):
        """Torch has not registered it twice, and could call it again."""
        point = importlib.metadata.EntryPoint("hearth", "hearth.torch._backend:register", "torch.distributed.backends")
        point.load()()
        self.assertEqual(dist.Backend("hearth"), "hearth")

    def test_torch_2_is_told_the_devices(self):
        told = []

        class Backend:
            @classmethod
            def register_backend(cls, name, function, extended_api=False, devices=None):
                told.append((name, function, devices))

        with mock.patch.multiple(_backend.dist, Backend=Backend, monitored_barrier=None), \
                mock.patch.object(dist.distributed_c10d, "monitored_barrier"):
            _backend.register()
        self.assertEqual(told, [("hearth", _backend.create, ["cpu", "cuda"])])

    @unittest.skipIf(rank_processes.extension_is_missing(), "the extension is not built")
    def test_cpp_where_it_fits(self):
        self.assertEqual(self.one(chosen), "ProcessGroupHearth")
        self.assertEqual(self.one(other_version, HEARTH_TORCH_BACKEND=""), "PythonProcessGroup")

    @unittest.skipIf(rank_processes.extension_is_missing(), "the extension is not built")
    def test_both_kinds_in_one_group(self):
        rank_processes.run(3, both_kinds, HEARTH_TORCH_PROCESS_GROUP=lambda rank: ("cpp", "python")[rank % 2])


class OfPython(unittest.TestCase):
    def test_single_tensors(self):
        rank_processes.run(2, single_tensors)

    def test_coalesced_forms_of_torch_2(self):
        rank_processes.run(3, coalesced_of_torch_2)

    def test_a_future_that_is_asked_for_at_the_last_moment(self):
        rank_processes.run(2, future_at_the_last_moment)

    def test_works_that_only_torch_holds(self):
        rank_processes.run(2, works_that_only_torch_holds)
