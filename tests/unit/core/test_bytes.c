/* SPDX-License-Identifier: Apache-2.0 */
/* Reader and writer: little endian, at any alignment, and never a byte beyond their end. */
#include "core/bytes.h"
#include "support/suite.h"

/* One of each kind, 31 bytes. */
static const uint8_t golden[] = {
    0x01,                                           /* u8 */
    0x02, 0x80,                                     /* u16 */
    0x03, 0x00, 0x00, 0x90,                         /* u32 */
    0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0xf0, /* u64 */
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0xbf, /* f64 -1.5 */
    'h',  'e',  'a',  'r',  't',  'h',  '!',  '!',  /* bytes */
};

static void put_all(struct writer *w)
{
    put_u8(w, 1);
    put_u16(w, 0x8002);
    put_u32(w, 0x90000003);
    put_u64(w, UINT64_C(0xf00a090807060504));
    put_f64(w, -1.5);
    put_bytes(w, "hearth!!", 8);
}

TEST(bytes_are_little_endian)
{
    uint8_t target[sizeof golden + 8];

    for (size_t at = 0; at < 8; at++) {
        struct writer w = writer_of(target + at, sizeof golden);
        put_all(&w);
        assert_false(w.bad);
        assert_ptr_equal(w.at, w.end);
        assert_memory_equal(target + at, golden, sizeof golden);

        struct reader r = reader_of(target + at, sizeof golden);
        char text[8];
        assert_int_equal(get_u8(&r), 1);
        assert_int_equal(get_u16(&r), 0x8002);
        assert_int_equal(get_u32(&r), 0x90000003);
        assert_true(get_u64(&r) == UINT64_C(0xf00a090807060504));
        assert_true(get_f64(&r) == -1.5);
        assert_int_equal(reader_left(&r), 8);
        get_bytes(&r, text, 8);
        assert_memory_equal(text, "hearth!!", 8);
        assert_int_equal(reader_left(&r), 0);
        assert_false(r.bad);
    }
}

TEST(writer_stops_at_its_end)
{
    uint8_t target[sizeof golden + 8];

    for (size_t len = 0; len < sizeof golden; len++) {
        memset(target, 0xee, sizeof target);
        struct writer w = writer_of(target, len);
        put_all(&w);
        put_u8(&w, 9);
        assert_true(w.bad);
        for (size_t i = len; i < sizeof target; i++)
            assert_int_equal(target[i], 0xee);
    }
}

TEST(after_an_overrun_nothing_is_read)
{
    uint8_t target[8] = {9, 9, 9, 9, 9, 9, 9, 9};

    struct reader r = reader_of(golden, 7);
    assert_true(get_u64(&r) == 0);
    assert_true(r.bad);
    assert_int_equal(get_u8(&r), 0);
    assert_int_equal(get_u16(&r), 0);
    assert_int_equal(get_u32(&r), 0);
    assert_true(get_f64(&r) == 0);
    assert_int_equal(reader_left(&r), 0);
    get_bytes(&r, target, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(target[i], 0);
}

TEST(lengths_near_the_address_space_do_not_wrap)
{
    uint8_t byte = 0;

    struct reader r = reader_of(golden, sizeof golden);
    assert_int_equal(get_u8(&r), 1);
    r.at = r.end - 1;
    assert_int_equal(get_u16(&r), 0);
    assert_true(r.bad);
    struct writer w = writer_of(&byte, 1);
    put_bytes(&w, golden, SIZE_MAX);
    assert_true(w.bad);
    put_u8(&w, 1);
    assert_int_equal(byte, 0);
}

TEST(nothing_is_a_length_too)
{
    struct reader r = reader_of(NULL, 0);
    get_bytes(&r, NULL, 0);
    assert_false(r.bad);
    assert_int_equal(get_u8(&r), 0);
    assert_true(r.bad);
    struct writer w = writer_of(NULL, 0);
    put_bytes(&w, NULL, 0);
    assert_false(w.bad);
    put_u8(&w, 1);
    assert_true(w.bad);
}
