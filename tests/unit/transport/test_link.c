/* SPDX-License-Identifier: Apache-2.0 */
/* The link: framing in any fragments, order, bounded queues, credit, and what it refuses. */
#include "core/bytes.h"
#include "core/crc32c.h"
#include "fake.h"
#include "support/suite.h"

static int setup(void **state)
{
    world_open(1);
    return 0;
}

/* As after a hello both ways. */
static int setup_greeted(void **state)
{
    setup(state);
    send_control(FRAME_HELLO, 0, NULL);
    world_greet();
    assert_int_equal(next_out(0, NULL).kind, FRAME_HELLO);
    w->calls = w->upper.heap.calls;
    return 0;
}

static void fill(uint8_t *bytes, size_t len, uint64_t seed)
{
    struct prng p;
    prng_init(&p, seed);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)prng_u64(&p);
}

static void send_data(uint32_t len, const void *payload, uint16_t flags, uintptr_t cookie)
{
    struct frame frame = {.kind = FRAME_DATA, .flags = flags, .length = len};
    link_send_data(
        &w->link,
        &(struct link_data){
            .frame = frame, .payload = payload, .owner = w, .cookie = (void *)cookie, .class = LINK_NORMAL});
}

/* ---- framing ---- */

static void script(struct fake *fake, const uint8_t *bytes)
{
    fake_hello(fake);
    fake_frame(fake, (struct frame){.kind = FRAME_DATA, .length = 1000}, bytes);
    fake_frame(fake, (struct frame){.kind = FRAME_GRANT, .group = 5}, NULL);
    fake_frame(fake, (struct frame){.kind = FRAME_DATA, .length = 0, .group = 5}, NULL);
    fake_frame(fake, (struct frame){.kind = FRAME_ABORT, .length = FRAME_CONTROL_MAX, .group = 5}, bytes);
    fake_frame(fake, (struct frame){.kind = FRAME_DATA, .length = 65536}, bytes);
}

TEST(frames_come_in_any_fragments)
{
    static const char expected[] = "hello:0 data:1000 payload:1000 grant:0 data:0 payload:0 abort:512 "
                                   "data:65536 payload:65536";
    static const size_t steps[] = {1, 2, 3, 7, 64, 95, 96, 97, 191, 193, 511, 513, 4096, 0};
    static uint8_t bytes[65536];
    struct prng random;
    fill(bytes, sizeof bytes, 1);
    prng_init(&random, 2);
    for (size_t i = 0; i < sizeof steps / sizeof *steps + 50; i++) {
        setup(NULL);
        bool scripted = i < sizeof steps / sizeof *steps;
        w->fake.recv_max = scripted ? steps[i] : 1 + prng_below(&random, 2000);
        w->fake.random = scripted ? NULL : &random;
        script(&w->fake, bytes);
        pump();
        assert_string_equal(w->upper.log, expected);
        assert_memory_equal(w->upper.target, bytes, sizeof bytes);
        assert_memory_equal(w->upper.control, bytes, FRAME_CONTROL_MAX);
        assert_int_equal(w->link.pipes[0].in_sequence, 6);
        assert_int_equal(w->upper.metrics.frames_received, 6);
        assert_int_equal(w->upper.metrics.bytes_received, w->fake.in.len);
        world_close(NULL);
    }
}

static void send_script(const uint8_t *bytes)
{
    send_control(FRAME_HELLO, 24, bytes);
    send_data(1000, bytes, 0, 1);
    send_data(0, NULL, 0, 2);
    send_data(50000, bytes, FRAME_EAGER, 3);
}

