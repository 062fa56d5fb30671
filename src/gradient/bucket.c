/* SPDX-License-Identifier: Apache-2.0 */
/* Fills buckets from the last tensor to the first. */
#include "gradient/bucket.h"

#include <assert.h>

/* Whether the item still fits; counts are such that bytes do not overflow. */
static bool fits(const struct bucket *bucket, const struct bucket_item *item, size_t len_max)
{
    size_t len = (bucket->count + item->count) * dtype_size(item->dtype);
    return len <= len_max;
}

uint32_t bucket_plan(struct bucket_item *items, uint32_t item_count, size_t len_max, struct bucket *buckets)
{
    uint32_t open[DTYPE_COUNT]; /* the bucket of each type that still takes items */
    uint32_t last[DTYPE_COUNT]; /* its last item */
    uint32_t count = 0;
    for (int d = 0; d < DTYPE_COUNT; d++)
        open[d] = last[d] = BUCKET_NOBODY;
    for (uint32_t i = item_count; i-- > 0;) {
        struct bucket_item *item = &items[i];
        uint32_t *place = &open[item->dtype];
        assert((unsigned)item->dtype < DTYPE_COUNT);
        bool joins = item->fused && *place != BUCKET_NOBODY && fits(&buckets[*place], item, len_max);
        uint32_t at = joins ? *place : count++;
        struct bucket *bucket = &buckets[at];
        if (joins)
            items[last[item->dtype]].next = i;
        else
            *bucket = (struct bucket){.first = i, .dtype = item->dtype, .fused = item->fused};
        item->bucket = at;
        item->next = BUCKET_NOBODY;
        item->offset = bucket->count;
        bucket->count += item->count;
        bucket->items++;
        if (item->fused) {
            *place = at;
            last[item->dtype] = i;
        }
    }
    return count;
}
