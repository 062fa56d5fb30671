#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/ring order, from docs/wire.md and not from the C code.
import struct

from make_corpus import CORPUS


def record(order, sites, magic=b"HDAP", size=None, reserved=0, paths=(10000, 1000, 300, 900)):
    size = len(order) if size is None else size
    head = magic + struct.pack("<BBH4I", size, max(sites, default=-1) + 1, reserved, *paths)
    return bytes([len(order)]) + head + bytes(order).ljust(64, b"\0") + bytes(sites).ljust(64, b"\0")


def seeds():
    yield "nothing", record([], [], paths=(0, 0, 0, 0))
    yield "pair", record([1, 0], [0, 0])
    yield "trunk", record([0, 2, 4, 5, 3, 1], [0, 0, 0, 1, 1, 1])
    yield "most", record(list(range(63, -1, -1)), list(range(64)))
    yield "twice", record([0, 2, 2], [0, 0, 0])
    yield "beyond", record([0, 1, 3], [0, 0, 0])
    yield "sites", record([0, 1, 2], [0, 2, 2])
    yield "reserved", record([0, 1], [0, 0], reserved=1)
    yield "size", record([0, 1], [0, 0], size=3)
    yield "magic", record([0, 1], [0, 0], magic=b"HDAQ")
    yield "short", record([0, 1], [0, 0])[:-1]


if __name__ == "__main__":
    (CORPUS / "ring order").mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / "ring order" / name).write_bytes(data)
