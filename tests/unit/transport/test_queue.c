/* SPDX-License-Identifier: Apache-2.0 */
/* The link's queues: control before data, bounds, eager credit, and frames whose owner goes away. */
#include "fake.h"
#include "support/suite.h"

static int setup(void **state)
{
    world_open(1);
    world_greet();
    return 0;
}

static void send_data(const void *owner, uint32_t len, const void *payload, uint16_t flags)
{
    struct frame frame = {.kind = FRAME_DATA, .flags = flags, .length = len};
    link_send_data(&w->link, &(struct link_data){.frame = frame,
                                                 .payload = payload,
                                                 .owner = (void *)(uintptr_t)owner,
                                                 .cookie = (void *)1,
                                                 .class = LINK_NORMAL});
}

static void come(uint32_t credit)
{
    w->fake.credit = credit;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_CREDIT}, NULL);
    assert_true(link_pump(&w->link));
}

/* ---- order and bounds ---- */

TEST_WITH(control_goes_before_data_that_waits, setup, world_close)
{
    uint8_t bytes[500] = {0};
    w->fake.send_room = FRAME_HEADER_LEN + 100; /* the first is half out */
    for (int i = 0; i < 3; i++)
        send_data(w, sizeof bytes, bytes, 0);
    assert_true(link_pump(&w->link));
    send_control(FRAME_GRANT, 0, NULL);
    send_control(FRAME_ABORT, 3, "why");
    w->fake.send_room = SIZE_MAX;
    assert_true(link_pump(&w->link));
    static const uint8_t kinds[] = {FRAME_DATA, FRAME_GRANT, FRAME_ABORT, FRAME_DATA, FRAME_DATA};
    for (size_t i = 0; i < sizeof kinds; i++) {
        struct frame frame = next_out(0, NULL);
        assert_int_equal(frame.kind, kinds[i]);
        assert_int_equal(frame.link_sequence, i + 1);
    }
    assert_true(out_is_empty(0));
}

TEST_WITH(the_data_queue_is_bounded, setup, world_close)
{
    uint8_t byte = 7;
    w->fake.send_room = 0;
    for (int i = 0; i < LINK_DATA_QUEUE; i++) {
        assert_true(link_room(&w->link, LINK_NORMAL));
        send_data(w, 1, &byte, 0);
    }
    assert_false(link_room(&w->link, LINK_NORMAL));
    w->fake.send_room = FRAME_HEADER_LEN;
    assert_true(link_pump(&w->link));
    assert_true(link_room(&w->link, LINK_NORMAL)); /* the one on its way is not in the queue */
    assert_string_equal(w->upper.log, "");
    w->fake.send_room = 1 + FRAME_HEADER_LEN + 1;
    assert_true(link_pump(&w->link));
    assert_string_equal(w->upper.log, "sent:1 sent:1 room:13"); /* once, after the last */
    assert_int_equal(w->upper.heap.calls, 0);
}

TEST_WITH(a_peer_that_lets_control_pile_up_is_lost, setup, world_close)
{
    w->fake.send_room = 0;
    for (int i = 0; i < LINK_CONTROL_QUEUE; i++)
        send_control(FRAME_ABORT, 8, "01234567");
    assert_int_equal(w->link.failure.status, HEARTH_OK);
    assert_int_equal(w->upper.heap.blocks, LINK_CONTROL_QUEUE + 1); /* the queue itself is one */
    uint64_t calls = w->upper.heap.calls;
    send_control(FRAME_ABORT, 8, "01234567");
    assert_int_equal(w->upper.heap.calls, calls); /* refused before memory is taken */
    assert_true(link_pump(&w->link));
    assert_int_equal(w->upper.down_count, 1);
    assert_int_equal(w->upper.down.status, HEARTH_PEER_LOST);
    assert_int_equal(w->upper.heap.blocks, 0);
}

