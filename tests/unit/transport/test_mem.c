/* SPDX-License-Identifier: Apache-2.0 */
/* The mem transport on virtual time: rate, latency, jitter, cuts, and that it is the same every time; and
 * latency on real time. */
#include "core/hash.h"
#include "core/prng.h"
#include "os/clock.h"
#include "support/suite.h"
#include "transport/mem.h"

static uint64_t now_ns;
static struct mem_setup setup;
static struct mem_net *net;

static void net_open(int size, struct mem_setup with)
{
    now_ns = 0;
    setup = with;
    setup.size = size;
    assert_int_equal(mem_net_open(&setup, &net), HEARTH_OK);
}

static void net_open_virtual(int size, struct mem_setup with)
{
    with.now_ns = &now_ns;
    net_open(size, with);
}

static int net_close(void **state)
{
    (void)state;
    for (int i = 0; i < setup.size; i++) {
        for (int k = 0; k < setup.size; k++) {
            struct conn *conn = i != k ? mem_net_conn(net, i, k) : NULL;
            if (conn)
                conn->transport->close(conn);
        }
    }
    for (int i = 0; i < setup.size; i++)
        mem_net_put(net);
    return 0;
}

static ssize_t send_to(int from, int to, const void *bytes, size_t len)
{
    struct conn *conn = mem_net_conn(net, from, to);
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    return conn->transport->send(conn, &piece, 1);
}

static ssize_t recv_from(int at, int from, void *target, size_t len)
{
    struct conn *conn = mem_net_conn(net, at, from);
    return conn->transport->recv(conn, target, len);
}

TEST_WITH(nothing_comes_before_the_latency_has_passed, NULL, net_close)
{
    char got[8];
    net_open_virtual(2, (struct mem_setup){.latency_ns = 5000});
    assert_true(mem_net_next(net) == NEVER_NS);
    assert_int_equal(send_to(0, 1, "abc", 3), 3);
    assert_int_equal(mem_net_next(net), 5000);
    now_ns = 4999;
    assert_int_equal(recv_from(1, 0, got, sizeof got), 0);
    now_ns = 5000;
    assert_int_equal(recv_from(1, 0, got, sizeof got), 3);
    assert_memory_equal(got, "abc", 3);
    assert_true(mem_net_next(net) == NEVER_NS);
}

TEST_WITH(bytes_take_the_time_of_the_rate, NULL, net_close)
{
    static uint8_t bytes[5000];
    net_open_virtual(3, (struct mem_setup){.latency_ns = 700, .bytes_per_s = 1e6, .ring_bytes = 100000});
    /* 1000 bytes at 1 MB/s: a millisecond. The second waits for the first; other pairs do not. */
    assert_int_equal(send_to(0, 1, bytes, 1000), 1000);
    assert_int_equal(send_to(0, 1, bytes, 500), 500);
    assert_int_equal(send_to(0, 2, bytes, 100), 100);
    assert_int_equal(send_to(1, 0, bytes, 200), 200);
    static const struct {
        int at, from;
        uint64_t ns;
        ssize_t len;
    } expected[] = {{2, 0, 100700, 100}, {0, 1, 200700, 200}, {1, 0, 1000700, 1000}, {1, 0, 1500700, 500}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        now_ns = mem_net_next(net);
        assert_int_equal(now_ns, expected[i].ns);
        assert_int_equal(recv_from(expected[i].at, expected[i].from, bytes, sizeof bytes),
                         expected[i].len);
    }
    now_ns = 9000000; /* the wire was idle: only its own time counts */
    assert_int_equal(send_to(0, 1, bytes, 10), 10);
    assert_int_equal(mem_net_next(net), 9000000 + 10000 + 700);
}

/* Sends numbered bytes one by one and hands back a hash of what came when. */
static uint64_t jittered(uint64_t seed, uint64_t jitter_ns, uint64_t *early, uint64_t *late)
{
    uint64_t hash = 0, sent_at[200];
    *early = NEVER_NS;
    *late = 0;
    net_open_virtual(2, (struct mem_setup){.latency_ns = 1000, .jitter_ns = jitter_ns, .seed = seed});
    for (int i = 0; i < 200; i++) {
        now_ns = (uint64_t)i * 3000;
        uint8_t byte = (uint8_t)i, got;
        while (recv_from(1, 0, &got, 1) == 1)
            continue;
        sent_at[i] = now_ns;
        assert_int_equal(send_to(0, 1, &byte, 1), 1);
        uint64_t next = mem_net_next(net), delay = next - sent_at[i];
        *early = delay < *early ? delay : *early;
        *late = delay > *late ? delay : *late;
        hash = hash_mix(hash, next);
    }
    net_close(NULL);
    return hash;
}

TEST(jitter_is_within_its_bounds_and_seeded)
{
    uint64_t early, late;
    uint64_t first = jittered(1, 2000, &early, &late);
    assert_true(early >= 1000 && early < 1200);
    assert_true(late > 2800 && late <= 3000);
    assert_int_equal(first, jittered(1, 2000, &early, &late));
    assert_int_not_equal(first, jittered(2, 2000, &early, &late));
    jittered(1, 0, &early, &late);
    assert_int_equal(early, 1000);
    assert_int_equal(late, 1000);
}

