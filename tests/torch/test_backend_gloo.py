# SPDX-License-Identifier: Apache-2.0
"""Backend "hearth" where programs were written for gloo: error texts, bits, several tensors in a call, sparse tensors,
the profiler's events, time-outs. Gloo is asked beside it wherever it has an answer."""

import operator
import re
import unittest
from datetime import timedelta
from functools import reduce as fold

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rank_processes
import hearth
import hearth.torch

rank_processes.need_extension()


def pair():
    """The same ranks on both backends, as the classes behind torch's functions: those take lists."""
    return dist.distributed_c10d._get_default_group(), dist.new_group(backend="gloo")


def outcome(call):
    """What a call that fails says."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def options(kind, **fields):
    made = kind()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# ---- what ranks do ----

def texts():
    """Whatever gloo says of a wrong call, and more after it, is said here too, behind the operation's name."""
    ours, gloo = pair()
    size, rank = dist.get_world_size(), dist.get_rank()
    t1, t2, t3 = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    sparse = torch.ones(2).to_sparse()
    fill = size - 1

    def broadcast(tensors, root, place=0):
        return lambda g: g.broadcast(tensors, options(dist.BroadcastOptions, rootRank=root, rootTensor=place))

    def reduce(tensors, root, place=0):
        return lambda g: g.reduce(tensors, options(dist.ReduceOptions, rootRank=root, rootTensor=place))

    def gather(outputs, inputs, root=rank):
        return lambda g: g.gather(outputs, inputs, options(dist.GatherOptions, rootRank=root))

    def scatter(outputs, inputs, root=rank):
        return lambda g: g.scatter(outputs, inputs, options(dist.ScatterOptions, rootRank=root))

    other = (rank + 1) % size
    cases = [
        ("broadcast", broadcast([t1], -1)), ("broadcast", broadcast([t1], size)), ("broadcast", broadcast([t1], rank, -1)),
        ("broadcast", broadcast([t1], rank, 1)), ("broadcast", broadcast([], rank)), ("broadcast", broadcast([t1, t2], rank)),
        ("broadcast", broadcast([t1, t3], rank)), ("broadcast", broadcast([sparse], rank)),
        ("all_reduce", lambda g: g.allreduce([], dist.AllreduceOptions())),
        ("all_reduce", lambda g: g.allreduce([t1, t2], dist.AllreduceOptions())),
        ("all_reduce", lambda g: g.allreduce([t1, t3], dist.AllreduceOptions())),
        ("all_reduce", lambda g: g.allreduce([sparse], options(dist.AllreduceOptions, reduceOp=dist.ReduceOp.MAX))),
        ("all_reduce_coalesced", lambda g: g.allreduce_coalesced([], dist.AllreduceCoalescedOptions())),
        ("all_reduce_coalesced", lambda g: g.allreduce_coalesced([t1, t2], dist.AllreduceCoalescedOptions())),
        ("all_reduce_coalesced", lambda g: g.allreduce_coalesced([t3, sparse], dist.AllreduceCoalescedOptions())),
        ("all_reduce_coalesced", lambda g: g.allreduce_coalesced([sparse], dist.AllreduceCoalescedOptions())),
        ("reduce", reduce([t1], -1)), ("reduce", reduce([t1], size)), ("reduce", reduce([t1], rank, 1)),
        ("reduce", reduce([t1, t1], rank)),
        ("gather", gather([[t1] * size], [t1], -1)), ("gather", gather([[t1] * size], [], rank)),
        ("gather", gather([[t1] * size], [t1, t1])), ("gather", gather([], [t1])), ("gather", gather([[t1]] * 2, [t1])),
        ("gather", gather([[t1] * (size - 1)], [t1])), ("gather", gather([[t1] * fill + [t2]], [t1])),
        ("gather", gather([[t1] * fill + [t3]], [t1])), ("gather", gather([[t1] * size], [t1], other)),
        ("scatter", scatter([t1], [[t1] * size], -1)), ("scatter", scatter([], [[t1] * size])),
        ("scatter", scatter([t1, t1], [[t1] * size])), ("scatter", scatter([t1], [])),
        ("scatter", scatter([t1], [[t1] * (size + 1)])), ("scatter", scatter([t1], [[t1] * fill + [t2]])),
        ("scatter", scatter([t1], [[t1] * fill + [t3]])), ("scatter", scatter([t1], [[t1] * size], other)),
        ("all_gather", lambda g: g.allgather([[t1] * size], [])), ("all_gather", lambda g: g.allgather([], [t1])),
        ("all_gather", lambda g: g.allgather([[t1] * (size - 1)], [t1])),
        ("all_gather", lambda g: g.allgather([[t1] * (2 * size), [t1] * (2 * size)], [t1, t3])),
        ("all_gather", lambda g: g.allgather([[t1] * fill + [t2]], [t1])),
        ("all_gather_coalesced", lambda g: g.allgather_coalesced([[t1]], [])),
        ("all_gather_coalesced", lambda g: g.allgather_coalesced([[t1]], [t1])),
        ("all_gather_coalesced", lambda g: g.allgather_coalesced([[t1, t1]] * size, [t1])),
        ("all_gather_coalesced", lambda g: g.allgather_coalesced([[t3]] * size, [t1])),
        ("all_gather_coalesced", lambda g: g.allgather_coalesced([[t2]] * size, [t1])),
    ]
    for i, (name, call) in enumerate(cases):
        theirs = outcome(lambda: call(gloo).wait())
        words = re.sub(r"^ProcessGroupGloo::\w+: ", "", theirs).splitlines()[0].rstrip(".")
        own = outcome(lambda: call(ours).wait())
        words = re.sub(r"(tensor type|tensor size) at index .*", r"\1", words)  # gloo counts without the first one
        assert own.startswith(f"{name}: ") and words in own, (i, own, words)
    for op in ("BAND", "BOR", "BXOR"):
        own = outcome(lambda: dist.all_reduce(t1, getattr(dist.ReduceOp, op)))
        assert own.startswith(f"all_reduce: Cannot use ReduceOp.{op} with non-integral dtype"), own
    own = outcome(lambda: dist.reduce(t1, 0, dist.ReduceOp.BAND))
    assert own.startswith("reduce: Cannot use"), own
    dist.barrier()  # nothing was sent


