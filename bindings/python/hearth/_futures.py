# SPDX-License-Identifier: Apache-2.0
"""Operations in flight: Future, and waiting for several."""

import asyncio
import builtins
import ctypes
import math
import os
import time
from typing import Any, Generator, Iterable, List, Optional

from . import _errors, _handles
from ._handles import PATIENCE_S, SLICE_MS, Handle
from ._library import lib

_PENDING, _CLOSED = _errors.PENDING, _errors.Closed.status
_TAKES = "it takes seconds, 0 or more, or None for the default"


class Late:
    """A result that C writes when the operation succeeds."""

    __slots__ = ()

    def take(self):
        """What the user gets, without a trace of C. Several threads may do it at once."""
        raise NotImplementedError

    def end(self):
        """Frees what C has written, if it has. The operation has ended, and no thread uses it."""


class Operation(Handle):
    """A request of C, with all that must live as long. Its future may be gone long before."""

    __slots__ = ("request", "result", "late", "status", "text", "peer", "reason", "fate", "descriptor")
    what = "operation"
    free = lib.request_close

    def __init__(self, parent, views, result, request):
        # Like Handle, but there are many of these, and they have no children.
        self.parent, self.rank = parent, parent.rank
        self.address = None
        self.children = self.orphans = ()
        self.users, self.lives = [], [None]
        self.closing = False
        self.request = request
        self.keep = views
        self.result = result
        self.late = result if isinstance(result, Late) else None
        self.status = None
        self.text, self.peer, self.reason, self.fate = "", -1, 0, 0
        self.descriptor = None

    def begun(self):
        """C has been called, and there is a request or none."""
        self.address = self.request.value
        if self.address is None:
            self.gone()

    def settle(self, status):
        """It has ended. The status is set last: a thread that sees it sees all."""
        if status == _errors.Forked.status:  # the request is the parent process's
            self.text = lib.status_text(status).decode()
            self.late = None
        elif status < 0:
            self.text = lib.request_error(self.address).decode(errors="replace")
            self.peer = lib.request_error_rank(self.address)
            self.reason = lib.request_error_reason(self.address)
            self.fate = lib.request_error_fate(self.address)
        else:
            for view in self.keep:
                if view.stage is not None:
                    view.stage.after()
            if self.late is not None:
                self.result = self.late.take()
        self.status = status
        self.keep = ()

    def working(self):
        return True

    def settle_closed(self):
        moved = self.moved()
        how = "the group was formed again" if moved else f"the {self.parent.what} was closed"
        self.text = f"{how} before the operation had ended"
        self.status = _errors.ViewChanged.status if moved else _CLOSED

    def wait(self, timeout):
        """Its status, or PENDING after so many seconds."""
        if self.status is not None:
            return self.status
        deadline = deadline_after(timeout)
        self.users.append(None)
        try:
            if _handles.LOGGING:
                self.refuse()
            while self.status is None and not self.closing:
                status = lib.request_wait(self.address, slice_ms(deadline))
                if status != _PENDING:
                    self.settle(status)
                elif deadline is not None and time.monotonic() >= deadline:
                    return _PENDING
        finally:
            self.users.pop()
        self.tidy()
        return self.status

    def outlive(self):
        """Waits for the closing thread to set the outcome. C may be gone: it is not asked."""
        deadline = time.monotonic() + PATIENCE_S
        while self.status is None:
            if time.monotonic() >= deadline:
                self.settle_closed()
            time.sleep(0.001)

    def test(self):
        return self.wait(0)

    def cancel(self):
        self.users.append(None)
        try:
            if self.status is None and not self.closing:
                _errors.check(lib.request_cancel(self.address), self.rank)
                self.settle(lib.request_test(self.address))
        finally:
            self.users.pop()
        self.tidy()

    def error(self):
        return _errors.make(self.status, self.text, self.rank, self.peer, self.reason, self.fate)

    def tidy(self):
        """Frees the request when it has ended and is not in use; a descriptor that was handed out lives on."""
        if self.status is None:
            self.outlive()
        elif self.descriptor is None:
            self.reap()

    def reap(self):
        """False: it cannot be freed yet."""
        parent = self.parent
        parent.users.append(None)  # the parent cannot be closed meanwhile
        try:
            if parent.closing or not self.lives:
                return True  # the thread that closes it frees this, too
            if self.status is None:
                status = lib.request_test(self.address)
                if status == _PENDING:
                    return False
                self.settle(status)
            if self.users:
                return False
            self.free_now()
            self.gone()
            return True
        finally:
            parent.users.pop()

    def free_now(self):
        try:
            self.lives.pop()
        except IndexError:
            return
        lib.request_close(self.address)
        if self.late is not None and not self.parent.forked():
            self.late.end()

    def settle_last(self):
        if self.status is None:
            if self.late is not None:  # C must not write a result that nobody takes any more
                lib.request_cancel(self.address)
            status = lib.request_test(self.address)
            if status == _PENDING or self.late is not None and status == _errors.Cancelled.status:
                self.settle_closed()
            else:
                self.settle(status)
        if self.late is not None:
            self.late.end()


