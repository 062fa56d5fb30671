/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's monotonic clock, and a virtual one in its place. */
#include "os/clock.h"

#include <stddef.h>
#include <time.h>

uint64_t clock_real(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t clock_now(const struct clock *clock)
{
    return clock->virtual_ns ? *clock->virtual_ns : clock_real();
}

uint64_t clock_calendar_s(void)
{
    time_t now = time(NULL);

    return now > 0 ? (uint64_t)now : 0;
}

uint64_t clock_asleep(void)
{
#ifdef CLOCK_BOOTTIME
    struct timespec boot;
    uint64_t before = clock_real();

    if (clock_gettime(CLOCK_BOOTTIME, &boot) == 0) {
        uint64_t since = (uint64_t)boot.tv_sec * UINT64_C(1000000000) + (uint64_t)boot.tv_nsec;
        return since > before ? since - before : 0;
    }
#endif
    return 0;
}
