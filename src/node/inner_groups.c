/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of a node: made for users, and for the parts of compound calls. */
#include "node/copier.h"

static hearth_group *group_make(hearth_node *node)
{
    hearth_group *group = heap_alloc(node->heap, 1, sizeof *group);
    if (!group)
        return NULL;
    group->node = node;
    group->memory = memory_host;
    list_init(&group->item);
    return group;
}

/* With the baton: the engine has opened it, or not. */
static int group_made(hearth_group *group, int status, hearth_group **out)
{
    if (status == HEARTH_OK) {
        list_push(&group->node->groups, &group->item);
        *out = group;
    } else {
        heap_free(group);
    }
    return status;
}

int node_group(hearth_node *node, const struct group_view *view, const int *members, hearth_group **out)
{
    hearth_group *group = group_make(node);
    if (!group)
        return HEARTH_NO_MEMORY;
    mutex_lock(&node->baton);
    int status = group_made(group, group_open(node->engine, view, members, &group->group), out);
    mutex_unlock(&node->baton);
    return status;
}

hearth_group *node_inner(hearth_group *outer, enum inner_kind kind)
{
    mutex_lock(&outer->node->baton);
    hearth_group *inner = outer->inner[kind];
    bool same = inner && inner->followed == group_version(outer->group);
    mutex_unlock(&outer->node->baton);
    return same ? inner : NULL;
}

/* Inner groups are never closed before their outer one, even if its members are on other hosts now: another
 * member may use one again first, and frames for a closed group are dropped. */
static hearth_group *inner_find(const hearth_group *outer, uint64_t id)
{
    struct list *item, *after;
    LIST_EACH (item, after, &outer->node->groups) {
        hearth_group *group = container_of(item, hearth_group, item);
        if (group->outer == outer && group_view(group->group)->group == id)
            return group;
    }
    return NULL;
}

static int inner_make(hearth_group *outer, enum inner_kind kind, const struct group_view *view,
                      const int *members, hearth_group **out)
{
    hearth_group *group = group_make(outer->node);
    if (!group)
        return HEARTH_NO_MEMORY;
    group->outer = outer;
    return group_made(group, group_open_inner(outer->group, kind, view, members, &group->group), out);
}

int node_make_inner(hearth_group *outer, enum inner_kind kind, const struct group_view *view,
                    const int *members, hearth_group **out)
{
    uint64_t version = group_version(outer->group);
    mutex_lock(&outer->node->baton);
    hearth_group *inner = inner_find(outer, view->group);
    int status = HEARTH_OK;
    if (!inner)
        status = inner_make(outer, kind, view, members, &inner);
    else if (inner->followed != version) /* or another thread was faster */
        group_set_view(inner->group, view);
    if (status == HEARTH_OK) {
        inner->followed = version;
        outer->inner[kind] = inner;
        *out = inner;
    }
    mutex_unlock(&outer->node->baton);
    return status;
}
