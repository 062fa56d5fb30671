/* SPDX-License-Identifier: Apache-2.0 */
/* What bell.c needs of the operating system: bell_linux.c or bell_posix.c gives it. */
#pragma once

#include "os/bell.h"

/* The rule that loses no ring: a ringer counts `rings` up and then reads `sleepers`; a sleeper counts
 * `sleepers` up and then reads `rings`. All of it is sequentially consistent, so one of the two sees the
 * other. */

/* Sleeps until woken, or the deadline, or for no reason; not at all if the bell has rung since `heard`. The
 * caller of this has counted itself into `sleepers`. */
void bell_sleep(struct bell *b, enum bell_side side, uint32_t heard, uint64_t deadline_ns);

/* Wakes all that sleep on the side or are about to. `rings` has been counted up. */
void bell_wake(struct bell *b, enum bell_side side);
