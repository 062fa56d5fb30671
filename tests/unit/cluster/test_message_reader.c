/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as bytes: whatever pieces they come in, whatever is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/message_queue.h"
#include "cluster/message_reader.h"
#include "core/prng.h"

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

/* Moves bytes from the queue to the reader in random pieces, and counts good messages. */
static int pass(struct message_queue *q, struct message_reader *r, struct prng *prng, size_t *lens)
{
    int messages = 0;

    for (;;) {
        uint8_t *target;
        const char *what;
        size_t wants = message_reader_wants(r, &target);
        assert_true(wants > 0);
        struct iovec front = message_queue_front(q, 1 + prng_below(prng, 20000));
        size_t len = front.iov_len < wants ? front.iov_len : wants;
        if (len == 0)
            return messages;
        memcpy(target, front.iov_base, len);
        message_queue_sent(q, len);
        int status = message_reader_got(r, len, &what);
        if (status == HEARTH_PENDING)
            continue;
        assert_int_equal(status, HEARTH_OK);
        assert_int_equal(r->header.kind, 2 + messages % 10);
        assert_int_equal(r->header.len, lens[messages]);
        for (size_t i = 0; i < r->header.len; i += 997)
            assert_int_equal(r->payload[i], messages & 255);
        message_reader_next(r);
        messages++;
    }
}

static void messages_come_out_as_they_went_in(void **state)
{
    static uint8_t payload[MESSAGE_PAYLOAD_MAX];
    struct message_queue q = {.bytes = NULL};
    struct message_reader r;
    struct prng prng;
    size_t lens[200];

    (void)state;
    prng_init(&prng, 3);
    message_reader_init(&r, &heap);
    for (int round = 0; round < 20; round++) {
        int count = 0;
        for (;;) {
            lens[count] = prng_below(&prng, 3) == 0 ? 65536 - prng_below(&prng, 3) : prng_below(&prng, 2000);
            memset(payload, count, sizeof payload);
            if (!message_queue_put(&q, &heap, (uint8_t)(2 + count % 10), payload, lens[count]))
                break;
            if (++count == 200)
                break;
        }
        assert_true(count > 12 && q.len <= MESSAGE_QUEUE_MAX);
        assert_int_equal(pass(&q, &r, &prng, lens), count);
    }
    assert_false(message_queue_put(&q, &heap, 2, payload, MESSAGE_PAYLOAD_MAX + 1));
    message_queue_fini(&q);
    message_reader_fini(&r);
}

static void without_memory_messages_are_refused(void **state)
{
    struct message_queue q = {.bytes = NULL};
    struct message_reader r;
    const char *what = NULL;
    uint8_t *target;

    (void)state;
    message_reader_init(&r, &heap);
    heap.fail_after = 0;
    assert_false(message_queue_put(&q, &heap, 2, "x", 1));
    assert_int_equal(message_reader_wants(&r, &target), MESSAGE_HEADER_LEN);
    message_header_put(target, 2, 100);
    assert_int_equal(message_reader_got(&r, MESSAGE_HEADER_LEN, &what), HEARTH_NO_MEMORY);
    assert_non_null(what);
    heap.fail_after = -1;
    message_reader_fini(&r);
}

static struct message_hello good_hello(void)
{
    struct message_hello hello = {.version_min = 1, .version_max = 3, .purpose = 1, .serial = 0xfffffffe};

    hello.info.id.instance = 9;
    hello.info.id.node.bytes[7] = 1;
    snprintf(hello.info.name, sizeof hello.info.name, "a name");
    return hello;
}

static void a_hello_is_what_it_was(void **state)
{
    struct message_hello hello = good_hello(), again;
    uint8_t bytes[MESSAGE_HELLO_MAX];
    const char *what;
    size_t len = message_hello_encode(&hello, bytes);

    (void)state;
    assert_int_equal(message_hello_decode(&again, bytes, len, &what), HEARTH_OK);
    assert_int_equal(again.serial, hello.serial);
    assert_int_equal(again.version_max, 3);
    assert_true(identity_equal(&again.info.id, &hello.info.id));
    assert_string_equal(again.info.name, "a name");
    for (size_t cut = 0; cut < len; cut++) {
        what = NULL;
        assert_int_equal(message_hello_decode(&again, bytes, cut, &what), HEARTH_PROTOCOL);
        assert_non_null(what);
    }
    assert_int_equal(message_hello_decode(&again, bytes, len + 1, &what), HEARTH_PROTOCOL);
}

static void assert_hello_refused(size_t at, uint8_t value, const char *why)
{
    struct message_hello hello = good_hello();
    uint8_t bytes[MESSAGE_HELLO_MAX];
    size_t len = message_hello_encode(&hello, bytes);
    const char *what = "";

    bytes[at] = value;
    assert_int_equal(message_hello_decode(&hello, bytes, len, &what), HEARTH_PROTOCOL);
    assert_string_equal(what, why);
}

static void hellos_that_may_not_be(void **state)
{
    (void)state;
    assert_hello_refused(0, 0, "its hello is malformed");
    assert_hello_refused(0, 4, "its hello is malformed");
    assert_hello_refused(0, 2, "it speaks only newer versions of messages: update this node");
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
        TEST(messages_come_out_as_they_went_in),
        TEST(without_memory_messages_are_refused),
        TEST(a_hello_is_what_it_was),
        TEST(hellos_that_may_not_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
