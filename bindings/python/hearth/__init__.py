# SPDX-License-Identifier: Apache-2.0
"""Hearth: train one model on the machines you own.

A program runs once on every machine (or several times on one), and each copy opens a node. The node's world is the
group of all copies, and they call collectives on it together:

    import hearth, numpy

    with hearth.open() as node:                       # under `hearth run`, torchrun, mpirun, or alone
        gradient = numpy.ones(1000, "f4")
        node.world.all_reduce(gradient, op="avg")     # all members hold the average now

Every collective has a form that returns at once:

    future = node.world.all_reduce_nb(gradient)
    ...                                               # compute meanwhile
    future.result()                                   # or, in a coroutine: await future

Over a slow network gradients are sent compressed; the residual of a step is added to the next one:

    compressor = hearth.Compressor(node.world, "topk:0.01")
    compressor.all_reduce("layer1.weight", gradient)

In a home cluster nodes find each other without a launcher and form groups:

    with hearth.open(discover="mdns") as node:        # after `hearth init` and `hearth join` on each machine
        group = node.form("train", min_members=2)     # hearth.ViewChanged: a member is lost; call group.reform()

Errors are exceptions that say how much is broken (ArgumentError, OperationError, PeerError, GroupError, NodeError),
with .code, .reason, .rank and .peer. To try things out in a notebook, without processes:

    >>> import hearth
    >>> from array import array
    >>> hearth.local(lambda group: group.all_reduce(array("i", [group.rank])).tolist(), 3)
    [[3], [3], [3]]

PyTorch: see hearth.torch. The C interface, with all details: docs/api.md.
"""

from ._buffers import Memory
from ._compression import Compressor, Stats, Sync, codec_check, compress, decompress
from ._errors import (Aborted, ArgumentError, Cancelled, Closed, Differs, Error, Forked, GroupBroken, GroupError,
                      Invalid, LimitReached, Mismatch, NodeError, NoMemory, OperationError, PeerError, PeerLost,
                      Poisoned, ProtocolError, SystemFailure, Timeout, Unsupported, ViewChanged)
from ._futures import Future, wait_all, wait_any
from ._home import Event, Member
from ._library import __version__
from ._local import launch, local
from ._nodes import Group, Node, open, open_local

__all__ = [
    "open", "open_local", "local", "launch", "Node", "Group", "Member", "Event", "Future", "wait_all",
    "wait_any", "Memory",
    "Compressor", "Sync", "Stats", "compress", "decompress", "codec_check",
    "Error", "ArgumentError", "OperationError", "PeerError", "GroupError", "NodeError",
    "Invalid", "Unsupported", "Timeout", "Cancelled", "Aborted", "Mismatch", "Differs", "Poisoned", "NoMemory",
    "LimitReached", "PeerLost", "ProtocolError", "ViewChanged", "GroupBroken", "Forked", "Closed", "SystemFailure",
    "__version__",
]
