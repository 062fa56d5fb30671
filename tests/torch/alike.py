# SPDX-License-Identifier: Apache-2.0
"""Compares tensors, and makes them awkward."""

import torch


def strided(tensor):
    """Equal to the tensor, but not contiguous, where it can be so."""
    wide = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
    wide[..., 1] = tensor
    return wide[..., 1]


def same(found, expected, what):
    if isinstance(found, (list, tuple)):
        assert len(found) == len(expected), what
        for one, other in zip(found, expected):
            same(one, other, what)
        return
    assert found.shape == expected.shape and found.dtype == expected.dtype, (what, found, expected)
    assert torch.equal(found, expected), (what, found, expected)
