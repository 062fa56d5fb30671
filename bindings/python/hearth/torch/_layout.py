# SPDX-License-Identifier: Apache-2.0
"""How the parameters of a bucket travel: compressed ones each by itself, plain ones in as few operations as can be."""

from typing import NamedTuple, Optional

import torch

NDIM_MAX = 8
IN_PLACE_BYTES = 1 << 20  # a plain stretch of at least this is not worth copying


class Stretch(NamedTuple):
    """A part of a bucket's buffer."""

    start: int
    count: int


class Coded(NamedTuple):
    """One compressed parameter."""

    name: str
    where: Stretch
    shape: tuple


class Layout:
    """The operations of one bucket, in the order in which they are started.

    coded: compressed parameters; direct: plain ranges that are sent in place; gathered: plain stretches that
    are copied together. A new layout is made when DDP rebuilds its buckets; nothing that must last is kept in it.
    """

    def __init__(self, coded, direct, gathered):
        self.coded, self.direct, self.gathered = coded, direct, gathered
        self.plain_count = sum(stretch.count for stretch in direct + gathered)
        self.flat: Optional[torch.Tensor] = None

    def gather(self, buffer):
        """The gathered stretches, one after the other."""
        parts = [buffer[start:start + count] for start, count in self.gathered]
        if self.flat is None or self.flat.dtype != buffer.dtype:
            self.flat = torch.empty(sum(s.count for s in self.gathered), dtype=buffer.dtype, device=buffer.device)
        return torch.cat(parts, out=self.flat)

    def scatter(self, buffer):
        """Back to where they came from."""
        at = 0
        for start, count in self.gathered:
            buffer[start:start + count].copy_(self.flat[at:at + count])
            at += count


def _shape(parameter):
    """Of as many dimensions as the library takes: to it a tensor is a matrix of the first and the rest."""
    shape = tuple(parameter.shape)
    return shape if len(shape) <= NDIM_MAX else (shape[0], parameter.numel() // shape[0])


def make(parameters, element_bytes, name_of_coded) -> Layout:
    """parameters: in buffer order. name_of_coded(parameter): None if it goes plain."""
    coded, plain, at = [], [], 0
    for parameter in parameters:
        name, count = name_of_coded(parameter), parameter.numel()
        if name is not None and count > 0:
            coded.append(Coded(name, Stretch(at, count), _shape(parameter)))
        elif plain and sum(plain[-1]) == at:
            plain[-1] = Stretch(plain[-1].start, plain[-1].count + count)
        elif count > 0:
            plain.append(Stretch(at, count))
        at += count
    direct = [s for s in plain if s.count * element_bytes >= IN_PLACE_BYTES]
    gathered = [s for s in plain if s.count * element_bytes < IN_PLACE_BYTES]
    if len(gathered) == 1:
        direct, gathered = direct + gathered, []
    return Layout(coded, direct, gathered)
