/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a program's tests, filled before main runs. */
#include "support/suite.h"

static struct CMUnitTest tests[SUITE_TESTS_MAX];
static size_t count;

void suite_add(const struct CMUnitTest *test)
{
    if (count == SUITE_TESTS_MAX)
        abort();
    tests[count++] = *test;
}

int suite_run(void)
{
    if (!count)
        return 1; /* a program that tests nothing has not passed */
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}
