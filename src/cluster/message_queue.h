/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that wait for room in a connection, as bytes in a row. */
#ifndef CLUSTER_MESSAGE_QUEUE_H
#define CLUSTER_MESSAGE_QUEUE_H

#include "core/heap.h"
#include "os/sock.h"

#define MESSAGE_QUEUE_MAX (1u << 20) /* bytes */

struct message_queue {
    uint8_t *bytes;
    size_t room, start, len;
};

void message_queue_fini(struct message_queue *q);
/* All of it or nothing. */
bool message_queue_put(struct message_queue *q, struct heap *heap, uint8_t kind, const void *payload,
                       size_t len);
struct iovec message_queue_front(const struct message_queue *q, size_t max); /* length 0: it is empty */
void message_queue_sent(struct message_queue *q, size_t len);

#endif
