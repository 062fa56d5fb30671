/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that do the same job at the same time, one per node. */
#ifndef CLI_CREW_H
#define CLI_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/thread.h"

typedef void crew_job(void *arg, int index);

struct crew;
struct crew_hand {
    struct crew *crew;
    int index;
    struct thread thread;
};

struct crew {
    int size;
    struct crew_hand *hands; /* [size] */
    pthread_mutex_t lock;
    pthread_cond_t called, finished;
    uint64_t call; /* counts jobs */
    int at_work;
    bool quit;
    crew_job *job;
    void *arg;
    _Atomic(int) arrived; /* at crew_align */
    _Atomic(unsigned) turn;
};

bool crew_open(struct crew *crew, int size); /* false: no memory or no threads */
void crew_close(struct crew *crew);
/* All call job(arg, index); returns when all are done. One caller at a time. */
void crew_run(struct crew *crew, crew_job *job, void *arg);
/* Inside a job: leaves when all are there. Spins and gives way, since a sleeper would start late. */
void crew_align(struct crew *crew);

#endif
