/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about the cluster, as a node of this process sees it. */
#ifndef CLI_CLUSTER_STATUS_H
#define CLI_CLUSTER_STATUS_H

#include "node/local.h"

/* Members other than this one that have the role. */
int cluster_status_count(const struct cluster_status *status, enum hearth_role role);
/* Whether every way between this one and those with the role was measured, or is inside of a machine. */
bool cluster_status_measured(const struct cluster_status *status, enum hearth_role role);
/* Whether a member asks for the job just now. */
bool cluster_status_wanted(const struct cluster_status *status, const char *job);
/* What the way from one machine to another carries, bytes a second, by their ids: a machine may have several
 * members, and its ways are the same for all. 0: not measured; negative: it is inside of a machine. */
double cluster_status_path(const struct cluster_status *status, const char *from, const char *to);

#endif
