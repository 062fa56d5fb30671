/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of a whole tensor, in one pass over memory when it can be guessed where they begin.
 *
 * Whatever is above a lower bound is collected. When there is no more room for it, the `keep` largest so far
 * stay and the bound rises to the least of them: nothing below, nor equal to it with a higher index, can be
 * among the chosen. Half of the room is free again then, so each number is looked at a few times whatever the
 * order they come in. A bound that was too high shows at the end, when too few were collected: once more,
 * with a lower one. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "compress/choose.h"
#include "compress/load.h"
#include "compress/sparse.h"
#include "kernel/sift.h"

#define ROOM_FACTOR  4u /* candidates, in multiples of what is kept */
#define PIECE        4096u
#define STEP         256u
#define CACHE_LINE   64u
#define SAMPLE_PIECE 64u /* short: neighbours are often alike */
#define SAMPLE_MAX   65536u
#define HINT_SHARE   0.94f
#define SAMPLE_SHARE 0.9f /* how far below a sample's bound a hint is listened to */

/* One block more than the multiple: a block is taken whole. */
static size_t room_of(size_t count, size_t keep)
{
    size_t room = keep < (SIZE_MAX - PIECE) / ROOM_FACTOR ? keep * ROOM_FACTOR + PIECE : SIZE_MAX;
    return room < count ? room : count;
}

size_t topk_scratch_len(size_t count, size_t keep)
{
    return room_of(count, keep) * (sizeof(uint32_t) + sizeof(float)) + SIFT_SLACK * sizeof(uint32_t);
}

struct collection {
    const struct topk_job *job;
    size_t keep, room;
    uint32_t least; /* magnitude; what is below is not collected */
    struct sparse all;
};

/* Only what the cut takes stays. */
static void thin_out(struct sparse *list, struct cut cut)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        list->index[count] = list->index[i];
        list->value[count] = list->value[i];
        count += cut_takes(&cut, magnitude(list->value[i]));
    }
    list->count = count;
}

/* Asks for elements [from, to) of the feed, so that memory is busy while those before are looked at. */
static void fetch(const struct feed *feed, size_t from, size_t to)
{
    size_t size = dtype_size(feed->dtype), step = residual_size(feed->dtype);
    const char *x = feed->x, *e = feed->e;
    for (size_t at = from * size; at < to * size; at += CACHE_LINE)
        __builtin_prefetch(x + at, 0, 2);
    for (size_t at = from * step; e && at < to * step; at += CACHE_LINE)
        __builtin_prefetch(e + at, 0, 2);
}

/* Makes room for a block more. */
static void raise_bound(struct collection *c)
{
    struct cut cut = choose_cut(c->all.value, c->all.count, c->keep);
    thin_out(&c->all, cut);
    c->least = cut.bits + 1;
}

/* What there is of interest in elements [offset, offset + count). */
static void collect(struct collection *c, const float *x, size_t offset, size_t count)
{
    struct sparse *all = &c->all;
    uint32_t *index = all->index + all->count;
    float *value = all->value + all->count;
    size_t found = c->job->kernels->sift->pick(x, count, c->least, (uint32_t)offset, index);
    for (size_t i = 0; i < found; i++)
        value[i] = x[index[i] - offset];
    all->count += found;
}

/* Over the whole tensor. `store`: acc also goes to e_new. */
static int pass(struct collection *c, const struct feed *feed, size_t count, bool store)
{
    const struct kernels *kernels = c->job->kernels;
    float acc[PIECE];
    int status = HEARTH_OK;
    c->all.count = 0;
    for (size_t offset = 0; offset < count && status == HEARTH_OK; offset += PIECE) {
        size_t number = count - offset < PIECE ? count - offset : PIECE;
        if (load_block(kernels, feed, offset, number, acc) > FINITE_MAX)
            status = HEARTH_POISONED;
        if (store)
            stream_block(kernels, feed, offset, number, acc);
        if (c->room - c->all.count < number)
            raise_bound(c);
        for (size_t at = 0; at < number; at += STEP) {
            size_t next = offset + PIECE + at, step = number - at < STEP ? number - at : STEP;
            if (next + STEP <= count)
                fetch(feed, next, next + STEP);
            collect(c, acc + at, offset + at, step);
        }
    }
    if (store)
        kernels->stream_end();
    return status;
}

