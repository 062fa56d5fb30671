/* SPDX-License-Identifier: Apache-2.0 */
/* A doorbell: any thread rings, idle threads wait. Rings are counted, so none is lost. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "core/types.h"
#include "os/thread.h"

/* Who waits at the bell. Callers go before the progress thread: while one of them waits there, spinning or
 * asleep, a ring reaches only callers, so that a node's helper thread does not take time from a thread that
 * waits anyway. So a caller owes the bell one look after each bell_wait, also one that ended by its deadline:
 * bell_leave hands over what it has not heard. */
enum bell_side { BELL_CALLER, BELL_PROGRESS };

/* Linux: a futex a side. Elsewhere, and in the posix build: a mutex and a condition variable. The layout
 * serves both. */
struct bell {
    _Atomic(uint32_t) rings;       /* changes with every ring */
    _Atomic(uint32_t) attending;   /* callers that will look at the bell by themselves, spinning or at work */
    _Atomic(uint32_t) sleepers[2]; /* by side */
    _Atomic(uint32_t) nappers;     /* progress threads that only an urgent ring wakes */
    _Atomic(bool) urgent;          /* rings must be heard at once: bell_urgent */
    _Atomic(uint32_t) word[2];     /* Linux: what sleepers wait on */
    struct mutex lock;             /* posix */
    pthread_cond_t cond[2];        /* posix */
};

int MUST_CHECK bell_init(struct bell *b);
void bell_fini(struct bell *b);

/* What to hand to bell_wait: take it, look whether there is work, then wait. */
uint32_t bell_heard(const struct bell *b);

/* Costs one atomic add when no thread sleeps. A thread that hears it sees what was written before it. */
void bell_ring(struct bell *b);
/* Wakes all sleepers of both sides: something changed that either side must look at (an operation ended,
 * the node closes). */
void bell_ring_all(struct bell *b);

/* A caller attends for as long as it will look at the bell again by itself: rings do not wake the progress
 * thread then. When the last one leaves, rings since `heard`, its last look, are the progress thread's. */
void bell_attend(struct bell *b);
void bell_leave(struct bell *b, uint32_t heard);

/* For a progress thread that has nothing urgent to do: sleeps until the deadline, whatever rings, unless a
 * ring is urgent or is bell_ring_all. When operations follow each other closely, a ring between two of them
 * finds no caller; waking the progress thread for each would cost more than the operation. */
void bell_nap(struct bell *b, uint64_t deadline_ns);
void bell_urgent(struct bell *b, bool urgent);

/* Returns when the bell has rung since `heard`, when `deadline_ns` (clock_real; NEVER_NS: none) has passed,
 * or for no reason. Spins for spin_ns first, giving the processor away now and then. */
void bell_wait(struct bell *b, enum bell_side side, uint32_t heard, uint64_t spin_ns, uint64_t deadline_ns);
