/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce among machines: what every member does in `hearth bench cluster`, whether it started it or is
 * just up. */
#ifndef CLI_CLUSTER_BENCH_H
#define CLI_CLUSTER_BENCH_H

#include <stdatomic.h>

#include "cli/cluster/cluster_plan.h"
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

#endif
