/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the plans of all members on real numbers, in memory, and knows what must come out. */
#pragma once

#include "collective/dryrun.h"
#include "collective/planners.h"

/* A call of 4-byte elements, in chunks and a window of 1 MiB; a barrier has none. */
struct plan_call call_of(enum plan_kind kind, enum hearth_algo algo, int size, size_t count);
/* Writes the plan of the call's member, or fails the test. */
void write_ok(const struct plan_call *call, struct heap *heap, struct plan *plan);

/* One call, made by all members. */
struct trial {
    struct plan_call call; /* rank and counts are filled in for each member */
    const size_t *counts;  /* v-variants: [size] what each member gives or gets; all_to_all: [size * size],
                                row i is what member i sends; NULL: call.count */
    bool in_place;
    uint32_t slots;
    struct link_cost inside, across;
};

/* The call of one member. `column` [size] is used by all_to_all with counts. */
struct plan_call trial_call(const struct trial *trial, int rank, size_t *column);

/* Writes all plans, runs them, compares every element of every target with what it must be, and everything
 * else with what it was. Fails the test if anything differs. bytes_sent [size] may be NULL. */
void trial_run(const struct trial *trial, struct dry_result *result, uint64_t *bytes_sent);

/* Looks at the moves alone: steps never fall, of one step sends come first, what is sent is received as the
 * same parts in the same form, accumulators are loaded before they are used and shrink only, and in place
 * nothing that may still be under way is overwritten, whatever the timing. */
void trial_check_moves(const struct trial *trial);

/* Of the moves and results of all trials of up to 16 members so far: the same on every machine. */
uint64_t trial_digest(void);

/* "all_reduce by ring, 5 members, 1009 elements", in static memory. */
const char *trial_name(const struct trial *trial);
