/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that sleep at descriptors, over every transport: callers, progress threads, callbacks and time at the
 * seat together, no wake-up lost; and buffers that neighbours read, freed at any time. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "core/prng.h"
#include "node/node.h"
#include "support/suite.h"
#include "support/watchdog.h"

#define NODES_MAX 3
#define COUNT_MAX 20000

struct world {
    int size;
    hearth_node *nodes[NODES_MAX];
};

struct opener {
    struct hearth_config config;
    struct hearth_tuning tuning;
    hearth_node *node;
    int status;
    char text[256];
};

static void *open_one(void *arg)
{
    struct opener *o = arg;
    o->status = hearth_node_open(&o->config, &o->node);
    snprintf(o->text, sizeof o->text, "%s", o->status == HEARTH_OK ? "" : hearth_error_text());
    return NULL;
}

static void world_open(struct world *w, int size, const char *transport)
{
    static int number;
    struct opener openers[NODES_MAX];
    pthread_t threads[NODES_MAX];
    char place[64];
    snprintf(place, sizeof place, "unix:@hearth-rest-%ld-%d", (long)getpid(), number++);
    w->size = size;
    for (int i = 0; i < size; i++) {
        memset(&openers[i], 0, sizeof openers[i]);
        hearth_config_init(&openers[i].config);
        struct hearth_config *config = &openers[i].config;
        config->rendezvous = place;
        config->world_size = size;
        config->rank = i;
        config->bind = "127.0.0.1";
        config->port = 0;
        config->transport = transport;
        struct hearth_tuning *tuning = &openers[i].tuning;
        hearth_tuning_init(tuning);
        tuning->chunk_bytes = tuning->window_bytes = tuning->eager_bytes = 16384; /* many frames and grants */
        tuning->spin_us = i == 0 ? 0 : 20;
        config->tuning = tuning;
        assert_int_equal(pthread_create(&threads[i], NULL, open_one, &openers[i]), 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < size; i++) {
        if (openers[i].status != HEARTH_OK)
            fail_msg("rank %d: %s", i, openers[i].text);
        w->nodes[i] = openers[i].node;
    }
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

/* ---- nobody waits: the progress thread ---- */

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

static void the_progress_needs_no_caller(void **state)
{
    struct world w;
    float *x[NODES_MAX];
    world_open(&w, NODES_MAX, *state);
    for (int i = 0; i < NODES_MAX; i++)
        assert_non_null(x[i] = hearth_mem_alloc(w.nodes[i], COUNT_MAX * sizeof **x));
    for (unsigned long round = 0; round < repeat_count(60); round++) {
        struct tally tally = {0};
        struct hearth_opts opts;
        hearth_request *requests[NODES_MAX];
        size_t count = 1 + round * 1717 % COUNT_MAX;
        hearth_opts_init(&opts);
        opts.done = ended;
        opts.done_arg = &tally;
        for (int i = 0; i < NODES_MAX; i++) {
            fill(x[i], count, i);
            assert_int_equal(hearth_all_reduce_nb(hearth_node_world(w.nodes[i]), x[i], x[i], count,
                                                  HEARTH_F32, HEARTH_OP_SUM, &opts, &requests[i]),
                             HEARTH_OK);
            if (round % 7 == 0)
                nap(); /* all fall asleep */
        }
        while (atomic_load(&tally.ended) < NODES_MAX)
            nap();
        assert_int_equal(tally.bad, 0);
        for (int i = 0; i < NODES_MAX; i++) {
            assert_true(is_sum(x[i], count, NODES_MAX));
            hearth_request_close(requests[i]);
        }
    }
    world_close(&w);
}

static void the_progress_minds_deadlines(void **state)
{
    struct world w;
    struct hearth_opts opts;
    hearth_request *request, *longer;
    world_open(&w, 2, *state);
    hearth_opts_init(&opts);
    opts.tag = 1;
    opts.timeout_ms = 3600000; /* a longer one must not keep the seat asleep */
    assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[0]), &opts, &longer), HEARTH_OK);
    opts.tag = 2;
    opts.timeout_ms = 20;
    assert_int_equal(hearth_barrier_nb(hearth_node_world(w.nodes[0]), &opts, &request), HEARTH_OK);
    while (hearth_request_test(request) == HEARTH_PENDING)
        nap();
    assert_int_equal(hearth_request_wait(request, -1), HEARTH_TIMEOUT);
    assert_int_equal(hearth_request_test(longer), HEARTH_PENDING);
    hearth_request_close(request);
    hearth_request_close(longer);
    world_close(&w);
}