TEST(frames_leave_whole_whatever_the_conn_takes)
{
    static const size_t steps[] = {1, 2, 5, 95, 96, 97, 1000, 1095, 1096, 1097, 0};
    static uint8_t bytes[50000];
    struct prng random;
    struct bytes whole = {0};
    fill(bytes, sizeof bytes, 3);
    prng_init(&random, 4);
    for (size_t i = 0; i < sizeof steps / sizeof *steps + 50; i++) {
        setup(NULL);
        bool scripted = i < sizeof steps / sizeof *steps;
        w->fake.send_max = scripted ? steps[i] : 1 + prng_below(&random, 3000);
        w->fake.random = scripted ? NULL : &random;
        w->fake.send_room = 0;
        send_script(bytes);
        while (w->fake.out.len < 4 * FRAME_HEADER_LEN + 24 + 1000 + 50000) {
            assert_false(link_pump(&w->link)); /* full */
            w->fake.send_room = 1 + prng_below(&random, 9999);
            assert_true(link_pump(&w->link));
        }
        assert_string_equal(w->upper.log + strlen(w->upper.log) - strlen("sent:3 room:0"), "sent:3 room:0");
        if (i == 0)
            bytes_add(&whole, w->fake.out.data, w->fake.out.len);
        assert_int_equal(w->fake.out.len, whole.len);
        assert_memory_equal(w->fake.out.data, whole.data, whole.len);
        assert_int_equal(w->upper.metrics.frames_sent, 4);
        assert_int_equal(w->upper.metrics.bytes_sent, whole.len);
        world_close(NULL);
    }
    free(whole.data);
}

TEST_WITH(out_frames_are_numbered_and_acknowledge, setup_greeted, world_close)
{
    for (uint64_t i = 2; i < 40; i++) {
        fake_frame(&w->fake, (struct frame){.kind = FRAME_PONG}, NULL);
        assert_true(link_pump(&w->link));
        send_data(0, NULL, 0, 1);
        assert_true(link_pump(&w->link));
        struct frame frame = next_out(0, NULL);
        assert_int_equal(frame.link_sequence, i);
        assert_int_equal(frame.ack, i);
    }
}

TEST_WITH(frames_without_bytes_are_heard_of_when_they_are_wanted, setup_greeted, world_close)
{
    w->upper.no_target = true;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA}, NULL);
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "data:0 payload:0");
    upper_clear(&w->upper);
    w->upper.drop = true;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA}, NULL);
    fake_frame(&w->fake, (struct frame){.kind = FRAME_PONG}, NULL);
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "data:0 pong:0");
}

TEST_WITH(unwanted_payloads_are_read_and_dropped, setup_greeted, world_close)
{
    static uint8_t bytes[9 << 20];
    w->upper.drop = true;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = sizeof bytes}, bytes);
    fake_frame(&w->fake, (struct frame){.kind = FRAME_ABORT, .length = 7}, "abcdefg");
    /* More than one pump: a link that has much to read lets the others have their turn. */
    assert_true(link_pump(&w->link));
    assert_true(w->fake.in_at < w->fake.in.len / 2);
    pump();
    assert_string_equal(w->upper.log, "data:9437184 abort:7");
    assert_memory_equal(w->upper.control, "abcdefg", 7);
    assert_int_equal(w->upper.heap.calls, w->calls);
}

TEST_WITH(incoming_payload_can_be_dropped_half_way, setup_greeted, world_close)
{
    uint8_t bytes[3000];
    memset(bytes, 0x11, sizeof bytes);
    memset(w->upper.target, 0x22, sizeof w->upper.target);
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = sizeof bytes}, bytes);
    size_t whole = w->fake.in.len;
    w->fake.in.len -= 2000;
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "data:3000");
    link_drop_incoming(&w->link, &bytes); /* another cookie: nothing happens */
    assert_ptr_equal(w->link.pipes[0].in_target, w->upper.target);
    link_drop_incoming(&w->link, w->upper.cookie);
    w->fake.in.len = whole;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = 5}, "hello");
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "data:3000 data:5 payload:5");
    assert_memory_equal(w->upper.target, "hello", 5);
    for (size_t i = 5; i < sizeof bytes; i++)
        assert_int_equal(w->upper.target[i], i < 1000 ? 0x11 : 0x22);
}

/* ---- hello, sequence, garbage ---- */

TEST_WITH(the_first_frame_is_a_hello, setup, world_close)
{
    fake_frame(&w->fake, (struct frame){.kind = FRAME_PING}, NULL);
    expect_down(HEARTH_PROTOCOL, "no hello");
}

TEST_WITH(data_before_hello_is_refused_before_anyone_hears_of_it, setup, world_close)
{
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = 10}, "0123456789");
    assert_true(link_pump(&w->link));
    assert_string_equal(w->upper.log, "");
    assert_int_equal(w->upper.down.status, HEARTH_PROTOCOL);
}

