#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/meeting, from docs/wire.md and not from the C code. With --golden: prints
# tests/golden/meeting_v1.hex instead.
import struct
import sys

from make_corpus import CORPUS, crc32c, error

KINDS = "register welcome roster ready go refuse".split()


def message(kind, payload, magic=b"HM", version=1):
    number = KINDS.index(kind) + 1 if kind in KINDS else int(kind)
    head = magic + struct.pack("<BBI", version, number, len(payload))
    return head + struct.pack("<I", crc32c(head + payload)) + payload


def text(format, value):
    return struct.pack(format, len(value)) + value.encode()


def member(instance=2, host=0, process=0, features=0, name="", addrs=(), node=bytes(32)):
    data = node + struct.pack("<QQII", instance, host, process, features) + text("<B", name)
    return data + bytes([len(addrs)]) + b"".join(bytes([len(a)]) + a for a in addrs)


OAK = member(0x1122334455667788, 0xABCDEF, 4711, 1, "oak", (
    bytes([4, 0xC0, 0xCC, 10, 0, 0, 7]), bytes([6, 0xC0, 0xCC, 0xFD] + [0] * 14 + [1])), bytes(range(32)))


def register(low=1, high=1, rank=3, size=8, job="train", settings="chunk_bytes=262144 algo=auto", who=OAK, space=bytes(range(16))):
    head = struct.pack("<HHiIIQ", low, high, rank, size, 54000, 0x5E771465)
    return head + space + text("<B", job) + text("<H", settings) + who


def golden():
    yield "register", message("register", register())
    yield "welcome", message("welcome", struct.pack("<II", 2, 8))
    yield "roster", message("roster", struct.pack("<QII", 0xC1, 1, 2) + member() + OAK)
    yield "ready", message("ready", struct.pack("<Q", 0xC1))
    yield "go", message("go", struct.pack("<Q", 0xC1))
    yield "refuse", message("refuse", error(-201, 1, "missing: rank 1"))
    yield "welcome_secret", message("welcome", struct.pack("<II", 2, 8) + bytes(range(32)))


def seeds():
    yield from golden()
    yield "register_any", message("register", register(rank=-1, job="", settings="", who=member(), space=bytes(16)))
    yield "register_longer", message("register", register(high=9) + b"new")
    yield "register_bad_rank", message("register", register(rank=8))
    yield "register_bad_text", message("register", register(job="\x1b[2J"))
    yield "register_bad_addr", message("register", register(who=member(addrs=(b"",))))
    yield "register_many_addrs", message("register", register(who=member(addrs=(b"x",) * 5)))
    yield "roster_short", message("roster", struct.pack("<QII", 0xC1, 1, 3) + member() + OAK)
    yield "roster_no_cluster", message("roster", struct.pack("<QII", 0, 0, 1) + member())
    yield "welcome_empty", message("welcome", struct.pack("<II", 0, 8))
    yield "welcome_short_secret", message("welcome", struct.pack("<II", 2, 8) + bytes(31))
    yield "refuse_pending", message("refuse", error(-209, 1, "not yet"))
    yield "bad_magic", message("go", b"", magic=b"HF")
    yield "bad_version", message("go", b"", version=2)
    yield "bad_kind", message("7", b"")
    yield "bad_crc", message("go", struct.pack("<Q", 1))[:-1] + b"\1"
    yield "short", message("go", b"")[:11]


if __name__ == "__main__":
    if "--golden" in sys.argv:
        print("# SPDX-License-Identifier: Apache-2.0")
        print("# Messages of the rendezvous, version 1. They must decode for ever: add, never change.")
        print("# The fields they hold are in tests/unit/wire/test_meeting.c, in the same order.")
        for name, data in golden():
            print(name)
            for at in range(0, len(data), 16):
                print("   ", data[at:at + 16].hex(" "))
    else:
        (CORPUS / "meeting").mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (CORPUS / "meeting" / name).write_bytes(data)
