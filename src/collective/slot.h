/* SPDX-License-Identifier: Apache-2.0 */
/* Staging memory of a node: a slot holds one frame's payload or one accumulator, or stands for a payload that
 * is lent. Pooled by size, one owner, touched only by the holder of the baton. */
#pragma once

#include "core/heap.h"
#include "core/list.h"
#include "transport/link.h"

#define SLOT_CLASSES    18          /* 512 bytes to 64 MiB, by powers of two */
#define SLOT_CACHED_MAX (64u << 20) /* bytes kept for later; what is above goes back to the heap */

struct slot_pool {
    struct heap *heap;
    struct list free[SLOT_CLASSES + 1]; /* the last: without memory */
    size_t cached;                      /* bytes in the lists */
};

struct slot {
    struct list item; /* in a free list, or wherever its holder wants it */
    struct slot_pool *pool;
    uint32_t class;
    struct frame frame; /* of the payload it holds, where it holds one */
    bool whole;         /* the payload has come */
    struct loan loan;   /* where the payload stands, if it is lent: not to be written */
    void *data;         /* NULL in a slot for loans */
};

void slot_pool_init(struct slot_pool *pool, struct heap *heap);
void slot_pool_fini(struct slot_pool *pool);

/* At least len bytes, content undefined; NULL when there is no memory. */
struct slot *slot_get(struct slot_pool *pool, size_t len);
/* One for a payload that will be lent. */
struct slot *slot_get_bare(struct slot_pool *pool);
/* What is lent to the slot becomes its own, by a copy; *good becomes false if it was taken back meanwhile.
 * False: no memory. */
bool slot_own(struct slot *slot, bool *good);
/* The payload, wherever it stands. */
const void *slot_payload(const struct slot *slot);
/* Ends its loan; out of its list, back to the pool. NULL is allowed. */
void slot_put(struct slot *slot);
