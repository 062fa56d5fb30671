# SPDX-License-Identifier: Apache-2.0
"""Remote calls: handlers of a node, and calls of a group.

C runs a handler on a thread of its own, through a callback that lives as long as the node. While it runs, it counts as
a user of the node's handle, so that a close waits for it. An answer may come after the node is closed: C drops it.
"""

import asyncio
import ctypes
import inspect
import threading
import weakref
from typing import Any, Callable, Optional

from . import _errors
from ._buffers import bytes_at, raw
from ._calls import run, start, text_for_c
from ._errors import Invalid
from ._futures import Future
from ._handles import interruptible
from ._library import HANDLER, RpcLimits, lib
from ._messages import Parcel, length, opts_of, whole

LIMITS = tuple(name for name, _ in RpcLimits._fields_ if name != "size")
_SERVING = []  # threads that are in a handler


class Call:
    """A call that is being answered, as handlers get it beside the request."""

    __slots__ = ("rank", "_address", "_lock", "_node")

    def __init__(self, address, node):
        self.rank = lib.rpc_rank(address)  #: of the caller, in the group in which it called
        self._address = address
        self._lock = threading.Lock()  # an answer ends the use of the address
        self._node = node

    def __repr__(self):
        return f"<hearth.Call of rank {self.rank}{'' if self._address else ', answered'}>"

    @property
    def group(self) -> Any:
        """The group in which it was called; None if it is gone, or the call was answered."""
        with self._lock:
            found = lib.rpc_group(self._address) if self._address else None
        node = self._node()
        if not found or node is None:
            return None
        groups = [node.world, *(each() for each in list(node._groups))]
        return next((group for group in groups if group is not None and group._handle.address == found), None)

    @property
    def time_left(self) -> float:
        """Seconds until the caller's deadline; 0: it has passed, or the caller has cancelled or is gone, and the answer
        will not be used."""
        with self._lock:
            return lib.rpc_time_left(self._address) / 1000 if self._address else 0.0

    def _end(self, function, *arguments):
        """Answers, once. What C objects to, the caller gets to know if it is still there."""
        with self._lock:
            address, self._address = self._address, None
            if address:
                function(address, *arguments)

    def _reply(self, data):
        found = raw(b"" if data is None else data, False, "the handler's reply")
        if found.stage is not None:
            found.stage.before()
        self._end(lib.rpc_reply, found.address, length(found))

    def _fail(self, error):
        text = f"{type(error).__name__}: {error}".replace("\0", " ")
        self._end(lib.rpc_fail, text.encode("ascii", "backslashreplace"))  # C passes on what every terminal can show

    def _later(self, future):
        """A handler's future is done."""
        try:
            self._reply(future.result())
        except BaseException as error:
            self._fail(error)

    def _serve(self, function, request, loop):
        try:
            result = function(request, self)
            if inspect.iscoroutine(result):
                result = _scheduled(result, loop)
            if hasattr(result, "add_done_callback"):
                result.add_done_callback(self._later)
            else:
                self._reply(result)
        except BaseException as error:
            self._fail(error)


def _scheduled(coroutine, loop):
    """Its future. A loop that is closed takes none."""
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()
        raise


def _callback(handle, node, function, loop):
    """What C calls."""
    def serve(_, address, request, size):
        me = threading.get_ident()
        handle.users.append(None)
        _SERVING.append(me)
        try:
            Call(address, node)._serve(function, bytes_at(request, size), loop)
        finally:
            _SERVING.remove(me)
            handle.users.pop()

    return HANDLER(serve)


def _limits(given):
    """struct hearth_rpc_limits; None: the defaults."""
    made = RpcLimits()
    lib.rpc_limits_init_sized(made, ctypes.sizeof(made))
    for name, value in given.items():
        if value is not None:
            setattr(made, name, whole(value, name, "a number"))
            if getattr(made, name) != value:
                raise Invalid(f"{name} is {value}; C has no room for that number")
    return made


