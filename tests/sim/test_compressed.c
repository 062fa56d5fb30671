/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed all-reduces on virtual time, while members cancel, come late, freeze, lose a connection, crash
 * or close: however a call ends, what ends well has the same bits on all members, nothing is lost, and what
 * fails leaves everything as it was. A call that failed does not disturb the next one. */
#include "core/hash.h"
#include "mix.h"
#include "reduce.h"
#include "support/suite.h"

enum { CALLS_MAX = 4, ROUNDS = 5 };
struct trial {
    struct sim sim;
    struct prng prng;
    struct reduce calls[CALLS_MAX];
    hearth_compressor *compressors[SIM_MAX];
    int count;
    int next[SIM_MAX]; /* call that a member makes next */
    enum fault fault;
    int call, rank; /* that the fault is about */
    bool struck;
};

static struct trial trial;

static int say_scene(void **state)
{
    printf("the last fault: %s, rank %d of %d, call %d\n", fault_name(trial.fault), trial.rank,
           trial.sim.size, trial.call);
    return say_seed(state);
}

static uint64_t below(struct trial *s, uint64_t limit)
{
    return prng_below(&s->prng, limit);
}

/* ---- setting up ---- */

static void compressors_open(struct trial *s)
{
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    for (int r = 0; r < s->sim.size; r++) {
        assert_ok(hearth_compressor_open(sim_world(&s->sim, r), &config, &s->compressors[r]));
        for (int i = 0; i < s->count; i++)
            assert_ok(hearth_compressor_add_rule(s->compressors[r], s->calls[i].name, s->calls[i].codec));
    }
}

static void trial_open(struct trial *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    prng_init(&s->prng, seed);
    int size = 2 + (int)below(s, 4);
    sim_draw_quick(&s->sim, size, seed);
    s->sim.config.rate = 0;
    sim_start(&s->sim);
    s->count = 1 + (int)below(s, CALLS_MAX);
    uint64_t tags = 1 + below(s, 3);
    bool compressors = below(s, 2);
    for (int i = 0; i < s->count; i++) {
        reduce_draw(&s->calls[i], &s->prng, size, i);
        s->calls[i].tag = below(s, tags);
        if (compressors)
            s->calls[i].count = s->calls[i].count / 8 * 8;
    }
    if (compressors)
        compressors_open(s);
    for (int i = 0; compressors && i < s->count; i++) {
        s->calls[i].feedback = !strstr(s->calls[i].codec, "feedback=off");
        for (int r = 0; r < size; r++)
            s->calls[i].member[r].compressor = s->compressors[r];
    }
}

/* ---- faults ---- */

static void fault_draw(struct trial *s)
{
    s->fault = (enum fault)below(s, FAULTS);
    if (s->fault == FAULT_STALL && s->compressors[0])
        s->fault = FAULT_FREEZE; /* a step that only some have done is found by the tensor's next opening */
    s->call = (int)below(s, (uint64_t)s->count);
    s->rank = (int)below(s, (uint64_t)s->sim.size);
    s->struck = false;
    bool times_out = s->fault == FAULT_LATE || s->fault == FAULT_STALL;
    s->calls[s->call].timeout_ms = times_out ? 200 + (int64_t)below(s, 3000) : -1;
}

/* A call may end well for some and not for others: a member was gone, or the time over, between two votes. */
static bool splits(const struct trial *s)
{
    return fault_loses(s->fault) || s->fault == FAULT_STALL;
}

static void requests_drop(struct trial *s, int rank)
{
    for (int i = 0; i < s->count; i++) { /* they go with the node */
        s->calls[i].member[rank].request = NULL;
        s->calls[i].member[rank].called = false;
    }
    s->next[rank] = s->count;
}

static void strike(struct trial *s)
{
    struct reduce_member *m = &s->calls[s->call].member[s->rank];
    s->struck = true;
    /* hearth_request_cancel waits for the end, and here nobody would bring it about. NULL: it goes plain. */
    if (s->fault == FAULT_CANCEL && m->request && m->request->cancel)
        m->request->cancel(m->request->cancel_arg);
    sim_strike(&s->sim, s->fault, s->rank, s->fault == FAULT_STALL ? 4 * NS_PER_S : 1 + below(s, NS_PER_S));
    if (s->fault == FAULT_CRASH || s->fault == FAULT_CLOSE)
        requests_drop(s, s->rank);
}

/* ---- a round ---- */

