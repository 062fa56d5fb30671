# SPDX-License-Identifier: Apache-2.0
"""Nodes and groups: open, open_local, Node, Group."""

import ctypes
import json
import re
import time
import weakref
from typing import Any, Dict, Iterator, List, Optional

from . import _errors
from ._calls import ALGOS, Collectives, choice, text_for_c, timeout_opts, unknown_keyword
from ._errors import Cancelled, Closed, Invalid, Timeout, Unsupported
from ._futures import milliseconds, slice_ms
from ._handles import NODES, Handle, Owner, interruptible, log_trampoline, text_of
from ._home import Event, FormedHandle, Member, event_of, member_of
from ._library import LOG, Config, Tuning, lib
from ._messages import Messages
from ._rpc import Calls, Handlers

LEVELS = {"error": 1, "warn": 2, "info": 3, "debug": 4}
_HIDDEN = ("size", "log_arg", "tuning", "environment")
TUNING = {name for name, *_ in Tuning._fields_} - {"size"}
FIELDS = {name[:-3] if name.endswith("_ms") else name: (name, kind) for name, kind, *_ in
          Config._fields_ + Tuning._fields_ if name not in _HIDDEN}
_UNITS = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


# ---- configuration ----

def rate_of(rate: Any) -> int:
    """Bits a second, of a number or a text like "100mbit" or "2.5gbit".

    >>> from hearth._nodes import rate_of
    >>> rate_of("2.5gbit")
    2500000000
    """
    if not isinstance(rate, str):
        return rate
    found = re.fullmatch(r"(\d+)(?:\.(\d{1,9}))?(bit|kbit|mbit|gbit|)", rate)
    if not found:
        raise Invalid(f"rate is {rate!r}; it takes bits a second, like 100mbit or 2.5gbit, or 0 for no limit")
    whole, part, unit = found[1], found[2] or "", _UNITS[found[3]]
    return int(whole) * unit + (int(part) * unit // 10 ** len(part) if part else 0)


def _number(name, value, kind):
    if name == "rate":
        value = rate_of(value)
    if isinstance(value, float) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; it takes a whole number")
    value = value.__index__()
    if kind(value).value != value:
        raise Invalid(f"{name} is {value}; C has no room for that number")
    return value


def _tuning(config):
    """struct hearth_tuning of a config, one of its own that may be written."""
    if not hasattr(config, "own_tuning"):
        config.own_tuning = Tuning()
        lib.tuning_init_sized(config.own_tuning, ctypes.sizeof(Tuning))
        if config.tuning:
            ctypes.pointer(config.own_tuning)[0] = config.tuning[0]
        config.tuning = ctypes.pointer(config.own_tuning)
    return config.own_tuning


def _set(config, keyword, value):
    """One field, by its keyword."""
    name, kind = FIELDS[keyword]
    if keyword == "log":
        if not callable(value):
            raise TypeError(f"log is {value!r}; it takes a function of level, id and text")
        return LOG(log_trampoline(value))
    if name.endswith("_ms"):
        if not isinstance(value, (int, float)):
            raise TypeError(f"{keyword} is {value!r}; it takes seconds")
        value = milliseconds(value, keyword)
    elif keyword == "algo":
        value = choice(ALGOS, value, keyword)
    elif keyword == "log_level":
        value = choice(LEVELS, value, keyword)
    elif kind is ctypes.c_char_p:
        several = name in ("peers", "seeds") and not isinstance(value, str)
        value = text_for_c(",".join(map(str, value)) if several else value, name)
    else:
        value = _number(name, value, kind)
    setattr(_tuning(config) if name in TUNING else config, name, value)
    return None


def configure(keywords: Dict[str, Any], call: str):
    """struct hearth_config of the environment and then the keywords (None: as it is), and the log function for C."""
    config, log = Config(), None
    lib.config_init_sized(config, ctypes.sizeof(config))
    _errors.check(lib.config_env(config))
    for keyword, value in keywords.items():
        if keyword not in FIELDS:
            raise unknown_keyword(keyword, list(FIELDS), call)
        if value is not None:
            log = _set(config, keyword, value) or log
    if log is not None:
        config.log = ctypes.cast(log, ctypes.c_void_p)
    return config, log


# ---- opening ----

def open(**config: Any) -> "Node":
    """Opens this process's node and connects it to the others.

    Settings come from the environment (HEARTH_*, or the variables of torchrun, mpirun, srun and `hearth run`),
    and then from keywords: the fields of struct hearth_config and struct hearth_tuning in include/hearth.h, with times
    in seconds. Without any of them the node is alone. The most useful ones:

        rendezvous="host:port"      where all members register, with world_size= and rank=
        peers="a:5000,b:5000"       all members, by rank; also a list
        discover="mdns"             a home cluster: nodes find each other, and form() makes groups of them
        op_timeout=30.0             seconds that an operation may take
        rate="100mbit"              limit of what this node sends
        codec="int8"                for compressed calls that name none
        secret_file="cluster"       the cluster's secret, where it is not the one that `hearth join` stored
        plain=True                  no encryption, no authentication; with trust_network=True beyond this machine
        log=print, log_level="info" a function of level, id and text; it must not call Hearth

    >>> import hearth
    >>> with hearth.open(op_timeout=30.0) as node:
    ...     node.rank, node.size
    (0, 1)
    """
    settings, log = configure(config, "open")
    address = ctypes.c_void_p()

    def join():
        _errors.check(lib.node_open(settings, ctypes.byref(address)))
        return Node(address.value, log, settings)

    return interruptible(join, unwanted=lambda node: node.close())


def open_local(count: int, **config: Any) -> "List[Node]":
    """Opens `count` nodes in this process, connected in memory, for tests and notebooks. Use each in a thread of its
    own; hearth.local does that.

    >>> import hearth
    >>> nodes = hearth.open_local(3)
    >>> [node.rank for node in nodes]
    [0, 1, 2]
    >>> for node in nodes:
    ...     node.close()
    """
    settings, log = configure(config, "open_local")
    if not isinstance(count, int) or not 1 <= count <= 64:
        raise Invalid(f"open_local: count is {count!r}; it must be from 1 to 64")
    addresses = (ctypes.c_void_p * count)()
    _errors.check(lib.node_open_local(settings, count, addresses))
    return [Node(address, log, settings) for address in addresses]


class Node(Handlers, Owner):
    """One member of a cluster, as hearth.open() returns it. Its world is the group of all members.

    >>> import hearth
    >>> with hearth.open() as node:
    ...     node.world.all_reduce(bytearray(b"abc"))
    bytearray(b'abc')

    A node closes when the last reference to it and its groups is gone, and at exit. In a forked child
    (of multiprocessing, of a DataLoader) it is unusable and harmless.
    """

    __slots__ = ("_handle", "_world_handle", "_world", "_patience", "_op_timeout", "_interrupts", "_groups", "rank",
                 "size", "__weakref__")

    def __init__(self, address, log, settings):
        world = lib.node_world(address)
        self.rank = lib.group_rank(world)
        self.size = lib.group_size(world)
        self._handle = Handle("node", None, address, lib.node_close, self.rank)
        self._handle.keep = [("", log)]  # what C calls: the log function, and handlers by name
        self._handle.rouse = lib.node_interrupt
        self._world_handle = self._handle.adopt(Handle("node", self._handle, world, None, self.rank))
        self._world = None
        self._patience, self._op_timeout = settings.peer_timeout_ms / 1000, settings.op_timeout_ms / 1000
        self._interrupts = 0  # by interrupt(), ever
        self._groups = []  # weak references to its groups
        NODES.add(self._handle)

    def __repr__(self):
        return f"<hearth.Node rank {self.rank} of {self.size}{', closed' if self._handle.closing else ''}>"

    @property
    def world(self) -> "Group":
        """The group of all members."""
        group = self._world() if self._world is not None else None
        if group is None:
            group = Group(self, self._world_handle, self.size)
            self._world = weakref.ref(group)
        return group

    def links(self) -> str:
        """How the node is joined to the others, for people: one line for each member. In a home cluster the groups that
        were formed follow, each with a line for its job."""
        with self._handle as address:
            return text_of(lib.node_links_text, address)

    def metrics(self) -> str:
        """Counters and histograms, in the exposition format of Prometheus."""
        with self._handle as address:
            return text_of(lib.node_metrics_text, address)

    def alloc(self, len: int) -> memoryview:
        """`len` bytes, zero, that members on the same host can see: collectives on them copy less.

        They live until the node is closed; what looks at them must not be used after that.

        >>> import hearth
        >>> with hearth.open() as node:
        ...     node.alloc(8).cast("f").tolist()
        [0.0, 0.0]
        """
        with self._handle as address:
            if len < 0:
                raise Invalid(f"alloc: len is {len}")
            memory = lib.mem_alloc(address, len)
            if not memory:
                kind = _errors.Forked if self._handle.forked() else _errors.NoMemory
                raise kind(lib.error_text().decode(errors="replace"), self.rank)
            block = (ctypes.c_uint8 * len).from_address(memory)
            block.node = self  # while it is referenced, only an explicit close ends the node
            return memoryview(block).cast("B")

    # ---- home clusters ----

    def wait_for_peers(self, count: Optional[int] = None, timeout: Optional[float] = None) -> None:
        """Waits for `count` other members (None: 1), at most `timeout` seconds (None: the config's peer_timeout,
        30). hearth.Timeout lists the members, and for each other node in sight why it is not one.
        """
        if count is not None and not 0 <= count < 1 << 31:
            raise Invalid(f"wait_for_peers: count is {count}")
        milliseconds(timeout)  # complains
        deadline = time.monotonic() + (self._patience if timeout is None else timeout)
        began = self._interrupts
        while True:
            with self._handle as address:
                status = lib.node_wait_for_peers(address, 1 if count is None else count, slice_ms(deadline))
                if self._ended("wait_for_peers", status, began):
                    continue
                if status != Timeout.status or time.monotonic() >= deadline:
                    _errors.check(status, self.rank)
                    return

    def form(self, job: str, min_members: int = 2, timeout: Optional[float] = None) -> "Group":
        """The group of all members that ask for the same job, at least `min_members` with this one.

        Waits for them, at most `timeout` seconds (None: form_timeout of hearth.open). When a member is lost,
        operations end with hearth.ViewChanged on all others, and Group.reform() continues with the remaining ones:

            group = node.form("train", min_members=2)
            while training:
                try:
                    group.all_reduce(gradient, op="avg", restore=True)
                except hearth.ViewChanged:
                    group.reform()
        """
        if not 0 < min_members < 1 << 31:
            raise Invalid(f"form: min_members is {min_members}")
        return interruptible(self._form, text_for_c(job, "job"), min_members, timeout_opts(timeout),
                             unwanted=lambda group: group.close(), interrupt=self._let_go)

    def _form(self, job, min_members, opts):
        made = ctypes.c_void_p()
        with self._handle as address:
            status = lib.group_form(address, job, min_members, opts, ctypes.byref(made))
            if status == Cancelled.status and self._handle.closing:
                raise self._handle.closed()
            _errors.check(status, self.rank)
            handle = self._handle.adopt(FormedHandle(self._handle, made.value, lib.group_rank(made.value)))
            return Group(self, handle, lib.group_size(made.value))

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event of the home cluster that was not fetched; None if none comes in `timeout` seconds (0: does
        not wait; None: waits as long as it takes). The last 256 are kept."""
        milliseconds(timeout)  # complains
        deadline = None if timeout is None else time.monotonic() + timeout
        began = self._interrupts
        while True:
            with self._handle as address:
                event, status = event_of(address, slice_ms(deadline))
            if self._ended("next_event", status, began):
                continue
            if event is not None or deadline is not None and time.monotonic() >= deadline:
                return event

    def events(self, timeout: Optional[float] = None) -> Iterator[Event]:
        """All events, one by one, until none comes for `timeout` seconds, or the node is closed.

            for event in node.events():
                print(event.kind, event.name, event.text)
        """
        while True:
            try:
                event = self.next_event(timeout)
            except Closed:
                return
            if event is None:
                return
            yield event

    def interrupt(self) -> None:
        """Ends waiting calls of other threads on this node (wait_for_peers, form, reform, next_event): they raise
        hearth.Cancelled within a tenth of a second. Join requests are withdrawn, and the other members wait on
        without this one. Later calls are unaffected."""
        self._interrupts += 1
        with self._handle as address:
            _errors.check(lib.node_interrupt(address), self.rank)

    def _let_go(self):
        """For Ctrl-C: as interrupt(), but only for calls without slices, and without errors."""
        try:
            with self._handle as address:
                lib.node_interrupt(address)
        except _errors.Error:  # it is closed, which ends them too
            pass

    def _ended(self, call, status, began):
        """Raises if interrupt() was called since; true: only this slice was ended, by Ctrl-C elsewhere or a close."""
        if self._interrupts != began and status in (Cancelled.status, Timeout.status, _errors.PENDING):
            raise Cancelled(f"{call}: interrupted", self.rank)
        return status == Cancelled.status

    def status(self) -> Dict[str, Any]:
        """View, members, health, links, sightings and jobs of the home cluster, as in `hearth status --json`."""
        with self._handle as address:
            return json.loads(text_of(lib.node_status_json, address))

    def close(self) -> None:
        """Closes the node with its groups, futures and compressors: operations in flight end with hearth.Closed here
        and hearth.PeerLost on the others. A second call does nothing."""
        super().close()


class Group(Collectives, Messages, Calls, Owner):
    """The members that take part in collectives and send each other messages, in the order of their ranks.

    Every collective is called by all members, in the same order, with the same counts and types; each has a form that
    ends in _nb, returns a Future at once, and lets computation go on meanwhile. Buffers are numpy arrays, torch
    tensors, array.array, bytearray, memoryview, or anything else with the buffer protocol, __array_interface__ or
    __dlpack__. Nothing is copied; a buffer must be C-contiguous. A call returns the object that it has filled.

    Options of every collective:
        timeout     seconds until it is given up on all members; None: the node's op_timeout
        tag         operations match by tag, and by order within it: 0
        weight      of this member, for op "avg": 1.0
        algo        "ring", "direct", ... instead of the best: for measurement
        restore     give an in-place buffer back as it was if the operation fails (costs a copy)
        rank_order  combine in the order of ranks: the same bits on every network

    >>> import hearth
    >>> from array import array
    >>> def work(group):
    ...     return group.all_reduce(array("i", [group.rank + 1])).tolist()
    >>> hearth.local(work, 3)
    [[6], [6], [6]]
    """

    __slots__ = ("_handle", "_formed", "node", "rank", "size", "__weakref__")

    def __init__(self, node, handle, size, formed=None):
        self.node = node
        self._formed = formed  # the group of form() that it was split from: it ends with that
        self._handle = handle
        self.rank = handle.rank
        self.size = size
        node._groups.append(weakref.ref(self, node._groups.remove))

    def __repr__(self):
        return f"<hearth.Group rank {self.rank} of {self.size}{', closed' if self._handle.closing else ''}>"

    def split(self, color: Optional[int], key: int = 0, *, timeout: Optional[float] = None) -> "Optional[Group]":
        """Members with the same color form a new group, ordered by key and then by rank. All members call it.

        A negative color, or None, takes part and gets no group: None.

            pairs = group.split(group.rank // 2)
        """
        color = -1 if color is None else max(-1, int(color))
        if not -1 << 31 <= key < 1 << 31 or color >= 1 << 31:
            raise Invalid(f"split: color is {color}, key is {key}; they take 32 bits")
        return interruptible(self._split, color, key, timeout_opts(timeout),
                             unwanted=lambda group: group and group.close())

    def _split(self, color, key, opts):
        parent = self._handle
        made = ctypes.c_void_p()
        with parent as address:
            _errors.check(lib.group_split(address, color, key, opts, ctypes.byref(made)), self.rank)
            if not made.value:
                return None
            rank, size = lib.group_rank(made.value), lib.group_size(made.value)
            formed = self if isinstance(parent, FormedHandle) else self._formed
            above = self.node._handle if formed is None else formed._handle
            made_handle = above.adopt(Handle("group", above, made.value, lib.group_close, rank))
            return Group(self.node, made_handle, size, formed)

    def adapt(self, timeout: Optional[float] = None) -> None:
        """Applies the measurements made since this group was formed: ring order, sites and path speeds; ranks stay.
        All members call it at the same place, between two operations: after the first seconds, then every few
        minutes. A member with operations in flight raises hearth.Invalid, the others hearth.Aborted; then nothing
        has changed. Does nothing for groups that were not made by Node.form().
        """
        opts = timeout_opts(timeout)

        def together():
            with self._handle as address:
                _errors.check(lib.group_adapt(address, opts), self.rank)

        interruptible(together)

    @property
    def behind(self) -> bool:
        """After reform(): this member lacks steps of a sync that the others have committed; its residuals are empty.
        Take the model from a member that has them (Sync.steps) before the next step."""
        return getattr(self._handle, "behind", False)

    def reform(self, timeout: Optional[float] = None) -> "Group":
        """Continues after hearth.ViewChanged with the remaining members of a formed group and those that wait for its
        job, when all remaining members call it. Waits for them, at most `timeout` seconds (None: form_timeout).
        Returns this same object, with a new rank and size.

        Compressors and syncs continue with their state; `behind` is True if this member lacks steps that the others
        have committed. Groups that were split from it are closed, and operations that have not ended end with
        hearth.ViewChanged, also if this call raises; then it can be called again, also after Ctrl-C.
        """
        handle = self._handle
        if not isinstance(handle, FormedHandle):
            raise Unsupported("reform: this group was not made by form()", self.rank)
        if handle.forked():
            raise _errors.Forked(lib.status_text(_errors.Forked.status).decode(), self.rank)

        opts = timeout_opts(timeout)

        def move():
            with self.node._handle:
                try:
                    handle.move(opts)
                finally:
                    self.rank = handle.rank
                    self.size = self.size if handle.address is None else lib.group_size(handle.address)
            return self

        return interruptible(move, interrupt=self.node._let_go)

    def member(self, rank: int) -> Member:
        """The member with this rank: id, name of the machine, address.

        >>> import hearth
        >>> with hearth.open() as node:
        ...     node.world.member(0).rank
        0
        """
        if not 0 <= rank < self.size:
            raise Invalid(f"member: rank is {rank}; the group has {self.size}", self.rank)
        with self._handle as address:
            return member_of(address, rank)

    def traffic(self) -> "tuple[int, int]":
        """Bytes that this member has sent and received since its node was opened or its group formed: by all
        operations, plain and compressed, with the headers of frames.

        >>> import hearth
        >>> with hearth.open() as node:
        ...     node.world.traffic()
        (0, 0)
        """
        sent, received = ctypes.c_uint64(), ctypes.c_uint64()
        with self._handle as address:
            _errors.check(lib.group_traffic(address, sent, received))
        return sent.value, received.value

    def close(self) -> None:
        """Closes a group that split() or form() has made; its operations in flight are cancelled. The other members of
        a formed group get hearth.ViewChanged. A world is its node's."""
        super().close()
