/* SPDX-License-Identifier: Apache-2.0 */
/* The demo among machines: what every member does in `hearth demo --cluster`, whether it started it or is
 * just up and allows it. */
#pragma once

#include "cli/cluster/cluster_plan.h"
#include "cli/demo/race.h"

struct cluster_demo {
    /* What the caller says. */
    hearth_node *node;
    hearth_group *group; /* formed again when a machine is lost; NULL: that failed */
    struct cluster_plan *plan;
    int starter;             /* rank; it has the images */
    bool starts;             /* that is us */
    struct race *race;       /* by cluster_demo_race */
    const char *data;        /* directory where the images may be too */
    const atomic_bool *quit; /* NULL, or when to end between two steps */

    struct dataset train, test; /* the starter's own; others get or read them */
    struct train_job job;
    uint32_t lane; /* that is run */
};

uint64_t cluster_demo_hash(const struct dataset *train, const struct dataset *test);
/* Lanes and limits as the plan says. The plan is lent. */
void cluster_demo_race(const struct demo_plan *plan, int ranks, struct race *race);

/* Collective: images for members that have none, then the lanes. When a machine is lost, the lane begins
 * again with those that are left. A status, after a message if it is not HEARTH_OK. */
int cluster_demo_run(struct cluster_demo *demo);
/* Frees the images; the starter keeps its own. */
void cluster_demo_fini(struct cluster_demo *demo);
