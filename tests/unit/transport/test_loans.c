/* SPDX-License-Identifier: Apache-2.0 */
/* The link over shared memory: payloads that are lent, and payloads that travel as references. */
#include "core/bytes.h"
#include "fake.h"
#include "support/suite.h"

#define LARGE 2000u /* bytes; long enough to be lent */

static uint8_t ours[80 * LARGE];   /* memory that the peer can see */
static uint8_t theirs[20 * LARGE]; /* the peer's, that we can see */

static int setup(void **state)
{
    for (size_t i = 0; i < sizeof ours; i++)
        ours[i] = (uint8_t)(i / LARGE);
    for (size_t i = 0; i < sizeof theirs; i++)
        theirs[i] = (uint8_t)(i % 251);
    world_open(1);
    fake_share(&w->fake, ours, sizeof ours);
    w->fake.theirs = theirs;
    w->fake.theirs_len = sizeof theirs;
    w->upper.lend = true;
    world_greet();
    return 0;
}

static void come_data(uint32_t len)
{
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = len}, theirs);
}

static void send_ours(uint32_t number, uint32_t len, const void *owner)
{
    struct frame frame = {.kind = FRAME_DATA, .lane = number, .length = len};
    link_send_data(&w->link, &(struct link_data){.frame = frame,
                                                 .payload = ours + (size_t)number * LARGE,
                                                 .owner = (void *)(uintptr_t)owner,
                                                 .cookie = (void *)(uintptr_t)number,
                                                 .class = LINK_NORMAL});
}

/* ---- lent out of the stream ---- */

TEST_WITH(payloads_are_lent_where_they_stand, setup, world_close)
{
    for (int i = 0; i < 3; i++)
        come_data(LARGE);
    pump();
    assert_string_equal(w->upper.log, "data:2000 loan:2000 data:2000 loan:2000 data:2000 loan:2000");
    assert_int_equal(w->upper.target[0], 0); /* nothing was copied */
    static const int order[] = {1, 2, 0};
    for (int i = 0; i < 3; i++) {
        struct loan *loan = &w->upper.loans[order[i]];
        assert_memory_equal(loan->data, theirs, LARGE);
        loan_end(loan);
        assert_null(loan->data);
        loan_end(loan); /* once is enough, twice is harmless */
    }
    assert_false(fake_lends(&w->fake));
}

TEST_WITH(short_payloads_and_those_that_nobody_lends_are_copied, setup, world_close)
{
    come_data(1023);
    pump();
    w->fake.lend_max = LARGE - 1;
    come_data(LARGE);
    pump();
    w->fake.lend_max = LARGE;
    come_data(LARGE);
    pump();
    assert_string_equal(w->upper.log, "data:1023 payload:1023 data:2000 payload:2000 data:2000 loan:2000");
    assert_memory_equal(w->upper.target, theirs, LARGE);
}

TEST_WITH(loans_that_hold_up_the_stream_are_asked_back, setup, world_close)
{
    come_data(LARGE);
    pump();
    assert_int_equal(w->upper.held_up_count, 0);
    w->fake.held_up = true;
    come_data(LARGE);
    pump();
    assert_true(w->upper.held_up_count > 0);
    int before = w->upper.held_up_count;
    pump(); /* nothing came: nothing to ask again */
    assert_int_equal(w->upper.held_up_count, before);
}

TEST_WITH(a_loan_waits_for_the_whole_payload, setup, world_close)
{
    come_data(LARGE);
    come_data(3);
    size_t whole = w->fake.in.len;
    w->fake.in.len -= 500 + FRAME_HEADER_LEN + 3;
    pump();
    assert_string_equal(w->upper.log, "data:2000");
    w->fake.in.len = whole;
    pump();
    assert_string_equal(w->upper.log,
                        "data:2000 loan:2000 data:3 payload:3"); /* the stream goes on behind it */
}

TEST_WITH(what_was_to_be_lent_can_be_dropped, setup, world_close)
{
    come_data(LARGE);
    come_data(3);
    size_t whole = w->fake.in.len;
    w->fake.in.len -= 500 + FRAME_HEADER_LEN + 3;
    pump();
    link_drop_incoming(&w->link, w->upper.cookie);
    pump();
    w->fake.in.len = whole;
    pump();
    assert_string_equal(w->upper.log, "data:2000 data:3 payload:3");
    assert_false(fake_lends(&w->fake));
}

TEST_WITH(a_loan_may_end_after_the_link, setup, world_close)
{
    come_data(LARGE);
    fake_refer(&w->fake, LARGE, 5, 0);
    pump();
    assert_int_equal(w->upper.loan_count, 2);
    w->fake.recv_gone = true;
    expect_down(HEARTH_PEER_LOST, "gone");
    assert_int_equal(w->fake.closed, 1);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(w->upper.loans[i].data, theirs, LARGE);
        loan_end(&w->upper.loans[i]);
    }
    assert_false(fake_lends(&w->fake));
}

