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

Members also send each other bytes, by rank and tag:

    group.send(activations, to=1, codec="bf16")       # anything with a buffer
    group.recv(gradients, source=1)

and call each other's functions (Node.rpc):

    weights = group.call(0, "look up", b"layer 3")

Errors are exceptions that say how much is broken (ArgumentError, OperationError, PeerError, GroupError, NodeError),
with .code, .reason, .rank, .peer and .fate. To try things out in a notebook, without processes:

    >>> import hearth
    >>> from array import array
    >>> hearth.local(lambda group: group.all_reduce(array("i", [group.rank])).tolist(), 3)
    [[3], [3], [3]]

PyTorch: see hearth.torch. The C interface, with all details: docs/api.md.
"""

from ._buffers import Memory
from ._codecs import register_codec
from ._compression import Compressor, Stats, Sync, codec_check, compress, decompress
from ._errors import (Aborted, ArgumentError, Busy, CallFailed, Cancelled, Closed, CopyFailed, Differs, Error, Forked,
                      GroupBroken, GroupError, Invalid, LimitReached, Mismatch, NodeError, NoMemory, NoSuchCall,
                      OperationError, PeerError, PeerLost, Poisoned, ProtocolError, SystemFailure, Timeout, TooLong,
                      Unsupported, ViewChanged)
from ._futures import Future, wait_all, wait_any
from ._home import Event, Member
from ._library import __version__
from ._local import launch, local
from ._messages import ANY_RANK, ANY_TAG, Message, Received
from ._nodes import Group, Node, open, open_local
from ._rpc import Call

__all__ = [
    "open", "open_local", "local", "launch", "Node", "Group", "Member", "Event", "Future", "wait_all",
    "wait_any", "Memory", "Message", "Received", "Call", "ANY_RANK", "ANY_TAG",
    "Compressor", "Sync", "Stats", "compress", "decompress", "codec_check", "register_codec",
    "Error", "ArgumentError", "OperationError", "PeerError", "GroupError", "NodeError",
    "Invalid", "Unsupported", "Timeout", "Cancelled", "Aborted", "Mismatch", "Differs", "Poisoned", "NoMemory",
    "LimitReached", "TooLong", "NoSuchCall", "CallFailed", "Busy", "CopyFailed", "PeerLost", "ProtocolError",
    "ViewChanged", "GroupBroken", "Forked", "Closed", "SystemFailure",
    "__version__",
]
