/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of frames under way: taken once, given out in two sizes; and a heap that orders them by time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/shape.h"

#define SMALL_LEN  2048 /* room for a frame of 1500 bytes and all that goes with it */
#define SMALL_MAX  65536
#define LARGE_MAX  4096
#define FRAMES_MAX (SMALL_MAX + LARGE_MAX)

struct frame {
    struct group_move group_move;
    struct frame *next;
    uint32_t len;
    uint16_t source, target; /* ports */
    bool large;
    uint8_t data[];
};

struct pool {
    uint8_t *memory;
    size_t memory_len;
    struct frame *small,
        *large; /* free ones; the last given back is the next given out, so few pages are touched */
};

/* False with errno set: no memory. */
bool pool_init(struct pool *pool);
void pool_fini(struct pool *pool);

/* A frame with room for len bytes of data, or NULL. */
struct frame *pool_get(struct pool *pool, size_t len);
void pool_put(struct pool *pool, struct frame *frame);

/* Frames by time; of equal times, the first in is the first out. */
struct heap_item {
    uint64_t at_ns, order;
    struct frame *frame;
};

struct heap {
    struct heap_item *items; /* FRAMES_MAX, the caller's */
    size_t count;
    uint64_t order;
};

void heap_push(struct heap *heap, uint64_t at_ns, struct frame *frame);
struct frame *heap_pop(struct heap *heap);
