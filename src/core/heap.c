/* SPDX-License-Identifier: Apache-2.0 */
/* Counted, limited blocks: each carries its heap and its length in front. */
#include "core/heap.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct block {
    struct heap *heap;
    size_t len; /* of the whole block, this header included */
    uint64_t mark;
    _Atomic(struct block *) next;
    struct block *previous;
};

#define BLOCK_LEN  ((size_t)HEAP_ALIGN) /* of the header, padded so that what follows stays aligned */
#define BLOCK_MARK UINT64_C(0x6865617274682121)

static_assert(sizeof(struct block) <= BLOCK_LEN, "the header fits in front of an aligned block");

void heap_init(struct heap *heap, size_t limit)
{
    heap->limit = limit;
    atomic_init(&heap->calls, 0);
    atomic_init(&heap->blocks, 0);
    atomic_init(&heap->bytes, 0);
    atomic_init(&heap->bytes_peak, 0);
    atomic_init(&heap->fail_after, -1);
    atomic_init(&heap->first, NULL);
    atomic_flag_clear(&heap->busy);
}

/* ---- the chain of live blocks: whole at every moment for a thread that follows `next` ---- */

static void chain_lock(struct heap *heap)
{
    while (atomic_flag_test_and_set_explicit(&heap->busy, memory_order_acquire))
        continue;
}

static void chain_unlock(struct heap *heap)
{
    atomic_flag_clear_explicit(&heap->busy, memory_order_release);
}

static void chain_add(struct block *block)
{
    struct heap *heap = block->heap;

    chain_lock(heap);
    struct block *next = atomic_load(&heap->first);
    block->previous = NULL;
    atomic_init(&block->next, next);
    if (next)
        next->previous = block;
    atomic_store(&heap->first, block);
    chain_unlock(heap);
}

static void chain_remove(struct block *block)
{
    struct heap *heap = block->heap;

    chain_lock(heap);
    struct block *next = atomic_load(&block->next);
    if (next)
        next->previous = block->previous;
    atomic_store(block->previous ? &block->previous->next : &heap->first, next);
    chain_unlock(heap);
}

void heap_drop(struct heap *heap)
{
    struct block *next = atomic_load(&heap->first);

    while (next) {
        struct block *block = next;
        next = atomic_load(&block->next);
        free(block);
    }
    atomic_store(&heap->first, NULL);
}

/* ---- blocks ---- */

/* Whether a test wants this allocation to fail. */
static bool fails_on_demand(struct heap *heap)
{
    int64_t left = atomic_load(&heap->fail_after);

    while (left > 0)
        if (atomic_compare_exchange_weak(&heap->fail_after, &left, left - 1))
            return false;
    return left == 0;
}

/* Adds len to the live bytes, or refuses: a failing caller never makes another one fail that would fit. */
static bool bytes_reserve(struct heap *heap, size_t len)
{
    uint64_t bytes = atomic_load(&heap->bytes);

    do {
        if (heap->limit > 0 && (bytes > heap->limit || len > heap->limit - bytes))
            return false;
    } while (!atomic_compare_exchange_weak(&heap->bytes, &bytes, bytes + len));

    uint64_t peak = atomic_load(&heap->bytes_peak);
    while (peak < bytes + len && !atomic_compare_exchange_weak(&heap->bytes_peak, &peak, bytes + len))
        continue;
    return true;
}

void *heap_alloc_raw(struct heap *heap, size_t count, size_t size)
{
    size_t len;
    void *memory = NULL;

    if (__builtin_mul_overflow(count, size, &len) || __builtin_add_overflow(len, BLOCK_LEN, &len))
        return NULL;
    if (fails_on_demand(heap) || !bytes_reserve(heap, len))
        return NULL;
    if (posix_memalign(&memory, HEAP_ALIGN, len) != 0) {
        atomic_fetch_sub(&heap->bytes, len);
        return NULL;
    }
    struct block *block = memory;
    block->heap = heap;
    block->len = len;
    block->mark = BLOCK_MARK;
    chain_add(block);
    atomic_fetch_add(&heap->calls, 1);
    atomic_fetch_add(&heap->blocks, 1);
    return (char *)memory + BLOCK_LEN;
}

void *heap_alloc(struct heap *heap, size_t count, size_t size)
{
    void *memory = heap_alloc_raw(heap, count, size);

    if (memory)
        memset(memory, 0, count * size);
    return memory;
}

void heap_free(void *memory)
{
    if (!memory)
        return;
    struct block *block = (void *)((char *)memory - BLOCK_LEN);
    assert(block->mark == BLOCK_MARK);
    struct heap *heap = block->heap;
    size_t len = block->len;

    chain_remove(block);
    block->mark = 0;
    free(block);
    atomic_fetch_sub(&heap->blocks, 1);
    atomic_fetch_sub(&heap->bytes, len);
}

char *heap_strdup(struct heap *heap, const char *text)
{
    size_t len = strlen(text) + 1;
    char *copy = heap_alloc_raw(heap, len, 1);

    if (copy)
        memcpy(copy, text, len);
    return copy;
}

struct heap *heap_open(size_t limit)
{
    struct heap *heap = aligned_alloc(HEAP_ALIGN, (sizeof *heap + HEAP_ALIGN - 1) / HEAP_ALIGN * HEAP_ALIGN);
    if (heap)
        heap_init(heap, limit);
    return heap;
}

void heap_close(struct heap *heap)
{
    free(heap);
}
