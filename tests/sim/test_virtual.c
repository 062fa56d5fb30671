/* SPDX-License-Identifier: Apache-2.0 */
/* Whole clusters on virtual time: random mixes of collectives, and what happens when connections break. */
#include "core/hash.h"
#include "mix.h"
#include "support/suite.h"

#define OP_TIMEOUT_NS (UINT64_C(1800) * NS_PER_S) /* the default of the config */

static int size_of(uint64_t seed)
{
    struct prng prng;
    prng_init(&prng, seed);
    return 1 + (int)prng_below(&prng, 7);
}

/* ---- everything goes well ---- */

static uint64_t run_mix(uint64_t seed)
{
    static struct mix mix;
    struct sim sim;
    sim_draw(&sim, size_of(seed), seed);
    sim_start(&sim);
    mix_draw(&mix, &sim, seed, 65536);
    while (mix_step(&mix, &sim, NEVER_NS))
        continue;
    mix_check_good(&mix);
    uint64_t hash = mix_hash(&mix, hash_mix(sim.log_hash, sim.now_ns));
    sim_run_until(&sim, sim.now_ns + 10 * NS_PER_S);
    sim_check_idle(&sim);
    mix_free(&mix);
    sim_stop(&sim);
    return hash;
}

TEST_WITH(random_mixes_give_the_right_numbers, NULL, say_seed)
{
    run_seeds(200, 4, run_mix);
}

TEST(another_seed_is_another_run)
{
    assert_int_not_equal(run_mix(1), run_mix(2));
}

/* ---- a connection breaks ---- */

struct loss {
    int a, b;   /* who lost each other */
    bool close; /* a was closed; else only their connection was cut */
};

static bool lost(const struct loss *loss, int rank)
{
    return rank == loss->a || (!loss->close && rank == loss->b);
}

/* Nobody is left to wait for a deadline either: whoever knows tells the others. */
static void check_loss(const struct mix *mix, const struct sim *sim, const struct loss *loss)
{
    for (int i = 0; i < mix->count; i++) {
        for (int r = 0; r < sim->size; r++) {
            const struct job_member *m = &mix->jobs[i].member[r];
            if (!sim->nodes[r])
                continue;
            if (m->status == HEARTH_PENDING)
                fail_msg("%s: rank %d is left unfinished", job_name(&mix->jobs[i]), r);
            if (m->status == HEARTH_OK)
                continue;
            if (strlen(m->error.text) == 0 || !lost(loss, m->error.rank) || m->status == HEARTH_TIMEOUT)
                fail_msg("%s: rank %d (lost %d, %d): %s names rank %d: %s", job_name(&mix->jobs[i]), r,
                         loss->a, loss->close ? -1 : loss->b, hearth_status_name(m->status), m->error.rank,
                         m->error.text);
        }
    }
}

/* The group cannot work any more, and whoever knows says so at once. */
static void check_broken(struct sim *sim, const struct loss *loss)
{
    for (int r = 0; r < sim->size; r++) {
        hearth_request *request = NULL;
        if (!sim->nodes[r] || (!loss->close && !lost(loss, r)))
            continue;
        assert_int_equal(hearth_barrier_nb(sim_world(sim, r), NULL, &request), HEARTH_GROUP_BROKEN);
        int other = loss->close ? loss->a : r == loss->a ? loss->b : loss->a;
        char word[32];
        snprintf(word, sizeof word, "rank %d", other);
        assert_non_null(strstr(hearth_error_text(), word));
    }
}

static uint64_t run_loss(uint64_t seed)
{
    static struct mix mix;
    struct sim sim;
    struct prng prng;
    prng_init(&prng, seed);
    int size = 2 + (int)prng_below(&prng, 5);
    sim_draw(&sim, size, seed);
    sim_start(&sim);
    mix_draw(&mix, &sim, seed, 65536);
    struct loss loss = {.a = (int)prng_below(&prng, (uint64_t)size), .close = prng_below(&prng, 3) == 0};
    loss.b = (loss.a + 1 + (int)prng_below(&prng, (uint64_t)size - 1)) % size;
    for (uint64_t steps = prng_below(&prng, 300); steps > 0 && mix_step(&mix, &sim, NEVER_NS); steps--)
        continue;
    if (loss.close)
        mix_close_node(&mix, &sim, loss.a);
    else
        mem_net_cut(sim.net, loss.a, loss.b);
    uint64_t until = sim.now_ns + 2 * OP_TIMEOUT_NS;
    while (mix_step(&mix, &sim, until))
        continue;
    check_loss(&mix, &sim, &loss);
    mix_check(&mix);
    sim_run_until(&sim, sim.now_ns + 10 * NS_PER_S);
    check_broken(&sim, &loss);
    uint64_t hash = mix_hash(&mix, hash_mix(sim.log_hash, sim.now_ns));
    mix_free(&mix);
    sim_stop(&sim);
    return hash;
}

