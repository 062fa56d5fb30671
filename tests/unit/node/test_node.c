/* SPDX-License-Identifier: Apache-2.0 */
/* A node on real time: the progress thread, callers, both together, and that no wake-up is lost. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "core/prng.h"
#include "node/node.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define NODES_MAX 4
#define COUNT_MAX 5000

struct world {
    int size;
    hearth_node *nodes[NODES_MAX];
};

static void world_open(struct world *w, int size)
{
    struct hearth_config config;
    hearth_config_init(&config);
    struct hearth_tuning tuning;
    hearth_tuning_init(&tuning);
    config.tuning = &tuning;
    tuning.chunk_bytes = tuning.window_bytes = tuning.eager_bytes = 16384; /* many frames and grants */
    w->size = size;
    assert_int_equal(hearth_node_open_local(&config, size, w->nodes), HEARTH_OK);
}

static void world_close(struct world *w)
{
    for (int i = 0; i < w->size; i++)
        hearth_node_close(w->nodes[i]);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* ---- callbacks, without anybody who waits ---- */

struct tally {
    _Atomic(int) ended, bad;
};

static void ended(void *arg, int status)
{
    struct tally *tally = arg;
    if (status != HEARTH_OK)
        atomic_fetch_add(&tally->bad, 1);
    atomic_fetch_add(&tally->ended, 1);
}

static struct hearth_opts opts_with(hearth_done_fn *done, void *arg)
{
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.done = done;
    opts.done_arg = arg;
    return opts;
}

static void fill(float *x, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(i % 100) + (float)rank;
}

static bool is_sum(const float *x, size_t count, int size)
{
    for (size_t i = 0; i < count; i++)
        if (x[i] != (float)(i % 100) * (float)size + (float)(size * (size - 1) / 2))
            return false;
    return true;
}

TEST(the_progress_needs_no_caller)
{
    static float x[NODES_MAX][COUNT_MAX];
    struct world w;
    world_open(&w, 3);
    for (unsigned long round = 0; round < repeat_count(300); round++) {
        struct tally tally = {0};
        struct hearth_opts opts = opts_with(ended, &tally);
        hearth_request *requests[NODES_MAX];
        size_t count = 1 + round * 17 % COUNT_MAX;
        for (int i = 0; i < 3; i++) {
            fill(x[i], count, i);
            assert_int_equal(hearth_all_reduce_nb(hearth_node_world(w.nodes[i]), x[i], x[i], count,
                                                  HEARTH_F32, HEARTH_OP_SUM, &opts, &requests[i]),
                             HEARTH_OK);
        }
        while (atomic_load(&tally.ended) < 3)
            nap();
        assert_int_equal(tally.bad, 0);
        for (int i = 0; i < 3; i++) {
            assert_true(is_sum(x[i], count, 3));
            hearth_request_close(requests[i]);
        }
    }
    world_close(&w);
}

TEST(the_progress_minds_deadlines)
{
    struct world w;
    struct tally tally = {0};
    struct hearth_opts opts = opts_with(ended, &tally);
    hearth_request *request, *longer;
    world_open(&w, 2);
    opts.tag = 1;
    opts.timeout_ms = 3600000; /* a longer one must not keep the progress thread asleep */
    assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[0]), &opts, &longer), HEARTH_OK);
    opts.tag = 2;
    opts.timeout_ms = 20;
    assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[0]), &opts, &request), HEARTH_OK);
    while (atomic_load(&tally.ended) < 1)
        nap();
    assert_int_equal(hearth_request_wait(request, -1), HEARTH_TIMEOUT);
    assert_int_equal(hearth_request_test(longer), HEARTH_PENDING);
    hearth_request_close(request);
    hearth_request_close(longer);
    world_close(&w);
}

