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
        reason: the cause, where a program can act on it, like "peer_left" or "secret_differs"; else "none"
        fate: what became of a message or remote call that failed, so whether it can be sent again without harm:
            "not_delivered", "delivered" or "unknown"; else "none"
    """

    status = -503  # each class has its own

    def __init__(self, text, rank=None, peer=None, reason="none", fate="none"):
        super().__init__(text)
        self.rank = rank
        self.peer = peer
        self.reason = reason
        self.fate = fate

    @property
    def code(self):
        return lib.status_name(self.status).decode()

    def __reduce__(self):  # so that it survives a pipe between processes
        return type(self), (self.args[0], self.rank, self.peer, self.reason, self.fate)


class ArgumentError(Error, ValueError):
    """Nothing happened: correct the call and repeat it."""


class OperationError(Error):
    """This operation ended without a result on every member; the group is usable."""


class PeerError(Error):
    """One member is lost."""


class GroupError(Error):
    """No further operation of this group can succeed."""


class NodeError(Error):
    """This node is unusable."""


class Invalid(ArgumentError):
    """An argument, variable or name is not acceptable."""

    status = -101


class Unsupported(ArgumentError):
    """Acceptable, but not in this version, build or combination."""

    status = -102


class Timeout(OperationError, builtins.TimeoutError):
    """The operation's deadline passed."""

    status = -201


class Cancelled(OperationError):
    """Cancelled here."""

    status = -202


class Aborted(OperationError):
    """Another member ended it."""

    status = -203


class Mismatch(OperationError):
    """Members called different things."""

    status = -204


class Differs(OperationError):
    """Not all members hold the same bytes."""

    status = -205


class Poisoned(OperationError):
    """NaN or Inf in a member's input to a compressed operation."""

    status = -206


class NoMemory(OperationError, MemoryError):
    """Memory, or the configured limit of it, is used up."""

    status = -207


class LimitReached(OperationError):
    """A configured or built-in limit is reached."""

    status = -208


class TooLong(OperationError):
    """A message is longer than the receiver's buffer, a request or reply than its limit."""

    status = -209


class NoSuchCall(OperationError, LookupError):
    """No handler has this name there."""

    status = -210


class CallFailed(OperationError):
    """The handler failed; the text is the handler's."""

    status = -211


class Busy(OperationError):
    """Too many calls wait there already."""

    status = -212


class CopyFailed(OperationError):
    """The memory adapter could not copy to or from the device."""

    status = -213


class PeerLost(PeerError, ConnectionError):
    """A member closed, died or stopped answering."""

    status = -301


class ProtocolError(PeerError):
    """A member sent bytes that break the protocol."""

    status = -302


class ViewChanged(GroupError):
    """Members changed."""

    status = -401


class GroupBroken(GroupError):
    """A member was lost earlier."""

    status = -402


class Forked(NodeError):
    """The node belongs to the process that this one was forked from."""

    status = -501


class Closed(NodeError):
    """The node is closed."""

    status = -502


class SystemFailure(NodeError):
    """The operating system refused something."""

    status = -503


OK, BEHIND, PENDING = 0, 1, 2
CLASSES = {kind.status: kind for kind in (
    Invalid, Unsupported, Timeout, Cancelled, Aborted, Mismatch, Differs, Poisoned, NoMemory, LimitReached, TooLong,
    NoSuchCall, CallFailed, Busy, CopyFailed, PeerLost, ProtocolError, ViewChanged, GroupBroken, Forked, Closed,
    SystemFailure)}


def make(status, text, rank=None, peer=-1, reason=0, fate=0):
    """The exception of a failed call; a negative peer means none, reason and fate are C's numbers."""
    return CLASSES.get(status, Error)(text, rank, None if peer < 0 else peer, lib.reason_name(reason).decode(),
                                      lib.fate_name(fate).decode())


def of_request(status, address, rank):
    """The exception of a request that has failed."""
    return make(status, lib.request_error(address).decode(errors="replace"), rank, lib.request_error_rank(address),
                lib.request_error_reason(address), lib.request_error_fate(address))


def check(status, rank=None):
    """Raises what the calling thread's last call failed with; passes any status that is none through."""
    if status >= 0:
        return status
    raise make(status, lib.error_text().decode(errors="replace"), rank, lib.error_rank(), lib.error_reason(),
               lib.error_fate())
