/* SPDX-License-Identifier: Apache-2.0 */
/* Handshakes are made at a bounded rate, and a source that floods does not use up those of others. */
#include "security/admission.h"
#include "support/suite.h"

#define MANY (10 * ADMISSION_BURST)

static struct admission admission;
static uint64_t now_ns;

static int begin(void **state)
{
    admission_init(&admission, 0);
    now_ns = 1000 * NS_PER_S;
    return 0;
}

static int taken(uint64_t source, bool weak, int tries)
{
    int count = 0;

    for (int i = 0; i < tries; i++)
        count += admission_take(&admission, source, weak, now_ns);
    return count;
}

TEST_WITH(a_burst_and_then_so_many_a_second, begin, NULL)
{
    assert_int_equal(taken(1, false, MANY), ADMISSION_BURST);
    for (int i = 0; i < 3; i++) {
        now_ns += NS_PER_S;
        assert_int_equal(taken(1, false, MANY), ADMISSION_PER_S);
    }
    now_ns += NS_PER_S / 4;
    assert_int_equal(taken(1, false, MANY), ADMISSION_PER_S / 4);
    now_ns += 3600 * NS_PER_S; /* rest does not add up beyond a burst */
    assert_int_equal(taken(1, false, MANY), ADMISSION_BURST);

    admission_init(&admission, 100);
    assert_int_equal(taken(1, false, MANY), ADMISSION_BURST + 100);
}

TEST_WITH(a_flood_leaves_others_their_share, begin, NULL)
{
    for (int second = 0; second < 100; second++) {
        (void)taken(1, false, MANY);
        if (second % 10 == 9) /* who has not come for a while has all of it */
            assert_int_equal(taken(2, false, MANY), ADMISSION_SHARE_BURST);
        now_ns += NS_PER_S;
    }
    now_ns += 3600 * NS_PER_S;
    (void)taken(1, false, MANY);
    assert_int_equal(taken(2, false, 9), 9);
    assert_int_equal(taken(3, false, 9), 9);
    assert_int_equal(taken(1, false, MANY), 0);
}

TEST_WITH(weak_knocks_have_the_share_of_their_source, begin, NULL)
{
    assert_int_equal(taken(1, true, MANY), ADMISSION_SHARE_BURST);
    now_ns += NS_PER_S;
    assert_int_equal(taken(1, true, MANY), ADMISSION_SHARE_PER_S);
    assert_int_equal(taken(2, true, MANY), ADMISSION_SHARE_BURST);
    assert_int_equal(taken(1, false, 9), 9); /* the same source, with a knock for us */

    admission_init(&admission, 100);
    assert_int_equal(taken(1, true, MANY), ADMISSION_SHARE_BURST + 100);
}

/* However many sources repeat what they have heard elsewhere. */
TEST_WITH(weak_knocks_never_use_up_the_reserve, begin, NULL)
{
    for (int second = 0; second < 20; second++) {
        for (uint64_t source = 100; source < 1000; source++)
            (void)taken(source, true, 10);
        assert_int_equal(taken(1, false, 2), 2);
        now_ns += NS_PER_S;
    }
}

TEST_WITH(all_sources_together_are_bounded, begin, NULL)
{
    int count = 0;

    for (uint64_t source = 1; source < 10000; source++)
        count += taken(source, source % 2 == 0, 3);
    assert_int_equal(count, ADMISSION_BURST + ADMISSION_RESERVE);
    now_ns += NS_PER_S;
    count = 0;
    for (uint64_t source = 1; source < 10000; source++)
        count += taken(source, source % 2 == 0, 3);
    assert_int_equal(count, ADMISSION_PER_S);
}
