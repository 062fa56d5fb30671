/* SPDX-License-Identifier: Apache-2.0 */
/* What hangs on a node: is freed with it, or moves to the node of the next group. */
#include "node/node.h"

void node_attach(hearth_node *node, struct attachment *attachment)
{
    mutex_lock(&node->baton);
    list_push(&node->attached, &attachment->item);
    mutex_unlock(&node->baton);
}

void node_detach(hearth_node *node, struct attachment *attachment)
{
    mutex_lock(&node->baton);
    list_remove(&attachment->item);
    mutex_unlock(&node->baton);
}

void attachments_drop(hearth_node *node)
{
    while (!list_empty(&node->attached)) {
        struct attachment *attachment = container_of(node->attached.next, struct attachment, item);
        list_remove(&attachment->item);
        attachment->drop(attachment);
    }
}

/* Without the baton: they wait for what is in flight. In the order in which they came, which is the same on
 * all members. */
static int move_all(hearth_group *from, hearth_group *to, enum move_phase phase, struct error *error)
{
    struct passage way = {.from = from, .to = to, .phase = phase};
    struct list *item, *after;
    int status = HEARTH_OK;
    LIST_EACH (item, after, &from->node->attached) {
        struct attachment *attachment = container_of(item, struct attachment, item);
        if (attachment->move != NULL && status == HEARTH_OK)
            status = attachment->move(attachment, &way, error);
    }
    return status;
}

int node_move_attachments(hearth_group *from, hearth_group *to, struct error *error)
{
    if (from->node->heap != to->node->heap)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "what hangs on a group stays on its heap");
    node_view_changed(from->node, "the group is formed anew");
    int status = move_all(from, to, MOVE_PREPARE, error);
    struct error none; /* those cannot fail */
    move_all(from, to, status == HEARTH_OK ? MOVE_COMMIT : MOVE_CANCEL, &none);
    return status;
}
