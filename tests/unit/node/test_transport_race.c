/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways between two ends, one of them slow beyond doubt: both ends must find the same, and leave the
 * connections as they found them. */
#include "node/transport_race.h"
#include "os/clock.h"
#include "os/thread.h"
#include "support/suite.h"
#include "support/watchdog.h"
#include "transport/tcp.h"

#define SPAN_NS  (60 * NS_PER_MS)
#define PAUSE_NS (300 * NS_PER_MS)

/* A connection that takes nothing for so long that the other way is the faster one even where this program
 * had to wait for a processor while that was tried. */
struct slow {
    struct conn conn;
    struct conn *inner;
    uint64_t opens_ns; /* 0: nothing was sent yet */
};

static struct conn *inner_of(const struct conn *conn)
{
    return container_of(conn, struct slow, conn)->inner;
}

static ssize_t slow_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct slow *slow = container_of(conn, struct slow, conn);
    if (slow->opens_ns == 0)
        slow->opens_ns = clock_real() + PAUSE_NS;
    if (clock_real() < slow->opens_ns)
        return 0;
    return inner_of(conn)->transport->send(inner_of(conn), pieces, count);
}

static ssize_t slow_recv(struct conn *conn, void *target, size_t len_max)
{
    return inner_of(conn)->transport->recv(inner_of(conn), target, len_max);
}

static void slow_close(struct conn *conn)
{
    inner_of(conn)->transport->close(inner_of(conn));
}

static int slow_descriptor(const struct conn *conn)
{
    return inner_of(conn)->transport->descriptor(inner_of(conn));
}

static void slow_attend(struct conn *conn)
{
    inner_of(conn)->transport->attend(inner_of(conn));
}

static void slow_doze(struct conn *conn, bool asleep, bool want_room)
{
}

static const struct transport slow_transport = {
    .scheme = "slow",
    .send = slow_send,
    .recv = slow_recv,
    .close = slow_close,
    .descriptor = slow_descriptor,
    .attend = slow_attend,
    .doze = slow_doze,
};

/* ---- two ends ---- */

struct end {
    struct transport_race_pair pair;
    struct slow slow[LINK_PIPES_MAX];
    struct heap heap;
    struct error error;
    int status;
    uint64_t deadline_ns;
    struct thread thread;
};

static void lane_open(struct end ends[2], int lane, int count, bool slow)
{
    for (int i = 0; i < count; i++) {
        int fds[2];
        assert_int_equal(sock_pair(fds), HEARTH_OK);
        for (int e = 0; e < 2; e++) {
            struct conn *conn = tcp_conn(&ends[e].heap, fds[e]);
            assert_non_null(conn);
            if (slow && (i > 0 || count == 1)) { /* not the one for control, where there are others */
                ends[e].slow[i] = (struct slow){.conn = {&slow_transport}, .inner = conn};
                conn = &ends[e].slow[i].conn;
            }
            ends[e].pair.lanes[lane].conns[i] = conn;
        }
    }
    ends[0].pair.lanes[lane].count = ends[1].pair.lanes[lane].count = count;
}

static void ends_open(struct end ends[2], int slow_path, int count)
{
    memset(ends, 0, 2 * sizeof *ends);
    for (int e = 0; e < 2; e++) {
        heap_init(&ends[e].heap, 0);
        ends[e].pair.rank = 1 - e;
        ends[e].pair.decides = e == 0;
        ends[e].deadline_ns = clock_real() + 20 * NS_PER_S;
    }
    lane_open(ends, 0, count, slow_path == 0);
    lane_open(ends, 1, count, slow_path == 1);
}

static void ends_close(struct end ends[2])
{
    for (int e = 0; e < 2; e++) {
        for (int lane = 0; lane < TRANSPORT_RACE_LANES; lane++)
            for (int i = 0; i < ends[e].pair.lanes[lane].count; i++)
                if (ends[e].pair.lanes[lane].conns[i])
                    ends[e].pair.lanes[lane].conns[i]->transport->close(ends[e].pair.lanes[lane].conns[i]);
        assert_int_equal(atomic_load(&ends[e].heap.blocks), 0);
    }
}

static void end_run(void *arg)
{
    struct end *end = arg;
    struct transport_race_setup setup = {
        .heap = &end->heap,
        .pairs = &end->pair,
        .count = 1,
        .span_ns = SPAN_NS,
        .margin = 1.05,
        .deadline_ns = end->deadline_ns,
    };
    end->status = transport_race_run(&setup, &end->error);
}

static void ends_run(struct end ends[2])
{
    assert_int_equal(thread_start(&ends[1].thread, "end", end_run, &ends[1]), HEARTH_OK);
    end_run(&ends[0]);
    thread_join(&ends[1].thread);
}

/* Nothing is left over in a connection, and the next byte comes through. */
static void expect_clean(struct end ends[2])
{
    for (int lane = 0; lane < TRANSPORT_RACE_LANES; lane++)
        for (int i = 0; i < ends[0].pair.lanes[lane].count; i++) {
            struct conn *from = ends[0].pair.lanes[lane].conns[i], *to = ends[1].pair.lanes[lane].conns[i];
            struct iovec piece = {"!", 1};
            char got[4];
            ssize_t len = 0;
            assert_int_equal(from->transport->send(from, &piece, 1), 1);
            for (int tries = 0; len == 0 && tries < 1000; tries++)
                len = to->transport->recv(to, got, sizeof got);
            assert_int_equal(len, 1);
            assert_int_equal(got[0], '!');
        }
}

static void find(int slow_path, int count)
{
    struct end ends[2];
    ends_open(ends, slow_path, count);
    ends_run(ends);
    for (int e = 0; e < 2; e++) {
        if (ends[e].status != HEARTH_OK)
            fail_msg("%s", ends[e].error.text);
        assert_int_equal(ends[e].pair.chosen, 1 - slow_path);
        assert_true(ends[e].pair.lanes[1 - slow_path].bytes_per_s >
                    ends[e].pair.lanes[slow_path].bytes_per_s);
    }
    expect_clean(ends);
    ends_close(ends);
}

TEST(the_faster_lane_wins)
{
    find(0, 1);
    find(1, 1);
    find(0, 3);
    find(1, 3);
}

TEST(a_lost_peer_is_named)
{
    struct end ends[2];
    ends_open(ends, 1, 1);
    ends[1].pair.lanes[0].conns[0]->transport->close(ends[1].pair.lanes[0].conns[0]);
    ends[1].pair.lanes[0].conns[0] = NULL;
    end_run(&ends[0]);
    assert_int_equal(ends[0].status, HEARTH_PEER_LOST);
    assert_int_equal(ends[0].error.rank, 1);
    assert_non_null(strstr(ends[0].error.text, "rank 1"));
    ends_close(ends);
}

TEST(a_silent_peer_ends_at_the_deadline)
{
    struct end ends[2];
    ends_open(ends, 1, 2);
    ends[0].deadline_ns = clock_real() + 100 * NS_PER_MS;
    end_run(&ends[0]);
    assert_int_equal(ends[0].status, HEARTH_TIMEOUT);
    ends_close(ends);
}

TEST(nonsense_is_refused)
{
    struct end ends[2];
    struct iovec piece = {"\7nonsense", 9};
    ends_open(ends, 1, 1);
    struct conn *conn = ends[1].pair.lanes[0].conns[0];
    assert_int_equal(conn->transport->send(conn, &piece, 1), 9);
    end_run(&ends[0]);
    assert_int_equal(ends[0].status, HEARTH_PROTOCOL);
    ends_close(ends);
}

int main(void)
{
    watchdog(60, "two ways");
    return suite_run();
}