def splits():
    """Gloo checks these too late, and its group hangs."""
    size = dist.get_world_size()
    for words, arguments in (("Tensor's dim 0 does not divide equally across group size", (torch.ones(size + 1),)),
                             ("Number of tensor splits not equal to group size", (torch.ones(2), [2], [1, 1])),
                             ("Split sizes doesn't match total dim 0 size", (torch.ones(2), [3] + [0] * (size - 1), None))):
        tensor, *rest = arguments
        own = outcome(lambda: dist.all_to_all_single(tensor.clone(), tensor, *rest))
        assert own.startswith("all_to_all_single: ") and words in own, own


def bits():
    gloo = dist.new_group(backend="gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for op, combine in ((dist.ReduceOp.BAND, operator.and_), (dist.ReduceOp.BOR, operator.or_),
                        (dist.ReduceOp.BXOR, operator.xor)):
        for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64):
            every = [torch.arange(100).mul(7 * member + 3).to(dtype) for member in range(size)]
            own, theirs = every[rank].clone(), every[rank].clone()
            dist.all_reduce(own, op)
            dist.all_reduce(theirs, op, group=gloo)
            assert torch.equal(own, theirs) and torch.equal(own, fold(combine, every)), (op, dtype)
        every = [torch.tensor([True, False, member == 0, member > 0]) for member in range(size)]
        own = every[rank].clone()
        dist.all_reduce(own, op)
        assert own.dtype is torch.bool and torch.equal(own, fold(combine, every)), (op, own)


