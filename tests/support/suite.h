/* SPDX-License-Identifier: Apache-2.0 */
/* What every test program includes: cmocka, the C library that it wants, tests that register themselves. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A test is written as `TEST(name) { ... }` and runs in the order of definition; nothing is listed, so none
 * can be forgotten. TEST_WITH has a setup and a teardown of its own; either may be NULL. */
#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, setup, teardown)                                                                     \
    static void name(void **state);                                                                          \
    __attribute__((constructor)) static void name##_is_a_test(void)                                          \
    {                                                                                                        \
        suite_add(&(struct CMUnitTest){#name, name, setup, teardown, NULL});                                 \
    }                                                                                                        \
    static void name(void **state)

/* Of a call that returns a status. */
#define assert_ok(status) assert_int_equal(status, 0)

#define SUITE_TESTS_MAX 128

void suite_add(const struct CMUnitTest *test);

/* Runs all tests of the program and gives main's result. A program without a main of its own has one that
 * only calls this. */
int suite_run(void);
