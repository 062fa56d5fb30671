/* SPDX-License-Identifier: Apache-2.0 */
/* How an array that is summed by a part-wise codec is cut into rounds, and what that makes each member send.
 * Pure; rounds.c does what stands here, price.c counts it. docs/payloads.md has the rules. */
#pragma once

#include "compress/coder.h"
#include "core/heap.h"
#include "core/types.h"
#include "gradient/price.h"

struct round_plan {
    struct codec codec;
    enum reduction_algo
        algo; /* REDUCTION_ALLGATHER: a round is one part; REDUCTION_OWNER: one for each member */
    size_t count;
    int size;
    size_t part; /* elements of a part, but in the last round */
    size_t round_count;
};

/* `bytes_per_s`: of the links that set the pace, as all members agree. */
struct round_plan round_plan_of(const struct codec *codec, enum reduction_algo algo, size_t count, int size,
                                double bytes_per_s);
uint64_t round_plan_bytes(const struct round_plan *plan); /* that each member sends */

/* One round. */
struct round_cut {
    size_t first; /* element of the array */
    size_t part;  /* elements of each part, the last ones may have fewer */
    size_t len;   /* bytes of a payload */
    int parts;
};
struct round_cut round_cut_at(const struct round_plan *plan, size_t round);

/* Of a small dense array: the way by which its sum is there first. */
enum reduction_algo round_algo(const struct codec *codec, size_t count, int size,
                               const struct link_cost *pace);