TEST(a_descriptor_becomes_readable)
{
    struct world w;
    hearth_request *requests[2];
    world_open(&w, 2);
    for (int round = 0; round < 50; round++) {
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[0]), NULL, &requests[0]), HEARTH_OK);
        struct pollfd poller = {.fd = hearth_request_fd(requests[0]), .events = POLLIN};
        assert_true(poller.fd >= 0);
        assert_int_equal(poll(&poller, 1, 0), 0);
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[1]), NULL, &requests[1]), HEARTH_OK);
        assert_int_equal(poll(&poller, 1, -1), 1);
        assert_int_equal(hearth_request_test(requests[0]), HEARTH_OK);
        poller.fd = hearth_request_fd(requests[0]); /* the same, still readable */
        assert_int_equal(poll(&poller, 1, 0), 1);
        assert_int_equal(hearth_request_wait(requests[1], -1), HEARTH_OK);
        poller.fd = hearth_request_fd(requests[1]); /* asked for after the end */
        assert_int_equal(poll(&poller, 1, 0), 1);
        hearth_request_close(requests[0]);
        hearth_request_close(requests[1]);
    }
    world_close(&w);
}

/* ---- a callback that starts the next operation ---- */

#define CHAIN 500

struct chain {
    hearth_group *group;
    hearth_request *requests[CHAIN];
    float x;
    _Atomic(int) at;
    _Atomic(int) bad;
};

static void link_ended(void *arg, int status);

static void link_start(struct chain *chain, int at)
{
    struct hearth_opts opts = opts_with(link_ended, chain);
    int status = hearth_all_reduce_nb(chain->group, &chain->x, &chain->x, 1, HEARTH_F32, HEARTH_OP_MAX, &opts,
                                      &chain->requests[at]);
    if (status != HEARTH_OK)
        atomic_fetch_add(&chain->bad, 1);
}

static void link_ended(void *arg, int status)
{
    struct chain *chain = arg;
    int at = atomic_load(&chain->at) + 1;
    if (status != HEARTH_OK)
        atomic_fetch_add(&chain->bad, 1);
    if (at < CHAIN)
        link_start(chain, at);
    atomic_store(&chain->at, at);
}

TEST(a_callback_may_start_the_next)
{
    static struct chain chains[3];
    struct world w;
    world_open(&w, 3);
    for (int i = 0; i < 3; i++) {
        memset(&chains[i], 0, sizeof chains[i]);
        chains[i].group = hearth_node_world(w.nodes[i]);
        chains[i].x = (float)i;
    }
    for (int i = 0; i < 3; i++)
        link_start(&chains[i], 0);
    for (int i = 0; i < 3; i++) {
        while (atomic_load(&chains[i].at) < CHAIN)
            nap();
        assert_int_equal(chains[i].bad, 0);
        assert_true(chains[i].x == 2);
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < CHAIN; k++)
            hearth_request_close(chains[i].requests[k]);
    world_close(&w);
}

/* ---- callers and progress threads together ---- */

struct caller {
    hearth_node *node;
    int rank, size;
    uint64_t tag;
    unsigned long rounds;
    _Atomic(int) *bad;
};

/* A callback gives up an operation that only this member has begun: no other thread can collect it. */
struct giving_up {
    hearth_request *request;
    _Atomic(int) given_up, called;
};

static void give_up(void *arg, int status)
{
    struct giving_up *g = arg;
    struct error why;
    error_set(&why, HEARTH_ABORTED, 0, "given up");
    node_abandon(g->request, &why);
    atomic_fetch_add(&g->given_up, 1);
}

static void is_called(void *arg, int status)
{
    struct giving_up *g = arg;
    atomic_fetch_add(&g->called, 1);
}

TEST(a_callback_may_abandon_another)
{
    struct world w;
    float x = 1, y[2] = {1, 1};
    world_open(&w, 2);
    for (unsigned long round = 0; round < repeat_count(100); round++) {
        struct giving_up g = {0};
        struct hearth_opts lonely = opts_with(is_called, &g), ending = opts_with(give_up, &g);
        hearth_request *requests[2];
        lonely.tag = 1 + round;
        assert_int_equal(hearth_all_reduce_nb(hearth_node_world(w.nodes[0]), &x, &x, 1, HEARTH_F32,
                                              HEARTH_OP_SUM, &lonely, &g.request),
                         HEARTH_OK);
        for (int i = 0; i < 2; i++)
            assert_int_equal(hearth_all_reduce_nb(hearth_node_world(w.nodes[i]), &y[i], &y[i], 1, HEARTH_F32,
                                                  HEARTH_OP_SUM, i == 0 ? &ending : NULL, &requests[i]),
                             HEARTH_OK);
        while (atomic_load(&g.given_up) == 0)
            nap();
        for (int i = 0; i < 2; i++)
            hearth_request_close(requests[i]);
        assert_int_equal(g.called, 0);
    }
    world_close(&w);
}

