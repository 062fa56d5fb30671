#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/transfers: the steps of fuzz_transfers.c.
import struct

from make_corpus import CORPUS

SEND, RECV, CANCEL, TIME, MEMORY, GROUP, APPETITE, PEER, FRAME = range(9)
MESSAGE, PIECE, ACCEPT, TAKEN, WITHDRAW, RELEASE, HELLO, BYE = range(8)
EAGER, DATA_PIPE = 0x80, 0x40
RIGHT = 31
FIRST, SECOND = 0, 16  # peers; the second has two pipes


def send(length, to=1, tag=0, sync=False, parts=False, priority=0, channel=0):
    return struct.pack("<BBBH", SEND, to | 4 * parts | 8 * sync | priority << 4 | channel << 6, tag, length)


def recv(length, source=1, tag=0, how=0, any_rank=False, any_tag=False):
    return struct.pack("<BBBH", RECV, source | 4 * any_rank | how << 4, tag | 4 * any_tag, length)


def frame(kind, length=0, offset=0, variety=0, peer=FIRST, right=RIGHT, pipe=0):
    return struct.pack("<BBBBHH", FRAME | peer, right, kind | pipe, variety, length, offset)


def hello(peer=FIRST):
    if peer == SECOND:
        return frame(HELLO, peer=peer) + frame(HELLO, peer=peer, pipe=DATA_PIPE)
    return frame(HELLO, peer=peer)


def byte(step, value, peer=FIRST, how=0):
    return bytes([step | peer | how << 5, value])


def seeds():
    begin = hello() + hello(SECOND)
    yield "eager_before", begin + frame(MESSAGE | EAGER, 100) + recv(200)
    yield "eager_after", begin + recv(200) + frame(MESSAGE | EAGER, 100)
    yield "empty", begin + recv(0) + frame(MESSAGE | EAGER, 0) + frame(MESSAGE, 0) + recv(0)
    yield "too_long", begin + recv(50) + frame(MESSAGE | EAGER, 100, variety=128)
    yield "whole", begin + frame(MESSAGE | EAGER, 100) + recv(0, how=2)
    yield "probed", begin + recv(0, how=3) + frame(MESSAGE | EAGER, 9) + recv(0, how=3, any_rank=True, any_tag=True)
    pieces = frame(PIECE, 500) + frame(PIECE, 500, 500)
    yield "announced", begin + frame(MESSAGE, 1000) + recv(1000) + pieces
    yield "announced_parts", begin + recv(1000, how=1) + frame(MESSAGE, 1000, variety=128) + pieces
    yield "announced_second", (begin + recv(1000, source=2) + frame(MESSAGE, 1000, peer=SECOND)
                               + frame(PIECE, 400, peer=SECOND, pipe=DATA_PIPE) + frame(PIECE, 600, 400, peer=SECOND))
    yield "withdrawn", begin + frame(MESSAGE, 1000) + frame(WITHDRAW) + recv(1000) + frame(MESSAGE, 800) + frame(WITHDRAW)
    yield "over", begin + recv(9) + frame(MESSAGE, 1000) + frame(WITHDRAW, right=RIGHT & ~2) + send(5)
    yield "sends", begin + send(10) + send(3000) + frame(ACCEPT) + frame(RELEASE)
    yield "sync", begin + send(10, sync=True) + frame(TAKEN) + send(9, sync=True) + frame(TAKEN, variety=4)
    yield "sent_parts", begin + send(300, parts=True) + send(4000, parts=True, to=2) + frame(ACCEPT, peer=SECOND)
    yield "stuck", begin + byte(PEER, 1) + send(10) + send(5000) + byte(CANCEL, 0) + byte(CANCEL, 1) + byte(TIME, 200)
    yield "slow", begin + byte(PEER, 2) + byte(PEER, 2, SECOND) + recv(900, how=1) + frame(MESSAGE | EAGER, 900) + byte(CANCEL, 0)
    yield "left", begin + byte(PEER, 1) + send(500) + frame(MESSAGE | EAGER, 7) + frame(BYE) + recv(9) + byte(PEER, 0)
    yield "gone", begin + recv(900) + frame(MESSAGE, 900) + frame(PIECE, 300) + byte(PEER, 0, how=2)
    yield "group", begin + byte(GROUP, 1) + frame(MESSAGE | EAGER, 20, variety=1, right=RIGHT & ~1) + recv(30, tag=17) + byte(GROUP, 0)
    sunk = frame(MESSAGE | EAGER, 60, variety=16, right=RIGHT & ~16)
    yield "sink", begin + sunk + byte(APPETITE, 0) + sunk + send(30, to=0, channel=1)
    yield "to_itself", send(10, to=0) + recv(5, source=0) + send(3000, to=0, sync=True) + recv(4000, source=0)
    yield "short_of_memory", begin + byte(MEMORY, 3) + recv(900, how=2) + frame(MESSAGE | EAGER, 900) + send(500, parts=True)
    yield "coded", begin + recv(100) + frame(MESSAGE | EAGER, 40, 2, right=RIGHT & ~16)
    yield "able_to_nothing", frame(HELLO, variety=1) + send(10)


def main():
    folder = CORPUS / "transfers"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
