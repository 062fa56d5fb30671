#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/rpc, from docs/payloads.md ("Remote calls") and not from the C code.
import struct

from make_corpus import CORPUS


def request(name, left_ms=1000, version=1, body=b"body", reserved=0):
    head = struct.pack("<BBHI", version, len(name), reserved, left_ms) + name
    return b"\0" + head + bytes(-len(head) % 16) + body


def reply(status, fate, rest=b"", reserved=b""):
    return b"\1" + (struct.pack("<iB", status, fate) + reserved).ljust(16, b"\0") + rest


def seeds():
    yield "request", request(b"lookup")
    yield "longest_name", request(b"n" * 63, 0xffffffff, body=bytes(100))
    yield "no_body", request(b"a", 0, body=b"")
    yield "no_name", request(b"")
    yield "long_name", request(b"n" * 64)
    yield "bad_name", request(b"a\nb")
    yield "zero_name", request(b"a\0b")
    yield "later_version", request(b"a", version=2)
    yield "reserved", request(b"a", reserved=1)
    yield "cut", request(b"lookup")[:12]
    yield "filled", request(b"lookup")[:15] + b"x" + request(b"lookup")[16:]
    yield "nothing", b"\1"
    yield "ok", reply(0, 0, b"bytes\0of the reply")
    yield "failed", reply(-211, 2, b"row 7 is not there")
    yield "busy", reply(-212, 1, b"too many calls in flight")
    yield "no_such_call", reply(-210, 1)
    yield "too_long", reply(-209, 2, b"x" * 200)
    yield "text_too_long", reply(-209, 2, b"x" * 201)
    yield "bad_text", reply(-211, 2, b"a\nb")
    yield "bad_status", reply(-999, 1)
    yield "bad_fate", reply(-210, 2)
    yield "reserved_reply", reply(0, 0, b"", b"\1")
    yield "cut_reply", reply(0, 0)[:10]


if __name__ == "__main__":
    folder = CORPUS / "rpc"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)
