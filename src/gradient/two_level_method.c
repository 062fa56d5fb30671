/* SPDX-License-Identifier: Apache-2.0 */
/* Two levels: dense inside a host (or a site, where config.site says so), the codec only between them, so
 * that what crosses the slow links does not depend on how many members a host has.
 *
 *   all          x + e of those that do not lead (their residual becomes zero), x of those that do
 *   in the host  reduce to the first member of the host, who leads
 *   leaders      the codec's own method among them, with the leader's residual
 *   in the host  broadcast of the result
 */
#include <string.h>

#include "compress/load.h"
#include "gradient/codec_pool.h"

enum { TWO_LEVEL_LOAD, TWO_LEVEL_REDUCE, TWO_LEVEL_BETWEEN, TWO_LEVEL_BROADCAST, TWO_LEVEL_DONE };

struct two_level {
    int stage;
    bool leads;
    float *sum; /* the tensor as f32 */
    size_t loaded;
    hearth_group *host, *leaders; /* leaders: only where we lead */
    struct sub sub;
    struct reduction between; /* the codec's work among leaders */
};

/* ---- opening and closing ---- */

static void two_level_close(struct reduction *r, bool failed)
{
    struct two_level *l = r->work;
    sub_cancel(r, &l->sub);
    l->between.error = r->error;
    method_close(&l->between, failed);
    codec_pool_give_all(r->pool, &l->between.blocks);
    if (failed && l->leaders)
        reduction_refuse(r, l->leaders);
    if (failed && l->host)
        reduction_refuse(r, l->host);
}

static int two_level_open(struct reduction *r)
{
    struct two_level *l = reduction_take(r, sizeof *l);
    float *sum = reduction_take(r, r->call.count * sizeof *sum);
    if (!l || !sum)
        return r->error.status;
    memset(l, 0, sizeof *l);
    l->leads = leads_host(group_view(r->call.group->group), r->rank);
    l->sum = sum;
    list_init(&l->between.blocks);
    r->work = l;
    return HEARTH_OK;
}

static int two_level_enter(struct reduction *r)
{
    struct two_level *l = r->work;
    int status = reduction_inner(r, INNER_HOST, &l->host);
    return status == HEARTH_OK && l->leads ? reduction_inner(r, INNER_LEADERS, &l->leaders) : status;
}

/* ---- inside the host ---- */

/* A leader's residual goes through the codec; the others hand theirs over. */
static void load_piece(struct reduction *r, struct two_level *l)
{
    size_t from = l->loaded;
    l->loaded = reduction_load(r, l->leads ? NULL : r->e_old, l->sum, from);
    if (!l->leads && r->e_new)
        memset((float *)r->e_new + from, 0, (l->loaded - from) * sizeof(float));
}

static int reduce_start(struct reduction *r, struct two_level *l)
{
    if (atomic_load(&r->poisoned)) /* what is sent must be numbers; the vote tells all */
        memset(l->sum, 0, r->call.count * sizeof *l->sum);
    struct call call = {.kind = PLAN_REDUCE,
                        .source = l->sum,
                        .target = l->leads ? l->sum : NULL,
                        .count = r->call.count,
                        .dtype = HEARTH_F32,
                        .op = HEARTH_OP_SUM,
                        .in_place = l->leads};
    l->stage = TWO_LEVEL_REDUCE;
    return sub_start(r, l->host, &l->sub, &call, SUB_FIRST);
}

static int broadcast_start(struct reduction *r, struct two_level *l)
{
    struct call call = {.kind = PLAN_BROADCAST,
                        .source = l->sum,
                        .target = l->sum,
                        .count = r->call.count,
                        .dtype = HEARTH_F32,
                        .in_place = true};
    l->stage = TWO_LEVEL_BROADCAST;
    return sub_start(r, l->host, &l->sub, &call, SUB_SECOND);
}

/* ---- between hosts ---- */

