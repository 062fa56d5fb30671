/* SPDX-License-Identifier: Apache-2.0 */
/* topk over a whole tensor: lists of chosen elements.
 *
 *   REDUCTION_ALLGATHER  each list goes to all, who add them in rank order
 *   REDUCTION_OWNER      the tensor has one part for each member. All tell how many of their chosen lie in
 *                        each part, then the parts of the lists go to their owners, who add them in rank
 *                        order, choose again, keep the rest in their residual, and send their choice to all
 *
 * Sums stay lists until the end: the buffer is written only when everything has been found good. */
#include <string.h>

#include "compress/load.h"
#include "core/bytes.h"
#include "gradient/codec_pool.h"
#include "gradient/round_cut.h"

enum { TOPK_METHOD_SELECT, TOPK_METHOD_COUNTS, TOPK_METHOD_EXCHANGE, TOPK_METHOD_GATHER, TOPK_METHOD_DONE };

struct whole {
    int stage;
    int status; /* of the last one */
    struct sub sub;
    struct sparse found; /* ours; later what coding them lost */
    struct sparse sum;   /* of all; its indices are those of the tensor */
    uint32_t *counts;    /* [size][size]: how many of whose chosen lie in which part */
    uint8_t *send, *got, *all;
    size_t *send_len, *got_len; /* [size] */
    size_t gather_len;          /* bytes of each in `all` */
};

/* Lists have other lengths in every step: a little more, so that a block of the last one serves again. */
static size_t roomy(size_t len)
{
    size_t grain = 1;
    while (grain <= len / 16)
        grain *= 2;
    return align_up(len, grain);
}

static size_t part_begin(const struct reduction *r, int part)
{
    return share_at(r->call.count, (size_t)part, (size_t)r->size);
}

static size_t part_count(const struct reduction *r, int part)
{
    return part_begin(r, part + 1) - part_begin(r, part);
}

/* An owner chooses as many of its part as the codec keeps of so many elements. */
static size_t owner_len(const struct reduction *r, int part)
{
    size_t count = part_count(r, part);
    return CHOSEN_HEAD + sparse_len(&r->call.codec, codec_keeps(&r->call.codec, count), count);
}

static bool list_make(struct reduction *r, size_t room, struct sparse *list)
{
    uint8_t *block = reduction_take(r, room * (sizeof *list->index + sizeof *list->value));
    if (block)
        *list = (struct sparse){.index = (uint32_t *)(void *)block,
                                .value = (float *)(void *)(block + room * sizeof *list->index)};
    return block;
}

static int topk_method_open(struct reduction *r)
{
    size_t keep = codec_keeps(&r->call.codec, r->call.count);
    struct whole *w = reduction_take(r, sizeof *w);
    struct sparse found, sum;
    if (!w || !list_make(r, keep, &found) || !list_make(r, keep * (size_t)r->size, &sum))
        return r->error.status;
    *w = (struct whole){.found = found, .sum = sum};
    r->work = w;
    return HEARTH_OK;
}

static void topk_method_close(struct reduction *r, bool failed)
{
    struct whole *w = r->work;
    (void)failed; /* the buffer is written by publish only */
    sub_cancel(r, &w->sub);
}

/* ---- our own choice ---- */

/* Nobody will use it, but all must go on until the vote. */
static void choose_zeros(struct sparse *found, size_t keep)
{
    for (size_t i = 0; i < keep; i++) {
        found->index[i] = (uint32_t)i;
        found->value[i] = 0;
    }
    found->count = keep;
}

#define ENERGY_EVERY ((size_t)16) /* blocks */

/* The shadow holds the sums of input and residual still; what was found will leave it. */
static void measure(struct reduction *r, const struct sparse *found)
{
    struct energy energy = {0};
    for (size_t first = 0; first < r->call.count; first += ENERGY_EVERY * CODER_BLOCK) {
        size_t left = r->call.count - first, count = left < CODER_BLOCK ? left : CODER_BLOCK;
        energy.before += squares(r->call.dtype, r->e_new, first, count);
    }
    energy.after = energy.before;
    for (size_t i = 0; i < found->count; i++)
        if (found->index[i] / CODER_BLOCK % ENERGY_EVERY == 0)
            energy.after -= (double)found->value[i] * (double)found->value[i];
    energy.after = energy.after > 0 ? energy.after : 0;
    r->energy = energy;
}

