#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/letter, from docs/letters.md and not from the C code.
import struct

from make_corpus import CORPUS

HELLO, BEAT, LEAVE, LOAD = 1, 2, 8, 17
SMALL, LARGE = b"\x01", b"\xff"  # how the bytes are cut


def letter(kind, payload, magic=0x4C48, version=1, length=None):
    return struct.pack("<HBBI", magic, version, kind, len(payload) if length is None else length) + payload


def text(letters):
    return bytes([len(letters)]) + letters


def fellow(name=b"anna", addresses=(b"\x04" + struct.pack("<H", 52416) + bytes([10, 0, 0, 7]),), later=b""):
    body = bytes(range(32)) + struct.pack("<QQQIIIHH", 0x1234, 0x77, 0x88, 3, 4711, 16000, 8, 9)
    body += text(name) + text(b"Linux 6.1 x86_64") + bytes([len(addresses)])
    body += b"".join(bytes([len(a)]) + a for a in addresses) + later
    return struct.pack("<H", len(body)) + body


def hello(purpose=1, versions=(1, 1), rest=bytes(3), serial=1, who=None):
    return struct.pack("<HHB", *versions, purpose) + rest + struct.pack("<I", serial) + (who or fellow())


def seeds():
    six = b"\x06" + struct.pack("<H", 1) + bytes(range(1, 17))
    yield "hello", SMALL + letter(HELLO, hello())
    yield "hello_probe", LARGE + letter(HELLO, hello(2))
    yield "hello_addresses", LARGE + letter(HELLO, hello(who=fellow(addresses=(six,) * 8)))
    yield "hello_later", LARGE + letter(HELLO, hello(versions=(1, 9), who=fellow(later=b"from a later version")))
    yield "hello_then_letters", SMALL + letter(HELLO, hello()) + letter(BEAT, bytes(100)) + letter(LEAVE, b"")
    yield "hello_twice", LARGE + letter(HELLO, hello()) + letter(HELLO, hello(serial=0xFFFFFFFF))
    yield "longest", LARGE + letter(LOAD, bytes(65536))
    yield "too_long", SMALL + letter(BEAT, b"", length=65537)
    yield "cut", SMALL + letter(HELLO, hello())[:-1]
    yield "bad_magic", SMALL + letter(HELLO, hello(), magic=0x4748)
    yield "bad_version", SMALL + letter(HELLO, hello(), version=2)
    yield "bad_kind", SMALL + letter(18, b"")
    yield "bad_versions", SMALL + letter(HELLO, hello(versions=(2, 1)))
    yield "bad_purpose", SMALL + letter(HELLO, hello(3))
    yield "bad_rest", SMALL + letter(HELLO, hello(rest=b"\0\1\0"))
    yield "bad_fellow", SMALL + letter(HELLO, hello(who=fellow(name=b"\n")))
    yield "behind", SMALL + letter(HELLO, hello() + b"\0")


if __name__ == "__main__":
    (CORPUS / "letter").mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / "letter" / name).write_bytes(data)
