#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fuzz/corpus/probes from docs/cluster_messages.md: messages that measure, good ones and ones that are wrong in one thing."""

import struct

from make_corpus import CORPUS

PERSON = bytes(range(32)) + struct.pack("<Q", 7)
ORDER, MEASURED, RESULT = b"\0", b"\1", b"\2"


def order(number=5, address=b""):
    return ORDER + struct.pack("<I", number) + PERSON + bytes([len(address)]) + address


def path(rate=1000, trip=250, loss=10, kind=2, how=1):
    return PERSON + struct.pack("<IIIBBH", rate, trip, loss, kind, how, 0)


def measured(*paths, number=5, outcome=0, count=None):
    return MEASURED + struct.pack("<IBBH", number, outcome, len(paths) if count is None else count, 0) + b"".join(paths)


INPUTS = {
    "order": order(),
    "order_v4": order(address=b"\4" + struct.pack("<H", 52416) + bytes([10, 77, 0, 2])),
    "order_v6": order(address=b"\6" + struct.pack("<H", 52416) + bytes([0xfd, 0x77] + [0] * 13 + [2])),
    "order_mapped": order(address=b"\6" + struct.pack("<H", 1) + bytes([0] * 10 + [255, 255, 10, 0, 0, 1])),
    "order_no_number": order(number=0),
    "order_no_family": order(address=b"\5" + bytes(6)),
    "order_short": order()[:-1],
    "measured_none": measured(),
    "measured_one": measured(path()),
    "measured_unasked": measured(path(rate=0, how=0), path(rate=900, how=2), number=0),
    "measured_failed": measured(outcome=1),
    "measured_full": measured(*[path()] * 63),
    "measured_too_many": measured(*[path()] * 64),
    "measured_bad_count": measured(path(), count=2),
    "measured_bad_kind": measured(path(kind=6)),
    "measured_bad_loss": measured(path(loss=1000001)),
    "measured_rate_of_nothing": measured(path(how=0)),
    "result": RESULT + struct.pack("<IIQQ", 2, 9876, 6_000_000, 50_000_000),
    "result_other": RESULT + struct.pack("<IIQQ", 1, 9876, 6_000_000, 50_000_000),
}

if __name__ == "__main__":
    (CORPUS / "probes").mkdir(parents=True, exist_ok=True)
    for name, content in INPUTS.items():
        (CORPUS / "probes" / name).write_bytes(content)
