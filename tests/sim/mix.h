/* SPDX-License-Identifier: Apache-2.0 */
/* Several collectives under several tags, called by every member in an order of its own. */
#ifndef TESTS_SIM_MIX_H
#define TESTS_SIM_MIX_H

#include "job.h"

#define MIX_MAX 16

struct mix {
    int count;
    struct job jobs[MIX_MAX];
    int order[SIM_MAX][MIX_MAX]; /* in which order each member calls them: under one tag all the same */
    int next[SIM_MAX];
    struct prng prng;
};

/* Draws jobs and orders for the cluster. `bytes_max` bounds a member's buffer. */
void mix_draw(struct mix *mix, const struct sim *sim, uint64_t seed, size_t bytes_max);
void mix_free(struct mix *mix);

/* One thing happens, drawn from the seed: a member makes its next call, or time passes. False: all calls are
 * made, and all of them have ended, or time has come to the limit. */
bool mix_step(struct mix *mix, struct sim *sim, uint64_t until_ns);
void mix_check(const struct mix *mix);
uint64_t mix_hash(const struct mix *mix, uint64_t hash);

/* That engines hold nothing of operations that are over: no slots, no grants, no credit. */
void sim_check_idle(struct sim *sim);

#endif
