/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads of control frames: golden bytes decode for ever, lengths are exact, wrong fields are refused. */
#include "core/bytes.h"
#include "support/golden.h"
#include "support/suite.h"
#include "wire/frame.h"
#include "wire/record.h"

#define HELLO_LEN 24
#define CALL_LEN  40
#define ERROR_MIN 16 /* bytes before the text */
enum { ERROR_AT_REASON = 4, ERROR_AT_ORIGIN = 12 };

static const struct hello_record hellos[] = {
    {1, 1, 0, 3, 8, UINT64_C(0x1234567890abcdef)},
    {2, UINT16_MAX, UINT32_MAX, 0, INT32_MAX, UINT64_MAX},
};

static const struct call_record calls[] = {
    {.state = CALL_UNKNOWN, .root = RANK_NONE},
    {CALL_POSTED, 0, HEARTH_BF16, HEARTH_OP_AVG, HEARTH_ALGO_RING, HEARTH_FLAG_RANK_ORDER, RANK_NONE,
     UINT64_C(1) << 33, 0xab, 0xcd},
    {CALL_ENDED, 10, HEARTH_U64, HEARTH_OP_MAX, HEARTH_ALGO_EXCHANGE, 0, 5, UINT64_MAX, 2, 3},
    {.state = CALL_PASSED, .root = RANK_NONE},
};

static const struct error errors[] = {
    {HEARTH_ABORTED, HEARTH_REASON_CANCELLED, 2, 5, HEARTH_FATE_NONE, "all_reduce: rank 2 cancelled"},
    {HEARTH_CLOSED, HEARTH_REASON_NONE, RANK_NONE, RANK_NONE, HEARTH_FATE_NONE, ""},
};

static uint8_t bytes[FRAME_CONTROL_MAX];
static struct error e, back;

static void assert_errors_equal(const struct error *a, const struct error *b)
{
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->origin, b->origin);
    assert_string_equal(a->text, b->text);
}

/* Decodes one golden item, the `index`-th of its name, and encodes what came out and what should have. */
static void check_golden(const struct golden *item, size_t index)
{
    uint8_t got[FRAME_CONTROL_MAX], expected[FRAME_CONTROL_MAX];
    size_t got_len = 0, len = 0;

    if (strcmp(item->name, "hello") == 0) {
        struct hello_record r;
        assert_int_equal(hello_decode(&r, item->bytes, item->len), HEARTH_OK);
        got_len = hello_encode(&r, got, sizeof got);
        len = hello_encode(&hellos[index], expected, sizeof expected);
    } else if (strcmp(item->name, "call") == 0) {
        struct call_record r;
        assert_int_equal(call_decode(&r, item->bytes, item->len), HEARTH_OK);
        assert_int_equal(r.root, calls[index].root);
        got_len = call_encode(&r, got, sizeof got);
        len = call_encode(&calls[index], expected, sizeof expected);
    } else {
        assert_string_equal(item->name, "error");
        assert_int_equal(error_decode(&e, item->bytes, item->len), HEARTH_OK);
        got_len = error_encode(&e, got, sizeof got);
        len = error_encode(&errors[index], expected, sizeof expected);
    }
    assert_int_equal(len, item->len);
    assert_int_equal(got_len, item->len);
    assert_memory_equal(got, item->bytes, len);
    assert_memory_equal(expected, item->bytes, len);
}

TEST(golden_records_decode_and_encode_for_ever)
{
    struct golden items[GOLDEN_MAX];
    size_t count = golden_read("record_v1.hex", items), index = 0;

    assert_int_equal(count, 8);
    for (size_t i = 0; i < count; i++) {
        index = i > 0 && strcmp(items[i].name, items[i - 1].name) == 0 ? index + 1 : 0;
        check_golden(&items[i], index);
    }
}

/* Encoders write nothing beyond a target that is too small, and say so. */
TEST(targets_that_are_too_small_are_noticed)
{
    for (size_t size = 0; size <= 64; size++) {
        uint8_t *exact = malloc(size ? size : 1); /* on the heap, where sanitizers watch its end */
        assert_non_null(exact);
        assert_int_equal(hello_encode(&hellos[0], exact, size), size < HELLO_LEN ? 0 : HELLO_LEN);
        assert_int_equal(call_encode(&calls[1], exact, size), size < CALL_LEN ? 0 : CALL_LEN);
        assert_int_equal(error_encode(&errors[0], exact, size), size < 44 ? 0 : 44);
        free(exact);
    }
}

