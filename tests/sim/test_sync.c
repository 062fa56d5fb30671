/* SPDX-License-Identifier: Apache-2.0 */
/* Syncs on virtual time, in launched groups and in such as can be formed anew, while members cancel a bucket,
 * come late, freeze, stall, lose a connection, crash or close. Members try a step that failed again, each in
 * its own time, until it is done: then all have the same bits and nothing is lost. What failed is as it was,
 * and a step of a formed group is committed by all members or by none. */
#include "core/hash.h"
#include "gradient/compressor.h"
#include "gradient/sync.h"
#include "mix.h"
#include "numbers.h"
#include "reduce.h"
#include "support/suite.h"

enum { GRADIENTS_MAX = 6, COUNT_MAX = 320, STEPS = 4, ATTEMPTS_MAX = 8 };

#define TIMEOUT_MS 5000

struct gradient {
    char name[24];
    size_t count;
    enum hearth_dtype dtype;
    const char *codec;
};

struct trainer {
    hearth_sync *sync;
    hearth_compressor *compressor;
    double x[GRADIENTS_MAX][COUNT_MAX], x_before[GRADIENTS_MAX][COUNT_MAX]; /* room for every type */
    double e[GRADIENTS_MAX][COUNT_MAX], e_before[GRADIENTS_MAX][COUNT_MAX];
    int order[GRADIENTS_MAX], next; /* in which it makes tensors ready */
    int attempts;                   /* at this step, that failed */
    int status;                     /* of the last wait */
    struct error error;
    bool gone, ended; /* it is not there any more; its group is not */
};

struct trial {
    struct sim sim;
    struct prng prng;
    bool formed;
    int count; /* tensors */
    enum hearth_op op;
    struct gradient gradients[GRADIENTS_MAX];
    struct trainer trainers[SIM_MAX];
    enum fault fault;
    int rank, tensor; /* that the fault is about */
    bool struck, lost;
    int step;
};

static struct trial trial;

static int say_scene(void **state)
{
    printf("%s, the last fault: %s, rank %d of %d, tensor %d\n", trial.formed ? " formed " : " launched ",
           fault_name(trial.fault), trial.rank, trial.sim.size, trial.tensor);
    return say_seed(state);
}

static uint64_t below(struct trial *s, uint64_t limit)
{
    return prng_below(&s->prng, limit);
}

/* ---- setting up ---- */

static void gradients_draw(struct trial *s)
{
    static const char *const codecs[] = {"none",       "none",        "fp16", "int8",
                                         "onebit",     "topk:0.1",    "bf16", "topk:0.1,chunk=64",
                                         "powersgd:2", "randomk:0.2", "none", "topk:0.1,values=int8"};
    static const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F32, HEARTH_F64, HEARTH_BF16};
    s->count = 1 + (int)below(s, GRADIENTS_MAX);
    s->op = below(s, 2) ? HEARTH_OP_SUM : HEARTH_OP_AVG;
    for (int i = 0; i < s->count; i++) {
        struct gradient *g = &s->gradients[i];
        snprintf(g->name, sizeof g->name, "layer.%d", i);
        g->count = 8 * (1 + below(s, COUNT_MAX / 8));
        g->dtype = dtypes[below(s, 4)];
        g->codec = codecs[below(s, sizeof codecs / sizeof *codecs)];
    }
}

static void member_open(struct trial *s, int rank)
{
    struct trainer *m = &s->trainers[rank];
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.codec = "none";
    assert_ok(hearth_compressor_open(sim_world(&s->sim, rank), &config, &m->compressor));
    for (int i = 0; i < s->count; i++)
        assert_ok(hearth_compressor_add_rule(m->compressor, s->gradients[i].name, s->gradients[i].codec));
    assert_ok(hearth_sync_open_with(m->compressor, s->op, &m->sync));
    for (int i = 0; i < s->count; i++) {
        const struct gradient *g = &s->gradients[i];
        size_t dims[2] = {8, g->count / 8};
        struct hearth_tensor tensor = {.size = sizeof tensor,
                                       .name = g->name,
                                       .data = m->x[i],
                                       .dtype = g->dtype,
                                       .ndim = 2,
                                       .dims = dims};
        assert_int_equal(hearth_sync_add(m->sync, &tensor), i);
    }
}

