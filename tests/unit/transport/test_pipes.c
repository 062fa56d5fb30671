/* SPDX-License-Identifier: Apache-2.0 */
/* A link over several connections: control through the first, data round the others, in any order. */
#include "fake.h"
#include "support/suite.h"
#include "wire/record.h"

#define PIPES  WORLD_PIPES
#define STRIDE 4096u

static int setup(void **state)
{
    world_open(PIPES);
    w->upper.stride = STRIDE;
    return 0;
}

static int setup_greeted(void **state)
{
    setup(state);
    link_send_hello(&w->link, "hello", 5);
    world_greet();
    for (int i = 0; i < PIPES; i++)
        assert_int_equal(next_out(i, NULL).kind, FRAME_HELLO);
    return 0;
}

static void send_data(const void *owner, uint32_t lane, uint32_t len, const void *payload)
{
    struct frame frame = {.kind = FRAME_DATA, .lane = lane, .length = len};
    link_send_data(&w->link, &(struct link_data){.frame = frame,
                                                 .payload = payload,
                                                 .owner = (void *)(uintptr_t)owner,
                                                 .cookie = (void *)(uintptr_t)lane,
                                                 .class = LINK_NORMAL});
}

static void set_room(size_t bytes)
{
    for (int i = 0; i < PIPES; i++)
        w->fakes[i].send_room = bytes;
}

static void come(int pipe, uint8_t kind)
{
    fake_frame(&w->fakes[pipe], (struct frame){.kind = kind}, NULL);
}

/* ---- hello ---- */

TEST_WITH(every_pipe_begins_with_the_hello, setup, world_close)
{
    link_send_hello(&w->link, "hello", 5);
    send_control(FRAME_PONG, 0, NULL);
    for (uint32_t i = 0; i < 3; i++)
        send_data(w, i, 0, NULL);
    pump();
    for (int i = 0; i < PIPES; i++) {
        const uint8_t *payload;
        struct frame frame = next_out(i, &payload);
        assert_int_equal(frame.kind, FRAME_HELLO);
        assert_int_equal(frame.link_sequence, 1);
        assert_int_equal(frame.length, 5);
        assert_memory_equal(payload, "hello", 5);
        assert_int_equal(next_out(i, NULL).kind, i == 0 ? FRAME_PONG : FRAME_DATA);
        assert_true(out_is_empty(i));
    }
}

TEST(a_pipe_that_does_not_say_hello_is_refused)
{
    for (int bad = 0; bad < PIPES; bad++) {
        setup(NULL);
        for (int i = 0; i < PIPES; i++)
            come(i, i == bad ? FRAME_PING : FRAME_HELLO);
        expect_down(HEARTH_PROTOCOL, "no hello");
        world_close(NULL);
    }
}

TEST_WITH(a_second_hello_is_refused_on_any_pipe, setup_greeted, world_close)
{
    come(2, FRAME_HELLO);
    expect_down(HEARTH_PROTOCOL, "second hello");
}

TEST(no_memory_for_a_hello_ends_the_link)
{
    for (int64_t after = 0; after < 2 + PIPES - 1;
         after++) { /* queue, its copy, and one for each data pipe */
        setup(NULL);
        atomic_store(&w->upper.heap.fail_after, after);
        link_send_hello(&w->link, "hello", 5);
        expect_down(HEARTH_NO_MEMORY, "no memory");
        assert_int_equal(w->upper.heap.blocks, 0);
        world_close(NULL);
    }
}

/* ---- out ---- */

TEST_WITH(control_takes_the_first_pipe_and_data_goes_round_the_others, setup_greeted, world_close)
{
    for (uint32_t i = 0; i < 9; i++)
        send_data(w, i, 0, NULL);
    send_control(FRAME_PING, 0, NULL);
    send_control(FRAME_PONG, 0, NULL);
    pump();
    assert_int_equal(next_out(0, NULL).kind, FRAME_PING);
    assert_int_equal(next_out(0, NULL).kind, FRAME_PONG);
    for (uint32_t i = 0; i < 9; i++) {
        struct frame frame = next_out(1 + (int)(i % 3), NULL);
        assert_int_equal(frame.lane, i);
        assert_int_equal(frame.link_sequence, 2 + i / 3); /* each pipe counts for itself */
    }
    for (int i = 0; i < PIPES; i++)
        assert_true(out_is_empty(i));
}

