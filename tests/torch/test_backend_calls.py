# SPDX-License-Identifier: Apache-2.0
"""Everything that torch.distributed asks of a backend for the CPU, with 2, 3 and 4 processes, for both process groups of
backend "hearth", in C++ and in Python. Gloo is asked beside them wherever it has an answer."""

import os
import signal
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn

import rank_processes
import hearth
import hearth.torch
from alike import same, strided

COUNTS = (2, 3, 4)
KINDS = ["python"] if rank_processes.extension_is_missing() else ["cpp", "python"]


def place():
    return dist.get_rank(), dist.get_world_size()


def default_group():
    return dist.distributed_c10d._get_default_group()


def raised(call):
    """What the call raises; it must raise."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def by_both(body):
    """body(group) gives the same on hearth and on gloo."""
    gloo = dist.new_group(backend="gloo")
    ours, theirs = body(default_group()), body(gloo)
    assert type(ours) is type(theirs)
    same(ours, theirs, body.__name__)


def tensor_of(rank, seed=0, dtype=torch.float32):
    return torch.randint(0, 100, (5, 3), generator=torch.Generator().manual_seed(1000 * seed + rank)).to(dtype)


# ---- collectives ----

def moves(group):
    rank, size = place()
    own, found = tensor_of(rank), []
    moved = own.clone()
    dist.broadcast(moved, size - 1, group=group)
    gathered = [torch.zeros(5, 3) for _ in range(size)]
    dist.all_gather(gathered, own, group=group)
    found += [moved, *gathered]
    gathered = [torch.zeros(5, 3) for _ in range(size)] if rank == 1 else None
    dist.gather(own, gathered, 1, group=group)
    found += gathered or []
    scattered = torch.zeros(5, 3)
    dist.scatter(scattered, [tensor_of(i, 1) for i in range(size)] if rank == 0 else None, 0, group=group)
    swapped, give = torch.zeros(size * 2, 3), tensor_of(rank, 2).repeat(size, 1)[:size * 2]
    dist.all_to_all_single(swapped, give.contiguous(), group=group)
    lists = [[torch.zeros(5, 3), torch.zeros(2)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [own, own[0, :2].clone()], group=group)
    return found + [scattered, swapped, *(tensor for one in lists for tensor in one)]


def reductions(group):
    rank, size = place()
    found = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.BXOR):
        for dtype in (torch.int64, torch.int32, torch.uint8):
            summed = tensor_of(rank, 3, dtype)
            dist.all_reduce(summed, op, group=group)
            reduced = tensor_of(rank, 4, dtype)
            dist.reduce(reduced, size - 1, op, group=group)
            found += [summed, reduced] if rank == size - 1 else [summed]
    together = [tensor_of(rank, 5), tensor_of(rank, 6)[0].clone()]
    dist.all_reduce_coalesced(together, group=group)
    sparse = tensor_of(rank, 7).to_sparse()
    dist.all_reduce(sparse, group=group)
    work = dist.all_reduce(tensor_of(rank, 8), group=group, async_op=True)
    dist.barrier(group=group)
    work.wait()
    return found + together + [sparse.to_dense()] + work.result()


def objects(group):
    rank, size = place()
    own, told = {"rank": rank, "text": "x" * 100 * rank}, [None] * size
    dist.all_gather_object(told, own, group=group)
    pair = [rank, {"b": [rank]}] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(pair, size - 1, group=group)
    found = [None] * size if rank == 0 else None
    dist.gather_object(own, found, 0, group=group)
    out = [None]
    dist.scatter_object_list(out, [str(i) * i for i in range(size)] if rank == 1 else None, 1, group=group)
    text = repr((told, pair, found, out)).encode()
    return [torch.tensor(list(text), dtype=torch.uint8)]


def with_gradients(group):
    """torch.distributed.nn: the collectives that autograd knows."""
    rank, size = place()
    own = tensor_of(rank, 9).requires_grad_()
    total = dist.nn.all_reduce(own * 2, group=group)
    parts = dist.nn.all_gather(own * 3, group=group)
    swapped = dist.nn.all_to_all([torch.zeros(5, 3) for _ in range(size)], [own * i for i in range(size)], group=group)
    sent = dist.nn.broadcast(own * 4, 1, group=group)
    loss = sum((part * (i + 1)).sum() for i, part in enumerate([total, *parts, *swapped, sent]))
    loss.backward()
    return [own.grad, total.detach(), *(part.detach() for part in (*parts, *swapped)), sent.detach()]


def without_gloo():
    """Gloo of torch 1.13 refuses these."""
    rank, size = place()
    every = [[tensor_of(i, 10 + j) for j in range(size)] for i in range(size)]  # from i to j
    for form in (torch.Tensor.contiguous, strided):
        whole = form(torch.zeros(5 * size, 3))
        dist.all_gather_into_tensor(whole, form(every[rank][0]))
        same(whole, torch.cat([one[0] for one in every]), "all_gather_into_tensor")
        part = form(torch.zeros(5, 3))
        dist.reduce_scatter_tensor(part, form(torch.cat(every[rank])))
        same(part, sum(one[rank] for one in every), "reduce_scatter_tensor")
        part = form(torch.zeros(5, 3))
        dist.reduce_scatter(part, [form(tensor) for tensor in every[rank]], dist.ReduceOp.MAX)
        same(part, torch.stack([one[rank] for one in every]).max(0).values, "reduce_scatter")
        outputs = [form(torch.zeros(5, 3)) for _ in range(size)]
        dist.all_to_all(outputs, [form(tensor) for tensor in every[rank]])
        same(outputs, [one[rank] for one in every], "all_to_all")


def numbers():
    """How many collectives a member has started is the same on all; messages do not count."""
    group, (rank, size) = default_group(), place()
    group._set_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(1), 1)
    elif rank == 1:
        dist.recv(torch.ones(1), 0)
    told = [None] * size
    dist.all_gather_object(told, group._get_sequence_number_for_group())
    assert told == [2] * size, told


# ---- messages ----

def ring(group):
    """Each member sends to the next one: blocking, with handles, as a batch, with tags in another order."""
    rank, size = place()
    after, before, found = (rank + 1) % size, (rank - 1) % size, []
    for dtype in (torch.float32, torch.int16, torch.bool, torch.float64):
        mine, theirs = tensor_of(rank, 20).to(dtype), torch.zeros(5, 3, dtype=dtype)
        if rank % 2 == 0:
            dist.send(mine, after, group=group)
            assert dist.recv(theirs, before, group=group) == before
        else:
            assert dist.recv(theirs, before, group=group) == before
            dist.send(mine, after, group=group)
        found.append(theirs)
    targets = [torch.zeros(5, 3) for _ in range(4)]
    sends = [dist.isend(tensor_of(rank, 30 + tag), after, group=group, tag=tag) for tag in range(4)]
    receives = [dist.irecv(targets[tag], before, group=group, tag=tag) for tag in reversed(range(4))]
    for work in receives + sends:
        work.wait()
    found += targets
    mine, theirs = [tensor_of(rank, 40 + i) for i in range(3)], [torch.zeros(5, 3) for _ in range(3)]
    batch = [dist.P2POp(dist.isend, tensor, after, group) for tensor in mine]
    batch += [dist.P2POp(dist.irecv, tensor, before, group) for tensor in theirs]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return found + theirs


def from_any(group):
    """Rank 0 gets from all, whoever comes first, and learns who it was."""
    rank, size = place()
    if rank != 0:
        dist.send(tensor_of(rank, 50), 0, group=group, tag=7)
        dist.isend(tensor_of(rank, 51), 0, group=group, tag=8).wait()
        return []
    found = {}
    for _ in range(size - 1):
        tensor = torch.zeros(5, 3)
        found[dist.recv(tensor, group=group, tag=7)] = tensor
    work, target = None, None
    for _ in range(size - 1):
        target = torch.zeros(5, 3)
        work = dist.irecv(target, group=group, tag=8)
        work.wait()
        found[100 + work._source_rank()] = target
    return [found[key] for key in sorted(found)]


def long_messages():
    """Sizes around every limit, also none at all; order within a tag; many in flight."""
    rank, size = place()
    counts = [0, 1, 1000, 4096, 16385, 70000, 3000001]
    for count in counts:
        for form in (torch.Tensor.contiguous, strided):
            works, targets = [], {}
            for peer in range(size):
                if peer == rank:
                    continue
                works.append(dist.isend(form(torch.full((count,), rank, dtype=torch.uint8)), peer, tag=count % 97))
                targets[peer] = form(torch.full((count,), 255, dtype=torch.uint8))
                works.append(dist.irecv(targets[peer], peer, tag=count % 97))
            for work in works:
                work.wait()
            for peer, target in targets.items():
                same(target, torch.full((count,), peer, dtype=torch.uint8), f"{count} from {peer}")
    after, before = (rank + 1) % size, (rank - 1) % size
    works = [dist.isend(torch.tensor([i]), after, tag=i % 3) for i in range(200)]
    for i in range(200):
        got = torch.zeros(1, dtype=torch.int64)
        dist.recv(got, before, tag=i % 3)
        assert got.item() == i, (i, got)
    for work in works:
        work.wait()


def futures():
    """A receive is complete without a wait, and its future has the tensor; what nobody holds arrives, too."""
    rank, size = place()
    target = strided(torch.zeros(5, 3))
    future = dist.irecv(target, (rank - 1) % size, tag=3).get_future()
    dist.isend(tensor_of(rank, 60), (rank + 1) % size, tag=3)
    found = future.then(lambda done: done.value()[0] + 1).wait()
    same(found, tensor_of((rank - 1) % size, 60) + 1, "then")
    late = dist.irecv(torch.zeros(1), (rank - 1) % size, tag=4)  # a work in flight does not keep others from completing
    tensor = torch.ones(3)
    same(dist.all_reduce(tensor, async_op=True).get_future().wait(), [torch.full((3,), float(size))], "all_reduce")
    dist.send(torch.ones(1), (rank + 1) % size, tag=4)
    late.wait()


def some_ranks():
    """Torch's ranks are those of all processes, whatever the group."""
    rank, size = place()
    pair = dist.new_group([size - 2, size - 1])
    if rank == size - 1:
        dist.send(torch.tensor([5., 6.]), size - 2, group=pair)
    elif rank == size - 2:
        got = torch.zeros(2)
        assert dist.recv(got, group=pair) == size - 1
        assert got.tolist() == [5, 6]
    dist.barrier()