/* For the queue or for the payload. */
TEST(no_memory_for_a_control_frame_ends_the_link)
{
    for (int64_t after = 0; after < 2; after++) {
        setup(NULL);
        atomic_store(&w->upper.heap.fail_after, after);
        send_control(FRAME_ABORT, 1, "x");
        assert_int_equal(w->upper.down_count, 0);
        assert_true(link_pump(&w->link));
        assert_int_equal(w->upper.down_count, 1);
        assert_int_equal(w->upper.down.status, HEARTH_NO_MEMORY);
        assert_true(out_is_empty(0));
        world_close(NULL);
    }
}

/* In a steady state the queue has the room that it once needed. */
TEST_WITH(control_frames_without_payload_need_memory_once, setup, world_close)
{
    w->fake.send_room = 0;
    for (int i = 0; i < 100; i++)
        send_control(FRAME_PONG, 0, NULL);
    w->fake.send_room = SIZE_MAX;
    link_pump(&w->link);
    uint64_t calls = w->upper.heap.calls;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 100; i++)
            send_control(FRAME_PONG, 0, NULL);
        link_pump(&w->link);
    }
    assert_int_equal(w->upper.heap.calls, calls);
    for (uint64_t i = 1; i <= 51 * 100; i++)
        assert_int_equal(next_out(0, NULL).link_sequence, i);
}

static void grant(uint64_t tag, uint32_t limit)
{
    link_send_control(&w->link, &(struct frame){.kind = FRAME_GRANT, .tag = tag, .step = limit}, NULL);
}

TEST_WITH(a_grant_overtakes_the_one_before, setup, world_close)
{
    w->fake.send_room = 10; /* the first is on its way when the others come */
    grant(1, 5);
    link_pump(&w->link);
    grant(1, 6);
    grant(2, 5);
    grant(1, 7);
    send_control(FRAME_ABORT, 0, NULL);
    grant(2, 9);
    w->fake.send_room = SIZE_MAX;
    link_pump(&w->link);
    static const struct frame expected[] = {{.kind = FRAME_GRANT, .tag = 1, .step = 5},
                                            {.kind = FRAME_GRANT, .tag = 1, .step = 7},
                                            {.kind = FRAME_GRANT, .tag = 2, .step = 9},
                                            {.kind = FRAME_ABORT}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct frame frame = next_out(0, NULL);
        assert_int_equal(frame.kind, expected[i].kind);
        assert_int_equal(frame.tag, expected[i].tag);
        assert_int_equal(frame.step, expected[i].step);
    }
    assert_true(out_is_empty(0));
}

TEST_WITH(control_payloads_are_copied, setup, world_close)
{
    char text[] = "first";
    w->fake.send_room = 0;
    send_control(FRAME_ABORT, 5, text);
    memcpy(text, "other", 5);
    w->fake.send_room = SIZE_MAX;
    link_pump(&w->link);
    const uint8_t *payload;
    next_out(0, &payload);
    assert_memory_equal(payload, "first", 5);
    assert_int_equal(w->upper.heap.blocks, 1); /* the queue */
}

/* ---- eager credit ---- */

TEST_WITH(eager_frames_cost_their_length_and_more, setup, world_close)
{
    static uint8_t bytes[BUDGET];
    assert_int_equal(link_eager_cost(0), LINK_EAGER_COST);
    assert_int_equal(link_eager_cost(1000), 1000 + LINK_EAGER_COST);
    assert_true(link_eager_fits(&w->link, BUDGET - LINK_EAGER_COST));
    assert_false(link_eager_fits(&w->link, BUDGET - LINK_EAGER_COST + 1));
    assert_false(link_eager_fits(&w->link, BUDGET));
    assert_false(link_eager_fits(&w->link, SIZE_MAX)); /* and the cost does not wrap */
    assert_false(link_eager_fits(&w->link, (size_t)UINT32_MAX + 1));
    send_data(w, 1000, bytes, FRAME_EAGER);
    send_data(w, 1000, bytes, 0); /* granted: costs nothing */
    uint32_t left = BUDGET - 1000 - LINK_EAGER_COST;
    assert_true(link_eager_fits(&w->link, left - LINK_EAGER_COST));
    assert_false(link_eager_fits(&w->link, left - LINK_EAGER_COST + 1));
}