/* An exact copy on the heap, decoded as hello and as call: the two statuses. */
static void decode_cut(const uint8_t *source, size_t len, int *hello, int *call)
{
    struct hello_record h;
    struct call_record c;
    uint8_t *exact = malloc(len ? len : 1);

    assert_non_null(exact);
    if (len > 0)
        memcpy(exact, source, len);
    *hello = hello_decode(&h, exact, len);
    *call = call_decode(&c, exact, len);
    free(exact);
}

TEST(lengths_are_checked)
{
    uint8_t hello[64] = {0}, call[64] = {0};
    int status[2], unused;

    hello_encode(&hellos[0], hello, sizeof hello);
    call_encode(&calls[1], call, sizeof call);
    for (size_t len = 0; len <= 64; len++) {
        decode_cut(hello, len, &status[0], &unused);
        decode_cut(call, len, &unused, &status[1]);
        /* A hello may be longer: a later version's is. */
        assert_int_equal(status[0], len >= HELLO_LEN ? HEARTH_OK : HEARTH_PROTOCOL);
        assert_int_equal(status[1], len == CALL_LEN ? HEARTH_OK : HEARTH_PROTOCOL);
    }
}

TEST(wrong_hellos_are_refused)
{
    static const struct hello_record bad[] = {
        {0, 1, 0, 0, 1, 0},          {2, 1, 0, 0, 1, 0},          {1, 1, 0, 0, 0, 0},
        {1, 1, 0, 1, 1, 0},          {1, 1, 0, UINT32_MAX, 1, 0}, {1, 1, 0, 0, (uint32_t)INT32_MAX + 1, 0},
        {1, 1, 0, 0, UINT32_MAX, 0},
    };
    struct hello_record r;

    memcpy(&r, &hellos[0], sizeof r);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(hello_encode(&bad[i], bytes, sizeof bytes), HELLO_LEN);
        assert_int_equal(hello_decode(&r, bytes, HELLO_LEN), HEARTH_PROTOCOL);
        assert_memory_equal(&r, &hellos[0], sizeof r);
    }
}

TEST(wrong_calls_are_refused)
{
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {
        {0, 4}, {0, 255}, {1, CALL_KIND_COUNT}, {2, DTYPE_COUNT}, {3, OP_COUNT}, {4, ALGO_COUNT}, {5, 1},
        {6, 1}, {7, 1},   {12, 0xfe},           {15, 0x80},
    };
    struct call_record r;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(call_encode(&calls[1], bytes, sizeof bytes), CALL_LEN);
        assert_int_equal(call_decode(&r, bytes, CALL_LEN), HEARTH_OK);
        bytes[bad[i].at] = bad[i].value;
        if (bad[i].at == 15)
            bytes[12] = 0;
        assert_int_equal(call_decode(&r, bytes, CALL_LEN), HEARTH_PROTOCOL);
    }
}

/* Where a member knows nothing of the call, it says nothing: no bytes of its memory travel. */
TEST(empty_calls_are_empty)
{
    struct call_record r;

    for (uint8_t call_state = CALL_UNKNOWN; call_state <= CALL_PASSED; call_state += CALL_PASSED) {
        struct call_record full = calls[1];
        full.state = call_state;
        assert_int_equal(call_encode(&full, bytes, sizeof bytes), CALL_LEN);
        for (size_t i = 1; i < CALL_LEN; i++) {
            assert_int_equal(bytes[i], 0);
            bytes[i] = 1;
            assert_int_equal(call_decode(&r, bytes, CALL_LEN), HEARTH_PROTOCOL);
            bytes[i] = 0;
        }
        assert_int_equal(call_decode(&r, bytes, CALL_LEN), HEARTH_OK);
        assert_int_equal(r.root, RANK_NONE);
    }
}

static size_t error_bytes(int status, int32_t rank, const char *text, size_t len)
{
    store_u32(bytes, (uint32_t)status);
    store_u32(bytes + 4, HEARTH_REASON_NONE);
    store_u32(bytes + 8, (uint32_t)rank);
    store_u32(bytes + ERROR_AT_ORIGIN, (uint32_t)RANK_NONE);
    if (len > 0)
        memcpy(bytes + ERROR_MIN, text, len);
    return ERROR_MIN + len;
}