def wrong_messages():
    """Errors of arguments, lengths that differ, deadlines: the group goes on."""
    rank, size = place()
    group, other = default_group(), (rank + 1) % size
    for words, call in (("invalid rank: 9", lambda: group.send([torch.ones(1)], 9, 0)),
                        ("invalid rank: -1", lambda: group.recv([torch.ones(1)], -1, 0)),
                        ("Tag must be nonnegative", lambda: group.send([torch.ones(1)], other, -1)),
                        ("single-element", lambda: group.send([torch.ones(1)] * 2, other, 0))):
        error = raised(call)
        assert isinstance(error, hearth.Invalid) and words in str(error), repr(error)
    assert isinstance(raised(lambda: group.send([torch.ones(2).to_sparse()], other, 0)), hearth.Unsupported)
    if rank == 0:
        dist.send(torch.ones(2), 1, tag=1)
        try:
            dist.send(torch.ones(4), 1, tag=2)
        except hearth.Error as error:  # if it had not ended
            assert "16" in str(error) and "8" in str(error), error
    elif rank == 1:
        error = raised(lambda: dist.recv(torch.zeros(3), 0, tag=1))
        assert isinstance(error, hearth.Mismatch) and "has 8 bytes, but the tensor has 12" in str(error), repr(error)
        error = raised(lambda: dist.recv(torch.zeros(2), 0, tag=2))
        assert isinstance(error, hearth.Error) and "16" in str(error) and "8" in str(error), repr(error)
    short = dist.new_group(timeout=timedelta(seconds=2))  # it is made within this time, too
    if rank == 0:
        works = [dist.irecv(torch.zeros(1), source, group=short) for source in (1, None)]
        errors = [raised(work.wait) for work in works]
        assert all(isinstance(error, hearth.Timeout) for error in errors) and "rank 1" in str(errors[0]), errors
    dist.barrier()
    dist.all_reduce(torch.ones(3), group=short)