TEST_WITH(a_second_hello_is_refused, setup_greeted, world_close)
{
    fake_hello(&w->fake);
    expect_down(HEARTH_PROTOCOL, "second hello");
}

TEST_WITH(a_missing_frame_is_noticed, setup_greeted, world_close)
{
    w->fake.sequence++;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_PING}, NULL);
    expect_down(HEARTH_PROTOCOL, "missing or came twice");
}

TEST_WITH(a_frame_that_came_twice_is_noticed, setup_greeted, world_close)
{
    w->fake.sequence--;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_PING}, NULL);
    expect_down(HEARTH_PROTOCOL, "missing or came twice");
}

TEST_WITH(garbage_is_refused, setup_greeted, world_close)
{
    uint8_t garbage[FRAME_HEADER_LEN];
    fill(garbage, sizeof garbage, 5);
    bytes_add(&w->fake.in, garbage, sizeof garbage);
    expect_down(HEARTH_PROTOCOL, "");
    assert_int_equal(w->upper.heap.calls, w->calls);
}

TEST(every_single_wrong_bit_is_refused)
{
    for (size_t bit = 0; bit < FRAME_HEADER_LEN * 8; bit++) {
        setup(NULL);
        fake_hello(&w->fake);
        fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = 4, .group = 1}, "wxyz");
        w->fake.in.data[FRAME_HEADER_LEN + bit / 8] ^= (uint8_t)(1u << bit % 8);
        pump();
        assert_string_equal(w->upper.log, "hello:0");
        assert_int_equal(w->upper.down.status, HEARTH_PROTOCOL);
        world_close(NULL);
    }
}

TEST(too_long_a_payload_is_refused_before_memory_is_taken)
{
    static const struct {
        uint8_t kind;
        uint32_t length;
    } cases[] = {{FRAME_DATA, FRAME_LENGTH_MAX + 1},
                 {FRAME_DATA, UINT32_MAX},
                 {FRAME_GRANT, FRAME_CONTROL_MAX + 1},
                 {FRAME_BYE, UINT32_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup_greeted(NULL);
        uint8_t header[FRAME_HEADER_LEN];
        frame_encode(&(struct frame){.kind = cases[i].kind, .link_sequence = 2}, header);
        store_u32(header + 4, cases[i].length); /* the encoder would not */
        store_u32(header + 92, crc32c(0, header, 92));
        bytes_add(&w->fake.in, header, sizeof header);
        expect_down(HEARTH_PROTOCOL, "");
        assert_int_equal(w->upper.heap.calls, w->calls);
        world_close(NULL);
    }
}

TEST_WITH(what_the_upper_side_refuses_ends_the_link, setup_greeted, world_close)
{
    w->upper.refuse = true;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = 4}, "wxyz");
    fake_frame(&w->fake, (struct frame){.kind = FRAME_PING}, NULL);
    expect_down(HEARTH_PROTOCOL, "refused by the test");
}

TEST_WITH(the_first_failure_is_the_one_that_is_told, setup_greeted, world_close)
{
    link_fail(&w->link, HEARTH_PROTOCOL, "first");
    link_fail(&w->link, HEARTH_NO_MEMORY, "second");
    assert_int_equal(w->upper.down_count, 0); /* not before the next pump */
    expect_down(HEARTH_PROTOCOL, "first");
}

/* ---- the end of a connection ---- */

TEST_WITH(all_that_came_is_heard_before_the_end, setup_greeted, world_close)
{
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = 4}, "wxyz");
    w->fake.recv_gone = true;
    assert_true(link_pump(&w->link));
    assert_string_equal(w->upper.log, "data:4 payload:4");
    assert_int_equal(w->upper.down_count, 1);
    assert_int_equal(w->upper.down.status, HEARTH_PEER_LOST);
}

TEST_WITH(a_send_that_finds_nobody_ends_the_link, setup_greeted, world_close)
{
    uint8_t bytes[100] = {0};
    send_data(sizeof bytes, bytes, 0, 1);
    send_control(FRAME_ABORT, 8, bytes);
    w->fake.send_gone = true;
    expect_down(HEARTH_PEER_LOST, "gone");
    assert_int_equal(w->upper.heap.blocks, 0);
}

