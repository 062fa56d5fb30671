/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: whatever pieces they come in, whatever is wrong with them, however many wait. */
#include "core/prng.h"
#include "support/suite.h"
#include "wire/message.h"

#define LONG_MAX_LEN 65536u
#define QUEUE_MAX    (1u << 20)

enum { FIRST = 7, TINY = 7, NEVER = 8, LONG = 9, LAST = 9 };

static const uint32_t lens[] = {20, 0, LONG_MAX_LEN};
static const struct message_kinds kinds = {FIRST, LAST, lens};
static struct heap heap;
static const char *what;
static int whole; /* messages that read_all found */

static int begin(void **state)
{
    heap_init(&heap, 0);
    return 0;
}

static int end(void **state)
{
    return heap.blocks == 0 ? 0 : -1;
}

/* A whole message with a payload of bytes that count. */
static size_t make(uint8_t *target, uint8_t kind, size_t len)
{
    uint8_t *payload = target + MESSAGE_HEADER_LEN;

    for (size_t i = 0; i < len; i++)
        payload[i] = (uint8_t)(i + 1);
    message_seal(kind, payload, len, NULL, 0, target);
    return MESSAGE_HEADER_LEN + len;
}

/* What becomes of a stream that is read in pieces of that size; whole messages are counted. */
static int read_all(const uint8_t *bytes, size_t len, size_t piece)
{
    struct message_reader r;
    int status = HEARTH_PENDING;

    whole = 0;
    message_reader_init(&r, &heap, &kinds);
    for (size_t at = 0; at < len && (status == HEARTH_PENDING || status == HEARTH_OK); at += piece) {
        struct reader in = reader_of(bytes + at, len - at < piece ? len - at : piece);
        while ((status = message_reader_feed(&r, &in, &what)) == HEARTH_OK) {
            for (size_t i = 0; i < r.header.len; i++)
                assert_int_equal(r.payload[i], (uint8_t)(i + 1));
            message_reader_next(&r);
            whole++;
        }
    }
    message_reader_fini(&r);
    return status;
}

/* Two messages and an empty one, cut at every byte and into pieces of every size. */
TEST_WITH(pieces_of_any_size_make_the_same_messages, begin, end)
{
    uint8_t bytes[256];

    size_t len = make(bytes, TINY, 20);
    len += make(bytes + len, LONG, 90);
    len += make(bytes + len, TINY, 0);
    for (size_t piece = 1; piece <= len; piece++) {
        assert_int_equal(read_all(bytes, len, piece), HEARTH_PENDING);
        assert_int_equal(whole, 3);
    }
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1); /* on the heap, where sanitizers watch its end */
        assert_non_null(exact);
        memcpy(exact, bytes, cut);
        assert_int_equal(read_all(exact, cut, 7), HEARTH_PENDING);
        assert_int_equal(whole, (cut >= 32) + (cut >= 32 + 102));
        free(exact);
    }
}

/* A reader that is asked where bytes belong never wants what is behind the message. */
TEST_WITH(nothing_behind_a_message_is_wanted, begin, end)
{
    struct message_reader r;
    uint8_t bytes[64], *target;

    make(bytes, TINY, 20);
    message_reader_init(&r, &heap, &kinds);
    assert_int_equal(message_reader_wants(&r, &target), MESSAGE_HEADER_LEN);
    memcpy(target, bytes, 5);
    assert_int_equal(message_reader_got(&r, 5, &what), HEARTH_PENDING);
    assert_int_equal(message_reader_wants(&r, &target), MESSAGE_HEADER_LEN - 5);
    memcpy(target, bytes + 5, MESSAGE_HEADER_LEN - 5);
    assert_int_equal(message_reader_got(&r, MESSAGE_HEADER_LEN - 5, &what), HEARTH_PENDING);
    assert_int_equal(message_reader_wants(&r, &target), 20);
    memcpy(target, bytes + MESSAGE_HEADER_LEN, 20);
    assert_int_equal(message_reader_got(&r, 20, &what), HEARTH_OK);
    assert_int_equal(r.header.kind, TINY);
    assert_int_equal(r.header.len, 20);
    message_reader_fini(&r);
}

/* Every changed bit is seen by the header's checks or the checksum, which covers both pieces of a payload. A
 * length that became longer is waited for: what follows does not fit either. */
