/* SPDX-License-Identifier: Apache-2.0 */
/* How long collectives take on virtual time, against what the wire allows. */
#include <math.h>

#include "support/suite.h"
#include "virtual.h"

#define GIGABIT 125e6

struct pace {
    int size;
    size_t bytes;
    double bytes_per_s;
    uint64_t latency_ns;
    enum hearth_algo algo;
    size_t ring_bytes, window_bytes; /* 0: the default */
};

/* Seconds of virtual time that an all_reduce of f32 takes; negative: this algorithm does not do it. */
static double run(const struct pace *pace)
{
    struct sim sim;
    hearth_request *requests[SIM_MAX];
    float *buffers[SIM_MAX];
    size_t count = pace->bytes / sizeof(float);
    struct hearth_opts opts;
    sim_init(&sim, pace->size, 1);
    sim.mem.bytes_per_s = pace->bytes_per_s;
    sim.mem.latency_ns = pace->latency_ns;
    sim.mem.ring_bytes = pace->ring_bytes;
    if (pace->window_bytes > 0)
        sim.tuning.window_bytes = pace->window_bytes;
    sim_start(&sim);
    sim_run_until(&sim, sim.now_ns + NS_PER_S); /* hellos */
    hearth_opts_init(&opts);
    opts.algo = pace->algo;
    uint64_t start = sim.now_ns;
    int status = HEARTH_OK;
    for (int r = 0; r < pace->size; r++) {
        buffers[r] = malloc(pace->bytes);
        assert_non_null(buffers[r]);
        for (size_t i = 0; i < count; i++)
            buffers[r][i] = (float)(i % 64 + (size_t)r);
        status = hearth_all_reduce_nb(sim_world(&sim, r), buffers[r], buffers[r], count, HEARTH_F32,
                                      HEARTH_OP_SUM, &opts, &requests[r]);
        requests[r] = status == HEARTH_OK ? requests[r] : NULL;
    }
    uint64_t end = start;
    while (status == HEARTH_OK && sim_step(&sim, NEVER_NS))
        end = sim.now_ns;
    for (int r = 0; r < pace->size; r++) {
        int sum = pace->size * (pace->size - 1) / 2;
        for (size_t i = 0; status == HEARTH_OK && i < count; i += 997)
            assert_true(buffers[r][i] == (float)((int)(i % 64) * pace->size + sum));
        assert_true(status != HEARTH_OK || sim_status(requests[r]) == HEARTH_OK);
        hearth_request_close(requests[r]);
        free(buffers[r]);
    }
    sim_stop(&sim);
    return status == HEARTH_OK ? (double)(end - start) * 1e-9 : -1;
}

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
        double took = run(&pace), hops = 2 * (pace.size - 1) * (double)pace.latency_ns * 1e-9;
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
            double took = run(&pace);
            if (took >= 0)
                print_message("20 ms, 1 Gbit/s, 4 members, %zu MiB, %s, %s: %.3f s, %.0f %% of the bound\n",
                              bytes >> 20, setups[k].name, hearth_algo_name(pace.algo), took,
                              100 * bound(&pace) / took);
        }
    }
}
