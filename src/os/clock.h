/* SPDX-License-Identifier: Apache-2.0 */
/* Time, real or virtual. Only this room reads the machine's clock. */
#pragma once

#include <stdint.h>

/* Real when `virtual_ns` is NULL, else whatever the owner of the simulation last wrote there. */
struct clock {
    const uint64_t *virtual_ns;
};

uint64_t clock_now(const struct clock *clock); /* monotonic nanoseconds */
uint64_t clock_real(void);                     /* monotonic nanoseconds of the machine */

/* Seconds since 1970 by the machine's calendar. Not every machine has one that is right: for people, and for
 * guesses that may be wrong. */
uint64_t clock_calendar_s(void);

/* How long the machine has been asleep since it was started, nanoseconds; 0 where the system does not tell.
 */
uint64_t clock_asleep(void);
