/* SPDX-License-Identifier: Apache-2.0 */
/* The window grows as long as dials go well, shrinks once for each rush that did not, and has bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bootstrap/dial_window.h"

#define MAX   100
#define MS    NS_PER_MS
#define START (10 * NS_PER_S)

static void what_goes_well_makes_it_larger(void **state)
{
    struct dial_window w;
    (void)state;
    dial_window_init(&w, MAX);
    assert_int_equal(w.size, DIAL_WINDOW_FIRST);
    for (int i = 0; i < MAX; i++)
        dial_window_kept(&w, START, START + MS, MS);
    assert_int_equal(w.size, MAX);
    dial_window_init(&w, 3);
    assert_int_equal(w.size, 3);
}

static void one_rush_shrinks_it_once(void **state)
{
    struct dial_window w;
    (void)state;
    dial_window_init(&w, MAX);
    for (int i = 0; i < DIAL_WINDOW_FIRST; i++)
        dial_window_cut(&w, START + (uint64_t)i, START + MS);
    assert_int_equal(w.size, DIAL_WINDOW_FIRST / 2);
    dial_window_cut(&w, START + 2 * MS, START + 3 * MS);
    assert_int_equal(w.size, DIAL_WINDOW_FIRST / 4);
    for (uint64_t i = 0; i < 10; i++)
        dial_window_cut(&w, START + (4 + i) * MS, START + (5 + i) * MS);
    assert_int_equal(w.size, DIAL_WINDOW_MIN);
}

static void after_that_it_grows_slowly(void **state)
{
    struct dial_window w;
    (void)state;
    dial_window_init(&w, MAX);
    dial_window_cut(&w, START, START + MS);
    int size = w.size;
    for (int i = 1; i < size; i++)
        dial_window_kept(&w, START, START + 2 * MS, MS);
    assert_int_equal(w.size, size);
    dial_window_kept(&w, START, START + 2 * MS, MS);
    assert_int_equal(w.size, size + 1);
}

/* A long way is no overload; waiting for much longer is. */
static void what_takes_long_counts_as_cut(void **state)
{
    struct dial_window w;
    (void)state;
    dial_window_init(&w, MAX);
    dial_window_kept(&w, START, START + DIAL_SLOW_NS + 800 * MS, 100 * MS);
    assert_int_equal(w.size, DIAL_WINDOW_FIRST + 1);
    dial_window_kept(&w, START, START + DIAL_SLOW_NS + 800 * MS, 99 * MS);
    assert_int_equal(w.size, (DIAL_WINDOW_FIRST + 1) / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_well_makes_it_larger),
        cmocka_unit_test(one_rush_shrinks_it_once),
        cmocka_unit_test(after_that_it_grows_slowly),
        cmocka_unit_test(what_takes_long_counts_as_cut),
    };
    return cmocka_run_group_tests_name("dial window", tests, NULL, NULL);
}
