/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that do the same job at the same time, one per node. */
#include "cli/crew.h"

#include <stdlib.h>

#define SPINS_PER_YIELD 64

static void hand_main(void *arg)
{
    struct crew_hand *hand = arg;
    struct crew *crew = hand->crew;
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&crew->lock);
        while (crew->call == seen && !crew->quit)
            pthread_cond_wait(&crew->called, &crew->lock);
        bool quit = crew->call == seen;
        seen = crew->call;
        pthread_mutex_unlock(&crew->lock);
        if (quit)
            return;
        crew->job(crew->arg, hand->index);
        pthread_mutex_lock(&crew->lock);
        if (--crew->at_work == 0)
            pthread_cond_signal(&crew->finished);
        pthread_mutex_unlock(&crew->lock);
    }
}

bool crew_open(struct crew *crew, int size)
{
    *crew = (struct crew){.hands = calloc((size_t)size, sizeof *crew->hands)};
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->called, NULL);
    pthread_cond_init(&crew->finished, NULL);
    while (crew->hands && crew->size < size) {
        struct crew_hand *hand = &crew->hands[crew->size];
        hand->crew = crew;
        hand->index = crew->size;
        if (thread_start(&hand->thread, "hearth-crew", hand_main, hand))
            break;
        crew->size++;
    }
    if (crew->size == size)
        return true;
    crew_close(crew);
    return false;
}

void crew_close(struct crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->quit = true;
    pthread_cond_broadcast(&crew->called);
    pthread_mutex_unlock(&crew->lock);
    for (int i = 0; i < crew->size; i++)
        thread_join(&crew->hands[i].thread);
    pthread_cond_destroy(&crew->called);
    pthread_cond_destroy(&crew->finished);
    pthread_mutex_destroy(&crew->lock);
    free(crew->hands);
    crew->hands = NULL;
}

void crew_run(struct crew *crew, crew_job *job, void *arg)
{
    pthread_mutex_lock(&crew->lock);
    crew->job = job;
    crew->arg = arg;
    crew->at_work = crew->size;
    crew->call++;
    pthread_cond_broadcast(&crew->called);
    while (crew->at_work > 0)
        pthread_cond_wait(&crew->finished, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void crew_align(struct crew *crew)
{
    unsigned turn = atomic_load(&crew->turn);
    if (atomic_fetch_add(&crew->arrived, 1) + 1 == crew->size) {
        atomic_store(&crew->arrived, 0);
        atomic_store(&crew->turn, turn + 1);
        return;
    }
    for (unsigned spins = 1; atomic_load(&crew->turn) == turn; spins++) {
        if (spins % SPINS_PER_YIELD == 0)
            thread_yield();
        else
            thread_relax();
    }
}
