#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/message, from docs/wire.md and docs/cluster_messages.md and not from the C code.
# With --golden: prints tests/golden/message_v2.hex instead.
import struct
import sys

from make_corpus import CORPUS, crc32c, error

KINDS = {"hello": 1, "beat": 2, "leave": 8, "links": 16, "load": 17,
         "register": 64, "welcome": 65, "roster": 66, "ready": 67, "go": 68, "refuse": 69}
# First bytes: checksums as they are, pieces cut small; who reads is in bits 1 and 2. LARGE cuts large pieces.
CLUSTER, RENDEZVOUS, MEMBER, PROBE, LARGE = 0, 2, 4, 6, 128


def message(kind, payload, magic=b"HM", version=2, length=None):
    head = magic + struct.pack("<BBI", version, KINDS.get(kind, kind), len(payload) if length is None else length)
    return head + struct.pack("<I", crc32c(head + payload)) + payload


def text(format, value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack(format, len(value)) + value


def addresses(addrs):
    return bytes([len(addrs)]) + b"".join(bytes([len(a)]) + a for a in addrs)


V4 = bytes([4, 0xC0, 0xCC, 10, 0, 0, 7])
V6 = bytes([6, 0xC0, 0xCC, 0xFD] + [0] * 14 + [1])


def peer(instance=2, host=0, process=0, features=0, name="", platform="", addrs=(), node=bytes(32), facts=(0, 0, 0, 0), later=b""):
    machine, memory, cores, cpu = facts
    body = node + struct.pack("<QQQIIIHH", instance, machine, host, features, process, memory, cores, cpu)
    return text("<H", body + text("<B", name) + text("<B", platform) + addresses(addrs) + later)


def anna(name="anna", addrs=(V4,), later=b""):
    return peer(0x1234, 0x88, 4711, 3, name, "Linux 6.1 x86_64", addrs, bytes(range(32)), (0x77, 16000, 8, 9), later)


OAK = peer(0x1122334455667788, 0xABCDEF, 4711, 8, "oak", "", (V4, V6), bytes(range(32)))


def hello(purpose=1, versions=(2, 2), rest=bytes(3), serial=1, who=None):
    return struct.pack("<HHB", *versions, purpose) + rest + struct.pack("<I", serial) + (who or anna())


def register(low=1, high=1, rank=3, size=8, job="train", settings="chunk_bytes=262144 algo=auto", who=OAK, space=bytes(range(16))):
    head = struct.pack("<HHiIIQ", low, high, rank, size, 54000, 0x5E771465)
    return head + space + text("<B", job) + text("<H", settings) + who


def golden():
    yield "register", RENDEZVOUS, message("register", register())
    yield "welcome", MEMBER, message("welcome", struct.pack("<II", 2, 8))
    yield "roster", MEMBER, message("roster", struct.pack("<QII", 0xC1, 1, 2) + peer() + OAK)
    yield "ready", RENDEZVOUS, message("ready", struct.pack("<Q", 0xC1))
    yield "go", MEMBER, message("go", struct.pack("<Q", 0xC1))
    yield "refuse", MEMBER, message("refuse", error(-201, 1, "missing: rank 1"))
    yield "welcome_secret", MEMBER, message("welcome", struct.pack("<II", 2, 8) + bytes(range(32)))


def seeds():
    yield from golden()
    yield "register_any", RENDEZVOUS, message("register", register(rank=-1, job="", settings="", who=peer(), space=bytes(16)))
    yield "register_empty", RENDEZVOUS, message("register", b"")
    yield "register_longer", RENDEZVOUS, message("register", register(high=9) + b"new")
    yield "register_bad_rank", RENDEZVOUS, message("register", register(rank=8))
    yield "register_bad_text", RENDEZVOUS, message("register", register(job="\x1b[2J"))
    yield "register_bad_addr", RENDEZVOUS, message("register", register(who=peer(addrs=(b"",))))
    yield "register_many_addrs", RENDEZVOUS, message("register", register(who=peer(addrs=(V4,) * 9)))
    yield "register_then_ready", RENDEZVOUS, message("register", register()) + message("ready", struct.pack("<Q", 0xC1))
    yield "roster_short", MEMBER, message("roster", struct.pack("<QII", 0xC1, 1, 3) + peer() + OAK)
    yield "roster_no_cluster", MEMBER, message("roster", struct.pack("<QII", 0, 0, 1) + peer())
    yield "welcome_empty", MEMBER, message("welcome", struct.pack("<II", 0, 8))
    yield "welcome_short_secret", MEMBER, message("welcome", struct.pack("<II", 2, 8) + bytes(31))
    yield "refuse_pending", MEMBER, message("refuse", error(2, 1, "not yet"))
    yield "hello", CLUSTER, message("hello", hello())
    yield "hello_probe", CLUSTER | LARGE, message("hello", hello(2))
    yield "hello_addresses", CLUSTER | LARGE, message("hello", hello(who=anna(addrs=(V6,) * 8)))
    yield "hello_later", CLUSTER | LARGE, message("hello", hello(versions=(1, 9), who=anna(later=b"from a later version")))
    yield "hello_then_others", CLUSTER, message("hello", hello()) + message("beat", bytes(100)) + message("leave", b"")
    yield "hello_twice", CLUSTER | LARGE, message("hello", hello()) + message("hello", hello(serial=0xFFFFFFFF))
    yield "hello_long", CLUSTER, message("hello", hello(), length=525)
    yield "hello_cut", CLUSTER, message("hello", hello())[:-1]
    yield "hello_bad_versions", CLUSTER, message("hello", hello(versions=(2, 1)))
    yield "hello_bad_purpose", CLUSTER, message("hello", hello(3))
    yield "hello_bad_rest", CLUSTER, message("hello", hello(rest=b"\0\1\0"))
    yield "hello_bad_peer", CLUSTER, message("hello", hello(who=anna(name="\n")))
    yield "hello_behind", CLUSTER, message("hello", hello() + b"\0")
    yield "load", PROBE | LARGE, message("load", bytes(16372))
    yield "load_here", CLUSTER, message("load", bytes(100))
    yield "longest", CLUSTER | LARGE, message("links", bytes(65536))
    yield "too_long", CLUSTER, message("beat", b"", length=65537)
    yield "bad_magic", MEMBER, message("go", b"", magic=b"HF")
    yield "bad_version", MEMBER, message("go", b"", version=1)
    yield "bad_kind", MEMBER, message(70, b"")
    yield "bad_crc", MEMBER, message("go", struct.pack("<Q", 1))[:-1] + b"\1"
    yield "bad_crc_made_right", MEMBER | 1, message("go", struct.pack("<Q", 1))[:-1] + b"\1"
    yield "short", MEMBER, message("go", b"")[:11]


if __name__ == "__main__":
    if "--golden" in sys.argv:
        print("# SPDX-License-Identifier: Apache-2.0")
        print("# Control messages, version 2. They must decode for ever: add, never change.")
        print("# The fields they hold are in tests/unit/wire/test_meeting.c, in the same order.")
        for name, _, data in golden():
            print(name)
            for at in range(0, len(data), 16):
                print("   ", data[at:at + 16].hex(" "))
    else:
        (CORPUS / "message").mkdir(parents=True, exist_ok=True)
        for name, first, data in seeds():
            (CORPUS / "message" / name).write_bytes(bytes([first]) + data)
