/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that are formed anew, without the machinery that forms them: nodes of one net after the other on the
 * heaps of members that outlive them. */
#ifndef CONFORM_FORMED_H
#define CONFORM_FORMED_H

#include "conform/model.h"
#include "node/node.h"

#define FORMED_MAX 4

struct formed {
    struct heap *heap[FORMED_MAX]; /* of each member of the cluster */
    int size;                      /* of the group now */
    int member[FORMED_MAX];        /* who has which rank in it */
    hearth_node *node[FORMED_MAX]; /* by member; NULL: in no group */
    bool behind[FORMED_MAX];       /* by member: it was told so when the group was formed */
    uint64_t id;
};

void formed_open(struct formed *f);
/* Closes the nodes that are open; nothing may be left on the heaps. */
void formed_close(struct formed *f);
/* On the main thread: the next group, of these members. What hung on the old nodes goes on with the new ones,
 * and the old ones are closed. */
void formed_group(struct formed *f, const int *members, int size);
hearth_group *formed_world(const struct formed *f, int member);
/* The member's node closes, as if it had crashed for the others. */
void formed_leave(struct formed *f, int member);

/* Runs fn(f, member, arg) on a thread for each member of the group. */
typedef void formed_fn(struct formed *f, int member, void *arg);
void formed_run(struct formed *f, formed_fn *fn, void *arg);

#endif
