/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part in a home cluster: the cluster itself, and the groups formed in it.
 *
 * Each group is the world of an inner node with its own engine and connections, on the heap of the outer
 * node. So collectives know nothing of membership: an inner node lives as long as its formation, and the next
 * formation has another one. */
#pragma once

#include "cluster/cluster.h"
#include "core/text_buf.h"
#include "node/opening.h"

/* One group. */
struct cluster_group {
    struct list item; /* in the cluster groups */
    struct cluster_groups *cluster_groups;
    hearth_node *inner;
    int min;
    struct group_spec spec;
    struct ring_order arranged; /* its current ring order, under the lock of the cluster groups */
    struct cluster_watch watch;
    /* As of the last sample: */
    uint64_t heard[VIEW_MEMBERS_MAX];                            /* by rank: engine_peer_heard */
    uint64_t bytes[VIEW_MEMBERS_MAX], busy_ns[VIEW_MEMBERS_MAX]; /* likewise, while the line was full */
    uint64_t sent, received;                                     /* to and from all */
};

/* A call that waits for others, which hearth_node_interrupt may end. */
struct cluster_groups_call {
    struct list item;        /* in the cluster groups */
    struct stop interrupted; /* the whole call; set under the lock of the cluster groups */
    struct stop stop;        /* its current step; the caller may have other reasons */
};

struct cluster_groups {
    hearth_node *node;
    struct cluster *cluster;
    struct credentials *credentials; /* the cluster's: only its thread may use their trust list */
    struct hearth_config config;     /* for inner nodes; strings are copies on the heap */
    struct mutex lock;               /* of the lists; not held while calling the cluster */
    struct list cluster_group, calls;
    struct transport_choices choices;
    uint64_t event_place; /* hearth_node_next_event */
};

/* Takes key, secret and trust list out of the opening. The node owns the result. */
int MUST_CHECK cluster_groups_open(struct opening *o, hearth_node *node, struct error *error);
/* Closes all groups, then leaves the cluster. NULL is allowed. */
void cluster_groups_close(struct cluster_groups *cluster_groups);
/* Between these two it can be interrupted. */
void cluster_groups_call_begin(struct cluster_groups *cluster_groups, struct cluster_groups_call *call);
void cluster_groups_call_end(struct cluster_groups *cluster_groups, struct cluster_groups_call *call);
/* Begins another step: clears the reasons to stop, except an interruption. True: it was interrupted. */
bool cluster_groups_call_again(struct cluster_groups *cluster_groups, struct cluster_groups_call *call);
/* The group uses this ring order from now on: for status. */
void cluster_groups_arranged(struct cluster_group *cluster_group, const hearth_group *group,
                             const struct ring_order *order);
/* For hearth_node_links_text: each group by its job, then a line for each of its members. */
void cluster_groups_links(struct cluster_groups *cluster_groups, struct text_buf *text);
/* Leaves the group and closes its node. `finished`: and is done with its job (cluster_end). NULL is allowed.
 */
void cluster_groups_leave(struct cluster_group *cluster_group, bool finished);
