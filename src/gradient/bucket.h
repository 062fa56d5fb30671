/* SPDX-License-Identifier: Apache-2.0 */
/* How the tensors of a model become buckets, each of which travels as one operation. Pure: members that
 * registered the same tensors have the same buckets.
 *
 * Large tensors go alone, from where they stand. Small ones of one type are laid out one after the other in a
 * bucket, so that many of them cost one operation. The last tensors come first: a backward pass makes the
 * gradients of the last layers first, so that buckets fill up one after the other. */
#pragma once

#include "core/types.h"

#define BUCKET_LEN    (UINT64_C(25) << 20) /* of small tensors, at most */
#define BUCKET_FUSED  (UINT64_C(1) << 20)  /* longer tensors go alone: a copy would cost more than it saves */
#define BUCKET_NOBODY UINT32_MAX

struct bucket_item {
    size_t count; /* elements */
    enum hearth_dtype dtype;
    bool fused; /* may share a bucket */
    /* filled in: */
    uint32_t bucket;
    uint32_t next; /* of the same bucket, or BUCKET_NOBODY */
    size_t offset; /* element of the bucket at which it begins */
};

struct bucket {
    uint32_t first; /* item; the others follow by `next` */
    uint32_t items;
    size_t count; /* elements of all */
    enum hearth_dtype dtype;
    bool fused;
};

/* Fills buckets[] (room for item_count) and the items; gives the number of buckets. A bucket has at most
 * len_max bytes unless one tensor alone has more. */
uint32_t bucket_plan(struct bucket_item *items, uint32_t item_count, size_t len_max, struct bucket *buckets);
