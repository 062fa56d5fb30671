#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/messages, from docs/cluster_messages.md and not from the C code.
import hashlib
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus" / "messages"
BEAT, VIEW, CALL, VOTE, PROPOSE, ACCEPT, LEAVE, DISSOLVE = range(2, 10)
OURS = 77  # the instance of the view of three in fuzz_messages.c: epoch 5, term 3


def message(kind, content, sender=1, later=0):
    return struct.pack("<BBH", (sender - 1) | later << 1, kind, len(content)) + content


def info(number, more=b"", address=b""):
    head = bytes([number]) + bytes(31) + struct.pack("<QQQIIIHH", number, number, 0, 0, 0, 0, 0, 0)
    name = bytes([ord("a") + number])
    body = head + b"\1" + name + b"\0" + (bytes([1, len(address)]) + address if address else b"\0") + more
    return struct.pack("<H", len(body)) + body


def view(epoch, term=3, leader=0, who=(1, 2, 3), instance=OURS, **fields):
    return struct.pack("<QQQHHI", instance, epoch, term, leader, len(who), 0) + b"".join(info(n, **fields) for n in who)


def digest(content):
    return hashlib.sha3_256(content).digest()[:16]


def beat(instance=OURS, epoch=5, request=0, after=0, size=3, flags=9, echo=0, view=None):
    view = digest(view(epoch) if view is None else view)
    return struct.pack("<QQQQQQQHBxI", 10 ** 9, echo, 0, instance, epoch, request, after, size, flags, 1000) + view


def call(epoch=5, term=4, tries=0):
    return struct.pack("<QQQI4x", OURS, epoch, term, tries)


def answer(yes=1, epoch=5, term=4, promised=3, accepted=0, behind=b"", view=b""):
    view = digest(view) if view else bytes(16)
    return struct.pack("<QQQQQB7x", OURS, epoch, term, promised, accepted, yes) + view + behind


def propose(term, content):
    return struct.pack("<Q", term) + content


V6 = b"\6\xc0\xcc" + bytes(16)
SEEDS = {
    "empty": b"",
    "beats": message(BEAT, beat()) + message(BEAT, beat(flags=0), 2) + message(BEAT, beat(echo=10 ** 9), 1, 50),
    "behind": message(BEAT, beat(epoch=4)) + message(BEAT, beat(epoch=9), 2),
    "request": message(BEAT, beat(instance=5, request=OURS, size=1)) + message(BEAT, beat(instance=5, request=OURS, after=5), 2),
    "merge": message(DISSOLVE, struct.pack("<QQ", OURS, 5)) + message(BEAT, beat(instance=5), 2)
    + message(DISSOLVE, struct.pack("<QQ", OURS, 5)) + message(VIEW, view(2, instance=5, leader=1), 2),
    "next": message(VIEW, view(6)) + message(VIEW, view(6), 2) + message(VIEW, view(7, address=V6, more=b"later"))
    + message(BEAT, beat(epoch=7, view=view(7, address=V6)), 2),
    "one_says_so": message(VIEW, view(6)) + message(VIEW, view(2 ** 63 - 1), 2) + message(BEAT, beat(epoch=6), 1, 100),
    "out": message(VIEW, view(6, who=(1, 2))) + message(VIEW, view(6, who=(1, 2)), 2),
    "propose": message(PROPOSE, propose(3, view(6))) + message(PROPOSE, propose(3, view(6, address=V6)))
    + message(PROPOSE, propose(2, view(6, term=2)), 2) + message(VIEW, view(6)),
    "accepted": message(ACCEPT, answer(term=3, view=view(6)), 2) + message(VIEW, view(6)),
    "far": message(CALL, call(term=2 ** 63 - 1, tries=2), 2) + message(VOTE, answer(promised=2 ** 63 - 1), 2)
    + message(LEAVE, answer(promised=2 ** 63 - 1)) + message(BEAT, beat(flags=0), 2, 50),
    "elect": message(CALL, call(), 2) + message(CALL, call(tries=2), 2) + message(PROPOSE, propose(4, view(6, 4, 1)), 2),
    "leader_leaves": message(LEAVE, answer()) + message(VOTE, answer(), 2) + message(ACCEPT, answer(), 2, 1),
    "heir": message(LEAVE, answer(term=3, accepted=3, behind=view(6))) + message(ACCEPT, answer(view=view(6)), 2),
    "silence": b"".join(message(BEAT, beat(), 2, 30) for _ in range(12)) + message(VOTE, answer(), 2)
    + message(ACCEPT, answer(), 2),
    "vote_with_view": message(LEAVE, answer(yes=0)) + message(VOTE, answer(accepted=3, behind=view(6)), 2),
    "cut": message(VIEW, view(6)[:-3]) + message(BEAT, beat()[:60]) + message(PROPOSE, b""),
    "twice": message(VIEW, view(6, who=(1, 1, 3))),
    "other": message(1, b"x") + message(200, b"y"),
}

if __name__ == "__main__":
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (CORPUS / name).write_bytes(content)