def milliseconds(seconds, what="timeout"):
    """None: -1, which is C's word for the default."""
    if seconds is None:
        return -1
    try:
        fits = 0 <= seconds < math.inf
    except TypeError:
        raise TypeError(f"{what} is {seconds!r}; {_TAKES}") from None
    if not fits:
        raise _errors.Invalid(f"{what} is {seconds!r}; {_TAKES}")
    return math.ceil(seconds * 1000)


def deadline_after(timeout):
    """When so many seconds are over, on the clock of time.monotonic(). None: never."""
    try:
        return None if timeout is None else time.monotonic() + timeout
    except TypeError:
        raise TypeError(f"timeout is {timeout!r}; {_TAKES}") from None


def slice_ms(deadline):
    """The next slice of a wait, in milliseconds."""
    if deadline is None:
        return SLICE_MS
    return max(0, min(SLICE_MS, int((deadline - time.monotonic()) * 1000 + 0.999)))


class Future:
    """An operation in flight, as the calls that end in _nb return it.

    Its buffers belong to the operation until it has ended, and are kept alive. A future that is dropped goes on to
    its end, unseen. In a coroutine, await it:

    >>> import asyncio, hearth
    >>> async def total(group, numbers):
    ...     return await group.all_reduce_nb(numbers)
    >>> [node] = hearth.open_local(1)
    >>> asyncio.run(total(node.world, bytearray(b"ab")))
    bytearray(b'ab')
    >>> node.close()
    """

    __slots__ = ("_operation", "_owner", "__weakref__")

    def __init__(self, operation, owner):
        self._operation = operation
        self._owner = owner  # the group or compressor: a future keeps it open

    def __del__(self):
        operation = getattr(self, "_operation", None)
        if operation is not None and operation.lives:
            operation.parent.orphans.append(operation)  # freed by a later call: C may not be called from here

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("a Future belongs to its process: it cannot be copied or pickled")

    def __repr__(self):
        status = self._operation.status
        state = "pending" if status is None else lib.status_name(status).decode()
        return f"<hearth.Future {state}>"

    def done(self) -> bool:
        """Whether it has ended, well or not. Does not wait."""
        return self._operation.test() != _PENDING

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until it has ended, at most `timeout` seconds. False: it has not. None: until its own deadline."""
        return self._operation.wait(timeout) != _PENDING

    def result(self, timeout: Optional[float] = None) -> Any:
        """What the blocking call would have returned, or raises what it would have raised.

        If `timeout` seconds are not enough, builtins.TimeoutError; the operation goes on.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._operation.result

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """What went wrong, or None. Waits as `result` does."""
        operation = self._operation
        status = operation.wait(timeout)
        if status == _errors.OK:
            return None
        if status == _PENDING:
            raise builtins.TimeoutError(f"the operation has not ended in {timeout} s; it goes on")
        return operation.error()

    def cancel(self) -> bool:
        """Ends the operation, a collective for all members (they get hearth.Aborted). False: it had ended before."""
        if self.done():
            return False
        self._operation.cancel()
        return self._operation.status == _errors.Cancelled.status

    def fileno(self) -> int:
        """A descriptor that becomes readable when the operation has ended: for select, poll and event loops.

        Do not read or close it. It lives as long as the future.
        """
        operation = self._operation
        if operation.descriptor is None:
            with operation as address:
                if address is None:
                    raise _errors.Invalid("the operation has ended, and its descriptor is gone; ask done() first",
                                          operation.rank)
                operation.descriptor = _errors.check(lib.request_fd(address), operation.rank)
        return operation.descriptor

    def __await__(self) -> Generator[Any, None, Any]:
        """Cancelling the task that awaits it cancels the operation."""
        if not self.done():
            try:
                yield from self._readable().__await__()
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()

    async def _readable(self):
        mine = self._own_descriptor()
        if mine is None:
            return
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(mine, lambda: ended.done() or ended.set_result(None))
        try:
            await ended
        finally:
            loop.remove_reader(mine)
            os.close(mine)

    def _own_descriptor(self):
        """A copy, so that several may await at once, and none is closed under a loop. None: it has ended."""
        operation = self._operation
        operation.users.append(None)
        try:
            if operation.status is not None or operation.closing:
                return None
            return os.dup(_errors.check(lib.request_fd(operation.address), operation.rank))
        finally:
            operation.users.pop()


