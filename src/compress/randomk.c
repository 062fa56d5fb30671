/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinates that all members draw alike, and what is done at them.
 *
 * The numbers are those of a Weyl sequence through a mixer (docs/payloads.md, "Drawn numbers"): any of them
 * can be had at once, in any order. A loop over places goes from stratum to stratum by addition; only where
 * it begins does it divide 128 bits. */
#include "compress/randomk.h"

#include <assert.h>
#include <string.h>

#include "compress/load.h"
#include "core/hash.h"

__extension__ typedef unsigned __int128 u128;

#define BATCH 512 /* coordinates that are drawn at once */
#define AHEAD 32  /* of them are fetched before they are needed */

/* Keys are mixed first, so that those of neighbours have nothing in common. */
static uint64_t seed_of(uint64_t key)
{
    return hash_mix(0, key);
}

uint64_t draw_bits(uint64_t key, uint64_t place)
{
    return hash_mix(seed_of(key), place);
}

/* ---- strata -------------------------------------------------------------------------------------------- */

/* One stratum after the other: [begin, end) with begin = floor(place * count / keep). */
struct walk {
    uint64_t seed;
    size_t place, begin, end;
    size_t rest;       /* end * keep + rest = (place + 1) * count */
    size_t quick, odd; /* count = quick * keep + odd */
    size_t keep;
};

static size_t begin_of(const struct draw *draw, size_t place)
{
    return (size_t)((u128)place * draw->count / draw->keep);
}

static struct walk walk_from(const struct draw *draw, size_t place)
{
    assert(draw->keep >= 1 && draw->keep <= draw->count && place <= draw->keep);
    u128 product = ((u128)place + 1) * draw->count;
    return (struct walk){
        .seed = seed_of(draw->key),
        .place = place,
        .begin = begin_of(draw, place),
        .end = (size_t)(product / draw->keep),
        .rest = (size_t)(product % draw->keep),
        .quick = draw->count / draw->keep,
        .odd = draw->count % draw->keep,
        .keep = draw->keep,
    };
}

/* By the upper half of a product: some elements of a stratum of n are likelier by less than n / 2^64. */
static size_t walk_coordinate(const struct walk *w)
{
    uint64_t bits = hash_mix(w->seed, w->place);
    return w->begin + (size_t)((u128)bits * (w->end - w->begin) >> 64);
}

static void walk_on(struct walk *w)
{
    bool carry = w->rest >= w->keep - w->odd;
    w->place++;
    w->begin = w->end;
    w->end += w->quick + carry;
    w->rest = carry ? w->rest - (w->keep - w->odd) : w->rest + w->odd;
}

size_t draw_at(const struct draw *draw, size_t place)
{
    struct walk w = walk_from(draw, place);
    return walk_coordinate(&w);
}

struct span randomk_span(const struct draw *draw, size_t from, size_t to)
{
    return (struct span){begin_of(draw, from), begin_of(draw, to)};
}

/* ---- gather -------------------------------------------------------------------------------------------- */

/* The next coordinates, in order, at most `max` of places below `to` and elements below `limit`. */
static size_t walk_take(struct walk *w, size_t to, size_t limit, size_t *coordinates, size_t max)
{
    size_t count = 0;
    for (; count < max && w->place < to && w->begin < limit; walk_on(w)) {
        size_t at = walk_coordinate(w);
        if (at >= limit)
            break;
        coordinates[count++] = at;
    }
    return count;
}

/* First many are drawn, then taken in a loop that does nothing else: it has more fetches under way than one
 * that draws between them. */
static int gather_in_place(const struct draw *draw, float *x, size_t from, size_t to, float *values)
{
    size_t coordinates[BATCH], count;
    struct walk w = walk_from(draw, from);
    uint32_t largest = 0;
    while ((count = walk_take(&w, to, draw->count, coordinates, BATCH)) > 0)
        for (size_t i = 0; i < count; i++) {
            float *at = x + coordinates[i];
            if (i + AHEAD < count)
                __builtin_prefetch(x + coordinates[i + AHEAD], 1);
            uint32_t bits = magnitude(*at);
            largest = bits > largest ? bits : largest;
            *values++ = *at;
            *at = 0.0f;
        }
    return largest > FINITE_MAX ? HEARTH_POISONED : HEARTH_OK;
}

