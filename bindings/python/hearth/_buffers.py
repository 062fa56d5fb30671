# SPDX-License-Identifier: Apache-2.0
"""Other people's memory, as C needs it: address, count and type. Nothing is copied, and nothing is guessed.

`view` takes numpy arrays, torch tensors, array.array, bytearray, memoryview, and anything else with the buffer
protocol, __array_interface__ or __dlpack__. numpy and torch are never imported here: the caller did that.
"""

import ctypes
import math
import re
import struct
import sys
from typing import Any, NamedTuple, Optional, Tuple

from ._errors import Invalid, Unsupported

DTYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 3, "i8": 4, "i32": 5, "i64": 6, "u8": 7, "u32": 8, "u64": 9}
NAMES = {number: name for name, number in DTYPES.items()}
SIZES = {0: 4, 1: 8, 2: 2, 3: 2, 4: 1, 5: 4, 6: 8, 7: 1, 8: 4, 9: 8}
F32, F64, U8 = 0, 1, 7

# The last character of a buffer's format is the kind of number; the item size is separate, because long has several.
_KINDS = {**dict.fromkeys("efd", "f"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNPc", "u"), "?": "?"}
_FOREIGN = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4, "int32": 5, "int64": 6, "uint8": 7,
            "uint32": 8, "uint64": 9, "bool": 7}


class View:
    """A buffer as C sees it. A view keeps the memory alive.

    Attributes: address, count (elements), dtype (a number of enum hearth_dtype), shape (a tuple), keep (what owns
    the memory), truth (its elements are bools: they can be moved, but not added), stage (see Stage; None: C works
    on the memory itself).
    """

    __slots__ = ("address", "count", "dtype", "shape", "keep", "truth", "stage")

    def __init__(self, address, count, dtype, keep=None, shape=None, truth=False, stage=None):
        self.address = address
        self.count = count
        self.dtype = dtype
        self.keep = keep
        self.shape = (count,) if shape is None else shape
        self.truth = truth
        self.stage = stage

    def __repr__(self):
        return f"View({self.count} x {NAMES[self.dtype]} at {self.address:#x})"


class Memory(NamedTuple):
    """Raw memory: `count` elements of type `dtype` ("f32", "u8", ...) at `address`. Hearth believes every word of it.

    >>> import ctypes, hearth
    >>> block = (ctypes.c_float * 8)()
    >>> hearth.Memory(ctypes.addressof(block), 8, "f32", keep=block).count
    8
    """

    address: int
    count: int
    dtype: str
    keep: Any = None


class Stage:
    """A tensor on a device, and pinned memory of this host that C works on instead. Not tested on real devices yet."""

    def __init__(self, tensor, torch, written):
        self.tensor = tensor
        self.written = written
        self.host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def before(self):
        self.host.copy_(self.tensor)  # waits for what the current stream still computes

    def after(self):
        if self.written:
            self.tensor.copy_(self.host)


def dtype_of(name: Any, what: str = "dtype") -> int:
    """The number of a type named "f32", or as numpy and torch name theirs.

    >>> from hearth._buffers import dtype_of
    >>> dtype_of("bf16"), dtype_of("float64")
    (3, 1)
    """
    text = getattr(name, "__name__", None) or getattr(name, "name", None) or str(name)
    text = text.rpartition(".")[2]
    number = DTYPES.get(text, _FOREIGN.get(text))
    if number is None:
        raise Unsupported(f"{what} is {name!r}; there are {', '.join(DTYPES)}")
    return number


def view(thing: Any, writable: bool = True, what: str = "target") -> View:
    """The memory of `thing`: C-contiguous, and writable if it is to be written. `what` names it in errors.

    >>> from hearth._buffers import view
    >>> view(bytearray(5)).count
    5
    """
    kind = type(thing)
    reader = _readers.get(kind)
    if reader is None:
        reader = _readers[kind] = _reader_of(thing, kind, what)
    return reader(thing, writable, what)


def raw(thing: Any, writable: bool = True, what: str = "target") -> View:
    """As view, but elements may be of any type: bytes, where Hearth has none for them.

    >>> from array import array
    >>> from hearth._buffers import raw
    >>> raw(array("h", [1, 2])).count
    4
    """
    try:
        return view(thing, writable, what)
    except Unsupported:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(thing, torch.Tensor):
            return _tensor_bytes(thing, torch, writable, what)
        try:
            memory = memoryview(thing)
        except (TypeError, ValueError, BufferError):
            memory = None
        if memory is None or "O" in memory.format:  # references to objects mean nothing elsewhere
            raise
    if not memory.c_contiguous:
        raise _not_contiguous(what)
    if memory.readonly and writable:
        raise _read_only(what, thing)
    return View(_address_read_only(memory), memory.nbytes, U8, memory)


def bytes_at(address: int, length: int) -> bytes:
    """A copy of memory that C owns."""
    return _make_bytes(address, length) if length else b""


def _reader_of(thing, kind, what):
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, getattr(torch, "Tensor", ())):
        return _tensor
    if isinstance(thing, Memory):
        return _memory
    try:
        memoryview(thing).release()
        return _buffer
    except (ValueError, BufferError):  # this one does not share it, others of its type may
        return _buffer
    except TypeError:
        pass
    if hasattr(thing, "__array_interface__"):
        return _array
    if hasattr(thing, "__dlpack__"):
        return _dlpack
    raise TypeError(f"{what} is of type {kind.__module__}.{kind.__qualname__}, which has no memory to share; it takes "
                    "a numpy array, a torch tensor, array.array, bytearray, memoryview, or anything with the buffer "
                    "protocol, __array_interface__ or __dlpack__")


