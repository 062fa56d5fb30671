/* SPDX-License-Identifier: Apache-2.0 */
/* Remote calls on virtual time under faults, with an oracle: every call ends, none runs twice, one that was
 * answered ran, one that "did not run" has not. Some handlers answer at once, some later, some when their
 * node has closed. */
#include <string.h>

#include "sim/virtual.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define CALLS   40
#define LEN_MAX 20000
#define LONG_NS (120 * NS_PER_S) /* longer than any call */

struct world;

struct sim_call {
    uint8_t bytes[LEN_MAX]; /* begin with its number */
    size_t len;
    hearth_request *request; /* NULL: not begun, or its node has closed */
    struct hearth_message *reply;
    int from, to, ran;
};

struct member {
    struct world *world;
    int rank;
};

struct world {
    struct sim sim;
    struct prng prng;
    struct sim_call calls[CALLS];
    struct member members[SIM_MAX];
    hearth_rpc *later[CALLS];
    int later_count;
};

static uint64_t answered_in_all, failed_in_all;

static void serve(void *arg, hearth_rpc *rpc, const void *request, size_t len)
{
    struct member *m = arg;
    uint32_t number;
    assert_true(len >= sizeof number);
    memcpy(&number, request, sizeof number);
    struct sim_call *call = &m->world->calls[number];
    assert_int_equal(call->to, m->rank);
    assert_int_equal(call->from, hearth_rpc_rank(rpc));
    assert_int_equal(call->ran++, 0);
    assert_true(len == call->len && memcmp(request, call->bytes, len) == 0);
    if (number % 4 == 3)
        m->world->later[m->world->later_count++] = rpc;
    else
        hearth_rpc_reply(rpc, request, len);
}

static void begin(struct world *w, uint32_t number)
{
    struct sim_call *call = &w->calls[number];
    struct hearth_opts opts;
    uint64_t size = (uint64_t)w->sim.size;
    call->from = (int)prng_below(&w->prng, size);
    call->to = (int)prng_below(&w->prng, size);
    call->len = sizeof number + prng_below(&w->prng, prng_below(&w->prng, 3) > 0 ? 100 : LEN_MAX - 4);
    hearth_opts_init(&opts);
    opts.timeout_ms = (int64_t)prng_below(&w->prng, 10000);
    if (!w->sim.nodes[call->from] || w->sim.frozen_until[call->from] == NEVER_NS)
        return;
    memcpy(call->bytes, &number, sizeof number);
    int status = hearth_rpc_call_nb(sim_world(&w->sim, call->from), call->to, "serve", call->bytes, call->len,
                                    &opts, &call->reply, &call->request);
    if (status != HEARTH_OK) {
        assert_int_equal(hearth_error_fate(), HEARTH_FATE_NOT_DELIVERED);
        call->request = NULL;
    }
}

static void act(struct world *w, uint32_t number)
{
    begin(w, number);
    if (w->later_count > 0 && prng_below(&w->prng, 3) == 0)
        hearth_rpc_fail(w->later[--w->later_count], "later");
    struct sim_call *old = &w->calls[prng_below(&w->prng, number + 1)];
    if (old->request && prng_below(&w->prng, 8) == 0 && w->sim.frozen_until[old->from] <= w->sim.now_ns)
        hearth_request_cancel(old->request);
    for (uint64_t i = prng_below(&w->prng, 6); i > 0; i--)
        sim_step(&w->sim, w->sim.now_ns + 20 * NS_PER_MS);
}

/* Calls of a victim that will not be heard of again: their replies go before their node. */
static void forget_calls(struct world *w, int victim)
{
    for (int i = 0; i < CALLS; i++) {
        struct sim_call *call = &w->calls[i];
        if (call->from != victim || !call->request)
            continue;
        hearth_message_free(call->reply);
        call->reply = NULL;
        call->request = NULL;
    }
}

static void strike(struct world *w, enum fault fault)
{
    int victim = (int)prng_below(&w->prng, (uint64_t)w->sim.size);
    uint64_t most = fault == FAULT_STALL ? 60 * NS_PER_S : 200 * NS_PER_MS;
    if (fault == FAULT_CLOSE || fault == FAULT_CRASH)
        forget_calls(w, victim);
    sim_strike(&w->sim, fault, victim, prng_below(&w->prng, most));
}

/* What its end says is true. */
static uint64_t check_end(struct sim_call *call)
{
    int status = sim_status(call->request);
    enum hearth_fate fate = hearth_request_error_fate(call->request);
    assert_int_not_equal(status, HEARTH_PENDING);
    if (status == HEARTH_OK) {
        assert_true(call->ran == 1 && call->reply->len == call->len);
        assert_memory_equal(call->reply->data, call->bytes, call->len);
        answered_in_all++;
    } else {
        assert_true(fate != HEARTH_FATE_NONE);
        assert_true(fate != HEARTH_FATE_NOT_DELIVERED || call->ran == 0);
        assert_true(fate != HEARTH_FATE_DELIVERED || call->ran == 1);
        assert_null(call->reply);
        failed_in_all++;
    }
    hearth_message_free(call->reply);
    hearth_request_close(call->request);
    return (uint64_t)(unsigned)status * 31 + (uint64_t)fate;
}

static uint64_t run_calls(uint64_t seed)
{
    static const enum fault faults[] = {FAULT_NONE, FAULT_FREEZE, FAULT_STALL,
                                        FAULT_CUT,  FAULT_CRASH,  FAULT_CLOSE};
    static struct world w;
    memset(&w, 0, sizeof w);
    prng_init(&w.prng, seed);
    sim_draw_quick(&w.sim, 2 + (int)prng_below(&w.prng, 3), seed);
    sim_start(&w.sim);
    for (int i = 0; i < w.sim.size; i++) {
        w.members[i] = (struct member){&w, i};
        assert_int_equal(hearth_rpc_register(w.sim.nodes[i], "serve", serve, &w.members[i], NULL), HEARTH_OK);
    }
    enum fault fault = faults[prng_below(&w.prng, sizeof faults / sizeof faults[0])];
    uint32_t when = (uint32_t)prng_below(&w.prng, CALLS);
    for (uint32_t i = 0; i < CALLS; i++) {
        act(&w, i);
        if (i == when)
            strike(&w, fault);
    }
    sim_run_until(&w.sim, w.sim.now_ns + LONG_NS);
    uint64_t result = w.sim.log_hash;
    for (int i = 0; i < CALLS; i++)
        if (w.calls[i].request)
            result = result * 1099511628211u + check_end(&w.calls[i]);
    sim_stop(&w.sim);
    while (w.later_count > 0)
        assert_int_equal(hearth_rpc_reply(w.later[--w.later_count], NULL, 0), HEARTH_CLOSED);
    return result;
}

TEST_WITH(what_is_said_of_a_call_is_true_whatever_happens, NULL, say_seed)
{
    answered_in_all = failed_in_all = 0;
    run_seeds(400, 20, run_calls);
    assert_true(answered_in_all > 5 * repeat_count(400));
    assert_true(failed_in_all > repeat_count(400));
}
