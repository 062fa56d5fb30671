/* SPDX-License-Identifier: Apache-2.0 */
/* The heap counts, aligns, keeps its limit to the byte under threads, and fails on demand. */
#include <pthread.h>

#include "core/heap.h"
#include "support/suite.h"

#define THREADS 4

static struct heap heap;

static int fresh_heap(void **state)
{
    (void)state;
    heap_init(&heap, 0);
    return 0;
}

TEST_WITH(blocks_are_aligned_zeroed_and_counted, fresh_heap, NULL)
{
    void *blocks[100];
    uint64_t bytes = 0;

    for (size_t i = 0; i < 100; i++) {
        blocks[i] = heap_alloc(&heap, i, 7);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % HEAP_ALIGN, 0);
        for (size_t j = 0; j < i * 7; j++)
            assert_int_equal(((uint8_t *)blocks[i])[j], 0);
        memset(blocks[i], 0xaa, i * 7);
        bytes += i * 7 + HEAP_ALIGN;
        assert_int_equal(heap.bytes, bytes);
        assert_int_equal(heap.blocks, i + 1);
    }
    for (size_t i = 0; i < 100; i++)
        heap_free(blocks[i]);
    assert_int_equal(heap.calls, 100);
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(heap.bytes, 0);
    assert_int_equal(heap.bytes_peak, bytes);
    heap_free(NULL);
}

TEST_WITH(zeroed_also_where_memory_was_used_before, fresh_heap, NULL)
{
    for (int round = 0; round < 50; round++) {
        uint8_t *block = heap_alloc(&heap, 1000, 1);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(block[i], 0);
        memset(block, 0xff, 1000);
        heap_free(block);
    }
}

TEST_WITH(overflow_is_refused, fresh_heap, NULL)
{
    assert_null(heap_alloc(&heap, SIZE_MAX, 2));
    assert_null(heap_alloc(&heap, SIZE_MAX / 2 + 1, 2));
    assert_null(heap_alloc_raw(&heap, SIZE_MAX, 1));
    assert_null(heap_alloc_raw(&heap, SIZE_MAX - HEAP_ALIGN + 1, 1));
    assert_int_equal(heap.bytes, 0);
    assert_int_equal(heap.calls, 0);
}

TEST(the_limit_holds_to_the_byte)
{
    heap_init(&heap, 1000 + HEAP_ALIGN);
    assert_null(heap_alloc(&heap, 1001, 1));
    void *all = heap_alloc(&heap, 1000, 1);
    assert_non_null(all);
    assert_null(heap_alloc(&heap, 0, 1));
    assert_int_equal(heap.bytes, heap.limit);
    heap_free(all);
    void *again = heap_alloc(&heap, 1000, 1);
    assert_non_null(again);
    heap_free(again);
    assert_int_equal(heap.calls, 2);
    assert_int_equal(heap.bytes_peak, heap.limit);
}

TEST_WITH(fail_after_counts_down_and_stays, fresh_heap, NULL)
{
    void *blocks[3];

    heap.fail_after = 3;
    for (int i = 0; i < 3; i++)
        assert_non_null(blocks[i] = heap_alloc(&heap, 1, 1));
    for (int i = 0; i < 5; i++)
        assert_null(heap_alloc(&heap, 1, 1));
    assert_null(heap_strdup(&heap, "no"));
    assert_int_equal(heap.fail_after, 0);
    heap.fail_after = -1;
    void *last = heap_alloc_raw(&heap, 1, 1);
    assert_non_null(last);
    heap_free(last);
    for (int i = 0; i < 3; i++)
        heap_free(blocks[i]);
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(heap.bytes, 0);
}

TEST_WITH(strings_are_copied, fresh_heap, NULL)
{
    char text[] = "warm";

    char *copy = heap_strdup(&heap, text);
    text[0] = 'x';
    assert_string_equal(copy, "warm");
    heap_free(copy);
    copy = heap_strdup(&heap, "");
    assert_string_equal(copy, "");
    heap_free(copy);
}

#define SLOTS 8 /* blocks that fit under the limit of the test below */

/* Each thread wants two blocks at most. All together they fit exactly, so nobody may ever be refused, and
 * the peak may never pass the limit. */
static void *take_and_give(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000; i++) {
        void *one = heap_alloc_raw(&heap, 100, 1);
        void *two = heap_alloc_raw(&heap, 100, 1);
        if (!one || !two)
            return (void *)"refused although it fits";
        heap_free(one);
        heap_free(two);
    }
    return NULL;
}

/* Wants more than there is: some are refused. */
static void *take_too_much(void *arg)
{
    void *blocks[SLOTS];

    (void)arg;
    for (int i = 0; i < 5000; i++) {
        for (int j = 0; j < SLOTS; j++)
            blocks[j] = heap_alloc_raw(&heap, 100, 1);
        for (int j = 0; j < SLOTS; j++)
            heap_free(blocks[j]);
    }
    return NULL;
}

static void run_threads(void *(*run)(void *))
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *complaint;
        assert_int_equal(pthread_join(threads[i], &complaint), 0);
        assert_null(complaint);
    }
    assert_int_equal(heap.bytes, 0);
    assert_int_equal(heap.blocks, 0);
    assert_true(heap.bytes_peak <= heap.limit);
}

TEST(the_limit_is_exact_under_threads)
{
    heap_init(&heap, (size_t)SLOTS * (100 + HEAP_ALIGN));
    run_threads(take_and_give);
    assert_int_equal(heap.calls, THREADS * 40000);
    run_threads(take_too_much);
    assert_int_equal(heap.bytes_peak, heap.limit);
}

static void *count_successes(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1000; i++)
        heap_free(heap_alloc_raw(&heap, 1, 1));
    return NULL;
}

TEST(fail_after_is_exact_under_threads)
{
    heap_init(&heap, 1 << 20);
    heap.fail_after = 1777;
    run_threads(count_successes);
    assert_int_equal(heap.calls, 1777);
}

/* For a forked child: all blocks go at once, nobody says which. A leak would be seen by the sanitizer. */
TEST_WITH(a_drop_frees_what_is_left, fresh_heap, NULL)
{
    void *blocks[50];

    for (size_t i = 0; i < 50; i++)
        assert_non_null(blocks[i] = heap_alloc(&heap, 1, i * 100));
    for (size_t i = 0; i < 50; i += 7) /* both ends of the chain, and between */
        heap_free(blocks[i]);
    heap_drop(&heap);
    heap_drop(&heap); /* nothing is left */
    void *again = heap_alloc(&heap, 1, 1);
    assert_non_null(again);
    heap_free(again);
}
