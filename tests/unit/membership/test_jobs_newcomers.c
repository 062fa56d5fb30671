/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks for a job that runs already, or has ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "office.h"

#define ALL    0xfffu
#define SETTLE (300 * NS_PER_MS)
#define SOON   (60 * NS_PER_MS) /* a few ways there and back */

static struct office office;
static struct desk *const desks = office.desks;

static int open_four(void **state)
{
    (void)state;
    office_open(&office, 4, 1);
    office_census(&office, 0xf, 0, ALL, true);
    office_run(&office, SOON);
    return 0;
}

static int close_office(void **state)
{
    (void)state;
    office_close(&office);
    return 0;
}

static void wish(int desk, const char *job, int min)
{
    assert_int_equal(office_wish(&office, desk, job, min, "v=1"), HEARTH_OK);
}

/* So that a program can take them in where it likes. */
static void members_are_told_of_newcomers_once(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        wish(i, "train", 2);
    office_run(&office, SETTLE + SOON);
    for (int i = 0; i < 3; i++)
        assert_int_equal(desks[i].wanted_count, 0);
    wish(3, "train", 2);
    office_run(&office, 3 * NS_PER_S);
    assert_int_equal(desks[3].wanted_count, 1); /* before it asked itself */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(desks[i].wanted_count, 1);
        assert_string_equal(desks[i].wanted, "train");
    }
    jobs_end(desks[1].jobs, desks[1].group.id, office.now_ns); /* one of them forms it again */
    wish(1, "train", 2);
    office_run(&office, SOON);
    for (int i = 0; i < 3; i += 2) {
        assert_true(desks[i].ended);
        wish(i, "train", 2);
    }
    office_run(&office, 3 * NS_PER_S);
    office_assert_group(&office, 0xf);
    for (int i = 0; i < 4; i++)
        assert_int_equal(desks[i].wanted_count, 1);
}

static void who_comes_too_late_hears_that_it_has_ended(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        wish(i, "train", 2);
    office_run(&office, SETTLE + SOON);
    for (int i = 0; i < 3; i++)
        jobs_end(desks[i].jobs, desks[i].group.id, office.now_ns);
    office_run(&office, 60 * NS_PER_S);
    wish(3, "train", 2);
    office_run(&office, SOON);
    assert_string_equal(office_why_not(&office, 3, "train"),
                        "it ran with 3 members and has ended; to begin it again, "
                        "1 of 2 are there: node-3");
    wish(1, "train", 2);
    office_run(&office, SETTLE + SOON);
    for (int i = 0; i < 4; i += 2)
        desks[i].group.id = 0;
    jobs_end(desks[1].jobs, desks[1].group.id, office.now_ns);
    office_run(&office, SOON);
    wish(2, "train", 3); /* the other one holds it still */
    office_run(&office, SOON);
    assert_string_equal(office_why_not(&office, 2, "train"),
                        "waiting for nodes that still hold the old group: node-3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_are_told_of_newcomers_once, open_four, close_office),
        cmocka_unit_test_setup_teardown(who_comes_too_late_hears_that_it_has_ended, open_four, close_office),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
