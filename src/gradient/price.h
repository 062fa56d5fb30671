/* SPDX-License-Identifier: Apache-2.0 */
/* What a compressed all-reduce costs, and which way is the best. Pure functions of what all members agree on
 * (view, codecs, tensor) and of constants, so all members choose the same. */
#pragma once

#include "compress/codec.h"

/* How a compressed tensor travels. Numbers are compared between members. */
enum reduction_algo {
    REDUCTION_PLAIN = 0,     /* uncompressed all_reduce of input + residual */
    REDUCTION_ALLGATHER = 1, /* each member's payload to all, summed by each in rank order */
    REDUCTION_OWNER = 2,     /* to the owners of the parts, summed in rank order, encoded once more, to all */
    REDUCTION_SHARED = 3,    /* a small dense thing that all have alike: chosen coordinates, factors */
    REDUCTION_TWO_LEVEL = 4, /* dense inside a host, then one of the above between one member of each host */
    REDUCTION_ALGOS
};
const char *reduction_algo_name(enum reduction_algo algo); /* "owner" */

struct tensor_shape {
    size_t count;
    size_t rows, columns; /* rows 0: not a matrix */
    enum hearth_dtype dtype;
};

/* Of a compressed all-reduce, to each of the others: its opening and its vote. */
#define COMPARE_BYTES 144u
/* topk over a whole tensor, before an owner's list: how many entries it has, whether a sum overflows. */
#define CHOSEN_HEAD 8u

struct reduction_price {
    double bytes;  /* that the busiest member sends through its port, all phases, without frame headers */
    double wire_s; /* the network alone, latency included */
    double hops_s; /* of which latency: tensors that travel together pay it once. PLAIN: not told apart, 0 */
    double kernel_s; /* arithmetic of one member */
    double total_s;  /* with as much overlap as the way allows */
};

/* Whether the way can carry the codec: a part-wise codec or whole-tensor topk by ALLGATHER or OWNER, that of
 * a user by ALLGATHER, randomk and powersgd by SHARED; all but powersgd by TWO_LEVEL (not f64) where some
 * host has several members and there is more than one host; none by PLAIN. */
bool reduction_can(const struct codec *codec, enum reduction_algo algo, const struct group_view *view);
/* total_s is HUGE_VAL where the way cannot. */
struct reduction_price reduction_price(const struct codec *codec, enum reduction_algo algo,
                                       const struct tensor_shape *shape, const struct group_view *view);

struct reduction_choice {
    struct codec codec;
    enum reduction_algo algo;
    struct reduction_price price, plain; /* of the choice, and of REDUCTION_PLAIN */
};
/* The cheapest of the list's codecs and their ways; `automatic` lists may also choose none, and do unless a
 * codec is cheaper by a margin (5 %) and sends no more. A list of one codec: only the way is
 * chosen. What cannot code the shape becomes none: powersgd that does not pay for it or has none, topk over
 * more than SPARSE_COUNT_MAX, a user's codec whose bound is 0. */
void reduction_choose(const struct codec_list *list, const struct tensor_shape *shape,
                      const struct group_view *view, struct reduction_choice *choice);
/* "topk:0.01 by owner: 12.1 ms (wire 4.2 ms, 530 kB; kernels 8 ms), plain 800 ms" */
void reduction_reason(const struct reduction_choice *choice, char *text, size_t size);
