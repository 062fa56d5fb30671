# SPDX-License-Identifier: Apache-2.0
"""Members without a launcher, for notebooks and tests: as threads of this process, or as forked processes.

Both end every member before they return, however they return. A process sends its result through a pipe:
the pipe's end without a word is its death. A second pipe, which only the parent can write to, ends the children if
the parent is gone.
"""

import os
import pickle
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, List, Optional

from . import _errors, _handles
from ._futures import deadline_after
from ._nodes import open_local

GRACE_S = 2.0  # for the others to say what they saw, after one has failed
END_S = 2.0  # between asking a process to end and killing it
JOIN_S = 10.0  # for threads to see that their nodes are closed; then they are left to end by themselves
POLL_S = 0.05  # between two looks at whether a process has ended
ECHOES = (_errors.PeerError, _errors.GroupError, _errors.Aborted, _errors.Closed)  # seen where others failed


# ---- threads -------------------------------------------------------------------------------------------------------

class _Members:
    """Threads that run one function, each with its own node."""

    def __init__(self, nodes, function, args):
        self.nodes, self.function, self.args = nodes, function, args
        self.results = [None] * len(nodes)
        self.failures = []  # in the order in which they came
        self.wake = threading.Condition()
        self.working = len(nodes)
        self.threads = [threading.Thread(target=self.run, args=(rank,), name=f"hearth-local-{rank}", daemon=True)
                        for rank in range(len(nodes))]

    def run(self, rank):
        try:
            self.results[rank] = self.function(self.nodes[rank].world, *self.args)
        except BaseException as error:
            with self.wake:
                self.failures.append(error)
        with self.wake:
            self.working -= 1
            self.wake.notify()

    def wait(self):
        """Until all have ended or one has failed."""
        for thread in self.threads:
            thread.start()
        with self.wake:
            while self.working and not self.failures:
                self.wake.wait()

    def end(self):
        """Closed nodes end what the others wait for; what they compute has to end by itself."""
        for node in self.nodes:
            node.close()
        deadline = time.monotonic() + JOIN_S
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0))


def local(function: Callable, count: int, *args: Any, **config: Any) -> List[Any]:
    """Runs function(group, *args) on `count` threads, each with a node of its own, and returns their results by rank.

    The notebook mode: no processes, no network, the same collectives. `config` is that of hearth.open_local. When one
    fails, the nodes of the others are closed, which ends their waits; then the first exception is raised.

    >>> def total(group, factor):
    ...     values = bytearray([group.rank * factor] * 4)
    ...     return list(group.all_reduce(values))
    >>> hearth.local(total, 3, 10)
    [[30, 30, 30, 30], [30, 30, 30, 30], [30, 30, 30, 30]]
    """
    members = _Members(open_local(count, **config), function, args)
    try:
        members.wait()
    finally:
        members.end()
    if members.failures:
        raise members.failures[0]
    return members.results


# ---- processes -----------------------------------------------------------------------------------------------------

class _InChild(Exception):
    """Where an exception that came by a pipe was raised: the cause of the one that is raised here."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text

    def __str__(self):
        return self.text


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _variables(rank, size, job, port):
    """What `hearth run` sets, and torchrun."""
    values = {
        "HEARTH_RANK": rank, "HEARTH_WORLD_SIZE": size, "HEARTH_LOCAL_RANK": rank, "HEARTH_LOCAL_SIZE": size,
        "HEARTH_RENDEZVOUS": f"unix:@hearth-launch-{job}", "HEARTH_JOB": job,
        "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "GROUP_RANK": 0,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", 1),
    }
    return {name: str(value) for name, value in values.items()}


def _pickled(kind, value, text=""):
    """The pickled result. A value that cannot be pickled becomes an exception."""
    try:
        data = pickle.dumps((kind, value, text))
        pickle.loads(data)  # some exceptions go in, but do not come out
        return data
    except Exception as error:
        if kind == "result":
            value = TypeError(f"the function returned what cannot be pickled: {error}")
        else:
            value = RuntimeError(text.strip().splitlines()[-1] if text.strip() else repr(value))
        return pickle.dumps(("error", value, text))


def _outcome(function, args):
    """In the child: what the function came to, as bytes."""
    try:
        return _pickled("result", function(*args))
    except SystemExit as error:
        if error.code in (None, 0):
            return _pickled("result", None)
        return _pickled("exit", error.code if isinstance(error.code, int) else str(error.code))
    except BaseException as error:
        return _pickled("error", error, traceback.format_exc())


def _watch(lifeline):
    """In the child: ends it with its parent."""
    try:
        while os.read(lifeline, 1):
            pass
    finally:
        os._exit(1)


def _settle(lifeline):
    """In the child, before the user's function."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_watch, args=(lifeline,), name="hearth-lifeline", daemon=True).start()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # the threads of the parent's pool do not exist here


def _child(function, args, out, lifeline):
    """All of the child's life. Nothing of the parent's runs at its end: neither atexit nor the callers."""
    status = 1
    try:
        _settle(lifeline)
        data = _outcome(function, args)
        _handles._close_all()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass  # the reader is gone; the pipe carries the result
        with os.fdopen(out, "wb") as pipe:
            pipe.write(data)
        status = 0
    finally:
        os._exit(status)


