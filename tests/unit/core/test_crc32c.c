/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C against RFC 3720's vectors and against its definition, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc32c.h"
#include "core/prng.h"

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

static void published_vectors(void **state)
{
    uint8_t bytes[48];

    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c(0, NULL, 0), 0);
    memset(bytes, 0, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x62a8ab43u);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(crc32c(0, bytes, 32), 0x46dd794eu);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(31 - i);
    assert_int_equal(crc32c(0, bytes, 32), 0x113fdb5cu);
}

static void equals_its_definition_at_every_length_and_alignment(void **state)
{
    uint8_t bytes[320];
    struct prng p;

    (void)state;
    prng_init(&p, 1);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)prng_u64(&p);
    for (size_t at = 0; at < 16; at++)
        for (size_t len = 0; len <= 257; len++)
            assert_int_equal(crc32c(0, bytes + at, len), crc32c_by_bits(0, bytes + at, len));
}

static void can_be_continued_anywhere(void **state)
{
    uint8_t bytes[100];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    uint32_t whole = crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++)
        assert_int_equal(crc32c(crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut), whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(equals_its_definition_at_every_length_and_alignment),
        cmocka_unit_test(can_be_continued_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
