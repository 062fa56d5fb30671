/* SPDX-License-Identifier: Apache-2.0 */
/* The doorbell's rules: who is woken, and how long one spins before one sleeps. Sleeping is a futex a side on
 * Linux; elsewhere and in the posix build a mutex and a condition variable a side.
 *
 * The rule that loses no ring: a ringer counts `rings` up and then reads `sleepers`; a sleeper counts
 * `sleepers` up and then reads `rings`. All of it is sequentially consistent, so one of the two sees the
 * other. */
#include "os/bell.h"

#include <time.h>

#include "os/clock.h"

#if defined(__linux__) && !defined(HEARTH_POSIX)
#define LINUX 1
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#define LINUX 0
#endif

#define LOOKS_PER_CLOCK 64              /* looks at the bell between two looks at the clock */
#define SPIN_ALONE_NS   (2 * NS_PER_US) /* then others may need the processor more: yield between looks */

/* ---- sleeping ----
 *
 * bell_sleep: until woken, or the deadline, or for no reason; not at all if the bell has rung since `heard`.
 * Its caller is in `sleepers`. bell_wake: all that sleep on the side or are about to, after `rings` was
 * counted up. */

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

#if LINUX

static int sleep_init(struct bell *b)
{
    for (int side = BELL_CALLER; side <= BELL_PROGRESS; side++)
        atomic_init(&b->word[side], 0);
    return HEARTH_OK;
}

void bell_fini(struct bell *b)
{
    (void)b;
}

static void bell_sleep(struct bell *b, enum bell_side side, uint32_t heard, uint64_t deadline_ns)
{
    /* Taken before the look at `rings`: if that has not changed yet, a wake-up will still change this. */
    uint32_t word = atomic_load(&b->word[side]);
    struct timespec at = time_of(deadline_ns);

    if (atomic_load(&b->rings) != heard)
        return;
    /* Unlike FUTEX_WAIT, the bitset form takes an absolute time, on the monotonic clock. */
    syscall(SYS_futex, &b->word[side], FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, word,
            deadline_ns == NEVER_NS ? NULL : &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void bell_wake(struct bell *b, enum bell_side side)
{
    atomic_fetch_add(&b->word[side], 1);
    syscall(SYS_futex, &b->word[side], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

#else

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

static int sleep_init(struct bell *b)
{
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

static void bell_sleep(struct bell *b, enum bell_side side, uint32_t heard, uint64_t deadline_ns)
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

static void bell_wake(struct bell *b, enum bell_side side)
{
    mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->cond[side]);
    mutex_unlock(&b->lock);
}

#endif

/* ---- ringing ---- */

int bell_init(struct bell *b)
{
    atomic_init(&b->rings, 0);
    atomic_init(&b->attending, 0);
    atomic_init(&b->nappers, 0);
    atomic_init(&b->urgent, false);
    for (int side = BELL_CALLER; side <= BELL_PROGRESS; side++)
        atomic_init(&b->sleepers[side], 0);
    return sleep_init(b);
}

uint32_t bell_heard(const struct bell *b)
{
    return atomic_load(&b->rings);
}

/* Whether a ring is to wake the progress thread, where no caller hears it. */
static bool progress_wants(const struct bell *b)
{
    return atomic_load(&b->sleepers[BELL_PROGRESS]) > 0 ||
           (atomic_load(&b->urgent) && atomic_load(&b->nappers) > 0);
}

void bell_ring(struct bell *b)
{
    atomic_fetch_add(&b->rings, 1);
    /* A caller on its way from spinning to sleep is in `sleepers` before it is out of `attending`: reading
     * them in the other order finds it in one of them at least. */
    bool attended = atomic_load(&b->attending) > 0;
    if (atomic_load(&b->sleepers[BELL_CALLER]) > 0)
        bell_wake(b, BELL_CALLER);
    else if (!attended && progress_wants(b))
        bell_wake(b, BELL_PROGRESS);
}

void bell_ring_all(struct bell *b)
{
    atomic_fetch_add(&b->rings, 1);
    if (atomic_load(&b->sleepers[BELL_CALLER]) > 0)
        bell_wake(b, BELL_CALLER);
    if (atomic_load(&b->sleepers[BELL_PROGRESS]) > 0 || atomic_load(&b->nappers) > 0)
        bell_wake(b, BELL_PROGRESS);
}

void bell_attend(struct bell *b)
{
    atomic_fetch_add(&b->attending, 1);
}

void bell_leave(struct bell *b, uint32_t heard)
{
    if (atomic_fetch_sub(&b->attending, 1) > 1 || atomic_load(&b->rings) == heard)
        return;
    if (progress_wants(b))
        bell_wake(b, BELL_PROGRESS);
}

void bell_urgent(struct bell *b, bool urgent)
{
    if (atomic_load_explicit(&b->urgent, memory_order_relaxed) != urgent)
        atomic_store(&b->urgent, urgent);
}

void bell_nap(struct bell *b, uint64_t deadline_ns)
{
    atomic_fetch_add(&b->nappers, 1);
    uint32_t heard = atomic_load(&b->rings);
    if (!atomic_load(&b->urgent))
        bell_sleep(b, BELL_PROGRESS, heard, deadline_ns);
    atomic_fetch_sub(&b->nappers, 1);
}

/* Looks until the bell has rung (true) or the time is over (false). */
static bool bell_spin(const struct bell *b, uint32_t heard, uint64_t spin_ns, uint64_t deadline_ns)
{
    uint64_t start_ns = clock_real();
    uint64_t now_ns = start_ns;

    while (now_ns - start_ns < spin_ns && now_ns < deadline_ns) {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (atomic_load(&b->rings) != heard)
                return true;
            thread_relax();
        }
        now_ns = clock_real();
        if (now_ns - start_ns > SPIN_ALONE_NS)
            thread_yield();
    }
    return atomic_load(&b->rings) != heard;
}

void bell_wait(struct bell *b, enum bell_side side, uint32_t heard, uint64_t spin_ns, uint64_t deadline_ns)
{
    bool counts = side == BELL_CALLER;

    if (atomic_load(&b->rings) != heard)
        return;
    if (spin_ns > 0) {
        if (counts)
            bell_attend(b);
        bool rung = bell_spin(b, heard, spin_ns, deadline_ns);
        if (rung || (deadline_ns != NEVER_NS && clock_real() >= deadline_ns)) {
            if (counts)
                atomic_fetch_sub(&b->attending, 1);
            return;
        }
    }
    atomic_fetch_add(&b->sleepers[side], 1);
    if (spin_ns > 0 && counts)
        atomic_fetch_sub(&b->attending, 1);
    bell_sleep(b, side, heard, deadline_ns);
    atomic_fetch_sub(&b->sleepers[side], 1);
}
