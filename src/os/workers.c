/* SPDX-License-Identifier: Apache-2.0 */
/* Work is a counter of pieces: a free thread takes the next number. */
#include "os/workers.h"

#include <stdatomic.h>

#include "os/clock.h"

struct workers {
    uint32_t threads;  /* started by us */
    struct mutex turn; /* one piece of work at a time */
    struct mutex lock; /* of what follows */
    pthread_cond_t begin, end;
    workers_fn *run;
    void *arg;
    size_t pieces;
    uint64_t round;   /* counts pieces of work */
    uint32_t at_work; /* threads that have not ended their part of the round */
    bool stopping;
    _Atomic(size_t) next;
    struct thread thread[WORKERS_MAX];
};

static void take_pieces(struct workers *w, workers_fn *run, void *arg, size_t pieces)
{
    for (;;) {
        size_t piece = atomic_fetch_add(&w->next, 1);
        if (piece >= pieces)
            return;
        run(arg, piece);
    }
}

static void worker_run(void *arg)
{
    struct workers *w = arg;
    uint64_t seen = 0;
    mutex_lock(&w->lock);
    for (;;) {
        while (!w->stopping && w->round == seen)
            pthread_cond_wait(&w->begin, &w->lock.handle);
        if (w->stopping)
            break;
        seen = w->round;
        workers_fn *run = w->run;
        void *work = w->arg;
        size_t pieces = w->pieces;
        mutex_unlock(&w->lock);
        take_pieces(w, run, work, pieces);
        mutex_lock(&w->lock);
        if (--w->at_work == 0)
            pthread_cond_signal(&w->end);
    }
    mutex_unlock(&w->lock);
}

static bool workers_init(struct workers *w)
{
    if (mutex_init(&w->turn) != HEARTH_OK)
        return false;
    if (mutex_init(&w->lock) != HEARTH_OK) {
        mutex_fini(&w->turn);
        return false;
    }
    pthread_cond_init(&w->begin, NULL); /* neither can fail without attributes */
    pthread_cond_init(&w->end, NULL);
    return true;
}

struct workers *workers_start(struct heap *heap, uint32_t threads)
{
    struct workers *w = heap_alloc(heap, 1, sizeof *w);
    if (!w || !workers_init(w)) {
        heap_free(w);
        return NULL;
    }
    for (uint32_t i = 1; i < threads && i < WORKERS_MAX; i++) {
        if (thread_start(&w->thread[w->threads], "hearth-work", worker_run, w) != HEARTH_OK) {
            workers_stop(w);
            return NULL;
        }
        w->threads++;
    }
    return w;
}

void workers_stop(struct workers *w)
{
    if (!w)
        return;
    mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->begin);
    mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < w->threads; i++)
        thread_join(&w->thread[i]);
    pthread_cond_destroy(&w->begin);
    pthread_cond_destroy(&w->end);
    mutex_fini(&w->lock);
    mutex_fini(&w->turn);
    heap_free(w);
}

static void run_shared(struct workers *w, workers_fn *run, void *arg, size_t pieces)
{
    mutex_lock(&w->turn);
    mutex_lock(&w->lock);
    w->run = run;
    w->arg = arg;
    w->pieces = pieces;
    w->at_work = w->threads;
    atomic_store(&w->next, 0);
    w->round++;
    pthread_cond_broadcast(&w->begin);
    mutex_unlock(&w->lock);
    take_pieces(w, run, arg, pieces);
    mutex_lock(&w->lock);
    while (w->at_work > 0)
        pthread_cond_wait(&w->end, &w->lock.handle);
    mutex_unlock(&w->lock);
    mutex_unlock(&w->turn);
}

uint64_t workers_run(struct workers *w, workers_fn *run, void *arg, size_t pieces)
{
    uint64_t begin = clock_real();
    if (w && w->threads > 0 && pieces > 1)
        run_shared(w, run, arg, pieces);
    else
        for (size_t i = 0; i < pieces; i++)
            run(arg, i);
    return clock_real() - begin;
}

uint32_t workers_count(const struct workers *w)
{
    return w ? w->threads + 1 : 1;
}
