#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/link and fuzz/corpus/plan: lists of steps in the forms that fuzz_link.c and
# fuzz_plan.c read.
import pathlib
import random
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
HELLO, DATA, GRANT, CREDIT, ABORT, DISPUTE, ASK, ANSWER, VERDICT, PING, PONG, BYE = range(1, 13)
KINDS, ALGOS, BARRIER = 11, 7, 10
STATUSES, PENDING = 22, 1  # of error_of
RIGHT = 0x3F  # every field is what the engine expects; see enum right

# Steps that are no frames, see do_step.
CANCEL, TIME, MEMORY, GROUP, CONN, RAW, GONE = range(1, 8)


def frame(kind, right=RIGHT, variety=0, step=0, length=0, credit=0, eager=False, peer=0):
    number = kind - 1
    if eager:
        number = 0x80 + (number - 0x80) % 12
    return bytes([8 | peer << 4, right, number, variety, 0, step]) + struct.pack("<HH", length, credit)


def call(kind, flags=4, count=100):
    return bytes([0, kind, flags]) + struct.pack("<H", count)


def links():
    """Name, shape of the world (bit 0: three members, then the rank), steps."""
    hello, eager = frame(HELLO), frame(DATA, eager=True)
    yield "hello", 0, [hello]
    for shape in (0, 2):
        for kind in range(KINDS):
            yield f"call_{kind}_{shape}", shape, [hello, call(kind), frame(GRANT, step=64)] + [eager] * 4
    yield "large", 0, [hello, call(0, 4, 2999), frame(GRANT, step=200)] + [frame(DATA, step=i) for i in range(8)]
    yield "early", 0, [hello, frame(DATA, 0x11, eager=True, length=100), frame(GRANT, 0x11, step=9), call(0)]
    other = frame(DATA, 0x3B, variety=9, eager=True)  # of another call
    yield "mismatch_arbiter", 0, [hello, call(0), other, frame(ANSWER, variety=1)]
    yield "mismatch_member", 2, [hello, call(0), other, frame(ASK), frame(VERDICT)]
    yield "dispute", 0, [hello, call(3), frame(DISPUTE), frame(ANSWER, variety=65)]
    yield "dispute_known", 0, [hello, call(7, 5), frame(DISPUTE, variety=1)]
    yield "abort", 0, [hello, call(0), frame(ABORT)]
    yield "abort_early", 0, [hello, frame(ABORT), call(0)]
    for status in range(STATUSES):
        yield f"abort_{status}", 0, [hello, call(0), frame(ABORT, variety=4 * status)]
    yield "abort_early_pending", 0, [hello, frame(ABORT, variety=4 * PENDING), call(0)]
    yield "verdict_pending", 2, [hello, call(0), frame(VERDICT, variety=4 * PENDING)]
    yield "dispute_pending", 0, [hello, call(0), frame(DISPUTE, variety=4 * PENDING + 1)]
    yield "bye", 0, [hello, call(0), frame(BYE)]
    yield "ping", 0, [hello, frame(PING), frame(PONG), frame(CREDIT, credit=500)]
    yield "cancel", 0, [hello, call(0, 4, 2999), frame(GRANT, step=9), bytes([CONN, 1, CANCEL, 15, CONN, 0])]
    yield "timeout", 0, [hello, call(0), bytes([TIME, 255])]
    yield "no_memory", 0, [hello, bytes([MEMORY, 3]), call(0), bytes([MEMORY, 0])]
    yield "groups", 0, [hello, bytes([GROUP, 1]), call(0, 36), frame(DATA, 0x3E, 1, eager=True), bytes([GROUP, 0])]
    yield "vector", 0, [hello, call(7, 5, 300), frame(GRANT, step=64), eager]
    yield "pieces", 0, [bytes([CONN, 2]), hello, call(0), eager, eager]
    yield "raw", 0, [bytes([RAW, 100]) + b"\x48\x46\x01\x01" + bytes(96)]
    yield "gone", 0, [hello, call(0), bytes([GONE, 0])]
    both = [hello, frame(HELLO, peer=1)]
    grants = [frame(GRANT, step=9), frame(GRANT, step=9, peer=1)]
    yield "three", 1, both + [call(0, 4, 500)] + grants + [frame(DATA, eager=True, peer=i % 2) for i in range(6)]
    yield "three_lost", 1, both + [call(0), bytes([GONE, 0]), frame(ABORT, peer=1, variety=2)]


def plans():
    dice = random.Random(1)

    def plan(flags, kind, algo, count, tail):
        head = bytes([flags, kind, algo, 5, 2, 1]) + struct.pack("<H", count) + bytes([0, 0])
        return head + struct.pack("<HI", 64, 500) + tail

    for kind in range(KINDS):
        for algo in range(1, ALGOS + 1):
            hosts = bytes(dice.randrange(3) + 1 for _ in range(20))
            counts = bytes(dice.randrange(256) for _ in range(80))
            if (kind * ALGOS + algo) % 3 == 0:
                yield f"plan_{kind}_{algo}", plan(16 if algo == 6 else 0, kind, algo, 0 if kind == BARRIER else 700,
                                                  hosts + counts)
    yield "vector", plan(96, 7, 2, 7, bytes(20) + bytes(dice.randrange(256) for _ in range(80)))
    yield "ordered", plan(128 + 16, 0, 1, 700, bytes([1, 2, 0, 3, 1, 2]) + bytes(94) + bytes([7]))
    yield "no_memory", plan(8, 0, 1, 700, bytes([3]) + bytes(20))
    yield "large", bytes([1, 0, 1, 5, 2, 1]) + struct.pack("<QBBBHI", 1 << 62, 20, 0, 0, 65535, 1 << 21) + bytes(60)
    yield "invalid", bytes([2, 11, 8, 0, 0, 0]) + bytes(20)
    yield "empty", b""


if __name__ == "__main__":
    for name, shape, steps in links():
        (CORPUS / "link").mkdir(parents=True, exist_ok=True)
        (CORPUS / "link" / name).write_bytes(bytes([shape]) + b"".join(steps))
    for name, data in plans():
        (CORPUS / "plan").mkdir(parents=True, exist_ok=True)
        (CORPUS / "plan" / name).write_bytes(data)
