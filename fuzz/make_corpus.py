#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/frame and fuzz/corpus/record, from docs/wire.md and not from the C code.
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
MAGIC, VERSION = 0x4648, 1
KINDS = ("hello data grant credit abort dispute ask answer verdict ping pong bye leave message piece accept taken withdraw "
         "release").split()
FIELDS = {
    "length": 0, "group": 0, "tag": 0, "sequence": 0, "fingerprint": 0, "epoch": 0, "lane": 0, "step": 0,
    "credit": 0, "total": 0, "weight": 0.0, "link_sequence": 1, "ack": 0, "flags": 0, "reserved": 0,
}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(kind, magic=MAGIC, version=VERSION, **fields):
    values = {**FIELDS, **fields}
    number = KINDS.index(kind) + 1 if kind in KINDS else int(kind)
    head = struct.pack("<HBBIQQQQIIIIQdQQHH", magic, version, number, *values.values())
    return head + struct.pack("<I", crc32c(head))


def hello(low, high, features, rank, size, instance):
    return struct.pack("<HHIIIQ", low, high, features, rank, size, instance)


def call(state, kind=0, dtype=0, op=0, algo=0, flags=0, root=0, count=0, plan=0, fingerprint=0):
    return struct.pack("<BBBBB3xIiQQQ", state, kind, dtype, op, algo, flags, root, count, plan, fingerprint)


def error(status, rank, text, reason=0, origin=-1):
    return struct.pack("<iIii", status, reason, rank, origin) + text.encode()


def frames():
    for kind in KINDS:
        yield kind, frame(kind)
    yield "data_full", frame(
        "data", length=262144, group=7, tag=9, sequence=11, fingerprint=0x1122334455667788, epoch=2, lane=3,
        step=4, credit=5, total=1 << 40, weight=2.5, link_sequence=6, ack=5, flags=1,
    )
    yield "bad_magic", frame("ping", magic=0x4849)
    yield "bad_version", frame("ping", version=2)
    yield "bad_kind", frame("20")
    yield "bad_flags", frame("ping", flags=1)
    yield "bad_reserved", frame("ping", reserved=1)
    yield "bad_length", frame("ping", length=513)
    yield "bad_weight", frame("data", weight=float("nan"))
    yield "bad_crc", frame("ping")[:-1] + b"\0"
    yield "short", frame("ping")[:95]


def records():
    # The first byte tells the fuzz target which record follows.
    yield "hello", b"\0" + hello(1, 1, 0, 3, 8, 0x1234567890ABCDEF)
    yield "hello_longer", b"\0" + hello(1, 3, 1, 0, 1, 1) + b"new"
    yield "hello_bad_rank", b"\0" + hello(1, 1, 0, 8, 8, 1)
    yield "call_unknown", b"\1" + call(0)
    yield "call_posted", b"\1" + call(1, 0, 3, 1, 1, 2, -1, 1 << 33, 0xAB, 0xCD)
    yield "call_ended", b"\1" + call(2, 4, 9, 4, 4, 0, 5, 1, 2, 3)
    yield "call_passed", b"\1" + call(3)
    yield "call_bad_kind", b"\1" + call(1, 11)
    yield "error", b"\2" + error(-203, 2, "all_reduce: rank 2 cancelled", 6, 5)
    yield "error_nobody", b"\2" + error(-502, -1, "")
    yield "error_control", b"\2" + error(-203, 2, "\x1b[2J")
    yield "error_ok", b"\2" + error(0, 0, "")
    yield "error_pending", b"\2" + error(2, 0, "")
    yield "error_bad_reason", b"\2" + error(-203, 2, "x", 16)
    yield "error_bad_origin", b"\2" + error(-203, 2, "x", 1, -2)


if __name__ == "__main__":
    for folder, seeds in (("frame", frames()), ("record", records())):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, data in seeds:
            (CORPUS / folder / name).write_bytes(data)
