/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of messages to send. */
#include "membership/outbox.h"

#include <string.h>

void outbox_init(struct outbox *box, struct heap *heap)
{
    *box = (struct outbox){.heap = heap};
    list_init(&box->messages);
}

void outbox_fini(struct outbox *box)
{
    struct outbox_message *message;
    while ((message = outbox_take(box)))
        heap_free(message);
}

void outbox_put(struct outbox *box, const struct identity *to, uint8_t kind, const void *payload, size_t len)
{
    struct outbox_message *message = NULL;
    if (box->count < OUTBOX_MAX && len <= MESSAGE_PAYLOAD_MAX)
        message = heap_alloc_raw(box->heap, 1, sizeof *message + len);
    if (!message) {
        box->dropped++;
        return;
    }
    message->to = *to;
    message->kind = kind;
    message->len = len;
    if (len > 0)
        memcpy(message->payload, payload, len);
    list_push(&box->messages, &message->item);
    box->count++;
}

struct outbox_message *outbox_take(struct outbox *box)
{
    if (list_empty(&box->messages))
        return NULL;
    struct outbox_message *message = container_of(box->messages.next, struct outbox_message, item);
    list_remove(&message->item);
    box->count--;
    return message;
}
