/* SPDX-License-Identifier: Apache-2.0 */
/* Free lists by power of two: between two equal operations nothing is allocated. */
#include "collective/slot.h"

#include <string.h>

#define CLASS_BYTES_MIN 512u

#define CLASS_BARE SLOT_CLASSES /* without memory */

static size_t class_bytes(uint32_t class)
{
    return class == CLASS_BARE ? 0 : (size_t)CLASS_BYTES_MIN << class;
}

void slot_pool_init(struct slot_pool *pool, struct heap *heap)
{
    pool->heap = heap;
    pool->cached = 0;
    for (int i = 0; i <= SLOT_CLASSES; i++)
        list_init(&pool->free[i]);
}

void slot_pool_fini(struct slot_pool *pool)
{
    for (int i = 0; i <= SLOT_CLASSES; i++) {
        struct list *item, *after;
        LIST_EACH (item, after, &pool->free[i]) {
            struct slot *slot = container_of(item, struct slot, item);
            heap_free(slot->data);
            heap_free(slot);
        }
        list_init(&pool->free[i]);
    }
}

static struct slot *slot_make(struct slot_pool *pool, uint32_t class)
{
    struct slot *slot = heap_alloc(pool->heap, 1, sizeof *slot);
    if (!slot)
        return NULL;
    if (class != CLASS_BARE)
        slot->data = heap_alloc_raw(pool->heap, 1, class_bytes(class));
    if (class != CLASS_BARE && !slot->data) {
        heap_free(slot);
        return NULL;
    }
    slot->pool = pool;
    slot->class = class;
    list_init(&slot->item);
    return slot;
}

static struct slot *slot_take(struct slot_pool *pool, uint32_t class)
{
    struct slot *slot;
    if (list_empty(&pool->free[class])) {
        slot = slot_make(pool, class);
        if (!slot)
            return NULL;
    } else {
        slot = container_of(pool->free[class].prev, struct slot, item); /* the warmest */
        list_remove(&slot->item);
        pool->cached -= class_bytes(class);
    }
    slot->whole = false;
    return slot;
}

struct slot *slot_get(struct slot_pool *pool, size_t len)
{
    uint32_t class = 0;
    while (class < SLOT_CLASSES && class_bytes(class) < len)
        class ++;
    return class < SLOT_CLASSES ? slot_take(pool, class) : NULL;
}

struct slot *slot_get_bare(struct slot_pool *pool)
{
    return slot_take(pool, CLASS_BARE);
}

bool slot_own(struct slot *slot, bool *good)
{
    if (!slot->loan.data)
        return true;
    struct slot *with = slot_get(slot->pool, slot->frame.length);
    if (!with)
        return false;
    uint32_t bare = slot->class;
    memcpy(with->data, slot->loan.data, slot->frame.length);
    slot->data = with->data;
    slot->class = with->class;
    with->data = NULL;
    with->class = bare;
    slot_put(with);
    *good = *good && loan_good(&slot->loan);
    loan_end(&slot->loan);
    return true;
}

const void *slot_payload(const struct slot *slot)
{
    return slot->loan.data ? slot->loan.data : slot->data;
}

void slot_put(struct slot *slot)
{
    if (!slot)
        return;
    struct slot_pool *pool = slot->pool;
    loan_end(&slot->loan);
    list_remove(&slot->item);
    if (pool->cached + class_bytes(slot->class) > SLOT_CACHED_MAX) {
        heap_free(slot->data);
        heap_free(slot);
        return;
    }
    pool->cached += class_bytes(slot->class);
    list_push(&pool->free[slot->class], &slot->item);
}
