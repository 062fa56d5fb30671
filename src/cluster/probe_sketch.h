/* SPDX-License-Identifier: Apache-2.0 */
/* The sketch: the few paths that show which hosts are near each other, long before all are measured.
 *
 * Hosts connected by paths of at least half of the fastest speed are a part. Between each two parts one path
 * is measured, in one direction. On one LAN that is one path for each host; with two LANs and a trunk between
 * them, few more. Of the first three hosts all three pairs are measured: else one slow host would make all
 * paths look alike. */
#pragma once

#include "cluster/probe_schedule.h"

#define SKETCH_MERIT_MAX (VIEW_MEMBERS_MAX + 1)

struct sketch {
    int part[VIEW_MEMBERS_MAX];                    /* of each member: the lowest member of its part */
    int sizes[VIEW_MEMBERS_MAX];                   /* of parts */
    bool seen[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX]; /* a path between these parts was tried */
    int third;                                     /* the last member of the first three hosts */
};

void sketch_make(const struct schedule *s, const struct topology *table, struct sketch *sketch);
/* The priority of a path: first those of the first three hosts, then those of large parts, where most hosts
 * are likely to belong. 0: not in the sketch. The caller excludes paths that are never measured. */
int sketch_merit(const struct schedule *s, const struct sketch *sketch, int from, int to);
