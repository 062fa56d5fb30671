# SPDX-License-Identifier: Apache-2.0
"""The collectives of a group. Each has one method that checks the arguments, and two that run it.

What a check returns is (C function, its arguments, views to keep, what the user gets). Sizes are checked here to the
element, because C cannot check them.
"""

import ctypes
import difflib
import functools
import operator
from typing import Any, Optional, Sequence

from . import _errors, _handles
from ._buffers import F32, F64, NAMES, SIZES, counts_of, same_count, same_type, view
from ._errors import Invalid, Unsupported
from ._futures import Future, Late, Operation, milliseconds
from ._handles import SLICE_MS, interruptible
from ._library import Opts, lib

OPS = {"sum": 0, "avg": 1, "prod": 2, "min": 3, "max": 4, "band": 5, "bor": 6, "bxor": 7}
_OF_TRUTH = [number for name, number in OPS.items() if name not in ("sum", "avg", "prod")]
ALGOS = {"auto": 0, "ring": 1, "direct": 2, "halving": 3, "tree": 4, "star": 5, "hierarchical": 6, "exchange": 7}
RESTORE, RANK_ORDER = 1, 2
OPTIONS = ("timeout", "tag", "weight", "algo", "restore", "rank_order")

_PENDING = _errors.PENDING
_wait, _free, _byref, _pointer = lib.request_wait, lib.request_close, ctypes.byref, ctypes.c_void_p


def choice(table, name, what):
    """The number of a name, or an error that lists the names."""
    try:
        return table[name]
    except (KeyError, TypeError):
        raise Invalid(f"{what} is {name!r}; there are {', '.join(table)}") from None


def unknown_keyword(name, known, call):
    """TypeError for a keyword that there is not, with those that look like it."""
    near = difflib.get_close_matches(name, known, 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known)}"
    return TypeError(f"{call} takes no keyword {name!r}{hint}")


def _number(make, value, what, takes):
    """make(value), or a TypeError that names the argument."""
    try:
        return make(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} is {value!r}; it takes {takes}") from None


@functools.lru_cache(maxsize=512)
def _opts(timeout=None, tag=0, weight=1.0, algo="auto", restore=False, rank_order=False):
    """C copies it in the call, so calls with the same options share it."""
    made = Opts()
    lib.opts_init_sized(made, ctypes.sizeof(made))
    made.timeout_ms = milliseconds(timeout)
    made.tag = _number(operator.index, tag, "tag", "a number from 0 to 2^64 - 1")
    if made.tag != tag:
        raise Invalid(f"tag is {tag!r}; it takes a number from 0 to 2^64 - 1")
    made.weight = _number(float, weight, "weight", "a number")
    made.algo = choice(ALGOS, algo, "algo")
    made.flags = (RESTORE if restore else 0) | (RANK_ORDER if rank_order else 0)
    return made


def opts_of(options):
    """struct hearth_opts of the options of a call; None if there are none."""
    if not options or isinstance(options, Opts):
        return options or None
    for name in options:
        if name not in OPTIONS:
            raise unknown_keyword(name, OPTIONS, "a collective")
    try:
        return _opts(**options)
    except TypeError:  # a value of a wrong type, which may be one that cannot be looked up
        pass
    return _opts.__wrapped__(**options)


def timeout_opts(timeout):
    """struct hearth_opts of a call that takes no other option; None: the default."""
    return None if timeout is None else opts_of({"timeout": timeout})


def run(handle, call, options):
    """Starts it and waits, in slices, so that Ctrl-C and a closing node take effect. In every case the
    request is freed, and then no buffer is in use."""
    function, arguments, views, result = call
    opts = opts_of(options) if options else None
    late = result if isinstance(result, Late) else None
    request = _pointer()
    users = handle.users
    users.append(None)
    try:
        if handle.closing or _handles.LOGGING:
            handle.refuse()
        if handle.orphans:
            handle.sweep()
        for each in views:
            if each.stage is not None:
                each.stage.before()
        status = function(handle.address, *arguments, opts, _byref(request))
        if status:
            _errors.check(status, handle.rank)
        address = request.value
        status = _wait(address, SLICE_MS)
        while status == _PENDING:
            if handle.closing:  # the closing thread ends it, like all other pending ones
                handle.adopt(Operation(handle, views, late, request)).begun()
                request = _pointer()
                raise handle.closed()
            status = _wait(address, SLICE_MS)
        if status:
            raise _errors.of_request(status, address, handle.rank)
        if late is not None:
            result = late.take()
    finally:
        if request.value:
            _free(request.value)
            if late is not None:
                late.end()
        users.pop()
    for each in views:
        if each.stage is not None:
            each.stage.after()
    return result


