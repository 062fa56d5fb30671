#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes tests/golden/sparse_v1.hex and the seeds below fuzz/corpus/sparse, from docs/payloads.md and not from the C code.
import struct
from pathlib import Path

from make_corpus import CORPUS

F32, BF16, INT8 = range(3)
GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "sparse_v1.hex"
GOLDEN_HEAD = """# SPDX-License-Identifier: Apache-2.0
# Lists of chosen elements. They must decode for ever: add, never change.
# What they hold is in tests/unit/compress/test_sparse.c.
"""


def f32_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def bits_f32(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def pack(bits):
    filled = bits + [0] * (-len(bits) % 8)
    return bytes(sum(filled[i + j] << j for j in range(8)) for i in range(0, len(filled), 8))


def indices(index, count):
    keep = len(index)

    def length(low):
        return (keep * low + 7) // 8 + (keep + ((count - keep) >> low) + 7) // 8

    low = min(range(32), key=lambda bits: (length(bits), bits))
    v = [at - place for place, at in enumerate(index)]
    row = [0] * (keep + ((count - keep) >> low))
    for place, number in enumerate(v):
        row[(number >> low) + place] = 1
    return pack([number >> bit & 1 for number in v for bit in range(low)]) + pack(row)


def values(kind, value):
    if kind == F32:
        return b"".join(struct.pack("<f", v) for v in value)
    if kind == BF16:
        rounded = ((f32_bits(v) + 0x7FFF + (f32_bits(v) >> 16 & 1)) >> 16 for v in value)
        return b"".join(struct.pack("<H", r) for r in rounded)
    pieces = [value[i:i + 256] for i in range(0, len(value), 256)]
    scales = [min(max((f32_bits(max(map(abs, p)) / 127) + 0xFFFF) >> 16, 0x80), 0x7C01) for p in pieces]
    levels = [round(v / bits_f32(s << 16)) for p, s in zip(pieces, scales) for v in p]
    return b"".join(struct.pack("<H", s) for s in scales) + b"".join(struct.pack("<b", n) for n in levels)


def payload(kind, index, value, count):
    return indices(index, count) + values(kind, value)


def seed(kind, index, value, count):
    """As fuzz_sparse.c reads it: kind, keep and count before the list."""
    return struct.pack("<BHI", kind, len(index), count) + payload(kind, index, value, count)


LIST = ([3, 5, 64, 999], [1, -2.5, 0.0078125, 3])
NAMES = {F32: "f32", BF16: "bf16", INT8: "int8"}


def seeds():
    for kind, name in NAMES.items():
        yield name, seed(kind, *LIST, 1000)
        yield name + "_dense", seed(kind, list(range(30)), [0.5] * 30, 30)
        yield name + "_long", seed(kind, list(range(5, 3000, 10)), [1 + i / 7 for i in range(300)], 4096)
    yield "far", seed(F32, [0, 0xFFFFFFFE], [1, 2], 0xFFFFFFFF)
    yield "zero", seed(INT8, [1, 2], [0, 0], 4)
    good = seed(INT8, *LIST, 1000)
    yield "short", good[:-1]
    yield "low", good[:7] + b"\xff" + good[8:]
    yield "ones", good[:7] + b"\xff" * (len(good) - 7)
    yield "empty", seed(F32, [], [], 1)


if __name__ == "__main__":
    lines = (f"{name}\n    {payload(kind, *LIST, 1000).hex(' ')}\n" for kind, name in NAMES.items())
    GOLDEN.write_text(GOLDEN_HEAD + "".join(lines))
    target = CORPUS / "sparse"
    target.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (target / name).write_bytes(content)
