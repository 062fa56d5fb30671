/* SPDX-License-Identifier: Apache-2.0 */
/* Letters that wait for room in a connection, as bytes in a row. */
#ifndef HOME_LETTER_QUEUE_H
#define HOME_LETTER_QUEUE_H

#include "core/heap.h"
#include "os/sock.h"

#define LETTER_QUEUE_MAX (1u << 20) /* bytes */

struct letter_queue {
    uint8_t *bytes;
    size_t room, start, len;
};

void letter_queue_fini(struct letter_queue *q);
/* All of it or nothing. */
bool letter_queue_put(struct letter_queue *q, struct heap *heap, uint8_t kind, const void *payload,
                      size_t len);
struct iovec letter_queue_front(const struct letter_queue *q, size_t max); /* length 0: it is empty */
void letter_queue_sent(struct letter_queue *q, size_t len);

#endif
