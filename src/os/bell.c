/* SPDX-License-Identifier: Apache-2.0 */
/* The doorbell's rules: who is woken, and how long one spins before one sleeps. */
#include "os/bell.h"

#include "os/bell_sleep.h"
#include "os/clock.h"

#define LOOKS_PER_CLOCK 64              /* looks at the bell between two looks at the clock */
#define SPIN_ALONE_NS   (2 * NS_PER_US) /* then others may need the processor more: yield between looks */

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
            atomic_fetch_add(&b->attending, 1);
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
