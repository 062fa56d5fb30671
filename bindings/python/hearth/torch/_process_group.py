# SPDX-License-Identifier: Apache-2.0
"""The process group in Python: backend "hearth" of torch.distributed without a compiler, for any version of torch.

It does what the one in C++ does, and members may have either. Each operation checks its tensors, makes a task of them
and starts it. Moves are of bytes, so that they take every type of tensor; reductions are of Hearth's types.

Torch calls some of these methods from C++: there the names and the order of arguments are fixed, and `opts` is an
object of torch's classes of options. From Python they also take single tensors, as torch's own classes do:
allreduce(tensor, op), broadcast(tensor, root).
"""

import datetime
import itertools
import os
import weakref

import torch
from torch._C._distributed_c10d import ProcessGroup, ReduceOp

import hearth

from . import _arguments as check
from ._point_to_point import Messages
from ._sparse import SHAPE_LEN, SparseSum
from ._staging import BOTH, ELEMENT_BYTES, READ, WRITE, Span, bytes_of, reduce_here, reduction_of, separate
from ._work import Task, Together, Watch, Work

TIMEOUT_SECONDS_MAX = 365 * 24 * 3600.0  # Hearth refuses longer ones


def _listed(tensors):
    """A list of tensors, also of one alone."""
    return [tensors] if torch.is_tensor(tensors) else list(tensors)


def _lists(tensors):
    """A list of lists, also of one list alone."""
    tensors = list(tensors)
    return [tensors] if tensors and torch.is_tensor(tensors[0]) else [list(one) for one in tensors]


def _op(opts):
    return ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def _root(opts):
    return 0 if opts is None else getattr(opts, "rootRank", opts)


def _copies(tensor, others):
    """Gives all tensors what one of them, or another, holds."""
    def copy():
        for other in others:
            if other is not tensor:
                other.copy_(tensor)
    return None if len(others) == 1 else copy


def _all_same(counts):
    return len(set(counts)) < 2


def _end(watch, node, pid):
    """Ends what is in flight and closes the node; not in a forked child."""
    if os.getpid() == pid:
        watch.stop()
        node.close()


