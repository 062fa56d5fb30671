#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/letters, from docs/letters.md and not from the C code.
import hashlib
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus" / "letters"
BEAT, CENSUS, CALL, VOTE, PROPOSE, ACCEPT, LEAVE, DISSOLVE = range(2, 10)
OURS = 77  # the instance of the census of three in fuzz_letters.c: epoch 5, term 3


def letter(kind, content, sender=1, later=0):
    return struct.pack("<BBH", (sender - 1) | later << 1, kind, len(content)) + content


def fellow(number, more=b"", address=b""):
    head = bytes([number]) + bytes(31) + struct.pack("<QQQIIIHH", number, number, 0, 0, 0, 0, 0, 0)
    name = bytes([ord("a") + number])
    body = head + b"\1" + name + b"\0" + (bytes([1, len(address)]) + address if address else b"\0") + more
    return struct.pack("<H", len(body)) + body


def census(epoch, term=3, leader=0, who=(1, 2, 3), instance=OURS, **fields):
    return struct.pack("<QQQHHI", instance, epoch, term, leader, len(who), 0) + b"".join(fellow(n, **fields) for n in who)


def digest(content):
    return hashlib.sha3_256(content).digest()[:16]


def beat(instance=OURS, epoch=5, wish=0, after=0, size=3, flags=9, echo=0, view=None):
    view = digest(census(epoch) if view is None else view)
    return struct.pack("<QQQQQQQHBxI", 10 ** 9, echo, 0, instance, epoch, wish, after, size, flags, 1000) + view


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
    "beats": letter(BEAT, beat()) + letter(BEAT, beat(flags=0), 2) + letter(BEAT, beat(echo=10 ** 9), 1, 50),
    "behind": letter(BEAT, beat(epoch=4)) + letter(BEAT, beat(epoch=9), 2),
    "wish": letter(BEAT, beat(instance=5, wish=OURS, size=1)) + letter(BEAT, beat(instance=5, wish=OURS, after=5), 2),
    "merge": letter(DISSOLVE, struct.pack("<QQ", OURS, 5)) + letter(BEAT, beat(instance=5), 2)
    + letter(DISSOLVE, struct.pack("<QQ", OURS, 5)) + letter(CENSUS, census(2, instance=5, leader=1), 2),
    "next": letter(CENSUS, census(6)) + letter(CENSUS, census(6), 2) + letter(CENSUS, census(7, address=V6, more=b"later"))
    + letter(BEAT, beat(epoch=7, view=census(7, address=V6)), 2),
    "one_says_so": letter(CENSUS, census(6)) + letter(CENSUS, census(2 ** 63 - 1), 2) + letter(BEAT, beat(epoch=6), 1, 100),
    "out": letter(CENSUS, census(6, who=(1, 2))) + letter(CENSUS, census(6, who=(1, 2)), 2),
    "propose": letter(PROPOSE, propose(3, census(6))) + letter(PROPOSE, propose(3, census(6, address=V6)))
    + letter(PROPOSE, propose(2, census(6, term=2)), 2) + letter(CENSUS, census(6)),
    "accepted": letter(ACCEPT, answer(term=3, view=census(6)), 2) + letter(CENSUS, census(6)),
    "far": letter(CALL, call(term=2 ** 63 - 1, tries=2), 2) + letter(VOTE, answer(promised=2 ** 63 - 1), 2)
    + letter(LEAVE, answer(promised=2 ** 63 - 1)) + letter(BEAT, beat(flags=0), 2, 50),
    "elect": letter(CALL, call(), 2) + letter(CALL, call(tries=2), 2) + letter(PROPOSE, propose(4, census(6, 4, 1)), 2),
    "leader_leaves": letter(LEAVE, answer()) + letter(VOTE, answer(), 2) + letter(ACCEPT, answer(), 2, 1),
    "heir": letter(LEAVE, answer(term=3, accepted=3, behind=census(6))) + letter(ACCEPT, answer(view=census(6)), 2),
    "silence": b"".join(letter(BEAT, beat(), 2, 30) for _ in range(12)) + letter(VOTE, answer(), 2)
    + letter(ACCEPT, answer(), 2),
    "vote_with_census": letter(LEAVE, answer(yes=0)) + letter(VOTE, answer(accepted=3, behind=census(6)), 2),
    "cut": letter(CENSUS, census(6)[:-3]) + letter(BEAT, beat()[:60]) + letter(PROPOSE, b""),
    "twice": letter(CENSUS, census(6, who=(1, 1, 3))),
    "other": letter(1, b"x") + letter(200, b"y"),
}

if __name__ == "__main__":
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (CORPUS / name).write_bytes(content)
