/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C by slicing: eight table look-ups for eight bytes (Kounavis and Berry, 2005). */
#include "core/crc32c.h"

#include "core/bytes.h"
#include "core/crc32c_table.inc"

uint32_t crc32c(uint32_t crc, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    crc = ~crc;
    for (; len >= 8; len -= 8, at += 8) {
        /* Only the first four look-ups wait for the bytes before: keep the others out of that chain. */
        uint32_t next = load_u32(at + 4), first = load_u32(at) ^ crc;
        uint32_t ahead = (table[3][next & 255] ^ table[2][next >> 8 & 255]) ^
                         (table[1][next >> 16 & 255] ^ table[0][next >> 24]);
        crc = ((table[7][first & 255] ^ ahead) ^ table[6][first >> 8 & 255]) ^
              (table[5][first >> 16 & 255] ^ table[4][first >> 24]);
    }
    for (; len > 0; len--, at++)
        crc = crc >> 8 ^ table[0][(crc ^ *at) & 255];
    return ~crc;
}
