/* SPDX-License-Identifier: Apache-2.0 */
/* hearth up -- PROGRAM: what ends it, and what makes it form again. */
#include "cli/cluster/up.h"
#include "support/suite.h"

/* A machine that is lost while the group is formed must not end the programs of all others. */
TEST(test_losses_on_the_way)
{
    static const int lost[] = {HEARTH_TIMEOUT, HEARTH_VIEW_CHANGED, HEARTH_PEER_LOST, HEARTH_ABORTED,
                               HEARTH_GROUP_BROKEN};
    static const int wrong[] = {HEARTH_OK, HEARTH_INVALID, HEARTH_MISMATCH, HEARTH_LIMIT, HEARTH_NO_MEMORY};
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        assert_true(up_once_more(lost[i]));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(up_once_more(wrong[i]));
}

/* What a member says goes into variables of our program. */
TEST(test_places_of_others)
{
    static const char *const good[] = {"", "10.0.0.1", "fd77::2", "fe80::1%eth0", "::ffff:10.0.0.1"};
    static const char *const bad[] = {"unix:/tmp/x", "unix:@x", "host",        "10.0.0.1 HEARTH_PLAIN=1",
                                      "10.0.0.1\n",  "%eth0",   "fe80::1%a b", "-1",
                                      "\x1b[2J"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(up_place_good(good[i], 40000));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(up_place_good(bad[i], 40000));
    assert_true(up_place_good("10.0.0.1", 0) && up_place_good("10.0.0.1", 65534));
    assert_false(up_place_good("10.0.0.1", 65535) || up_place_good("10.0.0.1", -1));
    assert_false(up_place_good("10.0.0.1", 1 << 20));
}