def wait_all(futures: Iterable[Future], timeout: Optional[float] = None) -> List[Any]:
    """Waits for all, at most `timeout` seconds. Their results; or raises the first error in the order given.

    >>> import hearth
    >>> [node] = hearth.open_local(1)
    >>> hearth.wait_all([node.world.barrier_nb(), node.world.broadcast_nb(bytearray(b"x"))])
    [None, bytearray(b'x')]
    >>> node.close()
    """
    futures = list(futures)
    deadline = deadline_after(timeout)
    for future in futures:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not future.wait(left):
            raise builtins.TimeoutError(f"not all operations have ended in {timeout} s; they go on")
    return [future.result() for future in futures]


def wait_any(futures: Iterable[Future], timeout: Optional[float] = None) -> Future:
    """The first of the futures to have ended, well or not. builtins.TimeoutError if none has in `timeout` seconds.

    >>> import hearth
    >>> [node] = hearth.open_local(1)
    >>> hearth.wait_any([node.world.barrier_nb()]).done()
    True
    >>> node.close()
    """
    futures = list(futures)
    if not futures:
        raise ValueError("wait_any: there are no futures to wait for")
    deadline = deadline_after(timeout)
    while True:
        ended = _any_of(futures, slice_ms(deadline))
        if ended is not None:
            ended._operation.tidy()
            return ended
        if deadline is not None and time.monotonic() >= deadline:
            raise builtins.TimeoutError(f"none of {len(futures)} operations has ended in {timeout} s; they go on")


def _any_of(futures, milliseconds):
    """One slice of wait_any."""
    entered, index = [], ctypes.c_size_t()
    try:
        for future in futures:
            operation = future._operation
            operation.users.append(None)
            entered.append(operation)
            if operation.status is not None or operation.closing:
                return future
        requests = (ctypes.c_void_p * len(futures))(*[operation.address for operation in entered])
        status = lib.request_wait_any(requests, len(futures), milliseconds, ctypes.byref(index))
        if status == _PENDING:
            return None
        if status == _errors.Forked.status:
            _errors.check(status)
        entered[index.value].settle(status)
        return futures[index.value]
    finally:
        for operation in entered:
            operation.users.pop()
