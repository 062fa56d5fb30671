#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the seeds below fuzz/corpus/coder, from docs/payloads.md and not from the C code.
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus" / "coder"
NONE, FP16, BF16, INT8, STOCHASTIC, ONEBIT, TOPK = range(7)


def seed(name, codec, count, blocks, flags=0):
    head = struct.pack("<BHQ", codec, count, flags)
    (CORPUS / name).write_bytes(head + blocks)


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    ramp = bytes(i % 251 for i in range(4096))
    seed("empty", INT8, 0, b"")
    seed("none", NONE, 5, struct.pack("<5f", 1, -2, 3e38, 0, -1e-40))
    seed("none_nan", NONE, 2, struct.pack("<2f", 1, float("nan")))
    seed("fp16", FP16, 300, struct.pack("<2b", -14, 3) + ramp[:600])
    seed("fp16_exponent", FP16, 3, struct.pack("<b", 114) + ramp[:6])
    seed("fp16_huge", FP16, 3, struct.pack("<b3H", 113, 0x7BFF, 0x7800, 0xF800))
    seed("bf16", BF16, 100, ramp[:200])
    seed("bf16_infinite", BF16, 2, struct.pack("<2H", 0x7F80, 0xFF80))
    seed("int8", INT8, 300, struct.pack("<2H", 0x3F80, 0x0080) + ramp[:300])
    seed("int8_blocks", INT8, 4097, struct.pack("<16H", *[0x3C00] * 16) + ramp + struct.pack("<Hb", 0x3C00, -127))
    seed("int8_scale", INT8, 2, struct.pack("<H2b", 0x7C02, 1, 1))
    seed("int8_huge", INT8, 2, struct.pack("<H2b", 0x7C01, 127, -128))
    seed("stochastic", STOCHASTIC, 40, struct.pack("<H", 0x4000) + ramp[:40])
    seed("onebit", ONEBIT, 300, struct.pack("<2H", 0x3F00, 0x0001) + ramp[:37] + b"\x0f")
    seed("onebit_rest", ONEBIT, 3, struct.pack("<HB", 0x3F00, 0x0F))
    seed("overflows", BF16, 1, bytes(2), flags=1)
    seed("flags", BF16, 1, bytes(2), flags=2)
    seed("topk", TOPK, 64, ramp[:40])


main()