/* ---- callers and progress threads together ---- */

struct caller {
    hearth_node *node;
    int rank;
    uint64_t tag;
    unsigned long rounds;
    _Atomic(int) *bad;
};

/* What it does is drawn from the tag alone, so that its peers on the other nodes do the same; how it waits
 * is its own business. */
static void *hammer(void *arg)
{
    struct caller *c = arg;
    struct prng prng, own;
    struct hearth_opts opts;
    hearth_group *group = hearth_node_world(c->node);
    float *x = hearth_mem_alloc(c->node, COUNT_MAX * sizeof *x), *y = malloc(COUNT_MAX * sizeof *y);
    hearth_opts_init(&opts);
    opts.tag = c->tag;
    prng_init(&prng, c->tag);
    prng_init(&own, c->tag * 100 + (uint64_t)c->rank);
    for (unsigned long round = 0; round < c->rounds && x && y; round++) {
        size_t count = prng_below(&prng, prng_below(&prng, 8) == 0 ? COUNT_MAX : 50);
        hearth_request *request = NULL;
        fill(x, count, c->rank);
        int status = hearth_all_reduce_nb(group, x, y, count, HEARTH_F32, HEARTH_OP_SUM, &opts, &request);
        switch (status == HEARTH_OK ? prng_below(&own, 4) : 3) {
        case 0:
            while (hearth_request_test(request) == HEARTH_PENDING)
                nap();
            break;
        case 1:
            while (hearth_request_wait(request, 1) == HEARTH_PENDING)
                continue;
            break;
        default:
            break;
        }
        if (status != HEARTH_OK || hearth_request_wait(request, -1) != HEARTH_OK ||
            !is_sum(y, count, NODES_MAX))
            atomic_fetch_add(c->bad, 1);
        hearth_request_close(request);
    }
    hearth_mem_free(c->node, x);
    free(y);
    return NULL;
}

#define THREADS 2

static void no_wake_up_is_lost(void **state)
{
    struct world w;
    pthread_t threads[NODES_MAX][THREADS];
    struct caller callers[NODES_MAX][THREADS];
    _Atomic(int) bad = 0;
    world_open(&w, NODES_MAX, *state);
    for (int i = 0; i < NODES_MAX; i++)
        for (int k = 0; k < THREADS; k++) {
            callers[i][k] = (struct caller){w.nodes[i], i, (uint64_t)k, repeat_count(300), &bad};
            assert_int_equal(pthread_create(&threads[i][k], NULL, hammer, &callers[i][k]), 0);
        }
    for (int i = 0; i < NODES_MAX; i++)
        for (int k = 0; k < THREADS; k++)
            pthread_join(threads[i][k], NULL);
    assert_int_equal(bad, 0);
    world_close(&w);
}

/* ---- buffers ---- */

/* A cancelled operation is over for its owner, who frees the buffer; the neighbour may be about to read it.
 * If it had all it needed before it heard of the cancel, its result is right. */