static int select_own(struct reduction *r, struct whole *w)
{
    size_t keep = codec_keeps(&r->call.codec, r->call.count);
    struct feed feed = reduction_feed(r);
    struct topk_job job = {.kernels = r->kernels,
                           .scratch = reduction_take(r, topk_scratch_len(r->call.count, keep)),
                           .hint = r->call.state ? &r->call.state->hint : NULL};
    if (!job.scratch)
        return r->error.status;
    if (topk_select(&job, &feed, r->call.count, keep, &w->found) == HEARTH_POISONED) {
        atomic_store(&r->poisoned, true);
        choose_zeros(&w->found, keep);
    } else {
        measure(r, &w->found);
    }
    codec_pool_give(r->pool, job.scratch);
    return HEARTH_OK;
}

/* Entries of `list` in [first, first + count) of the tensor, as a list of their own: indices from 0. */
static struct sparse slice_take(const struct sparse *list, size_t *at, size_t first, size_t count)
{
    struct sparse slice = {.index = list->index + *at, .value = list->value + *at};
    while (*at + slice.count < list->count && list->index[*at + slice.count] < first + count)
        slice.index[slice.count++] -= (uint32_t)first;
    *at += slice.count;
    return slice;
}

static void residual_add(struct reduction *r, size_t first, const struct sparse *list)
{
    sparse_add(list, r->call.dtype, (uint8_t *)r->e_new + first * residual_size(r->call.dtype));
}

/* What was sent of the slice leaves the residual, but for what coding it has lost. */
static void slice_send(struct reduction *r, size_t first, size_t count, struct sparse *slice, uint8_t *bytes)
{
    sparse_encode(&r->call.codec, r->kernels, slice, count, bytes);
    size_t step = residual_size(r->call.dtype);
    sparse_put(slice, r->call.dtype, (uint8_t *)r->e_new + first * step);
}

/* ---- by all_gather ---- */

static int gather_start(struct reduction *r, struct whole *w)
{
    w->gather_len = sparse_len(&r->call.codec, w->found.count, r->call.count);
    w->all = reduction_take(r, w->gather_len * (size_t)r->size);
    if (!w->all)
        return r->error.status;
    slice_send(r, 0, r->call.count, &w->found, w->all + (size_t)r->rank * w->gather_len);
    r->sent_bytes += w->gather_len * (size_t)(r->size - 1);
    w->stage = TOPK_METHOD_GATHER;
    return sub_all_gather(r, &w->sub, w->all, w->gather_len, SUB_SECOND);
}

/* Decodes lists out of bytes that stand one after the other, and adds them in order. */
static int lists_add(struct reduction *r, struct whole *w, const uint8_t *bytes, const size_t *counts,
                     size_t range)
{
    size_t total = 0;
    for (int i = 0; i < r->size; i++)
        total += counts[i];
    struct sparse *lists = reduction_take(r, (size_t)r->size * sizeof *lists), room;
    if (!lists || !list_make(r, roomy(total), &room))
        return r->error.status;
    for (int i = 0; i < r->size; i++) {
        lists[i] = room;
        lists[i].count = counts[i];
        struct error found;
        if (sparse_decode(&r->call.codec, r->kernels, bytes, range, &lists[i], &found) != HEARTH_OK)
            return reduction_blame(r, i, found.text);
        bytes += sparse_len(&r->call.codec, counts[i], range);
        room.index += counts[i];
        room.value += counts[i];
    }
    sparse_merge(lists, r->size, &w->sum);
    return HEARTH_OK;
}

static int gather_end(struct reduction *r, struct whole *w)
{
    size_t *counts = reduction_take(r, (size_t)r->size * sizeof *counts);
    if (!counts)
        return r->error.status;
    for (int i = 0; i < r->size; i++)
        counts[i] = w->found.count;
    return lists_add(r, w, w->all, counts, r->call.count);
}

/* ---- by owners ---- */

static int counts_start(struct reduction *r, struct whole *w)
{
    size_t size = (size_t)r->size, at = 0;
    size_t cells = size * size + (size & 1); /* even, for what stands behind them */
    w->counts = reduction_take(r, cells * sizeof *w->counts + 2 * size * sizeof(size_t));
    if (!w->counts)
        return r->error.status;
    w->send_len = (size_t *)(void *)(w->counts + cells);
    w->got_len = w->send_len + size;
    uint32_t *own = w->counts + (size_t)r->rank * size;
    for (int p = 0; p < r->size; p++) {
        size_t end = part_begin(r, p + 1), before = at;
        while (at < w->found.count && w->found.index[at] < end)
            at++;
        own[p] = (uint32_t)(at - before);
    }
    w->stage = TOPK_METHOD_COUNTS;
    r->sent_bytes += size * sizeof *w->counts * (size - 1);
    return sub_all_gather(r, &w->sub, w->counts, size * sizeof *w->counts, SUB_FIRST);
}

