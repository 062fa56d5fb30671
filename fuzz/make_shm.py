#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/shm: lists of steps in the form that fuzz_shm.c reads.
import struct

from make_corpus import CORPUS

FRAME, RAW, NUMBER, READ, RETURN, WORD, CLOSE = 0, 2, 3, 4, 5, 6, 7  # the peer's, see do_step
SEND, LOAN_END, FORGET, REGION, LEND, DOZE, ATTEND = 8, 10, 11, 12, 13, 14, 15  # ours
LATER = 0x80  # the next step comes before the link is pumped
HEAD, TAIL, RETURNED, WITHDRAWN = range(4)
RING, HEADER = 8192, 96


def step(kind, *values):
    return bytes([kind]) + bytes(values)


def frame(length=0, reference=None, ping=False, hello=False, later=0):
    """A frame of the peer; reference: number, region, offset."""
    kind = (0x40 if ping else 0) | (1 | (2 if reference[2] else 0) if reference else 0)
    out = step(FRAME | later, kind) + (b"" if hello or ping else struct.pack("<H", length))
    number, region, offset = reference or (0, 0, 0)
    return out + bytes([number, region]) + (struct.pack("<Q", offset) if kind & 2 else b"")


def number(which, side, value=None, by=0, later=0):
    code = side | which << 1
    if value is not None:
        return step(NUMBER | later, code | 0x40) + struct.pack("<Q", value)
    return step(NUMBER | later, code) + struct.pack("<h", by)


def word(what, region, *more):
    return step(WORD, what, region) + b"".join(more)


def send(which, length, buffer=0, later=0):
    return step(SEND | later, which | buffer << 5) + struct.pack("<H", length)


def seeds():
    hello = frame(hello=True)
    region = word(1, 3)  # one page, under the id 3
    lends = hello + step(LEND)
    yield "hello", hello
    yield "data", hello + frame(100) + frame(2000) + frame(ping=True)
    yield "lent", lends + frame(1500) + frame(2000) + step(LOAN_END, 0) + frame(1024) + step(LOAN_END, 1)
    yield "held_up", lends + frame(3000) + frame(900) + frame(900) + frame(900) + frame(900)
    yield "lent_close", lends + frame(3000) + step(CLOSE, 0) + step(ATTEND)
    yield "reference", lends + region + frame(2000, (5, 3, 8)) + word(2, 3) + frame(2000, (5, 3, 0)) + step(LOAN_END, 0)
    yield "reference_copied", hello + region + frame(4096, (63, 3, 0)) + frame(4096, (63, 3, 0))
    yield "reference_twice", lends + region + frame(2000, (5, 3, 0)) + frame(2000, (5, 3, 0))
    yield "reference_beyond", lends + region + frame(2000, (5, 3, 4096))
    yield "reference_wraps", lends + region + frame(2000, (5, 3, (1 << 64) - 8))
    yield "reference_number", lends + region + frame(2000, (64, 3, 0))
    yield "reference_nowhere", lends + frame(2000, (1, 4, 0))
    yield "withdrawn", lends + region + number(WITHDRAWN, 0, (1 << 64) - 1) + frame(2000, (1, 3, 0))
    ours = hello + step(REGION, 0) + send(1, 3000) + step(READ)
    yield "ours", ours + step(RETURN, 0) + send(1, 3000) + step(READ) + step(RETURN, 0)
    yield "ours_forgotten", ours + step(FORGET, 1) + step(REGION, 0) + step(RETURN, 0) + step(ATTEND)
    yield "ours_early", hello + step(REGION, 0) + step(RETURN | LATER, 0) + send(1, 3000)
    yield "ours_never", ours + step(RETURN, 7)
    yield "ours_all", ours + step(RETURN, 0x80) + b"\xff" * 8
    lent = hello + step(REGION, 0) + send(1, 3000)
    half = send(2, RING - 50 - (HEADER + 5) - (HEADER + 16) - HEADER, buffer=1) + send(3, 3000)  # 50 bytes of it have room
    yield "ours_half", lent + half + step(RETURN, 1) + step(READ) + send(4, 3000) + step(READ)
    yield "ours_busy", ours + b"".join(send(i, 2000) for i in range(2, 12)) + step(READ) + step(RETURN, 0x80) + b"\xff\x07" + bytes(6)
    yield "stream", hello + send(0, 8000) + send(1, 8000) + step(READ) + step(READ) + step(READ)
    yield "head_far", hello + number(HEAD, 0, (1 << 63))
    yield "head_back", hello + number(HEAD, 0, by=-5)
    yield "head_ahead", hello + number(HEAD, 0, by=9000)
    yield "tail_far", hello + send(0, 8000) + number(TAIL, 0, (1 << 64) - 1) + send(1, 100)
    yield "tail_back", hello + send(0, 8000) + step(READ) + number(TAIL, 0, by=-9)
    yield "ours_written_over", hello + number(HEAD, 1, 77) + number(TAIL, 1, 78) + send(0, 100) + frame(100)
    yield "lent_head_back", lends + frame(1500) + number(HEAD, 0, by=-1500) + frame(1500)
    yield "raw", hello + step(RAW, 100) + bytes(100)
    yield "closed", hello + step(NUMBER, 0x18) + struct.pack("<hB", 0, 1)
    yield "asleep", hello + step(DOZE | 0x10) + frame(10) + step(DOZE) + step(NUMBER, 0x30) + struct.pack("<hI", 0, 3) + send(0, 10)
    yield "words", hello + b"".join(word(1, i) for i in range(70)) + step(ATTEND)
    yield "word_again", hello + region + region + word(2, 3) + frame(100, (1, 3, 0)) + word(2, 3)
    yield "word_event", hello + word(1 | 8, 3) + step(ATTEND)
    yield "word_short", hello + word(1 | 4, 3) + word(0x80 | 1, 4, struct.pack("<Q", 1 << 62)) + step(ATTEND)
    yield "word_half", hello + word(0x42, 3, bytes([5])) + step(ATTEND)
    yield "word_unknown", hello + word(2, 70) + word(16, 1) + step(ATTEND)


if __name__ == "__main__":
    (CORPUS / "shm").mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (CORPUS / "shm" / name).write_bytes(data)