TEST_WITH(a_pipe_that_is_stuck_does_not_hold_the_others, setup_greeted, world_close)
{
    uint8_t bytes[100] = {0};
    w->fakes[2].send_room = FRAME_HEADER_LEN + 1;
    for (uint32_t i = 0; i < 12; i++)
        send_data(w, i, sizeof bytes, bytes);
    send_control(FRAME_PING, 0, NULL);
    pump();
    assert_int_equal(next_out(0, NULL).kind, FRAME_PING);
    int left = 0;
    for (int i = 1; i < PIPES; i++) {
        struct frame frame;
        const uint8_t *payload;
        while (fake_next(&w->fakes[i], &frame, &payload))
            left++;
    }
    assert_int_equal(left, 11);
    assert_true(link_stuck(&w->link));
    w->fakes[2].send_room = SIZE_MAX;
    assert_true(link_pump(&w->link));
    assert_int_equal(next_out(2, NULL).lane, 1);
    assert_false(link_stuck(&w->link));
}

TEST_WITH(stuck_data_does_not_hold_control, setup_greeted, world_close)
{
    uint8_t bytes[2000] = {0}; /* too long for the first pipe */
    for (int i = 1; i < PIPES; i++)
        w->fakes[i].send_room = 10;
    for (uint32_t i = 0; i < 6; i++)
        send_data(w, i, sizeof bytes, bytes);
    for (int round = 0; round < 3; round++) {
        send_control(FRAME_PING, 0, NULL);
        link_eager_release(&w->link, BUDGET / 2);
        assert_true(link_pump(&w->link));
        struct frame frame = next_out(0, NULL);
        assert_int_equal(frame.kind, FRAME_PING);
        assert_int_equal(frame.credit, (uint32_t)(round + 1) * (BUDGET / 2 + LINK_EAGER_COST));
    }
    link_eager_release(&w->link, BUDGET / 2); /* nor credit, when no frame is there to tell it */
    assert_true(link_pump(&w->link));
    assert_int_equal(next_out(0, NULL).kind, FRAME_CREDIT);
}

/* All bytes of a frame are the number of its lane. */
static void collect(uint8_t seen[64])
{
    for (int i = 0; i < PIPES; i++) { /* short ones take the first, too */
        struct frame frame;
        const uint8_t *payload;
        while (fake_next(&w->fakes[i], &frame, &payload)) {
            assert_int_equal(frame.kind, FRAME_DATA);
            assert_true(frame.lane < 64);
            seen[frame.lane]++;
            for (uint32_t at = 0; at < frame.length; at++)
                assert_int_equal(payload[at], (uint8_t)frame.lane);
        }
    }
}

TEST(frames_leave_whole_whatever_each_pipe_takes)
{
    static uint8_t bytes[64][3000];
    struct prng random;
    prng_init(&random, 7);
    for (int i = 0; i < 64; i++)
        memset(bytes[i], i, sizeof bytes[i]);
    for (int round = 0; round < 50; round++) {
        uint8_t seen[64] = {0};
        uint32_t next = 0;
        setup_greeted(NULL);
        for (int turns = 0; turns < 100000 && (next < 64 || link_stuck(&w->link)); turns++) {
            for (int i = 1; i < PIPES; i++)
                w->fakes[i].send_room = prng_below(&random, 3) ? prng_below(&random, 2000) : 0;
            for (; next < 64 && link_room(&w->link, LINK_NORMAL) && prng_below(&random, 4); next++)
                send_data(w, next, (uint32_t)prng_below(&random, 3000), bytes[next]);
            link_pump(&w->link);
        }
        set_room(SIZE_MAX);
        pump();
        collect(seen);
        for (int i = 0; i < 64; i++)
            assert_int_equal(seen[i], 1);
        assert_int_equal(w->upper.metrics.frames_sent, PIPES + 64);
        world_close(NULL);
    }
}

/* ---- in ---- */