def several():
    """Each of the tensors is a contribution of its own, or gets a copy of the result."""
    rank, size = dist.get_rank(), dist.get_world_size()
    found = []
    for group in pair():
        results = []
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.BAND,
                   dist.ReduceOp.BXOR):
            tensors = [torch.tensor([2 * rank + 1 + i, 6 - i], dtype=torch.int32) for i in range(2)]
            work = group.allreduce(tensors, options(dist.AllreduceOptions, reduceOp=op))
            results += [*work.get_future().wait(), *tensors]
        for place in range(2):
            tensors = [torch.tensor([10. * rank + i]) for i in range(2)]
            group.broadcast(tensors, options(dist.BroadcastOptions, rootRank=1, rootTensor=place)).wait()
            results += tensors
        inputs = [torch.tensor([10. * rank + i]) for i in range(2)]
        outputs = [[torch.zeros(1) for _ in range(2 * size)] for _ in inputs]
        lists = group.allgather(outputs, inputs).get_future().wait()
        assert [len(one) for one in lists] == [2 * size, 2 * size], lists
        results += lists[0] + lists[1] + outputs[0] + outputs[1]
        outputs = [[torch.zeros(1), torch.zeros(1)] for _ in range(size)]
        lists = group.allgather_coalesced(outputs, inputs).get_future().wait()
        results += [tensor for one in lists for tensor in one]
        found.append(torch.cat([tensor.double().flatten() for tensor in results]))
    assert torch.equal(*found), found
    text = outcome(lambda: pair()[0].allreduce([torch.ones(1)] * 2, options(dist.AllreduceOptions,
                                                                         reduceOp=dist.ReduceOp.AVG)))
    assert "one tensor a call for ReduceOp.AVG" in text, text


def sparse_of(rank, dtype, dense):
    """Entries that members share and entries of their own; rank 1 has one twice; rank 2 has none."""
    shape = (6, 4, *dense)
    places = [[], [], []] if rank == 2 else [[0, rank, 5, 0], [1, 2, 3, 1] if rank == 1 else [1, 2, 3, 0]]
    count = len(places[0])
    values = torch.arange(1, 1 + count * fold(operator.mul, dense, 1)).reshape(count, *dense).to(dtype) + rank
    return torch.sparse_coo_tensor(torch.tensor(places[:2], dtype=torch.int64).reshape(2, count), values, shape)


def sparse():
    rank, size = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
        for dense in ((), (3,)):
            own, theirs = sparse_of(rank, dtype, dense), sparse_of(rank, dtype, dense)
            dist.all_reduce(own)
            dist.all_reduce(theirs, group=gloo)
            total = sum(sparse_of(member, dtype, dense).to_dense() for member in range(size))
            assert own.is_sparse and torch.equal(own.to_dense(), total), (dtype, dense, own)
            assert torch.equal(own.to_dense(), theirs.to_dense()) and own.is_coalesced() == theirs.is_coalesced()
    group, both = pair()[0], [sparse_of(rank, torch.float32, ()) for _ in range(2)]
    work = group.allreduce(both, dist.AllreduceOptions())
    total = 2 * sum(sparse_of(member, torch.float32, ()).to_dense() for member in range(size))
    assert all(torch.equal(tensor.to_dense(), total) for tensor in [*work.get_future().wait(), *both])
    text = outcome(lambda: dist.all_reduce(torch.ones(3 + (rank == 1)).to_sparse()))
    told = [None] * size
    dist.all_gather_object(told, text)
    assert len(set(told)) == 1 and "Sparse dimensions do not match: rank 1 has Float [4]" in text, told


def sparse_training():
    torch.manual_seed(0)
    model = torch.nn.EmbeddingBag(50, 4, sparse=True, mode="sum")
    dense = torch.nn.EmbeddingBag(50, 4, mode="sum")
    dense.load_state_dict(model.state_dict())
    ddp = DistributedDataParallel(model), DistributedDataParallel(dense)
    for step in range(3):
        words = torch.tensor([[dist.get_rank(), step, 7], [1, 2, 40 - step]])
        for one in ddp:
            one.zero_grad()
            one(words).pow(2).sum().backward()
        assert model.weight.grad.is_sparse
        assert torch.allclose(model.weight.grad.to_dense(), dense.weight.grad)


