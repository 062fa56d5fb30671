# SPDX-License-Identifier: Apache-2.0
"""Compression: the state of many tensors (Compressor), gradients of a model (Sync), and buffers by themselves."""

import ctypes
import dataclasses
import math
import weakref
from typing import Any, Optional, Sequence, Union

from . import _errors
from ._buffers import F32, F64, NAMES, SIZES, View, dtype_of, same_count, view
from ._calls import OPS, choice, encoded, reduced, run, start, text_for_c, timeout_opts
from ._errors import Invalid, Unsupported
from ._futures import Future
from ._handles import Handle, Owner, interruptible, text_of
from ._library import CompressorConfig, CompressorStats, Tensor, lib
from ._nodes import Group


@dataclasses.dataclass(frozen=True)
class Stats:
    """What became of one tensor of a compressor, or of all together."""

    tensors: int  #: known
    steps: int  #: all-reduces that ended well
    plain_bytes: int  #: what they would have sent uncompressed from this member
    sent_bytes: int  #: what they sent
    ratio: float  #: plain / sent; 0 while nothing was sent
    captured: float  #: share of the last step's energy that was sent, 0 to 1
    residual_norm: float  #: Euclidean norm of what is left behind now


def _patterns(patterns):
    """Comma-separated for C; a list is taken too."""
    if patterns is None:
        return None
    return text_for_c(patterns if isinstance(patterns, str) else ",".join(patterns), "pattern")


def _tensor(name, address, dtype, shape):
    """struct hearth_tensor, which keeps its memory alive."""
    dims = (ctypes.c_size_t * len(shape))(*shape)
    return Tensor(ctypes.sizeof(Tensor), text_for_c(name, "name"), address, dtype, len(shape), dims)


def _known(name):
    """The name of a tensor; None: all."""
    return None if name is None else text_for_c(name, "name")


def _shape(shape, found, what):
    """The shape for C: the buffer's own, or one with as many elements."""
    if shape is None:
        return found.shape
    shape = tuple(int(length) for length in shape)
    if any(length < 0 for length in shape):
        raise Invalid(f"{what}: shape is {shape}")
    same_count(found.count, math.prod(shape), what, "buffer", f"shape is {shape}")
    return shape