/* No list has more entries than the member chose, no part more than elements. */
static int counts_check(struct reduction *r, const struct whole *w)
{
    for (int i = 0; i < r->size; i++) {
        uint64_t sum = 0;
        bool good = true;
        for (int p = 0; p < r->size; p++) {
            uint32_t count = w->counts[i * r->size + p];
            good = good && count <= part_count(r, p);
            sum += count;
        }
        if (!good || sum != w->found.count)
            return reduction_blame(r, i, "it says how much it sends, and that cannot be");
    }
    return HEARTH_OK;
}

static int exchange_start(struct reduction *r, struct whole *w)
{
    const struct codec *codec = &r->call.codec;
    int status = counts_check(r, w);
    if (status != HEARTH_OK)
        return status;
    size_t send = 0, got = 0;
    for (int i = 0; i < r->size; i++) {
        w->send_len[i] = sparse_len(codec, w->counts[r->rank * r->size + i], part_count(r, i));
        w->got_len[i] = sparse_len(codec, w->counts[i * r->size + r->rank], part_count(r, r->rank));
        send += w->send_len[i];
        got += w->got_len[i];
    }
    w->send = reduction_take(r, roomy(send));
    w->got = reduction_take(r, roomy(got));
    if (!w->send || !w->got)
        return r->error.status;
    uint8_t *bytes = w->send;
    size_t at = 0;
    for (int p = 0; p < r->size; p++) {
        struct sparse slice = slice_take(&w->found, &at, part_begin(r, p), part_count(r, p));
        slice_send(r, part_begin(r, p), part_count(r, p), &slice, bytes);
        bytes += w->send_len[p];
    }
    r->sent_bytes += send - w->send_len[r->rank];
    struct call call = {.kind = PLAN_ALL_TO_ALL,
                        .source = w->send,
                        .target = w->got,
                        .in_counts = w->send_len,
                        .out_counts = w->got_len,
                        .vector = true,
                        .dtype = HEARTH_U8};
    w->stage = TOPK_METHOD_EXCHANGE;
    return sub_start(r, r->hidden, &w->sub, &call, SUB_FIRST);
}

static bool overflown(const struct reduction *r, const struct sparse *list)
{
    return r->kernels->quant->largest(list->value, list->count) > FINITE_MAX;
}

/* The owner's work: add, choose again, keep the rest. */
static int choose_again(struct reduction *r, struct whole *w, bool *overflows)
{
    size_t range = part_count(r, r->rank), first = part_begin(r, r->rank);
    size_t keep = codec_keeps(&r->call.codec, range);
    size_t *counts = w->send_len; /* no longer needed for that */
    for (int i = 0; i < r->size; i++)
        counts[i] = w->counts[i * r->size + r->rank];
    int status = lists_add(r, w, w->got, counts, range);
    if (status != HEARTH_OK)
        return status;
    *overflows = overflown(r, &w->sum);
    if (*overflows)
        w->sum.count = 0;
    if (w->sum.count <= keep)
        return HEARTH_OK;
    struct sparse rest;
    if (!list_make(r, roomy(w->sum.count), &rest))
        return r->error.status;
    sparse_choose(&w->sum, keep, &rest);
    if (r->call.feedback)
        residual_add(r, first, &rest);
    return HEARTH_OK;
}

/* What we chose of our part goes to all. */
static int chosen_start(struct reduction *r, struct whole *w)
{
    bool overflows = false;
    int status = choose_again(r, w, &overflows);
    if (status != HEARTH_OK)
        return status;
    for (int p = 0; p < r->size; p++)
        w->gather_len = owner_len(r, p) > w->gather_len ? owner_len(r, p) : w->gather_len;
    w->all = reduction_take(r, w->gather_len * (size_t)r->size);
    if (!w->all)
        return r->error.status;
    uint8_t *own = w->all + (size_t)r->rank * w->gather_len;
    memset(own, 0, w->gather_len);
    store_u32(own, (uint32_t)w->sum.count);
    store_u32(own + 4, overflows);
    sparse_encode(&r->call.codec, r->kernels, &w->sum, part_count(r, r->rank), own + CHOSEN_HEAD);
    if (r->call.feedback)
        residual_add(r, part_begin(r, r->rank), &w->sum);
    r->sent_bytes += w->gather_len * (size_t)(r->size - 1);
    w->stage = TOPK_METHOD_GATHER;
    return sub_all_gather(r, &w->sub, w->all, w->gather_len, SUB_SECOND);
}