class PythonProcessGroup(Messages, ProcessGroup):
    """A process group on a Hearth node of its own, which it closes."""

    def __init__(self, node, timeout, ordered=False):
        world = node.world
        super().__init__(world.rank, world.size)
        self._node, self._world = node, world
        self._rank, self._size = world.rank, world.size
        self._seconds = timeout  # of operations that have none of their own
        self._watch = Watch(ordered)
        self._sequence = self._monitored = 0  # collectives, and monitored barriers, so far
        self._coalesced = None  # works since start_coalescing
        self._finalizer = weakref.finalize(self, _end, self._watch, node, os.getpid())
        self._finalizer.atexit = False  # _backend.py does that, in its order

    def shutdown(self, *_):
        """Ends what is in flight and closes the node; calls after it fail."""
        self._finalizer()

    abort = shutdown

    def getBackendName(self):
        return "hearth"

    @property
    def _device_types(self):
        """For torch 2, which asks where objects are to be pickled."""
        return [torch.device("cpu")]

    # ---- starting ----

    def _timeout(self, opts):
        """Seconds, of torch's options, of a timedelta or of seconds; a negative timedelta is torch's word for none."""
        timeout = getattr(opts, "timeout", opts)
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        given = isinstance(timeout, float) and timeout >= 0
        return min(timeout if given else self._seconds, TIMEOUT_SECONDS_MAX)

    def _launch(self, task, opts, start, counted=True):
        """start(timeout) calls a method of the group that ends in _nb."""
        work = Work(self._watch, task, self._rank)
        self._watch.enter(work, task.name)
        try:
            work.started(start(self._timeout(opts)))
        except BaseException:
            self._watch.leave(work)
            raise
        self._watch.added(work)
        self._sequence += counted
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    # ---- one buffer ----

    def broadcast(self, tensors, opts=None):
        """Of several tensors one is sent, and all others are copies of it."""
        name, tensors = "broadcast", _listed(tensors)
        root = check.root(name, _root(opts), self._size)
        place = check.root_tensor(name, getattr(opts, "rootTensor", 0), tensors)
        check.alike(name, tensors)
        task = Task(name, tensors)
        task.target = Span([tensors[place]], BOTH if root == self._rank else WRITE)
        task.after = _copies(tensors[place], tensors)
        task.results = tensors
        memory = task.target.memory()
        return self._launch(task, opts, lambda timeout: self._world.broadcast_nb(memory, root, timeout=timeout))

    def allreduce(self, tensors, opts=None):
        """Several tensors are as many contributions, and all of them get the result."""
        name, tensors = "all_reduce", _listed(tensors)
        if tensors and tensors[0].layout is torch.sparse_coo:
            return self._allreduce_sparse(tensors, opts)
        check.alike(name, tensors)
        reduction = reduction_of(name, tensors[0].dtype, _op(opts))
        one = tensors[0] if len(tensors) == 1 else reduce_here(name, tensors, _op(opts))
        task = Task(name, tensors)
        task.target = Span([one], BOTH)
        task.after = _copies(one, tensors)
        task.results = tensors
        return self._launch_all_reduce(task, reduction, opts)

    def allreduce_coalesced(self, tensors, opts=None):
        name, tensors = "all_reduce_coalesced", _listed(tensors)
        check.coalesced(name, tensors)
        reduction = reduction_of(name, tensors[0].dtype, _op(opts))
        task = Task(name, tensors)
        task.target = Span(tensors, BOTH)
        task.results = tensors
        return self._launch_all_reduce(task, reduction, opts)

    def _launch_all_reduce(self, task, reduction, opts):
        memory = task.target.memory(reduction[0])
        return self._launch(task, opts, lambda timeout: self._world.all_reduce_nb(memory, op=reduction[1],
                                                                                  timeout=timeout))

    def _allreduce_sparse(self, tensors, opts):
        """How much each member gives is known before this returns; only the entries themselves travel behind it."""
        name = "all_reduce"
        check.alike_sparse(name, tensors)
        if _op(opts) != ReduceOp.SUM:
            raise hearth.Unsupported(f"{name}: unsupported reduction operation (allreduce of sparse tensors only works "
                                     "with ReduceOp.SUM)")
        sparse = SparseSum(name, tensors)
        shapes = torch.empty(self._size * SHAPE_LEN, dtype=torch.int64)
        ask = Task("sparse_shapes")
        ask.source, ask.target = Span([sparse.shape], READ), Span([shapes], WRITE)
        self._launch_all_gather(ask, None, opts).wait()
        sparse.meet(shapes)
        everything = torch.empty(sum(sparse.counts), dtype=torch.uint8)
        task = Task(name, tensors)
        task.source, task.target = Span([sparse.pack(self._rank)], READ), Span([everything], WRITE)

        def add_up():
            total = sparse.unpack(everything)
            for tensor in tensors:
                tensor.copy_(total)

        task.after = add_up
        task.results = tensors
        return self._launch_all_gather(task, sparse.counts, opts)

    def reduce(self, tensors, opts=None, op=None):
        """The other members' tensors stay as they are."""
        name, tensors = "reduce", _listed(tensors)
        root = check.root(name, _root(opts), self._size)
        check.root_tensor(name, getattr(opts, "rootTensor", 0), tensors)
        check.single(name, tensors)
        wanted = op if op is not None else getattr(opts, "reduceOp", ReduceOp.SUM)
        dtype, combined = reduction_of(name, tensors[0].dtype, wanted)
        task, own = Task(name, tensors), Span(tensors, BOTH)
        if root == self._rank:
            task.target = own
        else:
            task.source = own
        task.results = tensors
        memory = own.memory(dtype)
        return self._launch(task, opts, lambda timeout: self._world.reduce_nb(memory, op=combined, root=root,
                                                                              timeout=timeout))

    # ---- from all, to all ----

    def _launch_all_gather(self, task, counts, opts):
        """With counts, members give differently much."""
        source, target = task.source, task.target
        offset = self._rank * source.bytes if counts is None else sum(counts[:self._rank])
        separate(source, target, source.address, target.address + offset)
        if counts is None:
            return self._launch(task, opts, lambda timeout: self._world.all_gather_nb(
                source.memory(), target.memory(), timeout=timeout))
        return self._launch(task, opts, lambda timeout: self._world.all_gatherv_nb(
            source.memory(), target.memory(), counts, timeout=timeout))

    def allgather(self, outputs, inputs, opts=None):
        name, outputs, inputs = "all_gather", _lists(outputs), _listed(inputs)
        check.gathered(name, outputs, inputs, self._rank, self._size)
        task = Task(name, inputs)
        task.source, task.target = Span(inputs, READ), Span(outputs[0], WRITE)

        def copy():  # each of several inputs has its list, and all lists are the same
            for output in outputs[1:]:
                for tensor, first in zip(output, outputs[0]):
                    tensor.copy_(first)

        task.after = copy
        task.results, task.lists = list(itertools.chain(*outputs)), outputs
        counts = [bytes_of(tensor) for tensor in outputs[0]]
        return self._launch_all_gather(task, None if _all_same(counts) else counts, opts)

    def _allgather_base(self, output, tensor, opts=None):
        name = "all_gather_into_tensor"
        check.whole(name, output, tensor, self._size, ("output", "input"))
        task = Task(name, [tensor])
        task.source, task.target = Span([tensor], READ), Span([output], WRITE)
        task.results = [output]
        return self._launch_all_gather(task, None, opts)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[i] is what member i gave as inputs."""
        name, outputs, inputs = "all_gather_coalesced", _lists(outputs), _listed(inputs)
        check.gathered_coalesced(name, outputs, inputs, self._size)
        task = Task(name, inputs)
        together = list(itertools.chain(*outputs))
        task.source, task.target = Span(inputs, READ), Span(together, WRITE)
        task.results, task.lists = together, outputs
        return self._launch_all_gather(task, None, opts)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        """Several all_gather_into_tensor in one operation: for torch 2."""
        name, outputs, inputs = "all_gather_into_tensor_coalesced", _listed(outputs), _listed(inputs)
        check.coalesced(name, outputs + inputs)
        for output, tensor in zip(outputs, inputs):
            check.whole(name, output, tensor, self._size, ("output", "input"))
        task = Task(name, inputs)
        task.source = Span(inputs, READ)
        task.target = Span(self._by_member(outputs), WRITE)
        task.results = outputs
        return self._launch_all_gather(task, None, opts)

    def _by_member(self, tensors):
        """The part of each member in all of these contiguous tensors, one member after the other."""
        for tensor in tensors:
            if not tensor.is_contiguous():
                check.refuse("coalesced", "requires contiguous tensors")
        parts = [tensor.view(-1).chunk(self._size) if tensor.numel() else [tensor] * self._size for tensor in tensors]
        return [part[member] for member in range(self._size) for part in parts]

    def _launch_reduce_scatter(self, task, counts, reduction, opts):
        (dtype, combined), source, target = reduction, task.source, task.target
        offset = self._rank * target.bytes if counts is None else sum(counts[:self._rank])
        separate(source, target, target.address, source.address + offset)
        if counts is None:
            return self._launch(task, opts, lambda timeout: self._world.reduce_scatter_nb(
                source.memory(dtype), target.memory(dtype), op=combined, timeout=timeout))
        counts = [count // ELEMENT_BYTES[dtype] for count in counts]
        return self._launch(task, opts, lambda timeout: self._world.reduce_scatterv_nb(
            source.memory(dtype), target.memory(dtype), counts, op=combined, timeout=timeout))

    def reduce_scatter(self, outputs, inputs, opts=None):
        name, outputs, inputs = "reduce_scatter", _listed(outputs), _lists(inputs)
        check.single(name, outputs, "output ")
        check.scattered(name, inputs, outputs[0], self._rank, self._size)
        reduction = reduction_of(name, outputs[0].dtype, _op(opts))
        task = Task(name, inputs[0])
        task.source, task.target = Span(inputs[0], READ), Span(outputs, WRITE)
        task.results = outputs
        counts = [bytes_of(tensor) for tensor in inputs[0]]
        return self._launch_reduce_scatter(task, None if _all_same(counts) else counts, reduction, opts)

    def _reduce_scatter_base(self, output, tensor, opts=None):
        name = "reduce_scatter_tensor"
        check.whole(name, tensor, output, self._size, ("input", "output"))
        reduction = reduction_of(name, output.dtype, _op(opts))
        task = Task(name, [tensor])
        task.source, task.target = Span([tensor], READ), Span([output], WRITE)
        task.results = [output]
        return self._launch_reduce_scatter(task, None, reduction, opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        """Several reduce_scatter_tensor in one operation: for torch 2."""
        name, outputs, inputs = "reduce_scatter_tensor_coalesced", _listed(outputs), _listed(inputs)
        check.coalesced(name, outputs + inputs)
        for output, tensor in zip(outputs, inputs):
            check.whole(name, tensor, output, self._size, ("input", "output"))
        reduction = reduction_of(name, outputs[0].dtype, _op(opts))
        task = Task(name, inputs)
        task.source = Span(self._by_member([tensor.contiguous() for tensor in inputs]), READ)
        task.target = Span(outputs, WRITE)
        task.results = outputs
        return self._launch_reduce_scatter(task, None, reduction, opts)

    def _launch_all_to_all(self, task, counts, target_counts, opts):
        """Always by counts: one member may leave them out where another gives them."""
        source, target = task.source, task.target
        if source.overlaps(target):
            source.move_away()
        return self._launch(task, opts, lambda timeout: self._world.all_to_allv_nb(
            source.memory(), counts, target.memory(), target_counts, timeout=timeout))

    def alltoall(self, outputs, inputs, opts=None):
        name, outputs, inputs = "all_to_all", _listed(outputs), _listed(inputs)
        if len(outputs) != self._size or len(inputs) != self._size:
            check.refuse(name, f"both lists must have a tensor for each of the {self._size} members")
        check.coalesced(name, outputs + inputs)
        task = Task(name, inputs)
        task.source, task.target = Span(inputs, READ), Span(outputs, WRITE)
        task.results = outputs
        return self._launch_all_to_all(task, [bytes_of(tensor) for tensor in inputs],
                                       [bytes_of(tensor) for tensor in outputs], opts)

    def alltoall_base(self, output, tensor, output_split_sizes, input_split_sizes, opts=None):
        name = "all_to_all_single"
        check.coalesced(name, [output, tensor])
        counts = check.split_bytes(name, tensor, input_split_sizes, self._size, "input")
        target_counts = check.split_bytes(name, output, output_split_sizes, self._size, "output")
        task = Task(name, [tensor])
        task.source, task.target = Span([tensor], READ), Span([output], WRITE)
        task.results = [output]
        return self._launch_all_to_all(task, counts, target_counts, opts)

    # ---- to one, from one ----

    def gather(self, outputs, inputs, opts=None):
        name, outputs, inputs = "gather", _lists(outputs), _listed(inputs)
        root = check.root(name, _root(opts), self._size)
        check.single(name, inputs, "input ")
        task, target = Task(name, inputs), None
        task.source = source = Span(inputs, READ)
        if root != self._rank:
            check.no_list(name, outputs, "output")
        else:
            check.root_list(name, outputs, inputs[0], self._size, "output")
            task.target = Span(outputs[0], WRITE)
            task.results = outputs[0]
            separate(source, task.target, source.address, task.target.address + self._rank * source.bytes)
            target = task.target.memory()
        return self._launch(task, opts, lambda timeout: self._world.gather_nb(source.memory(), target, root,
                                                                              timeout=timeout))

    def scatter(self, outputs, inputs, opts=None):
        name, outputs, inputs = "scatter", _listed(outputs), _lists(inputs)
        root = check.root(name, _root(opts), self._size)
        check.single(name, outputs, "output ")
        if root == self._rank:
            check.root_list(name, inputs, outputs[0], self._size, "input")
        else:
            check.no_list(name, inputs, "input")
        task, source = Task(name, inputs[0] if inputs else ()), None
        task.target = target = Span(outputs, WRITE)
        task.results = outputs
        if root == self._rank:
            task.source = Span(inputs[0], READ)
            separate(task.source, target, target.address, task.source.address + self._rank * target.bytes)
            source = task.source.memory()
        return self._launch(task, opts, lambda timeout: self._world.scatter_nb(source, target.memory(), root,
                                                                               timeout=timeout))

    # ---- the rest ----

    def barrier(self, opts=None):
        return self._launch(Task("barrier"), opts, lambda timeout: self._world.barrier_nb(timeout=timeout))

    def _set_sequence_number_for_group(self):
        """Each member counts what it has started; they agree if all have called the same."""
        self._sequence = 0

    def _get_sequence_number_for_group(self):
        return self._sequence

    def start_coalescing(self, *_):
        """Works from here to end_coalescing are one for torch 2; torch 1.13 keeps a list of its own."""
        self._coalesced = []

    def end_coalescing(self, *_):
        works, self._coalesced = self._coalesced or [], None
        return Together(works)

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing

    # Later versions of torch have new names for some.
    all_gather_single, all_gather_single_coalesced = _allgather_base, allgather_into_tensor_coalesced
    reduce_scatter_single, reduce_scatter_single_coalesced = _reduce_scatter_base, reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base