TEST_WITH(a_lost_connection_is_named_and_nobody_hangs, NULL, say_seed)
{
    run_seeds(200, 4, run_loss);
}

/* ---- budgets ---- */

/* Rank 0 fills its budget at rank 1 with operations that rank 1 has not called. One that both have called
 * goes on all the same, and at once. */
TEST(others_do_not_starve_what_both_have_called)
{
    struct sim sim;
    static struct job wanted, others[6];
    sim_init(&sim, 2, 1);
    sim.tuning.chunk_bytes = sim.tuning.window_bytes = sim.tuning.eager_bytes = 16384;
    sim_start(&sim);
    sim_run_until(&sim, sim.now_ns + NS_PER_S);
    job_plain(&wanted, 2, 100);
    wanted.opts.tag = 99;
    wanted.opts.algo = HEARTH_ALGO_EXCHANGE;
    assert_ok(job_post(&wanted, sim_world(&sim, 1), 1));
    for (int i = 0; i < 6; i++) {
        job_plain(&others[i], 2, i == 3 ? 840 : 1000); /* the first four make it full to the byte */
        others[i].opts.tag = (uint64_t)i;
        others[i].opts.algo = HEARTH_ALGO_EXCHANGE;
        assert_ok(job_post(&others[i], sim_world(&sim, 0), 0));
    }
    sim_run_until(&sim, sim.now_ns + NS_PER_MS);
    assert_ok(job_post(&wanted, sim_world(&sim, 0), 0));
    sim_run_until(&sim, sim.now_ns + NS_PER_MS); /* its frames need a few microseconds */
    assert_true(job_collect(&wanted, sim.now_ns));
    job_check_all(&wanted);
    for (int i = 0; i < 6; i++)
        assert_ok(job_post(&others[i], sim_world(&sim, 1), 1));
    sim_run_until(&sim, sim.now_ns + NS_PER_S);
    for (int i = 0; i < 6; i++) {
        assert_true(job_collect(&others[i], sim.now_ns));
        job_check_all(&others[i]);
        job_free(&others[i]);
    }
    sim_check_idle(&sim);
    job_free(&wanted);
    sim_stop(&sim);
}

/* The root takes in the order of ranks, and the first does not come: what the others have sent meanwhile
 * stays within the window. */
TEST(a_late_member_does_not_fill_memory)
{
    struct sim sim;
    static struct job job;
    sim_init(&sim, 4, 1);
    sim.tuning.chunk_bytes = sim.tuning.eager_bytes = 16384;
    sim.tuning.window_bytes = 65536;
    sim_start(&sim);
    sim_run_until(&sim, sim.now_ns + NS_PER_S);
    job_plain(&job, 4, 1 << 20);
    job.kind = PLAN_REDUCE;
    for (int r = 1; r < 4; r++) {
        job.member[r].target = NULL;
        job.member[r].out_count = 0;
    }
    job.opts.algo = HEARTH_ALGO_STAR;
    job.opts.flags = HEARTH_FLAG_RANK_ORDER;
    uint64_t before = sim.nodes[0]->heap->bytes;
    job_post_all(&job, &sim, 1);
    sim_run_until(&sim, sim.now_ns + 10 * NS_PER_S);
    uint64_t held = sim.nodes[0]->heap->bytes - before;
    print_message("%llu KiB held\n", (unsigned long long)held >> 10);
    assert_true(held <
                3 * 65536 + 2 * 16384 + 65536); /* window, accumulators, eager budgets; the plan itself */
    assert_ok(job_post(&job, sim_world(&sim, 1), 1));
    sim_run_until(&sim, sim.now_ns + 10 * NS_PER_S);
    assert_true(job_collect(&job, sim.now_ns));
    job_check_all(&job);
    job_free(&job);
    sim_stop(&sim);
}