class Compressor(Owner):
    """All-reduces tensors through a codec, and keeps the residual of each, which the next step adds.

    A tensor's name is its identity; its first step fixes type and shape. Tensors of one dimension and those with
    fewer than min_count elements go plain. `include` and `exclude` are patterns with * and ? (a text with
    commas, or a list); `rule` gives a codec to some tensors. All members set it up alike.

    >>> import hearth
    >>> def work(group):
    ...     with hearth.Compressor(group, "topk:0.01", min_count=1) as compressor:
    ...         gradient = memoryview(bytearray(4 * 100)).cast("f", (10, 10))
    ...         compressor.all_reduce("weight", gradient)
    ...         return compressor.stats().steps
    >>> hearth.local(work, 2)
    [1, 1]
    """

    __slots__ = ("_handle", "_sync", "group", "__weakref__")

    def __init__(self, group: Group, codec: Optional[str] = None, *, min_count: int = 4096, vectors: bool = False,
                 include: Union[str, Sequence[str], None] = None, exclude: Union[str, Sequence[str], None] = None,
                 warmup_steps: int = 0, ramp_steps: int = 0):
        config = CompressorConfig()
        lib.compressor_config_init_sized(config, ctypes.sizeof(config))
        for name, value in (("min_count", min_count), ("warmup_steps", warmup_steps), ("ramp_steps", ramp_steps)):
            if not 0 <= value < 1 << 63:
                raise Invalid(f"Compressor: {name} is {value}")
            setattr(config, name, value)
        config.codec, config.vectors = encoded(codec), int(bool(vectors))
        config.include, config.exclude = _patterns(include), _patterns(exclude)
        self.group = group
        made = ctypes.c_void_p()
        with group._handle as address:
            _errors.check(lib.compressor_open(address, config, ctypes.byref(made)), group.rank)
            self._handle = group._handle.adopt(
                Handle("compressor", group._handle, made.value, lib.compressor_close, group.rank))

    @classmethod
    def _of_sync(cls, sync, handle):
        """The compressor that a sync has opened for itself, and closes; it keeps the sync alive."""
        made = cls.__new__(cls)
        made.group, made._handle, made._sync = sync.group, handle, sync
        return made

    def _check(self, name, buffer, op, shape):
        what = f"all_reduce of {name!r}"
        only = view(buffer, True, what)
        tensor = _tensor(name, only.address, only.dtype, _shape(shape, only, what))
        return lib.compressor_all_reduce_nb, (tensor, reduced(what, op, only)), (only,), buffer

    def all_reduce(self, name: str, buffer: Any, op: str = "avg", *, shape: Optional[Sequence[int]] = None,
                   **options: Any) -> Any:
        """buffer = op (avg or sum) over members of buffer, in place. Returns the buffer.

        `shape` is the buffer's own unless given. Options are those of a Group's collectives.
        """
        return run(self._handle, self._check(name, buffer, op, shape), options)

    def all_reduce_nb(self, name: str, buffer: Any, op: str = "avg", *, shape: Optional[Sequence[int]] = None,
                      **options: Any) -> Future:
        """As all_reduce, but returns at once. A tensor takes part in one operation at a time."""
        return start(self._handle, self, self._check(name, buffer, op, shape), options)

    def rule(self, pattern: str, codec: str) -> None:
        """Tensors whose name matches the pattern (* and ?) use this codec; the last rule that matches counts.

            compressor.rule("*.embedding.weight", "int8")
        """
        with self._handle as address:
            status = lib.compressor_add_rule(address, text_for_c(pattern, "pattern"), encoded(codec))
            _errors.check(status, self.group.rank)

    def reset(self, name: Optional[str] = None) -> None:
        """Forgets what is kept of one tensor, or of all."""
        with self._handle as address:
            _errors.check(lib.compressor_reset(address, _known(name)), self.group.rank)

    def scale(self, factor: float) -> None:
        """Multiplies what is kept by a factor: after a change of the loss scale, new / old."""
        with self._handle as address:
            _errors.check(lib.compressor_scale(address, factor), self.group.rank)

    def save(self) -> bytes:
        """The state as bytes, for a checkpoint. Every member has its own.

            torch.save({"model": model.state_dict(), "hearth": compressor.save()}, f"{group.rank}.pt")
        """
        with self._handle as address:
            size = 0
            while True:
                buffer = ctypes.create_string_buffer(size)
                length = _errors.check(lib.compressor_save(address, buffer, size), self.group.rank)
                if length <= size:
                    return buffer.raw[:length]
                size = length

    def load(self, data: bytes) -> None:
        """Replaces the state by one of save(): training continues bit for bit if all members load theirs."""
        found = view(data, False, "load: data")
        with self._handle as address:
            status = lib.compressor_load(address, found.address, found.count * SIZES[found.dtype])
            _errors.check(status, self.group.rank)

    def stats(self, name: Optional[str] = None) -> Stats:
        """What became of one tensor, or of all together."""
        told = CompressorStats(size=ctypes.sizeof(CompressorStats))
        with self._handle as address:
            _errors.check(lib.compressor_stats(address, _known(name), told), self.group.rank)
        return Stats(**{field.name: getattr(told, field.name) for field in dataclasses.fields(Stats)})

    def explain(self, name: str) -> str:
        """How a tensor travels and why, for people: codec, algorithm, expected time."""
        with self._handle as address:
            return text_of(lib.compressor_explain, address, text_for_c(name, "name"))

    def close(self) -> None:
        """Closes it; operations in flight are cancelled. That of a Sync is closed with it."""
        super().close()