/* The parts stand in the tensor's order, so their lists are one list. */
static int chosen_end(struct reduction *r, struct whole *w)
{
    struct sparse room = {.index = w->sum.index, .value = w->sum.value};
    bool overflows = false;
    for (int p = 0; p < r->size; p++) {
        const uint8_t *bytes = w->all + (size_t)p * w->gather_len;
        size_t count = load_u32(bytes), range = part_count(r, p);
        if (count > codec_keeps(&r->call.codec, range) || load_u32(bytes + 4) > 1)
            return reduction_blame(r, p, "it chose more of its part than there may be");
        overflows = overflows || load_u32(bytes + 4) == 1;
        struct sparse list = {count, room.index, room.value};
        struct error found;
        if (sparse_decode(&r->call.codec, r->kernels, bytes + CHOSEN_HEAD, range, &list, &found) != HEARTH_OK)
            return reduction_blame(r, p, found.text);
        for (size_t i = 0; i < count; i++)
            list.index[i] += (uint32_t)part_begin(r, p);
        room.index += count;
        room.value += count;
    }
    w->sum.count = (size_t)(room.index - w->sum.index);
    return overflows ? reduction_poison(r) : HEARTH_OK;
}

/* ---- in order ---- */

static int next(struct reduction *r, struct whole *w)
{
    bool owner = r->call.algo == REDUCTION_OWNER;
    int status;
    switch (w->stage) {
    case TOPK_METHOD_SELECT:
        status = select_own(r, w);
        if (status != HEARTH_OK)
            return status;
        return owner ? counts_start(r, w) : gather_start(r, w);
    case TOPK_METHOD_COUNTS:
        return exchange_start(r, w);
    case TOPK_METHOD_EXCHANGE:
        return chosen_start(r, w);
    default:
        w->stage = TOPK_METHOD_DONE;
        status = owner ? chosen_end(r, w) : gather_end(r, w);
        return status == HEARTH_OK && overflown(r, &w->sum) ? reduction_poison(r) : status;
    }
}

static void next_stage(void *arg, size_t piece)
{
    struct reduction *r = arg;
    struct whole *w = r->work;
    (void)piece; /* it is one */
    w->status = next(r, w);
}

static enum step topk_method_step(struct reduction *r)
{
    struct whole *w = r->work;
    if (w->stage == TOPK_METHOD_DONE)
        return STEP_DONE;
    enum step step = w->stage != TOPK_METHOD_SELECT ? sub_await(r, &w->sub) : STEP_DONE;
    if (step != STEP_DONE)
        return step;
    if (w->stage == TOPK_METHOD_SELECT || w->stage == TOPK_METHOD_COUNTS)
        reduction_compress(r, next_stage, r, 1);
    else
        reduction_expand(r, next_stage, r, 1);
    return step_of(w->status);
}

static void topk_method_publish(struct reduction *r)
{
    struct whole *w = r->work;
    if (r->divisor != 1.0f)
        r->kernels->divide(HEARTH_F32, w->sum.value, w->sum.count, (double)r->divisor);
    sparse_write(&w->sum, r->kernels, r->call.dtype, r->call.count, r->call.buffer);
}

static size_t topk_method_memory(const struct reduction_call *call, int size)
{
    size_t keep = codec_keeps(&call->codec, call->count), entry = sizeof(uint32_t) + sizeof(float);
    size_t bytes = sparse_len(&call->codec, keep, call->count);
    /* Lists: found, sum, those of all, the rest; bytes: sent, got, of all. */
    return keep * entry * (1 + 3 * (size_t)size) + bytes * (2 + (size_t)size) +
           topk_scratch_len(call->count, keep) +
           (call->feedback ? 0 : call->count * residual_size(call->dtype));
}

const struct method method_topk = {
    .open = topk_method_open,
    .step = topk_method_step,
    .publish = topk_method_publish,
    .close = topk_method_close,
    .memory = topk_method_memory,
    .works_in_shadow = true,
};
