/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, locks and processes, as much of them as the project needs. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "core/types.h"

struct mutex {
    pthread_mutex_t handle;
};

#define MUTEX_STATIC                                                                                         \
    {                                                                                                        \
        PTHREAD_MUTEX_INITIALIZER                                                                            \
    }                                       /* instead of mutex_init, for what is never freed */
int MUST_CHECK mutex_init(struct mutex *m); /* HEARTH_OK or HEARTH_SYSTEM */
void mutex_fini(struct mutex *m);
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);

#define THREAD_NAME_MAX 15

/* Stays where it is until it is joined. */
struct thread {
    pthread_t handle;
    void (*run)(void *arg);
    void *arg;
    char name[THREAD_NAME_MAX + 1];
};

/* All signals are blocked in the new thread. `name` is cut to THREAD_NAME_MAX characters. */
int MUST_CHECK thread_start(struct thread *t, const char *name, void (*run)(void *arg), void *arg);
void thread_join(struct thread *t);
void thread_yield(void);
void thread_relax(void); /* the processor's hint inside a spin loop */

int cpu_count(void);  /* processors this process may run on, at least 1 */
int process_id(void); /* differs after a fork */
