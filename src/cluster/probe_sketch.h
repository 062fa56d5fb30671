/* SPDX-License-Identifier: Apache-2.0 */
/* Which ways tell most about a cluster that has just met: a few of them show who is near to whom, long before
 * all are measured.
 *
 * Hosts that ways of at least half of the fastest speed join are a part. Between each two parts one way is
 * measured, in one direction. On one LAN that is one way for each host; with two LANs and a trunk between
 * them, little more. Of the first three hosts all three pairs are: else a host that is far from all would
 * make all of them look alike. */
#pragma once

#include "cluster/probe_schedule.h"

#define SKETCH_MERIT_MAX (VIEW_MEMBERS_MAX + 1)

struct sketch {
    int part[VIEW_MEMBERS_MAX];                    /* of each member: the lowest member of its part */
    int sizes[VIEW_MEMBERS_MAX];                   /* of parts */
    bool seen[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX]; /* a way between these parts was tried, either way */
    int third;                                     /* the last member of the first three hosts */
};

void sketch_make(const struct schedule *s, const struct topology *table, struct sketch *sketch);
/* How soon this way is to be measured: the first three hosts' before all, then those of large parts, where
 * most others are likely to belong. 0: it is none of those few. Ways that are never measured are the caller's
 * to know. */
int sketch_merit(const struct schedule *s, const struct sketch *sketch, int from, int to);
