/* SPDX-License-Identifier: Apache-2.0 */
/* The frame header: golden bytes decode for ever, every damage and every wrong field is refused. */
#include <math.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/prng.h"
#include "support/golden.h"
#include "support/suite.h"
#include "wire/frame.h"

static uint8_t bytes[FRAME_HEADER_LEN];

/* By their bytes: that these hold every field, the golden ones show. */
static void assert_frames_equal(const struct frame *a, const struct frame *b)
{
    uint8_t one[FRAME_HEADER_LEN], other[FRAME_HEADER_LEN];

    frame_encode(a, one);
    frame_encode(b, other);
    assert_memory_equal(one, other, FRAME_HEADER_LEN);
}

/* What tests/golden/frame_v1.hex holds at `index`. */
static struct frame golden_frame(uint32_t index)
{
    static const uint32_t lengths[] = {24, 64u << 20, 0, 0,         40,        0, 0,  40, 40, 0,
                                       0,  40,        0, 64u << 20, 64u << 20, 0, 40, 40, 0};
    uint8_t kind = (uint8_t)(index + 1);

    return (struct frame){
        .kind = kind,
        .flags = kind == FRAME_DATA || kind == FRAME_MESSAGE ? FRAME_EAGER
                 : kind == FRAME_PIECE                       ? FRAME_REFERENCE
                                                             : 0,
        .length = lengths[index],
        .group = index % 2 ? UINT64_C(0x0102030405060708) : 0,
        .epoch = index,
        .tag = index * UINT64_C(1000003),
        .sequence = (uint64_t)index << 32 | index,
        .fingerprint = UINT64_C(0xfedcba9876543210) - index,
        .lane = index * 3,
        .step = index * 5,
        .total = (UINT64_C(1) << 40) + index,
        .weight = index * 0.25,
        .link_sequence = index + 1,
        .ack = index,
        .credit = UINT32_MAX - index,
    };
}

TEST(golden_headers_decode_and_encode_for_ever)
{
    struct golden items[GOLDEN_MAX];
    size_t count = golden_read("frame_v1.hex", items);

    assert_int_equal(count, FRAME_KIND_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct frame expected = golden_frame(i), f;
        const char *what = NULL;
        assert_int_equal(items[i].len, FRAME_HEADER_LEN);
        assert_int_equal(frame_decode(&f, items[i].bytes, &what), HEARTH_OK);
        assert_frames_equal(&f, &expected);
        frame_encode(&expected, bytes);
        assert_memory_equal(bytes, items[i].bytes, FRAME_HEADER_LEN);
    }
}

static struct frame random_frame(struct prng *p)
{
    struct frame f;

    for (size_t i = 0; i < sizeof f; i++)
        ((uint8_t *)&f)[i] = (uint8_t)prng_u64(p);
    f.kind = (uint8_t)(1 + prng_below(p, FRAME_KIND_MAX));
    bool data = f.kind == FRAME_DATA;
    f.flags = data ? (uint16_t)prng_below(p, 2) : 0;
    f.length = (uint32_t)prng_below(p, (data ? FRAME_LENGTH_MAX : FRAME_CONTROL_MAX) + 1);
    f.weight = prng_unit(p) * 1e300;
    return f;
}

TEST(any_frame_comes_back)
{
    uint8_t room[FRAME_HEADER_LEN + 9];
    struct prng p;

    prng_init(&p, 1);
    for (size_t i = 0; i < 20000; i++) {
        struct frame f = random_frame(&p), back;
        uint8_t *at = room + i % 8;
        const char *what = NULL;
        at[FRAME_HEADER_LEN] = 0x77;
        frame_encode(&f, at);
        assert_int_equal(at[FRAME_HEADER_LEN], 0x77);
        assert_int_equal(frame_decode(&back, at, &what), HEARTH_OK);
        assert_frames_equal(&f, &back);
    }
}

