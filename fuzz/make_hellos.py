#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/message, from docs/messages.md and not from the C code.
import struct

from make_corpus import CORPUS

HELLO, BEAT, LEAVE, LOAD = 1, 2, 8, 17
SMALL, LARGE = b"\x01", b"\xff"  # how the bytes are cut


def message(kind, payload, magic=0x4C48, version=1, length=None):
    return struct.pack("<HBBI", magic, version, kind, len(payload) if length is None else length) + payload


def text(messages):
    return bytes([len(messages)]) + messages


def info(name=b"anna", addresses=(b"\x04" + struct.pack("<H", 52416) + bytes([10, 0, 0, 7]),), later=b""):
    body = bytes(range(32)) + struct.pack("<QQQIIIHH", 0x1234, 0x77, 0x88, 3, 4711, 16000, 8, 9)
    body += text(name) + text(b"Linux 6.1 x86_64") + bytes([len(addresses)])
    body += b"".join(bytes([len(a)]) + a for a in addresses) + later
    return struct.pack("<H", len(body)) + body


def hello(purpose=1, versions=(1, 1), rest=bytes(3), serial=1, who=None):
    return struct.pack("<HHB", *versions, purpose) + rest + struct.pack("<I", serial) + (who or info())


def seeds():
    six = b"\x06" + struct.pack("<H", 1) + bytes(range(1, 17))
    yield "hello", SMALL + message(HELLO, hello())
    yield "hello_probe", LARGE + message(HELLO, hello(2))
    yield "hello_addresses", LARGE + message(HELLO, hello(who=info(addresses=(six,) * 8)))
    yield "hello_later", LARGE + message(HELLO, hello(versions=(1, 9), who=info(later=b"from a later version")))
    yield "hello_then_messages", SMALL + message(HELLO, hello()) + message(BEAT, bytes(100)) + message(LEAVE, b"")
    yield "hello_twice", LARGE + message(HELLO, hello()) + message(HELLO, hello(serial=0xFFFFFFFF))
    yield "longest", LARGE + message(LOAD, bytes(65536))
    yield "too_long", SMALL + message(BEAT, b"", length=65537)
    yield "cut", SMALL + message(HELLO, hello())[:-1]
    yield "bad_magic", SMALL + message(HELLO, hello(), magic=0x4748)
    yield "bad_version", SMALL + message(HELLO, hello(), version=2)
    yield "bad_kind", SMALL + message(18, b"")
    yield "bad_versions", SMALL + message(HELLO, hello(versions=(2, 1)))
    yield "bad_purpose", SMALL + message(HELLO, hello(3))
    yield "bad_rest", SMALL + message(HELLO, hello(rest=b"\0\1\0"))
    yield "bad_peer_info", SMALL + message(HELLO, hello(who=info(name=b"\n")))
    yield "behind", SMALL + message(HELLO, hello() + b"\0")


if __name__ == "__main__":
    (CORPUS / "message").mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / "message" / name).write_bytes(data)
