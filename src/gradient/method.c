/* SPDX-License-Identifier: Apache-2.0 */
/* What methods of a compressed all-reduce share: pieces that run side by side, what they measure and read,
 * and inner groups. Those are all members, those of our host, and one of each host; the first call that needs
 * one makes it, and it is kept. */
#include <string.h>

#include "compress/load.h"
#include "core/derived_id.h"
#include "core/hash.h"
#include "gradient/codec_pool.h"

#define LOAD_COUNT (256u * CODER_BLOCK) /* elements that are loaded in one step */

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

size_t reduction_load(struct reduction *r, const void *residual, void *sum, size_t from)
{
    float acc[CODER_BLOCK];
    struct feed feed = reduction_feed(r);
    size_t left = r->call.count - from, end = from + (left < LOAD_COUNT ? left : LOAD_COUNT);
    feed.e = residual;
    feed.e_new = sum;
    for (size_t count; from < end; from += count) {
        count = end - from < CODER_BLOCK ? end - from : CODER_BLOCK;
        if (load_block(r->kernels, &feed, from, count, acc) > FINITE_MAX)
            atomic_store(&r->poisoned, true);
        stream_block(r->kernels, &feed, from, count, acc);
    }
    r->kernels->stream_end();
    return end;
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

bool leads_host(const struct group_view *view, int rank)
{
    for (int i = 0; i < rank; i++)
        if (view_place(view, i) == view_place(view, rank))
            return false;
    return true;
}

static int ranks_of(const struct group_view *view, int rank, enum inner_kind kind, int *ranks)
{
    int count = 0;
    for (int i = 0; i < view->size; i++)
        if (kind == INNER_ALL ||
            (kind == INNER_LEADERS ? leads_host(view, i) : view_place(view, i) == view_place(view, rank)))
            ranks[count++] = i;
    return count;
}

/* Members that moved to another host are another group. */
static uint64_t id_of(const struct group_view *view, enum inner_kind kind, const int *ranks, int count)
{
    uint64_t all = derived_id(ID_INNER, view->group, 0, 0), hash = 0;
    if (kind == INNER_ALL)
        return all;
    for (int i = 0; i < count; i++)
        hash = hash_mix(hash, (uint64_t)ranks[i]);
    return derived_id(kind == INNER_HOST ? ID_HOST : ID_LEADERS, all, hash, 0);
}

int reduction_inner(struct reduction *r, enum inner_kind kind, hearth_group **out)
{
    hearth_group *outer = r->call.group;
    struct group_view view = *group_view(outer->group), given = view;
    size_t size = (size_t)view.size;
    *out = node_inner(outer, kind);
    if (*out)
        return HEARTH_OK;
    int *ranks = reduction_take(r, 5 * size * sizeof *ranks);
    if (!ranks)
        return r->error.status;
    int *members = ranks + size, *host = members + size, *site = host + size, *order = site + size;
    view.size = ranks_of(&given, r->rank, kind, ranks);
    view.group = id_of(&given, kind, ranks, view.size);
    for (int i = 0; i < view.size; i++) {
        members[i] = group_member(outer->group, ranks[i]);
        host[i] = given.host ? given.host[ranks[i]] : 0;
        site[i] = view_place(&given, ranks[i]);
    }
    if (given.order)
        view_order(&given, ranks, view.size, order);
    view.host = given.host ? host : NULL;
    view.site = given.site ? site : NULL;
    view.order = given.order ? order : NULL;
    int status = node_make_inner(outer, kind, &view, members, out);
    codec_pool_give(r->pool, ranks);
    return status == HEARTH_OK ? status
                               : error_set(&r->error, status, r->rank, "%s", hearth_status_text(status));
}
