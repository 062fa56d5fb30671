/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to memory: counts, limits and, for torture tests, fails on demand. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_ALIGN 64

static inline size_t align_up(size_t x, size_t to)
{
    return (x + to - 1) / to * to;
}

struct block;

/* One per node (or per test). Thread-safe. Must outlive every block taken from it. */
struct heap {
    size_t limit;             /* of `bytes`; 0 = no limit */
    _Atomic(uint64_t) calls;  /* successful allocations since init: stands still in a steady state */
    _Atomic(uint64_t) blocks; /* live blocks */
    _Atomic(uint64_t) bytes;  /* live bytes, HEAP_ALIGN for the header of each block included */
    _Atomic(uint64_t) bytes_peak;
    _Atomic(int64_t) fail_after;   /* -1: never; 0: the next and all later ones fail; n: after n more */
    _Atomic(struct block *) first; /* of the live blocks; changed by the thread that holds `busy` */
    atomic_flag busy;
};

void heap_init(struct heap *heap, size_t limit);
/* The same on the heap of the C library, for owners that are themselves blocks of it: open first, close last.
 * NULL when memory says no. */
struct heap *heap_open(size_t limit);
void heap_close(struct heap *heap);

/* Zeroed, aligned to HEAP_ALIGN; NULL when memory, the limit or the test says no, or when count * size
 * overflows. A zero size gives a block that may be freed. */
void *heap_alloc(struct heap *heap, size_t count, size_t size);
/* As heap_alloc, content undefined: for big buffers that are written before they are read. */
void *heap_alloc_raw(struct heap *heap, size_t count, size_t size);
void heap_free(void *block); /* NULL is allowed; knows its heap */
char *heap_strdup(struct heap *heap, const char *text);

/* Frees all live blocks at once. For a forked child: another thread may have been in the middle of anything,
 * so that nothing in the blocks can be trusted; the chain that holds them is whole at every moment. */
void heap_drop(struct heap *heap);
