/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of letters that are to be sent. */
#include "membership/outbox.h"

#include <string.h>

void outbox_init(struct outbox *box, struct heap *heap)
{
    *box = (struct outbox){.heap = heap};
    list_init(&box->letters);
}

void outbox_fini(struct outbox *box)
{
    struct outbox_letter *letter;
    while ((letter = outbox_take(box)) != NULL)
        heap_free(letter);
}

void outbox_put(struct outbox *box, const struct identity *to, uint8_t kind, const void *payload, size_t len)
{
    struct outbox_letter *letter = NULL;
    if (box->count < OUTBOX_MAX && len <= LETTER_PAYLOAD_MAX)
        letter = heap_alloc_raw(box->heap, 1, sizeof(*letter) + len);
    if (letter == NULL) {
        box->dropped++;
        return;
    }
    letter->to = *to;
    letter->kind = kind;
    letter->len = len;
    if (len > 0)
        memcpy(letter->payload, payload, len);
    list_push(&box->letters, &letter->item);
    box->count++;
}

struct outbox_letter *outbox_take(struct outbox *box)
{
    if (list_empty(&box->letters))
        return NULL;
    struct outbox_letter *letter = container_of(box->letters.next, struct outbox_letter, item);
    list_remove(&letter->item);
    box->count--;
    return letter;
}