static bool will_post(const struct trial *s, int rank, bool late)
{
    if (s->next[rank] == s->count)
        return false;
    return late || s->fault != FAULT_LATE || rank != s->rank || s->next[rank] < s->call;
}

static bool collect(struct trial *s)
{
    bool all = true;
    for (int i = 0; i < s->count; i++)
        all = reduce_collect(&s->calls[i]) && all;
    return all;
}

static void post(struct trial *s, int rank)
{
    int call = s->next[rank]++;
    struct hearth_tuning *tuning = &s->sim.nodes[rank]->tuning;
    size_t limit = tuning->compressed_allreduce_max_bytes;
    if (s->fault == FAULT_REFUSE && rank == s->rank && call == s->call)
        tuning->compressed_allreduce_max_bytes = 1;
    reduce_post(&s->calls[call], &s->sim, rank);
    tuning->compressed_allreduce_max_bytes = limit;
}

/* Members call in their own time, in the same order. */
static void play(struct trial *s, bool late, uint64_t until_ns)
{
    for (bool more = true; more;) {
        int rank = (int)below(s, (uint64_t)s->sim.size);
        more = false;
        for (int r = 0; r < s->sim.size; r++)
            more = more || will_post(s, r, late);
        if (will_post(s, rank, late) && s->sim.frozen_until[rank] <= s->sim.now_ns)
            post(s, rank);
        for (uint64_t steps = below(s, 6); steps > 0; steps--)
            more = sim_step(&s->sim, until_ns) || more;
        (void)collect(s);
        if (!s->struck && below(s, 12) == 0)
            strike(s);
    }
}

static void run_to_end(struct trial *s, bool late)
{
    uint64_t until_ns = s->sim.now_ns + 200 * NS_PER_S;
    play(s, late, until_ns);
    while (!collect(s) && sim_step(&s->sim, until_ns))
        if (!s->struck && below(s, 4) == 0)
            strike(s);
    (void)collect(s); /* what the last step has ended */
}

static void round_check(struct trial *s)
{
    for (int i = 0; i < s->count; i++) {
        int well = reduce_check(&s->calls[i], !splits(s) || (s->fault == FAULT_STALL && i != s->call));
        bool should = s->fault == FAULT_NONE || s->fault == FAULT_FREEZE ||
                      ((s->fault == FAULT_CANCEL || s->fault == FAULT_REFUSE) && i != s->call);
        const struct reduce_member *m = s->calls[i].member;
        for (int r = 0; should && well < s->sim.size; r++)
            if (m[r].status != HEARTH_OK)
                fail_msg("%s: rank %d: %s", reduce_name(&s->calls[i]), r, m[r].error.text);
        if (s->fault == FAULT_LATE && i == s->call && well > 0 && !s->calls[i].plain)
            fail_msg("%s ended well without rank %d", reduce_name(&s->calls[i]), s->rank);
    }
}

static void round_run(struct trial *s)
{
    memset(s->next, 0, sizeof s->next);
    for (int i = 0; i < s->count; i++)
        reduce_fill(&s->calls[i], &s->prng);
    run_to_end(s, false);
    if (s->fault == FAULT_LATE)
        run_to_end(s, true);
    round_check(s);
}

static uint64_t trial_run(uint64_t seed)
{
    struct trial *s = &trial;
    trial_open(s, seed);
    uint64_t hash = 0;
    int calm = (int)below(s, 2);
    bool lost = false;
    for (int i = 0; i < ROUNDS && !lost; i++) {
        if (i % 2 != calm && i < ROUNDS - 1)
            fault_draw(s);
        else
            s->fault = FAULT_NONE;
        s->struck = s->fault == FAULT_NONE || s->fault == FAULT_LATE;
        round_run(s);
        lost = fault_loses(s->fault) && s->struck;
        s->calls[s->call].timeout_ms = -1;
        for (int c = 0; c < s->count; c++)
            hash = hash64(hash, s->calls[c].member[0].x, sizeof s->calls[c].member[0].x);
    }
    sim_run_until(&s->sim, s->sim.now_ns + 20 * NS_PER_S);
    if (!lost)
        sim_check_idle(&s->sim);
    hash = hash_mix(hash_mix(hash, s->sim.log_hash), s->sim.now_ns);
    sim_stop(&s->sim);
    return hash;
}

TEST_WITH(all_or_nothing_same_bits_and_no_mass_lost, NULL, say_scene)
{
    run_seeds(getenv("HEARTH_TEST_SOAK") ? 10000 : 1000, 16, trial_run);
}
