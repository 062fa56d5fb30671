# SPDX-License-Identifier: Apache-2.0
"""What a State has while it is open: a group of its own, a compressor, and the thread that waits."""

import atexit
import hashlib
import json
import weakref

import torch.distributed as dist

import hearth

from .._errors import Mismatch
from . import _meeting
from ._completion import Completion

SHOWN_LEN = 4096  # of the options, where members compare them

_sessions = weakref.WeakSet()


def _close_all():
    """At exit, before hearth closes its nodes: it registered earlier."""
    for session in list(_sessions):
        session.close()


atexit.register(_close_all)


def parent_group(group):
    """A Hearth group for a Hearth group, a torch process group, or None (all processes)."""
    if group is None or isinstance(group, dist.ProcessGroup):
        return _meeting.of(group).world
    return group


def _differences(mine, theirs):
    """Which options differ, as text."""
    mine, theirs = (json.loads(text) for text in (mine, theirs))
    return "; ".join(f"{key} is {theirs.get(key)!r} there, {mine.get(key)!r} here"
                     for key in sorted({*mine, *theirs}) if mine.get(key) != theirs.get(key))


def agree(group, options: dict) -> None:
    """Raises Mismatch on all members if they have different options; the text names the rank and the option."""
    text = json.dumps(options, sort_keys=True).encode()
    who = group.who_differs(bytearray(hashlib.sha256(text).digest()))
    if who is None:
        return
    everyones = bytearray(SHOWN_LEN * group.size)
    group.all_gather(bytearray(text[:SHOWN_LEN].ljust(SHOWN_LEN)), everyones)
    texts = [bytes(everyones[SHOWN_LEN * i:SHOWN_LEN * (i + 1)]) for i in range(group.size)]
    other = next(i for i in range(group.size) if texts[i] != texts[who]) if len(set(texts)) > 1 else who
    try:
        how = _differences(texts[other], texts[who]).replace(" here", f" at rank {other}")
    except ValueError:  # cut off
        how = "see the options of both"
    raise Mismatch(f"hearth.torch: rank {who} has other options than rank {other}: {how}", group.rank, who)


class Session:
    """Opened on all members together."""

    def __init__(self, group, options: dict, compressor_options: dict, rules, timeout=None):
        self._parts = []
        _sessions.add(self)
        try:
            self.group = self._opened(parent_group(group).split(0, timeout=timeout))
            agree(self.group, options)
            self.compressor = self._opened(hearth.Compressor(self.group, **compressor_options))
            for pattern, codec in rules:
                self.compressor.rule(pattern, codec)
            self.completion = self._opened(Completion("hearth.torch"))
        except BaseException:
            self.close()
            raise

    def _opened(self, part):
        self._parts.append(part)
        return part

    def close(self):
        """Cancels operations in flight before their memory is freed."""
        while self._parts:
            self._parts.pop().close()

    __del__ = close
