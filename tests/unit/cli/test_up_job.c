/* SPDX-License-Identifier: Apache-2.0 */
/* hearth up -- PROGRAM: what ends it, and what makes it form again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/up_job.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses_on_the_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