TEST_WITH(a_link_that_ends_in_the_middle_of_a_loan_lends_nothing, setup, world_close)
{
    come_data(LARGE);
    w->fake.in.len -= 1;
    w->fake.recv_gone = true;
    expect_down(HEARTH_PEER_LOST, "gone");
    assert_string_equal(w->upper.log, "data:2000");
    assert_int_equal(w->upper.loan_count, 0);
}

/* ---- the peer's references ---- */

TEST_WITH(references_of_the_peer_are_lent, setup, world_close)
{
    fake_refer(&w->fake, LARGE, 0, 0);
    fake_refer(&w->fake, LARGE, 63, 10);
    fake_refer(&w->fake, 5, 7, 20); /* of any length */
    pump();
    assert_string_equal(w->upper.log, "data:2000 loan:2000 data:2000 loan:2000 data:5 loan:5");
    assert_ptr_equal(w->upper.loans[0].data, theirs);
    assert_ptr_equal(w->upper.loans[1].data, theirs + 10);
    assert_ptr_equal(w->upper.loans[2].data, theirs + 20);
    assert_int_equal(w->upper.metrics.bytes_received, 4 * FRAME_HEADER_LEN + 3 * REFERENCE_LEN);
    loan_end(&w->upper.loans[1]);
    assert_int_equal(w->fake.looked_up, 1 | 1 << 7);
}

TEST_WITH(a_reference_is_copied_where_a_copy_is_wanted, setup, world_close)
{
    w->upper.lend = false;
    fake_refer(&w->fake, LARGE, 3, 100);
    pump();
    assert_string_equal(w->upper.log, "data:2000 payload:2000");
    assert_memory_equal(w->upper.target, theirs + 100, LARGE);
    assert_false(fake_lends(&w->fake)); /* given back at once */
}

TEST_WITH(a_reference_that_nobody_wants_is_given_back, setup, world_close)
{
    w->upper.drop = true;
    fake_refer(&w->fake, LARGE, 3, 0);
    pump();
    w->upper.drop = false;
    fake_refer(&w->fake, LARGE, 3, 0);
    w->fake.in.len -= 8; /* half of the reference */
    pump();
    link_drop_incoming(&w->link, w->upper.cookie);
    w->fake.in.len += 8;
    pump();
    assert_string_equal(w->upper.log, "data:2000 data:2000");
    assert_false(fake_lends(&w->fake));
    assert_int_equal(w->upper.down_count, 0);
}

TEST_WITH(references_come_in_any_fragments, setup, world_close)
{
    w->fake.recv_max = 1;
    fake_refer(&w->fake, LARGE, 3, 33);
    come_data(LARGE);
    fake_refer(&w->fake, LARGE, 4, 44);
    pump();
    assert_string_equal(w->upper.log, "data:2000 loan:2000 data:2000 loan:2000 data:2000 loan:2000");
    assert_ptr_equal(w->upper.loans[0].data, theirs + 33);
    assert_ptr_equal(w->upper.loans[2].data, theirs + 44);
}

