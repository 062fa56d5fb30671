/* SPDX-License-Identifier: Apache-2.0 */
/* What a compressor keeps: forgetting, scaling, saving, loading, counting and explaining it. All under its
 * lock and, but for explaining, only while no operation uses it. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compress/load.h"
#include "core/sized.h"
#include "gradient/compressor.h"
#include "gradient/snapshot.h"

#define SCALE_MIN 1e-30 /* within, a factor is a number in f32 too */
#define SCALE_MAX 1e30

/* ---- which tensors are meant ---- */

struct selection {
    struct tensor *one; /* the one that was named */
    struct tensor *const *item;
    size_t count;
};

static int unknown_error(const char *name, struct error *error)
{
    return error_set(error, HEARTH_INVALID, RANK_NONE, "there is no tensor '%.*s'", TENSOR_NAME_MAX, name);
}

/* One tensor, or all (name NULL), none of them in flight. */
static int select_tensors(const hearth_compressor *c, const char *name, struct selection *selected,
                          struct error *error)
{
    *selected = (struct selection){.item = c->tensors.item, .count = c->tensors.count};
    if (name) {
        selected->one = tensors_find(&c->tensors, name);
        selected->item = &selected->one;
        selected->count = 1;
        if (!selected->one)
            return unknown_error(name, error);
    }
    for (size_t i = 0; i < selected->count; i++)
        if (selected->item[i]->in_flight != 0)
            return error_set(error, HEARTH_INVALID, RANK_NONE,
                             "tensor '%s' is in an operation that has not ended", selected->item[i]->name);
    return HEARTH_OK;
}

/* HEARTH_OK: the tensors are selected, and the lock is held until state_end. */
static int state_begin(hearth_compressor *c, const char *call, const char *name, struct selection *selected)
{
    struct error error;
    int status = compressor_check(call, c);
    if (status != HEARTH_OK)
        return status;
    mutex_lock(&c->lock);
    status = select_tensors(c, name, selected, &error);
    if (status == HEARTH_OK)
        return HEARTH_OK;
    mutex_unlock(&c->lock);
    return error_call_because(call, &error);
}

static int state_end(hearth_compressor *c)
{
    mutex_unlock(&c->lock);
    return HEARTH_OK;
}

/* ---- forgetting and scaling ---- */

int hearth_compressor_reset(hearth_compressor *compressor, const char *name)
{
    struct selection selected;
    int status = state_begin(compressor, "compressor_reset", name, &selected);
    if (status != HEARTH_OK)
        return status;
    if (name)
        tensors_remove(&compressor->tensors, selected.one);
    else
        tensors_fini(&compressor->tensors);
    return state_end(compressor);
}