TEST_WITH(returned_credit_may_be_spent_again, setup, world_close)
{
    static uint8_t bytes[BUDGET];
    uint32_t returned = 0;
    /* Near the end of the counter's range, and over it. */
    w->link.eager_spent = w->link.eager_returned = returned = UINT32_MAX - 100000;
    for (int i = 0; i < 10; i++) {
        assert_true(link_eager_fits(&w->link, BUDGET - LINK_EAGER_COST));
        send_data(w, BUDGET - LINK_EAGER_COST, bytes, FRAME_EAGER);
        link_pump(&w->link);
        assert_false(link_eager_fits(&w->link, 0));
        upper_clear(&w->upper);
        returned += BUDGET / 2;
        come(returned);
        assert_string_equal(w->upper.log, "room:0 credit:0"); /* whoever waits for credit hears of it */
        assert_true(link_eager_fits(&w->link, BUDGET / 2 - LINK_EAGER_COST));
        assert_false(link_eager_fits(&w->link, BUDGET / 2));
        returned += BUDGET / 2;
        come(returned);
    }
}

TEST_WITH(released_credit_is_told_when_an_eighth_is_untold, setup, world_close)
{
    size_t len = BUDGET / 8 / 4 - LINK_EAGER_COST; /* a quarter of an eighth each */
    for (int i = 0; i < 3; i++) {
        link_eager_release(&w->link, len);
        assert_false(link_pump(&w->link));
        assert_true(out_is_empty(0));
    }
    link_eager_release(&w->link, len);
    assert_true(link_pump(&w->link));
    struct frame frame = next_out(0, NULL);
    assert_int_equal(frame.kind, FRAME_CREDIT);
    assert_int_equal(frame.credit, BUDGET / 8);
    assert_int_equal(frame.length, 0);
    assert_false(link_pump(&w->link)); /* told once */
    assert_true(out_is_empty(0));
    assert_string_equal(w->upper.log, "");
}

TEST_WITH(every_frame_tells_the_credit, setup, world_close)
{
    link_eager_release(&w->link, 10);
    send_control(FRAME_GRANT, 0, NULL);
    link_pump(&w->link);
    assert_int_equal(next_out(0, NULL).credit, 10 + LINK_EAGER_COST);
    link_eager_release(&w->link, BUDGET - 2 * LINK_EAGER_COST - 10);
    send_data(w, 0, NULL, 0);
    link_pump(&w->link); /* no frame of its own beside one that goes anyway */
    struct frame frame = next_out(0, NULL);
    assert_int_equal(frame.kind, FRAME_DATA);
    assert_int_equal(frame.credit, BUDGET);
    assert_true(out_is_empty(0));
}

TEST_WITH(credit_waits_for_a_frame_that_is_half_out, setup, world_close)
{
    uint8_t bytes[100] = {0};
    w->fake.send_room = 50;
    send_data(w, sizeof bytes, bytes, 0);
    link_pump(&w->link);
    link_eager_release(&w->link, BUDGET / 2);
    assert_false(link_pump(&w->link));
    w->fake.send_room = SIZE_MAX;
    pump();
    assert_int_equal(next_out(0, NULL).credit, 0);
    struct frame frame = next_out(0, NULL);
    assert_int_equal(frame.kind, FRAME_CREDIT);
    assert_int_equal(frame.credit, BUDGET / 2 + LINK_EAGER_COST);
}

/* ---- owners that go ---- */

TEST_WITH(forgotten_frames_never_leave_and_their_credit_comes_back, setup, world_close)
{
    uint8_t bytes[100] = {0};
    int a = 0, b = 0;
    w->fake.send_room = 0;
    for (uint8_t i = 0; i < 10; i++) {
        bytes[i] = i;
        send_data(i % 3 == 0 ? &a : &b, 1, &bytes[i], FRAME_EAGER);
    }
    link_forget(&w->link, &a);
    assert_int_equal(w->link.queues[LINK_NORMAL].count, 6);
    assert_int_equal(w->link.eager_spent, 6 * link_eager_cost(1));
    w->fake.send_room = SIZE_MAX;
    link_pump(&w->link);
    const uint8_t *payload;
    static const uint8_t kept[] = {1, 2, 4, 5, 7, 8};
    for (size_t i = 0; i < sizeof kept; i++) {
        assert_int_equal(next_out(0, &payload).link_sequence, i + 1);
        assert_int_equal(*payload, kept[i]);
    }
    assert_true(out_is_empty(0));
    assert_string_equal(w->upper.log, "sent:1 sent:1 sent:1 sent:1 sent:1 sent:1 room:0");
}

