# SPDX-License-Identifier: Apache-2.0
"""Argument checks of the process group in Python. They say what torch's own backends say, so that programs which know
those find the words that they look for. `name` is the operation's, and begins every text."""

import torch

import hearth

from ._staging import bytes_of, type_name

DEVICES = ("cpu", "cuda")
LAYOUTS = {torch.strided: "Strided", torch.sparse_coo: "Sparse"}


def refuse(name, text):
    raise hearth.Invalid(f"{name}: {text}")


def _sizes(tensor):
    return f"({', '.join(map(str, tensor.shape))})"


def movable(name, tensors):
    """Dense, and on devices that Hearth reaches."""
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise hearth.Unsupported(f"{name}: only supports dense tensors; call to_dense() first")
        if tensor.device.type not in DEVICES:
            raise hearth.Unsupported(f"{name}: unsupported device type {tensor.device}")


def _same_layout(name, tensors):
    if not tensors:
        refuse(name, "requires non-empty tensor list")
    for index, tensor in enumerate(tensors):
        if tensor.layout is not tensors[0].layout:
            expected, found = (LAYOUTS.get(one.layout, str(one.layout)) for one in (tensors[0], tensor))
            refuse(name, f"invalid tensor layout at index {index} (expected {expected}, got {found})")


def _same_type(name, tensor, like, index):
    if tensor.type() != like.type():
        refuse(name, f"invalid tensor type at index {index} (expected {like.type()}, got {tensor.type()})")


def _same_shape(name, tensor, like, index):
    if tensor.shape != like.shape:
        refuse(name, f"invalid tensor size at index {index} (expected {_sizes(like)}, got {_sizes(tensor)})")


def _like(name, tensors, like, shaped=None):
    """All are of this type; those at index `shaped` (None: all) have this shape too."""
    for index, tensor in enumerate(tensors):
        movable(name, [tensor])
        _same_type(name, tensor, like, index)
        if shaped is None or index == shaped:
            _same_shape(name, tensor, like, index)


def alike(name, tensors):
    """At least one, all of one type and shape."""
    _same_layout(name, tensors)
    _like(name, tensors, tensors[0])


def alike_sparse(name, tensors):
    _same_layout(name, tensors)
    for index, tensor in enumerate(tensors):
        _same_type(name, tensor, tensors[0], index)
        _same_shape(name, tensor, tensors[0], index)


def single(name, tensors, what=""):
    """Exactly one; `what` is "", "input " or "output "."""
    if len(tensors) != 1:
        refuse(name, f"requires a single-element {what}tensor list")
    movable(name, tensors)


def coalesced(name, tensors):
    """Of one type and device, whatever their shapes."""
    _same_layout(name, tensors)
    for tensor in tensors:
        if tensor.dtype != tensors[0].dtype:
            refuse(name, "tensors must all have the same type")
        if tensor.device != tensors[0].device:
            refuse(name, "tensors must all be on the same device")
    if tensors[0].layout is not torch.strided:
        refuse(name, "unsupported layout")
    movable(name, tensors)


def root(name, rank, size):
    if not 0 <= rank < size:
        refuse(name, f"invalid root rank: {rank} (the group has {size})")
    return rank


def root_tensor(name, index, tensors):
    if not 0 <= index < len(tensors):
        refuse(name, f"invalid root tensor: {index}")
    return index


def peer(name, rank, size):
    """Of a message."""
    if not 0 <= rank < size:
        refuse(name, f"invalid rank: {rank} (the group has {size})")
    return rank


def tag(name, number):
    if not 0 <= number < 1 << 31:
        refuse(name, f"Tag must be nonnegative: {number}")
    return number


def gathered(name, outputs, inputs, rank, size):
    """Lists with `size` tensors for each of the inputs. Of one input only the list's tensor at `rank` has its shape:
    members may give differently much."""
    if not inputs:
        refuse(name, "requires non-empty input tensor list")
    if len(inputs) != len(outputs):
        refuse(name, "requires input/output tensor lists to have the same length")
    expected = len(inputs) * size
    for index, output in enumerate(outputs):
        if len(output) != expected:
            refuse(name, f"invalid output tensor list at index {index} (expected length {expected}, got {len(output)})")
    alike(name, inputs)
    for output in outputs:
        _like(name, output, inputs[0], rank if len(inputs) == 1 else None)


def _list_of_one(name, lists, size, what):
    if len(lists) != 1:
        refuse(name, f"requires a single-element {what} list containing a list with {size} tensors")
    if len(lists[0]) != size:
        refuse(name, f"Incorrect {what} list size {len(lists[0])}. {what.capitalize()} list size should be {size}, "
                     "same as size of the process group.")


def root_list(name, lists, own, size, what):
    """The one list of a root, with a tensor for each member, like `own`; `what` is "input" or "output"."""
    _list_of_one(name, lists, size, what)
    _like(name, lists[0], own)


def scattered(name, inputs, own, rank, size):
    """As root_list, but only the tensor at `rank` must have the shape of `own`."""
    _list_of_one(name, inputs, size, "input")
    _like(name, inputs[0], own, rank)


def no_list(name, lists, what):
    """Elsewhere than at the root there must be none."""
    if lists:
        refuse(name, f"requires empty {what} on non-root")


def gathered_coalesced(name, outputs, inputs, size):
    """outputs[i] is like all inputs together."""
    if not inputs:
        refuse(name, "requires non-empty input tensor list")
    if len(outputs) != size:
        refuse(name, "output lists should be equal to world size")
    movable(name, inputs)
    for output in outputs:
        if len(output) != len(inputs):
            refuse(name, f"invalid output size: (expected length {len(inputs)}, got {len(output)})")
        movable(name, output)
        for index, (tensor, like) in enumerate(zip(output, inputs)):
            if tensor.shape != like.shape:
                refuse(name, f"invalid size of output tensor at index {index} (expected length {_sizes(like)}, got "
                             f"{_sizes(tensor)})")
            _same_type(name, tensor, like, index)


def whole(name, tensor, part, size, names):
    """The whole has `size` times the elements of the part, and its type. `names`: ("output", "input") or reversed."""
    movable(name, [tensor, part])
    if tensor.dtype != part.dtype:
        refuse(name, f"{names[0]} tensor must have the same type as {names[1]} tensor ({type_name(tensor.dtype)}, not "
                     f"{type_name(part.dtype)})")
    if tensor.numel() != part.numel() * size:
        refuse(name, f"{names[0]} tensor size must be equal to world_size times {names[1]} tensor size "
                     f"({tensor.numel()} elements, not {size} times {part.numel()})")


def split_bytes(name, tensor, splits, size, what):
    """How many bytes of the tensor belong to each member, by rows; no splits: the same for all."""
    rows = tensor.shape[0] if tensor.dim() > 0 else 1
    if not splits:
        if rows % size != 0:
            refuse(name, f"{what}: Tensor's dim 0 does not divide equally across group size ({rows} rows, {size} "
                         "members)")
        return [bytes_of(tensor) // size] * size
    if len(splits) != size:
        refuse(name, f"{what}: Number of tensor splits not equal to group size ({len(splits)}, not {size})")
    if min(splits) < 0:
        refuse(name, f"{what}: split sizes must not be negative")
    if sum(splits) != rows:
        refuse(name, f"{what}: Split sizes doesn't match total dim 0 size ({sum(splits)}, not {rows})")
    row = bytes_of(tensor) // rows if rows > 0 else 0
    return [row * split for split in splits]
