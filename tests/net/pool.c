/* SPDX-License-Identifier: Apache-2.0 */
/* Free lists over one mapping, and a binary heap. */
#include "net/pool.h"

#include <assert.h>
#include <sys/mman.h>

#include "net/segment.h"

#define LARGE_LEN (sizeof(struct frame) + FRAME_MAX + 62) / 64 * 64

static struct frame *chain(uint8_t *memory, size_t stride, size_t count, bool large)
{
    struct frame *head = NULL;
    for (size_t i = count; i-- > 0;) {
        struct frame *frame = (struct frame *)(void *)(memory + i * stride);
        frame->large = large;
        frame->next = head;
        head = frame;
    }
    return head;
}

bool pool_init(struct pool *pool)
{
    size_t small_len = (size_t)SMALL_LEN * SMALL_MAX, large_len = LARGE_LEN * LARGE_MAX;
    void *memory = mmap(NULL, small_len + large_len, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    pool->memory = memory;
    pool->memory_len = small_len + large_len;
    pool->small = chain(pool->memory, SMALL_LEN, SMALL_MAX, false);
    pool->large = chain(pool->memory + small_len, LARGE_LEN, LARGE_MAX, true);
    return true;
}

void pool_fini(struct pool *pool)
{
    munmap(pool->memory, pool->memory_len);
}

struct frame *pool_get(struct pool *pool, size_t len)
{
    struct frame **list = sizeof(struct frame) + len <= SMALL_LEN ? &pool->small : &pool->large;
    struct frame *frame = *list;
    if (frame)
        *list = frame->next;
    return frame;
}

void pool_put(struct pool *pool, struct frame *frame)
{
    struct frame **list = frame->large ? &pool->large : &pool->small;
    frame->next = *list;
    *list = frame;
}

static bool before(const struct heap_item *a, const struct heap_item *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void heap_push(struct heap *heap, uint64_t at_ns, struct frame *frame)
{
    struct heap_item item = {at_ns, heap->order++, frame};
    size_t i = heap->count++;
    assert(i < FRAMES_MAX); /* every frame is in it once at most */
    for (size_t up; i > 0 && before(&item, &heap->items[up = (i - 1) / 2]); i = up)
        heap->items[i] = heap->items[up];
    heap->items[i] = item;
}

struct frame *heap_pop(struct heap *heap)
{
    struct frame *frame = heap->items[0].frame;
    struct heap_item item = heap->items[--heap->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < heap->count; i = child) {
        if (child + 1 < heap->count && before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!before(&heap->items[child], &item))
            break;
        heap->items[i] = heap->items[child];
    }
    heap->items[i] = item;
    return frame;
}