def monitored():
    """By torch's own function, which knows gloo only by itself."""
    rank, size = place()
    gloo = dist.new_group(backend="gloo")
    for _ in range(3):
        dist.monitored_barrier()
    dist.monitored_barrier(gloo)
    dist.monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=True)
    late = range(1, size)
    names = ", ".join(map(str, late))
    if rank == 0:
        for time in (timedelta(milliseconds=300), timedelta(0)):
            error = raised(lambda: dist.monitored_barrier(timeout=time, wait_all_ranks=True))
            assert isinstance(error, hearth.Timeout) and error.peer == 1, repr(error)
            ranks = f"Rank{'s' if size > 2 else ''} {names}"
            assert f"timed out: {ranks} failed to pass monitoredBarrier in {time // timedelta(milliseconds=1)} ms" \
                in str(error), error
    dist.barrier(group=gloo)
    if rank != 0:
        for _ in range(2):  # the answers wait for them
            error = raised(lambda: dist.monitored_barrier(timeout=timedelta(seconds=20)))
            assert isinstance(error, hearth.Timeout) and f" {names} failed to pass" in str(error), repr(error)
    dist.barrier(group=gloo)
    if rank != 0:
        error = raised(lambda: dist.monitored_barrier(timeout=timedelta(milliseconds=100)))
        assert isinstance(error, hearth.Timeout) and "Rank 0 failed to pass" in str(error), repr(error)
    dist.barrier(group=gloo)
    if rank == 0:
        dist.monitored_barrier()  # all others have reported
    dist.monitored_barrier()
    dist.all_reduce(torch.ones(3))