# ---- the buffer protocol ----

class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python.h."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_make_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_make_bytes.argtypes, _make_bytes.restype = [ctypes.c_void_p, ctypes.c_ssize_t], ctypes.py_object
_byte = ctypes.c_char
_address_of = ctypes.addressof


def _address_read_only(memory):
    found = _PyBuffer()
    _get_buffer(memory, ctypes.byref(found), 0)
    address = found.buf
    _release_buffer(ctypes.byref(found))
    return address or 0


def _buffer(thing, writable, what):
    try:
        memory = memoryview(thing)  # while it lives a bytearray cannot change its length
    except (ValueError, BufferError):
        if hasattr(thing, "__array_interface__"):  # numpy arrays of a type that the protocol does not have
            return _array(thing, writable, what)
        raise
    if not memory.c_contiguous:
        raise _not_contiguous(what)
    read_only = memory.readonly
    if read_only and writable:
        raise _read_only(what, thing)
    size = memory.itemsize or struct.calcsize(memory.format[-1:])  # 0: an empty array of an older ctypes
    found = _formats.get((memory.format, size))
    if found is None:
        found = _format(memory.format, size, what)
    count = memory.nbytes // size
    if read_only or count == 0:
        address = _address_read_only(memory)
    else:
        address = _address_of(_byte.from_buffer(memory))
    return View(address, count, found[0], memory, memory.shape, found[1])


def _format(text, size, what):
    """(dtype, whether it is a truth value) of a buffer's format."""
    order, message = text[:-1], text[-1:]
    foreign = ">!" if sys.byteorder == "little" else "<"
    kind = _KINDS.get(message) if order in ("", "@", "=", "<", ">", "!") else None
    if kind is None or (order and order in foreign and size > 1):
        raise Unsupported(f"{what} has elements of format {text!r}, which Hearth has no type for; there are "
                          f"{', '.join(DTYPES)}. To move bytes, pass a view of them: x.view('u1') or "
                          "memoryview(x).cast('B')")
    number = U8 if kind == "?" else DTYPES.get(f"{kind}{size * 8}")
    if number is None:
        raise Unsupported(f"{what} is {kind}{size * 8}, which Hearth has no type for; there are {', '.join(DTYPES)}. "
                          "To move bytes, pass a view of them: x.view('u1') or memoryview(x).cast('B')")
    _formats[text, size] = number, kind == "?"
    return _formats[text, size]


_formats = {}


# ---- torch ----

def _tensor(thing, writable, what):
    found = _torch_types.get(thing.dtype)
    if found is None:
        found = _torch_type(thing.dtype, what)
    torch = sys.modules["torch"]
    if thing.layout is not torch.strided or thing.is_conj() or thing.is_neg():
        raise Unsupported(f"{what} is a lazy or {thing.layout} tensor; it takes dense ones: call .to_dense()")
    if not thing.is_contiguous():
        raise _not_contiguous(what)
    shape = tuple(thing.shape)
    if thing.device.type != "cpu":
        stage = Stage(thing, torch, writable)
        return View(stage.host.data_ptr(), thing.numel(), found[0], stage, shape, found[1], stage)
    return View(thing.data_ptr(), thing.numel(), found[0], thing, shape, found[1])


def _tensor_bytes(thing, torch, writable, what):
    """A tensor of a type that Hearth has none for."""
    if thing.layout is not torch.strided or thing.is_conj() or thing.is_neg():
        raise Unsupported(f"{what} is a lazy or {thing.layout} tensor; it takes dense ones: call .to_dense()")
    if not thing.is_contiguous():
        raise _not_contiguous(what)
    return _tensor(thing.detach().reshape(-1).view(torch.uint8), writable, what)