static void trial_open(struct trial *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    prng_init(&s->prng, seed);
    int size = 2 + (int)below(s, 3);
    sim_draw_quick(&s->sim, size, seed);
    s->sim.config.rate = 0;
    s->sim.config.op_timeout_ms = TIMEOUT_MS;
    s->formed = below(s, 2);
    s->sim.loss = s->formed ? HEARTH_VIEW_CHANGED : 0;
    sim_start(&s->sim);
    gradients_draw(s);
    for (int r = 0; r < size; r++)
        member_open(s, r);
}

/* ---- what a sync is doing ---- */

static bool settled(const hearth_request *request)
{
    return !request || sim_status(request) != HEARTH_PENDING;
}

/* Its wait would not have to wait. */
static bool is_idle(const hearth_sync *sync)
{
    if (!settled(sync->question) || !settled(sync->comparison) || !settled(sync->vote))
        return false;
    for (uint32_t b = 0; b < sync->bucket_count; b++) {
        const struct sync_bucket *bucket = &sync->buckets[b];
        if (bucket->progress == BUCKET_FLYING && !settled(bucket->request))
            return false;
    }
    return true;
}

static struct sync_bucket *bucket_of(const struct trainer *m, int tensor)
{
    return m->sync->frozen ? &m->sync->buckets[m->sync->tensors[tensor].item.bucket] : NULL;
}

/* A compressed all-reduce in flight, not one that goes plain. */
static hearth_request *compressed_of(const struct trainer *m, int tensor)
{
    const struct sync_bucket *b = bucket_of(m, tensor);
    return b && b->request && b->request->cancel ? b->request : NULL;
}

static void residuals_read(const struct trial *s, struct trainer *m, double into[][COUNT_MAX])
{
    for (int i = 0; i < s->count; i++) {
        const struct gradient *g = &s->gradients[i];
        const struct tensor *tensor = tensors_find(&m->compressor->tensors, g->name);
        size_t len = g->count * (g->dtype == HEARTH_F64 ? sizeof(double) : sizeof(float));
        if (tensor && tensor->state.residual)
            memcpy(into[i], tensor->state.residual, len);
        else
            memset(into[i], 0, len);
    }
}

/* ---- faults ---- */

static bool all_compressed(const struct trial *s)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->gradients[i].codec, "none") == 0 || strncmp(s->gradients[i].codec, "powersgd", 8) == 0)
            return false;
    return true;
}

/* An ordinary operation may end well for some members only when others give up in it. In the first step that
 * is the comparison, which is not repeated by who has it; later a launched group has no vote to find out. */
static void fault_draw(struct trial *s)
{
    s->fault = (enum fault)below(s, FAULTS);
    if (s->fault == FAULT_REFUSE) /* a sync asks nobody */
        s->fault = FAULT_CANCEL;
    s->rank = (int)below(s, (uint64_t)s->sim.size);
    s->tensor = (int)below(s, (uint64_t)s->count);
    bool gives_up = s->fault == FAULT_LATE || s->fault == FAULT_STALL;
    bool launched = !s->formed && (s->fault == FAULT_STALL || !all_compressed(s));
    if (gives_up && (s->step == 0 || launched))
        s->fault = FAULT_FREEZE;
    s->struck = s->fault == FAULT_NONE || s->fault == FAULT_LATE;
}

static void strike(struct trial *s)
{
    struct trainer *m = &s->trainers[s->rank];
    hearth_request *request = compressed_of(m, s->tensor);
    if (s->fault == FAULT_CANCEL && !request)
        return; /* perhaps later */
    s->struck = true;
    if (s->fault == FAULT_CANCEL) /* hearth_request_cancel would wait for the end */
        request->cancel(request->cancel_arg);
    uint64_t stall_ns = (TIMEOUT_MS + 1000) * NS_PER_MS;
    sim_strike(&s->sim, s->fault, s->rank, s->fault == FAULT_STALL ? stall_ns : 1 + below(s, NS_PER_S));
    m->gone = s->fault == FAULT_CRASH || s->fault == FAULT_CLOSE; /* its sync goes with it */
}

