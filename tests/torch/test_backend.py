# SPDX-License-Identifier: Apache-2.0
"""Backend "hearth" of torch.distributed: every collective, on every type and shape, against gloo or plain arithmetic."""

import time
import unittest
from functools import reduce as fold

import torch
import torch.distributed as dist

import rank_processes
import hearth
import hearth.torch
from alike import same, strided

rank_processes.need_extension()

MOVED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
         torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128]
GLOO = [torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (0, 4), (2, 3, 4)]


def make(dtype, shape, seed):
    """The same numbers on every rank that asks; small enough that no sum of them is rounded."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, 5, shape, generator=generator)
    return numbers.to(dtype) if dtype is not torch.bool else numbers > 2


def each_case(dtypes):
    for dtype in dtypes:
        for shape in SHAPES:
            for form in (torch.Tensor.contiguous, strided):
                yield dtype, shape, form, f"{dtype} {shape} {form.__name__}"


def inputs(dtype, shape, form):
    """What all ranks give, and what this one gives."""
    every = [make(dtype, shape, rank) for rank in range(dist.get_world_size())]
    return every, form(every[dist.get_rank()].clone())


def empties(like, count, form=torch.Tensor.contiguous):
    return [form(torch.zeros_like(like, memory_format=torch.contiguous_format)) for _ in range(count)]


# ---- what ranks do ----

def moves():
    size, rank = dist.get_world_size(), dist.get_rank()
    for dtype, shape, form, what in each_case(MOVED):
        every, own = inputs(dtype, shape, form)
        root = len(what) % size
        moved = form(own.clone())
        dist.broadcast(moved, root)
        same(moved, every[root], f"broadcast {what}")
        gathered = empties(own, size, form)
        dist.all_gather(gathered, own)
        same(gathered, every, f"all_gather {what}")
        gathered = empties(own, size, form) if rank == root else None
        dist.gather(own, gathered, root)
        same(gathered or [], every if rank == root else [], f"gather {what}")
        scattered = empties(own, 1, form)[0]
        dist.scatter(scattered, [form(tensor) for tensor in every] if rank == root else None, root)
        same(scattered, every[rank], f"scatter {what}")
        exchanged = empties(own, size, form)
        dist.all_to_all(exchanged, [own] * size)
        same(exchanged, every, f"all_to_all {what}")


def moves_of_whole_tensors():
    size, rank = dist.get_world_size(), dist.get_rank()
    for dtype in MOVED:
        every = [make(dtype, (size * 2, 3), seed) for seed in range(size)]
        whole = torch.zeros(size * size * 2, 3, dtype=dtype)
        if not dtype.is_complex:
            dist.all_gather_into_tensor(whole, every[rank])
            same(whole, torch.cat(every), f"all_gather_into_tensor {dtype}")
        place = whole[rank * size * 2:(rank + 1) * size * 2]  # in place
        place.copy_(every[rank])
        dist.all_gather(list(whole.chunk(size)), place)
        same(whole, torch.cat(every), f"all_gather in place {dtype}")
        swapped = torch.zeros_like(every[rank])
        dist.all_to_all_single(swapped, every[rank])
        same(swapped, torch.cat([tensor.chunk(size)[rank] for tensor in every]), f"all_to_all_single {dtype}")
        swapped = every[rank].clone()
        dist.all_to_all_single(swapped, swapped)
        same(swapped, torch.cat([tensor.chunk(size)[rank] for tensor in every]), f"all_to_all in place {dtype}")


def coalesced_moves():
    """Types differ within one call, and so do their alignments."""
    size, rank = dist.get_world_size(), dist.get_rank()
    kinds = [(torch.bool, (3,)), (torch.float64, (2, 2)), (torch.int16, ()), (torch.float32, (5,))]
    every = [[make(dtype, shape, 10 * member + i) for i, (dtype, shape) in enumerate(kinds)] for member in range(size)]
    group = dist.distributed_c10d._get_default_group()  # torch's function takes one type only, the class takes all
    for form in (torch.Tensor.contiguous, strided):
        outputs = [[form(torch.zeros_like(tensor)) for tensor in member] for member in every]
        group.allgather_coalesced(outputs, [form(tensor) for tensor in every[rank]]).wait()
        same(outputs, every, "all_gather_coalesced")
    outputs = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(outputs, [torch.full((2,), rank + 1.), torch.full((3,), rank + 2.)])
    same(outputs, [[torch.full((2,), i + 1.), torch.full((3,), i + 2.)] for i in range(size)], "of one type")


def uneven():
    size, rank = dist.get_world_size(), dist.get_rank()
    lengths = [member * 2 for member in range(size)]  # rank 0 has nothing
    every = [make(torch.int64, (length, 3), seed) for seed, length in enumerate(lengths)]
    gathered = [torch.zeros(length, 3, dtype=torch.int64) for length in lengths]
    dist.all_gather(gathered, every[rank])
    same(gathered, every, "uneven all_gather")
    full = [make(torch.int64, (sum(lengths), 3), seed) for seed in range(size)]
    own = torch.zeros(lengths[rank], 3, dtype=torch.int64)
    dist.reduce_scatter(own, list(full[rank].split(lengths)))
    same(own, sum(full).split(lengths)[rank], "uneven reduce_scatter")
    give = [[(member + other) % 3 for other in range(size)] for member in range(size)]  # rows from each to each
    rows = [make(torch.float32, (sum(give[member]), 2), member) for member in range(size)]
    take = [give[member][rank] for member in range(size)]
    for backend in ("hearth", "gloo"):
        out = torch.zeros(sum(take), 2)
        group = None if backend == "hearth" else dist.new_group(backend="gloo")
        dist.all_to_all_single(out, rows[rank], take, give[rank], group=group)
        same(out, torch.cat([rows[member].split(give[member])[rank] for member in range(size)]), backend)
    outputs = [torch.zeros(count, 2) for count in take]
    dist.all_to_all(outputs, list(rows[rank].split(give[rank])))
    same(torch.cat(outputs), out, "uneven all_to_all")


def reductions():
    gloo = dist.new_group(backend="gloo")
    size, rank = dist.get_world_size(), dist.get_rank()
    for dtype, shape, form, what in each_case(GLOO):
        for op in OPS:
            every, own = inputs(dtype, shape, form)
            expected, found = own.contiguous().clone(), form(own.clone())
            if expected.numel():
                dist.all_reduce(expected, op, group=gloo)
            dist.all_reduce(found, op)
            same(found, expected, f"all_reduce {what} {op}")
            root, found = len(what) % size, form(own.clone())
            dist.reduce(found, root, op)
            same(found, expected if rank == root else own, f"reduce {what} {op}")


def reductions_without_gloo():
    size, rank = dist.get_world_size(), dist.get_rank()
    for dtype, shape, form, what in each_case([torch.bfloat16, torch.complex64, torch.bool, torch.int32]):
        every, own = inputs(dtype, shape, form)
        expected = fold(torch.add, every)
        summed = form(own.clone())
        dist.all_reduce(summed)
        same(summed, expected, f"all_reduce {what}")
        scattered = form(torch.zeros_like(own, memory_format=torch.contiguous_format))
        if dtype.is_complex:
            continue  # torch itself takes them apart for all_reduce only
        dist.reduce_scatter(scattered, [form(own + member) if dtype is not torch.bool else own
                                        for member in range(size)])
        plus = size * rank if dtype is not torch.bool else False
        same(scattered, (expected + plus).to(dtype), f"reduce_scatter {what}")
    flags = [torch.tensor([True, False, member == 0]) for member in range(size)]
    for op, combine in ((dist.ReduceOp.BAND, torch.logical_and), (dist.ReduceOp.BOR, torch.logical_or),
                        (dist.ReduceOp.PRODUCT, torch.logical_and)):
        found = flags[rank].clone()
        dist.all_reduce(found, op)
        same(found, fold(combine, flags), "all_reduce bool")
    for dtype in (torch.float32, torch.float16, torch.int64):
        mean = torch.full((9,), rank * 2).to(dtype)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        same(mean, torch.full((9,), size - 1).to(dtype), f"average {dtype}")
    own = torch.zeros(3)
    dist.reduce_scatter_tensor(own, torch.arange(3. * size))
    same(own, torch.arange(3. * rank, 3. * rank + 3) * size, "reduce_scatter_tensor")


def coalesced_reductions():
    size, rank = dist.get_world_size(), dist.get_rank()
    tensors = [torch.full((3, 2), rank + 1.), strided(torch.arange(4.)), torch.tensor(float(rank))]
    dist.all_reduce_coalesced(tensors)
    total = size * (size + 1) / 2
    same(tensors, [torch.full((3, 2), total), torch.arange(4.) * size, torch.tensor(total - size)], "coalesced")


def futures():
    size, rank = dist.get_world_size(), dist.get_rank()
    tensor = strided(torch.full((1000,), float(rank)))
    work = dist.all_reduce(tensor, async_op=True)
    total = torch.full((1000,), size * (size - 1) / 2)
    found = work.get_future().then(lambda future: future.value()[0] * 2).wait()
    same(found, total * 2, "then")
    assert work.is_completed() and work.is_success() and work.wait()
    same(work.get_future().wait(), [total], "a future that comes late")
    same(work.result(), [total], "result")
    works = [dist.all_reduce(torch.full((100,), float(i)), async_op=True) for i in range(50)]
    for i, work in reversed(list(enumerate(works))):
        work.wait()
        same(work.result(), [torch.full((100,), float(i * size))], "many at once")

    def again(future):  # a callback may wait for further works, and that one's callback too
        value = future.value()[0]
        if value[0] > 1000:
            return value
        return dist.all_reduce(value.clone(), async_op=True).get_future().then(again).wait()
    deep = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(again).wait()
    while torch.is_tensor(deep) and deep[0] > size:
        deep = deep / size
    same(deep, torch.full((3,), float(size)), "callbacks that wait")


def forgotten():
    """Nobody waits, nobody holds the work: it is carried out all the same."""
    tensors = [torch.ones(1000) for _ in range(20)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    deadline = time.monotonic() + 20
    while not all(tensor[0] == dist.get_world_size() for tensor in tensors):
        assert time.monotonic() < deadline, [tensor[0].item() for tensor in tensors]
        time.sleep(0.01)


def wait_that_runs_out():
    from datetime import timedelta
    rank = dist.get_rank()
    if rank == 0:
        work = dist.barrier(async_op=True)
        try:
            work.wait(timedelta(milliseconds=50))
            raise AssertionError("the barrier ended without rank 1")
        except TimeoutError as error:
            assert "rank 0" in str(error) and "goes on" in str(error), error
        torch.ones(1)
        hold = dist.new_group(backend="gloo")
        dist.barrier(group=hold)
        assert work.wait()
    else:
        hold = dist.new_group(backend="gloo")
        dist.barrier(group=hold)
        dist.barrier()


def groups():
    size, rank = dist.get_world_size(), dist.get_rank()
    even, odd = dist.new_group(range(0, size, 2)), dist.new_group(range(1, size, 2))
    mine = odd if rank % 2 else even
    tensor = torch.tensor([rank])
    dist.all_reduce(tensor, group=mine)
    assert tensor.item() == sum(range(rank % 2, size, 2)), tensor
    alone = [dist.new_group([member]) for member in range(size)][rank]
    dist.all_reduce(tensor, group=alone)
    dist.barrier(group=alone)
    backwards = dist.new_group([size - 1, 0])
    if rank in (0, size - 1):
        pair = [None, None]
        dist.all_gather_object(pair, rank, group=backwards)
        assert pair == [0, size - 1], pair  # torch sorts the ranks
        dist.broadcast(tensor, size - 1, group=backwards)
    dist.destroy_process_group(mine)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size
    assert dist.get_backend() == "hearth" and dist.get_rank(alone) == 0


def objects():
    size, rank = dist.get_world_size(), dist.get_rank()
    own = {"rank": rank, "text": "x" * rank * 100}
    everything = [None] * size
    dist.all_gather_object(everything, own)
    assert [one["rank"] for one in everything] == list(range(size)) and everything[rank] == own
    pair = ["a", {"b": 1}] if rank == 1 else [None, None]
    dist.broadcast_object_list(pair, 1)
    assert pair == ["a", {"b": 1}]
    found = [None] * size if rank == 0 else None
    dist.gather_object(own, found, 0)
    assert rank != 0 or [one["rank"] for one in found] == list(range(size))
    out = [None]
    dist.scatter_object_list(out, [str(i) for i in range(size)] if rank == 0 else None, 0)
    assert out == [str(rank)]
    dist.distributed_c10d._get_default_group().monitored_barrier()


def refusals():
    """Errors of arguments: nothing is sent, and the group goes on."""
    cases = [
        (hearth.Unsupported, "Short", lambda: dist.all_reduce(torch.ones(1, dtype=torch.int16))),
        (hearth.Unsupported, "BXOR", lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.BXOR)),
        (hearth.Unsupported, "AVG", lambda: dist.all_reduce(torch.ones(1, dtype=torch.bool), dist.ReduceOp.AVG)),
        (hearth.Unsupported, "dense", lambda: dist.broadcast(torch.ones(2).to_sparse(), 0)),
        (hearth.Invalid, "tensor size", lambda: dist.all_gather([torch.ones(3), torch.ones(3)], torch.ones(2))),
        (hearth.Invalid, "expected length 2, got 1", lambda: dist.all_gather([torch.ones(2)], torch.ones(2))),
        (hearth.Invalid, "Split", lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 1], [2, 2])),
        (hearth.Invalid, "equally", lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3))),
        (hearth.Invalid, "world_size times", lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2))),
    ]
    for kind, text, call in cases:
        try:
            call()
        except kind as error:
            assert text in str(error), (text, error)
        else:
            raise AssertionError(f"not refused: {text}")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == dist.get_world_size()


def leaves():
    """Tensors that require gradients, as modules have them."""
    for form in (torch.Tensor.contiguous, strided):
        leaf = form(torch.full((4,), float(dist.get_rank()))).detach().requires_grad_()
        dist.broadcast(leaf, 1)
        assert torch.equal(leaf.detach(), torch.ones(4)) and leaf.requires_grad


def large_and_apart():
    """Tensors that go through the memory adapter in several pieces, several operations in flight."""
    size, rank = dist.get_world_size(), dist.get_rank()
    count = 700001
    numbers = torch.arange(count, dtype=torch.float32)
    works, summed = [], [strided(numbers + rank + i) for i in range(4)]
    for tensor in summed:
        works.append(dist.all_reduce(tensor, async_op=True))
    gathered = [strided(torch.zeros(count)) for _ in range(size)]
    works.append(dist.all_gather(gathered, strided(numbers * (rank + 1)), async_op=True))
    for work in works:
        work.wait()
    for i, tensor in enumerate(summed):
        same(tensor, size * (numbers + i) + size * (size - 1) / 2, f"all_reduce {i}")
    same(gathered, [numbers * (i + 1) for i in range(size)], "all_gather")


class Collectives(unittest.TestCase):
    def test_large_tensors_that_are_not_in_a_row(self):
        rank_processes.run(2, large_and_apart)

    def test_moves_of_every_type_and_shape(self):
        rank_processes.run(2, moves)

    def test_moves_of_whole_tensors(self):
        for count in (2, 4):
            rank_processes.run(count, moves_of_whole_tensors)

    def test_coalesced_moves_of_different_types(self):
        rank_processes.run(4, coalesced_moves)

    def test_uneven_parts(self):
        rank_processes.run(4, uneven)

    def test_reductions_are_those_of_gloo(self):
        rank_processes.run(2, reductions)

    def test_reductions_that_gloo_does_not_have(self):
        for count in (2, 4):
            rank_processes.run(count, reductions_without_gloo)

    def test_coalesced_reductions(self):
        rank_processes.run(4, coalesced_reductions)

    def test_tensors_that_require_gradients(self):
        rank_processes.run(2, leaves)


class Life(unittest.TestCase):
    def test_futures_and_works(self):
        for count in (2, 4):
            rank_processes.run(count, futures)

    def test_works_that_nobody_holds(self):
        rank_processes.run(2, forgotten)

    def test_a_wait_that_runs_out_does_not_end_the_operation(self):
        rank_processes.run(2, wait_that_runs_out)

    def test_groups_of_some_ranks(self):
        rank_processes.run(4, groups)

    def test_objects(self):
        rank_processes.run(4, objects)

    def test_refused_calls_name_the_reason_and_harm_nothing(self):
        rank_processes.run(2, refusals)

    def test_a_world_of_one(self):
        for body in (moves, reductions_without_gloo, coalesced_moves, leaves_alone):
            rank_processes.run(1, body)


def leaves_alone():
    dist.barrier()
    assert dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()[0].tolist() == [1, 1]
