/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster as a node of this process sees it, for the command: members, jobs and links as in
 * hearth_node_status_json. */
#pragma once

#include <hearth.h>

#include "membership/job_record.h"
#include "membership/view.h"
#include "security/node_key.h"

#define CLUSTER_MEMBERS_MAX VIEW_MEMBERS_MAX
#define CLUSTER_JOBS_MAX    64 /* as many as the board of jobs has */

struct cluster_member {
    char id[NODE_ID_TEXT], short_id[NODE_ID_SHORT], name[PEER_NAME_MAX], state[16];
    double latency_us; /* negative: not known */
    bool self, leads;
    unsigned roles; /* enum hearth_role */
};

struct cluster_job {
    char name[JOB_NAME_MAX];
    int min, waiting, running; /* members */
};

struct cluster_status {
    uint64_t epoch, term;
    char state[24];
    int count, job_count;
    struct cluster_member members[CLUSTER_MEMBERS_MAX]; /* by rank in the view */
    struct cluster_job jobs[CLUSTER_JOBS_MAX];
    double rate[CLUSTER_MEMBERS_MAX][CLUSTER_MEMBERS_MAX]; /* bytes a second from..to; 0: not measured */
    bool inside[CLUSTER_MEMBERS_MAX][CLUSTER_MEMBERS_MAX]; /* both are on one machine */
};

struct cluster;
void cluster_snapshot(struct cluster *cluster, struct cluster_status *status);