/* ---- what must hold ---- */

static size_t gradient_len(const struct gradient *g)
{
    return g->count * hearth_dtype_size(g->dtype);
}

/* In a launched group what has been reduced stays so when another bucket has failed. */
static void check_untouched(const struct trial *s, int rank)
{
    const struct trainer *m = &s->trainers[rank];
    for (int i = 0; i < s->count; i++) {
        const struct gradient *g = &s->gradients[i];
        if (!s->formed && m->sync->tensors[i].progress == TENSOR_DONE)
            continue;
        if (memcmp(m->x[i], m->x_before[i], gradient_len(g)) != 0)
            fail_msg("%s by %s: rank %d failed, but its gradient has changed: %s", g->name, g->codec, rank,
                     m->error.text);
        bool prepared = s->formed && m->sync->stage != STAGE_OPEN;
        if (!prepared && memcmp(m->e[i], m->e_before[i], sizeof m->e[0]) != 0)
            fail_msg("%s by %s: rank %d failed, but its residual has changed: %s", g->name, g->codec, rank,
                     m->error.text);
    }
}

static void tensor_check(const struct trial *s, int tensor)
{
    const struct gradient *g = &s->gradients[tensor];
    struct mass_side sides[SIM_MAX];
    int well = 0, first = -1;
    for (int r = 0; r < s->sim.size; r++) {
        const struct trainer *m = &s->trainers[r];
        sides[r] =
            (struct mass_side){m->x[tensor], m->x_before[tensor], m->e[tensor], m->e_before[tensor], 1};
        if (m->gone || m->status != HEARTH_OK)
            continue;
        first = well++ == 0 ? r : first;
        if (memcmp(m->x[tensor], s->trainers[first].x[tensor], gradient_len(g)) != 0)
            fail_msg("%s by %s: ranks %d and %d have different bits", g->name, g->codec, first, r);
    }
    if (well == s->sim.size)
        mass_check(g->name, g->dtype, s->op, g->count, sides, s->sim.size);
}

/* Where one has committed a step nobody has aborted it: who does not know has it prepared. */
static void check_whole(const struct trial *s)
{
    int committed = -1;
    for (int r = 0; r < s->sim.size; r++)
        committed = !s->trainers[r].gone && s->trainers[r].status == HEARTH_OK ? r : committed;
    for (int r = 0; s->formed && committed >= 0 && r < s->sim.size; r++)
        if (s->trainers[r].ended && s->trainers[r].sync->stage == STAGE_OPEN)
            fail_msg("rank %d has committed the step, and rank %d aborted it: %s", committed, r,
                     s->trainers[r].error.text);
}

/* ---- a step ---- */

static void order_draw(struct trial *s, struct trainer *m)
{
    m->next = 0;
    for (int i = 0; i < s->count; i++) {
        int at = (int)below(s, (uint64_t)i + 1);
        m->order[i] = m->order[at];
        m->order[at] = i;
    }
}

static void step_begin(struct trial *s)
{
    for (int r = 0; r < s->sim.size; r++) {
        struct trainer *m = &s->trainers[r];
        for (int i = 0; i < s->count; i++)
            numbers_fill(m->x[i], s->gradients[i].count, s->gradients[i].dtype, HEARTH_OP_SUM, NUMBERS_ANY,
                         &s->prng);
        memcpy(m->x_before, m->x, sizeof m->x);
        residuals_read(s, m, m->e_before);
        m->status = HEARTH_PENDING;
        m->attempts = 0;
        order_draw(s, m);
    }
}

/* One that is late begins when all others have given up once. */
static bool may_begin(const struct trial *s, int rank)
{
    bool others = true;
    for (int r = 0; r < s->sim.size; r++)
        others = others && (r == rank || s->trainers[r].attempts > 0);
    return s->fault != FAULT_LATE || rank != s->rank || others;
}

static bool is_done(const struct trainer *m)
{
    return m->gone || m->ended || m->status == HEARTH_OK;
}

