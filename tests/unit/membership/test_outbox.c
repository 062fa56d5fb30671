/* SPDX-License-Identifier: Apache-2.0 */
/* The outbox: in order, bounded, no leak, a count of what did not fit. */
#include "membership/outbox.h"
#include "people.h"
#include "support/suite.h"

TEST(messages_come_out_in_order)
{
    struct heap heap;
    struct outbox box;
    struct identity to[2] = {person(1).id, person(2).id};
    heap_init(&heap, 0);
    outbox_init(&box, &heap);
    assert_null(outbox_take(&box));
    outbox_put(&box, &to[0], MESSAGE_BEAT, "abc", 3);
    outbox_put(&box, &to[1], MESSAGE_LEAVE, NULL, 0);
    assert_int_equal(box.count, 2);
    for (int i = 0; i < 2; i++) {
        struct outbox_message *message = outbox_take(&box);
        assert_non_null(message);
        assert_true(identity_equal(&message->to, &to[i]));
        assert_int_equal(message->kind, i == 0 ? MESSAGE_BEAT : MESSAGE_LEAVE);
        assert_int_equal(message->len, i == 0 ? 3 : 0);
        assert_memory_equal(message->payload, "abc", message->len);
        heap_free(message);
    }
    assert_null(outbox_take(&box));
    outbox_fini(&box);
    assert_int_equal(heap.blocks, 0);
}

TEST(what_does_not_fit_is_dropped_and_counted)
{
    static uint8_t huge[MESSAGE_PAYLOAD_MAX + 1];
    struct heap heap;
    struct outbox box;
    struct identity to = person(1).id;
    heap_init(&heap, 0);
    outbox_init(&box, &heap);
    outbox_put(&box, &to, MESSAGE_LINKS, huge, sizeof huge);
    assert_int_equal(box.dropped, 1);
    heap.fail_after = 0;
    outbox_put(&box, &to, MESSAGE_BEAT, huge, 1);
    assert_int_equal(box.dropped, 2);
    heap.fail_after = -1;
    for (int i = 0; i < OUTBOX_MAX + 5; i++)
        outbox_put(&box, &to, MESSAGE_BEAT, huge, 1);
    assert_int_equal(box.count, OUTBOX_MAX);
    assert_int_equal(box.dropped, 7);
    outbox_fini(&box);
    assert_int_equal(heap.blocks, 0);
}
