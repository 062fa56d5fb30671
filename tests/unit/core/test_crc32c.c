/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C against RFC 3720's vectors and against its definition, bit by bit. */
#include "core/crc32c.h"
#include "core/prng.h"
#include "support/suite.h"

static uint32_t crc32c_by_bits(uint32_t crc, const uint8_t *bytes, size_t len)
{
    crc = ~crc;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

TEST(published_vectors)
{
    static const struct {
        int first, step;
        uint32_t crc;
    } rows[] = {{0, 0, 0x8a9136aa}, {0xff, 0, 0x62a8ab43}, {0, 1, 0x46dd794e}, {31, -1, 0x113fdb5c}};

    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c(0, NULL, 0), 0);
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        uint8_t bytes[32];
        for (int i = 0; i < 32; i++)
            bytes[i] = (uint8_t)(rows[row].first + i * rows[row].step);
        assert_int_equal(crc32c(0, bytes, sizeof bytes), rows[row].crc);
    }
}

TEST(equals_its_definition_at_every_length_and_alignment)
{
    uint8_t bytes[320];
    struct prng p;

    prng_init(&p, 1);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)prng_u64(&p);
    for (size_t at = 0; at < 16; at++)
        for (size_t len = 0; len <= 257; len++)
            assert_int_equal(crc32c(0, bytes + at, len), crc32c_by_bits(0, bytes + at, len));
}

TEST(can_be_continued_anywhere)
{
    uint8_t bytes[100];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    uint32_t whole = crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++)
        assert_int_equal(crc32c(crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut), whole);
}
