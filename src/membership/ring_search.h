/* SPDX-License-Identifier: Apache-2.0 */
/* The cheapest ring: cyclic orders over a table of costs that may differ by direction. */
#pragma once

#include "core/types.h"

#define RING_SEARCH_MAX       64
#define RING_SEARCH_EXACT_MAX 10

/* cost[from][to]; a ring uses order[i] -> order[i + 1], and the last one -> order[0]. The sum over any ring
 * must be less than 2^64. */
struct ring_search_costs {
    int size;
    uint64_t cost[RING_SEARCH_MAX][RING_SEARCH_MAX];
};

uint64_t ring_search_length(const struct ring_search_costs *costs, const int *order);
/* The cheapest order; size is at most RING_SEARCH_EXACT_MAX. `order` stays if none is cheaper. */
void ring_search_exact(const struct ring_search_costs *costs, int *order);
/* Improves `order` until no exchange of two neighbouring segments and no reversal of one helps. */
void ring_search_better(const struct ring_search_costs *costs, int *order);
/* Cuts the order at three places given by `draw` and joins the four segments in another order, which no
 * single move of ring_search_better undoes; size is at least 4. */
void ring_search_shake(int *order, int size, uint64_t draw);