class Handlers:
    """The methods of a node that answer calls."""

    __slots__ = ()

    def rpc(self, name: str, *, request_max: Optional[int] = None, reply_max: Optional[int] = None,
            running: Optional[int] = None, waiting: Optional[int] = None) -> Callable[[Callable], Callable]:
        """A decorator: members of this node's groups may call the function by this name.

        It gets the request as bytes, and a Call that says who called; it returns the reply (anything with a buffer, or
        None), or a concurrent.futures.Future of it to answer later. The text of an exception travels to the caller,
        who gets hearth.CallFailed. It runs on a thread of the node and may block, and call Hearth. An `async def` runs
        in the event loop in which it was registered.

        request_max, reply_max: bytes, 1 MiB each. running: calls of it at the same time, 64. waiting: further ones
        before callers get hearth.Busy, 256.

        >>> import hearth
        >>> [node] = hearth.open_local(1)
        >>> @node.rpc("upper")
        ... def upper(request, call):
        ...     return request.upper()
        >>> node.world.call(0, "upper", b"abc")
        b'ABC'
        >>> node.close()
        """
        given = dict(request_max=request_max, reply_max=reply_max, running=running, waiting=waiting)
        limits, text = _limits(given), text_for_c(name, "rpc: name")

        def register(function):
            self._register(text, function, limits)
            return function

        return register

    def _register(self, name, function, limits):
        if not callable(function):
            raise TypeError(f"rpc: the handler is {function!r}; it takes a function of request and call")
        loop = None
        if inspect.iscoroutinefunction(function):
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                raise Invalid("rpc: an async handler is registered in the event loop that is to run it, and none runs "
                              "here", self.rank) from None
        self._not_serving("rpc")
        callback = _callback(self._handle, weakref.ref(self), function, loop)
        with self._handle as address:
            self._handle.keep.append((name, callback))  # before C knows it
            try:
                _errors.check(lib.rpc_register(address, name, ctypes.cast(callback, ctypes.c_void_p), None, limits),
                              self.rank)
            except _errors.Error:
                self._handle.keep.remove((name, callback))
                raise

    def remove_rpc(self, name: str) -> None:
        """Calls of this name get hearth.NoSuchCall from now on. Returns when none is running."""
        text = text_for_c(name, "remove_rpc: name")
        self._not_serving("remove_rpc")

        def remove():
            with self._handle as address:
                _errors.check(lib.rpc_register(address, text, None, None, None), self.rank)
                for kept in [kept for kept in self._handle.keep if kept[0] == text]:
                    self._handle.keep.remove(kept)

        interruptible(remove)

    def _not_serving(self, what):
        if threading.get_ident() in _SERVING:
            raise Invalid(f"{what}: a handler must not register or remove handlers", self.rank)


class _Reply(Parcel):
    """Of a call: its bytes."""

    __slots__ = ()

    def made(self, data, found):
        return data


class Calls:
    """The methods of a group that call handlers of other members."""

    __slots__ = ()

    def _call(self, rank, name, payload):
        only = raw(b"" if payload is None else payload, False, "call: payload")
        reply = _Reply(lib.rpc_call_nb)
        arguments = (self._member(rank, "call: rank"), text_for_c(name, "call: name"), only.address, length(only))
        return reply.begin, arguments, (only,), reply

    def call(self, rank: int, name: str, payload: Any = None, *, priority: str = "normal",
             timeout: Optional[float] = None) -> bytes:
        """Runs a handler of another member (Node.rpc) with the bytes of the payload, and returns its reply.

        hearth.NoSuchCall, CallFailed (with the handler's text), TooLong, Busy, Timeout or PeerLost if it fails; a call
        runs at most once, and .fate of the exception says whether it may have run. The deadline travels with the call.

            weights = numpy.frombuffer(group.call(0, "look up", b"layer 3"), "f4")
        """
        return run(self._handle, self._call(rank, name, payload), opts_of(timeout, priority=priority))

    def call_nb(self, rank: int, name: str, payload: Any = None, *, priority: str = "normal",
                timeout: Optional[float] = None) -> Future:
        """As call, but returns at once. In a coroutine: `reply = await group.call_nb(1, "name", payload)`. Cancelling
        the future tells the handler, whose time_left becomes 0."""
        return start(self._handle, self, self._call(rank, name, payload), opts_of(timeout, priority=priority))
