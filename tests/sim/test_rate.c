/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that send at most so much, on virtual time: it takes what the bytes say, whatever the links. */
#include "support/suite.h"
#include "virtual.h"

#define MBIT 1000000

struct pace {
    int size;
    size_t bytes;
    uint64_t rate; /* bits a second */
    enum hearth_algo algo;
    size_t chunk_bytes;
    int calls; /* at a time, under different tags */
};

struct outcome {
    double seconds;
    uint64_t sent_most; /* bytes, by one node */
    uint64_t log_hash, turns;
};

static uint64_t sent_by(struct sim *sim, int rank)
{
    return atomic_load(&sim->nodes[rank]->metrics.bytes_sent);
}

static hearth_request *start(struct sim *sim, int rank, float *buffer, size_t count,
                             const struct hearth_opts *opts)
{
    hearth_request *request = NULL;
    for (size_t i = 0; i < count; i++)
        buffer[i] = (float)(i % 64 + (size_t)rank);
    assert_int_equal(hearth_all_reduce_nb(sim_world(sim, rank), buffer, buffer, count, HEARTH_F32,
                                          HEARTH_OP_SUM, opts, &request),
                     HEARTH_OK);
    return request;
}

static struct outcome run(const struct pace *pace)
{
    struct sim sim;
    hearth_request *requests[SIM_MAX * 4];
    float *buffers[SIM_MAX * 4];
    uint64_t before[SIM_MAX];
    size_t count = pace->bytes / sizeof(float);
    struct hearth_opts opts;
    struct outcome outcome = {0};
    sim_init(&sim, pace->size, 1);
    sim.config.rate = pace->rate;
    sim.tuning.chunk_bytes = pace->chunk_bytes;
    sim.mem.bytes_per_s = 0; /* no other limit */
    sim.mem.latency_ns = 50 * NS_PER_US;
    sim_start(&sim);
    sim_run_until(&sim, sim.now_ns + NS_PER_S); /* hellos */
    uint64_t begin = sim.now_ns;
    hearth_opts_init(&opts);
    opts.algo = pace->algo;
    for (int i = 0; i < pace->size * pace->calls; i++) {
        before[i % pace->size] = sent_by(&sim, i % pace->size);
        buffers[i] = malloc(pace->bytes);
        assert_non_null(buffers[i]);
        opts.tag = (uint64_t)(i / pace->size);
        requests[i] = start(&sim, i % pace->size, buffers[i], count, &opts);
    }
    uint64_t end = begin;
    for (int left = 1; left > 0 && sim_step(&sim, NEVER_NS);) {
        end = sim.now_ns;
        left = 0;
        for (int i = 0; i < pace->size * pace->calls; i++)
            left += sim_status(requests[i]) == HEARTH_PENDING;
    }
    for (int i = 0; i < pace->size * pace->calls; i++) {
        int sum = pace->size * (pace->size - 1) / 2;
        assert_int_equal(sim_status(requests[i]), HEARTH_OK);
        for (size_t k = 0; k < count; k += 97)
            assert_true(buffers[i][k] == (float)((int)(k % 64) * pace->size + sum));
        hearth_request_close(requests[i]);
        free(buffers[i]);
    }
    for (int r = 0; r < pace->size; r++) {
        uint64_t sent = sent_by(&sim, r) - before[r];
        outcome.sent_most = sent > outcome.sent_most ? sent : outcome.sent_most;
    }
    outcome.seconds = (double)(end - begin) * 1e-9;
    outcome.log_hash = sim.log_hash;
    outcome.turns = sim.turns;
    sim_stop(&sim);
    return outcome;
}

/* Two members exchange halves; a ring of four has three quarters to send, twice. A frame is all that may be
 * left over at the ends. */
TEST(it_takes_what_the_bytes_say)
{
    static const struct pace paces[] = {
        {2, 4 << 20, 100 * MBIT, HEARTH_ALGO_RING, 64 << 10, 1},
        {2, 8 << 20, 1000 * MBIT, HEARTH_ALGO_RING, 64 << 10, 1},
        {4, 8 << 20, 100 * MBIT, HEARTH_ALGO_RING, 32 << 10, 1},
        {4, 2 << 20, 100 * MBIT, HEARTH_ALGO_DIRECT, 16 << 10, 1},
        {4, 2 << 20, 5 * MBIT, HEARTH_ALGO_AUTO, 16 << 10, 1},
        {3, 3 << 20, 100 * MBIT, HEARTH_ALGO_AUTO, 16 << 10, 3},
    };
    for (size_t i = 0; i < sizeof paces / sizeof *paces; i++) {
        const struct pace *p = &paces[i];
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
    size_t count = 1 << 20;
    float *buffers[3];
    struct hearth_opts opts;
    sim_init(&sim, 3, 1);
    sim.config.rate = MBIT;
    sim_start(&sim);
    hearth_opts_init(&opts);
    for (int r = 0; r < 3; r++) {
        buffers[r] = malloc(count * sizeof(float));
        assert_non_null(buffers[r]);
        requests[r] = start(&sim, r, buffers[r], count, &opts);
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
    struct pace pace = {4, 4 << 20, 0, HEARTH_ALGO_RING, 64 << 10, 1};
    struct outcome without = run(&pace), again = run(&pace);
    assert_true(without.log_hash == again.log_hash && without.turns == again.turns);
    assert_true(without.seconds == again.seconds && without.sent_most == again.sent_most);
    assert_true(without.seconds < 0.002); /* latency alone */
    pace.rate = UINT64_C(1000000) * MBIT;
    struct outcome fast = run(&pace);
    assert_true(fast.seconds >= without.seconds && fast.seconds < without.seconds + 0.001);
}