static void buffers_may_be_freed_after_a_cancel(void **state)
{
    enum { COUNT = 3000 };
    struct world w;
    world_open(&w, 2, *state);
    for (unsigned long round = 0; round < repeat_count(100); round++) {
        struct hearth_opts opts;
        hearth_request *request;
        hearth_opts_init(&opts);
        opts.tag = round;
        float *x = hearth_mem_alloc(w.nodes[0], COUNT * sizeof *x);
        static float y[COUNT];
        assert_non_null(x);
        fill(x, COUNT, 0);
        assert_int_equal(hearth_all_reduce_nb(hearth_node_world(w.nodes[0]), x, x, COUNT, HEARTH_F32,
                                              HEARTH_OP_SUM, &opts, &request),
                         HEARTH_OK);
        if (round % 3 == 0)
            nap(); /* so that the frames have set out */
        hearth_request_cancel(request);
        hearth_request_close(request);
        memset(x, 0xff, COUNT * sizeof *x);
        hearth_mem_free(w.nodes[0], x);
        memset(y, 0, sizeof y);
        int status =
            hearth_all_reduce(hearth_node_world(w.nodes[1]), y, y, COUNT, HEARTH_F32, HEARTH_OP_SUM, &opts);
        if (status != HEARTH_ABORTED && status != HEARTH_OK)
            fail_msg("round %lu: %s", round, hearth_error_text());
        for (size_t i = 0; i < COUNT && status == HEARTH_OK; i++)
            assert_true(y[i] == (float)(i % 100));
    }
    float z[2] = {1, 2};
    hearth_request *request;
    assert_int_equal(hearth_all_reduce_nb(hearth_node_world(w.nodes[0]), &z[0], &z[0], 1, HEARTH_F32,
                                          HEARTH_OP_SUM, NULL, &request),
                     HEARTH_OK);
    assert_int_equal(
        hearth_all_reduce(hearth_node_world(w.nodes[1]), &z[1], &z[1], 1, HEARTH_F32, HEARTH_OP_SUM, NULL),
        HEARTH_OK);
    assert_int_equal(hearth_request_wait(request, -1), HEARTH_OK);
    assert_true(z[0] == 3 && z[1] == 3);
    hearth_request_close(request);
    world_close(&w);
}

static void buffers_are_zero_pages_and_any_number(void **state)
{
    enum { BUFFERS = 100 }; /* more than neighbours can see */
    struct world w;
    uint8_t *buffers[BUFFERS];
    world_open(&w, 2, *state);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BUFFERS; i++) {
            size_t len = (size_t)i * 100;
            buffers[i] = hearth_mem_alloc(w.nodes[0], len);
            assert_non_null(buffers[i]);
            assert_int_equal((uintptr_t)buffers[i] % 4096, 0);
            for (size_t at = 0; at < len; at++)
                assert_int_equal(buffers[i][at], 0);
            memset(buffers[i], 0xff, len);
        }
        for (int i = 0; i < BUFFERS && round == 0; i++) /* the second time the close does it */
            hearth_mem_free(w.nodes[0], buffers[(i * 37) % BUFFERS]);
    }
    hearth_mem_free(w.nodes[0], NULL);
    assert_null(hearth_mem_alloc(w.nodes[0], SIZE_MAX));
    assert_non_null(strstr(hearth_error_text(), "alloc"));
    assert_null(hearth_mem_alloc(NULL, 1));
    world_close(&w);
}

#define CASE(function)                                                                                       \
    {                                                                                                        \
        .name = #function, .test_func = function                                                             \
    }

int main(void)
{
    static const char *const transports[] = {"shm", "tcp", "quic", "auto"};
    int failed = 0;
    watchdog(100, "nodes at descriptors");
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++) {
        struct CMUnitTest tests[] = {
            CASE(the_progress_needs_no_caller),
            CASE(the_progress_minds_deadlines),
            CASE(no_wake_up_is_lost),
            CASE(buffers_may_be_freed_after_a_cancel),
            CASE(buffers_are_zero_pages_and_any_number),
        };
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
            tests[i].initial_state = (void *)(uintptr_t)transports[t];
        failed += cmocka_run_group_tests_name(transports[t], tests, NULL, NULL);
    }
    return failed;
}
