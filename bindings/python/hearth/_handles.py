# SPDX-License-Identifier: Apache-2.0
"""Lifetimes: the tree of C handles, the calls that use each, and how a handle is closed while others use it.

Every object of the library has a Handle here. A call is in the handle's `users` while it is in C, so that a close
waits for it. Lists are appended to and popped from without a lock: both are atomic for other threads, and a lock
would deadlock if the garbage collector ran a destructor while it is held.
"""

import atexit
import ctypes
import os
import threading
import time
from typing import Any, TypeVar

from . import _errors

Self = TypeVar("Self")

SLICE_MS = 100  # longest time in C, so that Ctrl-C and a closing node take effect
PATIENCE_S = 2.0  # for calls that cannot be cut into slices; then the close continues in the background
INTERRUPT_S = 1.0  # for calls that can be interrupted in C, to end

LOGGING = []  # threads that are in a log function of the user: they may hold the library's locks
NODES = set()  # handles of open nodes, to be closed at exit


class Handle:
    """One C object. `free` ends it in C; None: its parent does."""

    __slots__ = ("address", "parent", "children", "orphans", "users", "closing", "closers", "lives", "free", "what",
                 "rank", "process", "keep", "rouse", "__weakref__")

    moving = False  # only a group that is formed again does

    def __init__(self, what, parent, address, free, rank=None):
        self.what = what
        self.parent = parent
        self.address = address
        self.free = free
        self.rank = rank
        self.children = set()
        self.orphans = []  # operations whose future is gone
        self.users = []
        self.closing = False
        self.closers = [None]  # and it is closed once
        self.lives = [None]  # C frees it once: the thread that pops this does it
        self.process = os.getpid()
        self.keep = None
        self.rouse = None  # the C function that ends calls which wait for others: a close need not wait for them

    def adopt(self, child):
        """To be called inside `with self`, so that no thread closes it meanwhile."""
        self.children.add(child)
        return child

    def __enter__(self):
        self.users.append(None)
        if self.closing or LOGGING:
            try:
                self.refuse()
            except BaseException:
                self.users.pop()
                raise
        return self.address

    def __exit__(self, *_):
        self.users.pop()

    def refuse(self):
        """Raises if the handle is closed, or if this thread is in a log function."""
        if self.closing:
            raise self.closed()
        if threading.get_ident() in LOGGING:
            raise _errors.Invalid("a log function must not call Hearth", self.rank)

    def closed(self):
        if self.moved():
            return _errors.ViewChanged("the group is being formed again", self.rank)
        return _errors.Closed(f"the {self.what} is closed", self.rank)

    def moved(self):
        """Whether its parent is a group that is being formed again."""
        return self.moving or self.parent is not None and self.parent.moved()

    def forked(self):
        return self.process != os.getpid()

    # ---- closing ----

    def tree(self):
        """This handle and its descendants, parents first; no new call on them begins."""
        self.closing = True
        found = [self]
        for child in list(self.children):
            found += child.tree()
        return found

    def close(self, patience=PATIENCE_S):
        """Ends the C object when no call uses it or its descendants."""
        if self.closing:
            return
        if self.forked():
            self._end_forked()
            return
        try:
            self.closers.pop()
        except IndexError:  # another thread is at it
            return
        parent = self.parent
        if parent is None:
            self._close(patience)
            return
        parent.users.append(None)  # no thread closes the parent meanwhile
        try:
            if not parent.closing:  # else this ends with it
                self._close(patience)
        finally:
            parent.users.pop()

    def _close(self, patience):
        quiet = False
        try:
            quiet = self._quiet(patience)
        finally:
            if not quiet:  # Ctrl-C, or a call that cannot be cut short: the handle lives until it has ended
                self._close_later()
        if quiet:
            self._end()

    def _quiet(self, patience):
        """Whether no call is in progress. A sealed tree without users cannot grow."""
        deadline = None if patience is None else time.monotonic() + patience
        while True:
            tree = self.tree()
            if not any(handle.users for handle in tree) and self.tree() == tree:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if self.rouse is not None:
                self.rouse(self.address)
            time.sleep(0.001)

    def _close_later(self):
        uses = self.parent.users if self.parent is not None else []

        def close():
            self._quiet(None)
            self._end()
            uses.pop()

        uses.append(None)
        try:
            threading.Thread(target=close, name="hearth-close", daemon=True).start()
        except RuntimeError:
            uses.pop()  # the interpreter is ending, and the system takes everything back

    def _end(self):
        tree = self.tree()
        for handle in tree:
            handle.settle_last()
        if self.parent is not None:  # a node takes all with it; others are taken apart from the leaves
            for handle in reversed(tree[1:]):
                handle.free_now()
        self.free_now()
        for handle in tree:
            handle.gone()

    def _end_forked(self):
        """In a forked child: everything belongs to the parent process; only a node's memory is given back."""
        tree = self.tree()
        if self.parent is None:
            self.free_now()
        for handle in tree:
            handle.gone()

    def free_now(self):
        """Ends it in C, once, on the first thread that gets here."""
        try:
            self.lives.pop()
        except IndexError:
            return
        if self.free is not None:
            self.free(self.address)

    def gone(self):
        """C has forgotten it."""
        self.lives.clear()
        self.address = None
        self.keep = None
        parent = self.parent
        if parent is not None:
            parent.children.discard(self)
        else:
            NODES.discard(self)

    def settle_last(self):
        """What an operation does before its request is freed."""

    def drop(self):
        """The user's object is gone. Never waits; what is still at work stays until its node is closed."""
        if self.closing or self.forked():
            return
        if LOGGING and threading.get_ident() in LOGGING:  # C's locks may be ours: not from here
            threading.Thread(target=self.drop, name="hearth-drop", daemon=True).start()
            return
        self.sweep()
        if self.parent is None or not self.working():
            self.close()

    def working(self):
        """Whether it has an operation."""
        return any(child.working() for child in list(self.children))

    def sweep(self):
        """Frees operations that have ended and whose future is gone."""
        for _ in range(len(self.orphans)):
            try:
                operation = self.orphans.pop(0)
            except IndexError:  # another thread took it
                return
            if not operation.reap():
                self.orphans.append(operation)


