/* SPDX-License-Identifier: Apache-2.0 */
/* How long a peer may say nothing: peer_timeout once it has spoken, and until the opening's end before. */
#include "collective/state.h"
#include "os/clock.h"
#include "os/sock.h"
#include "support/suite.h"
#include "transport/tcp.h"

#define TIMEOUT_NS (30 * NS_PER_S)
#define OPENING_NS (100 * NS_PER_S)
#define STEP_NS    (NS_PER_S / 2)
#define STEPS_NS   (2 * STEP_NS) /* what is seen in one step is done in the next */

/* Two engines that are joined; both have the same time, which only the test moves. */
struct trial {
    struct heap heap;
    uint64_t now_ns;
    struct clock clock;
    struct metrics metrics[2];
    struct engine *engines[2];
};

static void trial_open(struct trial *s)
{
    int fds[2];
    *s = (struct trial){.now_ns = NS_PER_S};
    s->clock.virtual_ns = &s->now_ns;
    heap_init(&s->heap, 0);
    assert_int_equal(sock_pair(fds), HEARTH_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(metrics_init(&s->metrics[i], 2, &s->heap), HEARTH_OK);
        struct engine_setup setup = {
            .heap = &s->heap,
            .metrics = &s->metrics[i],
            .clock = &s->clock,
            .rank = i,
            .size = 2,
            .ops_max = 16,
            .eager_bytes = 65536,
            .peer_timeout_ns = TIMEOUT_NS,
            .opening_ns = s->now_ns + OPENING_NS,
        };
        assert_int_equal(engine_open(&setup, &s->engines[i]), HEARTH_OK);
        struct conn *conn = tcp_conn(&s->heap, fds[i]);
        assert_non_null(conn);
        assert_int_equal(engine_join(s->engines[i], 1 - i, &conn, 1), HEARTH_OK);
    }
}

static void trial_close(struct trial *s)
{
    for (int i = 0; i < 2; i++) {
        engine_close(s->engines[i]);
        metrics_fini(&s->metrics[i]);
    }
    assert_int_equal(s->heap.blocks, 0);
}

/* After how long rank 0 has given up rank 1, which does nothing. */
static uint64_t silence(struct trial *s)
{
    uint64_t begin_ns = s->now_ns;
    while (link_up(&s->engines[0]->peers[1].link) && s->now_ns - begin_ns < 2 * OPENING_NS) {
        s->now_ns += STEP_NS;
        engine_progress(s->engines[0]);
    }
    return s->now_ns - begin_ns;
}

TEST(who_has_not_opened_yet_has_time_for_it)
{
    struct trial s;
    trial_open(&s);
    assert_in_range(silence(&s), OPENING_NS, OPENING_NS + STEPS_NS);
    trial_close(&s);
}

TEST(who_has_spoken_must_go_on)
{
    struct trial s;
    trial_open(&s);
    for (int i = 0; i < 4; i++)
        engine_progress(s.engines[(i + 1) % 2]);
    s.now_ns += 2 * NS_PER_S;
    engine_progress(s.engines[0]); /* here it sees that something came */
    assert_in_range(silence(&s), TIMEOUT_NS, TIMEOUT_NS + STEPS_NS);
    trial_close(&s);
}
