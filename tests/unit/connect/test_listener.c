/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever comes to the listener: garbage, silence and floods cost a bounded table, and members still get in.
 */
#include <sys/resource.h>

#include "core/prng.h"
#include "listening.h"
#include "os/clock.h"
#include "support/suite.h"

#define FLOOD 1000

static int open_listener(void **state)
{
    self.credentials = NULL;
    return listening_open();
}

static int close_listener(void **state)
{
    listener_close(listener);
    return heap.blocks == 0 ? 0 : -1;
}

TEST_WITH(a_taken_port_moves_to_the_next, open_listener, close_listener)
{
    struct half_open_setup setup = {.heap = &heap, .patience_ns = GREETING_NS, .port_tries = 8};
    struct listener *other = NULL;
    struct error error;

    setup.listen = half_open_addr(listener->half_open);
    if (sock_addr_port(&setup.listen) > UINT16_MAX - 16)
        skip();
    assert_int_equal(listener_open(&setup, &other, &error), HEARTH_OK);
    struct sock_addr moved = half_open_addr(other->half_open);
    assert_in_range(sock_addr_port(&moved), sock_addr_port(&setup.listen) + 1u,
                    sock_addr_port(&setup.listen) + 8u);
    listener_close(other);
    setup.port_tries = 0;
    assert_int_equal(listener_open(&setup, &other, &error), HEARTH_LIMIT);
    assert_non_null(strstr(error.text, "127.0.0.1:"));
    assert_non_null(strstr(error.text, "in use"));
}

TEST_WITH(a_listener_without_a_port_is_quiet, open_listener, close_listener)
{
    struct half_open_setup setup = {.heap = &heap, .patience_ns = GREETING_NS};
    struct sock_wait items[HALF_OPEN_WAITS_MAX];
    uint64_t deadline_ns = NEVER_NS;
    struct listener *none = NULL;
    struct error error;

    assert_int_equal(listener_open(&setup, &none, &error), HEARTH_OK);
    assert_int_equal(half_open_fd(none->half_open), -1);
    half_open_pump(none->half_open, now_ns);
    assert_int_equal(half_open_waits(none->half_open, items, HALF_OPEN_WAITS_MAX, &deadline_ns), 0);
    assert_true(deadline_ns == NEVER_NS);
    listener_close(none);
}

TEST_WITH(a_member_that_greets_is_a_incoming, open_listener, close_listener)
{
    struct half_open_incoming incoming;
    uint8_t byte = 'x', got = 0;
    int fd = come();

    listener_receive(listener, &self);
    greet(fd, &good);
    say(fd, &byte, 1); /* what follows is left to whoever takes it */
    assert_true(taken(&incoming));
    assert_int_equal(greeted.from, 3);
    assert_false(incoming.local);
    assert_int_equal(half_open_strangers(listener->half_open), 0);
    struct sock_wait wait = {.fd = secure_stream_fd(incoming.stream), .want_recv = true};
    (void)sock_wait(&wait, 1, clock_real() + 5 * NS_PER_S);
    assert_int_equal(secure_stream_recv(incoming.stream, &got, 1), 1);
    assert_int_equal(got, 'x');
    secure_stream_close(incoming.stream);
    sock_close(fd);
}

TEST_WITH(garbage_is_not_answered, open_listener, close_listener)
{
    struct prng prng;

    prng_init(&prng, 5);
    listener_receive(listener, &self);
    for (int i = 0; i < 50; i++) {
        uint8_t bytes[GREETING_LEN];
        for (size_t j = 0; j < sizeof bytes; j++)
            bytes[j] = (uint8_t)prng_u64(&prng);
        if (i % 2) /* it begins well */
            memcpy(bytes, "HM\2P", 4);
        else
            bytes[0] = 'h';
        int fd = come();
        say(fd, bytes, i % 2 ? sizeof bytes : 1 + (size_t)i % 30);
        assert_int_equal(closed_after(fd), 0);
        sock_close(fd);
    }
    assert_standing(0);
}

TEST_WITH(who_means_somebody_else_is_not_answered, open_listener, close_listener)
{
    struct greeting bad[4] = {good, good, good, good};

    bad[0].cluster = good.cluster ^ 2;
    bad[1].to = 2;
    bad[2].to_instance = 0x12;
    bad[3].kind = GREETING_WELCOME;
    for (int receiving = 0; receiving < 2; receiving++) {
        for (int i = 0; i < 4; i++) {
            int fd = come();
            greet(fd, &bad[i]);
            assert_int_equal(closed_after(fd), 0);
            sock_close(fd);
        }
        listener_receive(listener, &self);
    }
}