/* A blocking caller on one node while the others are left to their progress threads. */
TEST(a_caller_and_progress_threads_work_together)
{
    static float x[NODES_MAX][COUNT_MAX];
    struct world w;
    world_open(&w, 3);
    for (unsigned long round = 0; round < repeat_count(300); round++) {
        hearth_request *requests[NODES_MAX];
        size_t count = 1 + round * 31 % COUNT_MAX;
        int blocking = (int)(round % 3);
        for (int i = 0; i < 3; i++)
            fill(x[i], count, i);
        for (int i = 0; i < 3; i++)
            if (i != blocking)
                assert_int_equal(hearth_all_reduce_nb(hearth_node_world(w.nodes[i]), x[i], x[i], count,
                                                      HEARTH_F32, HEARTH_OP_SUM, NULL, &requests[i]),
                                 HEARTH_OK);
        assert_int_equal(hearth_all_reduce(hearth_node_world(w.nodes[blocking]), x[blocking], x[blocking],
                                           count, HEARTH_F32, HEARTH_OP_SUM, NULL),
                         HEARTH_OK);
        for (int i = 0; i < 3; i++) {
            if (i == blocking)
                continue;
            assert_int_equal(hearth_request_wait(requests[i], -1), HEARTH_OK);
            hearth_request_close(requests[i]);
        }
        for (int i = 0; i < 3; i++)
            assert_true(is_sum(x[i], count, 3));
    }
    world_close(&w);
}

/* One thread of a node, under a tag of its own. What it does is drawn from the tag alone, so that its peers
 * on the other nodes do the same. */
static void *hammer(void *arg)
{
    struct caller *c = arg;
    struct prng prng;
    static _Thread_local float x[COUNT_MAX], y[COUNT_MAX];
    struct hearth_opts opts;
    hearth_group *group = hearth_node_world(c->node);
    hearth_opts_init(&opts);
    opts.tag = c->tag;
    prng_init(&prng, c->tag);
    for (unsigned long round = 0; round < c->rounds; round++) {
        size_t count = prng_below(&prng, prng_below(&prng, 20) == 0 ? COUNT_MAX : 50);
        uint64_t kind = prng_below(&prng, 4);
        int status = HEARTH_OK, root = (int)prng_below(&prng, (uint64_t)c->size);
        bool good = true;
        hearth_request *request = NULL;
        fill(x, count, c->rank);
        if (kind == 0) {
            status = hearth_all_reduce(group, x, y, count, HEARTH_F32, HEARTH_OP_SUM, &opts);
            good = is_sum(y, count, c->size);
        } else if (kind == 1) {
            status = hearth_barrier(group, &opts);
        } else if (kind == 2) {
            status = hearth_broadcast(group, x, count, HEARTH_F32, root, &opts);
            good = count == 0 || x[0] == (float)root;
        } else {
            status = hearth_all_reduce_nb(group, x, y, count, HEARTH_F32, HEARTH_OP_SUM, &opts, &request);
            if (status == HEARTH_OK)
                status = hearth_request_wait(request, -1);
            good = is_sum(y, count, c->size);
            hearth_request_close(request);
        }
        if (status != HEARTH_OK || !good)
            atomic_fetch_add(c->bad, 1);
    }
    return NULL;
}

#define THREADS 2

TEST(no_wake_up_is_lost)
{
    struct world w;
    pthread_t threads[NODES_MAX][THREADS];
    struct caller callers[NODES_MAX][THREADS];
    _Atomic(int) bad = 0;
    world_open(&w, NODES_MAX);
    for (int i = 0; i < NODES_MAX; i++) {
        for (int k = 0; k < THREADS; k++) {
            callers[i][k] = (struct caller){.node = w.nodes[i],
                                            .rank = i,
                                            .size = NODES_MAX,
                                            .tag = (uint64_t)k,
                                            .rounds = repeat_count(3000),
                                            .bad = &bad};
            assert_int_equal(pthread_create(&threads[i][k], NULL, hammer, &callers[i][k]), 0);
        }
    }
    for (int i = 0; i < NODES_MAX; i++)
        for (int k = 0; k < THREADS; k++)
            pthread_join(threads[i][k], NULL);
    assert_int_equal(bad, 0);
    world_close(&w);
}

