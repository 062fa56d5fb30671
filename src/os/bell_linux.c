/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping at the bell with Linux futexes, one a side. */
#include "os/bell_sleep.h"

#if defined(__linux__) && !defined(HEARTH_POSIX)

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int bell_init(struct bell *b)
{
    atomic_init(&b->rings, 0);
    atomic_init(&b->attending, 0);
    atomic_init(&b->nappers, 0);
    atomic_init(&b->urgent, false);
    for (int side = BELL_CALLER; side <= BELL_PROGRESS; side++) {
        atomic_init(&b->sleepers[side], 0);
        atomic_init(&b->word[side], 0);
    }
    return HEARTH_OK;
}

void bell_fini(struct bell *b)
{
    (void)b;
}

void bell_sleep(struct bell *b, enum bell_side side, uint32_t heard, uint64_t deadline_ns)
{
    /* Taken before the look at `rings`: if that has not changed yet, a wake-up will still change this. */
    uint32_t word = atomic_load(&b->word[side]);
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};

    if (atomic_load(&b->rings) != heard)
        return;
    /* Unlike FUTEX_WAIT, the bitset form takes an absolute time, on the monotonic clock. */
    syscall(SYS_futex, &b->word[side], FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, word,
            deadline_ns == NEVER_NS ? NULL : &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

void bell_wake(struct bell *b, enum bell_side side)
{
    atomic_fetch_add(&b->word[side], 1);
    syscall(SYS_futex, &b->word[side], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

#endif