TEST(frames_come_through_all_pipes_in_any_fragments)
{
    static uint8_t bytes[64][3000];
    struct prng random;
    prng_init(&random, 8);
    for (int i = 0; i < 64; i++)
        memset(bytes[i], i, sizeof bytes[i]);
    for (int round = 0; round < 50; round++) {
        setup(NULL);
        w->upper.check_fill = true;
        for (int i = 0; i < PIPES; i++) {
            fake_hello(&w->fakes[i]);
            w->fakes[i].random = &random;
            w->fakes[i].recv_max = 1 + prng_below(&random, 700);
        }
        for (uint32_t i = 0; i < 64; i++) {
            struct frame frame = {
                .kind = FRAME_DATA, .lane = i, .length = (uint32_t)prng_below(&random, 3000)};
            fake_frame(&w->fakes[1 + prng_below(&random, 3)], frame, bytes[i]);
        }
        size_t
            whole[PIPES]; /* what is there now grows in steps, so that frames of all pipes are half there */
        for (int i = 0; i < PIPES; i++) {
            whole[i] = w->fakes[i].in.len;
            w->fakes[i].in.len = 0;
        }
        for (bool more = true; more;) {
            more = false;
            for (int i = 0; i < PIPES; i++) {
                size_t left = whole[i] - w->fakes[i].in.len;
                w->fakes[i].in.len += left > 0 ? 1 + prng_below(&random, left < 2000 ? left : 2000) : 0;
                more = more || w->fakes[i].in.len < whole[i];
            }
            uint64_t heard = link_heard(&w->link);
            link_pump(&w->link);
            assert_int_not_equal(link_heard(&w->link), heard); /* parts of frames count, too */
        }
        pump();
        assert_int_equal(w->upper.down_count, 0);
        assert_int_equal(w->upper.metrics.frames_received, PIPES + 64);
        world_close(NULL);
    }
}

TEST(a_missing_frame_is_noticed_in_each_pipe)
{
    for (int i = 0; i < PIPES; i++) {
        setup_greeted(NULL);
        come((i + 1) % PIPES, FRAME_PING);
        w->fakes[i].sequence++;
        come(i, FRAME_PING);
        expect_down(HEARTH_PROTOCOL, "missing or came twice");
        world_close(NULL);
    }
}

TEST_WITH(only_the_payload_of_the_cookie_is_dropped, setup_greeted, world_close)
{
    uint8_t bytes[1000];
    memset(bytes, 0x11, sizeof bytes);
    for (int i = 1; i < 3; i++) {
        fake_frame(&w->fakes[i], (struct frame){.kind = FRAME_DATA, .length = sizeof bytes}, bytes);
        w->fakes[i].in.len -= 500;
    }
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "data:1000 data:1000");
    upper_clear(&w->upper);
    link_drop_incoming(&w->link, &w->upper.cookie[1]);
    for (int i = 1; i < 3; i++)
        w->fakes[i].in.len += 500;
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "payload:1000");
    assert_int_equal(w->upper.target[STRIDE + 999], 0);
    assert_int_equal(w->upper.target[2 * STRIDE + 999], 0x11);
}

/* ---- credit ---- */

static void spend(uint32_t len)
{
    static uint8_t bytes[BUDGET];
    struct frame frame = {.kind = FRAME_DATA, .flags = FRAME_EAGER, .length = len};
    assert_true(link_eager_fits(&w->link, len));
    link_send_data(&w->link,
                   &(struct link_data){.frame = frame, .payload = bytes, .owner = w, .class = LINK_NORMAL});
    pump();
}

TEST_WITH(credit_that_comes_late_takes_nothing_back, setup_greeted, world_close)
{
    spend(BUDGET / 2 - LINK_EAGER_COST);
    spend(BUDGET / 2 - LINK_EAGER_COST);
    assert_false(link_eager_fits(&w->link, 0));
    upper_clear(&w->upper);
    w->fakes[2].credit = BUDGET;
    come(2, FRAME_PONG);
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "room:0 pong:0");
    w->fakes[1].credit = BUDGET / 2; /* told before, but this pipe was slower */
    come(1, FRAME_PONG);
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "room:0 pong:0 pong:0");
    assert_true(link_eager_fits(&w->link, BUDGET - LINK_EAGER_COST));
}