/* What becomes of these bytes. */
static int decoded(int status, int32_t rank, const char *text, size_t len)
{
    return error_decode(&e, bytes, error_bytes(status, rank, text, len));
}

TEST(wrong_errors_are_refused)
{
    char text[ERROR_TEXT_MAX];

    for (int status = -1000; status <= 1000; status++) {
        bool good = hearth_status_scope(status) != HEARTH_SCOPE_NONE;
        assert_int_equal(decoded(status, 0, "x", 1), good ? HEARTH_OK : HEARTH_PROTOCOL);
    }
    for (int bit = 10; bit < 32; bit++) /* far from all of them */
        assert_int_equal(decoded((int)(UINT32_C(1) << bit), 0, "x", 1), HEARTH_PROTOCOL);
    assert_int_equal(decoded(HEARTH_ABORTED, -2, "", 0), HEARTH_PROTOCOL);
    assert_int_equal(decoded(HEARTH_ABORTED, INT32_MIN, "", 0), HEARTH_PROTOCOL);
    assert_int_equal(decoded(HEARTH_ABORTED, INT32_MAX, "", 0), HEARTH_OK);
    memset(text, 'x', sizeof text);
    size_t fits = error_bytes(HEARTH_ABORTED, 1, text, ERROR_TEXT_MAX - 1);
    for (size_t len = 0; len < ERROR_MIN; len++)
        assert_int_equal(error_decode(&e, bytes, len), HEARTH_PROTOCOL);
    assert_int_equal(error_decode(&e, bytes, fits), HEARTH_OK);
    assert_int_equal(strlen(e.text), ERROR_TEXT_MAX - 1);
    assert_int_equal(decoded(HEARTH_ABORTED, 1, text, ERROR_TEXT_MAX), HEARTH_PROTOCOL);
}

TEST(reasons_and_origins_travel_and_wrong_ones_are_refused)
{
    static const int32_t wrong[] = {-2, INT32_MIN, INT32_MIN + 1};

    e = errors[0];
    size_t len = error_encode(&e, bytes, sizeof bytes);
    for (uint32_t reason = 0; reason < 300; reason++) {
        store_u32(bytes + ERROR_AT_REASON, reason);
        assert_int_equal(error_decode(&back, bytes, len),
                         reason < REASON_COUNT ? HEARTH_OK : HEARTH_PROTOCOL);
        assert_true(reason >= REASON_COUNT || back.reason == (enum hearth_reason)reason);
    }
    for (int bit = 8; bit < 32; bit++) {
        store_u32(bytes + ERROR_AT_REASON, UINT32_C(1) << bit);
        assert_int_equal(error_decode(&back, bytes, len), HEARTH_PROTOCOL);
    }
    e.origin = INT32_MAX;
    assert_int_equal(error_encode(&e, bytes, sizeof bytes), len);
    assert_int_equal(error_decode(&back, bytes, len), HEARTH_OK);
    assert_errors_equal(&back, &e);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        store_u32(bytes + ERROR_AT_ORIGIN, (uint32_t)wrong[i]);
        assert_int_equal(error_decode(&back, bytes, len), HEARTH_PROTOCOL);
    }
}

TEST(texts_are_printable_ascii)
{
    for (int c = 0; c < 256; c++) {
        char text[3] = {'a', (char)c, 'b'};
        bool good = c >= 0x20 && c < 0x7f;
        assert_int_equal(decoded(HEARTH_TIMEOUT, 1, text, sizeof text), good ? HEARTH_OK : HEARTH_PROTOCOL);
    }
    error_set(&e, HEARTH_TIMEOUT, 1, "a\x1b[31m\xc3\xa9\n");
    size_t len = error_encode(&e, bytes, sizeof bytes);
    assert_int_equal(error_decode(&back, bytes, len), HEARTH_OK);
    assert_string_equal(back.text, "a?[31m???");
}

TEST(the_longest_error_fits_a_control_frame)
{
    char text[1000];

    memset(text, 'x', sizeof text);
    error_set(&e, HEARTH_MISMATCH, 7, "%.*s", (int)sizeof text, text);
    size_t len = error_encode(&e, bytes, sizeof bytes);
    assert_int_equal(len, ERROR_MIN + ERROR_TEXT_MAX - 1);
    assert_int_equal(error_decode(&back, bytes, len), HEARTH_OK);
    assert_errors_equal(&e, &back);
}