TEST_WITH(damage_is_seen, begin, end)
{
    uint8_t bytes[128], pieces[MESSAGE_HEADER_LEN];

    size_t len = make(bytes, LONG, 40);
    message_seal(LONG, bytes + MESSAGE_HEADER_LEN, 3, bytes + MESSAGE_HEADER_LEN + 3, 37, pieces);
    assert_memory_equal(pieces, bytes, MESSAGE_HEADER_LEN);
    for (size_t bit = 0; bit < len * 8; bit++) {
        what = NULL;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int status = read_all(bytes, len, 16);
        bool longer = load_u32(bytes + 4) > 40 && load_u32(bytes + 4) <= LONG_MAX_LEN;
        assert_int_equal(status, longer ? HEARTH_PENDING : HEARTH_PROTOCOL);
        assert_true(longer || what);
        assert_int_equal(whole, 0);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void assert_refused(const uint8_t *bytes, size_t len, const char *word)
{
    assert_int_equal(read_all(bytes, len, 1), HEARTH_PROTOCOL);
    assert_int_equal(whole, 0);
    assert_memory_equal(what, word, strlen(word));
    assert_int_equal(heap.blocks, 0);
}

TEST_WITH(what_is_wrong_is_named, begin, end)
{
    uint8_t bytes[64];

    make(bytes, TINY, 20);
    bytes[0] = 'X';
    assert_refused(bytes, MESSAGE_HEADER_LEN, "magic");
    make(bytes, TINY, 20);
    bytes[2] = MESSAGE_VERSION - 1;
    assert_refused(bytes, MESSAGE_HEADER_LEN, "version");
    for (int kind = 0; kind < 256; kind++) {
        make(bytes, (uint8_t)kind, 0);
        if (kind != TINY && kind != LONG)
            assert_refused(bytes, MESSAGE_HEADER_LEN, "kind");
    }
    make(bytes, TINY, 21);
    assert_refused(bytes, MESSAGE_HEADER_LEN, "length");
    make(bytes, LONG, 0);
    store_u32(bytes + 4, LONG_MAX_LEN + 1);
    assert_refused(bytes, MESSAGE_HEADER_LEN, "length");
    store_u32(bytes + 4, UINT32_MAX);
    assert_refused(bytes, MESSAGE_HEADER_LEN, "length");
    make(bytes, TINY, 20);
    bytes[MESSAGE_HEADER_LEN + 19] ^= 0x80;
    assert_refused(bytes, MESSAGE_HEADER_LEN + 20, "crc");
}

/* Memory is taken for a payload whose header has passed, and large pieces of it are given back. */
TEST_WITH(memory_is_bounded, begin, end)
{
    static uint8_t bytes[MESSAGE_HEADER_LEN + LONG_MAX_LEN];
    struct message_reader r;

    message_reader_init(&r, &heap, &kinds);
    struct reader in = reader_of(bytes, make(bytes, LONG, LONG_MAX_LEN));
    heap.fail_after = 0;
    assert_int_equal(message_reader_feed(&r, &in, &what), HEARTH_NO_MEMORY);
    assert_non_null(what);
    heap.fail_after = -1;
    message_reader_next(&r);
    in = reader_of(bytes, sizeof bytes);
    assert_int_equal(message_reader_feed(&r, &in, &what), HEARTH_OK);
    assert_int_equal(heap.blocks, 1);
    message_reader_next(&r);
    assert_int_equal(heap.blocks, 0);

    assert_true(message_reader_reserve(&r, 20));
    heap.fail_after = 0;
    in = reader_of(bytes, make(bytes, TINY, 20));
    assert_int_equal(message_reader_feed(&r, &in, &what), HEARTH_OK);
    heap.fail_after = -1;
    message_reader_fini(&r);
}

/* ---- queue -------------------------------------------------------------------------------------------- */

/* Moves bytes from the queue to the reader in random pieces, and counts good messages. */
static int pass(struct message_queue *q, struct message_reader *r, struct prng *prng, const size_t *expected)
{
    const uint8_t *bytes;
    size_t len;
    int count = 0;

    while ((len = message_queue_front(q, 1 + prng_below(prng, 20000), &bytes)) > 0) {
        struct reader in = reader_of(bytes, len);
        int status = message_reader_feed(r, &in, &what);
        message_queue_sent(q, len - reader_left(&in));
        if (status == HEARTH_PENDING)
            continue;
        assert_int_equal(status, HEARTH_OK);
        assert_int_equal(r->header.len, expected[count]);
        for (size_t i = 0; i < r->header.len; i += 997)
            assert_int_equal(r->payload[i], count & 255);
        message_reader_next(r);
        count++;
    }
    return count;
}

TEST_WITH(messages_come_out_as_they_went_in, begin, end)
{
    static uint8_t payload[LONG_MAX_LEN];
    struct message_queue q;
    struct message_reader r;
    struct prng prng;
    size_t expected[200];

    prng_init(&prng, 3);
    message_reader_init(&r, &heap, &kinds);
    message_queue_init(&q, &heap, QUEUE_MAX);
    for (int round = 0; round < 20; round++) {
        int count = 0;
        for (; count < 200; count++) {
            expected[count] =
                prng_below(&prng, 3) == 0 ? LONG_MAX_LEN - prng_below(&prng, 3) : prng_below(&prng, 2000);
            memset(payload, count, sizeof payload);
            if (!message_queue_put(&q, LONG, payload, expected[count]))
                break;
        }
        assert_true(count > 12 && message_queue_len(&q) <= QUEUE_MAX);
        assert_int_equal(pass(&q, &r, &prng, expected), count);
    }
    message_queue_fini(&q);
    message_reader_fini(&r);
}

TEST_WITH(a_full_queue_takes_nothing_and_loses_nothing, begin, end)
{
    struct message_queue q;
    uint8_t bytes[64];
    const uint8_t *front;

    message_queue_init(&q, &heap, 50);
    size_t len = make(bytes, TINY, 20);
    assert_false(message_queue_put(&q, TINY, bytes, 39));
    assert_false(message_queue_put(&q, TINY, bytes, SIZE_MAX));
    heap.fail_after = 0;
    assert_false(message_queue_put(&q, TINY, bytes + MESSAGE_HEADER_LEN, 20));
    heap.fail_after = -1;
    assert_true(message_queue_put(&q, TINY, bytes + MESSAGE_HEADER_LEN, 20));
    assert_false(message_queue_put(&q, TINY, bytes + MESSAGE_HEADER_LEN, 7));
    assert_int_equal(message_queue_len(&q), len);
    assert_int_equal(message_queue_front(&q, SIZE_MAX, &front), len);
    assert_memory_equal(front, bytes, len);
    message_queue_sent(&q, 1);
    assert_true(message_queue_put(&q, TINY, NULL, 0));
    message_queue_clear(&q);
    assert_int_equal(message_queue_front(&q, SIZE_MAX, &front), 0);
    heap.fail_after = 0; /* what was reserved is still there */
    assert_true(message_queue_put(&q, TINY, bytes, 38));
    heap.fail_after = -1;
    message_queue_fini(&q);
}

/* All that waits, taken in pieces of at most `step` bytes. */
static size_t drain(struct message_queue *q, size_t step, uint8_t *target, size_t size)
{
    const uint8_t *bytes;
    size_t len = 0, piece;

    while ((piece = message_queue_front(q, step, &bytes)) > 0) {
        assert_true(len + piece <= size);
        memcpy(target + len, bytes, piece);
        message_queue_sent(q, piece);
        len += piece;
    }
    assert_int_equal(message_queue_len(q), 0);
    return len;
}

/* A payload that several queues share goes out between what was said before and after it. */
TEST_WITH(a_shared_payload_keeps_its_place, begin, end)
{
    uint8_t shared[5000], bytes[6000];
    struct message_header h;

    memset(shared, 's', sizeof shared);
    for (size_t before = 0; before < 2; before++)
        for (size_t step = 1; step < 6000; step += 997) {
            struct message_queue q;
            size_t at = before * (MESSAGE_HEADER_LEN + 6), len = 4 + sizeof shared;
            message_queue_init(&q, &heap, 200);
            if (before)
                assert_true(message_queue_put(&q, TINY, "before", 6));
            assert_true(message_queue_put_shared(&q, LONG, "head", 4, shared, sizeof shared));
            assert_true(message_queue_put(&q, TINY, "behind", 6));
            size_t all = at + MESSAGE_HEADER_LEN + len + MESSAGE_HEADER_LEN + 6;
            assert_int_equal(message_queue_len(&q), all);
            assert_int_equal(drain(&q, step, bytes, sizeof bytes), all);
            assert_int_equal(message_header_decode(&h, bytes + at, &kinds, &what), HEARTH_OK);
            assert_int_equal(h.len, len);
            assert_true(message_intact(&h, bytes + at + MESSAGE_HEADER_LEN));
            assert_memory_equal(bytes + all - 6, "behind", 6);
            message_queue_fini(&q);
        }
}
