#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/greeting, from docs/wire.md and not from the C code.
import struct

from make_corpus import CORPUS
from make_messages import message

GREET, WELCOME, REFUSE, CONFIRM = range(80, 84)
MOST = (1 << 64) - 1


def greeting(kind, channel=0, channels=0, reason=0, ranks=(3, 1), cluster=0xC1, instances=(0x33, 0x11), trip=150000,
             magic=b"HM", version=2, reserved=0):
    payload = struct.pack("<BBBBQQQIIQ", channel, channels, reason, reserved, cluster, *instances, *ranks, trip)
    return message(kind, payload, magic, version)


BACK = {"ranks": (1, 3), "instances": (0x11, 0x33)}
GOLDEN = {
    "greet": greeting(GREET),
    "welcome": greeting(WELCOME, channels=2, **BACK),
    "refuse": greeting(REFUSE, 1, 2, 1, trip=0, **BACK),
    "confirm": greeting(CONFIRM, 8, 9, 0, (0, (1 << 31) - 1), MOST, (MOST, MOST), MOST),
}


def greetings():
    yield from GOLDEN.items()
    yield "greet_data", greeting(GREET, 1, 2)
    yield "welcome_higher", greeting(WELCOME)
    yield "bad_magic", greeting(GREET, magic=b"HF")
    yield "bad_version", greeting(GREET, version=1)
    yield "bad_kind", greeting(84)
    yield "bad_channel", greeting(GREET, 2, 2)
    yield "bad_channels", greeting(WELCOME, **BACK)
    yield "bad_reason", greeting(REFUSE, reason=4)
    yield "bad_reserved", greeting(GREET, reserved=1)
    yield "bad_cluster", greeting(GREET, cluster=0)
    yield "bad_rank", greeting(GREET, ranks=(1, 1))
    yield "bad_confirm", greeting(CONFIRM, channels=2)
    yield "bad_crc", greeting(GREET)[:-1] + b"\1"
    yield "short", greeting(GREET)[:55]


if __name__ == "__main__":
    (CORPUS / "greeting").mkdir(parents=True, exist_ok=True)
    for name, data in greetings():
        (CORPUS / "greeting" / name).write_bytes(data)
