/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping at the bell with a mutex and a condition variable a side: the twin of bell_linux.c. */
#include "os/bell_sleep.h"

#if !defined(__linux__) || defined(HEARTH_POSIX)

#include <time.h>

#include "os/clock.h"

/* A condition variable whose deadlines are on clock_real's clock, where the system can do that. */
static int cond_open(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    if (pthread_condattr_init(&attr) != 0)
        return HEARTH_SYSTEM;
#if defined(__APPLE__)
    int err = 0;
#else
    int err = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
    if (err == 0)
        err = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return err == 0 ? HEARTH_OK : HEARTH_SYSTEM;
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static void cond_wait_until(pthread_cond_t *cond, struct mutex *m, uint64_t deadline_ns)
{
#if defined(__APPLE__)
    uint64_t now_ns = clock_real();
    struct timespec left = time_of(deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    pthread_cond_timedwait_relative_np(cond, &m->handle, &left);
#else
    struct timespec at = time_of(deadline_ns);
    pthread_cond_timedwait(cond, &m->handle, &at);
#endif
}

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
    if (mutex_init(&b->lock) != HEARTH_OK)
        return HEARTH_SYSTEM;
    if (cond_open(&b->cond[BELL_CALLER]) != HEARTH_OK)
        goto fini_lock;
    if (cond_open(&b->cond[BELL_PROGRESS]) != HEARTH_OK)
        goto destroy_caller;
    return HEARTH_OK;

destroy_caller:
    pthread_cond_destroy(&b->cond[BELL_CALLER]);
fini_lock:
    mutex_fini(&b->lock);
    return HEARTH_SYSTEM;
}

void bell_fini(struct bell *b)
{
    pthread_cond_destroy(&b->cond[BELL_CALLER]);
    pthread_cond_destroy(&b->cond[BELL_PROGRESS]);
    mutex_fini(&b->lock);
}

void bell_sleep(struct bell *b, enum bell_side side, uint32_t heard, uint64_t deadline_ns)
{
    /* `rings` is read under the lock and a waker takes the lock: it cannot come between look and sleep. */
    mutex_lock(&b->lock);
    if (atomic_load(&b->rings) == heard) {
        if (deadline_ns == NEVER_NS)
            pthread_cond_wait(&b->cond[side], &b->lock.handle);
        else
            cond_wait_until(&b->cond[side], &b->lock, deadline_ns);
    }
    mutex_unlock(&b->lock);
}

void bell_wake(struct bell *b, enum bell_side side)
{
    mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->cond[side]);
    mutex_unlock(&b->lock);
}

#endif