class Sync(Owner):
    """Reduces the gradients of many tensors as they become ready, while the program computes the rest.

    Opened on a group, with a codec, or on a Compressor that has been set up. All members add the same tensors in the
    same order; then, in every step, they mark each as ready, and wait.

    >>> import hearth
    >>> from array import array
    >>> def work(group):
    ...     gradient = array("f", [group.rank, 1])
    ...     with hearth.Sync(group) as sync:
    ...         index = sync.add("bias", gradient)
    ...         sync.ready(index)
    ...         sync.wait()
    ...     return gradient.tolist()
    >>> hearth.local(work, 2)
    [[0.5, 1.0], [0.5, 1.0]]
    """

    __slots__ = ("_handle", "_views", "_given", "_inner", "_compressor", "group", "__weakref__")

    def __init__(self, group: Union[Group, Compressor], codec: Optional[str] = None, op: str = "avg"):
        given = group if isinstance(group, Compressor) else None
        if given is not None and codec is not None:
            raise TypeError("Sync: a compressor has its codec already")
        self.group = group if given is None else given.group
        parent, made, number = group._handle, ctypes.c_void_p(), choice(OPS, op, "Sync: op")
        self._views, self._given, self._inner, self._compressor = [], given, None, None
        with parent as address:
            if given is None:
                status = lib.sync_open(address, encoded(codec), number, ctypes.byref(made))
            else:
                status = lib.sync_open_with(address, number, ctypes.byref(made))
            _errors.check(status, self.group.rank)
            self._handle = parent.adopt(Handle("sync", parent, made.value, lib.sync_close, self.group.rank))
            self._handle.keep = self._views

    @property
    def compressor(self) -> Compressor:
        """The compressor that it works with, for rules, stats, save and load."""
        if self._given is not None:
            return self._given
        found = self._compressor() if self._compressor is not None else None
        if found is None:
            if self._inner is None:
                with self._handle as address:
                    inner = Handle("compressor", self._handle, lib.sync_compressor(address), None, self.group.rank)
                    self._inner = self._handle.adopt(inner)
            found = Compressor._of_sync(self, self._inner)
            self._compressor = weakref.ref(found)
        return found

    def add(self, name: str, buffer: Any = None, shape: Optional[Sequence[int]] = None, dtype: Any = None) -> int:
        """Registers a tensor and returns its index. Without a buffer, shape and dtype say what set_data will bring."""
        what = f"add of {name!r}"
        if buffer is not None:
            found = view(buffer, True, what)
            _on_host(found, what)
            shape = _shape(shape, found, what)
            if dtype is not None and dtype_of(dtype) != found.dtype:
                raise Invalid(f"{what}: dtype is {dtype}, but the buffer is {NAMES[found.dtype]}")
        elif shape is None or dtype is None:
            raise Invalid(f"{what}: without a buffer, shape and dtype are needed")
        else:
            shape = tuple(int(length) for length in shape)
            found = View(None, math.prod(shape), dtype_of(dtype))
        with self._handle as address:
            tensor = _tensor(name, found.address, found.dtype, shape)
            index = _errors.check(lib.sync_add(address, tensor), self.group.rank)
            self._views += [None] * (index + 1 - len(self._views))
            self._views[index] = found
            return index

    def set_data(self, index: int, buffer: Any) -> None:
        """Sets the buffer of the tensor's gradients. Not between ready() and wait()."""
        found = view(buffer, True, f"set_data of {index}")
        _on_host(found, f"set_data of {index}")
        with self._handle as address:
            was = self._views[index] if 0 <= index < len(self._views) else None
            if was is None:
                raise Invalid(f"set_data: index is {index}; {len(self._views)} tensors are registered")
            same_count(found.count, was.count, f"set_data of {index}", "buffer", "as it was registered with")
            if found.dtype != was.dtype:
                raise Invalid(f"set_data of {index}: buffer is {NAMES[found.dtype]}, registered was {NAMES[was.dtype]}")
            _errors.check(lib.sync_set_data(address, index, found.address), self.group.rank)
            self._views[index] = found

    def set_weight(self, weight: float) -> None:
        """This member's weight from the next step on, for op "avg"."""
        with self._handle as address:
            _errors.check(lib.sync_set_weight(address, weight), self.group.rank)

    def ready(self, index: int) -> None:
        """Marks this step's gradient as complete; it belongs to the sync until wait() has returned."""
        with self._handle as address:
            if not 0 <= index < len(self._views) or self._views[index].address is None:
                raise Invalid(f"ready: tensor {index} has no buffer; set_data gives it one")
            _errors.check(lib.sync_ready(address, index), self.group.rank)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Ends the step: waits for all gradients, at most `timeout` seconds (None: the node's op_timeout).

        After an error make all ready again and wait again, or drop() the step; all members do the same. In a group of
        form() ready() need not be repeated, also not after reform(): a committed step is written, an aborted one is
        sent again with the present contents of the buffers. Ctrl-C ends the wait, but not the step, which goes on in
        the background.
        """
        opts = timeout_opts(timeout)

        def finish():
            with self._handle as address:
                _errors.check(lib.sync_wait(address, opts), self.group.rank)

        interruptible(finish)

    @property
    def steps(self) -> int:
        """The number of steps committed here, including one that the next wait() will write."""
        with self._handle as address:
            return lib.sync_steps(address)

    def drop(self) -> None:
        """Gives up the step that has begun or failed, for all members. Gradients of it hold anything."""
        with self._handle as address:
            if len(self._handle.users) > 1:
                raise Invalid("drop: another thread is in a call on this sync, or an interrupted wait goes on")
            lib.sync_drop(address)

    def close(self) -> None:
        """Closes it, and the compressor that it has opened; a step that has begun is given up."""
        super().close()


def _on_host(found, what):
    if found.stage is not None:
        raise Unsupported(f"{what}: a sync takes memory of this host; use a Compressor for tensors on a device")


# ---- one buffer by itself ----

def codec_check(codec: str) -> None:
    """Raises hearth.Invalid, with the grammar, if the text names no codec.

    >>> import hearth
    >>> hearth.codec_check("topk:0.01,values=int8")
    """
    _errors.check(lib.codec_check(text_for_c(codec, "codec")))


def compress(codec: str, buffer: Any, residual: Any = None, key: int = 0) -> bytes:
    """The buffer (plus the residual) as a codec shortens it; the residual keeps what that lacks.

    `key` is for codecs that draw: the same on all that must draw alike, another each time.

    >>> import hearth
    >>> from array import array
    >>> data = hearth.compress("int8", array("f", [1, 2, 3, 4]))
    >>> [round(x) for x in hearth.decompress(data, array("f", [0] * 4))]
    [1, 2, 3, 4]
    """
    found = view(buffer, False, "compress: buffer")
    kept = None
    if residual is not None:
        kept = view(residual, True, "compress: residual")
        if kept.dtype != (F64 if found.dtype == F64 else F32):
            raise Invalid(f"compress: residual is {NAMES[kept.dtype]}; it must be f64 for f64 buffers, else f32")
        same_count(kept.count, found.count, "compress", "residual", "as buffer has")
    if not 0 <= key < 1 << 64:
        raise Invalid(f"compress: key is {key}; it takes 0 to 2^64 - 1")
    codec_check(codec)
    bound = lib.codec_bound(codec.encode(), found.count, found.dtype)
    target, length = ctypes.create_string_buffer(max(bound, 1)), ctypes.c_size_t()
    _errors.check(lib.codec_compress(codec.encode(), key, found.address, found.count, found.dtype,
                               None if kept is None else kept.address, target, bound, ctypes.byref(length)))
    return target.raw[:length.value]


def decompress(data: Any, target: Any) -> Any:
    """Fills the target with what compress() shortened, and returns it. The target has the count and type of then."""
    found, filled = view(data, False, "decompress: data"), view(target, True, "decompress: target")
    _errors.check(lib.codec_decompress(found.address, found.count * SIZES[found.dtype], filled.address, filled.count,
                                 filled.dtype))
    return target
