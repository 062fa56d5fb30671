# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors in all_reduce: members tell each other how many entries they have, then all of them get all entries
and add them up in the order of ranks, so that the result is the same everywhere.

On the wire each member's part is its indices, then its values, then zeros up to a whole block."""

import torch

import hearth

from ._staging import type_name

DIMS_MAX = 16
BLOCK = 16  # every member's part begins at a multiple: all types are aligned
TYPES = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
         torch.float32: 6, torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11,
         torch.bfloat16: 15}  # c10::ScalarType, as the process group in C++ sends it
ENTRIES, TYPE, SPARSE_DIMS, DIMS, SIZES = range(5)
SHAPE_LEN = SIZES + DIMS_MAX


def _describe(shape):
    kind = next((type_name(dtype) for dtype, number in TYPES.items() if number == shape[TYPE]), "?")
    sizes = ", ".join(map(str, shape[SIZES:SIZES + min(shape[DIMS], DIMS_MAX)]))
    return f"{kind} [{sizes}], {shape[SPARSE_DIMS]} of the dimensions sparse"


class SparseSum:
    """Tensors of one shape and type; they are added up here."""

    def __init__(self, name, tensors):
        self.name = name
        with torch.no_grad():
            own = tensors[0].cpu()
            for tensor in tensors[1:]:
                own = own + tensor.cpu()
            self.own = own = own.coalesce()
        if own.dim() > DIMS_MAX or own.dtype not in TYPES:
            raise hearth.Unsupported(f"{name}: a sparse tensor has {own.dim()} dimensions of {own.dtype}; at most "
                                     f"{DIMS_MAX} dimensions are supported")
        shape = [own._nnz(), TYPES[own.dtype], own.sparse_dim(), own.dim(), *own.shape]
        self.shape = torch.tensor(shape + [0] * (SHAPE_LEN - len(shape)), dtype=torch.int64)
        self._value_shape = tuple(own.shape[own.sparse_dim():])
        self._index_bytes = own.sparse_dim() * 8
        self._value_bytes = own.element_size()
        for size in self._value_shape:
            self._value_bytes *= size
        self.entries, self.counts = [], []  # of each member: entries, and bytes

    def meet(self, shapes):
        """Takes what all members have told, in the order of ranks. Refuses tensors that do not match, in the same words
        on all members."""
        told = shapes.view(-1, SHAPE_LEN).tolist()
        for rank, shape in enumerate(told):
            if shape[TYPE:] != told[0][TYPE:] or shape[ENTRIES] < 0:
                raise hearth.Mismatch(f"{self.name}: Sparse dimensions do not match: rank {rank} has "
                                      f"{_describe(shape)}, rank 0 has {_describe(told[0])}", None, rank)
            self.entries.append(shape[ENTRIES])
            size = shape[ENTRIES] * (self._index_bytes + self._value_bytes)
            self.counts.append(-(-size // BLOCK) * BLOCK)

    def pack(self, rank):
        """This member's bytes."""
        parts = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in (self.own.indices(), self.own.values())]
        fill = torch.zeros(self.counts[rank] - sum(part.numel() for part in parts), dtype=torch.uint8)
        return torch.cat([*parts, fill])

    def unpack(self, everything):
        """The sum of the bytes of all members."""
        total, offset, dims = None, 0, self.own.sparse_dim()
        for count, size in zip(self.entries, self.counts):
            between, end = offset + count * self._index_bytes, offset + count * (self._index_bytes + self._value_bytes)
            indices = everything[offset:between].clone().view(torch.int64).view(dims, count)
            values = everything[between:end].clone().view(self.own.dtype).view(count, *self._value_shape)
            part = torch.sparse_coo_tensor(indices, values, self.own.shape)
            total = part if total is None else total + part
            offset += size
        return total.coalesce()
