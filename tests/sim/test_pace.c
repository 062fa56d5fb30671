/* SPDX-License-Identifier: Apache-2.0 */
/* How long collectives take on virtual time: what the wire allows, and what a rate set on the nodes does. */
#include "support/suite.h"
#include "virtual.h"

#define GIGABIT   125e6 /* bytes a second */
#define MBIT      1000000
#define CALLS_MAX 4

struct pace {
    int size;
    size_t bytes;
    double bytes_per_s; /* of the links; 0: no limit */
    uint64_t latency_ns;
    uint64_t rate; /* of the nodes, bits a second; 0: no limit */
    enum hearth_algo algo;
    size_t ring_bytes, window_bytes, chunk_bytes; /* 0: the default */
    int calls;                                    /* at a time, under different tags */
};

struct outcome {
    bool done; /* else this algorithm does not do it */
    double seconds;
    uint64_t sent_most; /* bytes, by one node */
    uint64_t log_hash, turns;
};

static void open_paced(struct sim *sim, const struct pace *pace)
{
    sim_init(sim, pace->size, 1);
    sim->mem.bytes_per_s = pace->bytes_per_s;
    sim->mem.latency_ns = pace->latency_ns;
    sim->mem.ring_bytes = pace->ring_bytes;
    sim->config.rate = pace->rate;
    if (pace->window_bytes > 0)
        sim->tuning.window_bytes = pace->window_bytes;
    if (pace->chunk_bytes > 0)
        sim->tuning.chunk_bytes = pace->chunk_bytes;
    sim_start(sim);
    sim_run_until(sim, sim->now_ns + NS_PER_S); /* hellos */
}

static uint64_t sent_by(struct sim *sim, int rank)
{
    return atomic_load(&sim->nodes[rank]->metrics.bytes_sent);
}

/* An all_reduce of f32 in place; NULL: not done by this algorithm. */
static hearth_request *start(struct sim *sim, int rank, float **buffer, size_t bytes,
                             const struct hearth_opts *opts)
{
    hearth_request *request = NULL;
    size_t count = bytes / sizeof(float);
    *buffer = malloc(bytes);
    assert_non_null(*buffer);
    for (size_t i = 0; i < count; i++)
        (*buffer)[i] = (float)(i % 64 + (size_t)rank);
    int status = hearth_all_reduce_nb(sim_world(sim, rank), *buffer, *buffer, count, HEARTH_F32,
                                      HEARTH_OP_SUM, opts, &request);
    assert_true(status == HEARTH_OK || status == HEARTH_UNSUPPORTED);
    return request;
}

/* Until all have ended; when that was. */
static uint64_t run_to_end(struct sim *sim, hearth_request *const *requests, int count)
{
    uint64_t end = sim->now_ns;
    for (int left = 1; left > 0 && sim_step(sim, NEVER_NS);) {
        end = sim->now_ns;
        left = 0;
        for (int i = 0; i < count; i++)
            left += sim_status(requests[i]) == HEARTH_PENDING;
    }
    return end;
}

static struct outcome run(const struct pace *pace)
{
    struct sim sim;
    int count = pace->size * (pace->calls > 0 ? pace->calls : 1), sum = pace->size * (pace->size - 1) / 2;
    hearth_request *requests[SIM_MAX * CALLS_MAX];
    float *buffers[SIM_MAX * CALLS_MAX];
    uint64_t before[SIM_MAX];
    struct hearth_opts opts;
    struct outcome outcome = {.done = true};
    open_paced(&sim, pace);
    hearth_opts_init(&opts);
    opts.algo = pace->algo;
    for (int r = 0; r < pace->size; r++)
        before[r] = sent_by(&sim, r);
    for (int i = 0; i < count; i++) {
        opts.tag = (uint64_t)(i / pace->size);
        requests[i] = start(&sim, i % pace->size, &buffers[i], pace->bytes, &opts);
        outcome.done = outcome.done && requests[i];
    }
    uint64_t begin = sim.now_ns;
    if (outcome.done)
        outcome.seconds = (double)(run_to_end(&sim, requests, count) - begin) * 1e-9;
    for (int i = 0; i < count; i++) {
        assert_true(!outcome.done || sim_status(requests[i]) == HEARTH_OK);
        for (size_t k = 0; outcome.done && k < pace->bytes / sizeof(float); k += 97)
            assert_true(buffers[i][k] == (float)((int)(k % 64) * pace->size + sum));
        hearth_request_close(requests[i]);
        free(buffers[i]);
    }
    for (int r = 0; r < pace->size; r++) {
        uint64_t sent = sent_by(&sim, r) - before[r];
        outcome.sent_most = sent > outcome.sent_most ? sent : outcome.sent_most;
    }
    outcome.log_hash = sim.log_hash;
    outcome.turns = sim.turns;
    sim_stop(&sim);
    return outcome;
}