/* ---- several threads and one request; cancelling while it ends ---- */

struct waiter {
    hearth_request *request;
    int status;
    bool any;
};

static void *wait_for_it(void *arg)
{
    struct waiter *waiter = arg;
    size_t index = 7;
    waiter->status = waiter->any ? hearth_request_wait_any(&waiter->request, 1, -1, &index)
                                 : hearth_request_wait(waiter->request, -1);
    return NULL;
}

TEST(several_threads_wait_for_one_request)
{
    struct world w;
    world_open(&w, 2);
    for (unsigned long round = 0; round < repeat_count(100); round++) {
        hearth_request *request, *other;
        pthread_t threads[3];
        struct waiter waiters[3];
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[0]), NULL, &request), HEARTH_OK);
        for (int i = 0; i < 3; i++) {
            waiters[i] = (struct waiter){.request = request, .any = i == 2};
            assert_int_equal(pthread_create(&threads[i], NULL, wait_for_it, &waiters[i]), 0);
        }
        if (round % 2)
            nap();
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[1]), NULL, &other), HEARTH_OK);
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(waiters[i].status, HEARTH_OK);
        }
        assert_int_equal(hearth_request_wait(other, -1), HEARTH_OK);
        hearth_request_close(request);
        hearth_request_close(other);
    }
    world_close(&w);
}

/* The callback gives the baton away: whoever looks meanwhile sees an operation that has ended and is not
 * settled yet, goes to sleep, and must be woken. */
static void slow(void *arg, int status)
{
    for (int i = 0; i < 3; i++)
        nap();
    ended(arg, status);
}

TEST(waiters_are_woken_after_a_slow_callback)
{
    struct world w;
    world_open(&w, 2);
    for (unsigned long round = 0; round < repeat_count(100); round++) {
        hearth_request *request, *other;
        struct tally tally = {0};
        struct hearth_opts opts = opts_with(slow, &tally);
        pthread_t threads[4];
        struct waiter waiters[4];
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[0]), &opts, &request), HEARTH_OK);
        for (int i = 0; i < 4; i++) {
            waiters[i] = (struct waiter){.request = request, .any = i == 2};
            assert_int_equal(pthread_create(&threads[i], NULL, wait_for_it, &waiters[i]), 0);
        }
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[1]), NULL, &other), HEARTH_OK);
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(waiters[i].status, HEARTH_OK);
        }
        assert_int_equal(tally.ended, 1);
        assert_int_equal(hearth_request_wait(other, -1), HEARTH_OK);
        hearth_request_close(request);
        hearth_request_close(other);
    }
    world_close(&w);
}

static void *cancel_it(void *arg)
{
    struct waiter *waiter = arg;
    waiter->status = hearth_request_cancel(waiter->request);
    return NULL;
}

/* Nothing comes from the other node, so nothing rings but the cancel itself. */
TEST(a_cancel_wakes_who_waits)
{
    struct world w;
    world_open(&w, 2);
    for (unsigned long round = 0; round < repeat_count(50); round++) {
        hearth_request *request, *late;
        pthread_t threads[2];
        struct waiter waiters[2];
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[0]), NULL, &request), HEARTH_OK);
        for (int i = 0; i < 2; i++) {
            waiters[i] = (struct waiter){.request = request, .any = i == 1};
            assert_int_equal(pthread_create(&threads[i], NULL, wait_for_it, &waiters[i]), 0);
        }
        for (unsigned long i = 0; i < round % 4; i++)
            nap();
        assert_int_equal(hearth_request_cancel(request), HEARTH_OK);
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(waiters[i].status, HEARTH_CANCELLED);
        }
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[1]), NULL, &late), HEARTH_OK);
        assert_int_equal(hearth_request_wait(late, -1), HEARTH_ABORTED);
        hearth_request_close(request);
        hearth_request_close(late);
    }
    world_close(&w);
}

