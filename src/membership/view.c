/* SPDX-License-Identifier: Apache-2.0 */
/* Views: lookup, quorum, encoding. */
#include "membership/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_MAX (UINT64_MAX / 2) /* of epochs and terms, so that a next one exists */

void identity_text(const struct identity *id, char *text, size_t size)
{
    char node[NODE_ID_SHORT];
    node_id_short(&id->node, node);
    snprintf(text, size, "%s/%04" PRIx64, node, id->instance & 0xffff);
}

int view_find(const struct view *view, const struct identity *id)
{
    for (int i = 0; i < view->size; i++)
        if (identity_equal(&view->members[i].id, id))
            return i;
    return -1;
}

bool view_votes(const struct view *view, int index)
{
    return (view->members[index].features & PEER_GUEST) == 0;
}

bool view_quorum(const struct view *view, const bool *present)
{
    int count = 0, voters = 0;
    for (int i = 0; i < view->size; i++) {
        voters += view_votes(view, i);
        count += view_votes(view, i) && present[i];
    }
    bool leader = view_votes(view, view->leader) && present[view->leader];
    return 2 * count > voters || (2 * count == voters && leader);
}

/* ---- bytes ---- */

void view_put(struct writer *w, const struct view *view)
{
    put_u64(w, view->instance);
    put_u64(w, view->epoch);
    put_u64(w, view->term);
    put_u16(w, (uint16_t)view->leader);
    put_u16(w, (uint16_t)view->size);
    put_u32(w, 0);
    for (int i = 0; i < view->size; i++)
        peer_put(w, &view->members[i]);
}

static bool view_inside(struct reader *r, struct view *view)
{
    view->instance = get_u64(r);
    view->epoch = get_u64(r);
    view->term = get_u64(r);
    view->leader = get_u16(r);
    view->size = get_u16(r);
    (void)get_u32(r); /* for later versions */
    if (r->bad || view->instance == 0 || view->epoch == 0 || view->epoch > NUMBER_MAX || view->term == 0 ||
        view->term > NUMBER_MAX || view->size == 0 || view->size > VIEW_MEMBERS_MAX ||
        view->leader >= view->size)
        return false;
    int size = view->size;
    for (view->size = 0; view->size < size; view->size++) {
        struct peer_info *next = &view->members[view->size];
        if (!peer_get(r, next) || view_find(view, &next->id) >= 0)
            return false;
    }
    return size == 1 || view_votes(view, view->leader);
}

bool view_get(struct reader *r, struct view *view)
{
    if (!view_inside(r, view))
        r->bad = true;
    return !r->bad;
}
