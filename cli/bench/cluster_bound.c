/* SPDX-License-Identifier: Apache-2.0 */
/* A bound for all_reduce among machines. */
#include "cli/bench/cluster_bound.h"

#include <math.h>

/* Bytes a second between members. Inside of a machine nothing is slow. */
struct paths {
    int count;
    double rate[CLUSTER_MEMBERS_MAX][CLUSTER_MEMBERS_MAX];
};

static bool paths_fill(struct paths *w, const struct cluster_status *status, const char *const *ids,
                       int count)
{
    w->count = count;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++) {
            double rate = i == k ? -1 : cluster_status_path(status, ids[i], ids[k]);
            if (rate == 0)
                return false;
            w->rate[i][k] = rate < 0 ? INFINITY : rate;
        }
    }
    return true;
}

/* The first member of its machine. */
static int machine_of(const struct paths *w, int member)
{
    int first = 0;
    while (isfinite(w->rate[first][member]))
        first++;
    return first;
}

/* What all machines together can send, or receive: each by its best way, which is what its line carries. */
static double sum_lines(const struct paths *w, bool out, int *machines)
{
    double best[CLUSTER_MEMBERS_MAX] = {0}, sum = 0;
    *machines = 0;
    for (int i = 0; i < w->count; i++) {
        int machine = machine_of(w, i);
        *machines += machine == i;
        for (int k = 0; k < w->count; k++) {
            double rate = out ? w->rate[i][k] : w->rate[k][i];
            if (isfinite(rate) && rate > best[machine])
                best[machine] = rate;
        }
    }
    for (int i = 0; i < w->count; i++)
        sum += best[i];
    return sum;
}

/* Of the best routes from each member to each other one, over any others, the narrowest. */
static double narrowest_route(struct paths *w)
{
    double narrowest = INFINITY;
    for (int via = 0; via < w->count; via++) {
        for (int i = 0; i < w->count; i++) {
            for (int k = 0; k < w->count; k++)
                w->rate[i][k] = fmax(w->rate[i][k], fmin(w->rate[i][via], w->rate[via][k]));
        }
    }
    for (int i = 0; i < w->count; i++) {
        for (int k = 0; k < w->count; k++)
            narrowest = fmin(narrowest, w->rate[i][k]);
    }
    return narrowest;
}

struct cluster_bound cluster_bound(const struct cluster_status *status, const char *const *ids, int count)
{
    struct cluster_bound bound = {0, 0};
    struct paths w;
    int machines;
    if (count > CLUSTER_MEMBERS_MAX || !paths_fill(&w, status, ids, count))
        return bound;
    double lines = fmin(sum_lines(&w, true, &machines), sum_lines(&w, false, &machines));
    if (machines < 2)
        return bound;
    bound.narrowest = narrowest_route(&w);
    bound.s_per_byte = fmax(1 / bound.narrowest, 2.0 * (machines - 1) / lines);
    return bound;
}
