/* SPDX-License-Identifier: Apache-2.0 */
/* A line that is slow on purpose, and a link behind it: when frames may leave, and what overtakes them. */
#include "core/prng.h"
#include "fake.h"
#include "support/suite.h"

#define START (1000 * NS_PER_S)
#define MBIT  UINT64_C(1000000)

/* ---- the line ---- */

TEST(nothing_leaves_before_its_last_bit)
{
    struct throttle t;
    struct throttle_place a = {0}, b = {0};
    throttle_init(&t, 8 * MBIT); /* a byte a microsecond */
    throttle_tick(&t, START);
    assert_true(t.due_ns == NEVER_NS);
    assert_false(throttle_pass(&t, &a, 1000, START));
    assert_true(t.due_ns == START + NS_PER_MS);
    throttle_tick(&t, START + NS_PER_MS - 1);
    throttle_ask_again(&t);
    assert_false(throttle_pass(&t, &a, 1000, START));
    throttle_tick(&t, START + NS_PER_MS);
    throttle_ask_again(&t);
    assert_true(throttle_pass(&t, &a, 1000, START));
    assert_true(t.due_ns == NEVER_NS);
    /* The next one was there already: it begins where the first ended. */
    assert_false(throttle_pass(&t, &a, 500, START));
    /* Another link comes after it, however short its piece is. */
    assert_false(throttle_pass(&t, &b, 10, START));
    assert_true(t.due_ns == START + 1500 * NS_PER_US);
    assert_true(b.due_ns == START + 1510 * NS_PER_US);
    throttle_tick(&t, START + 1510 * NS_PER_US);
    assert_true(throttle_pass(&t, &b, 10, START));
    assert_true(throttle_pass(&t, &a, 500, START));
}

TEST(a_pause_saves_nothing_up)
{
    struct throttle t;
    struct throttle_place a = {0};
    throttle_init(&t, 8 * MBIT);
    throttle_tick(&t, START);
    throttle_push(&t, 1);
    uint64_t later = START + 100 * NS_PER_S;
    throttle_tick(&t, later);
    assert_false(throttle_pass(&t, &a, 10, later));
    assert_true(t.due_ns == later + 10 * NS_PER_US);
}

/* As many bytes leave in a second as the rate says, however late whoever asks wakes up, within reason. */
TEST(lateness_is_made_good)
{
    static const uint64_t rates[] = {64000, 1234567, 100 * MBIT, 2500 * MBIT, 1000000 * MBIT};
    struct prng prng;
    prng_init(&prng, 7);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct throttle t;
        struct throttle_place a = {0};
        uint64_t bytes = 0, now = START, end = START + 60 * NS_PER_S;
        throttle_init(&t, rates[i]);
        size_t len = 1;
        for (int n = 0; n < 200000 && now < end; n++) {
            throttle_tick(&t, now);
            throttle_ask_again(&t);
            while (throttle_pass(&t, &a, len, START)) {
                bytes += len;
                len = 1 + (size_t)prng_below(&prng, 2 * throttle_piece(&t));
            }
            now = t.due_ns + prng_below(&prng, 10 * NS_PER_MS);
        }
        double wanted = (double)(now - START) * 1e-9 * (double)rates[i] / 8;
        assert_true((double)bytes <= wanted);
        double lost = (double)throttle_piece(&t) * 4 + (double)rates[i] / 8 * 11e-3; /* not yet asked for */
        assert_true((double)bytes >= wanted - lost);
    }
}

TEST(who_sleeps_long_does_not_flood)
{
    struct throttle t;
    struct throttle_place a = {0};
    uint64_t bytes = 0;
    throttle_init(&t, 8 * MBIT);
    throttle_tick(&t, START);
    assert_false(throttle_pass(&t, &a, 1000, START));
    throttle_tick(&t, START + 10 * NS_PER_S); /* a laptop */
    while (throttle_pass(&t, &a, 1000, START))
        bytes += 1000;
    assert_true(bytes <= 21000); /* and not 10,000,000 */
}

TEST(what_must_leave_is_paid_by_the_rest)
{
    struct throttle t;
    struct throttle_place a = {0};
    throttle_init(&t, 8 * MBIT);
    throttle_tick(&t, START);
    assert_false(throttle_pass(&t, &a, 1000, START));
    for (int i = 0; i < 10; i++)
        throttle_push(&t, 3000);
    throttle_tick(&t, START + NS_PER_MS);
    throttle_ask_again(&t);
    assert_true(throttle_pass(&t, &a, 1000, START)); /* it had its place */
    assert_false(throttle_pass(&t, &a, 1000, START));
    assert_true(t.due_ns == START + 32 * NS_PER_MS);
}

/* A frame is taken back: its place serves for the next, whatever its length. */
TEST(a_place_is_kept)
{
    struct throttle t;
    struct throttle_place a = {0};
    throttle_init(&t, 8 * MBIT);
    throttle_tick(&t, START);
    assert_false(throttle_pass(&t, &a, 1000, START));
    throttle_tick(&t, START + NS_PER_MS);
    assert_true(throttle_pass(&t, &a, 400, START));
    assert_true(throttle_pass(&t, &a, 600, START));
    assert_false(throttle_pass(&t, &a, 1, START));
    assert_true(a.due_ns == START + NS_PER_MS + NS_PER_US);
    assert_false(throttle_pass(&t, &a, 11, START));
    assert_true(a.due_ns == START + NS_PER_MS + 11 * NS_PER_US);
}

/* ---- a link behind it ---- */

static struct throttle throttle;
static uint8_t bytes[1 << 16];

