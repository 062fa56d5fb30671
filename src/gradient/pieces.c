/* SPDX-License-Identifier: Apache-2.0 */
/* What methods of a compressed all-reduce share: pieces that run side by side, what they measure and read. */
#include <string.h>

#include "core/hash.h"
#include "gradient/codec_pool.h"

void reduction_compress(struct reduction *r, workers_fn *run, void *arg, size_t pieces)
{
    r->compress_ns += workers_run(codec_pool_workers(r->pool), run, arg, pieces);
}

void reduction_expand(struct reduction *r, workers_fn *run, void *arg, size_t pieces)
{
    r->expand_ns += workers_run(codec_pool_workers(r->pool), run, arg, pieces);
}

struct energy *reduction_energies(struct reduction *r, size_t pieces)
{
    struct energy *energies = reduction_take(r, pieces * sizeof *energies);
    if (energies)
        memset(energies, 0, pieces * sizeof *energies);
    return energies;
}

void reduction_measure(struct reduction *r, const struct energy *energies, size_t pieces)
{
    r->energy = (struct energy){0};
    for (size_t i = 0; i < pieces; i++) {
        r->energy.before += energies[i].before;
        r->energy.after += energies[i].after;
    }
}

struct feed reduction_feed(struct reduction *r)
{
    return (struct feed){
        .dtype = r->call.dtype,
        .x = r->call.buffer,
        .e = r->e_old,
        .e_new = r->e_new,
        .gain = r->call.op == HEARTH_OP_AVG ? (float)r->opts.weight : 1.0f,
        .key = hash_mix(r->key, (uint64_t)r->rank),
    };
}

struct feed feed_at(const struct feed *feed, size_t offset)
{
    struct feed part = *feed;
    size_t step = residual_size(feed->dtype);
    part.x = (const uint8_t *)feed->x + offset * dtype_size(feed->dtype);
    part.e = feed->e ? (const uint8_t *)feed->e + offset * step : NULL;
    part.e_new = feed->e_new ? (uint8_t *)feed->e_new + offset * step : NULL;
    return part;
}
