#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/records, as fuzz_records.c reads them.
import struct

from make_corpus import CORPUS

ALERT, HANDSHAKE, DATA = 21, 22, 23
UPDATE, UPDATE_ASKED = b"\x18\0\0\1\0", b"\x18\0\0\1\1"


def raw(data):
    return struct.pack("<HB", len(data), 0) + data


def sealed(data, kind=DATA, padding=0):
    inner = data + bytes([kind]) + bytes(padding)
    return struct.pack("<HB", len(inner), 1) + inner


def header(length, kind=DATA, version=0x0303):
    return struct.pack(">BHH", kind, version, length)


def streams():
    some = bytes(range(200))
    yield "data", sealed(b"x") + sealed(some) + sealed(some[:63]) + sealed(some[:64])
    yield "empty", sealed(b"") + sealed(b"y")
    yield "largest", sealed(bytes(16384)) + sealed(b"\1" * 16384)
    yield "too_large", sealed(bytes(16385))
    yield "padded", sealed(some, padding=100) + sealed(b"", padding=70) + sealed(some, padding=16183)
    yield "padded_too_much", sealed(some, padding=16184)
    yield "only_padding", sealed(b"", kind=0, padding=80)
    yield "update", sealed(UPDATE, HANDSHAKE) + sealed(some) + sealed(UPDATE_ASKED, HANDSHAKE) + sealed(some)
    yield "update_padded", sealed(UPDATE, HANDSHAKE, 7) + sealed(some)
    yield "update_wrong", sealed(b"\x18\0\0\1\2", HANDSHAKE) + sealed(some)
    yield "update_long", sealed(UPDATE + UPDATE, HANDSHAKE)
    yield "update_short", sealed(UPDATE[:4], HANDSHAKE)
    yield "ticket", sealed(b"\4\0\0\x20" + bytes(32), HANDSHAKE)
    yield "bye", sealed(some) + sealed(b"\1\0", ALERT) + sealed(some)
    yield "alert", sealed(b"\2\x14", ALERT)
    yield "alert_long", sealed(b"\1\0\0", ALERT)
    yield "other_type", sealed(some, 20)
    yield "forged", sealed(some) + raw(header(40) + bytes(40)) + sealed(some)
    yield "forged_small", raw(header(17) + bytes(17))
    yield "no_room", raw(header(16) + bytes(16)) + sealed(some)
    yield "long", raw(header(16640) + bytes(16640))
    yield "too_long", raw(header(16641) + bytes(16641)) + sealed(some)
    yield "cut", raw(header(100) + bytes(50)) + raw(header(100)[:4])
    yield "handshake", raw(header(40, HANDSHAKE) + bytes(40))
    yield "cipher_spec", raw(header(1, 20) + b"\1")
    yield "version", raw(header(40, version=0x0301) + bytes(40))


if __name__ == "__main__":
    (CORPUS / "records").mkdir(parents=True, exist_ok=True)
    for name, data in streams():
        (CORPUS / "records" / name).write_bytes(data)