/* ---- links ---- */

static double bound(const struct pace *pace)
{
    double n = pace->size;
    return 2 * (n - 1) / n * (double)pace->bytes / pace->bytes_per_s;
}

TEST(a_ring_keeps_the_wire_busy)
{
    static const struct pace paces[] = {
        {.size = 2, .bytes = 8 << 20, .bytes_per_s = GIGABIT, .latency_ns = 50000},
        {.size = 4, .bytes = 8 << 20, .bytes_per_s = GIGABIT, .latency_ns = 50000},
        {.size = 8, .bytes = 16 << 20, .bytes_per_s = GIGABIT, .latency_ns = 50000},
        {.size = 4, .bytes = 16 << 20, .bytes_per_s = 10 * GIGABIT, .latency_ns = 10000},
        {.size = 4, .bytes = 4 << 20, .bytes_per_s = GIGABIT / 10, .latency_ns = 1000000},
    };
    for (size_t i = 0; i < sizeof paces / sizeof *paces; i++) {
        struct pace pace = paces[i];
        pace.algo = HEARTH_ALGO_RING;
        double took = run(&pace).seconds, hops = 2 * (pace.size - 1) * (double)pace.latency_ns * 1e-9;
        double expected = bound(&pace) + hops;
        print_message("ring of %d, %zu MiB, %.0f Mbit/s, %.0f us: %.4f s, expected %.4f s\n", pace.size,
                      pace.bytes >> 20, pace.bytes_per_s * 8e-6, (double)pace.latency_ns * 1e-3, took,
                      expected);
        assert_true(took >= bound(&pace));
        assert_true(took <= 1.15 * expected);
    }
}

/* No assertion: what a long, fat wire leaves of each algorithm. */
TEST(report_a_long_wire)
{
    static const struct {
        const char *name;
        size_t ring_bytes, window_bytes;
    } setups[] = {
        {"default", 0, 0},
        {"rings of 4 MiB, windows of 8 MiB", 4 << 20, 8 << 20}, /* what rate and latency need */
    };
    size_t bytes = getenv("HEARTH_TEST_SOAK") ? 100u << 20 : 25u << 20;
    for (size_t k = 0; k < sizeof setups / sizeof *setups; k++) {
        for (int algo = HEARTH_ALGO_AUTO; algo <= HEARTH_ALGO_TREE; algo++) {
            struct pace pace = {.size = 4,
                                .bytes = bytes,
                                .bytes_per_s = GIGABIT,
                                .latency_ns = 20 * NS_PER_MS,
                                .algo = (enum hearth_algo)algo,
                                .ring_bytes = setups[k].ring_bytes,
                                .window_bytes = setups[k].window_bytes};
            struct outcome o = run(&pace);
            if (o.done)
                print_message("20 ms, 1 Gbit/s, 4 members, %zu MiB, %s, %s: %.3f s, %.0f %% of the bound\n",
                              bytes >> 20, setups[k].name, hearth_algo_name(pace.algo), o.seconds,
                              100 * bound(&pace) / o.seconds);
        }
    }
}

/* ---- a rate of the nodes ---- */

#define WIRE_NS (50 * NS_PER_US)