class _Child:
    """A process, seen by its parent. Its end is asked of the system: a process that it forked may hold its pipe."""

    def __init__(self, rank, pid, pipe):
        self.rank, self.pid, self.pipe = rank, pid, pipe
        os.set_blocking(pipe, False)
        self.told = bytearray()
        self.alive = True
        self.status = 0
        self.result = self.error = None

    def name(self):
        return f"rank {self.rank} (pid {self.pid})"

    def fail(self, text):
        self.error = _errors.PeerLost(f"{self.name()} {text}", peer=self.rank, reason="peer_closed")

    def read(self):
        """Takes what is there; whether more may come."""
        while True:
            try:
                data = os.read(self.pipe, 1 << 20)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.told += data

    def poll(self):
        """Whether it has ended."""
        if self.alive:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.alive, self.status = False, status
        return not self.alive

    def conclude(self):
        """What its end means."""
        self.read()
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            self.fail(f"was killed by signal {number} ({signal.strsignal(number)})")
        elif os.WEXITSTATUS(self.status) or not self.told:
            self.fail(f"ended with exit status {os.WEXITSTATUS(self.status)} before its function did")
        else:
            self.take(*pickle.loads(self.told))

    def take(self, kind, value, text):
        if kind == "result":
            self.result = value
        elif kind == "exit":
            self.fail(f"called sys.exit({value!r})")
        else:
            self.error = value
            self.error.__cause__ = _InChild(f"in {self.name()}:\n{text}")

    def end(self, deadline):
        """Waits for it, and kills it at the deadline."""
        while not self.poll():
            if time.monotonic() >= deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)
        os.close(self.pipe)


class _Family:
    """The processes of one launch."""

    def __init__(self, size):
        self.size = size
        self.children = []
        self.lifeline = os.pipe()
        self.failed_at = None

    def fork(self, function, args, job, port):
        """One more. Its variables are set in itself alone."""
        rank = len(self.children)
        out_read, out_write = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # else both would write what is in it
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # fork loses what its hooks raise
        try:
            pid = os.fork()
            if pid == 0:
                self.live(_variables(rank, self.size, job, port), held, function, args, (out_read, out_write))
            self.children.append(_Child(rank, pid, out_read))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        os.close(out_write)

    def live(self, variables, held, function, args, pipe):
        """In the child; does not return."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the child can report it
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            for end in (pipe[0], self.lifeline[1], *(child.pipe for child in self.children)):
                os.close(end)
            for name in ("HEARTH_PEERS", "TORCHELASTIC_USE_AGENT_STORE"):  # where else others would be
                os.environ.pop(name, None)
            os.environ.update(variables)
            _child(function, args, pipe[1], self.lifeline[0])
        finally:
            os._exit(1)

    def wait(self, deadline):
        """Until all have ended; when one has failed the others have a little time to say what they saw."""
        with selectors.DefaultSelector() as selector:
            for child in self.children:
                selector.register(child.pipe, selectors.EVENT_READ, child)
            while self.unfinished():
                until = deadline if self.failed_at is None else min(deadline, self.failed_at + GRACE_S)
                left = until - time.monotonic()
                if left <= 0:
                    return
                for key, _ in selector.select(min(left, POLL_S)):
                    if not key.data.read():
                        selector.unregister(key.fd)
                self.look()

    def look(self):
        """Collects the processes that have ended."""
        for child in self.unfinished():
            if child.poll():
                child.conclude()
                if child.error is not None and self.failed_at is None:
                    self.failed_at = time.monotonic()

    def unfinished(self):
        return [child for child in self.children if child.alive]

    def end(self):
        """In every case: no process and no descriptor stays."""
        for child in self.unfinished():
            os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        for child in self.children:
            child.end(deadline)
        for end in self.lifeline:
            os.close(end)

    def failure(self):
        """The exception to raise: a cause comes before its echoes at others."""
        errors = [child.error for child in self.children if child.error is not None]
        errors.sort(key=lambda error: isinstance(error, ECHOES) and isinstance(error.__cause__, _InChild))
        return errors[0] if errors else None


def launch(function: Callable, processes: int, *args: Any, timeout: Optional[float] = None) -> List[Any]:
    """Runs function(*args) in `processes` forked processes of this host and returns their results by rank.

    Each has the variables that `hearth run` and torchrun set, so hearth.open() and
    torch.distributed.init_process_group() find the others. The function may be defined in a notebook's cell;
    results are pickled. If one raises or dies, the others are ended, and its exception is raised here; death
    without an exception is hearth.PeerLost. TimeoutError after `timeout` seconds names the processes that had not
    finished. Ctrl-C ends all.

    If torch is loaded, its threads are set to 1 in the children: a thread pool does not survive a fork.

    >>> def total():
    ...     with hearth.open() as node:
    ...         return bytes(node.world.all_reduce(bytearray([node.rank] * 2)))
    >>> hearth.launch(total, 3)
    [b'\\x03\\x03', b'\\x03\\x03', b'\\x03\\x03']
    """
    if not hasattr(os, "fork"):
        raise OSError("hearth.launch needs fork(), which this system lacks: use `hearth run`")
    if processes < 1:
        raise _errors.Invalid(f"processes is {processes!r}; it takes 1 or more")
    deadline = deadline_after(float("inf") if timeout is None else timeout)
    family = _Family(processes)
    job, port = secrets.token_hex(8), _free_port()
    try:
        for _ in range(processes):
            family.fork(function, args, job, port)
        family.wait(deadline)
        late = family.unfinished()
    finally:
        family.end()
    error = family.failure()
    if error is not None:
        raise error
    if late:
        raise TimeoutError(f"{', '.join(child.name() for child in late)} had not finished after {timeout} s")
    return [child.result for child in family.children]
