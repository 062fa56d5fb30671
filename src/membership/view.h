/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in: the view that the members of a cluster agree on. (struct group_view is the collective room's:
 * what an operation needs of a group.) docs/messages.md, is the law of its bytes. */
#pragma once

#include "core/error.h"
#include "security/node_key.h"
#include "wire/peer_codec.h"

#define VIEW_MEMBERS_MAX 64
#define VIEW_LEN_MAX     (VIEW_MEMBERS_MAX * PEER_LEN_MAX + 64u)

/* One agreed view. Members stand in the order of seniority: who came later stands behind; who came in the
 * same view are ordered by id. */
struct view {
    uint64_t instance; /* of the cluster, drawn by its founder, never 0 */
    uint64_t epoch;    /* 1, 2, ... : within an instance there is one view of each */
    uint64_t term;     /* in which it was decided */
    int leader;        /* index */
    int size;
    struct peer_info members[VIEW_MEMBERS_MAX];
};

void identity_text(const struct identity *id, char *text, size_t size); /* short, for logs */
int view_find(const struct view *view, const struct identity *id);      /* index, -1: not in it */
/* It has a vote. Guests have none: they come and go, and nobody must miss them. */
bool view_votes(const struct view *view, int index);
/* So many of its voters can decide the next one: a majority, or exactly half with the leader. `present` has
 * a flag for each member; those of guests do not count. Without voters there is no quorum. */
bool view_quorum(const struct view *view, const bool *present);

void view_put(struct writer *w, const struct view *view);
bool view_get(struct reader *r, struct view *view); /* no member twice, a voter leads, sizes */
