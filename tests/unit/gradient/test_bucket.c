/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets: every tensor has its place, small ones share, the layout depends on nothing but the tensors. */
#include "core/prng.h"
#include "gradient/bucket.h"
#include "support/suite.h"

#define ITEMS_MAX 200

static struct bucket_item small(size_t count, enum hearth_dtype dtype)
{
    return (struct bucket_item){.count = count, .dtype = dtype, .fused = true};
}

static struct bucket_item large(size_t count, enum hearth_dtype dtype)
{
    return (struct bucket_item){.count = count, .dtype = dtype};
}

TEST(test_nothing)
{
    assert_int_equal(bucket_plan(NULL, 0, 100, NULL), 0);
}

/* From the last to the first; each type has its own buckets; a large one between them closes none. */
TEST(test_one_layout)
{
    struct bucket_item items[] = {
        small(3, HEARTH_F32),    /* bucket 3, alone: bucket 0 is full */
        large(1000, HEARTH_F32), /* bucket 2 */
        small(10, HEARTH_F32),   /* bucket 0, after the last */
        small(2, HEARTH_F64),    /* bucket 1 */
        small(14, HEARTH_F32),   /* bucket 0 */
    };
    struct bucket buckets[5];
    assert_int_equal(bucket_plan(items, 5, 100, buckets), 4);
    static const uint32_t bucket[] = {3, 2, 0, 1, 0};
    static const size_t offset[] = {0, 0, 14, 0, 0};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(items[i].bucket, bucket[i]);
        assert_int_equal(items[i].offset, offset[i]);
    }
    assert_int_equal(buckets[0].first, 4);
    assert_int_equal(items[4].next, 2);
    assert_int_equal(items[2].next, BUCKET_NOBODY);
    assert_int_equal(buckets[0].count, 24);
    assert_int_equal(buckets[0].items, 2);
    assert_true(buckets[0].fused);
    assert_false(buckets[2].fused);
    assert_int_equal(buckets[1].dtype, HEARTH_F64);
}

/* The limit is in bytes, and it is reached exactly. */
TEST(test_limit)
{
    struct bucket_item items[] = {small(1, HEARTH_BF16), small(49, HEARTH_BF16), small(1, HEARTH_BF16)};
    struct bucket buckets[3];
    assert_int_equal(bucket_plan(items, 3, 100, buckets), 2);
    assert_int_equal(buckets[0].count, 50);
    struct bucket_item longer[] = {small(1, HEARTH_F32), small(30, HEARTH_F32), small(0, HEARTH_F32)};
    assert_int_equal(bucket_plan(longer, 3, 100, buckets),
                     3); /* longer than a bucket: it has one for itself */
    assert_int_equal(buckets[1].count, 30);
}

/* What must hold of every layout. */
static void plan_check(const struct bucket_item *items, uint32_t item_count, size_t len_max,
                       const struct bucket *buckets, uint32_t bucket_count)
{
    uint32_t seen = 0;
    for (uint32_t b = 0; b < bucket_count; b++) {
        const struct bucket *bucket = &buckets[b];
        size_t offset = 0;
        uint32_t members = 0;
        for (uint32_t i = bucket->first; i != BUCKET_NOBODY; i = items[i].next, members++) {
            assert_true(i < item_count);
            assert_int_equal(items[i].bucket, b);
            assert_int_equal(items[i].dtype, bucket->dtype);
            assert_int_equal(items[i].fused, bucket->fused);
            assert_int_equal(items[i].offset, offset); /* no gap */
            offset += items[i].count;
        }
        assert_int_equal(offset, bucket->count);
        assert_int_equal(members, bucket->items);
        assert_true(members == 1 || (bucket->fused && offset * dtype_size(bucket->dtype) <= len_max));
        seen += members;
    }
    assert_int_equal(seen, item_count);
}

TEST(test_many_layouts)
{
    static const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};
    struct bucket_item items[ITEMS_MAX];
    struct bucket buckets[ITEMS_MAX];
    struct prng prng;
    prng_init(&prng, 7);
    for (int round = 0; round < 2000; round++) {
        uint32_t count = (uint32_t)(prng_u64(&prng) % (ITEMS_MAX + 1));
        size_t len_max = prng_u64(&prng) % 5000;
        for (uint32_t i = 0; i < count; i++)
            items[i] = (struct bucket_item){.count = prng_u64(&prng) % 300,
                                            .dtype = dtypes[prng_u64(&prng) % 4],
                                            .fused = prng_u64(&prng) % 4 != 0};
        plan_check(items, count, len_max, buckets, bucket_plan(items, count, len_max, buckets));
    }
}
