# SPDX-License-Identifier: Apache-2.0
"""A thread that waits for operations in the order in which they were started, so that no other thread has to."""

import os
import queue
import threading

IN_FLIGHT_MAX = 512  # half of what a node takes by default: more wait in start()
JOIN_SECONDS = 10.0


class Batch:
    """Operations that are answered for together: when the last has ended, `finish(error or None)` is called."""

    def __init__(self, finish):
        self.finish = finish
        self.error = None

    def failed(self, error):
        if self.error is None:
            self.error = error


class Completion:
    """Batches are started, and ended, by one thread at a time."""

    def __init__(self, name):
        self.name = name
        self.pid = os.getpid()
        self.items = queue.SimpleQueue()
        self.slots = threading.Semaphore(IN_FLIGHT_MAX)
        self.active = set()
        self.thread = None

    def start(self, batch, operation, settle=None):
        """operation() -> Future. When it has ended the thread calls settle(error or None), which returns the error that
        is left."""
        self._wake()
        self.slots.acquire()
        try:
            future = operation()
        except BaseException:
            self.slots.release()
            raise
        self.active.add(future)
        self.items.put((batch, future, settle))

    def end(self, batch):
        """No more operations come for this batch."""
        self._wake()
        self.items.put((batch, None, None))

    def drain(self):
        """Waits until all that was started has ended; each operation has its deadline."""
        ended = threading.Event()
        self.end(Batch(lambda error: ended.set()))
        ended.wait()

    def _wake(self):
        if self.thread is None:
            self.thread = threading.Thread(target=_run, args=(self.items, self.active, self.slots), name=self.name,
                                           daemon=True)
            self.thread.start()

    def close(self):
        """Cancels what is in flight, and ends the thread."""
        if self.pid != os.getpid() or self.thread is None:
            return
        self.items.put(None)
        for future in list(self.active):
            future.cancel()
        if self.thread is not threading.current_thread():
            self.thread.join(JOIN_SECONDS)
        self.thread = None


def _settle(batch, future, settle):
    error = None
    try:
        error = future.exception()
        if settle is not None:
            error = settle(error)
    except BaseException as broken:  # the thread must live on: others wait for their batches
        error = broken
    if error is not None:
        batch.failed(error)


def _run(items, active, slots):
    """Holds no reference to its owner, so that an unused owner can be collected."""
    while True:
        item = items.get()
        if item is None:
            return
        batch, future, settle = item
        if future is None:
            batch.finish(batch.error)
        else:
            _settle(batch, future, settle)
            active.discard(future)
            slots.release()
        del item, batch, future, settle