TEST(every_flipped_bit_is_seen)
{
    struct frame f = golden_frame(1), out;

    frame_encode(&f, bytes);
    for (size_t bit = 0; bit < FRAME_HEADER_LEN * 8; bit++) {
        const char *what = NULL;
        memset(&out, 0x55, sizeof out);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(frame_decode(&out, bytes, &what), HEARTH_PROTOCOL);
        assert_non_null(what);
        assert_int_equal(out.kind, 0x55); /* outputs are set only on success */
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Decodes the bytes with their checksum mended: the text of the refusal, or "". */
static const char *refusal(void)
{
    struct frame f;
    const char *what = NULL;

    store_u32(bytes + 92, crc32c(0, bytes, 92));
    if (frame_decode(&f, bytes, &what) == HEARTH_OK)
        return "";
    assert_non_null(what);
    return what;
}

/* "": it is not refused. */
static void assert_refused_for(const char *field)
{
    const char *what = refusal();

    if (*field ? strncmp(what, field, strlen(field)) != 0 : *what)
        fail_msg("refused for '%s', expected '%s'", what, field);
}

TEST(wrong_fields_are_refused_by_name)
{
    struct frame ping = {.kind = FRAME_PING};

    frame_encode(&ping, bytes);
    assert_refused_for("");
    for (unsigned value = 0; value < 256; value++) {
        bytes[2] = (uint8_t)value;
        if (value != FRAME_VERSION)
            assert_refused_for("version");
    }
    bytes[2] = FRAME_VERSION;
    for (unsigned value = 0; value < 256; value++) {
        bytes[3] = (uint8_t)value;
        assert_refused_for(value < FRAME_HELLO || value > FRAME_KIND_MAX ? "kind" : "");
    }
    bytes[3] = FRAME_PING;
    bytes[0] ^= 1;
    assert_refused_for("magic");
    bytes[0] ^= 1;
    for (int at = 90; at < 92; at++) {
        bytes[at] = 1;
        assert_refused_for("reserved");
        bytes[at] = 0;
    }
}

TEST(flags_belong_to_their_kind)
{
    for (uint8_t kind = FRAME_HELLO; kind <= FRAME_KIND_MAX; kind++) {
        struct frame f = {.kind = kind};
        frame_encode(&f, bytes);
        for (unsigned bit = 0; bit < 16; bit++) {
            store_u16(bytes + 88, (uint16_t)(1u << bit));
            bool eager = bit == 0 && (kind == FRAME_DATA || kind == FRAME_MESSAGE);
            bool reference = bit == 1 && (kind == FRAME_DATA || kind == FRAME_PIECE);
            assert_refused_for(eager || reference ? "" : "flags");
        }
    }
}

TEST(lengths_have_a_limit_for_each_kind)
{
    for (uint8_t kind = FRAME_HELLO; kind <= FRAME_KIND_MAX; kind++) {
        struct frame f = {.kind = kind};
        bool bulk = kind == FRAME_DATA || kind == FRAME_MESSAGE || kind == FRAME_PIECE;
        uint32_t max = bulk ? FRAME_LENGTH_MAX : FRAME_CONTROL_MAX;
        frame_encode(&f, bytes);
        store_u32(bytes + 4, max);
        assert_refused_for("");
        store_u32(bytes + 4, max + 1);
        assert_refused_for("length");
        store_u32(bytes + 4, UINT32_MAX);
        assert_refused_for("length");
    }
}

TEST(weights_are_finite_and_not_negative)
{
    enum { GOOD = 5 };
    const double weights[] = {
        0,          1, 0.5, 5e-324, 1.7976931348623157e308, -1, -5e-324, (double)INFINITY, -(double)INFINITY,
        (double)NAN};
    struct frame f = {.kind = FRAME_DATA};

    frame_encode(&f, bytes);
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        store_f64(bytes + 64, weights[i]);
        assert_refused_for(i < GOOD ? "" : "weight");
    }
}
