/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part in a home cluster: the home itself, and the groups that were formed in it.
 *
 * Each group is the world of an inner node with an engine and connections of its own, on the heap of the node
 * that belongs to the cluster. So collectives know nothing of membership: an inner node lives as long as its
 * formation, and the next formation has another one. */
#ifndef NODE_RESIDENCE_H
#define NODE_RESIDENCE_H

#include "core/paper.h"
#include "home/home.h"
#include "node/opening.h"

/* One group. */
struct formed {
    struct list item; /* in the residence */
    struct residence *residence;
    hearth_node *inner;
    int min;
    struct formation formation;
    struct arrangement arranged; /* as its rings go round now, under the residence's lock */
    struct home_watch watch;
    /* As last told to the home: */
    uint64_t bytes[CENSUS_MEMBERS_MAX], busy_ns[CENSUS_MEMBERS_MAX]; /* by rank, while the line was full */
    uint64_t sent, received;                                         /* to and from all */
};

/* A call that waits for others, which hearth_interrupt may end. */
struct residence_call {
    struct list item;        /* in the residence */
    struct stop interrupted; /* the whole of it; set under the residence's lock */
    struct stop stop;        /* what it does now; the caller may have other reasons */
};

struct residence {
    hearth_node *node;
    struct home *home;
    struct credentials *credentials; /* the home's: its thread alone may use their list */
    struct hearth_config config;     /* for inner nodes; strings are copies on the heap */
    struct mutex lock;               /* of the lists; nothing of the home is called under it */
    struct list formed, calls;
    struct transport_choices choices;
    uint64_t event_place; /* hearth_next_event */
    hearth_event_fn *on_event;
    void *on_event_arg;
};

/* Takes key, secret and list out of the opening. The node's when it succeeds. */
int MUST_CHECK residence_open(struct opening *o, hearth_node *node, struct error *error);
/* Closes all groups, then leaves the cluster. NULL is allowed. */
void residence_close(struct residence *residence);
/* Between these two it can be interrupted. */
void residence_call_begin(struct residence *residence, struct residence_call *call);
void residence_call_end(struct residence *residence, struct residence_call *call);
/* It begins something else: reasons to stop are forgotten, but an interruption. True: it was interrupted. */
bool residence_call_again(struct residence *residence, struct residence_call *call);
/* The group goes by this from now on: for status. */
void residence_arranged(struct formed *formed, const hearth_group *group,
                        const struct arrangement *arrangement);
/* For hearth_links_text: each group by its job, then a line for each of its members. */
void residence_links(struct residence *residence, struct paper *text);
/* Leaves the group and closes its node. `finished`: and is done with its job (home_end). NULL is allowed. */
void residence_leave(struct formed *formed, bool finished);

#endif
