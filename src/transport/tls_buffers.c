/* SPDX-License-Identifier: Apache-2.0 */
/* Two stacks of buffers: what was used last is used next. */
#include "transport/tls_buffers.h"

#include <assert.h>
#include <string.h>

enum { WAYS = 2 };

/* In a buffer that nobody has. */
struct free_buffer {
    struct free_buffer *next;
};

struct tls_buffers {
    struct heap *heap;
    unsigned users;
    unsigned taken; /* of both kinds */
    struct free_buffer *first[WAYS];
    unsigned count[WAYS]; /* of those */
};

struct tls_buffers *tls_buffers_open(struct heap *heap)
{
    struct tls_buffers *buffers = heap_alloc(heap, 1, sizeof(*buffers));

    if (buffers == NULL)
        return NULL;
    buffers->heap = heap;
    buffers->users = 1;
    for (int way = 0; way < WAYS; way++) {
        uint8_t *one = tls_buffers_take(buffers, (enum tls_way)way);
        if (one == NULL) {
            tls_buffers_close(buffers);
            return NULL;
        }
        tls_buffers_give(buffers, (enum tls_way)way, one);
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

static void free_beyond(struct tls_buffers *buffers, enum tls_way way, unsigned kept)
{
    while (buffers->count[way] > kept) {
        struct free_buffer *one = buffers->first[way];
        buffers->first[way] = one->next;
        buffers->count[way]--;
        heap_free(one);
    }
}

void tls_buffers_close(struct tls_buffers *buffers)
{
    if (buffers == NULL || --buffers->users > 0)
        return;
    assert(buffers->taken == 0);
    free_beyond(buffers, TLS_OUT, 0);
    free_beyond(buffers, TLS_IN, 0);
    heap_free(buffers);
}

uint8_t *tls_buffers_take(struct tls_buffers *buffers, enum tls_way way)
{
    struct free_buffer *one = buffers->first[way];

    if (one != NULL) {
        buffers->first[way] = one->next;
        buffers->count[way]--;
    } else {
        one = heap_alloc_raw(buffers->heap, 1, way == TLS_IN ? TLS_IN_BYTES : TLS_OUT_BYTES + TLS_BYE_BYTES);
    }
    buffers->taken += one != NULL;
    return (uint8_t *)one;
}

void tls_buffers_give(struct tls_buffers *buffers, enum tls_way way, uint8_t *buffer)
{
    struct free_buffer *one = (void *)buffer; /* it is aligned as the heap's blocks are */

    assert(buffers->taken > 0);
    buffers->taken--;
    one->next = buffers->first[way];
    buffers->first[way] = one;
    buffers->count[way]++;
}

void tls_buffers_rest(struct tls_buffers *buffers)
{
    if (buffers->taken > 0)
        return;
    free_beyond(buffers, TLS_OUT, TLS_KEPT);
    free_beyond(buffers, TLS_IN, TLS_KEPT);
}
