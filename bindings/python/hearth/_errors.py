# SPDX-License-Identifier: Apache-2.0
"""Statuses become exceptions: one class for each, grouped by how much is broken."""

import builtins

from ._library import lib


class Error(RuntimeError):
    """Something went wrong in Hearth.

    Catch a group (ArgumentError, OperationError, PeerError, GroupError, NodeError) to act on how much is broken,
    or one of their subclasses.

    Attributes:
        code: the status's name, like "HEARTH_PEER_LOST"
        status: its number
        rank: this member's rank, or None if it has none yet
        peer: the rank of the member that the error is about, or None
    """

    def __init__(self, text, status=-503, rank=None, peer=None):
        super().__init__(text)
        self.status = status
        self.code = lib.status_name(status).decode()
        self.rank = rank
        self.peer = peer

    def __reduce__(self):  # so that it comes through pipes between processes whole
        return type(self), (self.args[0], self.status, self.rank, self.peer)


class ArgumentError(Error, ValueError):
    """Nothing happened: correct the call and make it again."""


class OperationError(Error):
    """This operation ended without a result on every member; the group is usable."""


class PeerError(Error):
    """One member is lost to us."""


class GroupError(Error):
    """No operation of this group can succeed any more."""


class NodeError(Error):
    """This node is unusable."""


class Invalid(ArgumentError):
    """An argument, variable or name is not acceptable."""


class Unsupported(ArgumentError):
    """Acceptable, but not in this version, build or combination."""


class Timeout(OperationError, builtins.TimeoutError):
    """The operation's deadline passed."""


class Cancelled(OperationError):
    """Cancelled here."""


class Aborted(OperationError):
    """Another member ended it."""


class Mismatch(OperationError):
    """Members called different things."""


class Differs(OperationError):
    """Not all members hold the same bytes."""


class Poisoned(OperationError):
    """NaN or Inf in a member's input to a compressed operation."""


class NoMemory(OperationError, MemoryError):
    """Memory, or the configured limit of it, is used up."""


class LimitReached(OperationError):
    """A configured or built-in limit is reached."""


class PeerLost(PeerError, ConnectionError):
    """A member closed, died or stopped answering."""


class ProtocolError(PeerError):
    """A member sent bytes that break the protocol."""


class ViewChanged(GroupError):
    """Members changed."""


class GroupBroken(GroupError):
    """A member was lost earlier."""


class Forked(NodeError):
    """The node belongs to the process that this one was forked from."""


class Closed(NodeError):
    """The node is closed."""


class SystemFailure(NodeError):
    """The operating system refused something."""


OK, INVALID, UNSUPPORTED, CANCELLED, DIFFERS, NO_MEMORY, PENDING = 0, -101, -102, -202, -205, -207, -209
FORKED, CLOSED = -501, -502

CLASSES = {
    -101: Invalid, -102: Unsupported,
    -201: Timeout, -202: Cancelled, -203: Aborted, -204: Mismatch, -205: Differs, -206: Poisoned, -207: NoMemory,
    -208: LimitReached,
    -301: PeerLost, -302: ProtocolError,
    -401: ViewChanged, -402: GroupBroken,
    -501: Forked, -502: Closed, -503: SystemFailure,
}


def make(status, text, rank=None, peer=-1):
    """The exception of a failed call; a negative peer is nobody."""
    return CLASSES.get(status, Error)(text, status, rank, None if peer < 0 else peer)


def check(status, rank=None):
    """Raises what the calling thread's last call failed with; passes any status that is none through."""
    if status >= 0:
        return status
    raise make(status, lib.error_text().decode(errors="replace"), rank, lib.error_rank())