/* Takes the block's coordinates out of acc. Gives their number. */
static size_t take_block(struct walk *w, size_t to, struct span block, float *acc, float *values)
{
    size_t coordinates[BATCH], taken = 0, count;
    do {
        count = walk_take(w, to, block.to, coordinates, BATCH);
        for (size_t i = 0; i < count; i++) {
            float *at = acc + (coordinates[i] - block.from);
            values[taken++] = *at;
            *at = 0.0f;
        }
    } while (count == BATCH);
    return taken;
}

int randomk_gather(const struct draw *draw, const struct kernels *kernels, const struct feed *feed,
                   size_t from, size_t to, float *values)
{
    assert(from <= to && to <= draw->keep);
    if (from == to)
        return HEARTH_OK;
    if (!feed->e && feed->e_new == feed->x && feed->dtype == HEARTH_F32 && feed->gain == 1.0f)
        return gather_in_place(draw, feed->e_new, from, to, values);

    struct span span = randomk_span(draw, from, to), block = {span.from, span.from};
    struct walk w = walk_from(draw, from);
    float acc[CODER_BLOCK];
    uint32_t largest = 0;
    for (size_t number = 0; block.from < span.to; block.from = block.to, number++) {
        size_t count = span.to - block.from < CODER_BLOCK ? span.to - block.from : CODER_BLOCK;
        bool counted = feed->energy && number % 16 == 0;
        block.to = block.from + count;
        uint32_t bits = load_block(kernels, feed, block.from, count, acc);
        largest = bits > largest ? bits : largest;
        if (counted)
            feed->energy->before += squares(HEARTH_F32, acc, 0, count);
        values += take_block(&w, to, block, acc, values);
        if (counted)
            feed->energy->after += squares(HEARTH_F32, acc, 0, count);
        stream_block(kernels, feed, block.from, count, acc);
    }
    kernels->stream_end();
    return largest > FINITE_MAX ? HEARTH_POISONED : HEARTH_OK;
}

/* ---- back to the tensor -------------------------------------------------------------------------------- */

void randomk_scatter(const struct draw *draw, const struct kernels *kernels, const float *values, size_t from,
                     size_t to, const struct randomk_out *out)
{
    assert(from <= to && to <= draw->keep);
    if (from == to)
        return;
    struct span span = randomk_span(draw, from, to);
    struct walk w = walk_from(draw, from);
    float block[CODER_BLOCK] = {0};
    for (size_t begin = span.from, count; begin < span.to; begin += count) {
        count = span.to - begin < CODER_BLOCK ? span.to - begin : CODER_BLOCK;
        struct walk again = w;
        size_t at;
        while (walk_take(&w, to, begin + count, &at, 1) == 1)
            block[at - begin] = *values++ * out->factor / out->divisor;
        put_block(kernels, out->dtype, out->out, begin, count, block);
        while (walk_take(&again, to, begin + count, &at, 1) == 1)
            block[at - begin] = 0.0f;
    }
}

void randomk_leave(const struct draw *draw, const float *error, size_t from, size_t to,
                   enum hearth_dtype dtype, void *residual)
{
    assert(from <= to && to <= draw->keep);
    size_t coordinates[BATCH], count;
    if (from == to)
        return;
    struct walk w = walk_from(draw, from);
    while ((count = walk_take(&w, to, draw->count, coordinates, BATCH)) > 0) {
        for (size_t i = 0; i < count; i++)
            if (dtype == HEARTH_F64)
                ((double *)residual)[coordinates[i]] += (double)error[i];
            else
                ((float *)residual)[coordinates[i]] += error[i];
        error += count;
    }
}
