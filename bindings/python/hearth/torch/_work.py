# SPDX-License-Identifier: Apache-2.0
"""Works of the process group in Python, and the threads that complete those that nobody waits for.

A work is in flight from its start until the operation has ended, and is then completed exactly once: results are
copied to where they belong, waiters and the future are told. That happens on the thread that waits for it, which needs
no other; else on a watching thread. What hangs on a torch future may block, or wait for further works: a watching
thread that has such a future to tell leaves watching to a spare one.
"""

import collections
import datetime
import os
import select
import threading
import time

import torch
from torch._C._distributed_c10d import Work as BaseWork

import hearth

THREADS_MAX = 16
GRACE_SECONDS = 0.001  # most works are waited for at once: only after this do the watching threads take notice
LINGER_SECONDS = 2.0  # works that nobody waits for usually end at once when all members stop
PATIENCE_SECONDS = 10.0  # cancelled works end at once; only what hangs on a future can take longer
KEPT = 64  # completed works that nobody has asked for; see Watch.leave


class Task:
    """What a work is made of. The name is as errors call the operation."""

    def __init__(self, name, inputs=()):
        self.name = name
        self.inputs = list(inputs)
        self.source = self.target = None  # Spans; in place: the target alone
        self.after = None  # what is done with the target before the work is complete
        self.results = []  # for Work.result() and the future
        self.lists = None  # for the future instead, if there are several
        self.sender = None  # of a receive: a function that tells the rank

    def finish(self):
        if self.target is not None:
            self.target.deliver()
        if self.after is not None:
            with torch.no_grad():
                self.after()

    def value(self):
        return self.lists if self.lists is not None and len(self.lists) > 1 else self.results


class Work(BaseWork):
    """One operation, as torch.distributed returns it with async_op=True."""

    def __init__(self, watch, task, rank):
        super().__init__()
        self._watch, self._task, self._rank = watch, task, rank
        self._operation = None  # a hearth.Future
        self._lock = threading.Lock()
        self._error = None
        self._complete = self._claimed = False
        self._start_future = self._future = None
        self.begun = time.monotonic()

    # ---- the end of the operation ----

    def started(self, operation):
        self._operation = operation

    def complete(self):
        """The operation has ended: copies results to where they belong, once, and tells the future."""
        with self._lock:
            if not self._complete:
                self._error = self._outcome()
                self._complete = True
        self._watch.leave(self)
        self._tell()

    def _outcome(self):
        try:
            error = self._operation.exception()
            if error is None:
                self._task.finish()
            return error
        except Exception as error:
            return error

    def descriptor(self):
        """Readable when the operation has ended; the caller closes it. None: it has ended."""
        return self._operation._own_descriptor()

    def urgent(self):
        """Somebody may wait for the future."""
        return self._future is not None

    # ---- waiting ----

    def wait(self, timeout=datetime.timedelta(0)):
        seconds = timeout.total_seconds()
        self._claimed = True
        try:
            ended = self._complete or self._operation.wait(seconds if seconds > 0 else None)
        except hearth.Error:
            raise
        except BaseException:  # Ctrl-C: the others are told at once
            self.abort()
            raise
        if not ended:
            raise hearth.Timeout(f"{self._task.name}: timed out: rank {self._rank} has waited as long as the timeout "
                                 "of this wait; the operation goes on", self._rank)
        self.complete()
        if self._error is not None:
            raise self._error
        return True

    def abort(self):
        if not self._complete:
            self._operation.cancel()

    def synchronize(self):
        self.wait()

    # ---- results ----

    def is_completed(self):
        if not self._complete and self._operation.done():
            self.complete()
        return self._complete

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._task.results

    def source_rank(self):
        return -1 if self._task.sender is None else self._task.sender()

    _source_rank = source_rank

    def get_future(self):
        if self._watch.ordered:
            self.wait()
        with self._lock:
            if self._future is None:
                self._start_future = torch.futures.Future()
                # An exception that is set in Python is a value for C++. What a callback raises is an error for both.
                self._future = self._start_future.then(lambda _: self._value())
        self._claimed = True
        if self._complete:
            self._tell()
        else:
            self._watch.hurry()
        return self._future

    def _value(self):
        if self._error is not None:
            raise self._error
        return self._task.value()

    def _tell(self):
        """Runs what hangs on the future, so nothing is locked meanwhile."""
        with self._lock:
            start, self._start_future = self._start_future, None
        if start is not None:
            self._watch.make_spare()
            start.set_result(None)


class Together(BaseWork):
    """Several works as one."""

    def __init__(self, works):
        super().__init__()
        self._works = works

    def wait(self, timeout=datetime.timedelta(0)):
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self):
        return all([work.is_completed() for work in self._works])

    def get_future(self):
        every = torch.futures.collect_all([work.get_future() for work in self._works])
        return every.then(lambda done: [tensor for one in done.value() for tensor in one.value()])