static void open_throttled(int pipes)
{
    world_open(pipes);
    throttle_init(&throttle, 8 * MBIT);
    w->link.throttle = &throttle;
    link_send_hello(&w->link, "", 0);
    link_pump(&w->link);
    throttle_tick(&throttle, START);
    for (int i = 0; i < pipes; i++) {
        assert_int_equal(next_out(i, NULL).kind, FRAME_HELLO); /* is not held back */
        w->fakes[i].out.len = w->fakes[i].parsed = 0;
    }
}

static int setup(void **state)
{
    open_throttled(1);
    return 0;
}

static int setup_two(void **state)
{
    open_throttled(2);
    return 0;
}

static void pump_at(uint64_t now_ns)
{
    throttle_tick(&throttle, now_ns);
    throttle_ask_again(&throttle);
    link_pump(&w->link);
}

static void send_data(uint32_t len, const char *owner)
{
    struct frame frame = {.kind = FRAME_DATA, .length = len};
    link_send_data(&w->link, &(struct link_data){.frame = frame,
                                                 .payload = bytes,
                                                 .owner = (void *)(uintptr_t)owner,
                                                 .class = LINK_NORMAL});
}

TEST_WITH(control_overtakes_frames_that_wait, setup, world_close)
{
    uint32_t len = 10000 - FRAME_HEADER_LEN;
    send_data(len, "a");
    send_data(len, "b");
    pump_at(START);
    assert_int_equal(w->fakes[0].out.len, 0);
    assert_true(throttle.due_ns == START + 10 * NS_PER_MS);
    assert_false(link_stuck(&w->link)); /* it is not the connection that it waits for */
    send_control(FRAME_PING, 0, NULL);
    pump_at(START);
    assert_int_equal(w->fakes[0].out.len, FRAME_HEADER_LEN);
    pump_at(START + 10 * NS_PER_MS);
    assert_int_equal(w->fakes[0].out.len, FRAME_HEADER_LEN + 10000);
    pump_at(throttle.due_ns - 1);
    assert_int_equal(w->fakes[0].out.len, FRAME_HEADER_LEN + 10000);
    pump_at(throttle.due_ns);
    assert_int_equal(w->fakes[0].out.len, FRAME_HEADER_LEN + 20000);
    assert_true(throttle.due_ns == NEVER_NS);
}

TEST_WITH(data_of_its_own_connection_leaves_in_pieces, setup_two, world_close)
{
    size_t piece = throttle_piece(&throttle);
    uint32_t len = 50000;
    uint64_t now = START;
    send_data(len, "a");
    for (size_t out = 0; out < FRAME_HEADER_LEN + len;) {
        pump_at(now);
        assert_int_equal(w->fakes[1].out.len, out);
        assert_false(link_stuck(&w->link));
        struct sock_wait waits[2];
        assert_int_equal(link_waits(&w->link, waits, 2), 2);
        assert_false(waits[1].want_send);
        send_control(FRAME_PING, 0, NULL);
        pump_at(now); /* control goes at once, through the other */
        assert_int_equal(w->fakes[0].out.len % FRAME_HEADER_LEN, 0);
        now = throttle.due_ns;
        pump_at(now);
        size_t grown = w->fakes[1].out.len - out;
        assert_true(grown > 0 && grown <= piece);
        out = w->fakes[1].out.len;
    }
    assert_int_equal(next_out(1, NULL).length, len);
    assert_true(now - START >= len * NS_PER_US);
}

TEST_WITH(a_reference_costs_what_it_stands_for, setup, world_close)
{
    fake_share(&w->fakes[0], bytes, sizeof bytes);
    send_data(40000, "a");
    send_data(40000, "b");
    pump_at(START);
    pump_at(START + 39 * NS_PER_MS);
    assert_int_equal(w->fakes[0].out.len, 0);
    pump_at(START + 41 * NS_PER_MS);
    assert_int_equal(w->fakes[0].out.len, FRAME_HEADER_LEN + REFERENCE_LEN);
    pump_at(START + 80 * NS_PER_MS);
    assert_int_equal(w->fakes[0].out.len, FRAME_HEADER_LEN + REFERENCE_LEN);
    pump_at(START + 81 * NS_PER_MS);
    assert_int_equal(w->fakes[0].out.len, 2 * (FRAME_HEADER_LEN + REFERENCE_LEN));
}

/* A connection without room: what was let through waits for it, and is not counted twice. */
TEST_WITH(a_full_connection_is_waited_for, setup_two, world_close)
{
    send_data(20000, "a");
    w->fakes[1].send_room = 100;
    pump_at(START + 5 * NS_PER_MS);
    assert_int_equal(w->fakes[1].out.len, 100);
    assert_true(link_stuck(&w->link));
    struct sock_wait waits[2];
    assert_int_equal(link_waits(&w->link, waits, 2), 2);
    assert_true(waits[1].want_send);
    assert_true(throttle.due_ns == NEVER_NS);
    w->fakes[1].send_room = SIZE_MAX;
    pump_at(START + 5 * NS_PER_MS);
    assert_int_equal(w->fakes[1].out.len, throttle_piece(&throttle));
    assert_true(throttle.due_ns != NEVER_NS);
}

/* A frame half sent is finished at the goodbye, not given up. */
TEST_WITH(a_goodbye_does_not_wait, setup_two, world_close)
{
    struct frame frame;
    const uint8_t *payload;
    send_data(30000, "a");
    pump_at(START + 5 * NS_PER_MS);
    part();
    link_pump(&w->link);
    for (int i = 0; i < 2; i++) {
        while (fake_next(&w->fakes[i], &frame, &payload))
            continue;
        assert_int_equal(frame.kind, FRAME_BYE);
    }
}