class Owner:
    """The user's object of a handle: closes it at the end of a `with` block, or when the last reference is gone."""

    __slots__ = ()

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle is not None and handle.free is not None:
            handle.drop()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} belongs to its process: it cannot be "
                        "copied or pickled")

    def close(self) -> None:
        """Closes it; a second call does nothing. A child is also closed with its parent."""
        if self._handle.free is not None:
            self._handle.close()


def log_trampoline(function):
    """What C calls: the user's function, while the thread is marked as one that must not call Hearth."""
    levels = {1: "error", 2: "warn", 3: "info", 4: "debug"}

    def write(_, level, name, text):
        me = threading.get_ident()
        LOGGING.append(me)
        try:
            function(levels.get(level, str(level)), name.decode(errors="replace"), text.decode(errors="replace"))
        finally:
            LOGGING.remove(me)

    return write


class _Late:
    """What a thread works out for the main thread, which may be gone when it is ready."""

    def __init__(self, function, arguments, unwanted, interrupt):
        self.function, self.arguments, self.unwanted, self.interrupt = function, arguments, unwanted, interrupt
        self.result = self.error = None
        self.ready = threading.Event()
        self.abandoned = False
        self.disposals = [None]  # one

    def run(self):
        try:
            self.result = self.function(*self.arguments)
        except BaseException as error:
            self.error = error
        self.ready.set()
        if self.abandoned:
            self.dispose()

    def take(self):
        """Its result. An interrupted caller, from the thread's first moment on, leaves it running."""
        try:
            try:
                threading.Thread(target=self.run, name="hearth-call", daemon=True).start()
            except RuntimeError:  # no more threads, or the interpreter is ending
                self.run()
            self.ready.wait()
        except BaseException:
            self.abandon()
            raise
        if self.error is not None:
            raise self.error
        return self.result

    def abandon(self):
        """Ctrl-C. The thread may not have begun its call yet, so that is interrupted again and again."""
        self.abandoned = True
        deadline = time.monotonic() + INTERRUPT_S
        try:
            while self.interrupt is not None and not self.ready.is_set() and time.monotonic() < deadline:
                self.interrupt()
                self.ready.wait(0.005)
        finally:
            if self.ready.is_set():
                self.dispose()

    def dispose(self):
        """Both threads may come here at once."""
        try:
            self.disposals.pop()
        except IndexError:
            return
        if self.error is None:
            self.unwanted(self.result)


def interruptible(function, *arguments, unwanted=lambda result: None, interrupt=None):
    """function(*arguments), a C call that blocks for long and cannot be cut into slices. In the main thread it runs
    in another one, so that Ctrl-C takes effect; then `interrupt` ends the call. Without it the call goes on. `unwanted`
    gets its result, if there is one after all."""
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    return _Late(function, arguments, unwanted, interrupt).take()


def text_of(function, *arguments):
    """The text that a C function writes as snprintf does."""
    size = 4096
    while True:
        buffer = ctypes.create_string_buffer(size)
        length = _errors.check(function(*arguments, buffer, size))
        if length < size:
            return buffer.value.decode(errors="replace")
        size = length + 1024  # it may grow meanwhile


@atexit.register
def _close_all():
    for node in list(NODES):
        if not node.forked():
            node.close()


def _forget():
    """In a forked child: no thread of the parent exists here, so no call is in progress."""
    LOGGING.clear()


os.register_at_fork(after_in_child=_forget)