/* A little below what the step before ended with: from one step to the next it moves by less. */
static uint32_t bound_of_hint(const struct topk_hint *hint)
{
    if (!hint || hint->threshold > FINITE_MAX)
        return 0;
    float threshold;
    memcpy(&threshold, &hint->threshold, sizeof threshold);
    return magnitude(threshold * HINT_SHARE);
}

/* What pieces from all over the tensor say, with a margin for chance. The room serves as scratch. */
static uint32_t bound_of_sample(const struct collection *c, const struct feed *feed, size_t count)
{
    size_t most = c->room < SAMPLE_MAX ? c->room : SAMPLE_MAX, pieces = most / SAMPLE_PIECE;
    float *sample = c->all.value;
    if (c->room >= count || pieces == 0 || count < pieces * SAMPLE_PIECE)
        return 0;
    for (size_t p = 0; p < pieces; p++) {
        size_t offset = (size_t)((uint64_t)(count - SAMPLE_PIECE) * p / pieces);
        load_block(c->job->kernels, feed, offset, SAMPLE_PIECE, sample + p * SAMPLE_PIECE);
    }
    double hits = (double)c->keep * (double)(pieces * SAMPLE_PIECE) / (double)count;
    size_t margin = (size_t)(hits + 4 * sqrt(hits)) + 2;
    if (margin >= pieces * SAMPLE_PIECE)
        return 0;
    return choose_cut(sample, pieces * SAMPLE_PIECE, margin).bits;
}

/* A sample knows of the tensor as it is now; the step before is asked only where it is more careful, and not
 * so much more that half of the tensor would be collected. */
static uint32_t first_bound(const struct collection *c, const struct feed *feed, size_t count)
{
    uint32_t sample = bound_of_sample(c, feed, count), hint = bound_of_hint(c->job->hint);
    float low;
    memcpy(&low, &sample, sizeof low);
    bool helps = hint < sample && hint >= magnitude(low * SAMPLE_SHARE);
    return sample == 0 || helps ? hint : sample;
}

/* With one bound after the other until enough is found; 0 is never too high. */
static int gather(struct collection *c, const struct feed *feed, size_t count)
{
    struct feed again = {.dtype = feed->dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32,
                         .x = feed->e_new, /* in place, x + e is there no more */
                         .gain = 1.0f};
    c->least = first_bound(c, feed, count);
    int status = pass(c, feed, count, true);
    if (status == HEARTH_OK && c->all.count < c->keep) {
        c->least = bound_of_sample(c, &again, count);
        status = pass(c, &again, count, false);
    }
    if (status == HEARTH_OK && c->all.count < c->keep) {
        c->least = 0;
        status = pass(c, &again, count, false);
    }
    return status;
}

int topk_select(const struct topk_job *job, const struct feed *feed, size_t count, size_t keep,
                struct sparse *found)
{
    struct collection c = {.job = job, .keep = keep, .room = room_of(count, keep)};
    assert(keep >= 1 && keep <= count && count <= SPARSE_COUNT_MAX && feed->e_new);
    c.all.value = job->scratch;
    c.all.index = (uint32_t *)(void *)(c.all.value + c.room);
    int status = gather(&c, feed, count);
    if (status)
        return status;
    struct cut cut = choose_cut(c.all.value, c.all.count, keep);
    thin_out(&c.all, cut);
    memcpy(found->index, c.all.index, keep * sizeof *found->index);
    memcpy(found->value, c.all.value, keep * sizeof *found->value);
    found->count = keep;
    if (job->hint)
        job->hint->threshold = cut.bits;
    return HEARTH_OK;
}

void sparse_choose(struct sparse *list, size_t keep, struct sparse *rest)
{
    rest->count = 0;
    if (keep >= list->count)
        return;
    struct cut cut = {UINT32_MAX, 0};
    if (keep > 0)
        cut = choose_cut(list->value, list->count, keep);
    size_t stay = 0, go = 0;
    for (size_t i = 0; i < list->count; i++) {
        uint32_t index = list->index[i];
        float value = list->value[i];
        bool takes = cut_takes(&cut, magnitude(value));
        rest->index[go] = index;
        rest->value[go] = value;
        list->index[stay] = index;
        list->value[stay] = value;
        stay += takes;
        go += !takes;
    }
    list->count = stay;
    rest->count = go;
}
