/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed all-reduces of a cluster, and the law that they keep:
 * what went in = what came out + what is left behind. */
#pragma once

#include "conform/fixture.h"

/* A tensor and its residual at each member, with what they held before the step. */
struct mass {
    const char *codec;
    enum hearth_dtype dtype;
    enum hearth_op op;
    enum hearth_algo algo;
    size_t count;
    bool feedback;
    double weight[MEMBERS_MAX]; /* 0: 1 */
    void *x[MEMBERS_MAX], *x_before[MEMBERS_MAX];
    void *e[MEMBERS_MAX], *e_before[MEMBERS_MAX];
    uint64_t seed;
};

/* f32, with feedback. */
struct mass mass_of(const char *codec, enum hearth_op op, size_t count, uint64_t seed);
/* Takes and gives back memory; residuals are zero at first. */
void mass_open(struct mass *m, int size);
void mass_close(struct mass *m, int size);
/* New numbers into x of one member, or of all. */
void mass_fill(struct mass *m, int rank);
void mass_fill_all(struct mass *m, int size);
void mass_remember(struct mass *m, int rank); /* in x_before and e_before */
/* Inside a member_fn: the step, with what was there before remembered. */
int mass_step(struct fixture *c, struct mass *m, int rank);
/* On the main thread, after a step that went well: same bits on all, nothing lost. */
void mass_check(const struct mass *m, int size);
/* After one that failed: everything as it was, at one member or at all. */
void mass_check_member(const struct mass *m, int rank);
void mass_check_untouched(const struct mass *m, int size);
size_t mass_residual_len(const struct mass *m);

/* Members that think they are on these hosts (NULL: one), with a known id, by which randomk draws.
 * threads 0: as many as usual. */
void fixture_open_known(struct fixture *c, int size, const int *host, uint32_t threads);
