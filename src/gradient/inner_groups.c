/* SPDX-License-Identifier: Apache-2.0 */
/* The inner groups that compressed all-reduces of a group run on: all members, those of our host, and one
 * of each host. They are made by the first call that needs them and kept. */
#include "core/derived_id.h"
#include "core/hash.h"
#include "gradient/codec_pool.h"

bool leads_host(const struct group_view *view, int rank)
{
    for (int i = 0; i < rank; i++)
        if (view_place(view, i) == view_place(view, rank))
            return false;
    return true;
}

static int ranks_of(const struct group_view *view, int rank, enum inner_kind kind, int *ranks)
{
    int count = 0;
    for (int i = 0; i < view->size; i++)
        if (kind == INNER_ALL ||
            (kind == INNER_LEADERS ? leads_host(view, i) : view_place(view, i) == view_place(view, rank)))
            ranks[count++] = i;
    return count;
}

/* Members that moved to another host are another group. */
static uint64_t id_of(const struct group_view *view, enum inner_kind kind, const int *ranks, int count)
{
    uint64_t all = derived_id(ID_INNER, view->group, 0, 0), hash = 0;
    if (kind == INNER_ALL)
        return all;
    for (int i = 0; i < count; i++)
        hash = hash_mix(hash, (uint64_t)ranks[i]);
    return derived_id(kind == INNER_HOST ? ID_HOST : ID_LEADERS, all, hash, 0);
}

int reduction_inner(struct reduction *r, enum inner_kind kind, hearth_group **out)
{
    hearth_group *outer = r->call.group;
    struct group_view view = *group_view(outer->group), given = view;
    size_t size = (size_t)view.size;
    *out = node_inner(outer, kind);
    if (*out)
        return HEARTH_OK;
    int *ranks = reduction_take(r, 5 * size * sizeof *ranks);
    if (!ranks)
        return r->error.status;
    int *members = ranks + size, *host = members + size, *site = host + size, *order = site + size;
    view.size = ranks_of(&given, r->rank, kind, ranks);
    view.group = id_of(&given, kind, ranks, view.size);
    for (int i = 0; i < view.size; i++) {
        members[i] = group_member(outer->group, ranks[i]);
        host[i] = given.host ? given.host[ranks[i]] : 0;
        site[i] = view_place(&given, ranks[i]);
    }
    if (given.order)
        view_order(&given, ranks, view.size, order);
    view.host = given.host ? host : NULL;
    view.site = given.site ? site : NULL;
    view.order = given.order ? order : NULL;
    int status = node_make_inner(outer, kind, &view, members, out);
    codec_pool_give(r->pool, ranks);
    return status == HEARTH_OK ? status : reduction_fail(r, status, hearth_status_text(status));
}
