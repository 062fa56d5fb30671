/* SPDX-License-Identifier: Apache-2.0 */
/* A compressed all-reduce of simulated members, and what must hold of it however it ends: members that ended
 * well have the same bits, nothing is lost but by rounding, and whoever failed has its input back. */
#pragma once

#include "virtual.h"

#define REDUCE_COUNT_MAX 2400

struct reduce_member {
    hearth_request *request;
    hearth_compressor *compressor; /* NULL: the residual is the caller's */
    double weight;
    int status; /* HEARTH_PENDING: not ended, or not called */
    bool called;
    struct error error;
    double x[REDUCE_COUNT_MAX], x_before[REDUCE_COUNT_MAX]; /* room for every type */
    double e[REDUCE_COUNT_MAX], e_before[REDUCE_COUNT_MAX];
};

struct reduce {
    char codec[48], name[24];
    size_t count;
    enum hearth_dtype dtype;
    enum hearth_op op;
    enum hearth_algo algo;
    bool feedback;
    bool plain; /* it was found cheaper as an ordinary all_reduce, which promises less */
    uint64_t tag;
    int64_t timeout_ms;
    int size;
    struct reduce_member member[SIM_MAX];
};

void reduce_draw(struct reduce *c, struct prng *prng, int size, int number);
void reduce_fill(struct reduce *c, struct prng *prng); /* new inputs; residuals stay */
/* Its status is in the member if it is refused. */
void reduce_post(struct reduce *c, struct sim *sim, int rank);
bool reduce_collect(struct reduce *c); /* true: it has ended for all that called it */
/* Who has ended well agrees; if `whole` and it is not plain, all have or nobody has. How many have. */
int reduce_check(struct reduce *c, bool whole);
const char *reduce_name(const struct reduce *c);

/* The law of conservation for one tensor that ended well on all of `size` members. */
struct mass_side {
    const void *x, *x_before, *e, *e_before;
    double weight;
};
void mass_check(const char *name, enum hearth_dtype dtype, enum hearth_op op, size_t count,
                const struct mass_side *sides, int size);