def text_for_c(text, what):
    if not isinstance(text, str):
        raise TypeError(f"{what} is {text!r}; it takes a text")
    if "\0" in text:  # C would see only the part before it
        raise Invalid(f"{what} is {text!r}: a text with a zero byte")
    return text.encode()


def encoded(codec):
    """A codec's text for C; None: the node's own."""
    return None if codec is None else text_for_c(codec, "codec")


def start(handle, owner, call, options):
    """Starts it and returns its future. The operation is known to its parent before C knows it: nothing is lost if
    Ctrl-C comes in between."""
    function, arguments, views, result = call
    opts = opts_of(options)
    with handle as address:
        if handle.orphans:
            handle.sweep()
        for each in views:
            if each.stage is not None:
                each.stage.before()
        operation = handle.adopt(Operation(handle, views, result, _pointer()))
        future = Future(operation, owner)
        try:
            status = function(address, *arguments, opts, _byref(operation.request))
        finally:
            operation.begun()
        if status:
            _errors.check(status, handle.rank)
    return future


_BARRIER = lib.barrier_nb, (), (), None
_REDUCTIONS = {"all_reduce": lib.all_reduce_nb, "reduce": lib.reduce_nb, "scan": lib.scan_nb,
               "exclusive_scan": lib.exclusive_scan_nb}


def reduced(call, op, first):
    """The number of a reduction that the elements can be put through."""
    number = OPS.get(op) if op.__class__ is str else None
    if number is None:
        number = choice(OPS, op, f"{call}: op")
    if first.truth and number not in _OF_TRUTH:
        raise Unsupported(f"{call}: bools cannot be combined by {op}; there are max (or), min (and), band, "
                          "bor and bxor")
    return number


def pair(call, source, target):
    """Views of source and target of the same type; no target: in place."""
    if target is None or target is source:
        both = view(source, True, f"{call}: source (in place)")
        return both, both
    first, second = view(source, False, f"{call}: source"), view(target, True, f"{call}: target")
    same_type(first, second, ("source", "target"), call)
    return first, second


def needed(thing, call, what):
    if thing is None:
        raise Invalid(f"{call} needs {what}")
    return thing


