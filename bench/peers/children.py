# SPDX-License-Identifier: Apache-2.0
"""Runs the processes of one measurement: reads the rows they print, bounds their time, leaves nobody behind."""

import ctypes
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path

LOOK_S = 0.5  # how often to see whether a process has failed
LINGER_S = 3  # for a clean end after the last row; some peers hang when they close
TERM_S = 2  # for a launcher to end its ranks
PR_SET_CHILD_SUBREAPER = 36


class Failed(Exception):
    """A measurement that gave no rows. The text says why."""


def adopt_orphans():
    """Launchers may die before what they started; then it becomes our child, and end() finds it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def own_children():
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        if int(fields[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def end(processes):
    for process in processes:
        if process.poll() is None:
            process.terminate()
    limit = time.monotonic() + TERM_S
    for process in processes:
        try:
            process.wait(max(0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    while orphans := own_children():
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def read_rows(descriptor, processes, wanted, limit_s):
    """Lines until all processes have closed their output, the time is over, or one has failed."""
    text, limit = b"", time.monotonic() + limit_s
    while (left := limit - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], min(left, LOOK_S))
        if ready:
            piece = os.read(descriptor, 65536)
            if not piece:
                break
            text += piece
            if text.count(b"\n") >= wanted:
                limit = min(limit, time.monotonic() + LINGER_S)
        elif any(process.poll() for process in processes):
            break
    return [json.loads(line) for line in text.splitlines() if line.startswith(b"{")]


def run(commands, wanted, limit_s):
    """Starts (argument list, environment) pairs side by side; the `wanted` rows that they print, or Failed."""
    reader, writer = os.pipe()
    processes = []
    with tempfile.TemporaryFile() as errors:
        try:
            for arguments, environment in commands:
                processes.append(subprocess.Popen([str(a) for a in arguments], env={**os.environ, **environment},
                                                  stdin=subprocess.DEVNULL, stdout=writer, stderr=errors))
            os.close(writer)
            writer = -1
            rows = read_rows(reader, processes, wanted, limit_s)
        finally:
            end(processes)
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if len(rows) >= wanted:
            return rows[:wanted]
        errors.seek(0)
        said = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip(" -")]
        raise Failed("; ".join(said[:3])[:300] or f"no result within {limit_s:.0f} s")