def profiled():
    """Names and shapes of events, as gloo's."""
    rank, size = dist.get_rank(), dist.get_world_size()
    one, tall = torch.ones(3, 2), torch.ones(size * 2, 3)
    calls = {
        "all_reduce": ([[3, 2]], lambda g: dist.all_reduce(one.clone(), group=g)),
        "broadcast": ([[3, 2]], lambda g: dist.broadcast(one.clone(), 0, group=g)),
        "reduce": ([[3, 2]], lambda g: dist.reduce(one.clone(), 0, group=g)),
        "all_gather": ([[3, 2]], lambda g: dist.all_gather([one.clone() for _ in range(size)], one, group=g)),
        "gather": ([[3, 2]], lambda g: dist.gather(one, [one.clone() for _ in range(size)] if rank == 0 else None, 0,
                                                   group=g)),
        "scatter": ([[3, 2]] * size if rank == 0 else [],
                    lambda g: dist.scatter(one.clone(), [one] * size if rank == 0 else None, 0, group=g)),
        "all_to_all": ([[size * 2, 3]], lambda g: dist.all_to_all_single(tall.clone(), tall, group=g)),
        "sparse_all_reduce": (None, lambda g: dist.all_reduce(one.to_sparse(), group=g)),
        "barrier": ([], lambda g: dist.barrier(group=g)),
    }
    for title, (shapes, call) in calls.items():
        for backend, group in zip(("hearth", "gloo"), pair()):
            with torch.autograd.profiler.profile(record_shapes=True) as profile:
                call(group)
            events = [event for event in profile.function_events if event.name == f"{backend}:{title}"]
            assert len(events) == 1 and events[0].is_async, (backend, title, profile.function_events)
            assert shapes is None or events[0].input_shapes == shapes, (backend, title, events[0].input_shapes)
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce_coalesced([one.clone(), torch.ones(4)])
    assert [event.input_shapes for event in profile.function_events if event.name == "hearth:all_reduce"] == [[[3, 2], [4]]]


def timeouts():
    """Texts that programs look for, on the rank that waits and on the one that comes late; and no time at all."""
    rank = dist.get_rank()
    hold = dist.new_group(backend="gloo")
    short = dist.new_group(timeout=timedelta(seconds=2))
    if rank == 0:
        text = outcome(lambda: dist.barrier(group=short))
        assert re.search(" (Timed out|closed|timeout) ", text) and "timed out" in text, text
        work = dist.barrier(async_op=True)
        text = outcome(lambda: work.wait(timedelta(milliseconds=50)))
        assert " timeout " in text and "timed out" in text, text
    dist.barrier(group=hold)
    if rank == 1:
        text = outcome(lambda: dist.barrier(group=short))
        assert "timed out there" in text, text
        dist.barrier()
    else:
        work.wait()
    dist.barrier(group=hold)
    if rank == 0:
        barrier = options(dist.BarrierOptions, timeout=timedelta(0))  # not the default of half an hour
        error = outcome(lambda: dist.distributed_c10d._get_default_group().barrier(barrier).wait())
        assert "timeout of 0 ms" in error, error
    dist.barrier(group=hold)
    if rank == 1:
        outcome(dist.barrier)


class AsGloo(unittest.TestCase):
    def test_errors_of_arguments(self):
        rank_processes.run(2, texts)
        rank_processes.run(2, splits)

    def test_bits(self):
        rank_processes.run(3, bits)

    def test_several_tensors_in_a_call(self):
        rank_processes.run(3, several)

    def test_sparse_tensors(self):
        rank_processes.run(3, sparse)

    def test_sparse_gradients(self):
        rank_processes.run(2, sparse_training)

    @unittest.skipIf(rank_processes.in_python(), "the process group in Python records no events of its own")
    def test_profiler(self):
        rank_processes.run(2, profiled)

    def test_timeouts(self):
        rank_processes.run(2, timeouts)