TEST(a_cancel_races_with_the_end)
{
    static float x[2][COUNT_MAX];
    struct world w;
    world_open(&w, 2);
    for (unsigned long round = 0; round < repeat_count(300); round++) {
        hearth_request *requests[2];
        pthread_t thread;
        struct waiter waiter;
        for (int i = 0; i < 2; i++)
            assert_int_equal(hearth_all_reduce_nb(hearth_node_world(w.nodes[i]), x[i], x[i], COUNT_MAX,
                                                  HEARTH_F32, HEARTH_OP_SUM, NULL, &requests[i]),
                             HEARTH_OK);
        waiter = (struct waiter){.request = requests[0]};
        assert_int_equal(pthread_create(&thread, NULL, cancel_it, &waiter), 0);
        int mine = hearth_request_wait(requests[0], -1), theirs = hearth_request_wait(requests[1], -1);
        pthread_join(thread, NULL);
        assert_true(mine == HEARTH_OK || mine == HEARTH_CANCELLED);
        assert_true(theirs == HEARTH_OK || theirs == HEARTH_ABORTED);
        hearth_request_close(requests[0]);
        hearth_request_close(requests[1]);
    }
    world_close(&w);
}

/* ---- closing ---- */

static void *barrier_until_lost(void *arg)
{
    struct caller *c = arg;
    int status = HEARTH_OK;
    while (status == HEARTH_OK)
        status = hearth_barrier(hearth_node_world(c->node), NULL);
    if (status != HEARTH_PEER_LOST && status != HEARTH_GROUP_BROKEN)
        atomic_fetch_add(c->bad, 1);
    return NULL;
}

/* Whoever is left is told, whatever it is doing. */
TEST(a_node_may_close_at_any_time)
{
    for (unsigned long round = 0; round < repeat_count(30); round++) {
        struct world w;
        pthread_t threads[2];
        struct caller callers[2];
        struct tally tally = {0};
        _Atomic(int) bad = 0;
        hearth_request *request;
        struct hearth_opts opts = opts_with(ended, &tally);
        world_open(&w, 3);
        for (int i = 0; i < 2; i++) {
            callers[i] = (struct caller){.node = w.nodes[i], .bad = &bad};
            assert_int_equal(pthread_create(&threads[i], NULL, barrier_until_lost, &callers[i]), 0);
        }
        for (unsigned long i = 0; i < round % 40; i++)
            assert_int_equal(hearth_barrier(hearth_node_world(w.nodes[2]), NULL), HEARTH_OK);
        opts.tag = 9;
        assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[2]), &opts, &request), HEARTH_OK);
        hearth_node_close(w.nodes[2]);
        assert_int_equal(tally.ended, 1); /* HEARTH_CLOSED, before close returns */
        assert_int_equal(tally.bad, 1);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(bad, 0);
        hearth_node_close(w.nodes[0]);
        hearth_node_close(w.nodes[1]);
    }
}

TEST(memory_does_not_pile_up)
{
    struct world w;
    pthread_t threads[NODES_MAX];
    struct caller callers[NODES_MAX];
    uint64_t blocks[NODES_MAX] = {0};
    _Atomic(int) bad = 0;
    world_open(&w, NODES_MAX);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < NODES_MAX; i++) {
            callers[i] = (struct caller){
                .node = w.nodes[i], .rank = i, .size = NODES_MAX, .tag = 5, .rounds = 1000, .bad = &bad};
            assert_int_equal(pthread_create(&threads[i], NULL, hammer, &callers[i]), 0);
        }
        for (int i = 0; i < NODES_MAX; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < NODES_MAX; i++) {
            uint64_t now = atomic_load(&w.nodes[i]->heap->blocks);
            assert_true(round == 0 || now <= blocks[i] + 64); /* programs come and go */
            blocks[i] = now;
        }
    }
    assert_int_equal(bad, 0);
    world_close(&w);
}

int main(void)
{
    watchdog(600, "a node");
    return suite_run();
}
