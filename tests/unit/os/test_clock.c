/* SPDX-License-Identifier: Apache-2.0 */
/* Real time does not go back; virtual time is what its owner says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "os/clock.h"

static void real_time_goes_forward(void **state)
{
    struct clock clock = {NULL};
    uint64_t start = clock_now(&clock), last = start;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        uint64_t now = i % 2 ? clock_now(&clock) : clock_real();
        assert_true(now >= last);
        last = now;
    }
    while (clock_real() == start)
        continue;
}

static void virtual_time_is_what_is_written(void **state)
{
    uint64_t now_ns = 5;
    struct clock clock = {&now_ns};

    (void)state;
    assert_int_equal(clock_now(&clock), 5);
    now_ns = UINT64_MAX;
    assert_true(clock_now(&clock) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_time_goes_forward),
        cmocka_unit_test(virtual_time_is_what_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
