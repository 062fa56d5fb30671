/* SPDX-License-Identifier: Apache-2.0 */
/* Several collectives under several tags, called by every member in an order of its own. */
#pragma once

#include "job.h"

#define MIX_MAX 16

struct mix {
    int count, size;
    int members[SIM_MAX];          /* ranks in the cluster */
    hearth_group *groups[SIM_MAX]; /* where it runs; NULL: that member cannot call yet */
    struct job jobs[MIX_MAX];
    int order[SIM_MAX][MIX_MAX]; /* in which order each member calls them: under one tag all the same */
    int next[SIM_MAX];
    struct prng prng;
};

/* Draws jobs and orders for the worlds of the cluster. `bytes_max` bounds a member's buffer. */
void mix_draw(struct mix *mix, struct sim *sim, uint64_t seed, size_t bytes_max);
/* For some members only; their groups are to be filled in. */
void mix_draw_some(struct mix *mix, const int *members, int size, uint64_t seed, size_t bytes_max);
void mix_free(struct mix *mix);

/* A member makes its next call. False: there is none to be made now. */
bool mix_post(struct mix *mix, struct sim *sim);
/* Notes what has ended; true if all that were called have. */
bool mix_collect(struct mix *mix, uint64_t now_ns);
/* Whether a member can make a call, or could if it had the group. */
bool mix_can_post(const struct mix *mix, const struct sim *sim, bool with_group);
/* One thing happens, drawn from the seed: a member makes its next call, or time passes. False: all calls are
 * made, and all of them have ended, or time has come to the limit. */
bool mix_step(struct mix *mix, struct sim *sim, uint64_t until_ns);
/* The node closes, and its requests with it. */
void mix_close_node(struct mix *mix, struct sim *sim, int rank);
void mix_check(const struct mix *mix);
void mix_check_good(const struct mix *mix); /* and every call has ended well */
uint64_t mix_hash(const struct mix *mix, uint64_t hash);

/* That engines hold nothing of operations that are over: no slots, no grants, no credit. */
void sim_check_idle(struct sim *sim);
