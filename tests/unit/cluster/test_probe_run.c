/* SPDX-License-Identifier: Apache-2.0 */
/* Probes on real connections of this machine: both ends come to the same result; whoever breaks the rules or
 * says nothing ends it. How exact they are is measured on test hosts: tests/net/test_probes.py. */
#include "cluster/probe_run.h"
#include "core/bytes.h"
#include "os/clock.h"
#include "stream_pair.h"
#include "support/suite.h"
#include "wire/message.h"

static struct heap heap;
static struct credentials *ann, *bob;
static struct secure_stream *pair[2];

static struct probe_run *open_run(struct secure_stream *stream, bool sends, uint64_t now_ns)
{
    struct probe_run_setup setup = {
        .heap = &heap, .stream = stream, .sends = sends, .burst_ns = 20 * NS_PER_MS, .now_ns = now_ns};
    struct probe_run *run = NULL;

    assert_int_equal(probe_run_open(&setup, &run), HEARTH_OK);
    return run;
}

/* One end of a probe, and what it came to. */
struct end {
    struct probe_run *run; /* NULL: it is over */
    int status;
    struct probe_result result;
};

static void step(struct end *end)
{
    end->status = probe_run_pump(end->run);
    if (end->status == HEARTH_PENDING)
        return;
    end->result = *probe_run_result(end->run);
    probe_run_close(end->run);
    end->run = NULL;
}

/* All of them, until all are over. */
static void run_out(struct end *ends, int count)
{
    struct sock_wait waits[2];

    for (;;) {
        uint64_t deadline_ns = NEVER_NS;
        bool goes_on = false;
        for (int i = 0; i < count; i++) {
            if (ends[i].run)
                step(&ends[i]);
            waits[i] = ends[i].run ? probe_run_wait(ends[i].run, &deadline_ns) : (struct sock_wait){.fd = -1};
            goes_on |= !!ends[i].run;
        }
        if (!goes_on)
            return;
        (void)sock_wait(waits, (size_t)count, deadline_ns);
    }
}

static int tear_down(void **state)
{
    credentials_close(ann);
    credentials_close(bob);
    return heap.blocks == 0 ? 0 : -1;
}

static int set_up(void **state)
{
    heap_init(&heap, 0);
    ann = secure_stream_person(&heap, 1);
    bob = secure_stream_person(&heap, 2);
    secure_stream_pair(&heap, ann, bob, pair);
    return 0;
}

TEST_WITH(both_ends_know, set_up, tear_down)
{
    struct end ends[2] = {{.run = open_run(pair[0], true, clock_real())},
                          {.run = open_run(pair[1], false, clock_real())}};

    run_out(ends, 2);
    assert_int_equal(ends[0].status, HEARTH_OK);
    assert_int_equal(ends[1].status, HEARTH_OK);
    assert_true(ends[0].result.mbit_x10 > 0);
    assert_int_equal(ends[0].result.mbit_x10, ends[1].result.mbit_x10);
    assert_true(ends[0].result.bytes >= 65536 && ends[0].result.bytes <= 8 * 1024 * 1024);
    assert_true(ends[0].result.time_ns == ends[1].result.time_ns && ends[0].result.time_ns > 0);
    print_message("[ here     ] %.0f Mbit/s\n", ends[0].result.mbit_x10 / 10.0);
}

/* The other end says nothing: it began long ago, so that the test does not wait. */
TEST_WITH(patience_ends, set_up, tear_down)
{
    struct end sender = {.run = open_run(pair[0], true, clock_real() - 4 * NS_PER_S)};
    struct end receiver = {.run = open_run(pair[1], false, clock_real() - 4 * NS_PER_S)};

    step(&receiver);
    assert_int_equal(receiver.status, HEARTH_TIMEOUT);
    step(&sender);
    assert_int_not_equal(sender.status, HEARTH_PENDING);
    assert_int_not_equal(sender.status, HEARTH_OK);
}

