# SPDX-License-Identifier: Apache-2.0
"""Messages of the process group in Python: send, recv, and the monitored barrier, which is made of them.

Torch's tags are the lower 31 bits of Hearth's. Monitored barriers have tags from MONITOR on: each member reports to
rank 0 with an empty message, and rank 0 answers with a byte for each member, 1 if it did not come in time. Those that
come later find their answer, too: nobody waits in vain, and the next barrier has another tag.
"""

import torch

import hearth

from .._messages import ANY_RANK
from . import _arguments as check
from ._staging import READ, WRITE, Span
from ._work import Task

MONITOR = 1 << 62
MONITORED = "monitored_barrier"
ANSWER_SECONDS = 1.0  # rank 0 may have come later than others: they give it this much more to answer


def _ended_in_time(work):
    """False: its deadline has passed. Other errors are raised."""
    try:
        return work.wait()
    except hearth.Timeout:
        return False


def _raise_missing(missing, rank, seconds):
    """In the words of gloo."""
    ranks = [other for other, flag in enumerate(missing.tolist()) if flag]
    raise hearth.Timeout(f"{MONITORED}: timed out: {'Rank' if len(ranks) == 1 else 'Ranks'} "
                         f"{', '.join(map(str, ranks))} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms",
                         rank, ranks[0])


class Messages:
    """Methods of the process group; it has _launch, _world, _rank and _size."""

    def _send(self, task, to, tag, opts=None):
        task.source = Span(task.inputs, READ)
        memory = task.source.memory()
        return self._launch(task, opts, lambda timeout: self._world.send_nb(memory, to, tag, timeout=timeout),
                            counted=False)

    def _recv(self, task, source, tag, opts=None):
        task.target = target = Span(task.inputs, WRITE)
        future = None

        def begin(timeout):
            nonlocal future
            future = self._world.recv_nb(target.memory(), source, tag, timeout=timeout)
            return future

        def whole():
            received = future.result()
            if received.len != target.bytes:
                raise hearth.Mismatch(f"recv: the message of rank {received.rank} has {received.len} bytes, but the "
                                      f"tensor has {target.bytes}", self._rank, received.rank)

        task.after = whole
        task.sender = lambda: future.result().rank
        return self._launch(task, opts, begin, counted=False)

    def send(self, tensors, rank, tag=0):
        check.single("send", tensors)
        check.peer("send", rank, self._size)
        task = Task("send", tensors)
        task.results = task.inputs
        return self._send(task, rank, check.tag("send", tag))

    def recv(self, tensors, rank, tag=0):
        check.single("recv", tensors)
        check.peer("recv", rank, self._size)
        task = Task("recv", tensors)
        task.results = task.inputs
        return self._recv(task, rank, check.tag("recv", tag))

    def recv_anysource(self, tensors, tag=0):
        check.single("recv", tensors)
        task = Task("recv", tensors)
        task.results = task.inputs
        return self._recv(task, ANY_RANK, check.tag("recv", tag))

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """All members that did not come are named, whatever wait_all_ranks says: their deadlines pass together. A lost
        member ends the wait at once."""
        seconds = self._timeout(timeout)
        tag, self._monitored = MONITOR + self._monitored, self._monitored + 1
        missing = torch.zeros(self._size, dtype=torch.uint8)
        if self._rank != 0:
            patience = seconds + min(seconds, ANSWER_SECONDS)
            report, answer = (self._send(Task(MONITORED), 0, tag, patience),
                              self._recv(Task(MONITORED, [missing]), 0, tag, patience))
            if not _ended_in_time(report) or not _ended_in_time(answer):
                missing[0] = 1
        else:
            reports = [self._recv(Task(MONITORED), member, tag, seconds) for member in range(1, self._size)]
            missing[1:] = torch.tensor([not _ended_in_time(report) for report in reports])
            answers = [self._send(Task(MONITORED, [missing]), member, tag, ANSWER_SECONDS)
                       for member in range(1, self._size)]
            for answer in answers:  # a member that hangs gets its answer when it comes back
                _ended_in_time(answer)
        if missing.any():
            _raise_missing(missing, self._rank, seconds)
