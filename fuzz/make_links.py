#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/links, from docs/cluster_messages.md and not from the C code.
import struct

from make_corpus import CORPUS

WIRE, WIRELESS = 2, 3


def path(bandwidth=10000, trip=300, loss=0, kind=WIRE, quality=1, age=5):
    return struct.pack("<IIIBBH", bandwidth, trip, loss, kind, quality, age)


def links(size, paths, instance=77, epoch=5, extra=0):
    bits = extra
    for start, end in paths:
        bits |= 1 << (start * size + end)
    return (struct.pack("<QQI", instance, epoch, size) + bits.to_bytes((size * size + 7) // 8, "little")
            + b"".join(paths[pair] for pair in sorted(paths)))


def full(size, speed):
    return {(a, b): path(speed(a, b)) for a in range(size) for b in range(size) if a != b}


def seeds():
    yield "alone", links(1, {})
    yield "pair", links(2, {(0, 1): path()})
    yield "trunk", links(6, full(6, lambda a, b: 10000 if a // 3 == b // 3 else 1000))
    yield "twelve", links(12, full(12, lambda a, b: 1000 + 37 * a * b % 9000))
    yield "laptop", links(3, {(0, 1): path(), (1, 2): path(2000, 4000, 1000000, WIRELESS, 255, 65535)})
    yield "no_instance", links(2, {}, instance=0)
    yield "no_epoch", links(2, {}, epoch=0)
    yield "nobody", links(0, {})
    yield "too_many", links(65, {})
    yield "oneself", links(2, {(0, 0): path()})
    yield "beyond", links(3, {}, extra=1 << 15)
    yield "nothing_known", links(2, {(0, 1): bytes(16)})
    yield "bad_loss", links(2, {(0, 1): path(loss=1000001)})
    yield "bad_kind", links(2, {(0, 1): path(kind=6)})
    yield "short", links(2, {(0, 1): path()})[:-1]
    yield "long", links(2, {(0, 1): path()}) + b"\0"


if __name__ == "__main__":
    (CORPUS / "links").mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / "links" / name).write_bytes(data)