static double largest_of(const struct tensor_state *state)
{
    double largest = 0;
    if (!state->residual)
        return 0;
    if (state->dtype != HEARTH_F64) {
        uint32_t bits = kernels_best()->quant->largest(state->residual, state->count);
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        return (double)magnitude;
    }
    for (size_t i = 0; i < state->count; i++) {
        double magnitude = fabs(((const double *)state->residual)[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static void scale_one(const struct kernels *kernels, const struct tensor_state *state, void *residual,
                      double factor)
{
    enum hearth_dtype dtype = state->dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32;
    if (residual)
        kernels->multiply(dtype, residual, state->count, factor);
}

/* All or none: a residual that left f32 would poison every later step. */
static int scale_all(const struct selection *selected, double factor, struct error *error)
{
    const struct kernels *kernels = kernels_best();
    for (size_t i = 0; i < selected->count; i++)
        if (!(largest_of(&selected->item[i]->state) * factor <= (double)FLT_MAX / 2))
            return error_set(error, HEARTH_INVALID, RANK_NONE,
                             "factor %g would take the residual of tensor '%s' beyond f32", factor,
                             selected->item[i]->name);
    uint64_t mode = fpmode_enter();
    for (size_t i = 0; i < selected->count; i++) {
        struct tensor_state *state = &selected->item[i]->state;
        scale_one(kernels, state, state->residual, factor);
        if (state->undo.there && state->undo.residual) /* what the last step has replaced */
            scale_one(kernels, state, state->shadow, factor);
    }
    fpmode_leave(mode);
    return HEARTH_OK;
}

int hearth_compressor_scale(hearth_compressor *compressor, double factor)
{
    static const char what[] = "compressor_scale";
    struct selection selected;
    struct error error;
    if (compressor && !(factor >= SCALE_MIN && factor <= SCALE_MAX))
        return error_call(what, HEARTH_INVALID, "factor is %g; it must be from %g to %g", factor, SCALE_MIN,
                          SCALE_MAX);
    int status = state_begin(compressor, what, NULL, &selected);
    if (status != HEARTH_OK)
        return status;
    status = scale_all(&selected, factor, &error);
    state_end(compressor);
    return status == HEARTH_OK ? HEARTH_OK : error_call_because(what, &error);
}

/* ---- saving and loading ---- */

static struct snapshot_owner owner_of(const hearth_compressor *c)
{
    const struct group *group = c->group->group;
    return (struct snapshot_owner){.rank = group_rank(group), .size = group_size(group), .seed = c->seed};
}

int64_t hearth_compressor_save(hearth_compressor *compressor, void *buffer, size_t size)
{
    static const char what[] = "compressor_save";
    struct selection selected;
    if (compressor && !buffer && size > 0)
        return error_call(what, HEARTH_INVALID, "buffer is NULL");
    int status = state_begin(compressor, what, NULL, &selected);
    if (status != HEARTH_OK)
        return status;
    struct snapshot_owner owner = owner_of(compressor);
    size_t len = snapshot_len(&compressor->tensors);
    if (len <= size)
        snapshot_encode(&compressor->tensors, &owner, buffer);
    state_end(compressor);
    return (int64_t)len;
}

int hearth_compressor_load(hearth_compressor *compressor, const void *buffer, size_t len)
{
    static const char what[] = "compressor_load";
    struct snapshot_owner saved, own;
    struct tensors loaded;
    struct selection selected;
    struct error error;
    int status = compressor_check(what, compressor);
    if (status != HEARTH_OK)
        return status;
    if (!buffer)
        return error_call(what, HEARTH_INVALID, "buffer is NULL");
    tensors_init(&loaded, compressor->node->heap);
    if (snapshot_decode(&loaded, &saved, buffer, len, &error) != HEARTH_OK)
        return error_call_because(what, &error);
    own = owner_of(compressor);
    if (saved.rank != own.rank || saved.size != own.size)
        status = error_call(what, HEARTH_INVALID,
                            "saved by rank %d of %d; this is rank %d of %d, and every rank has its own",
                            saved.rank, saved.size, own.rank, own.size);
    else
        status = state_begin(compressor, what, NULL, &selected);
    if (status == HEARTH_OK) {
        struct tensors old = compressor->tensors;
        compressor->tensors = loaded;
        compressor->seed = saved.seed;
        loaded = old;
        state_end(compressor);
    }
    tensors_fini(&loaded);
    return status;
}

/* ---- counting ---- */

/* 1 where nothing was left behind, or nothing was put in. */
static double captured_of(const struct energy *energy)
{
    double share = energy->before > 0 ? 1 - energy->after / energy->before : 1;
    return share > 0 ? share : 0;
}

static void count_all(const struct selection *selected, struct hearth_compressor_stats *stats)
{
    struct energy energy = {0};
    double square = 0;
    *stats = (struct hearth_compressor_stats){.tensors = selected->count};
    for (size_t i = 0; i < selected->count; i++) {
        const struct tensor_state *state = &selected->item[i]->state;
        stats->steps += state->step;
        stats->plain_bytes += state->plain_bytes;
        stats->sent_bytes += state->sent_bytes;
        energy.before += state->energy.before;
        energy.after += state->energy.after;
        if (state->residual)
            square += squares(state->dtype, state->residual, 0, state->count);
    }
    if (stats->sent_bytes > 0)
        stats->ratio = (double)stats->plain_bytes / (double)stats->sent_bytes;
    stats->captured = captured_of(&energy);
    stats->residual_norm = sqrt(square);
}

int hearth_compressor_stats(hearth_compressor *compressor, const char *name,
                            struct hearth_compressor_stats *stats)
{
    static const char what[] = "compressor_stats";
    struct hearth_compressor_stats found;
    struct selection selected;
    int status = compressor ? sized_check(stats, what, "stats", error_last()) : HEARTH_OK;
    if (status == HEARTH_OK)
        status = state_begin(compressor, what, name, &selected);
    if (status != HEARTH_OK)
        return status;
    count_all(&selected, &found);
    sized_write(stats, stats->size, &found, sizeof found);
    return state_end(compressor);
}

/* ---- explaining ---- */

static int explain(const hearth_compressor *c, const struct tensor *tensor, char *text, size_t size)
{
    char form[TENSOR_TEXT_MAX], cost[POLICY_TEXT_MAX], why[POLICY_TEXT_MAX];
    struct policy_question question = compressor_question(tensor);
    struct policy_answer answer;
    struct reduction_choice choice;
    compressor_choose(c, &question, tensor, &answer, &choice);
    policy_reason(&c->policy, &question, &answer, why, sizeof why);
    tensor_form_text(&tensor->form, form, sizeof form);
    reduction_reason(&choice, cost, sizeof cost);
    return snprintf(text, size, "%s, %s: %s (%s)", tensor->name, form, cost, why);
}

int64_t hearth_compressor_explain(hearth_compressor *compressor, const char *name, char *buffer, size_t size)
{
    static const char what[] = "compressor_explain";
    struct error error;
    int status = compressor_check(what, compressor);
    if (status != HEARTH_OK)
        return status;
    if (!name || (!buffer && size > 0))
        return error_call(what, HEARTH_INVALID, "name or buffer is NULL");
    mutex_lock(&compressor->lock);
    const struct tensor *tensor = tensors_find(&compressor->tensors, name);
    status = tensor ? explain(compressor, tensor, buffer, size) : unknown_error(name, &error);
    mutex_unlock(&compressor->lock);
    return status >= 0 ? status : error_call_because(what, &error);
}
