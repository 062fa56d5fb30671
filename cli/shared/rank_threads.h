/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that do the same job at the same time, one per node. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "os/workers.h"

typedef void rank_threads_job(void *arg, int index);

struct rank_threads {
    int size; /* at most WORKERS_MAX */
    struct heap *heap;
    struct workers *workers;
    _Atomic(int) arrived; /* at rank_threads_align */
    _Atomic(unsigned) turn;
};

bool rank_threads_open(struct rank_threads *threads, int size); /* false: no memory or no threads */
void rank_threads_close(struct rank_threads *threads);
/* All call job(arg, index); returns when all are done. One caller at a time, whose thread is one of them. */
void rank_threads_run(struct rank_threads *threads, rank_threads_job *job, void *arg);
/* Inside a job: leaves when all are there. Spins and gives way, since a sleeper would start late. */
void rank_threads_align(struct rank_threads *threads);
