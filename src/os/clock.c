/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's monotonic clock, and a virtual one in its place. */
#include "os/clock.h"

#include <time.h>

#include "core/types.h"

/* 0: there is no such clock. */
static uint64_t clock_ns(clockid_t id)
{
    struct timespec now = {0};

    (void)clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_real(void)
{
    return clock_ns(CLOCK_MONOTONIC);
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
    uint64_t awake = clock_real(), since = clock_ns(CLOCK_BOOTTIME);

    return since > awake ? since - awake : 0;
#else
    return 0;
#endif
}