TEST_WITH(order_is_kept_under_jitter, NULL, net_close)
{
    uint8_t expected = 0;
    net_open_virtual(2, (struct mem_setup){.latency_ns = 10, .jitter_ns = 1000000, .seed = 7});
    for (int i = 0; i < 250; i++) {
        now_ns = (uint64_t)i;
        assert_int_equal(send_to(0, 1, &(uint8_t){(uint8_t)i}, 1), 1);
    }
    uint64_t last = 0;
    for (uint64_t next = mem_net_next(net); next != NEVER_NS; next = mem_net_next(net)) {
        uint8_t got[250];
        assert_true(next >= last);
        now_ns = last = next;
        ssize_t n = recv_from(1, 0, got, sizeof got);
        assert_true(n > 0);
        for (ssize_t i = 0; i < n; i++)
            assert_int_equal(got[i], expected++);
    }
    assert_int_equal(expected, 250);
}

TEST_WITH(a_cut_loses_what_has_not_arrived, NULL, net_close)
{
    char got[16];
    net_open_virtual(3, (struct mem_setup){.latency_ns = 100});
    assert_int_equal(send_to(0, 1, "first", 5), 5);
    now_ns = 50;
    assert_int_equal(send_to(0, 1, "second", 6), 6);
    assert_int_equal(send_to(0, 2, "other", 5), 5);
    now_ns = 120;
    mem_net_cut(net, 1, 0);
    assert_int_equal(recv_from(1, 0, got, sizeof got), 5); /* it had arrived */
    assert_memory_equal(got, "first", 5);
    assert_int_equal(recv_from(1, 0, got, sizeof got), HEARTH_PEER_LOST);
    assert_int_equal(recv_from(0, 1, got, sizeof got), HEARTH_PEER_LOST);
    assert_int_equal(send_to(0, 1, "x", 1), HEARTH_PEER_LOST);
    assert_int_equal(send_to(1, 0, "x", 1), HEARTH_PEER_LOST);
    assert_int_equal(mem_net_next(net), 150); /* the other pair lives */
    now_ns = 150;
    assert_int_equal(recv_from(2, 0, got, sizeof got), 5);
    assert_int_equal(send_to(2, 0, "x", 1), 1);
}

/* A simulation goes on after one member has left: what is under way to it must not hold time back. */
TEST_WITH(bytes_to_a_closed_end_are_not_waited_for, NULL, net_close)
{
    net_open_virtual(3, (struct mem_setup){.latency_ns = 100});
    assert_int_equal(send_to(0, 1, "x", 1), 1);
    struct conn *conn = mem_net_conn(net, 1, 0);
    conn->transport->close(conn);
    assert_true(mem_net_next(net) == NEVER_NS);
    now_ns = 50;
    assert_int_equal(send_to(0, 2, "x", 1), 1);
    assert_int_equal(mem_net_next(net), 150);
}

TEST_WITH(many_small_sends_are_bounded, NULL, net_close)
{
    uint8_t got[4096];
    uint64_t sent = 0, come = 0;
    net_open_virtual(2, (struct mem_setup){.latency_ns = 100, .ring_bytes = 1 << 20});
    for (int round = 0; round < 20; round++) {
        while (send_to(0, 1, "x", 1) == 1)
            sent++;
        assert_true(sent - come < 100000);
        now_ns = mem_net_next(net);
        ssize_t n = recv_from(1, 0, got, sizeof got);
        assert_true(n > 0);
        come += (uint64_t)n;
    }
}

/* On real time: the bell rings when the bytes may be seen, and not before the latency has passed. */
TEST_WITH(real_bytes_take_the_latency, NULL, net_close)
{
    net_open(3, (struct mem_setup){.latency_ns = 3 * NS_PER_MS});
    struct bell *bell = mem_net_bell(net, 1);
    for (int round = 0; round < 5; round++) {
        char got[8] = "";
        ssize_t len = 0;
        uint64_t begin = clock_real();
        assert_int_equal(send_to(0, 1, "one", 3), 3);
        assert_int_equal(send_to(0, 1, "two", 3), 3);
        while (len < 6) {
            uint32_t heard = bell_heard(bell);
            ssize_t n = recv_from(1, 0, got + len, sizeof got - (size_t)len);
            assert_true(n >= 0);
            assert_true(n == 0 || clock_real() - begin >= setup.latency_ns);
            len += n;
            if (n == 0)
                bell_wait(bell, BELL_CALLER, heard, 0, NEVER_NS);
        }
        assert_string_equal(got, "onetwo");
    }
    /* What was sent before a close still arrives, then the end. */
    assert_int_equal(send_to(2, 1, "bye", 3), 3);
    struct conn *conn = mem_net_conn(net, 2, 1);
    conn->transport->close(conn);
    char got[4] = "";
    ssize_t n;
    while ((n = recv_from(1, 2, got, 3)) == 0)
        bell_wait(bell, BELL_CALLER, bell_heard(bell), 0, clock_real() + NS_PER_MS);
    assert_int_equal(n, 3);
    assert_string_equal(got, "bye");
    assert_int_equal(recv_from(1, 2, got, 3), HEARTH_PEER_LOST);
}

/* More sends under way than the list has places: the writer hears when there is room again. */
TEST_WITH(real_sends_are_bounded, NULL, net_close)
{
    net_open(2, (struct mem_setup){.latency_ns = 2 * NS_PER_MS});
    struct bell *bell = mem_net_bell(net, 0);
    uint8_t got[256], next = 0, sent = 0;
    for (int left = 5000, come = 0; come < 5000;) {
        uint32_t heard = bell_heard(bell);
        ssize_t n = left > 0 ? send_to(0, 1, &sent, 1) : 0;
        sent = (uint8_t)(sent + n);
        left -= (int)n;
        if (n == 0)
            bell_wait(bell, BELL_CALLER, heard, 0, left > 0 ? NEVER_NS : clock_real() + NS_PER_MS);
        n = recv_from(1, 0, got, sizeof got);
        for (ssize_t i = 0; i < n; i++)
            assert_int_equal(got[i], next++);
        come += (int)n;
    }
}
