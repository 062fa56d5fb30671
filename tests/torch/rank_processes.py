# SPDX-License-Identifier: Apache-2.0
"""Runs a function in several real processes with the variables of torchrun, and brings results and errors back.

The processes are forked, which saves each of them the seconds that importing torch takes; so the process that calls
must not have used torch's threads or opened a node.
"""

import datetime
import os
import pickle
import select
import signal
import sys
import time
import traceback

import torch
import torch.distributed as dist

from hearth.torch import _backend
from places import require
from ports import free_port


def extension_is_missing():
    """Why the process group in C++ cannot be used; None: it can."""
    try:
        _backend.load()
    except ImportError as error:
        return str(error)


def in_python():
    """Whether the process group in Python is tested: a file that does so says it before it imports this one."""
    return os.environ.get("HEARTH_TORCH_PROCESS_GROUP") == "python"


def need_extension():
    """Skips the file that calls this, unless the process group that it tests is there."""
    if not in_python():
        require(extension_is_missing())


SECONDS = 150  # no test takes as long, even on a busy machine


class RankFailed(AssertionError):
    """A rank raised something; the text is its traceback."""


def _variables(rank, count, port, more):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(count),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.update({name: value(rank) if callable(value) else value for name, value in more.items()})


def _body(function, arguments, backend, timeout):
    """What a rank does; the process group is left to the function if there is no backend."""
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ["RANK"]))
    if backend is not None:
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout))
    result = function(*arguments)
    if backend is not None and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return result


def _child(write, function, arguments, backend, timeout):
    signal.alarm(SECONDS)
    try:
        answer = ("result", _body(function, arguments, backend, timeout))
    except BaseException:
        answer = ("error", traceback.format_exc())
    with os.fdopen(write, "wb") as pipe:
        pipe.write(pickle.dumps(answer))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _start(rank, count, port, more, job):
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        _variables(rank, count, port, more)
        _child(write, *job)
    os.close(write)
    return process, read


def _read(pipes, deadline):
    """What each rank wrote; None for one that died without a word or did not end in time."""
    texts, open_pipes = {read: b"" for read in pipes}, set(pipes)
    while open_pipes and time.monotonic() < deadline:
        for read in select.select(list(open_pipes), [], [], 1)[0]:
            piece = os.read(read, 1 << 20)
            texts[read] += piece
            if not piece:
                open_pipes.discard(read)
    return [pickle.loads(texts[read]) if read not in open_pipes and texts[read] else None for read in pipes]


def run(count, function, *arguments, backend="hearth", timeout=30, dead=(), **variables):
    """function(*arguments) on every rank: the list of results; None for ranks in `dead`, which must die in it. Further
    variables of the environment are texts, or functions of the rank."""
    port, deadline = free_port(), time.monotonic() + SECONDS
    job = (function, arguments, backend, timeout)
    started = [_start(rank, count, port, variables, job) for rank in range(count)]
    try:
        answers = _read([read for _, read in started], deadline)
    finally:
        for process, read in started:
            os.close(read)
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    errors = []
    for rank, answer in enumerate(answers):
        if (answer is None) != (rank in dead):
            errors.append(f"rank {rank} {'hung or died' if answer is None else 'should have died'}")
        elif answer is not None and answer[0] == "error":
            errors.append(f"rank {rank}:\n{answer[1]}")
    if errors:
        raise RankFailed("\n".join(errors))
    return [answer and answer[1] for answer in answers]
