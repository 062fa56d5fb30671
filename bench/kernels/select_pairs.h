/* SPDX-License-Identifier: Apache-2.0 */
/* How others find the largest: pairs of magnitude and index, partly or wholly sorted. As std::nth_element and
 * std::sort go about it (the median of three, partition, insertion for short runs), for a reference. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct pair {
    float magnitude;
    uint32_t index;
};

/* Of x + e, in their order but begun at another place: how long a selection takes depends on its luck with
 * pivots, and each turn is to have its own. */
void pairs_of(struct pair *pairs, const float *x, const float *e, size_t count, size_t begin);
/* The `keep` largest come first, in any order. Of random numbers in linear time. */
void pairs_nth(struct pair *pairs, size_t count, size_t keep);
/* The largest first; of equal ones the one with the lowest index. */
void pairs_sort(struct pair *pairs, size_t count);