/* A frame may stand in a slow connection while the others turn the whole budget over again and again. */
TEST_WITH(credit_may_come_later_than_the_whole_budget, setup_greeted, world_close)
{
    for (uint32_t i = 1; i <= 10; i++) {
        spend(BUDGET - LINK_EAGER_COST);
        w->fakes[2].credit = i * BUDGET;
        come(2, FRAME_PONG);
        link_pump(&w->link);
    }
    w->fakes[1].credit = 0;
    come(1, FRAME_PONG);
    link_pump(&w->link);
    assert_int_equal(w->upper.down_count, 0);
    assert_true(link_eager_fits(&w->link, BUDGET - LINK_EAGER_COST));
}

TEST_WITH(credit_that_was_not_spent_is_refused_on_any_pipe, setup_greeted, world_close)
{
    spend(1000);
    w->fakes[3].credit = link_eager_cost(1000) + 1;
    come(3, FRAME_PONG);
    expect_down(HEARTH_PROTOCOL, "not spent");
}

/* ---- the end ---- */

TEST_WITH(the_last_goodbye_counts, setup_greeted, world_close)
{
    come(1, FRAME_BYE);
    come(0, FRAME_BYE);
    w->fakes[0].recv_gone = w->fakes[1].recv_gone = true; /* closed after it, which is no loss */
    link_pump(&w->link);
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "");
    fake_frame(&w->fakes[2], (struct frame){.kind = FRAME_DATA, .length = 4}, "wxyz");
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "data:4 payload:4");
    struct sock_wait waits[PIPES];
    assert_int_equal(link_waits(&w->link, waits, PIPES), PIPES);
    for (int i = 0; i < PIPES; i++)
        assert_int_equal(waits[i].want_recv, i >= 2); /* or one would wake up for ever */
    come(2, FRAME_BYE);
    link_pump(&w->link);
    upper_clear(&w->upper);
    come(3, FRAME_BYE);
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "bye:0");
    w->fakes[2].recv_gone = w->fakes[3].recv_gone = true;
    pump();
    assert_int_equal(w->upper.down_count, 1);
    assert_int_equal(w->upper.down.status, HEARTH_PEER_LOST);
}

TEST(a_pipe_that_closes_without_a_goodbye_ends_the_link)
{
    for (int i = 0; i < PIPES; i++) {
        setup_greeted(NULL);
        come(i, FRAME_PONG);
        w->fakes[i].recv_gone = true;
        expect_down(HEARTH_PEER_LOST, "gone");
        assert_string_equal(w->upper.log, "pong:0");
        world_close(NULL);
    }
}

TEST_WITH(a_send_that_finds_nobody_does_not_cut_off_what_came_through_others, setup_greeted, world_close)
{
    static uint8_t bytes[STRIDE];
    for (int i = 0; i < 3000; i++) /* more than one pump reads */
        fake_frame(&w->fakes[3], (struct frame){.kind = FRAME_DATA, .length = sizeof bytes}, bytes);
    send_data(w, 0, sizeof bytes, bytes);
    w->fakes[1].send_gone = true;
    w->upper.drop = true;
    expect_down(HEARTH_PEER_LOST, "gone");
    assert_int_equal(w->upper.metrics.frames_received, PIPES + 3000);
}

