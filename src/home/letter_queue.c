/* SPDX-License-Identifier: Apache-2.0 */
/* One block of memory that grows with what waits, and goes when nothing does. */
#include "home/letter_queue.h"

#include <assert.h>
#include <string.h>

#include "home/letter_reader.h"

#define ROOM_MIN  1024u
#define ROOM_KEPT 8192u /* of an empty queue */

void letter_queue_fini(struct letter_queue *q)
{
    heap_free(q->bytes);
    *q = (struct letter_queue){.bytes = NULL};
}

/* Room for so many bytes behind those that wait. */
static bool room_for(struct letter_queue *q, struct heap *heap, size_t len)
{
    size_t room = q->room > 0 ? q->room : ROOM_MIN;

    if (q->len + len > LETTER_QUEUE_MAX)
        return false;
    if (q->start + q->len + len <= q->room)
        return true;
    while (room < q->len + len)
        room *= 2;
    uint8_t *bytes = room > q->room ? heap_alloc_raw(heap, 1, room) : q->bytes;
    if (!bytes)
        return false;
    if (q->len > 0)
        memmove(bytes, q->bytes + q->start, q->len);
    if (bytes != q->bytes)
        heap_free(q->bytes);
    *q = (struct letter_queue){.bytes = bytes, .room = room, .len = q->len};
    return true;
}

bool letter_queue_put(struct letter_queue *q, struct heap *heap, uint8_t kind, const void *payload,
                      size_t len)
{
    if (len > LETTER_PAYLOAD_MAX || !room_for(q, heap, LETTER_HEADER_LEN + len))
        return false;
    uint8_t *end = q->bytes + q->start + q->len;
    letter_header_put(end, kind, len);
    if (len > 0)
        memcpy(end + LETTER_HEADER_LEN, payload, len);
    q->len += LETTER_HEADER_LEN + len;
    return true;
}

struct iovec letter_queue_front(const struct letter_queue *q, size_t max)
{
    if (q->len == 0)
        return (struct iovec){NULL, 0};
    return (struct iovec){q->bytes + q->start, q->len < max ? q->len : max};
}

void letter_queue_sent(struct letter_queue *q, size_t len)
{
    assert(len <= q->len);
    q->start += len;
    q->len -= len;
    if (q->len > 0)
        return;
    q->start = 0;
    if (q->room > ROOM_KEPT)
        letter_queue_fini(q);
}