TEST(a_reference_to_nothing_breaks_the_protocol)
{
    static const struct {
        uint32_t len, number;
        uint64_t offset;
        bool lend, drop;
    } cases[] = {
        {LARGE, 64, 0, true, false},           {LARGE, 0, 20 * LARGE, true, false},
        {LARGE, 0, UINT64_MAX, true, false},   {LARGE, 0, 19 * LARGE + 1, true, false},
        {FRAME_LENGTH_MAX, 0, 0, true, false}, {LARGE, 64, 0, false, false},
        {LARGE, 64, 0, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup(NULL);
        w->upper.lend = cases[i].lend;
        w->upper.drop = cases[i].drop;
        fake_refer(&w->fake, cases[i].len, cases[i].number, cases[i].offset);
        expect_down(HEARTH_PROTOCOL, "does not share");
        assert_null(strstr(w->upper.log, "loan"));
        assert_null(strstr(w->upper.log, "payload"));
        world_close(NULL);
    }
}

TEST(a_reference_where_nothing_is_shared_breaks_the_protocol)
{
    world_open(1);
    world_greet();
    fake_refer(&w->fake, LARGE, 0, 0);
    expect_down(HEARTH_PROTOCOL, "no memory is shared");
    assert_string_equal(w->upper.log, "");
    world_close(NULL);
}

/* ---- our references ---- */

TEST_WITH(our_memory_is_the_peers_until_it_has_read_it, setup, world_close)
{
    send_ours(0, LARGE, w);
    send_ours(1, LARGE, w);
    pump();
    for (uint64_t i = 0; i < 2; i++) {
        const uint8_t *reference;
        struct frame frame = next_out(0, &reference);
        assert_true(frame.flags & FRAME_REFERENCE);
        assert_int_equal(frame.length, LARGE);
        assert_int_equal(load_u64(reference), i);
        assert_int_equal(load_u64(reference + 8), i * LARGE);
    }
    assert_null(strstr(w->upper.log, "sent"));
    upper_clear(&w->upper);
    w->fake.back = 2;
    assert_true(link_pump(&w->link));
    assert_string_equal(w->upper.log, "sent:1");
    w->fake.back = 1;
    assert_true(link_pump(&w->link));
    assert_string_equal(w->upper.log, "sent:1 sent:0");
    assert_false(link_pump(&w->link));
}

TEST_WITH(short_payloads_and_other_memory_travel_in_the_stream, setup, world_close)
{
    uint8_t elsewhere[LARGE] = {1};
    send_ours(0, 1023, w);
    link_send_data(&w->link, &(struct link_data){.frame = {.kind = FRAME_DATA, .length = LARGE},
                                                 .payload = elsewhere,
                                                 .owner = w,
                                                 .class = LINK_NORMAL});
    pump();
    assert_int_equal(w->fake.references, 0);
    for (int i = 0; i < 2; i++) {
        const uint8_t *payload;
        struct frame frame = next_out(0, &payload);
        assert_int_equal(frame.flags, 0);
        assert_memory_equal(payload, i == 0 ? ours : elsewhere, frame.length);
    }
    assert_string_equal(w->upper.log, "sent:0 sent:0 room:0");
}

TEST_WITH(without_a_free_number_payloads_travel_in_the_stream, setup, world_close)
{
    const uint8_t *payload;
    for (uint32_t i = 0; i < LINK_REFERENCES; i++) {
        send_ours(i, LARGE, w);
        pump();
        assert_true(next_out(0, NULL).flags & FRAME_REFERENCE);
    }
    upper_clear(&w->upper);
    send_ours(70, LARGE, w);
    pump();
    assert_int_equal(next_out(0, &payload).flags, 0);
    assert_memory_equal(payload, ours + 70 * LARGE, LARGE);
    assert_string_equal(w->upper.log, "sent:70 room:0");
    w->fake.back = UINT64_C(1) << 40; /* one comes back and is used again */
    pump();
    send_ours(71, LARGE, w);
    pump();
    assert_true(next_out(0, &payload).flags & FRAME_REFERENCE);
    assert_int_equal(load_u64(payload), 40);
    upper_clear(&w->upper);
    w->fake.back = UINT64_MAX;
    pump();
    assert_non_null(strstr(w->upper.log, "sent:71"));
    assert_null(strstr(w->upper.log, "sent:40"));
    assert_int_equal(w->fake.references, 0);
}

/* The bit may be there before the link knows that the frame is out. */
TEST_WITH(a_reference_that_is_half_out_is_not_back, setup, world_close)
{
    w->fake.send_room = FRAME_HEADER_LEN + 3;
    send_ours(0, LARGE, w);
    pump();
    assert_string_equal(w->upper.log, "");
    w->fake.send_room = SIZE_MAX;
    pump();
    w->fake.back = 1;
    pump();
    assert_string_equal(w->upper.log, "room:0 sent:0");
}

/* Its number would be free here and taken there: the next payload would be forgotten with it. */
TEST(what_was_not_lent_is_not_given_back)
{
    static const char words[] = "gives back memory that was not lent";
    for (int what = 0; what < 4; what++) {
        setup(NULL);
        if (what > 0)
            send_ours(0, LARGE, w);
        if (what > 1)
            pump();
        if (what == 3) { /* half out */
            w->fake.send_room = FRAME_HEADER_LEN + 3;
            send_ours(1, LARGE, w);
            pump();
        }
        upper_clear(&w->upper);
        w->fake.back = what < 2 ? 1 : what == 2 ? 5 : 2;
        expect_down(HEARTH_PROTOCOL, words);
        assert_null(strstr(w->upper.log, "sent"));
        world_close(NULL);
    }
}

TEST_WITH(forgotten_references_come_back_without_a_word, setup, world_close)
{
    int a = 0, b = 0;
    send_ours(0, LARGE, &a);
    send_ours(1, LARGE, &b);
    pump();
    w->fake.send_room = 20;
    send_ours(2, LARGE, &a); /* half out */
    send_ours(3, LARGE, &a); /* not begun */
    pump();
    upper_clear(&w->upper);
    uint64_t calls = w->upper.heap.calls;
    link_forget(&w->link, &a);
    assert_int_equal(w->upper.heap.calls, calls); /* no copy: the peer reads our memory or nothing */
    w->fake.send_room = SIZE_MAX;
    pump();
    w->fake.back = w->fake.references;
    pump();
    assert_string_equal(w->upper.log, "room:0 sent:1");
    assert_int_equal(w->fake.references, 0);
}

TEST_WITH(a_link_that_ends_says_nothing_of_what_the_peer_has, setup, world_close)
{
    send_ours(0, LARGE, w);
    pump();
    upper_clear(&w->upper);
    w->fake.recv_gone = true;
    expect_down(HEARTH_PEER_LOST, "gone");
    assert_string_equal(w->upper.log, "");
    link_forget(&w->link, w); /* harmless */
}