TEST_WITH(the_goodbye_goes_through_every_pipe, setup_greeted, world_close)
{
    uint8_t bytes[100] = {0};
    set_room(10);
    for (uint32_t i = 0; i < 9; i++)
        send_data(w, i, sizeof bytes, bytes);
    send_control(FRAME_PING, 0, NULL);
    link_pump(&w->link);
    set_room(SIZE_MAX);
    w->fakes[3].send_room = 50; /* what has begun does not fit, so nothing may follow it */
    upper_clear(&w->upper);
    part();
    link_pump(&w->link);
    assert_true(link_up(&w->link));
    assert_null(strstr(w->upper.log, "sent"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(next_out(i, NULL).kind, i == 0 ? FRAME_PING : FRAME_DATA);
        const uint8_t *payload;
        struct frame frame = next_out(i, &payload);
        struct error heard;
        assert_int_equal(frame.kind, FRAME_BYE);
        assert_int_equal(error_decode(&heard, payload, frame.length), HEARTH_OK);
        assert_int_equal(heard.status, HEARTH_CLOSED);
        assert_true(out_is_empty(i));
    }
    assert_int_equal(w->fakes[3].out.len - w->fakes[3].parsed, 60);
}

/* ---- owners that go ---- */

#define LONGER 1100 /* bytes: too many for the first pipe */

TEST(frames_on_their_way_in_several_pipes_are_finished_from_copies)
{
    for (size_t cut = 1; cut < FRAME_HEADER_LEN + LONGER; cut += 37) {
        setup_greeted(NULL);
        uint8_t bytes[5][LONGER], seen[64] = {0};
        int a = 0, b = 0;
        for (int i = 0; i < 5; i++)
            memset(bytes[i], i, sizeof bytes[i]);
        set_room(cut);
        for (uint32_t i = 0; i < 5; i++) /* 0 to 2 set out */
            send_data(i == 1 || i == 4 ? &b : &a, i, sizeof bytes[i], bytes[i]);
        link_pump(&w->link);
        link_forget(&w->link, &a);
        memset(bytes[0], 0x44, sizeof bytes[0]);
        memset(bytes[2], 0x44, sizeof bytes[2]);
        memset(bytes[3], 0x44, sizeof bytes[3]);
        set_room(SIZE_MAX);
        upper_clear(&w->upper);
        pump();
        collect(seen);
        assert_memory_equal(seen, ((uint8_t[]){1, 1, 1, 0, 1}), 5);
        assert_non_null(strstr(w->upper.log, "sent:1"));
        assert_non_null(strstr(w->upper.log, "sent:4"));
        assert_null(strstr(w->upper.log, "sent:0"));
        assert_null(strstr(w->upper.log, "sent:2"));
        world_close(NULL);
    }
}

TEST(without_memory_for_one_of_the_copies_the_link_ends)
{
    for (int64_t after = 0; after < 3; after++) {
        setup_greeted(NULL);
        uint8_t bytes[LINK_INLINE_MAX + 1] = {0};
        set_room(10);
        for (uint32_t i = 0; i < 3; i++)
            send_data(w, i, sizeof bytes, bytes);
        link_pump(&w->link);
        atomic_store(&w->upper.heap.fail_after, after);
        link_forget(&w->link, w);
        expect_down(HEARTH_NO_MEMORY, "cancelled");
        assert_null(strstr(w->upper.log, "sent"));
        assert_int_equal(w->upper.heap.blocks, 0);
        world_close(NULL);
    }
}

/* ---- sleeping ---- */

TEST_WITH(every_pipe_is_waited_for_attended_and_told_of_sleep, setup_greeted, world_close)
{
    struct sock_wait waits[PIPES + 1];
    w->fakes[2].send_room = 0;
    for (uint32_t i = 0; i < 3; i++)
        send_data(w, i, 0, NULL);
    link_pump(&w->link);
    assert_int_equal(link_waits(&w->link, waits, PIPES + 1), PIPES);
    for (int i = 0; i < PIPES; i++) {
        assert_int_equal(waits[i].fd, 100 + i);
        assert_true(waits[i].want_recv);
        assert_int_equal(waits[i].want_send, i == 2);
        waits[i].ready = i == 1 || i == 3;
    }
    link_doze(&w->link, true);
    for (int i = 0; i < PIPES; i++)
        assert_true(w->fakes[i].asleep && w->fakes[i].want_room == (i == 2));
    link_doze(&w->link, false);
    link_attend(&w->link, waits, PIPES);
    for (int i = 0; i < PIPES; i++) {
        assert_false(w->fakes[i].asleep);
        assert_int_equal(w->fakes[i].attended, i == 1 || i == 3);
    }
    assert_int_equal(link_waits(&w->link, waits, 2), 2); /* no more than there is room for */
}

TEST_WITH(a_link_that_is_down_waits_for_nothing, setup_greeted, world_close)
{
    struct sock_wait waits[PIPES] = {{.ready = true}, {.ready = true}};
    link_fail(&w->link, HEARTH_PROTOCOL, "the end");
    expect_down(HEARTH_PROTOCOL, "the end");
    link_attend(&w->link, waits, PIPES); /* what was asked for before it went down */
    link_doze(&w->link, true);
    assert_int_equal(link_waits(&w->link, waits, PIPES), 0);
    assert_false(link_stuck(&w->link));
    for (int i = 0; i < PIPES; i++)
        assert_int_equal(w->fakes[i].attended, 0);
}