/* The peer gets a whole frame, as it was, whatever the owner does with its memory; also one that is short
 * enough to be sent in one piece with its header. */
TEST(a_frame_half_sent_is_finished_as_it_was)
{
    static const uint32_t lens[] = {64, LINK_INLINE_MAX, LINK_INLINE_MAX + 1, LONG};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint32_t len = lens[i];
        for (size_t cut = 1; cut < FRAME_HEADER_LEN + len; cut += 5) {
            setup(NULL);
            uint8_t bytes[LONG], same[LONG];
            memset(bytes, 0x33, sizeof bytes);
            memset(same, 0x33, sizeof same);
            int owner = 0, other = 0;
            w->fake.send_room = cut;
            send_data(&owner, len, bytes, FRAME_EAGER);
            send_data(&owner, len, bytes, FRAME_EAGER);
            send_data(&other, 0, NULL, 0);
            assert_true(link_pump(&w->link));
            link_forget(&w->link, &owner);
            memset(bytes, 0x44, sizeof bytes);
            assert_int_equal(w->link.eager_spent, link_eager_cost(len)); /* the peer will release this one */
            w->fake.send_room = SIZE_MAX;
            assert_true(link_pump(&w->link));
            const uint8_t *payload;
            assert_int_equal(next_out(0, &payload).length, len);
            assert_memory_equal(payload, same, len);
            assert_int_equal(next_out(0, NULL).length, 0);
            assert_true(out_is_empty(0));
            assert_string_equal(w->upper.log, "sent:1 room:0"); /* the other's */
            assert_int_equal(w->upper.heap.blocks, 0);
            world_close(NULL);
        }
    }
}

TEST_WITH(a_half_sent_frame_without_bytes_needs_no_copy, setup, world_close)
{
    int owner = 0;
    w->fake.send_room = 40;
    send_data(&owner, 0, NULL, 0);
    link_pump(&w->link);
    atomic_store(&w->upper.heap.fail_after, 0);
    link_forget(&w->link, &owner);
    w->fake.send_room = SIZE_MAX;
    link_pump(&w->link);
    assert_int_equal(next_out(0, NULL).length, 0);
    assert_int_equal(w->upper.down_count, 0);
}

TEST_WITH(without_memory_for_the_copy_the_link_ends, setup, world_close)
{
    uint8_t bytes[LINK_INLINE_MAX + 1] = {0};
    int owner = 0;
    w->fake.send_room = FRAME_HEADER_LEN + 5;
    send_data(&owner, sizeof bytes, bytes, 0);
    link_pump(&w->link);
    atomic_store(&w->upper.heap.fail_after, 0);
    link_forget(&w->link, &owner);
    w->fake.send_room = SIZE_MAX;
    assert_true(link_pump(&w->link));
    assert_int_equal(w->upper.down_count, 1);
    assert_int_equal(w->upper.down.status, HEARTH_NO_MEMORY);
    assert_int_equal(w->fake.out.len, FRAME_HEADER_LEN + 5);
}

TEST_WITH(a_link_that_ends_forgets_the_copy, setup, world_close)
{
    uint8_t bytes[LINK_INLINE_MAX + 1] = {0};
    int owner = 0;
    w->fake.send_room = FRAME_HEADER_LEN + 5;
    send_data(&owner, sizeof bytes, bytes, 0);
    link_pump(&w->link);
    link_forget(&w->link, &owner);
    assert_int_equal(w->upper.heap.blocks, 1);
    w->fake.recv_gone = true;
    assert_true(link_pump(&w->link));
    assert_int_equal(w->upper.heap.blocks, 0);
    link_forget(&w->link, &owner); /* harmless */
}