class Watch:
    """Keeps the works in flight, and completes those that nobody waits for."""

    def __init__(self, ordered):
        self.ordered = ordered  # futures: as HEARTH_TORCH_ORDERED says
        self._pid = os.getpid()
        self._changed = threading.Condition()  # guards all below
        self._flying, self._new = set(), []
        self._kept = collections.deque(maxlen=KEPT)
        self._threads = self._spare = 0
        self._own = set()  # the threads' idents
        self._closed = self._stopped = self._asleep = False
        self._turn = threading.Lock()  # who has it watches, and has these:
        self._poll, self._watched = select.poll(), {}
        self._bell, self._ring = os.pipe()
        os.set_blocking(self._bell, False)
        self._poll.register(self._bell, select.POLLIN)

    def __del__(self):
        for descriptor in (self._bell, self._ring, *self._watched):
            os.close(descriptor)

    def enter(self, work, name):
        """Before the operation starts. Keeps the work until it leaves."""
        if os.getpid() != self._pid:
            raise hearth.Forked(f"{name}: the process group belongs to the process that this one was forked from")
        with self._changed:
            if self._closed:
                raise hearth.Closed(f"{name}: the process group is closed")
            self._flying.add(work)
            if self._threads == 0:
                self._start_thread()

    def added(self, work):
        """The operation has been started."""
        with self._changed:
            self._new.append(work)
            self._wake()

    def leave(self, work):
        """C++ may hold a work without its Python object, and lose what is defined here if that object dies (until torch
        2). So those that nobody has waited for, and whose future nobody has, are kept for a while."""
        with self._changed:
            if work not in self._flying:
                return
            self._flying.discard(work)
            if not work._claimed:
                self._kept.append(work)
            if self._closed:
                self._changed.notify_all()

    def hurry(self):
        with self._changed:
            self._wake()

    def _wake(self):
        if self._asleep:
            self._asleep = False
            os.write(self._ring, b"!")

    def _start_thread(self):
        self._threads += 1
        threading.Thread(target=self._run, name="hearth.torch", daemon=True).start()

    def make_spare(self):
        """Before a watching thread runs what hangs on a future: somebody else must watch meanwhile."""
        with self._changed:
            if self._is_own_thread() and self._spare == 0 and self._threads < THREADS_MAX:
                self._start_thread()

    # ---- watching ----

    def _run(self):
        with self._changed:
            self._own.add(threading.get_ident())
            self._spare += 1
        while True:
            with self._turn:
                ended = self._ended()
            with self._changed:
                self._spare -= 1
                if not ended:  # stopped
                    self._threads -= 1
                    self._own.discard(threading.get_ident())
                    self._changed.notify_all()
                    return
            for work in ended:
                work.complete()
            ended = work = None
            with self._changed:
                self._spare += 1

    def _ended(self):
        """Waits until works have ended; none: the watch is stopped."""
        while True:
            with self._changed:
                ended, self._new = self._register(self._new)
                if ended or (self._stopped and not self._flying):
                    return ended
                self._asleep = not self._new
            for descriptor, _ in self._poll.poll(None if self._asleep else GRACE_SECONDS * 1000):
                if descriptor == self._bell:
                    os.read(self._bell, 4096)
                else:
                    self._poll.unregister(descriptor)
                    ended.append(self._watched.pop(descriptor))
                    os.close(descriptor)
            ended = [work for work in ended if not work._complete]
            if ended:
                return ended

    def _register(self, works):
        """Of works that have been started: those that have ended, and those that may still be waited for at once."""
        ended, fresh, due = [], [], time.monotonic() - GRACE_SECONDS
        for work in works:
            if work._complete:
                continue
            if work.begun > due and not work.urgent():
                fresh.append(work)
                continue
            try:
                descriptor = work.descriptor()
            except (hearth.Error, OSError):  # no descriptor is left: again in a while
                fresh.append(work)
                continue
            if descriptor is None:
                ended.append(work)
            else:
                self._watched[descriptor] = work
                self._poll.register(descriptor, select.POLLIN)
        return ended, fresh

    # ---- the end ----

    def stop(self):
        """Lets works in flight end by themselves for a short while, cancels the others, and ends the threads."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._closed = True
            self._wake()
            landed = self._changed.wait_for(lambda: not self._flying, LINGER_SECONDS)
            flying = list(self._flying)
        if not landed:
            for work in flying:
                work.abort()
                work.complete()
        with self._changed:
            self._changed.wait_for(lambda: not self._flying, PATIENCE_SECONDS)
            self._stopped = True
            self._kept.clear()
            self._asleep = True
            self._wake()
            self._changed.wait_for(lambda: self._threads <= self._is_own_thread(), PATIENCE_SECONDS)

    def _is_own_thread(self):
        return threading.get_ident() in self._own
