/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that do the same job at the same time, one per node. */
#include "cli/shared/rank_threads.h"

#include <stdlib.h>

#define SPINS_PER_YIELD 64

static void codec_worker_main(void *arg)
{
    struct rank_thread *hand = arg;
    struct rank_threads *threads = hand->threads;
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&threads->lock);
        while (threads->call == seen && !threads->quit)
            pthread_cond_wait(&threads->called, &threads->lock);
        bool quit = threads->call == seen;
        seen = threads->call;
        pthread_mutex_unlock(&threads->lock);
        if (quit)
            return;
        threads->job(threads->arg, hand->index);
        pthread_mutex_lock(&threads->lock);
        if (--threads->at_work == 0)
            pthread_cond_signal(&threads->finished);
        pthread_mutex_unlock(&threads->lock);
    }
}

bool rank_threads_open(struct rank_threads *threads, int size)
{
    *threads = (struct rank_threads){.hands = calloc((size_t)size, sizeof *threads->hands)};
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->called, NULL);
    pthread_cond_init(&threads->finished, NULL);
    while (threads->hands && threads->size < size) {
        struct rank_thread *hand = &threads->hands[threads->size];
        hand->threads = threads;
        hand->index = threads->size;
        if (thread_start(&hand->thread, "hearth-threads", codec_worker_main, hand))
            break;
        threads->size++;
    }
    if (threads->size == size)
        return true;
    rank_threads_close(threads);
    return false;
}

void rank_threads_close(struct rank_threads *threads)
{
    pthread_mutex_lock(&threads->lock);
    threads->quit = true;
    pthread_cond_broadcast(&threads->called);
    pthread_mutex_unlock(&threads->lock);
    for (int i = 0; i < threads->size; i++)
        thread_join(&threads->hands[i].thread);
    pthread_cond_destroy(&threads->called);
    pthread_cond_destroy(&threads->finished);
    pthread_mutex_destroy(&threads->lock);
    free(threads->hands);
    threads->hands = NULL;
}

void rank_threads_run(struct rank_threads *threads, rank_threads_job *job, void *arg)
{
    pthread_mutex_lock(&threads->lock);
    threads->job = job;
    threads->arg = arg;
    threads->at_work = threads->size;
    threads->call++;
    pthread_cond_broadcast(&threads->called);
    while (threads->at_work > 0)
        pthread_cond_wait(&threads->finished, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
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
