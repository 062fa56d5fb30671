/* SPDX-License-Identifier: Apache-2.0 */
/* Calls made of other collectives: splitting a group, comparing bytes. And the accessors. */
#include <string.h>

#include "core/derived_id.h"
#include "core/hash.h"
#include "node/call.h"
#include "node/cluster_groups.h"
#include "node/copier.h"

int hearth_group_rank(const hearth_group *group)
{
    return group ? group_rank(group->group)
                 : error_set(error_last(), HEARTH_INVALID, RANK_NONE, "group_rank: group is NULL");
}

int hearth_group_size(const hearth_group *group)
{
    return group ? group_size(group->group)
                 : error_set(error_last(), HEARTH_INVALID, RANK_NONE, "group_size: group is NULL");
}

hearth_group *hearth_node_world(hearth_node *node)
{
    return node && !node_forked(node) ? &node->world : NULL;
}

static size_t own_metrics(hearth_node *node, char *buffer, size_t size)
{
    const char *names[METRICS_KINDS];
    for (int i = 0; i < METRICS_KINDS; i++)
        names[i] = plan_kind_name((enum plan_kind)i);
    atomic_store(&node->metrics.uptime_ns, clock_now(&node->clock) - node->opened_ns);
    return metrics_text(&node->metrics, node->heap, names, buffer, size);
}

/* A node of a home cluster reports its last formed group, and the cluster. */
static size_t cluster_and_work(struct cluster_groups *r, char *buffer, size_t size)
{
    mutex_lock(&r->lock);
    struct cluster_group *last = list_empty(&r->cluster_group)
                                     ? NULL
                                     : container_of(r->cluster_group.prev, struct cluster_group, item);
    size_t len = own_metrics(last ? last->inner : r->node, buffer, size);
    mutex_unlock(&r->lock);
    bool room = len < size;
    return len + (size_t)cluster_metrics(r->cluster, room ? buffer + len : NULL, room ? size - len : 0);
}

int64_t hearth_node_metrics_text(hearth_node *node, char *buffer, size_t size)
{
    if (!node || (!buffer && size > 0))
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "metrics_text: node or buffer is NULL");
    if (node_forked(node))
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "metrics_text: %s",
                         hearth_status_text(HEARTH_FORKED));
    return (int64_t)(node->cluster_groups ? cluster_and_work(node->cluster_groups, buffer, size)
                                          : own_metrics(node, buffer, size));
}

int hearth_group_traffic(hearth_group *group, uint64_t *sent, uint64_t *received)
{
    if (!group || !sent || !received)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "traffic: group, sent or received is NULL");
    if (node_forked(group->node))
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "traffic: %s",
                         hearth_status_text(HEARTH_FORKED));
    *sent = atomic_load_explicit(&group->node->metrics.bytes_sent, memory_order_relaxed);
    *received = atomic_load_explicit(&group->node->metrics.bytes_received, memory_order_relaxed);
    return HEARTH_OK;
}

/* ---- split ---- */

/* A member's record in a split. */
struct split_key {
    int64_t color, key;
    uint64_t splits; /* number of its splits */
};

/* The split_keys of all members; the array is on the node's heap. */
static int split_keys_gather(hearth_group *group, const struct split_key *own,
                             const struct hearth_opts *given, struct split_key **out)
{
    struct hearth_opts opts;
    int status = call_opts_read("group_split", given, &opts);
    if (status != HEARTH_OK)
        return status;
    opts.memory = &memory_host;
    size_t size = (size_t)hearth_group_size(group);
    struct split_key *all = heap_alloc(group->node->heap, size, sizeof *all);
    if (!all)
        return error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "group_split: no memory");
    struct call call = {
        .kind = PLAN_ALL_GATHER,
        .source = own,
        .target = all,
        .count = sizeof *own / sizeof(int64_t),
        .dtype = HEARTH_I64,
    };
    status = call_run(group, &call, &opts);
    if (status != HEARTH_OK)
        heap_free(all);
    else
        *out = all;
    return status;
}

static bool goes_before(const struct split_key *all, int a, int b)
{
    return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
}

/* Ranks in the parent with our color, in the order of the new group. */
static int members_of(const struct split_key *all, int size, int64_t color, int *members)
{
    int count = 0;
    for (int i = 0; i < size; i++) {
        if (all[i].color != color)
            continue;
        int at = count++;
        while (at > 0 && goes_before(all, i, members[at - 1])) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = i;
    }
    return count;
}

static int child_open(hearth_group *parent, const struct split_key *all, const struct split_key *own,
                      uint64_t number, hearth_group **out)
{
    int size = hearth_group_size(parent);
    int *members = heap_alloc(parent->node->heap, 4 * (size_t)size, sizeof *members);
    if (!members)
        return error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "group_split: no memory");
    int *host = members + size, *site = host + size, *order = site + size;
    struct group_view view = *group_view(parent->group);
    int count = members_of(all, size, own->color, members);
    view_order(&view, members, count, order);
    for (int i = 0; i < count; i++) {
        host[i] = view.host ? view.host[members[i]] : 0;
        site[i] = view_place(&view, members[i]);
        members[i] = group_member(parent->group, members[i]);
    }
    view.group = derived_id(ID_SPLIT, view.group, number, (uint64_t)own->color);
    view.size = count;
    view.host = view.host ? host : NULL;
    view.site = view.site ? site : NULL;
    view.order = view.order ? order : NULL;
    int status = node_group(parent->node, &view, members, out);
    heap_free(members);
    if (status == HEARTH_OK)
        (*out)->memory = parent->memory;
    else
        error_set(error_last(), status, RANK_NONE, "group_split: %s", hearth_status_text(status));
    return status;
}

