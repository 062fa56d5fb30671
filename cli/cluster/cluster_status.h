/* SPDX-License-Identifier: Apache-2.0 */
/* The home cluster as a node sees it, read out of hearth_status_json. */
#ifndef CLI_CLUSTER_STATUS_H
#define CLI_CLUSTER_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include <hearth.h>

#define CLUSTER_MEMBERS_MAX 64
#define CLUSTER_JOBS_MAX    64
#define CLUSTER_SHORT_MAX   24

struct cluster_member {
    int rank; /* in the view */
    char id[65], short_id[CLUSTER_SHORT_MAX], name[64], state[16];
    double latency_us, late_us; /* negative: not known */
    bool self, leads;
    unsigned roles; /* enum hearth_role */
};

struct cluster_job {
    char name[64];
    int min, wishing, running; /* members */
};

struct cluster_status {
    uint64_t epoch, term;
    char state[24];
    int count, job_count;
    struct cluster_member members[CLUSTER_MEMBERS_MAX];
    struct cluster_job jobs[CLUSTER_JOBS_MAX];
    double rate[CLUSTER_MEMBERS_MAX][CLUSTER_MEMBERS_MAX]; /* bytes a second from..to; 0: not measured */
    bool inside[CLUSTER_MEMBERS_MAX][CLUSTER_MEMBERS_MAX]; /* both are on one machine */
};

/* The text of hearth_status_json. false: it is none. What it does not say is 0, "" or not known. */
bool cluster_status_parse(const char *text, struct cluster_status *status);
/* Asks the node. false: no memory, or the node does not answer. */
bool cluster_status_read(hearth_node *node, struct cluster_status *status);

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
