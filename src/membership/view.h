/* SPDX-License-Identifier: Apache-2.0 */
/* The view: the list of members that a cluster agrees on. (struct group_view of the collective room is what
 * an operation needs of a group.) docs/cluster_messages.md specifies its bytes. */
#pragma once

#include "core/error.h"
#include "security/node_key.h"
#include "wire/peer_codec.h"

#define VIEW_MEMBERS_MAX 64
#define VIEW_LEN_MAX     (VIEW_MEMBERS_MAX * PEER_LEN_MAX + 64u)

/* One agreed view. Members stand in order of seniority; members admitted by one view stand in order of id. */
struct view {
    uint64_t instance; /* of the cluster, drawn by its founder, never 0 */
    uint64_t epoch;    /* 1, 2, ...: each has one view within an instance */
    uint64_t term;     /* in which it was decided */
    int leader;        /* index */
    int size;
    struct peer_info members[VIEW_MEMBERS_MAX];
};

void identity_text(const struct identity *id, char *text, size_t size); /* short, for logs */
int view_find(const struct view *view, const struct identity *id);      /* index, -1: not in it */
/* Guests have no vote: they come and go, and no quorum waits for them. */
bool view_votes(const struct view *view, int index);
/* The present voters can decide the next view: a majority, or exactly half with the leader. `present` has a
 * flag for each member; guests do not count. Without voters there is no quorum. */
bool view_quorum(const struct view *view, const bool *present);

void view_put(struct writer *w, const struct view *view);
bool view_get(struct reader *r, struct view *view); /* no member twice, a voter leads, sizes */
