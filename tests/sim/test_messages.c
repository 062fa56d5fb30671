/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on virtual time: without faults, with cancels and deadlines, and with members that are lost. */
#include "core/hash.h"
#include "courier.h"
#include "support/suite.h"
#include "support/watchdog.h"

static uint64_t received_in_all, lost_in_all;

/* Chunks and budgets so small that messages of some kilobytes have many pieces and wait for budget. */
static void draw_world(struct sim *sim, struct prng *prng, uint64_t seed)
{
    sim_draw_quick(sim, 2 + (int)prng_below(prng, 4), seed);
    sim->tuning.chunk_bytes = UINT64_C(256) << prng_below(prng, 6);
    sim->tuning.eager_bytes = UINT64_C(1024) << prng_below(prng, 7);
}

static void act(struct courier *c, struct sim *sim, struct prng *prng)
{
    if (prng_below(prng, 3) > 0)
        courier_act(c);
    else
        sim_step(sim, sim->now_ns + 20 * NS_PER_MS);
    courier_collect(c);
}

static uint64_t finish(struct courier *c, struct sim *sim)
{
    courier_drain(c);
    received_in_all += courier_check(c);
    courier_check_idle(c);
    uint64_t hash = courier_hash(c, sim->log_hash);
    sim_stop(sim);
    courier_free(c);
    return hash;
}

/* ---- nothing goes wrong ---- */

static uint64_t run_calm(uint64_t seed)
{
    static struct courier courier;
    struct sim sim;
    struct prng prng;
    prng_init(&prng, seed);
    draw_world(&sim, &prng, seed);
    sim_start(&sim);
    courier_init(&courier, &sim, seed, true);
    for (uint64_t steps = 30 + prng_below(&prng, 120); steps > 0; steps--)
        act(&courier, &sim, &prng);
    return finish(&courier, &sim);
}

TEST_WITH(every_message_is_received_once_and_in_order, NULL, say_seed)
{
    received_in_all = 0;
    run_seeds(300, 50, run_calm);
    assert_true(received_in_all > 20 * repeat_count(300));
}

/* ---- cancels, deadlines, faults ---- */

/* Who waits for a lost member is not left to its deadline. */
static void check_ends(const struct courier *c, enum fault fault)
{
    for (int i = 0; i < c->send_count; i++) {
        const struct courier_send *s = &c->sends[i];
        if (fault_loses(fault) && fault != FAULT_CLOSE && s->patient && s->status == HEARTH_TIMEOUT)
            fail_msg("send %d of rank %d to rank %d waited for its deadline though a member is lost", i,
                     s->from, s->to);
    }
    for (int i = 0; i < c->recv_count; i++) {
        const struct courier_recv *r = &c->recvs[i];
        if (fault_loses(fault) && fault != FAULT_CLOSE && r->patient && r->status == HEARTH_TIMEOUT)
            fail_msg("receive %d of rank %d waited for its deadline though a member is lost", i, r->at);
    }
}

static uint64_t run_faults(uint64_t seed)
{
    static const enum fault faults[] = {FAULT_NONE, FAULT_FREEZE, FAULT_STALL,
                                        FAULT_CUT,  FAULT_CRASH,  FAULT_CLOSE};
    static struct courier courier;
    struct sim sim;
    struct prng prng;
    prng_init(&prng, seed);
    draw_world(&sim, &prng, seed);
    sim_start(&sim);
    courier_init(&courier, &sim, seed, false);
    enum fault fault = faults[prng_below(&prng, sizeof faults / sizeof faults[0])];
    int victim = (int)prng_below(&prng, (uint64_t)sim.size);
    uint64_t steps = 30 + prng_below(&prng, 120), when = prng_below(&prng, steps);
    for (uint64_t i = 0; i < steps; i++) {
        act(&courier, &sim, &prng);
        if (i != when)
            continue;
        uint64_t most = fault == FAULT_STALL ? 60 * NS_PER_S : 200 * NS_PER_MS;
        sim_strike(&sim, fault, victim, prng_below(&prng, most));
        if (fault == FAULT_CRASH || fault == FAULT_CLOSE)
            courier_lose(&courier, victim);
        lost_in_all += fault_loses(fault);
    }
    uint64_t hash = finish(&courier, &sim);
    check_ends(&courier, fault);
    return hash;
}

TEST_WITH(what_is_said_of_a_message_is_true_whatever_happens, NULL, say_seed)
{
    received_in_all = lost_in_all = 0;
    run_seeds(700, 50, run_faults);
    assert_true(received_in_all > 5 * repeat_count(700));
    assert_true(repeat_count(700) < 20 || lost_in_all > repeat_count(700) / 4);
}
