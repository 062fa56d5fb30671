# SPDX-License-Identifier: Apache-2.0
"""Tensors as Hearth wants them: stretches of host memory, and types and operations by Hearth's names."""

import torch
from torch.distributed import ReduceOp

import hearth

ALIGNMENT = 16  # of each tensor in a copy, where types differ
READ, WRITE, BOTH = "read", "write", "both"

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8",
          torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8",
          torch.complex64: "f32", torch.complex128: "f64"}  # two numbers each: only sums and averages take them apart
TYPE_NAMES = {torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
              torch.int8: "Char", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long", torch.uint8: "Byte",
              torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble"}
OPS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "BAND": "band", "BOR": "bor",
       "BXOR": "bxor"}
OPS_OF_BOOLS = {"SUM": "bor", "MAX": "bor", "BOR": "bor", "PRODUCT": "band", "MIN": "band", "BAND": "band",
                "BXOR": "bxor"}
ELEMENT_BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i8": 1, "i32": 4, "i64": 8, "u8": 1}
COMBINE = {"SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
           "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}


def type_name(dtype):
    """As torch's own backends name it."""
    return TYPE_NAMES.get(dtype, str(dtype).rpartition(".")[2])


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def _is_dense(tensor):
    return (tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg())


def _row_of(tensors, total):
    """The address of tensors that stand one after the other; None: they do not."""
    begin, seen = 0, 0
    for tensor in tensors:
        if not _is_dense(tensor):
            return None
        size = bytes_of(tensor)
        if size == 0:
            continue
        begin = begin or tensor.data_ptr()
        if tensor.data_ptr() != begin + seen:
            return None
        seen += size
    return begin if seen == total else None


class Span:
    """A list of tensors that stand one after the other in host memory. Tensors that do so already, dense and in order,
    are used where they are; all others (strided, apart from each other, on a device) by way of a copy."""

    def __init__(self, tensors=(), use=BOTH):
        self.tensors = list(tensors)
        self.offsets, self.bytes = [], 0
        self._copy = None  # None: the tensors themselves
        step = 1 if len({tensor.dtype for tensor in self.tensors}) < 2 else ALIGNMENT
        for tensor in self.tensors:
            self.offsets.append(self.bytes)
            self.bytes += -(-bytes_of(tensor) // step) * step
        self.address = _row_of(self.tensors, self.bytes)
        if self.address is None:
            self._stage(use != WRITE)

    def _stage(self, filled):
        pinned = any(tensor.device.type == "cuda" for tensor in self.tensors)
        self._copy = torch.empty(self.bytes, dtype=torch.uint8, pin_memory=pinned)
        self.address = self._copy.data_ptr()
        if filled:
            with torch.no_grad():
                for tensor, place in self._places():
                    place.copy_(tensor)

    def _places(self):
        """Each tensor with its place in the copy."""
        for tensor, offset in zip(self.tensors, self.offsets):
            size = bytes_of(tensor)
            if size > 0:
                yield tensor, self._copy[offset:offset + size].view(tensor.dtype).view(tensor.shape)

    def memory(self, dtype="u8"):
        """What Hearth's calls take. It keeps the tensors alive."""
        return hearth.Memory(self.address, self.bytes // ELEMENT_BYTES[dtype], dtype, self)

    def deliver(self):
        """After the operation: the tensors get what is in the copy, if there is one."""
        if self._copy is not None:
            with torch.no_grad():
                for tensor, place in self._places():
                    tensor.copy_(place)

    def overlaps(self, other):
        return (self.bytes > 0 and other.bytes > 0 and self.address < other.address + other.bytes
                and other.address < self.address + self.bytes)

    def move_away(self):
        """A copy from now on: for sources that must not be where the target is."""
        if self._copy is None:
            self._stage(True)


def separate(source, target, own_part, place):
    """One's own part may stand in the whole where it belongs; any other overlap costs a copy."""
    if own_part != place and source.overlaps(target):
        source.move_away()


# ---- reductions ----

def op_name(op):
    """Of a ReduceOp, as torch calls it. Its classes differ between versions; all compare."""
    for name in (*OPS, "PREMUL_SUM"):
        if hasattr(ReduceOp, name) and op == getattr(ReduceOp, name):
            return name
    return "UNUSED"


def reduction_of(name, dtype, op):
    """Hearth's names of type and operation. Refuses what Hearth cannot reduce; `name` is the operation's."""
    title = op_name(op)
    if dtype is torch.bool:
        kind, combined = "u8", OPS_OF_BOOLS.get(title)
    else:
        kind, combined = DTYPES.get(dtype), OPS.get(title)
    if kind is None:
        raise hearth.Unsupported(f"{name}: Invalid scalar type: Hearth does not reduce tensors of type "
                                 f"{type_name(dtype)}; it does float, double, half, bfloat16, char, byte, int, long "
                                 "and bool")
    if combined in ("band", "bor", "bxor") and (dtype.is_floating_point or dtype.is_complex):
        raise hearth.Unsupported(f"{name}: Cannot use ReduceOp.{title} with non-integral dtype {type_name(dtype)}")
    if combined is None or (dtype.is_complex and combined not in ("sum", "avg")):
        raise hearth.Unsupported(f"{name}: Hearth does not have ReduceOp.{title} for tensors of type "
                                 f"{type_name(dtype)}")
    return kind, combined


def reduce_here(name, tensors, op):
    """Several tensors of this process, of one type and shape, as one: a new tensor on the host."""
    title = op_name(op)
    if title not in COMBINE:
        raise hearth.Unsupported(f"{name}: Hearth takes one tensor a call for ReduceOp.{title}")
    with torch.no_grad():
        together = tensors[0].cpu().clone(memory_format=torch.contiguous_format)
        for tensor in tensors[1:]:
            together = COMBINE[title](together, tensor.cpu())
    return together.contiguous()
