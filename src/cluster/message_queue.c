/* SPDX-License-Identifier: Apache-2.0 */
/* One block of memory that grows with what waits, and goes when nothing does. */
#include "cluster/message_queue.h"

#include <assert.h>
#include <string.h>

#include "cluster/message_reader.h"

#define ROOM_MIN  1024u
#define ROOM_KEPT 8192u /* of an empty queue */

void message_queue_fini(struct message_queue *q)
{
    heap_free(q->bytes);
    *q = (struct message_queue){.bytes = NULL};
}

/* Room for so many bytes behind those that wait. */
static bool room_for(struct message_queue *q, struct heap *heap, size_t len)
{
    size_t room = q->room > 0 ? q->room : ROOM_MIN;

    if (q->len + len > MESSAGE_QUEUE_MAX)
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
    *q = (struct message_queue){.bytes = bytes, .room = room, .len = q->len};
    return true;
}

bool message_queue_put(struct message_queue *q, struct heap *heap, uint8_t kind, const void *payload,
                       size_t len)
{
    if (len > MESSAGE_PAYLOAD_MAX || !room_for(q, heap, MESSAGE_HEADER_LEN + len))
        return false;
    uint8_t *end = q->bytes + q->start + q->len;
    message_header_put(end, kind, len);
    if (len > 0)
        memcpy(end + MESSAGE_HEADER_LEN, payload, len);
    q->len += MESSAGE_HEADER_LEN + len;
    return true;
}

struct iovec message_queue_front(const struct message_queue *q, size_t max)
{
    if (q->len == 0)
        return (struct iovec){NULL, 0};
    return (struct iovec){q->bytes + q->start, q->len < max ? q->len : max};
}

void message_queue_sent(struct message_queue *q, size_t len)
{
    assert(len <= q->len);
    q->start += len;
    q->len -= len;
    if (q->len > 0)
        return;
    q->start = 0;
    if (q->room > ROOM_KEPT)
        message_queue_fini(q);
}