/* The peer has said all and closed; a send finds that out before all of it was read. */
TEST_WITH(a_send_that_finds_nobody_does_not_cut_off_what_was_said, setup_greeted, world_close)
{
    enum { FRAMES = 80 }; /* more bytes than one pump reads */
    static uint8_t bytes[1 << 16];
    for (int i = 0; i < FRAMES; i++)
        fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = sizeof bytes}, bytes);
    send_control(FRAME_ABORT, 0, NULL);
    w->fake.send_gone = true;
    uint64_t before = w->upper.metrics.frames_received;
    expect_down(HEARTH_PEER_LOST, "gone");
    assert_int_equal(w->upper.metrics.frames_received - before, FRAMES);
}

TEST_WITH(a_goodbye_is_the_last_thing_said, setup_greeted, world_close)
{
    uint8_t bytes[100] = {0};
    w->fake.send_room = FRAME_HEADER_LEN + 10;
    send_data(sizeof bytes, bytes, 0, 1);
    send_data(sizeof bytes, bytes, 0, 2);
    link_pump(&w->link);
    send_control(FRAME_ABORT, 0, NULL);
    w->fake.send_room = SIZE_MAX;
    upper_clear(&w->upper);
    part();
    send_control(FRAME_PING, 0, NULL);
    link_pump(&w->link);
    assert_int_equal(w->fake.closed, 1);
    assert_int_equal(w->upper.down_count, 0);
    assert_null(strstr(w->upper.log, "sent"));
    assert_int_equal(next_out(0, NULL).kind, FRAME_DATA); /* begun, so it is finished */
    assert_int_equal(next_out(0, NULL).kind, FRAME_ABORT);
    assert_int_equal(next_out(0, NULL).kind, FRAME_BYE);
    assert_int_equal(w->fake.parsed, w->fake.out.len); /* nothing follows */
}

TEST_WITH(a_goodbye_waits_for_room, setup_greeted, world_close)
{
    w->fake.send_room = 5;
    part();
    for (int i = 0; i < 3; i++)
        link_pump(&w->link);
    assert_int_equal(w->fake.closed, 0);
    w->fake.send_room = SIZE_MAX;
    link_pump(&w->link);
    assert_int_equal(next_out(0, NULL).kind, FRAME_BYE);
    assert_int_equal(w->fake.closed, 1);
    assert_int_equal(w->upper.heap.blocks, 0);
}

TEST_WITH(a_link_that_parts_reads_and_drops, setup_greeted, world_close)
{
    uint8_t bytes[600] = {0};
    w->fake.send_room = 5;
    fake_frame(&w->fake, (struct frame){.kind = FRAME_DATA, .length = sizeof bytes}, bytes);
    upper_clear(&w->upper);
    part();
    link_pump(&w->link);
    assert_string_equal(w->upper.log, "");
    assert_int_equal(w->fake.closed, 0);
    w->fake.recv_gone = true; /* it goes too: nobody needs our word any more, and nothing is said of it */
    link_pump(&w->link);
    assert_int_equal(w->fake.closed, 1);
    assert_int_equal(w->upper.down_count, 0);
}

/* Where what is on its way would be lost by closing, the other end closes first. */
TEST_WITH(a_connection_that_must_be_read_is_closed_after_the_peers, setup_greeted, world_close)
{
    fake_must_finish(&w->fake);
    part();
    for (int i = 0; i < 3; i++)
        link_pump(&w->link);
    assert_int_equal(next_out(0, NULL).kind, FRAME_BYE);
    assert_int_equal(w->fake.finished, 1);
    assert_int_equal(w->fake.closed, 0);
    w->fake.recv_gone = true;
    link_pump(&w->link);
    assert_int_equal(w->fake.closed, 1);
    assert_int_equal(w->upper.down_count, 0);
}

TEST_WITH(a_goodbye_needs_no_memory, setup_greeted, world_close)
{
    atomic_store(&w->upper.heap.fail_after, 0);
    part();
    link_pump(&w->link);
    assert_int_equal(next_out(0, NULL).kind, FRAME_BYE);
    assert_int_equal(w->fake.closed, 1);
}
