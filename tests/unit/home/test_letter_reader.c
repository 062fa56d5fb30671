/* SPDX-License-Identifier: Apache-2.0 */
/* Letters as bytes: whatever pieces they come in, whatever is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/prng.h"
#include "home/letter_queue.h"
#include "home/letter_reader.h"

static struct heap heap;

static int begin(void **state)
{
    (void)state;
    heap_init(&heap, 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return heap.blocks == 0 ? 0 : -1;
}

/* Moves bytes from the queue to the reader in random pieces, and counts good letters. */
static int pass(struct letter_queue *q, struct letter_reader *r, struct prng *prng, size_t *lens)
{
    int letters = 0;

    for (;;) {
        uint8_t *target;
        const char *what;
        size_t wants = letter_reader_wants(r, &target);
        assert_true(wants > 0);
        struct iovec front = letter_queue_front(q, 1 + prng_below(prng, 20000));
        size_t len = front.iov_len < wants ? front.iov_len : wants;
        if (len == 0)
            return letters;
        memcpy(target, front.iov_base, len);
        letter_queue_sent(q, len);
        int status = letter_reader_got(r, len, &what);
        if (status == HEARTH_PENDING)
            continue;
        assert_int_equal(status, HEARTH_OK);
        assert_int_equal(r->header.kind, 2 + letters % 10);
        assert_int_equal(r->header.len, lens[letters]);
        for (size_t i = 0; i < r->header.len; i += 997)
            assert_int_equal(r->payload[i], letters & 255);
        letter_reader_next(r);
        letters++;
    }
}

static void letters_come_out_as_they_went_in(void **state)
{
    static uint8_t payload[LETTER_PAYLOAD_MAX];
    struct letter_queue q = {.bytes = NULL};
    struct letter_reader r;
    struct prng prng;
    size_t lens[200];

    (void)state;
    prng_init(&prng, 3);
    letter_reader_init(&r, &heap);
    for (int round = 0; round < 20; round++) {
        int count = 0;
        for (;;) {
            lens[count] = prng_below(&prng, 3) == 0 ? 65536 - prng_below(&prng, 3) : prng_below(&prng, 2000);
            memset(payload, count, sizeof(payload));
            if (!letter_queue_put(&q, &heap, (uint8_t)(2 + count % 10), payload, lens[count]))
                break;
            if (++count == 200)
                break;
        }
        assert_true(count > 12 && q.len <= LETTER_QUEUE_MAX);
        assert_int_equal(pass(&q, &r, &prng, lens), count);
    }
    assert_false(letter_queue_put(&q, &heap, 2, payload, LETTER_PAYLOAD_MAX + 1));
    letter_queue_fini(&q);
    letter_reader_fini(&r);
}

static void without_memory_letters_are_refused(void **state)
{
    struct letter_queue q = {.bytes = NULL};
    struct letter_reader r;
    const char *what = NULL;
    uint8_t *target;

    (void)state;
    letter_reader_init(&r, &heap);
    heap.fail_after = 0;
    assert_false(letter_queue_put(&q, &heap, 2, "x", 1));
    assert_int_equal(letter_reader_wants(&r, &target), LETTER_HEADER_LEN);
    letter_header_put(target, 2, 100);
    assert_int_equal(letter_reader_got(&r, LETTER_HEADER_LEN, &what), HEARTH_NO_MEMORY);
    assert_non_null(what);
    heap.fail_after = -1;
    letter_reader_fini(&r);
}

static struct letter_hello good_hello(void)
{
    struct letter_hello hello = {.version_min = 1, .version_max = 3, .purpose = 1, .serial = 0xfffffffe};

    hello.fellow.id.instance = 9;
    hello.fellow.id.node.bytes[7] = 1;
    snprintf(hello.fellow.name, sizeof(hello.fellow.name), "a name");
    return hello;
}

static void a_hello_is_what_it_was(void **state)
{
    struct letter_hello hello = good_hello(), again;
    uint8_t bytes[LETTER_HELLO_MAX];
    const char *what;
    size_t len = letter_hello_encode(&hello, bytes);

    (void)state;
    assert_int_equal(letter_hello_decode(&again, bytes, len, &what), HEARTH_OK);
    assert_int_equal(again.serial, hello.serial);
    assert_int_equal(again.version_max, 3);
    assert_true(identity_equal(&again.fellow.id, &hello.fellow.id));
    assert_string_equal(again.fellow.name, "a name");
    for (size_t cut = 0; cut < len; cut++) {
        what = NULL;
        assert_int_equal(letter_hello_decode(&again, bytes, cut, &what), HEARTH_PROTOCOL);
        assert_non_null(what);
    }
    assert_int_equal(letter_hello_decode(&again, bytes, len + 1, &what), HEARTH_PROTOCOL);
}

static void assert_hello_refused(size_t at, uint8_t value, const char *why)
{
    struct letter_hello hello = good_hello();
    uint8_t bytes[LETTER_HELLO_MAX];
    size_t len = letter_hello_encode(&hello, bytes);
    const char *what = "";

    bytes[at] = value;
    assert_int_equal(letter_hello_decode(&hello, bytes, len, &what), HEARTH_PROTOCOL);
    assert_string_equal(what, why);
}

static void hellos_that_may_not_be(void **state)
{
    (void)state;
    assert_hello_refused(0, 0, "its hello is malformed");
    assert_hello_refused(0, 4, "its hello is malformed");
    assert_hello_refused(0, 2, "it speaks only newer versions of letters: update this node");
    assert_hello_refused(4, 0, "its hello has an unknown purpose");
    assert_hello_refused(4, 3, "its hello has an unknown purpose");
    assert_hello_refused(5, 1, "its hello is malformed");
    assert_hello_refused(7, 1, "its hello is malformed");
    assert_hello_refused(12, 0, "its hello does not describe a node");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(letters_come_out_as_they_went_in),
        TEST(without_memory_letters_are_refused),
        TEST(a_hello_is_what_it_was),
        TEST(hellos_that_may_not_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
