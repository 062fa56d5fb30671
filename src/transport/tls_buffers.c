/* SPDX-License-Identifier: Apache-2.0 */
/* Two stacks of buffers: what was used last is used next. */
#include "transport/tls_buffers.h"

#include <assert.h>
#include <string.h>

enum { DIRECTIONS = 2 };

/* In a buffer that nobody has. */
struct free_buffer {
    struct free_buffer *next;
};

struct tls_buffers {
    struct heap *heap;
    unsigned users;
    unsigned taken; /* of both kinds */
    struct free_buffer *first[DIRECTIONS];
    unsigned count[DIRECTIONS]; /* of those */
};

struct tls_buffers *tls_buffers_open(struct heap *heap)
{
    struct tls_buffers *buffers = heap_alloc(heap, 1, sizeof *buffers);

    if (!buffers)
        return NULL;
    buffers->heap = heap;
    buffers->users = 1;
    for (int direction = 0; direction < DIRECTIONS; direction++) {
        uint8_t *one = tls_buffers_take(buffers, (enum tls_direction)direction);
        if (!one) {
            tls_buffers_close(buffers);
            return NULL;
        }
        tls_buffers_give(buffers, (enum tls_direction)direction, one);
    }
    return buffers;
}

struct heap *tls_buffers_heap(const struct tls_buffers *buffers)
{
    return buffers->heap;
}

struct tls_buffers *tls_buffers_share(struct tls_buffers *buffers)
{
    buffers->users++;
    return buffers;
}

static void free_beyond(struct tls_buffers *buffers, enum tls_direction direction, unsigned kept)
{
    while (buffers->count[direction] > kept) {
        struct free_buffer *one = buffers->first[direction];
        buffers->first[direction] = one->next;
        buffers->count[direction]--;
        heap_free(one);
    }
}

void tls_buffers_close(struct tls_buffers *buffers)
{
    if (!buffers || --buffers->users > 0)
        return;
    assert(buffers->taken == 0);
    free_beyond(buffers, TLS_OUT, 0);
    free_beyond(buffers, TLS_IN, 0);
    heap_free(buffers);
}

uint8_t *tls_buffers_take(struct tls_buffers *buffers, enum tls_direction direction)
{
    struct free_buffer *one = buffers->first[direction];

    if (one) {
        buffers->first[direction] = one->next;
        buffers->count[direction]--;
    } else {
        one = heap_alloc_raw(buffers->heap, 1,
                             direction == TLS_IN ? TLS_IN_BYTES : TLS_OUT_BYTES + TLS_BYE_BYTES);
    }
    buffers->taken += !!one;
    return (uint8_t *)one;
}

void tls_buffers_give(struct tls_buffers *buffers, enum tls_direction direction, uint8_t *buffer)
{
    struct free_buffer *one = (void *)buffer; /* it is aligned as the heap's blocks are */

    assert(buffers->taken > 0);
    buffers->taken--;
    one->next = buffers->first[direction];
    buffers->first[direction] = one;
    buffers->count[direction]++;
}

void tls_buffers_rest(struct tls_buffers *buffers)
{
    if (buffers->taken > 0)
        return;
    free_beyond(buffers, TLS_OUT, TLS_KEPT);
    free_beyond(buffers, TLS_IN, TLS_KEPT);
}
