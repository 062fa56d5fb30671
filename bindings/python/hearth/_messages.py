# SPDX-License-Identifier: Apache-2.0
"""Messages of a group: bytes from one member to another, by rank and tag.

They run as collectives do (_calls.py): a check returns the C function, its arguments, views to keep, and the result.
What was received is copied out of the library's memory when the operation ends, so nothing of it outlives its node.
"""

import ctypes
import functools
import operator
import time
from typing import Any, NamedTuple, Optional, Sequence

from . import _errors, _library
from ._buffers import F32, SIZES, bytes_at, dtype_of, raw
from ._calls import choice, encoded, run, start
from ._errors import Invalid
from ._futures import Future, Late, milliseconds, slice_ms
from ._library import Iovec, MessageStruct, Opts, lib

ANY_RANK = -2
ANY_TAG = (1 << 64) - 1
SYNC_SEND = 4
PRIORITIES = {"normal": 0, "high": 1, "bulk": 2}


class Received(NamedTuple):
    """What was received: the sender's rank, the message's tag, and its length in bytes."""

    rank: int
    tag: int
    len: int


class Message(NamedTuple):
    """A message of any length, as Group.recv_message() returns it: its bytes, the sender's rank, its tag."""

    data: bytes
    rank: int
    tag: int


class _Place(Late):
    """Where C writes what it received: the last argument before the request."""

    __slots__ = ("function", "place")

    def __init__(self, function, place):
        self.function, self.place = function, place

    def begin(self, *arguments):
        *most, request = arguments
        return self.function(*most, self.place, request)


class _Receipt(_Place):
    """Who has sent how much."""

    __slots__ = ()

    def __init__(self, function):
        super().__init__(function, fresh())

    def take(self):
        return received_of(self.place)


class Parcel(_Place):
    """A message in memory of the library. Threads may copy it at once; it is freed with the operation."""

    __slots__ = ()

    def __init__(self, function):
        super().__init__(function, ctypes.c_void_p())

    def take(self):
        found = MessageStruct.from_address(self.place.value)
        return self.made(bytes_at(found.data, found.len), found)

    def made(self, data, found):
        return Message(data, found.rank, found.tag)

    def end(self):
        address, self.place.value = self.place.value, None
        lib.message_free(address)


def fresh():
    """struct hearth_received, to be filled in."""
    return _library.Received(size=ctypes.sizeof(_library.Received), rank=-1)


def received_of(found):
    return Received(found.rank, found.tag, found.len)


@functools.lru_cache(maxsize=512)
def _opts(timeout, sync, codec, priority, dtype):
    """C copies it in the call, so calls with the same options share it."""
    made = Opts()
    lib.opts_init_sized(made, ctypes.sizeof(made))
    made.timeout_ms = milliseconds(timeout)
    made.flags = SYNC_SEND if sync else 0
    made.codec = encoded(codec)
    made.priority = choice(PRIORITIES, priority, "priority")
    made.dtype = dtype
    return made


def opts_of(timeout=None, sync=False, codec=None, priority="normal", dtype=F32):
    """struct hearth_opts; None: the defaults."""
    if timeout is None and not sync and codec is None and priority == "normal" and dtype == F32:
        return None
    try:
        return _opts(timeout, bool(sync), codec, priority, dtype)
    except TypeError:  # a value of a wrong type, which may be one that cannot be looked up
        pass
    return _opts.__wrapped__(timeout, sync, codec, priority, dtype)