static void wait_now(struct trial *s, int rank)
{
    struct trainer *m = &s->trainers[rank];
    m->status = hearth_sync_wait(m->sync, NULL);
    residuals_read(s, m, m->e);
    if (m->status == HEARTH_OK)
        return;
    m->error = *error_last();
    check_untouched(s, rank);
    m->ended = fault_loses(s->fault) || m->status == HEARTH_VIEW_CHANGED; /* or a vote was not heard */
    s->lost = s->lost || m->ended;
    bool should = s->fault == FAULT_NONE || s->fault == FAULT_FREEZE;
    if ((should && m->attempts == 0) || ++m->attempts > ATTEMPTS_MAX)
        fail_msg("rank %d, after %d attempts: %s", rank, m->attempts, m->error.text);
    order_draw(s, m);
    if (!m->ended)
        sync_ask(m->sync); /* if that is what failed: the wait would ask, and wait */
}

/* Something that this member does next. */
static void act(struct trial *s, int rank)
{
    struct trainer *m = &s->trainers[rank];
    if (is_done(m) || s->sim.frozen_until[rank] > s->sim.now_ns || !may_begin(s, rank))
        return;
    if (m->next < s->count)
        (void)hearth_sync_ready(m->sync, m->order[m->next++]); /* the wait says what was wrong */
    else if (is_idle(m->sync))
        wait_now(s, rank);
}

static bool step_done(const struct trial *s)
{
    for (int r = 0; r < s->sim.size; r++)
        if (!is_done(&s->trainers[r]))
            return false;
    return true;
}

/* Members begin a step at about the same time: while one has tensors that are not ready only what comes soon
 * is waited for, or that one, if it is frozen. */
static uint64_t soon(const struct trial *s, uint64_t end_ns)
{
    uint64_t until_ns = s->sim.now_ns + 20 * NS_PER_MS;
    bool busy = false;
    for (int r = 0; r < s->sim.size; r++) {
        const struct trainer *m = &s->trainers[r];
        bool coming = !is_done(m) && m->next < s->count && may_begin(s, r);
        busy = busy || coming;
        if (coming && s->sim.frozen_until[r] > until_ns)
            until_ns = s->sim.frozen_until[r];
    }
    return busy ? until_ns : end_ns;
}

static void step_run(struct trial *s)
{
    step_begin(s);
    uint64_t end_ns = s->sim.now_ns + 300 * NS_PER_S;
    while (!step_done(s)) {
        act(s, (int)below(s, (uint64_t)s->sim.size));
        for (uint64_t steps = below(s, 4); steps > 0; steps--)
            (void)sim_step(&s->sim, soon(s, end_ns));
        if (s->sim.now_ns >= end_ns - 2 * NS_PER_S)
            fail_msg("the step has no end");
        if (!s->struck && below(s, 8) == 0)
            strike(s);
    }
    uint64_t thawed_ns = s->sim.frozen_until[s->rank]; /* the next step has its own faults */
    if (thawed_ns != NEVER_NS)
        sim_run_until(&s->sim, thawed_ns);
    check_whole(s);
    for (int i = 0; i < s->count; i++)
        tensor_check(s, i);
}

static uint64_t trial_run(uint64_t seed)
{
    struct trial *s = &trial;
    trial_open(s, seed);
    uint64_t hash = 0;
    for (s->step = 0; s->step < STEPS && !s->lost; s->step++) {
        s->fault = FAULT_NONE;
        s->struck = true;
        if (below(s, 2))
            fault_draw(s);
        step_run(s);
        s->lost = s->lost || (fault_loses(s->fault) && s->struck);
        hash = hash64(hash, s->trainers[0].x, sizeof s->trainers[0].x);
    }
    sim_run_until(&s->sim, s->sim.now_ns + 20 * NS_PER_S);
    if (!s->lost)
        sim_check_idle(&s->sim);
    hash = hash_mix(hash_mix(hash, s->sim.log_hash), s->sim.now_ns);
    sim_stop(&s->sim);
    return hash;
}

TEST_WITH(steps_are_whole_and_lose_nothing, NULL, say_scene)
{
    run_seeds(getenv("HEARTH_TEST_SOAK") ? 10000 : 1000, 16, trial_run);
}
