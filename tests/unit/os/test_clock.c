/* SPDX-License-Identifier: Apache-2.0 */
/* Real time does not go back; virtual time is what its owner says. */
#include "core/types.h"
#include "os/clock.h"
#include "support/suite.h"

TEST(real_time_goes_forward)
{
    struct clock clock = {NULL};
    uint64_t start = clock_now(&clock), last = start;

    for (int i = 0; i < 10000; i++) {
        uint64_t now = i % 2 ? clock_now(&clock) : clock_real();
        assert_true(now >= last);
        last = now;
    }
    while (clock_real() == start)
        continue;
}

TEST(virtual_time_is_what_is_written)
{
    uint64_t now_ns = 5;
    struct clock clock = {&now_ns};

    assert_int_equal(clock_now(&clock), 5);
    now_ns = UINT64_MAX;
    assert_true(clock_now(&clock) == UINT64_MAX);
}

/* Nobody can put this machine to sleep here: but the time is no other for having been asked. */
TEST(sleep_of_the_machine_does_not_shrink)
{
    uint64_t first = clock_asleep(), last = first;

    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_asleep();
        assert_true(now + NS_PER_S > last); /* two clocks are read one after the other */
        last = now > last ? now : last;
    }
    assert_true(last - first < 60 * NS_PER_S);
}
