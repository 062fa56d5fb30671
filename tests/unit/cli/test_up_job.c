/* SPDX-License-Identifier: Apache-2.0 */
/* hearth up -- PROGRAM: what ends it, and what makes it form again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/cluster/up_job.h"

/* A machine that is lost while the group is formed must not end the programs of all others. */
static void test_losses_on_the_way(void **state)
{
    static const int lost[] = {HEARTH_TIMEOUT, HEARTH_VIEW_CHANGED, HEARTH_PEER_LOST, HEARTH_ABORTED,
                               HEARTH_GROUP_BROKEN};
    static const int wrong[] = {HEARTH_OK, HEARTH_INVALID, HEARTH_MISMATCH, HEARTH_LIMIT, HEARTH_NO_MEMORY};
    (void)state;
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        assert_true(up_job_once_more(lost[i]));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(up_job_once_more(wrong[i]));
}

/* What a member says goes into variables of our program. */
static void test_places_of_others(void **state)
{
    static const char *const good[] = {"", "10.0.0.1", "fd77::2", "fe80::1%eth0", "::ffff:10.0.0.1"};
    static const char *const bad[] = {"unix:/tmp/x", "unix:@x", "host",        "10.0.0.1 HEARTH_PLAIN=1",
                                      "10.0.0.1\n",  "%eth0",   "fe80::1%a b", "-1",
                                      "\x1b[2J"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(up_place_good(good[i], 40000));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(up_place_good(bad[i], 40000));
    assert_true(up_place_good("10.0.0.1", 0) && up_place_good("10.0.0.1", 65534));
    assert_false(up_place_good("10.0.0.1", 65535) || up_place_good("10.0.0.1", -1));
    assert_false(up_place_good("10.0.0.1", 1 << 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_on_the_way),
        cmocka_unit_test(test_places_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
