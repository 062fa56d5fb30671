/* SPDX-License-Identifier: Apache-2.0 */
/* A member that comes late to every operation, on virtual time: those who hear from it directly name it, and
 * nobody names another. */
#include "job.h"
#include "support/suite.h"

#define SIZE    4
#define LATE_NS (5 * NS_PER_MS)
#define ROUNDS  30

static void run_rounds(struct sim *sim, enum hearth_algo algo, int late, enum plan_kind kind)
{
    for (int i = 0; i < ROUNDS; i++) {
        static struct job job;
        job_plain(&job, SIZE, kind == PLAN_BARRIER ? 0 : 1000);
        job.kind = kind;
        job.opts.algo = algo;
        job_post_all(&job, sim, late);
        sim_run_until(sim, sim->now_ns + LATE_NS);
        if (late >= 0)
            assert_ok(job_post(&job, sim_world(sim, late), late));
        sim_run_until(sim, sim->now_ns + LATE_NS);
        assert_true(job_collect(&job, sim->now_ns));
        job_check_all(&job);
        job_free(&job);
    }
}

/* How many name the late one. The way itself takes some microseconds, which is no skew worth a name. */
static int namers(const struct sim *sim, int late)
{
    int count = 0;
    for (int r = 0; r < SIZE; r++) {
        for (int other = 0; other < SIZE; other++) {
            uint64_t skew = engine_skew(sim->nodes[r]->engine, other);
            if (other == late)
                count += r != late && skew > LATE_NS * 9 / 10 && skew < LATE_NS * 11 / 10;
            else if (skew > LATE_NS / 10)
                fail_msg("rank %d is %llu ns late for rank %d, but only %d comes late", other,
                         (unsigned long long)skew, r, late);
        }
    }
    return count;
}

static void check_algo(enum hearth_algo algo, enum plan_kind kind, int at_least)
{
    for (int late = -1; late < SIZE; late++) {
        struct sim sim;
        sim_open(&sim, SIZE);
        run_rounds(&sim, algo, late, kind);
        int count = namers(&sim, late);
        if (count < (late >= 0 ? at_least : 0))
            fail_msg("%s: %d members name rank %d", hearth_algo_name(algo), count, late);
        if (late >= 0) { /* and it is forgiven when it comes in time */
            run_rounds(&sim, algo, -1, kind);
            assert_int_equal(namers(&sim, -1), 0);
        }
        sim_stop(&sim);
    }
}

TEST(who_always_comes_late_is_named)
{
    check_algo(HEARTH_ALGO_RING, PLAN_ALL_REDUCE, 1);
    check_algo(HEARTH_ALGO_DIRECT, PLAN_ALL_REDUCE, SIZE - 1);
    check_algo(HEARTH_ALGO_HALVING, PLAN_ALL_REDUCE, 1);
    check_algo(HEARTH_ALGO_EXCHANGE, PLAN_ALL_REDUCE, SIZE - 1);
    check_algo(HEARTH_ALGO_EXCHANGE, PLAN_BARRIER, SIZE - 1);
    check_algo(HEARTH_ALGO_TREE, PLAN_ALL_REDUCE, 0); /* who has children there waits for them */
}

TEST(it_stands_in_the_metrics)
{
    struct sim sim;
    static char text[65536];
    double seconds = 0, total = 0;
    sim_open(&sim, SIZE);
    run_rounds(&sim, HEARTH_ALGO_DIRECT, 2, PLAN_ALL_REDUCE);
    assert_true(hearth_node_metrics_text(sim.nodes[0], text, sizeof text) < (int64_t)sizeof text);
    const char *line = strstr(text, "\nhearth_peer_skew_seconds{peer=\"2\"} ");
    const char *sum = strstr(text, "\nhearth_peer_skew_seconds_total{peer=\"2\"} ");
    assert_true(line && sscanf(strchr(line, '}'), "} %lf", &seconds) == 1);
    assert_true(sum && sscanf(strchr(sum, '}'), "} %lf", &total) == 1);
    assert_true(seconds > 0.0045 && seconds < 0.0055);
    assert_true(total > 0.0045 * ROUNDS && total < 0.0055 * ROUNDS);
    assert_non_null(strstr(text, "\nhearth_peer_skew_seconds{peer=\"1\"} 0.0000"));
    sim_stop(&sim);
}

/* A link of 100 MB/s is full, and without the bytes that went without waiting the rate can be told. */
TEST(what_a_path_carries_can_be_told)
{
    struct sim sim;
    static struct job job;
    uint64_t bytes, busy_ns;
    sim_init(&sim, 2, 1);
    sim.mem.bytes_per_s = 1e8;
    sim.mem.ring_bytes = 65536;
    sim_start(&sim);
    engine_traffic(sim.nodes[0]->engine, 1, &bytes, &busy_ns);
    assert_true(bytes == 0 && busy_ns == 0);
    for (int i = 0; i < 3; i++) { /* with long breaks */
        job_plain(&job, 2, 2 << 20);
        job_post_all(&job, &sim, RANK_NONE);
        sim_run_until(&sim, sim.now_ns + 10 * NS_PER_S);
        assert_true(job_collect(&job, sim.now_ns));
        job_free(&job);
    }
    engine_traffic(sim.nodes[0]->engine, 1, &bytes, &busy_ns);
    double rate = (double)bytes / ((double)busy_ns * 1e-9);
    if (!(bytes > 12 << 20 && rate > 0.9e8 && rate < 1.1e8))
        fail_msg("%llu bytes in %llu ns", (unsigned long long)bytes, (unsigned long long)busy_ns);
    sim_stop(&sim);
}

/* A connection that breaks is counted; the others are not. */
TEST(errors_of_connections_are_counted)
{
    struct sim sim;
    sim_open(&sim, 3);
    sim_run_until(&sim, sim.now_ns + NS_PER_MS);
    mem_net_cut(sim.net, 0, 1);
    sim_run_until(&sim, sim.now_ns + NS_PER_MS);
    for (int r = 0; r < 3; r++)
        assert_int_equal(sim.nodes[r]->metrics.connection_errors, r < 2);
    sim_stop(&sim);
}