int hearth_group_split(hearth_group *group, int color, int key, const struct hearth_opts *opts,
                       hearth_group **out)
{
    struct split_key *all = NULL;
    if (!group || !out)
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "group_split: %s is NULL",
                         group ? "out" : "group");
    if (node_forked(group->node))
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "group_split: %s",
                         hearth_status_text(HEARTH_FORKED));
    mutex_lock(&group->node->baton);
    struct split_key own = {.color = color, .key = key, .splits = group_splits(group->group)};
    mutex_unlock(&group->node->baton);
    int status = split_keys_gather(group, &own, opts, &all);
    if (status != HEARTH_OK)
        return status;
    uint64_t number = 0;
    for (int i = 0; i < hearth_group_size(group); i++)
        number = all[i].splits > number ? all[i].splits : number;
    number++;
    mutex_lock(&group->node->baton);
    group_set_splits(group->group, number);
    mutex_unlock(&group->node->baton);
    hearth_group *child = NULL;
    if (color >= 0)
        status = child_open(group, all, &own, number, &child);
    heap_free(all);
    if (status == HEARTH_OK)
        *out = child;
    return status;
}

/* ---- same ---- */

/* The lowest rank that does not hold what most hold, or RANK_NONE. */
static int odd_one(const struct hash128 *all, int size)
{
    int best = 0, best_votes = 0;
    for (int i = 0; i < size; i++) {
        int votes = 0;
        for (int k = 0; k < size; k++)
            votes += all[k].low == all[i].low && all[k].high == all[i].high;
        if (votes > best_votes) {
            best = i;
            best_votes = votes;
        }
    }
    for (int i = 0; i < size; i++)
        if (all[i].low != all[best].low || all[i].high != all[best].high)
            return i;
    return RANK_NONE;
}

/* The hash of a user's buffer; in device memory of a copy. */
static int buffer_hash(hearth_group *group, const void *buffer, size_t len, const struct hearth_opts *opts,
                       struct hash128 *hash)
{
    struct hearth_memory memory;
    int status = memory_choose("same", group, opts->memory, &memory);
    if (status != HEARTH_OK)
        return status;
    if (!memory_is_device(&memory) || len == 0) {
        *hash = hash128(buffer, len);
        return HEARTH_OK;
    }
    struct copier *copier = copier_of(group->node);
    struct copy_range range = {(void *)(uintptr_t)buffer, copier ? copier_take(copier, len) : NULL, len};
    struct error why;
    if (range.host)
        status = copy_now(&memory, false, &range, 1, &why);
    else
        status = error_set(&why, HEARTH_NO_MEMORY, RANK_NONE, "no host memory for %zu bytes", len);
    if (status == HEARTH_OK) {
        *hash = hash128(range.host, len);
    } else {
        error_call_because("same", &why);
        node_refuse(group, opts->tag, error_last());
    }
    copier_give(copier, range.host);
    return status;
}

int hearth_group_same(hearth_group *group, const void *buffer, size_t len, const struct hearth_opts *given,
                      int *who)
{
    struct hearth_opts opts;
    if (!group || (!buffer && len > 0))
        return error_set(error_last(), HEARTH_INVALID, RANK_NONE, "same: %s is NULL",
                         group ? "buffer" : "group");
    if (node_forked(group->node)) /* before anything is allocated: the heap may have been busy at the fork */
        return error_set(error_last(), HEARTH_FORKED, RANK_NONE, "same: %s",
                         hearth_status_text(HEARTH_FORKED));
    int status = call_opts_read("same", given, &opts);
    if (status != HEARTH_OK)
        return status;
    struct hash128 own;
    status = buffer_hash(group, buffer, len, &opts, &own);
    if (status != HEARTH_OK)
        return status;
    opts.memory = &memory_host;
    hearth_done_fn *done = opts.done; /* it gets the result, not the end of the exchange */
    opts.done = NULL;
    struct hash128 *all = heap_alloc(group->node->heap, (size_t)hearth_group_size(group), sizeof *all);
    if (!all)
        return error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "same: no memory");
    own.low = hash_mix(own.low, len);
    struct call call = {
        .kind = PLAN_ALL_GATHER,
        .source = &own,
        .target = all,
        .count = 2,
        .dtype = HEARTH_U64,
    };
    status = call_run(group, &call, &opts);
    int odd = status == HEARTH_OK ? odd_one(all, hearth_group_size(group)) : RANK_NONE;
    heap_free(all);
    if (odd != RANK_NONE && who)
        *who = odd;
    if (odd != RANK_NONE)
        status = error_set(error_last(), HEARTH_DIFFERS, odd,
                           "same: rank %d does not hold what most members hold", odd);
    if (done)
        done(opts.done_arg, status);
    return status;
}
