/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce among machines: what every member does in `hearth bench cluster`, whether it started it or is
 * just up. */
#pragma once

#include <stdatomic.h>

#include "cli/cluster/cluster_open.h"
#include "cli/shared/stats.h"

struct cluster_bench_row {
    uint64_t bytes;
    struct stats time; /* of a call, of the slowest member, seconds */
    bool right;        /* on every member */
};
typedef void cluster_bench_fn(void *arg, const struct cluster_bench_row *row);

/* Collective: all members call it with the same plan. `seen` (may be NULL) gets each row. When `quit` (may be
 * NULL) becomes true, ends with HEARTH_CANCELLED between two calls. */
int cluster_bench_run(hearth_group *group, const struct bench_plan *plan, cluster_bench_fn *seen, void *arg,
                      const atomic_bool *quit);

struct cluster_bound {
    double
        narrowest; /* bytes a second: what gets from some machine to another by the best route; 0: unknown */
    double s_per_byte; /* of the buffer; 0: unknown */
};
/* Of these members, in any order; a machine may have several. Two things hold for every algorithm:
 *  - the numbers of each machine must get to every other one, each byte at least once;
 *  - all machines together send and receive at least 2 (machines - 1) buffers: to add, and to tell the sum.
 * Unknown if a way between two machines was not measured, or there is one machine. Ways that look like one
 * line and are several, and short bursts, may still be faster. */
struct cluster_bound cluster_bound(const struct cluster_status *status, const struct hearth_member *members,
                                   int count);