class Collectives:
    """The methods of a group that all its members call together."""

    __slots__ = ()

    # ---- checks ----

    def _reduction(self, name, source, target, op):
        first, second = pair(name, source, target)
        if first is not second:
            same_count(second.count, first.count, name, "target", "as source has")
        arguments = (first.address, second.address, first.count, first.dtype, reduced(name, op, first))
        return _REDUCTIONS[name], arguments, (first, second), source if target is None else target

    def _reduce(self, source, target, op, root):
        name = "reduce"
        root = self._root(root, name)
        if self.rank != root:
            first = view(source, False, "reduce: source")
            arguments = (first.address, None, first.count, first.dtype, reduced(name, op, first), root)
            return lib.reduce_nb, arguments, (first,), None
        function, arguments, views, result = self._reduction(name, source, target, op)
        return function, (*arguments, root), views, result

    def _broadcast(self, buffer, root):
        root = self._root(root, "broadcast")
        only = view(buffer, self.rank != root, "broadcast: buffer")
        return lib.broadcast_nb, (only.address, only.count, only.dtype, root), (only,), buffer

    def _own_part(self, whole, name):
        """This member's part in a buffer of all parts: address and count."""
        count, rest = divmod(whole.count, self.size)
        if rest:
            raise Invalid(f"{name}: target has {whole.count} elements, which is no multiple of the {self.size} members")
        return whole.address + self.rank * count * SIZES[whole.dtype], count

    def _all_gather(self, source, target):
        name = "all_gather"
        second = view(target, True, "all_gather: target")
        if source is None:
            address, count = self._own_part(second, name)
            return lib.all_gather_nb, (address, second.address, count, second.dtype), (second,), target
        first = view(source, False, "all_gather: source")
        same_type(first, second, ("source", "target"), name)
        same_count(second.count, first.count * self.size, name, "target", f"{self.size} x source's")
        return lib.all_gather_nb, (first.address, second.address, first.count, first.dtype), (first, second), target

    def _all_gatherv(self, source, target, counts):
        name = "all_gatherv"
        array, numbers = counts_of(counts, self.size, "all_gatherv: counts")
        second = view(target, True, "all_gatherv: target")
        same_count(second.count, sum(numbers), name, "target", "the sum of counts")
        if source is None:
            address = second.address + sum(numbers[:self.rank]) * SIZES[second.dtype]
            return lib.all_gatherv_nb, (address, second.address, array, second.dtype), (second,), target
        first = view(source, False, "all_gatherv: source")
        same_type(first, second, ("source", "target"), name)
        same_count(first.count, numbers[self.rank], name, "source", f"counts[{self.rank}]")
        return lib.all_gatherv_nb, (first.address, second.address, array, first.dtype), (first, second), target

    def _reduce_scatter(self, source, target, op):
        name = "reduce_scatter"
        first, second = pair(name, source, needed(target, name, "a target"))
        same_count(first.count, second.count * self.size, name, "source", f"{self.size} x target's")
        arguments = (first.address, second.address, second.count, first.dtype, reduced(name, op, first))
        return lib.reduce_scatter_nb, arguments, (first, second), target

    def _reduce_scatterv(self, source, target, counts, op):
        name = "reduce_scatterv"
        array, numbers = counts_of(counts, self.size, "reduce_scatterv: counts")
        first, second = pair(name, source, needed(target, name, "a target"))
        same_count(first.count, sum(numbers), name, "source", "the sum of counts")
        same_count(second.count, numbers[self.rank], name, "target", f"counts[{self.rank}]")
        arguments = (first.address, second.address, array, first.dtype, reduced(name, op, first))
        return lib.reduce_scatterv_nb, arguments, (first, second), target

    def _gather(self, source, target, root):
        name = "gather"
        root = self._root(root, name)
        if self.rank != root:
            first = view(source, False, "gather: source")
            return lib.gather_nb, (first.address, None, first.count, first.dtype, root), (first,), None
        second = view(needed(target, name, "a target (at the root)"), True, "gather: target")
        if source is None:
            address, count = self._own_part(second, name)
            return lib.gather_nb, (address, second.address, count, second.dtype, root), (second,), target
        first = view(source, False, "gather: source")
        same_type(first, second, ("source", "target"), name)
        same_count(second.count, first.count * self.size, name, "target", f"{self.size} x source's")
        return lib.gather_nb, (first.address, second.address, first.count, first.dtype, root), (first, second), target

    def _gatherv(self, source, target, counts, root):
        name = "gatherv"
        root = self._root(root, name)
        first = view(source, False, "gatherv: source")
        if self.rank != root:
            return lib.gatherv_nb, (first.address, first.count, None, None, first.dtype, root), (first,), None
        array, numbers = counts_of(needed(counts, name, "counts (at the root)"), self.size, "gatherv: counts")
        second = view(needed(target, name, "a target (at the root)"), True, "gatherv: target")
        same_type(first, second, ("source", "target"), name)
        same_count(first.count, numbers[root], name, "source", f"counts[{root}]")
        same_count(second.count, sum(numbers), name, "target", "the sum of counts")
        arguments = (first.address, first.count, second.address, array, first.dtype, root)
        return lib.gatherv_nb, arguments, (first, second), target

    def _scatter(self, source, target, root):
        name = "scatter"
        root = self._root(root, name)
        if self.rank != root:
            second = view(target, True, "scatter: target")
            return lib.scatter_nb, (None, second.address, second.count, second.dtype, root), (second,), target
        first, second = pair(name, needed(source, name, "a source (at the root)"), needed(target, name, "a target"))
        same_count(first.count, second.count * self.size, name, "source", f"{self.size} x target's")
        return lib.scatter_nb, (first.address, second.address, second.count, first.dtype, root), (first, second), target

    def _scatterv(self, source, counts, target, root):
        name = "scatterv"
        root = self._root(root, name)
        if self.rank != root:
            second = view(target, True, "scatterv: target")
            return lib.scatterv_nb, (None, None, second.address, second.count, second.dtype, root), (second,), target
        array, numbers = counts_of(needed(counts, name, "counts (at the root)"), self.size, "scatterv: counts")
        first, second = pair(name, needed(source, name, "a source (at the root)"), needed(target, name, "a target"))
        same_count(first.count, sum(numbers), name, "source", "the sum of counts")
        same_count(second.count, numbers[root], name, "target", f"counts[{root}]")
        arguments = (first.address, array, second.address, second.count, first.dtype, root)
        return lib.scatterv_nb, arguments, (first, second), target

    def _all_to_all(self, source, target):
        name = "all_to_all"
        first, second = pair(name, source, target)
        count, rest = divmod(first.count, self.size)
        if rest:
            raise Invalid(f"{name}: source has {first.count} elements, which is no multiple of the {self.size} members")
        same_count(second.count, first.count, name, "target", "as source has")
        arguments = (first.address, second.address, count, first.dtype)
        return lib.all_to_all_nb, arguments, (first, second), source if target is None else target

    def _all_to_allv(self, source, source_counts, target, target_counts):
        name = "all_to_allv"
        given, given_numbers = counts_of(source_counts, self.size, "all_to_allv: source_counts")
        taken, taken_numbers = counts_of(target_counts, self.size, "all_to_allv: target_counts")
        first, second = pair(name, source, target)
        same_count(first.count, sum(given_numbers), name, "source", "the sum of source_counts")
        same_count(second.count, sum(taken_numbers), name, "target", "the sum of target_counts")
        arguments = (first.address, given, second.address, taken, first.dtype)
        return lib.all_to_allv_nb, arguments, (first, second), source if target is None else target

    def _compressed(self, buffer, codec, residual, op):
        name = "all_reduce_compressed"
        only = view(buffer, True, "all_reduce_compressed: buffer")
        views, address = (only,), None
        if residual is not None:
            kept = view(residual, True, "all_reduce_compressed: residual")
            wanted = F64 if only.dtype == F64 else F32
            if kept.dtype != wanted:
                raise Invalid(f"{name}: residual is {NAMES[kept.dtype]}; for {NAMES[only.dtype]} it must be "
                              f"{NAMES[wanted]}")
            same_count(kept.count, only.count, name, "residual", "as buffer has")
            views, address = (only, kept), kept.address
        arguments = (only.address, only.count, only.dtype, reduced(name, op, only), encoded(codec), address)
        return lib.all_reduce_compressed_nb, arguments, views, buffer

    def _root(self, root, name):
        root = _number(operator.index, root, f"{name}: root", "a rank")
        if not 0 <= root < self.size:
            raise Invalid(f"{name}: root is {root}; the group has ranks 0 to {self.size - 1}")
        return root

    def _same(self, buffer, timeout):
        """None, or the rank that differs."""
        opts = timeout_opts(timeout)
        only = view(buffer, False, "same: buffer")
        who = ctypes.c_int(-1)

        def ask():
            with self._handle as address:
                status = lib.group_same(address, only.address, only.count * SIZES[only.dtype], opts, _byref(who))
                if status != _errors.Differs.status:
                    _errors.check(status, self.rank)
                return who.value if status else None

        if only.stage is not None:
            only.stage.before()
        return interruptible(ask)

    # ---- what the user calls ----

    def all_reduce(self, source: Any, target: Any = None, op: str = "sum", **options: Any) -> Any:
        """target[i] = op over members of source[i], on all members. op: sum, avg, prod, min, max, band, bor, bxor.
        No target: in place.

        >>> from array import array
        >>> import hearth
        >>> [node] = hearth.open_local(1)
        >>> node.world.all_reduce(array("f", [1, 2]))
        array('f', [1.0, 2.0])
        >>> node.close()
        """
        return run(self._handle, self._reduction("all_reduce", source, target, op), options)

    def all_reduce_nb(self, source: Any, target: Any = None, op: str = "sum", **options: Any) -> Future:
        """As all_reduce, but returns at once."""
        return start(self._handle, self, self._reduction("all_reduce", source, target, op), options)

    def reduce(self, source: Any, target: Any = None, op: str = "sum", root: int = 0, **options: Any) -> Any:
        """As all_reduce, but only the root gets the result: it is returned its target, others None.

        No target: in place, at the root.
        """
        return run(self._handle, self._reduce(source, target, op, root), options)

    def reduce_nb(self, source: Any, target: Any = None, op: str = "sum", root: int = 0, **options: Any) -> Future:
        """As reduce, but returns at once."""
        return start(self._handle, self, self._reduce(source, target, op, root), options)

    def broadcast(self, buffer: Any, root: int = 0, **options: Any) -> Any:
        """The root's buffer to all. Returns the buffer.

            group.broadcast(weights)  # all start with rank 0's
        """
        return run(self._handle, self._broadcast(buffer, root), options)

    def broadcast_nb(self, buffer: Any, root: int = 0, **options: Any) -> Future:
        """As broadcast, but returns at once."""
        return start(self._handle, self, self._broadcast(buffer, root), options)

    def all_gather(self, source: Any, target: Any, **options: Any) -> Any:
        """The sources of all members, one after the other in rank order, into the target of each.

        source None: this member's part is already in the target.

            losses = numpy.empty(group.size)
            group.all_gather(numpy.array([loss]), losses)
        """
        return run(self._handle, self._all_gather(source, target), options)

    def all_gather_nb(self, source: Any, target: Any, **options: Any) -> Future:
        """As all_gather, but returns at once."""
        return start(self._handle, self, self._all_gather(source, target), options)

    def all_gatherv(self, source: Any, target: Any, counts: Sequence[int], **options: Any) -> Any:
        """As all_gather, but member i gives counts[i] elements; counts are the same on all."""
        return run(self._handle, self._all_gatherv(source, target, counts), options)

    def all_gatherv_nb(self, source: Any, target: Any, counts: Sequence[int], **options: Any) -> Future:
        """As all_gatherv, but returns at once."""
        return start(self._handle, self, self._all_gatherv(source, target, counts), options)

    def reduce_scatter(self, source: Any, target: Any, op: str = "sum", **options: Any) -> Any:
        """Member i gets the i-th part of what all_reduce would give: source has size x the elements of target."""
        return run(self._handle, self._reduce_scatter(source, target, op), options)

    def reduce_scatter_nb(self, source: Any, target: Any, op: str = "sum", **options: Any) -> Future:
        """As reduce_scatter, but returns at once."""
        return start(self._handle, self, self._reduce_scatter(source, target, op), options)

    def reduce_scatterv(self, source: Any, target: Any, counts: Sequence[int], op: str = "sum", **options: Any) -> Any:
        """As reduce_scatter, but member i gets counts[i] elements; counts are the same on all."""
        return run(self._handle, self._reduce_scatterv(source, target, counts, op), options)

    def reduce_scatterv_nb(self, source: Any, target: Any, counts: Sequence[int], op: str = "sum",
                           **options: Any) -> Future:
        """As reduce_scatterv, but returns at once."""
        return start(self._handle, self, self._reduce_scatterv(source, target, counts, op), options)

    def gather(self, source: Any, target: Any = None, root: int = 0, **options: Any) -> Any:
        """The sources of all members, one after the other in rank order, into the root's target. Others need none.

        At the root source may be None: its part is already in the target.
        """
        return run(self._handle, self._gather(source, target, root), options)

    def gather_nb(self, source: Any, target: Any = None, root: int = 0, **options: Any) -> Future:
        """As gather, but returns at once."""
        return start(self._handle, self, self._gather(source, target, root), options)

    def gatherv(self, source: Any, target: Any = None, counts: Optional[Sequence[int]] = None, root: int = 0,
                **options: Any) -> Any:
        """As gather, but each gives as many elements as it likes; the root's counts say how many."""
        return run(self._handle, self._gatherv(source, target, counts, root), options)

    def gatherv_nb(self, source: Any, target: Any = None, counts: Optional[Sequence[int]] = None, root: int = 0,
                   **options: Any) -> Future:
        """As gatherv, but returns at once."""
        return start(self._handle, self, self._gatherv(source, target, counts, root), options)

    def scatter(self, source: Any, target: Any, root: int = 0, **options: Any) -> Any:
        """The i-th part of the root's source into member i's target. Others pass None for source."""
        return run(self._handle, self._scatter(source, target, root), options)

    def scatter_nb(self, source: Any, target: Any, root: int = 0, **options: Any) -> Future:
        """As scatter, but returns at once."""
        return start(self._handle, self, self._scatter(source, target, root), options)

    def scatterv(self, source: Any, counts: Optional[Sequence[int]], target: Any, root: int = 0, **options: Any) -> Any:
        """As scatter, but each gets as many elements as its target has; the root's counts say how many."""
        return run(self._handle, self._scatterv(source, counts, target, root), options)

    def scatterv_nb(self, source: Any, counts: Optional[Sequence[int]], target: Any, root: int = 0,
                    **options: Any) -> Future:
        """As scatterv, but returns at once."""
        return start(self._handle, self, self._scatterv(source, counts, target, root), options)

    def all_to_all(self, source: Any, target: Any = None, **options: Any) -> Any:
        """Part j of source goes to member j, part i of target comes from member i. No target: in place."""
        return run(self._handle, self._all_to_all(source, target), options)

    def all_to_all_nb(self, source: Any, target: Any = None, **options: Any) -> Future:
        """As all_to_all, but returns at once."""
        return start(self._handle, self, self._all_to_all(source, target), options)

    def all_to_allv(self, source: Any, source_counts: Sequence[int], target: Any, target_counts: Sequence[int],
                    **options: Any) -> Any:
        """source_counts[j] elements go to member j, target_counts[i] come from member i, one after the other."""
        return run(self._handle, self._all_to_allv(source, source_counts, target, target_counts), options)

    def all_to_allv_nb(self, source: Any, source_counts: Sequence[int], target: Any, target_counts: Sequence[int],
                       **options: Any) -> Future:
        """As all_to_allv, but returns at once."""
        return start(self._handle, self, self._all_to_allv(source, source_counts, target, target_counts), options)

    def scan(self, source: Any, target: Any = None, op: str = "sum", **options: Any) -> Any:
        """target = op over members 0 to rank. No target: in place."""
        return run(self._handle, self._reduction("scan", source, target, op), options)

    def scan_nb(self, source: Any, target: Any = None, op: str = "sum", **options: Any) -> Future:
        """As scan, but returns at once."""
        return start(self._handle, self, self._reduction("scan", source, target, op), options)

    def exclusive_scan(self, source: Any, target: Any = None, op: str = "sum", **options: Any) -> Any:
        """target = op over members 0 to rank - 1; rank 0 gets what changes nothing (0 for sum). No target: in place."""
        return run(self._handle, self._reduction("exclusive_scan", source, target, op), options)

    def exclusive_scan_nb(self, source: Any, target: Any = None, op: str = "sum", **options: Any) -> Future:
        """As exclusive_scan, but returns at once."""
        return start(self._handle, self, self._reduction("exclusive_scan", source, target, op), options)

    def barrier(self, **options: Any) -> None:
        """Returns when all members have called it."""
        return run(self._handle, _BARRIER, options)

    def barrier_nb(self, **options: Any) -> Future:
        """As barrier, but returns at once."""
        return start(self._handle, self, _BARRIER, options)

    def all_reduce_compressed(self, buffer: Any, codec: Optional[str] = None, residual: Any = None, op: str = "sum",
                              **options: Any) -> Any:
        """all_reduce in place through a codec like "topk:0.01" (None: the node's own).

        residual holds what the codec leaves out, for the next step: as many elements as buffer, f32 (f64 for f64
        buffers), zero before the first step. A Compressor keeps it for many tensors.

            residual = numpy.zeros(gradient.size, "f4")
            group.all_reduce_compressed(gradient, "int8", residual, op="avg")
        """
        return run(self._handle, self._compressed(buffer, codec, residual, op), options)

    def all_reduce_compressed_nb(self, buffer: Any, codec: Optional[str] = None, residual: Any = None,
                                 op: str = "sum", **options: Any) -> Future:
        """As all_reduce_compressed, but returns at once."""
        return start(self._handle, self, self._compressed(buffer, codec, residual, op), options)

    def same(self, buffer: Any, timeout: Optional[float] = None) -> bool:
        """Whether all members hold the same bytes in their buffers (by 128-bit hashes); the answer is the same on all.

            assert group.same(weights)
        """
        return self._same(buffer, timeout) is None

    def who_differs(self, buffer: Any, timeout: Optional[float] = None) -> Optional[int]:
        """The lowest rank whose buffer does not hold what most hold, or None if all hold the same."""
        return self._same(buffer, timeout)
