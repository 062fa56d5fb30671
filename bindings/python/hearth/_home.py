# SPDX-License-Identifier: Apache-2.0
"""Home clusters: members and events of a node with discovery, and the handle of a group that forms again."""

import ctypes
import dataclasses

from . import _errors
from ._errors import Invalid
from ._handles import PATIENCE_S, Handle
from ._library import EventStruct, MemberStruct, lib

EVENTS = {1: "joined", 2: "left", 3: "health", 4: "leader", 5: "view", 6: "quorum_lost", 7: "quorum_back",
          8: "job_wanted", 9: "trouble"}


@dataclasses.dataclass(frozen=True)
class Member:
    """A member of a group, as Group.member() returns it. Texts are "" where nothing is known."""

    rank: int  #: in the group
    id: str  #: of its key, hexadecimal
    name: str  #: of its machine
    address: str  #: by which this node reaches it, without port; its own: by which the others may
    same_host: bool  #: whether it runs on this machine
    completed: int = 0  #: operations that it had completed in the group before it was formed again


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of the home cluster, as Node.next_event() and Node.events() return it."""

    kind: str  #: joined, left, health, leader, view, quorum_lost, quorum_back, job_wanted, trouble
    id: str  #: of the member that it is about, or ""
    name: str  #: of its machine, or ""
    health: str  #: of kind health: healthy, degraded, unhealthy, dead
    epoch: int  #: of the view
    term: int  #: of its leader
    members: int  #: in the view
    text: str  #: how it left, the job's name, what the trouble is


def _text(field):
    return field.decode(errors="replace")


def member_of(address, rank):
    """What C knows of one member; `address` is a group."""
    found = MemberStruct()
    found.size = ctypes.sizeof(found)
    _errors.check(lib.group_member(address, rank, found))
    return Member(found.rank, _text(found.id), _text(found.name), _text(found.address), bool(found.same_host),
                  found.completed)


def event_of(address, milliseconds):
    """The next event of a node, or None; and the status: OK, PENDING or that of Cancelled."""
    found = EventStruct()
    found.size = ctypes.sizeof(found)
    status = lib.node_next_event(address, found, milliseconds)
    if status in (_errors.PENDING, _errors.Cancelled.status):
        return None, status
    _errors.check(status)
    return Event(EVENTS.get(found.kind, str(found.kind)), _text(found.id), _text(found.name), _text(found.health),
                 found.epoch, found.term, found.members, _text(found.text)), status


class FormedHandle(Handle):
    """A group that was formed. While it is formed again it is sealed as if it were closed; what calls on it get
    then is ViewChanged. Operations and split groups end with the old group; compressors and syncs go on."""

    __slots__ = ("behind", "moving", "unwanted")

    def __init__(self, parent, address, rank):
        super().__init__("group", parent, address, lib.group_close, rank)
        self.behind = False
        self.moving = False
        self.unwanted = False  # it was closed while it was formed again

    def close(self, patience=PATIENCE_S):
        self.unwanted = True  # before `moving` is read: one of the two sees the other
        if not self.moving:
            super().close(patience)

    def move(self, opts):
        """The next group, under the same handle. Inside `with parent`."""
        if self.closing and not self.moving:
            raise self.closed()
        try:
            self.closers.pop()
        except IndexError:
            raise Invalid("reform: another thread forms this group again or closes it", self.rank) from None
        self.moving = True
        try:
            self._reform(opts)
        finally:
            if not self.parent.closing:
                self._unseal()
            self.moving = False
            self.closers.append(None)
            if self.unwanted:
                self.close()

    def _reform(self, opts):
        if not self._quiet(PATIENCE_S):
            raise Invalid("reform: another thread is in a call on this group or an object of it", self.rank)
        ending = list(_ending(self))
        for handle in ending:
            handle.settle_last()
        for handle in reversed(ending):
            handle.free_now()
            handle.gone()
        place = ctypes.c_void_p(self.address)
        self.behind = _errors.check(lib.group_reform(ctypes.byref(place), opts), self.rank) == _errors.BEHIND
        self.address = place.value
        for handle in self.tree():
            handle.rank = lib.group_rank(place.value)

    def _unseal(self):
        for handle in self.tree():
            handle.closing = False


def _ending(handle):
    """What does not outlive the old group, parents first."""
    for child in list(handle.children):
        if child.what in ("operation", "group"):
            yield from child.tree()
        else:
            yield from _ending(child)