def lost():
    """A member that is killed ends receives from it, and from any; they name it."""
    rank, size = place()
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    errors = [raised(lambda: dist.recv(torch.zeros(1), size - 1)), raised(lambda: dist.recv(torch.zeros(1))),
              raised(lambda: dist.monitored_barrier())]
    for error in errors:
        assert isinstance(error, hearth.Error) and f"rank {size - 1}" in str(error), repr(error)
    dist.destroy_process_group()  # without the barrier of those that are well


class Calls(unittest.TestCase):
    """Each body runs in all sizes, with both process groups."""

    def each(self, *bodies, counts=COUNTS, **more):
        for kind in KINDS:
            for count in counts:
                with self.subTest(process_group=kind, count=count):
                    rank_processes.run(count, run_all, bodies, HEARTH_TORCH_PROCESS_GROUP=kind, **more)

    def test_collectives(self):
        self.each(collectives, without_gloo, numbers)

    def test_messages(self):
        self.each(messages, futures, some_ranks)

    def test_long_messages(self):
        self.each(long_messages)

    def test_wrong_messages(self):
        self.each(wrong_messages, counts=(2, 3))

    def test_monitored_barrier(self):
        self.each(monitored)

    def test_a_lost_member(self):
        for count in (2, 3):
            self.each(lost, counts=(count,), dead=(count - 1,))


def run_all(bodies):
    for body in bodies:
        body()


def collectives():
    for body in (moves, reductions, objects, with_gradients):
        by_both(body)


def messages():
    by_both(ring)
    by_both(from_any)
