/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that are formed anew, without the machinery that forms them: nodes of one net after the other on the
 * heaps of members that outlive them. */
#pragma once

#include "conform/model.h"
#include "node/node.h"

#define CLUSTER_GROUP_MAX 4

struct cluster_group {
    struct heap *heap[CLUSTER_GROUP_MAX]; /* of each member of the cluster */
    int size;                             /* of the group now */
    int member[CLUSTER_GROUP_MAX];        /* who has which rank in it */
    hearth_node *node[CLUSTER_GROUP_MAX]; /* by member; NULL: in no group */
    bool behind[CLUSTER_GROUP_MAX];       /* by member: it was told so when the group was formed */
    uint64_t id;
};

void cluster_group_open(struct cluster_group *f);
/* Closes the nodes that are open; nothing may be left on the heaps. */
void cluster_group_close(struct cluster_group *f);
/* On the main thread: the next group, of these members. What hung on the old nodes goes on with the new ones,
 * and the old ones are closed. */
void cluster_group_group(struct cluster_group *f, const int *members, int size);
hearth_group *cluster_group_world(const struct cluster_group *f, int member);
/* The member's node closes, as if it had crashed for the others. */
void cluster_group_leave(struct cluster_group *f, int member);

/* Runs fn(f, member, arg) on a thread for each member of the group. */
typedef void cluster_group_fn(struct cluster_group *f, int member, void *arg);
void cluster_group_run(struct cluster_group *f, cluster_group_fn *fn, void *arg);
