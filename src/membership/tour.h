/* SPDX-License-Identifier: Apache-2.0 */
/* The cheapest way round: cyclic orders over a table of costs that may differ by direction. */
#ifndef MEMBERSHIP_TOUR_H
#define MEMBERSHIP_TOUR_H

#include "core/types.h"

#define TOUR_MAX       64
#define TOUR_EXACT_MAX 10

/* cost[from][to]; a way round uses order[i] -> order[i + 1], and the last one -> order[0]. The sum over any
 * way round must be less than 2^64. */
struct tour_costs {
    int size;
    uint64_t cost[TOUR_MAX][TOUR_MAX];
};

uint64_t tour_length(const struct tour_costs *costs, const int *order);
/* The cheapest of all; size is at most TOUR_EXACT_MAX. `order` is what it was if nothing is cheaper. */
void tour_exact(const struct tour_costs *costs, int *order);
/* Betters `order` until no exchange of two neighbouring stretches and no reversal of one helps. */
void tour_better(const struct tour_costs *costs, int *order);
/* Cuts the order at three places drawn by `draw` and puts the four stretches together in another order, which
 * no single move of tour_better undoes; size is at least 4. */
void tour_shake(int *order, int size, uint64_t draw);

#endif
