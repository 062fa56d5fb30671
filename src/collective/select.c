/* SPDX-License-Identifier: Apache-2.0 */
/* Asks every planner for its price and takes the cheapest. */
#include "collective/select.h"

#include <math.h>

#include "collective/planners.h"

static int host_at(const struct group_view *view, int place)
{
    return view->host[view->order ? view->order[place] : place];
}

/* Whether the members of each host are neighbours in the order of a ring. */
static bool hosts_in_order(const struct group_view *view)
{
    for (int p = 1; view->host && p < view->size; p++)
        for (int q = 0; q < p - 1; q++)
            if (host_at(view, q) == host_at(view, p) && host_at(view, p - 1) != host_at(view, p))
                return false;
    return true;
}

/* What a member gets of the port that its host has to the others. Hierarchical sends through it once for all
 * members of the host, and so does a ring that visits host after host. */
static struct link_cost across_for(const struct group_view *view, enum hearth_algo algo)
{
    struct link_cost across = view->across;
    bool alone = algo == HEARTH_ALGO_HIERARCHICAL || (algo == HEARTH_ALGO_RING && hosts_in_order(view));
    if (view->port_sharers > 1 && !alone)
        across.bytes_per_s /= view->port_sharers;
    return across;
}

double select_price(const struct plan_call *call, enum hearth_algo algo, const struct group_view *view)
{
    const struct planner *planner = planner_of(algo);

    if (!planner_can(planner, call))
        return HUGE_VAL;
    if (call->size == 1)
        return 0;
    struct link_cost across = across_for(view, algo);
    struct fares fares = fares_of(call, &view->inside, &across);
    struct plan_shape shape = planner_shape(planner, call);
    return planner->price(&fares, &shape);
}

/* Members of one host that outnumber its processors. The model knows ports, not turns of a processor, so this
 * was measured (4 members, 2 processors): up to so many bytes, this algorithm. */
struct algo_choice {
    double bytes;
    enum hearth_algo algo;
};

static enum hearth_algo crowded_choice(const struct plan_call *call, const struct group_view *view)
{
    static const struct algo_choice by_socket[] = {{2e6, HEARTH_ALGO_TREE}, {HUGE_VAL, HEARTH_ALGO_DIRECT}};
    static const struct algo_choice in_memory[] = {{16e3, HEARTH_ALGO_EXCHANGE},
                                                   {256e3, HEARTH_ALGO_HALVING},
                                                   {64e6, HEARTH_ALGO_RING},
                                                   {HUGE_VAL, HEARTH_ALGO_TREE}};
    const struct algo_choice *choice = view->inside.alpha_s > 2e-6 ? by_socket : in_memory;
    for (int r = 1; view->host && r < view->size; r++)
        if (view->host[r] != view->host[0])
            return HEARTH_ALGO_AUTO;
    if (!view->crowded || call->kind != PLAN_ALL_REDUCE || view->size < 3)
        return HEARTH_ALGO_AUTO;
    while ((double)call->count * call->raw_len > choice->bytes)
        choice++;
    return choice->algo;
}

int select_algo(const struct plan_call *call, const struct group_view *view, enum hearth_algo *algo,
                struct error *error)
{
    const enum hearth_algo wanted[] = {call->algo, view->algo, crowded_choice(call, view)};
    if (call->algo != HEARTH_ALGO_AUTO && !planner_of(call->algo))
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: unknown algorithm %d",
                         plan_kind_name(call->kind), (int)call->algo);
    if (call->algo != HEARTH_ALGO_AUTO && !planner_can(planner_of(call->algo), call))
        return call_refuse(call, call->algo, error);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (planner_can(planner_of(wanted[i]), call)) {
            *algo = wanted[i];
            return HEARTH_OK;
        }
    }
    double best = 0;
    enum hearth_algo cheapest = HEARTH_ALGO_AUTO;
    for (int i = 0; i < ALGO_COUNT; i++) {
        if (!planner_can(planner_of((enum hearth_algo)i), call))
            continue;
        double price = select_price(call, (enum hearth_algo)i, view);
        if (cheapest == HEARTH_ALGO_AUTO || price < best) {
            best = price;
            cheapest = (enum hearth_algo)i;
        }
    }
    if (cheapest == HEARTH_ALGO_AUTO)
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE, "no algorithm can do %s",
                         plan_kind_name(call->kind));
    *algo = cheapest;
    return HEARTH_OK;
}
