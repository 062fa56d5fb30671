#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes src/core/crc32c_table.inc: run as `tools/crc32c_table.py > src/core/crc32c_table.inc`.

POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
SLICES = 8


def tables():
    first = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
        first.append(crc)
    result = [first]
    while len(result) < SLICES:
        last = result[-1]
        result.append([crc >> 8 ^ first[crc & 255] for crc in last])
    return result


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* CRC-32C of a byte followed by k zero bytes, for k = 0..7. Written by tools/crc32c_table.py. */")
print("/* clang-format off */")
print("static const uint32_t table[%d][256] = {" % SLICES)
for table in tables():
    print("    {")
    for row in range(0, 256, 8):
        print("        " + " ".join("0x%08x," % crc for crc in table[row : row + 8]))
    print("    },")
print("};")
print("/* clang-format on */")