/* Two members exchange halves; a ring of four has three quarters to send, twice. A frame is all that may be
 * left over at the ends. */
TEST(it_takes_what_the_bytes_say)
{
    static const struct {
        int size;
        size_t bytes;
        uint64_t rate;
        enum hearth_algo algo;
        size_t chunk_bytes;
        int calls;
    } rows[] = {
        {2, 4 << 20, 100 * MBIT, HEARTH_ALGO_RING, 64 << 10, 1},
        {2, 8 << 20, 1000 * MBIT, HEARTH_ALGO_RING, 64 << 10, 1},
        {4, 8 << 20, 100 * MBIT, HEARTH_ALGO_RING, 32 << 10, 1},
        {4, 2 << 20, 100 * MBIT, HEARTH_ALGO_DIRECT, 16 << 10, 1},
        {4, 2 << 20, 5 * MBIT, HEARTH_ALGO_AUTO, 16 << 10, 1},
        {3, 3 << 20, 100 * MBIT, HEARTH_ALGO_AUTO, 16 << 10, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct pace *p = &(struct pace){.size = rows[i].size,
                                              .bytes = rows[i].bytes,
                                              .latency_ns = WIRE_NS,
                                              .rate = rows[i].rate,
                                              .algo = rows[i].algo,
                                              .chunk_bytes = rows[i].chunk_bytes,
                                              .calls = rows[i].calls};
        struct outcome o = run(p);
        double rate = (double)p->rate / 8, least = (double)o.sent_most / rate;
        double plain = 2.0 * (p->size - 1) / p->size * (double)p->bytes * p->calls / rate;
        print_message("%d members, %zu KiB x %d, %.0f Mbit/s: %.4f s, bytes / rate %.4f s, payload %.4f s\n",
                      p->size, p->bytes >> 10, p->calls, (double)p->rate * 1e-6, o.seconds, least, plain);
        assert_true(o.seconds >= 0.999 * least);
        assert_true(o.seconds >= 0.999 * plain);
        assert_true(o.seconds <= 1.03 * least);
    }
}

/* Words overtake bulk: a cancelled operation ends everywhere at once, though its bytes would take minutes. */
TEST(an_abort_does_not_wait)
{
    struct sim sim;
    hearth_request *requests[3];
    float *buffers[3];
    struct hearth_opts opts;
    sim_init(&sim, 3, 1);
    sim.config.rate = MBIT;
    sim_start(&sim);
    hearth_opts_init(&opts);
    for (int r = 0; r < 3; r++) {
        requests[r] = start(&sim, r, &buffers[r], 4 << 20, &opts);
        assert_non_null(requests[r]);
    }
    sim_run_until(&sim, sim.now_ns + 10 * NS_PER_S);
    uint64_t begin = sim.now_ns;
    hearth_request_cancel(requests[1]);
    while (sim_status(requests[0]) == HEARTH_PENDING || sim_status(requests[2]) == HEARTH_PENDING)
        assert_true(sim_step(&sim, begin + NS_PER_MS));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(sim_status(requests[r]), r == 1 ? HEARTH_CANCELLED : HEARTH_ABORTED);
        hearth_request_close(requests[r]);
        free(buffers[r]);
    }
    sim_stop(&sim);
}

/* A line that is fast enough is not noticed: as long as without. And no rate is no line at all. */
TEST(a_fast_line_changes_nothing)
{
    struct pace pace = {.size = 4,
                        .bytes = 4 << 20,
                        .latency_ns = WIRE_NS,
                        .algo = HEARTH_ALGO_RING,
                        .chunk_bytes = 64 << 10};
    struct outcome without = run(&pace), again = run(&pace);
    assert_true(without.log_hash == again.log_hash && without.turns == again.turns);
    assert_true(without.seconds == again.seconds && without.sent_most == again.sent_most);
    assert_true(without.seconds < 0.002); /* latency alone */
    pace.rate = UINT64_C(1000000) * MBIT;
    struct outcome fast = run(&pace);
    assert_true(fast.seconds >= without.seconds && fast.seconds < without.seconds + 0.001);
}
