/* SPDX-License-Identifier: Apache-2.0 */
/* Attachments of a node. reconcile.c moves them to the node of the next group. */
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