TEST_WITH(who_does_not_greet_in_time_must_go, open_listener, close_listener)
{
    uint8_t bytes[GREETING_LEN];
    int silent = come(), half = come(), slow = come();

    greeting_encode(&good, bytes);
    listener_receive(listener, &self);
    say(half, bytes, 32);
    assert_standing(3);
    for (size_t i = 0; i < 30; i++) { /* a byte now and then does not give it more time */
        say(slow, bytes + i, 1);
        now_ns += GREETING_NS / 31;
        half_open_pump(listener->half_open, now_ns);
    }
    assert_int_equal(half_open_strangers(listener->half_open), 3);
    struct sock_wait items[HALF_OPEN_WAITS_MAX];
    uint64_t deadline_ns = NEVER_NS;
    assert_int_equal(half_open_waits(listener->half_open, items, HALF_OPEN_WAITS_MAX, &deadline_ns), 4);
    now_ns = deadline_ns;
    half_open_pump(listener->half_open, now_ns);
    assert_int_equal(half_open_strangers(listener->half_open), 0);
    sock_close(silent);
    sock_close(half);
    sock_close(slow);
}

TEST_WITH(a_flood_of_silence_is_bounded_and_a_member_gets_in, open_listener, close_listener)
{
    static int fds[FLOOD];
    struct rlimit limit;
    struct half_open_incoming incoming;
    uint64_t bytes = heap.bytes;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < FLOOD + 200)
        skip();
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    listener_receive(listener, &self);
    for (int i = 0; i < FLOOD; i++) {
        fds[i] = come();
        half_open_pump(listener->half_open, now_ns);
        assert_true(half_open_strangers(listener->half_open) <= HALF_OPEN_PLACES);
    }
    assert_standing(HALF_OPEN_PLACES);
    assert_true(heap.bytes == bytes);
    int fd = come();
    greet(fd, &good);
    assert_true(taken(&incoming));
    secure_stream_close(incoming.stream);
    sock_close(fd);
    now_ns += GREETING_NS;
    assert_standing(0);
    close_all(fds, FLOOD);
}

/* A member that is slow to greet keeps its place, whatever another address does. */
TEST_WITH(a_flood_pushes_out_itself, open_listener, close_listener)
{
    int fds[4 * HALF_OPEN_PLACES];
    struct half_open_incoming incoming;

    listener_receive(listener, &self);
    int member = come_from("127.0.0.2:0");
    assert_standing(1);
    for (int i = 0; i < 4 * HALF_OPEN_PLACES; i++) {
        fds[i] = come();
        half_open_pump(listener->half_open, now_ns);
    }
    assert_standing(HALF_OPEN_PLACES);
    greet(member, &good);
    assert_true(taken(&incoming));
    secure_stream_close(incoming.stream);
    sock_close(member);
    close_all(fds, 4 * HALF_OPEN_PLACES);
}

TEST_WITH(afterwards_members_are_refused, open_listener, close_listener)
{
    uint8_t bytes[GREETING_LEN] = {0};
    struct iovec piece = {bytes, sizeof bytes};
    struct greeting answer;
    const char *what = "";
    ssize_t len = 0;
    int fd = come();

    listener_receive(listener, &self);
    listener_settle(listener);
    greet(fd, &good);
    for (int i = 0; i < LOOKS_MAX && len == 0; i++) {
        struct sock_wait wait = {.fd = fd, .want_recv = true};
        half_open_pump(listener->half_open, now_ns);
        (void)sock_wait(&wait, 1, clock_real() + 50 * NS_PER_MS);
        len = sock_recv(fd, &piece, 1);
    }
    assert_int_equal(len, GREETING_LEN);
    assert_int_equal(greeting_decode(&answer, bytes, &what), HEARTH_OK);
    assert_int_equal(answer.kind, GREETING_REFUSE);
    assert_int_equal(answer.reason, GREETING_JOINED);
    assert_int_equal(answer.to, 3);
    assert_int_equal(closed_after(fd), 0);
    sock_close(fd);
}

TEST_WITH(the_unix_socket_is_there_only_while_joining, open_listener, close_listener)
{
    struct sock_addr addr;
    struct half_open_incoming incoming;
    struct error error;
    int fd = -1, late = -1;

    listener_receive(listener, &self);
    assert_int_equal(listener_open_local(listener, &error), HEARTH_OK);
    listener_local_addr(self.cluster, self.rank, &addr);
    assert_int_equal(sock_dial(&addr, NULL, &fd, &error), HEARTH_OK);
    greet(fd, &good);
    assert_true(taken(&incoming));
    assert_true(incoming.local);
    secure_stream_close(incoming.stream);
    sock_close(fd);
    listener_settle(listener);
    assert_int_equal(sock_dial(&addr, NULL, &late, &error), HEARTH_PEER_LOST);
}
