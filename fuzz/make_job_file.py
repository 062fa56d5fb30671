#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/job_file, from docs/cluster_messages.md and not from the C code; without the sum at the end, which
# the target makes.
import struct

from make_corpus import CORPUS
from make_jobs import identity, text


def entry(job="red", process=9, members=(0, 1), instance=66, epoch=4, leader=0, names="anna"):
    return (struct.pack("<Q", process) + text(job) + struct.pack("<QQBB", instance, epoch, leader, len(members))
            + b"".join(identity(who) + bytes([who == 9]) for who in members) + text(names) * len(members))


def file(*entries, version=1, count=None):
    return b"HJOB" + struct.pack("<HH", version, len(entries) if count is None else count) + b"".join(entries)


def seeds():
    yield "none", file()
    yield "one", file(entry())
    yield "several", file(entry(), entry("blue", 8, (0, 2, 9), leader=2), entry("red", 7, tuple(range(64)), names=""))
    yield "later", file(version=2)
    yield "miscounted", file(entry(), count=2)
    yield "twice", file(entry(members=(1, 1)))
    yield "no_leader", file(entry(leader=2))
    yield "bad_name", file(entry(names="\x7f"))


if __name__ == "__main__":
    (CORPUS / "job_file").mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / "job_file" / name).write_bytes(data)