TEST_WITH(other_end_is_gone, set_up, tear_down)
{
    struct end ends[1] = {{.run = open_run(pair[1], false, clock_real())}};

    secure_stream_close(pair[0]);
    run_out(ends, 1);
    assert_int_equal(ends[0].status, HEARTH_PEER_LOST);
}

static void send_message(const uint8_t head[static 8], uint8_t what)
{
    uint8_t message[64] = {0};

    memcpy(message, head, 8); /* the rest of the head, a checksum, is of no concern for loads */
    message[MESSAGE_HEADER_LEN] = what;
    assert_true(secure_stream_send(pair[0], message, MESSAGE_HEADER_LEN + 1));
}

TEST_WITH(receiver_refuses_nonsense, set_up, tear_down)
{
    static const uint8_t heads[][8] = {
        {0x48, 0x4d, 2, 17, 0, 0, 0, 0}, {0x48, 0x4d, 2, 17, 0xf5, 0x3f, 0, 0},
        {0x48, 0x4d, 1, 17, 1, 0, 0, 0}, {0x48, 0x4d, 2, 16, 1, 0, 0, 0},
        {0x48, 0x4c, 2, 17, 1, 0, 0, 0}, {0x48, 0x4d, 2, 17, 1, 0, 0, 0x80},
        {0x48, 0x4d, 2, 17, 1, 0, 0, 0},
    };

    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct end ends[1] = {{.run = open_run(pair[1], false, clock_real())}};
        send_message(heads[i], LOAD_RESULT); /* a result is not a receiver's to hear */
        run_out(ends, 1);
        assert_int_equal(ends[0].status, HEARTH_PROTOCOL);
        secure_stream_close(pair[0]);
        secure_stream_pair(&heap, ann, bob, pair);
    }
    secure_stream_close(pair[0]);
    secure_stream_close(pair[1]);
}

/* A burst that does not end: cut behind 8 MiB. */
TEST_WITH(receiver_takes_no_more, set_up, tear_down)
{
    struct end receiver = {.run = open_run(pair[1], false, clock_real())};
    static uint8_t message[16384] = {0x48, 0x4d, 2, 17, 0xf4, 0x3f};
    struct error error;

    while (receiver.run) {
        while (secure_stream_send(pair[0], message, sizeof message))
            ;
        assert_int_equal(secure_stream_pump(pair[0], &error), HEARTH_OK);
        step(&receiver);
    }
    assert_int_equal(receiver.status, HEARTH_PROTOCOL);
    secure_stream_close(pair[0]);
}

TEST_WITH(too_little_is_no_result, set_up, tear_down)
{
    struct end ends[1] = {{.run = open_run(pair[1], false, clock_real())}};
    static const uint8_t head[8] = {0x48, 0x4d, 2, 17, 1, 0, 0, 0};
    uint8_t answer[64];
    struct probe_result result;
    ssize_t len;

    send_message(head, LOAD_LAST);
    while ((len = secure_stream_recv(pair[0], answer, MESSAGE_HEADER_LEN + RESULT_LEN)) == 0)
        step(&ends[0]);
    assert_int_equal(len, MESSAGE_HEADER_LEN + RESULT_LEN);
    assert_true(probe_result_decode(&result, answer + MESSAGE_HEADER_LEN, RESULT_LEN));
    assert_int_equal(result.mbit_x10, 0);
    secure_stream_close(pair[0]);
    run_out(ends, 1);
    assert_int_equal(ends[0].status, HEARTH_PEER_LOST);
}

TEST_WITH(no_memory, set_up, tear_down)
{
    struct probe_run_setup setup = {.heap = &heap, .stream = pair[1]};
    struct probe_run *run = NULL;

    for (int i = 0; i < 3; i++) {
        heap.fail_after = i;
        setup.stream = pair[1];
        assert_int_equal(probe_run_open(&setup, &run), HEARTH_NO_MEMORY);
        heap.fail_after = -1;
        secure_stream_close(pair[0]);
        secure_stream_pair(&heap, ann, bob, pair);
    }
    secure_stream_close(pair[0]);
    secure_stream_close(pair[1]);
}
