/* SPDX-License-Identifier: Apache-2.0 */
/* What an all_reduce takes at least, on lines of several shapes. */
#include <math.h>

#include "cli/bench/cluster_bench.h"
#include "support/suite.h"

#define FAST 100e6 /* bytes a second */
#define SLOW 2e6

static struct cluster_status status;
static struct hearth_member members[CLUSTER_MEMBERS_MAX];

static void begin(int count)
{
    status = (struct cluster_status){.count = count};
    for (int i = 0; i < count; i++) {
        snprintf(status.members[i].id, sizeof status.members[i].id, "%d", i);
        snprintf(members[i].id, sizeof members[i].id, "%d", i);
        for (int k = 0; k < count; k++)
            status.rate[i][k] = i == k ? 0 : FAST;
    }
}

static void assert_bound(int count, double narrowest, double s_per_byte)
{
    struct cluster_bound bound = cluster_bound(&status, members, count);
    assert_true(bound.narrowest == narrowest);
    assert_true(fabs(bound.s_per_byte - s_per_byte) * SLOW < 1e-9);
}

TEST(equal_lines)
{
    for (int count = 2; count <= CLUSTER_MEMBERS_MAX; count *= 2) {
        begin(count);
        assert_bound(count, FAST, 2.0 * (count - 1) / count / FAST); /* what a ring takes */
    }
}

/* A ring would send 2 (N - 1) / N buffers by the slow line; the best plan sends one. */
TEST(one_slow_line)
{
    for (int down = 0; down < 2; down++) {
        begin(4);
        for (int k = 0; k < 4; k++)
            *(down ? &status.rate[k][1] : &status.rate[1][k]) = k == 1 ? 0 : SLOW;
        assert_bound(4, SLOW, 1 / SLOW);
    }
}

TEST(a_slow_trunk)
{
    begin(6);
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 6; k++)
            if (i / 3 != k / 3)
                status.rate[i][k] = SLOW;
    }
    assert_bound(6, SLOW, 1 / SLOW);
}

/* Some way round is faster than the direct one. */
TEST(a_slow_path_is_avoided)
{
    begin(4);
    status.rate[1][2] = SLOW;
    assert_bound(4, FAST, 1.5 / FAST);
}

TEST(members_of_one_machine)
{
    begin(4);
    status.rate[2][3] = status.rate[3][2] = 0;
    status.inside[2][3] = status.inside[3][2] = true;
    assert_bound(4, FAST, 2.0 * 2 / 3 / FAST);
    members[3] = members[2]; /* another node of the same key: the machine's ways are known */
    assert_bound(4, FAST, 2.0 * 2 / 3 / FAST);
    members[0] = members[1] = members[2];
    assert_bound(4, 0, 0); /* there is one machine */
}

TEST(what_was_not_measured)
{
    begin(3);
    status.rate[0][2] = 0;
    assert_bound(3, 0, 0);
}