def whole(value, what, takes):
    """An integer, or a TypeError that names the argument."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}; it takes {takes}") from None


def length(view):
    return view.count * SIZES[view.dtype]


def parts_of(buffers, writable, what):
    """The array of parts for C, and the views."""
    views = tuple(raw(each, writable, f"{what}[{index}]") for index, each in enumerate(buffers))
    return (Iovec * len(views))(*[(each.address, length(each)) for each in views]), views


class Messages:
    """The methods of a group that two of its members use."""

    __slots__ = ()

    # ---- checks ----

    def _member(self, rank, what):
        rank = whole(rank, what, "a rank")
        if not 0 <= rank < self.size:
            raise Invalid(f"{what} is {rank}; the group has ranks 0 to {self.size - 1}", self.rank)
        return rank

    def _match(self, source, tag, call):
        """(rank, tag) that a receive takes."""
        source = source if source == ANY_RANK else self._member(source, f"{call}: source")
        tag = whole(tag, f"{call}: tag", "a number")
        if not 0 <= tag <= ANY_TAG:
            raise Invalid(f"{call}: tag is {tag}; it takes a number from 0 to 2^64 - 2, or hearth.ANY_TAG", self.rank)
        return source, tag

    def _address(self, to, tag, call):
        """(rank, tag) that a send goes to."""
        tag = whole(tag, f"{call}: tag", "a number")
        if not 0 <= tag < ANY_TAG:
            raise Invalid(f"{call}: tag is {tag}; it takes a number from 0 to 2^64 - 2", self.rank)
        return self._member(to, f"{call}: to"), tag

    def _send(self, data, to, tag, options):
        """The call and its struct hearth_opts."""
        only = raw(data, False, "send: data")
        arguments = (*self._address(to, tag, "send"), only.address, length(only))
        dtype = F32 if options["codec"] is None else only.dtype
        return (lib.send_nb, arguments, (only,), None), opts_of(dtype=dtype, **options)

    def _sendv(self, parts, to, tag):
        array, views = parts_of(parts, False, "sendv: parts")
        return lib.sendv_nb, (*self._address(to, tag, "sendv"), array, len(views)), views, None

    def _recv(self, buffer, source, tag, timeout):
        only = raw(buffer, True, "recv: buffer")
        receipt = _Receipt(lib.recv_nb)
        arguments = (*self._match(source, tag, "recv"), only.address, length(only))
        return (receipt.begin, arguments, (only,), receipt), opts_of(timeout, dtype=only.dtype)

    def _recvv(self, parts, source, tag):
        array, views = parts_of(parts, True, "recvv: parts")
        receipt = _Receipt(lib.recvv_nb)
        return receipt.begin, (*self._match(source, tag, "recvv"), array, len(views)), views, receipt

    def _recv_message(self, source, tag, dtype, timeout):
        parcel = Parcel(lib.message_recv_nb)
        call = parcel.begin, self._match(source, tag, "recv_message"), (), parcel
        return call, opts_of(timeout, dtype=dtype_of(dtype, "recv_message: dtype"))

    # ---- what the user calls ----

    def send(self, data: Any, to: int, tag: int = 0, *, sync: bool = False, codec: Optional[str] = None,
             priority: str = "normal", timeout: Optional[float] = None) -> None:
        """Sends the bytes of a buffer to one member. Returns when the buffer may be used again; with sync, when a
        receive has the message. A short message leaves at once, others wait for their receive.

        Messages to one member with one tag are received in the order of their sends. codec ("bf16", "fp16", "int8"):
        the elements travel compressed, and are received as elements of the same type. priority is "high", "normal" or
        "bulk". If a send fails, .fate of the exception says whether the message was delivered.

        >>> import hearth
        >>> [node] = hearth.open_local(1)
        >>> node.world.send(b"hello", to=0)
        >>> node.world.recv_message()
        Message(data=b'hello', rank=0, tag=0)
        >>> node.close()
        """
        options = dict(sync=sync, codec=codec, priority=priority, timeout=timeout)
        return run(self._handle, *self._send(data, to, tag, options))

    def send_nb(self, data: Any, to: int, tag: int = 0, *, sync: bool = False, codec: Optional[str] = None,
                priority: str = "normal", timeout: Optional[float] = None) -> Future:
        """As send, but returns at once."""
        options = dict(sync=sync, codec=codec, priority=priority, timeout=timeout)
        return start(self._handle, self, *self._send(data, to, tag, options))

    def recv(self, buffer: Any, source: int = ANY_RANK, tag: int = 0, *, timeout: Optional[float] = None) -> Received:
        """Receives a message into a buffer, and returns who has sent it, its tag and its length in bytes.

        source is a rank or hearth.ANY_RANK, tag a number or hearth.ANY_TAG. The message may be shorter than the
        buffer; if it is longer, it is lost: hearth.TooLong, and the buffer is unchanged. A message with a codec must
        have the buffer's type of elements, else hearth.Mismatch.

        >>> import hearth
        >>> from array import array
        >>> [node] = hearth.open_local(1)
        >>> numbers = array("f", [0, 0, 0])
        >>> node.world.send(array("f", [1.5, 2]), to=0, tag=7, codec="bf16")
        >>> node.world.recv(numbers, source=0, tag=hearth.ANY_TAG)
        Received(rank=0, tag=7, len=8)
        >>> numbers.tolist()
        [1.5, 2.0, 0.0]
        >>> node.close()
        """
        return run(self._handle, *self._recv(buffer, source, tag, timeout))

    def recv_nb(self, buffer: Any, source: int = ANY_RANK, tag: int = 0, *, timeout: Optional[float] = None) -> Future:
        """As recv, but returns at once."""
        return start(self._handle, self, *self._recv(buffer, source, tag, timeout))

    def sendv(self, parts: Sequence[Any], to: int, tag: int = 0, *, sync: bool = False, priority: str = "normal",
              timeout: Optional[float] = None) -> None:
        """As send, of several buffers that are one message, without a copy: at most 1,024, and no codec.

            group.sendv([header, weights, biases], to=1)
        """
        return run(self._handle, self._sendv(parts, to, tag), opts_of(timeout, sync, None, priority))

    def sendv_nb(self, parts: Sequence[Any], to: int, tag: int = 0, *, sync: bool = False, priority: str = "normal",
                 timeout: Optional[float] = None) -> Future:
        """As sendv, but returns at once."""
        return start(self._handle, self, self._sendv(parts, to, tag), opts_of(timeout, sync, None, priority))

    def recvv(self, parts: Sequence[Any], source: int = ANY_RANK, tag: int = 0, *,
              timeout: Optional[float] = None) -> Received:
        """As recv, into several buffers, one after the other. Their lengths need not be those of the send."""
        return run(self._handle, self._recvv(parts, source, tag), opts_of(timeout))

    def recvv_nb(self, parts: Sequence[Any], source: int = ANY_RANK, tag: int = 0, *,
                 timeout: Optional[float] = None) -> Future:
        """As recvv, but returns at once."""
        return start(self._handle, self, self._recvv(parts, source, tag), opts_of(timeout))

    def recv_message(self, source: int = ANY_RANK, tag: int = 0, *, dtype: str = "f32",
                     timeout: Optional[float] = None) -> Message:
        """Receives a message of any length, and returns its bytes with the sender's rank and the tag. Costs a copy
        that recv does not need. dtype: of the elements, if the message has a codec.

            while True:
                message = group.recv_message(hearth.ANY_RANK, hearth.ANY_TAG)
                print(message.rank, pickle.loads(message.data))  # only from members that you trust
        """
        return run(self._handle, *self._recv_message(source, tag, dtype, timeout))

    def recv_message_nb(self, source: int = ANY_RANK, tag: int = 0, *, dtype: str = "f32",
                        timeout: Optional[float] = None) -> Future:
        """As recv_message, but returns at once."""
        return start(self._handle, self, *self._recv_message(source, tag, dtype, timeout))

    def probe(self, source: int = ANY_RANK, tag: int = 0, *, timeout: Optional[float] = None) -> Optional[Received]:
        """Waits, at most `timeout` seconds (0: does not wait; None: the node's op_timeout), until a message could be
        received, and leaves it there. None: there is none. Another thread's receive may take it first.

        >>> import hearth
        >>> [node] = hearth.open_local(1)
        >>> node.world.probe(timeout=0)
        >>> node.world.send(b"hello", to=0)
        >>> node.world.probe()
        Received(rank=0, tag=0, len=5)
        >>> node.close()
        """
        rank, tag = self._match(source, tag, "probe")
        milliseconds(timeout)  # complains
        deadline = time.monotonic() + (self.node._op_timeout if timeout is None else timeout)
        found, opts = fresh(), Opts()
        lib.opts_init_sized(opts, ctypes.sizeof(opts))
        while True:
            opts.timeout_ms = slice_ms(deadline)
            with self._handle as address:
                status = lib.probe(address, rank, tag, opts, found)
                if _errors.check(status, self.rank) == _errors.OK:
                    return received_of(found)
            if time.monotonic() >= deadline:
                return None
