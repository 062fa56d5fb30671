/* SPDX-License-Identifier: Apache-2.0 */
/* Greetings: golden bytes decode for ever, every damaged bit is noticed, wrong fields are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "support/golden.h"
#include "wire/greeting.h"

static const struct greeting greetings[] = {
    {GREETING_GREET, 0, 0, 0, 3, 1, 0xc1, 0x33, 0x11, 150000},
    {GREETING_WELCOME, 0, 0, 2, 1, 3, 0xc1, 0x11, 0x33, 150000},
    {GREETING_REFUSE, GREETING_TAKEN, 1, 2, 1, 3, 0xc1, 0x11, 0x33, 0},
    {GREETING_CONFIRM, 0, 8, 9, 0, INT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
};

static void assert_greetings_equal(const struct greeting *a, const struct greeting *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->channel, b->channel);
    assert_int_equal(a->channels, b->channels);
    assert_int_equal(a->from, b->from);
    assert_int_equal(a->to, b->to);
    assert_true(a->cluster == b->cluster);
    assert_true(a->from_instance == b->from_instance);
    assert_true(a->to_instance == b->to_instance);
    assert_true(a->round_trip_ns == b->round_trip_ns);
}

static void golden_greetings_decode_and_encode_for_ever(void **state)
{
    struct golden items[GOLDEN_MAX];
    size_t count = golden_read("greeting_v1.hex", items);

    (void)state;
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[GREETING_LEN];
        struct greeting g;
        const char *what = NULL;
        assert_int_equal(items[i].len, GREETING_LEN);
        assert_int_equal(greeting_decode(&g, items[i].bytes, &what), HEARTH_OK);
        assert_greetings_equal(&g, &greetings[i]);
        greeting_encode(&g, bytes);
        assert_memory_equal(bytes, items[i].bytes, GREETING_LEN);
    }
}

static void every_damaged_bit_is_noticed(void **state)
{
    uint8_t bytes[GREETING_LEN];
    struct greeting g = greetings[1];

    (void)state;
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
static void wrong_fields_are_refused(void **state)
{
    static const struct {
        size_t of, at;
        uint8_t value;
        const char *what;
    } bad[] = {
        {0, 0, 'X', "magic"},   {0, 2, 2, "version"},   {0, 3, 0, "kind"},     {0, 3, 5, "kind"},
        {0, 4, 1, "channel"},   {1, 4, 2, "channel"},   {0, 5, 10, "channel"}, {1, 5, 0, "channels"},
        {0, 6, 1, "reason"},    {2, 6, 0, "reason"},    {2, 6, 4, "reason"},   {0, 7, 1, "reserved"},
        {0, 8, 0, "cluster"},   {0, 32, 1, "rank"},     {0, 35, 0x80, "rank"}, {0, 39, 0x80, "rank"},
        {0, 48, 1, "reserved"}, {0, 59, 1, "reserved"}, {3, 3, 1, NULL},       {1, 3, 4, NULL},
        {0, 3, 2, NULL},        {0, 3, 4, "channels"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t bytes[GREETING_LEN];
        struct greeting g;
        const char *what = "";
        greeting_encode(&greetings[bad[i].of], bytes);
        bytes[bad[i].at] = bad[i].value;
        store_u32(bytes + 60, crc32c(0, bytes, 60));
        int status = greeting_decode(&g, bytes, &what);
        assert_int_equal(status, bad[i].what ? HEARTH_PROTOCOL : HEARTH_OK);
        if (bad[i].what)
            assert_memory_equal(what, bad[i].what, strlen(bad[i].what));
    }
}

static void only_the_lower_rank_confirms(void **state)
{
    struct greeting g = greetings[3], back;
    uint8_t bytes[GREETING_LEN];
    const char *what = "";

    (void)state;
    greeting_encode(&g, bytes);
    store_u32(bytes + 32, 5);
    store_u32(bytes + 36, 4);
    store_u32(bytes + 60, crc32c(0, bytes, 60));
    assert_int_equal(greeting_decode(&back, bytes, &what), HEARTH_PROTOCOL);
    assert_memory_equal(what, "rank", 4);
}

static void reasons_have_words(void **state)
{
    (void)state;
    for (int i = 0; i < 256; i++) {
        bool known = i >= 1 && i <= GREETING_REASON_MAX;
        assert_int_equal(strcmp(greeting_reason_text((uint8_t)i), "?") != 0, known);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_greetings_decode_and_encode_for_ever),
        cmocka_unit_test(every_damaged_bit_is_noticed),
        cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(only_the_lower_rank_confirms),
        cmocka_unit_test(reasons_have_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
