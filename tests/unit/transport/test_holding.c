/* SPDX-License-Identifier: Apache-2.0 */
/* The link over connections that hold bytes back: encrypted, or kept until the peer has them. */
#include "fake.h"
#include "support/suite.h"

static int setup(void **state)
{
    world_open(1);
    fake_hold(&w->fake);
    send_control(FRAME_HELLO, 0, NULL);
    world_greet();
    return 0;
}

static void send_data(void)
{
    static const uint8_t bytes[1000];
    link_send_data(&w->link, &(struct link_data){.frame = {.kind = FRAME_DATA, .length = sizeof bytes},
                                                 .payload = bytes,
                                                 .owner = w,
                                                 .class = LINK_NORMAL});
}

static bool wants_room(void)
{
    struct sock_wait wait;
    assert_int_equal(link_waits(&w->link, &wait, 1), 1);
    assert_int_equal(link_stuck(&w->link), wait.want_send);
    return wait.want_send;
}

static size_t count_of(const char *log, const char *word)
{
    size_t count = 0;
    for (const char *at = log; (at = strstr(at, word)); at++)
        count++;
    return count;
}

/* An operation that ended may be the last one before the node is closed. */
TEST_WITH(a_frame_that_is_held_has_not_left, setup, world_close)
{
    assert_false(wants_room());
    w->fake.holds = true;
    size_t before = w->fake.out.len;
    send_data();
    send_data();
    assert_true(link_pump(&w->link));
    assert_false(link_pump(&w->link));
    assert_int_equal(w->fake.out.len - before, FRAME_HEADER_LEN + 1000); /* all of the first was taken */
    assert_int_equal(count_of(w->upper.log, "sent"), 0);
    assert_true(wants_room());
    w->fake.holds = false;
    pump();
    assert_int_equal(count_of(w->upper.log, "sent"), 2);
    assert_int_equal(w->fake.out.len - before, 2 * (FRAME_HEADER_LEN + 1000));
    assert_false(wants_room());
}

/* Nobody may have anything to send, and yet something is to be sent. */
TEST_WITH(every_pump_flushes, setup, world_close)
{
    int before = w->fake.flushes;
    w->fake.holds = true;
    link_pump(&w->link);
    assert_true(w->fake.flushes > before);
    assert_true(wants_room());
}

TEST_WITH(an_owner_may_go_while_its_frame_is_held, setup, world_close)
{
    w->fake.holds = true;
    send_data();
    assert_true(link_pump(&w->link));
    link_forget(&w->link, w);
    w->fake.holds = false;
    pump();
    assert_int_equal(count_of(w->upper.log, "sent"), 0);
    assert_int_equal(w->upper.down_count, 0);
}

TEST_WITH(a_flush_that_finds_nobody_ends_the_link_after_what_came, setup, world_close)
{
    fake_frame(&w->fake, (struct frame){.kind = FRAME_PONG}, NULL);
    w->fake.send_gone = true;
    assert_true(link_pump(&w->link));
    assert_string_equal(w->upper.log, "pong:0");
    assert_int_equal(w->upper.down_count, 1);
    assert_int_equal(w->upper.down.status, HEARTH_PEER_LOST);
}

TEST_WITH(it_says_when_it_must_be_pumped, setup, world_close)
{
    assert_true(link_due(&w->link) == NEVER_NS);
    w->fake.due_ns = 12345;
    assert_true(link_due(&w->link) == 12345);
}

TEST_WITH(what_the_peer_did_not_send_is_told_apart, setup, world_close)
{
    fake_frame(&w->fake, (struct frame){.kind = FRAME_PONG}, NULL);
    w->fake.recv_forged = true;
    assert_true(link_pump(&w->link));
    assert_string_equal(w->upper.log, "pong:0");
    assert_int_equal(w->upper.down_count, 1);
    assert_int_equal(w->upper.down.status, HEARTH_PROTOCOL);
    assert_non_null(strstr(w->upper.down.text, "forged or damaged"));
}
