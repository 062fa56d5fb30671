/* SPDX-License-Identifier: Apache-2.0 */
/* A request to another thread to stop waiting. A thread that cannot be woken polls the request now and then.
 * NULL: no such request will come. */
#pragma once

#include <stdatomic.h>

#include "core/types.h"
#include "os/clock.h"

#define STOP_LOOK_NS (50 * NS_PER_MS) /* people do not notice it, and 20 looks a second cost nothing */

struct stop {
    _Atomic(bool) asked;
};

static inline bool stop_asked(const struct stop *stop)
{
    return stop && atomic_load(&stop->asked);
}

/* Until when (clock_real) to sleep at most before looking, where else it were until_ns. */
static inline uint64_t stop_look(const struct stop *stop, uint64_t until_ns)
{
    uint64_t look_ns = stop ? clock_real() + STOP_LOOK_NS : NEVER_NS;
    return look_ns < until_ns ? look_ns : until_ns;
}
