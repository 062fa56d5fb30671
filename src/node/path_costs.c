/* SPDX-License-Identifier: Apache-2.0 */
/* From assumptions and measures to the maps and costs of plans. Pure functions of common knowledge, so all
 * members get the same result. */
#include "node/path_costs.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "membership/topology.h"

#define WINDOW_BYTES_FAR (16u << 20)
#define SLOW_LINE        8 /* a rate is slow if the host is so many times faster */

const struct link_cost loopback_cost = {
    .alpha_s = 5e-6,
    .bytes_per_s = 3e9,
    .gamma_s = 5e-11,
    .overhead_s = 2e-6,
};

size_t window_for(const struct link_cost *across, size_t given)
{
    double want = 6 * 2 * across->alpha_s * across->bytes_per_s;
    size_t bytes = want < WINDOW_BYTES_FAR ? (size_t)want : WINDOW_BYTES_FAR;
    return given > bytes ? given : bytes;
}

void path_costs_fini(struct path_costs *f)
{
    heap_free(f->host);
    heap_free(f->room);
    heap_free(f->named);
}

/* ---- costs ---- */

/* Measures of the home cluster replace the assumptions. */
static void measured_cost(uint32_t mbit_x10, uint32_t round_trip_us, struct link_cost *cost)
{
    if (mbit_x10 == 0)
        return;
    cost->bytes_per_s = mbit_x10 * 1e5 / 8 * LINE_YIELD;
    cost->alpha_s = fmax(round_trip_us * 1e-6 / 2, CHOICE_MIN_S);
}

static void use_measures(const struct ring_order *a, struct link_cost *inside, struct link_cost *across)
{
    if (a->sites > 1) { /* the map of hosts has sites in it */
        *inside = loopback_cost;
        measured_cost(a->inside_mbit_x10, a->inside_us, inside);
        measured_cost(a->across_mbit_x10, a->across_us, across);
    } else {
        measured_cost(a->inside_mbit_x10, a->inside_us, across);
    }
}

static void adopt_costs(hearth_group *group, const struct ring_order *a)
{
    const struct path_costs *f = &group->node->costs;
    struct group_view view = *group_view(group->group);
    struct link_cost inside = f->inside, across = f->across;
    if (a)
        use_measures(a, &inside, &across);
    /* On a slow line scheduling delays do not matter. */
    view.crowded = f->crowded && f->byte_s * inside.bytes_per_s < SLOW_LINE;
    if (f->byte_s > 0) {
        inside.bytes_per_s = fmin(inside.bytes_per_s, 1 / f->byte_s);
        across.bytes_per_s = fmin(across.bytes_per_s, 1 / f->byte_s);
    }
    view.inside = inside;
    view.across = across;
    view.window_bytes = window_for(&across, f->window_bytes);
    group_set_view(group->group, &view);
}

/* ---- maps ---- */

/* The location of each member, by rank: the lowest rank there. If the slow paths are between sites, locations
 * are sites. */
static void map_hosts(const hearth_group *group, const struct ring_order *a, int *map)
{
    const int *host = group->node->costs.host;
    int where[VIEW_MEMBERS_MAX] = {0};
    for (int i = 0; i < a->size; i++) {
        int rank = a->order[i];
        where[rank] = a->sites > 1 ? a->site[i] : host[group_member(group->group, rank)];
    }
    for (int i = 0; i < a->size; i++) {
        map[i] = 0;
        while (where[map[i]] != where[i])
            map[i]++;
    }
}

/* Members that name the same site are in it, whatever was measured; the others are where `host` says. */
static void map_sites(const hearth_group *group, const int *host, int *map)
{
    const uint64_t *named = group->node->costs.named;
    for (int i = 0; i < group_size(group->group); i++) {
        uint64_t own = named[group_member(group->group, i)];
        map[i] = i;
        for (int k = 0; k < i && map[i] == i; k++) {
            uint64_t other = named[group_member(group->group, k)];
            if (own != 0 ? other == own : other == 0 && host[k] == host[i])
                map[i] = map[k];
        }
    }
}

static int fullest(const int *map, int size)
{
    int most = 0;
    for (int i = 0; i < size; i++) {
        int count = 0;
        for (int k = 0; k < size; k++)
            count += map[k] == map[i];
        most = count > most ? count : most;
    }
    return most;
}

/* Whether the ring order is the rank order. */
static bool by_rank(const int *order, int size)
{
    for (int i = 0; i < size; i++)
        if (order[(i + 1) % size] != (order[i] + 1) % size)
            return false;
    return true;
}

static void adopt_maps(hearth_group *group, const struct ring_order *a)
{
    struct path_costs *f = &group->node->costs;
    struct group_view view = *group_view(group->group);
    int host[VIEW_MEMBERS_MAX];
    map_hosts(group, a, host);
    if (f->named)
        map_sites(group, host, f->room);
    view.host = host;
    view.port_sharers = fullest(host, a->size);
    view.site = f->named ? f->room : host;
    view.order = by_rank(a->order, a->size) ? NULL : a->order;
    group_set_view(group->group, &view);
}

/* ---- adopting ---- */

void path_costs_begin(hearth_node *node)
{
    struct path_costs *f = &node->costs;
    mutex_lock(&node->baton);
    if (f->named) {
        struct group_view view = *group_view(node->world.group);
        map_sites(&node->world, f->host, f->room);
        view.site = f->room;
        group_set_view(node->world.group, &view);
    }
    adopt_costs(&node->world, NULL);
    mutex_unlock(&node->baton);
}

bool path_costs_adopt(hearth_group *group, const struct ring_order *a)
{
    assert(a->size == group_size(group->group));
    mutex_lock(&group->node->baton);
    bool busy = group_busy(group->group);
    if (!busy) {
        adopt_maps(group, a);
        adopt_costs(group, a);
    }
    mutex_unlock(&group->node->baton);
    return !busy;
}