def _torch_type(dtype, what):
    number = _FOREIGN.get(str(dtype).rpartition(".")[2])
    if number is None:
        raise Unsupported(f"{what} is {dtype}, which Hearth has no type for; there are {', '.join(DTYPES)}")
    _torch_types[dtype] = number, str(dtype) == "torch.bool"
    return _torch_types[dtype]


_torch_types = {}


# ---- __array_interface__, __dlpack__, raw memory ----

def _array(thing, writable, what):
    told = thing.__array_interface__
    data, text, shape, strides = told.get("data"), told["typestr"], tuple(told["shape"]), told.get("strides")
    if not isinstance(data, tuple):
        raise Unsupported(f"{what}: its __array_interface__ gives no address")
    size = int(re.match(r"\d*", text[2:])[0] or 1)
    if strides is not None and not _is_contiguous(shape, [step // size for step in strides]):
        raise _not_contiguous(what)
    if data[1] and writable:
        raise _read_only(what, thing)
    name = getattr(getattr(thing, "dtype", None), "name", "")
    if name == "bfloat16":  # numpy has none of its own, and calls that of others void
        number, truth = DTYPES["bf16"], False
    else:
        message = {"f": "d", "i": "q", "u": "Q", "b": "?"}.get(text[1], "x")
        number, truth = _format(text[0].replace("|", "") + message, size, what)
    return View(data[0], math.prod(shape), number, thing, shape, truth)


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, the first member of what a capsule holds."""

    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_DL_HOST = {1, 3, 11}  # memory of this host, also if pinned for a device
_DL_KINDS = {0: "i", 1: "u", 2: "f", 4: "bf", 6: "u"}


def _dlpack(thing, writable, what):
    """The capsule is kept and never consumed: its destructor gives the memory back."""
    device = thing.__dlpack_device__()[0] if hasattr(thing, "__dlpack_device__") else 1
    if int(device) not in _DL_HOST:
        raise Unsupported(f"{what} is in the memory of a device (DLPack type {int(device)}); copy it to the host, or "
                          "pass it as a torch tensor")
    capsule = thing.__dlpack__()
    told = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(told.shape[i] for i in range(told.ndim))
    if told.strides and not _is_contiguous(shape, [told.strides[i] for i in range(told.ndim)]):
        raise _not_contiguous(what)
    number = DTYPES.get(f"{_DL_KINDS.get(told.code, '?')}{told.bits}") if told.lanes == 1 else None
    if number is None:
        raise Unsupported(f"{what} has elements of DLPack type {told.code}, {told.bits} bits x {told.lanes}, which "
                          f"Hearth has no type for; there are {', '.join(DTYPES)}")
    return View((told.data or 0) + told.byte_offset, math.prod(shape), number, (capsule, thing), shape, told.code == 6)


def _memory(thing, writable, what):
    number = dtype_of(thing.dtype, f"{what}: dtype")
    if thing.count < 0 or thing.address < 0:
        raise Invalid(f"{what}: Memory of count {thing.count} at {thing.address}")
    return View(thing.address, thing.count, number, thing)


_readers = {}


# ---- checks and errors ----

def _is_contiguous(shape, strides):
    """Strides in elements. Those of dimensions of one element, and of nothing, do not matter."""
    expected = 1
    for length, step in zip(reversed(shape), reversed(strides)):
        if length == 0:
            return True
        if length != 1 and step != expected:
            return False
        expected *= length
    return True


def counts_of(counts: Any, size: int, what: str) -> Tuple[Any, list]:
    """A list of counts, as C takes it and as Python does."""
    numbers = [int(count) for count in counts]
    if len(numbers) != size:
        raise Invalid(f"{what} has {len(numbers)} numbers, but the group has {size} members")
    if min(numbers) < 0 or sum(numbers) >= 1 << 62:
        raise Invalid(f"{what} is {numbers}: counts are from 0 to 2^62 together")
    return (ctypes.c_size_t * size)(*numbers), numbers


def same_type(first: View, second: View, names: Tuple[str, str], call: str) -> None:
    if first.dtype != second.dtype:
        raise Invalid(f"{call}: {names[0]} is {NAMES[first.dtype]}, but {names[1]} is {NAMES[second.dtype]}")


def same_count(given: int, wanted: int, call: str, what: str, why: Optional[str] = None) -> None:
    if given != wanted:
        raise Invalid(f"{call}: {what} has {given} elements; it must have {wanted}" + (f" ({why})" if why else ""))


def _not_contiguous(what):
    return Invalid(f"{what} is not C-contiguous: its elements are not adjacent. Pass a contiguous "
                   "copy (numpy.ascontiguousarray(x), tensor.contiguous()) and copy the result back")


def _read_only(what, thing):
    return Invalid(f"{what} is read-only ({type(thing).__name__}), but it is written to. Pass a copy, like "
                   "bytearray(x) or x.copy()")
