/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of all kinds, derived from the numbers that programs really use, never meet. */
#include "core/derived_id.h"
#include "core/prng.h"
#include "support/suite.h"

#define IDS       10000000u
#define IDS_BRIEF 1000000u /* where a processor is emulated */

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* From small numbers, as groups and calls are counted; from a drawn one, as tags may be; and from groups that
 * were derived themselves. No (label, parent, first, second) comes twice. */
TEST(ten_million_ids_of_all_kinds_differ)
{
    const uint64_t count = !getenv("HEARTH_TEST_BRIEF") ? IDS : IDS_BRIEF;
    uint64_t *ids = malloc(count * sizeof *ids);
    const uint64_t kinds = ID_LABELS - 1, side = 100;
    struct prng p;

    assert_non_null(ids);
    prng_init(&p, 1);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t n = i / kinds, second = n % side, first = n / side % side, world = n / (side * side);
        uint64_t parent = world % 4 == 3 ? ids[i - 1] : world;
        ids[i] =
            derived_id((enum id_label)(1 + i % kinds), parent, world % 4 == 2 ? prng_u64(&p) : first, second);
    }
    qsort(ids, count, sizeof *ids, compare_u64);
    for (size_t i = 1; i < count; i++)
        if (ids[i - 1] == ids[i])
            fail_msg("two ids are %llx", (unsigned long long)ids[i]);
    free(ids);
}

/* What a compressed all-reduce derives from (tag, sequence) a split derives from (number, color). */
TEST(the_same_numbers_give_every_kind_another_id)
{
    for (int a = 1; a < ID_LABELS; a++)
        for (int b = 1; b < a; b++)
            assert_true(derived_id((enum id_label)a, 7, 1, 0) != derived_id((enum id_label)b, 7, 1, 0));
}

/* They travel, so all versions must derive them alike. */
TEST(ids_never_change)
{
    assert_true(derived_id(ID_SPLIT, 1, 2, 3) == UINT64_C(0xd6bf64949362da8f));
    assert_true(derived_id(ID_ADAPT_TAG, UINT64_MAX, 0, 1) == UINT64_C(0xa80f4270a25b7174));
}
