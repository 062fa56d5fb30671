/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the codec pool: what comes back is given out again, and what is kept has bounds. */
#include "gradient/codec_pool.h"
#include "node/node.h"
#include "support/suite.h"

#define MIB        ((size_t)1 << 20)
#define BYTES_KEPT (256 * MIB)
#define MANY       1000

static hearth_node *node;
static struct codec_pool *pool;

static int open_node(void **state)
{
    if (hearth_node_open_local(NULL, 1, &node) != HEARTH_OK)
        return -1;
    pool = codec_pool_of(node);
    return pool ? 0 : -1;
}

static int close_node(void **state)
{
    hearth_node_close(node);
    return 0;
}

static size_t used(void)
{
    return atomic_load(&node->heap->bytes);
}

TEST_WITH(test_a_block_comes_back, open_node, close_node)
{
    void *block = codec_pool_take(pool, 3 * MIB), *other = codec_pool_take(pool, 3 * MIB);
    assert_non_null(block);
    assert_non_null(other);
    codec_pool_give(pool, block);
    assert_ptr_equal(codec_pool_take(pool, 2 * MIB), block);
    codec_pool_give(pool, block);
    void *small = codec_pool_take(pool, 100);
    assert_non_null(small);
    assert_ptr_not_equal(small, block); /* which is much too long for that */
    codec_pool_give(pool, small);
    codec_pool_give(pool, other);
    codec_pool_give(pool, NULL);
}

TEST_WITH(test_bytes_are_bounded, open_node, close_node)
{
    void *blocks[12];
    size_t before = used();
    for (int i = 0; i < 12; i++)
        assert_non_null(blocks[i] = codec_pool_take(pool, 32 * MIB));
    for (int i = 0; i < 12; i++)
        codec_pool_give(pool, blocks[i]);
    assert_true(used() - before <= BYTES_KEPT + MIB); /* heads */
    assert_true(used() - before >= BYTES_KEPT / 2);
    /* The last eight are there, the first four are not. */
    void *again = codec_pool_take(pool, 32 * MIB);
    assert_ptr_equal(again, blocks[4]);
    codec_pool_give(pool, again);
}

TEST_WITH(test_a_block_beyond_all_bounds_is_not_kept, open_node, close_node)
{
    size_t before = used();
    codec_pool_give(pool, codec_pool_take(pool, 2 * BYTES_KEPT));
    assert_true(used() <= before + MIB);
}

TEST_WITH(test_many_small_ones_are_bounded, open_node, close_node)
{
    void *blocks[MANY];
    size_t before = used();
    for (int i = 0; i < MANY; i++)
        assert_non_null(blocks[i] = codec_pool_take(pool, 64));
    size_t all = used() - before;
    for (int i = 0; i < MANY; i++)
        codec_pool_give(pool, blocks[i]);
    assert_true(used() - before < all * 6 / 10);
    assert_true(used() - before > all * 4 / 10);
}

/* Calls of any length, one after the other: what is kept follows what one of them needs, not how many lengths
 * there were. */
TEST_WITH(test_many_lengths_are_bounded, open_node, close_node)
{
    size_t before = used(), most = 8 * MIB;
    for (int round = 0; round < 4; round++)
        for (size_t len = 16 * 1024; len <= most / 4; len = len * 5 / 4) {
            void *blocks[4];
            for (int i = 0; i < 4; i++)
                assert_non_null(blocks[i] = codec_pool_take(pool, len));
            for (int i = 0; i < 4; i++)
                codec_pool_give(pool, blocks[i]);
            assert_true(used() - before <= 2 * most + MIB);
        }
}

/* After a large one, small ones: its memory goes back in time. */
TEST_WITH(test_a_large_call_is_forgotten, open_node, close_node)
{
    size_t before = used();
    codec_pool_give(pool, codec_pool_take(pool, 64 * MIB));
    assert_true(used() - before >= 64 * MIB);
    for (int i = 0; i < 6000; i++)
        codec_pool_give(pool, codec_pool_take(pool, MIB));
    assert_true(used() - before <= 3 * MIB);
}

/* What all of a step's calls need at once stays for the next step. */
TEST_WITH(test_a_step_needs_nothing_new, open_node, close_node)
{
    void *blocks[30];
    size_t after = 0;
    for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < 30; i++)
            assert_non_null(blocks[i] = codec_pool_take(pool, (i + 1) * 100000));
        for (int i = 0; i < 30; i++)
            codec_pool_give(pool, blocks[i]);
        assert_true(step == 0 || used() == after);
        after = used();
    }
}
