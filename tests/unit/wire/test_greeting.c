/* SPDX-License-Identifier: Apache-2.0 */
/* Greetings: golden bytes decode for ever, every damaged bit is noticed, wrong fields are refused. */
#include "core/bytes.h"
#include "support/golden.h"
#include "support/suite.h"
#include "wire/greeting.h"

static uint8_t bytes[GREETING_LEN];

static const struct greeting greetings[] = {
    {GREETING_GREET, 0, 0, 0, 3, 1, 0xc1, 0x33, 0x11, 150000},
    {GREETING_WELCOME, 0, 0, 2, 1, 3, 0xc1, 0x11, 0x33, 150000},
    {GREETING_REFUSE, GREETING_TAKEN, 1, 2, 1, 3, 0xc1, 0x11, 0x33, 0},
    {GREETING_CONFIRM, 0, 8, 9, 0, INT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
};

/* By their bytes: that these hold every field, the golden ones show. */
static void assert_greetings_equal(const struct greeting *a, const struct greeting *b)
{
    uint8_t one[GREETING_LEN], other[GREETING_LEN];

    greeting_encode(a, one);
    greeting_encode(b, other);
    assert_memory_equal(one, other, GREETING_LEN);
}

TEST(golden_greetings_decode_and_encode_for_ever)
{
    struct golden items[GOLDEN_MAX];
    size_t count = golden_read("greeting_v2.hex", items);

    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        struct greeting g;
        const char *what = NULL;
        assert_int_equal(items[i].len, GREETING_LEN);
        assert_int_equal(greeting_decode(&g, items[i].bytes, &what), HEARTH_OK);
        assert_greetings_equal(&g, &greetings[i]);
        greeting_encode(&g, bytes);
        assert_memory_equal(bytes, items[i].bytes, GREETING_LEN);
    }
}

TEST(every_damaged_bit_is_noticed)
{
    struct greeting g = greetings[1];

    greeting_encode(&greetings[0], bytes);
    for (size_t bit = 0; bit < GREETING_LEN * 8; bit++) {
        const char *what = NULL;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(greeting_decode(&g, bytes, &what), HEARTH_PROTOCOL);
        assert_non_null(what);
        assert_greetings_equal(&g, &greetings[1]);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* One byte of a good greeting is another, and the checksum fits. */
TEST(wrong_fields_are_refused)
{
    static const struct {
        size_t of, at;
        uint8_t value;
        const char *what;
    } bad[] = {
        {0, 12, 1, "channel"}, {1, 12, 2, "channel"}, {0, 13, 10, "channel"}, {1, 13, 0, "channels"},
        {0, 14, 1, "reason"},  {2, 14, 0, "reason"},  {2, 14, 4, "reason"},   {0, 15, 1, "reserved"},
        {0, 16, 0, "cluster"}, {0, 40, 1, "rank"},    {0, 43, 0x80, "rank"},  {0, 47, 0x80, "rank"},
        {0, 3, 0, "kind"},     {0, 3, 79, "kind"},    {0, 3, 84, "kind"},     {3, 3, 80, NULL},
        {1, 3, 83, NULL},      {0, 3, 81, NULL},      {0, 3, 83, "channels"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct greeting g;
        const char *what = "";
        greeting_encode(&greetings[bad[i].of], bytes);
        bytes[bad[i].at] = bad[i].value;
        message_seal(bytes[3], bytes + MESSAGE_HEADER_LEN, GREETING_PAYLOAD_LEN, NULL, 0, bytes);
        int status = greeting_decode(&g, bytes, &what);
        assert_int_equal(status, bad[i].what ? HEARTH_PROTOCOL : HEARTH_OK);
        if (bad[i].what)
            assert_memory_equal(what, bad[i].what, strlen(bad[i].what));
    }
}

TEST(only_the_lower_rank_confirms)
{
    struct greeting g = greetings[3], back;
    const char *what = "";

    greeting_encode(&g, bytes);
    store_u32(bytes + 40, 5);
    store_u32(bytes + 44, 4);
    message_seal(bytes[3], bytes + MESSAGE_HEADER_LEN, GREETING_PAYLOAD_LEN, NULL, 0, bytes);
    assert_int_equal(greeting_decode(&back, bytes, &what), HEARTH_PROTOCOL);
    assert_memory_equal(what, "rank", 4);
}

TEST(reasons_have_words)
{
    for (int i = 0; i < 256; i++) {
        bool known = i >= 1 && i <= GREETING_REASON_MAX;
        assert_int_equal(strcmp(greeting_reason_text((uint8_t)i), "?") != 0, known);
    }
}