static enum reduction_algo path_between(const struct reduction *b)
{
    if (b->method == &method_randomk)
        return REDUCTION_SHARED;
    if (b->method == &method_user)
        return REDUCTION_ALLGATHER;
    if (b->method == &method_block)
        return rounds_algo(b, &b->call.codec, b->call.count);
    return b->size <= 3 ? REDUCTION_ALLGATHER
                        : REDUCTION_OWNER; /* lists: from four on, choosing again sends less */
}

static int between_open(struct reduction *r, struct two_level *l)
{
    struct reduction *b = &l->between;
    b->pool = r->pool;
    b->call = r->call;
    b->call.buffer = l->sum;
    b->call.dtype = HEARTH_F32;
    b->call.op = HEARTH_OP_SUM; /* weights have been counted in */
    b->call.state = NULL;
    b->opts = r->opts;
    b->kernels = r->kernels;
    b->rank = group_rank(l->leaders->group);
    b->size = group_size(l->leaders->group);
    b->now_ns = r->now_ns;
    b->deadline_ns = r->deadline_ns;
    b->compound = r->compound;
    b->key = r->key;
    b->hidden = l->leaders;
    b->e_old = r->e_old;
    b->e_new = r->e_new;
    b->method = method_of_codec(&r->call.codec);
    b->call.algo = path_between(b);
    if (b->method->works_in_shadow && !b->e_new &&
        !(b->e_new = reduction_take(r, b->call.count * sizeof(float))))
        return r->error.status;
    l->stage = TWO_LEVEL_BETWEEN;
    int status = b->method->open(b);
    r->error = b->error;
    return status;
}

static enum step between_step(struct reduction *r, struct two_level *l)
{
    struct reduction *b = &l->between;
    b->now_ns = r->now_ns;
    b->opened = r->opened;
    b->divisor = r->divisor;
    enum step step = b->method->step(b);
    r->awaits = b->awaits == &b->opening_sub ? &r->opening_sub : b->awaits;
    if (atomic_load(&b->poisoned))
        atomic_store(&r->poisoned, true);
    if (step == STEP_FAILED)
        r->error = b->error;
    if (step != STEP_DONE)
        return step;
    if (!r->opened) {
        r->awaits = &r->opening_sub;
        return STEP_WAIT;
    }
    b->method->publish(b); /* into our own memory: nobody sees it yet */
    r->sent_bytes += b->sent_bytes;
    r->compress_ns += b->compress_ns;
    r->expand_ns += b->expand_ns;
    r->energy = b->energy;
    return step_of(broadcast_start(r, l));
}

/* ---- in order ---- */

static int after_sub(struct reduction *r, struct two_level *l)
{
    if (l->stage == TWO_LEVEL_BROADCAST) {
        l->stage = TWO_LEVEL_DONE;
        return HEARTH_OK;
    }
    return l->leads ? between_open(r, l) : broadcast_start(r, l);
}

static enum step two_level_step(struct reduction *r)
{
    struct two_level *l = r->work;
    if (l->stage == TWO_LEVEL_DONE)
        return STEP_DONE;
    if (l->stage == TWO_LEVEL_BETWEEN)
        return between_step(r, l);
    if (l->stage == TWO_LEVEL_LOAD) {
        if (l->loaded < r->call.count) {
            load_piece(r, l);
            return STEP_MORE;
        }
        return step_of(reduce_start(r, l));
    }
    enum step step = sub_await(r, &l->sub);
    return step == STEP_DONE ? step_of(after_sub(r, l)) : step;
}

static void two_level_publish(struct reduction *r)
{
    struct two_level *l = r->work;
    r->kernels->narrow(r->call.dtype, r->call.buffer, l->sum, r->call.count);
}

static size_t two_level_memory(const struct reduction_call *call, int size)
{
    struct reduction_call between = *call;
    between.dtype = HEARTH_F32;
    between.algo = REDUCTION_OWNER;
    return call->count * sizeof(float) + method_of_codec(&call->codec)->memory(&between, size);
}

const struct method method_two_level = {
    .open = two_level_open,
    .enter = two_level_enter,
    .step = two_level_step,
    .publish = two_level_publish,
    .close = two_level_close,
    .memory = two_level_memory,
};
