/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that do the same job at the same time, one per node. */
#include "cli/shared/rank_threads.h"

#define SPINS_PER_YIELD 64

struct rank_work {
    rank_threads_job *job;
    void *arg;
};

static void run_piece(void *arg, size_t piece)
{
    struct rank_work *work = arg;
    work->job(work->arg, (int)piece);
}

bool rank_threads_open(struct rank_threads *threads, int size)
{
    *threads = (struct rank_threads){.size = size, .heap = heap_open(0)};
    if (threads->heap)
        threads->workers = workers_start(threads->heap, (uint32_t)size);
    if (threads->workers)
        return true;
    rank_threads_close(threads);
    return false;
}

void rank_threads_close(struct rank_threads *threads)
{
    workers_stop(threads->workers);
    if (threads->heap)
        heap_close(threads->heap);
    *threads = (struct rank_threads){.size = 0};
}

void rank_threads_run(struct rank_threads *threads, rank_threads_job *job, void *arg)
{
    struct rank_work work = {job, arg};
    (void)workers_run(threads->workers, run_piece, &work, (size_t)threads->size);
}

void rank_threads_align(struct rank_threads *threads)
{
    unsigned turn = atomic_load(&threads->turn);
    if (atomic_fetch_add(&threads->arrived, 1) + 1 == threads->size) {
        atomic_store(&threads->arrived, 0);
        atomic_store(&threads->turn, turn + 1);
        return;
    }
    for (unsigned spins = 1; atomic_load(&threads->turn) == turn; spins++) {
        if (spins % SPINS_PER_YIELD == 0)
            thread_yield();
        else
            thread_relax();
    }
}
