/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a model: any order of readiness, from several threads, over steps; arguments; memory. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/model.h"
#include "node/node.h"

enum { THREADS = 2 };

/* ---- steps ---- */

struct half {
    struct model *model;
    int order[TENSORS], from;
};

static void *ready_half(void *arg)
{
    struct half *h = arg;
    for (int i = h->from; i < TENSORS; i += THREADS)
        check_status(hearth_sync_ready(h->model->sync, h->order[i]), HEARTH_OK);
    return NULL;
}

/* Several threads, an order that no other member has. */
static void ready_by_threads(struct model *m, uint64_t seed)
{
    pthread_t threads[THREADS];
    struct half halves[THREADS];
    for (int i = 0; i < THREADS; i++) {
        halves[i] = (struct half){.model = m, .from = i};
        model_order(halves[i].order, seed);
        if (pthread_create(&threads[i], NULL, ready_half, &halves[i]) != 0)
            abort();
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

struct steps {
    const char *codec;
    enum hearth_op op;
    bool exact; /* plain: the same bits as all_reduce */
};

static void steps_run(struct fixture *c, int rank, void *arg)
{
    const struct steps *s = arg;
    struct model m;
    hearth_group *g = c->world[rank];
    model_open(&m, g, s->codec, s->op);
    check(hearth_sync_compressor(m.sync), "there is no compressor");
    for (int step = 0; step < 6; step++) {
        model_fill(&m, rank, step);
        model_reduce(&m, g, s->op, 1);
        if (step % 2 == 0)
            model_ready(&m, (uint64_t)(100 * step + rank));
        else
            ready_by_threads(&m, (uint64_t)(100 * step + rank));
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_OK);
        if (s->exact)
            model_check(&m, m.wanted, "the sum");
        model_same(&m, g);
    }
    model_close(&m);
}

TEST(test_steps)
{
    struct steps steps[] = {{"none", HEARTH_OP_SUM, true},
                            {NULL, HEARTH_OP_AVG, true},
                            {"int8", HEARTH_OP_SUM, false},
                            {"topk:0.05", HEARTH_OP_AVG, false}};
    for (int size = 1; size <= 4; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
            fixture_run(&c, steps_run, &steps[i]);
        fixture_close(&c);
    }
}

/* Several syncs of one group are in flight at the same time, and none meets the other. */
static void two_syncs(struct fixture *c, int rank, void *arg)
{
    struct model m[2];
    hearth_group *g = c->world[rank];
    for (int i = 0; i < 2; i++) {
        model_open(&m[i], g, NULL, i == 0 ? HEARTH_OP_SUM : HEARTH_OP_AVG);
        model_fill(&m[i], rank, i);
        model_reduce(&m[i], g, i == 0 ? HEARTH_OP_SUM : HEARTH_OP_AVG, 1);
    }
    for (int i = 0; i < 2; i++)
        model_ready(&m[(rank + i) % 2], (uint64_t)rank);
    for (int i = 0; i < 2; i++) {
        check_status(hearth_sync_wait(m[(rank + i + 1) % 2].sync, NULL), HEARTH_OK);
        model_check(&m[(rank + i + 1) % 2], m[(rank + i + 1) % 2].wanted, "the sum");
    }
    model_close(&m[0]);
    model_close(&m[1]);
}

static void weights(struct fixture *c, int rank, void *arg)
{
    struct model m;
    model_open(&m, c->world[rank], NULL, HEARTH_OP_AVG);
    for (int step = 0; step < 3; step++) {
        double weight = step == 0 ? 1 : step + rank;
        model_fill(&m, rank, step);
        model_reduce(&m, c->world[rank], HEARTH_OP_AVG, weight);
        if (step > 0)
            check_status(hearth_sync_set_weight(m.sync, weight), HEARTH_OK);
        model_ready(&m, (uint64_t)rank);
        check_status(hearth_sync_set_weight(m.sync, 7), HEARTH_INVALID);
        check_text(hearth_error_text(), "begun");
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_OK);
        model_check(&m, m.wanted, "the weighted average");
    }
    check_status(hearth_sync_set_weight(m.sync, -1), HEARTH_INVALID);
    check_status(hearth_sync_set_weight(m.sync, 1e31), HEARTH_INVALID);
    model_close(&m);
}

TEST(test_two_syncs_and_weights)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    fixture_run(&c, two_syncs, NULL);
    fixture_run(&c, weights, NULL);
    fixture_works(&c);
    fixture_close(&c);
}

/* A callback of an operation of the user makes a tensor ready, inside hearth_sync_ready or anywhere else. */
struct chain {
    struct model *model;
    int index;
    _Atomic(int) status;
};

static void on_done(void *arg, int status)
{
    struct chain *chain = arg;
    if (status == HEARTH_OK)
        status = hearth_sync_ready(chain->model->sync, chain->index);
    atomic_store(&chain->status, status);
}

static void callbacks(struct fixture *c, int rank, void *arg)
{
    struct model m;
    hearth_group *g = c->world[rank];
    model_open(&m, g, NULL, HEARTH_OP_SUM);
    for (int step = 0; step < 10; step++) {
        struct chain chains[TENSORS];
        hearth_request *requests[TENSORS];
        int64_t x[TENSORS];
        model_fill(&m, rank, step);
        model_reduce(&m, g, HEARTH_OP_SUM, 1);
        for (int i = 0; i < TENSORS; i++) {
            struct hearth_opts opts = opts_default();
            chains[i] = (struct chain){.model = &m, .index = i};
            opts.tag = (uint64_t)i;
            opts.done = on_done;
            opts.done_arg = &chains[i];
            x[i] = 1;
            check_status(
                hearth_all_reduce_nb(g, &x[i], &x[i], 1, HEARTH_I64, HEARTH_OP_SUM, &opts, &requests[i]),
                HEARTH_OK);
        }
        check_status(hearth_request_wait_all(requests, TENSORS, -1), HEARTH_OK);
        check_status(hearth_sync_wait(m.sync, NULL), HEARTH_OK);
        for (int i = 0; i < TENSORS; i++) {
            check_status(atomic_load(&chains[i].status), HEARTH_OK);
            hearth_request_close(requests[i]);
        }
        model_check(&m, m.wanted, "the sum");
    }
    model_close(&m);
}

TEST(test_ready_in_callbacks)
{
    fixture_once(3, NULL, callbacks, NULL);
}

/* ---- arguments ---- */

TEST(test_arguments)
{
    struct fixture c;
    struct model m;
    hearth_sync *none = NULL;
    struct hearth_opts opts = opts_default();
    fixture_open(&c, 1, NULL);
    check_status(hearth_sync_open(NULL, NULL, HEARTH_OP_SUM, &none), HEARTH_INVALID);
    check_status(hearth_sync_open(c.world[0], NULL, HEARTH_OP_MAX, &none), HEARTH_UNSUPPORTED);
    check_text(hearth_error_text(), "max");
    check_status(hearth_sync_open(c.world[0], NULL, HEARTH_OP_SUM, NULL), HEARTH_INVALID);
    check_status(hearth_sync_open_with(NULL, HEARTH_OP_SUM, &none), HEARTH_INVALID);
    check_status(hearth_sync_wait(NULL, NULL), HEARTH_INVALID);
    check_status(hearth_sync_ready(NULL, 0), HEARTH_INVALID);
    check_status(hearth_sync_add(NULL, NULL), HEARTH_INVALID);
    hearth_sync_close(NULL);
    hearth_sync_drop(NULL);
    check(!none && !hearth_sync_compressor(NULL), "something came of nothing");

    model_open(&m, c.world[0], NULL, HEARTH_OP_SUM);
    size_t huge[2] = {SIZE_MAX / 4, 3};
    float x[5];
    struct hearth_tensor t = {.size = sizeof t, .name = "x", .data = x, .dtype = HEARTH_I32};
    char name[257];
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    check_status(hearth_sync_add(m.sync, NULL), HEARTH_INVALID);
    check_status(hearth_sync_add(m.sync, &t), HEARTH_UNSUPPORTED);
    check_text(hearth_error_text(), "i32");
    t = (struct hearth_tensor){.size = sizeof(struct hearth_tensor), .name = "layer3.weight", .data = x};
    check_status(hearth_sync_add(m.sync, &t), HEARTH_INVALID);
    check_text(hearth_error_text(), "layer3.weight");
    t.name = name;
    check_status(hearth_sync_add(m.sync, &t), HEARTH_INVALID);
    t.name = "";
    check_status(hearth_sync_add(m.sync, &t), HEARTH_INVALID);
    t.name = "tab\t";
    check_status(hearth_sync_add(m.sync, &t), HEARTH_INVALID);
    t = (struct hearth_tensor){
        .size = sizeof(struct hearth_tensor), .name = "y", .data = x, .ndim = 9, .dims = huge};
    check_status(hearth_sync_add(m.sync, &t), HEARTH_INVALID);
    t.ndim = 1;
    t.dims = NULL;
    check_status(hearth_sync_add(m.sync, &t), HEARTH_INVALID);
    t.ndim = 2;
    t.dims = huge;
    check_status(hearth_sync_add(m.sync, &t), HEARTH_INVALID);
    check_text(hearth_error_text(), "2^63");

    check_status(hearth_sync_ready(m.sync, TENSORS), HEARTH_INVALID);
    check_status(hearth_sync_ready(m.sync, -1), HEARTH_INVALID);
    check_status(hearth_sync_set_data(m.sync, TENSORS, x), HEARTH_INVALID);
    check_status(hearth_sync_set_data(m.sync, 15, NULL), HEARTH_OK);
    check_status(hearth_sync_ready(m.sync, 15), HEARTH_INVALID);
    check_text(hearth_error_text(), "set_data");
    check_status(hearth_sync_set_data(m.sync, 15, x), HEARTH_OK);
    check_status(hearth_sync_ready(m.sync, 15), HEARTH_OK);
    check_status(hearth_sync_ready(m.sync, 15), HEARTH_INVALID);
    check_text(hearth_error_text(), "already");
    check_status(hearth_sync_set_data(m.sync, 15, x), HEARTH_INVALID);
    check_text(hearth_error_text(), "flight");
    t = (struct hearth_tensor){.size = sizeof(struct hearth_tensor), .name = "late", .data = x};
    check_status(hearth_sync_add(m.sync, &t), HEARTH_INVALID);
    check_text(hearth_error_text(), "late");
    opts.size = 3;
    check_status(hearth_sync_wait(m.sync, &opts), HEARTH_INVALID);
    opts = opts_default();
    opts.timeout_ms = -2;
    check_status(hearth_sync_wait(m.sync, &opts), HEARTH_INVALID);
    model_close(&m);
    fixture_close(&c);
}

/* A model of nothing, and one whose data comes later. */
static void empty(struct fixture *c, int rank, void *arg)
{
    hearth_sync *sync;
    check_status(hearth_sync_open(c->world[rank], NULL, HEARTH_OP_SUM, &sync), HEARTH_OK);
    for (int step = 0; step < 3; step++)
        check_status(hearth_sync_wait(sync, NULL), HEARTH_OK);
    hearth_sync_close(sync);
    hearth_sync *later;
    check_status(hearth_sync_open(c->world[rank], NULL, HEARTH_OP_SUM, &later), HEARTH_OK);
    check(model_add(later, 4, "later", NULL) == 0, "%s", hearth_error_text());
    for (int step = 0; step < 3; step++) {
        float x[64];
        for (int i = 0; i < 64; i++)
            x[i] = (float)(i + rank + step);
        check_status(hearth_sync_set_data(later, 0, x), HEARTH_OK);
        check_status(hearth_sync_ready(later, 0), HEARTH_OK);
        check_status(hearth_sync_wait(later, NULL), HEARTH_OK);
        check(x[63] == (float)(2 * (63 + step) + 1), "x is %g", (double)x[63]);
    }
    hearth_sync_close(later);
}

TEST(test_empty_and_later)
{
    fixture_once(2, NULL, empty, NULL);
}

TEST(test_more_buckets_than_operations)
{
    struct hearth_config config;
    struct fixture c;
    struct model m;
    hearth_config_init(&config);
    struct hearth_tuning tuning;
    hearth_tuning_init(&tuning);
    config.tuning = &tuning;
    tuning.ops_max = 4;
    fixture_open(&c, 1, &config);
    model_open(&m, c.world[0], "int8", HEARTH_OP_SUM);
    check_status(hearth_sync_ready(m.sync, 0), HEARTH_LIMIT);
    check_text(hearth_error_text(), "ops_max");
    model_close(&m);
    fixture_close(&c);
}

/* ---- memory ---- */

static void one_step(struct model *m, int count)
{
    for (int i = 0; i < count; i++)
        check_status(hearth_sync_ready(m->sync, i), HEARTH_OK);
    check_status(hearth_sync_wait(m->sync, NULL), HEARTH_OK);
}

struct steady {
    const char *codec;
    int steps; /* at least */
};

/* Small tensors that travel together, until everything has been used that a step may use at once: how much
 * that is depends on the others. */
static void steady(struct fixture *c, int rank, void *arg)
{
    const struct steady *s = arg;
    enum { SMALL = 9, STEPS_MORE = 500 };
    struct model m = {.sync = NULL};
    uint64_t allocations = 0;
    int same = 0;
    check_status(hearth_sync_open(c->world[rank], s->codec, HEARTH_OP_AVG, &m.sync), HEARTH_OK);
    for (int i = 0; i < SMALL; i++) {
        char name[] = {(char)('a' + i), '\0'};
        m.data[i] = must_alloc(model_len(i));
        check(model_add(m.sync, i, name, m.data[i]) == i, "%s", hearth_error_text());
    }
    for (int step = 0; step < s->steps || (step < s->steps + STEPS_MORE && same < 5); step++) {
        for (int i = 0; i < SMALL; i++)
            for (size_t k = 0; k < model_len(i); k++) /* finite in every type */
                ((uint8_t *)m.data[i])[k] = (uint8_t)((k * (size_t)(step + 3) + (size_t)rank) % 60);
        one_step(&m, SMALL);
        uint64_t now = metric(c->nodes[rank], "hearth_allocations_total"), most = 0;
        uint64_t changed = now != allocations;
        check_status(hearth_all_reduce(c->world[rank], &changed, &most, 1, HEARTH_U64, HEARTH_OP_MAX, NULL),
                     HEARTH_OK);
        same = most == 0 ? same + 1 : 0;
        allocations = now;
    }
    check(same >= 5, "%s: there is no end of allocations: %" PRIu64, s->codec, allocations);
    model_close(&m);
}

/* What compressed operations take they give back. */
static void bounded(struct fixture *c, int rank, void *arg)
{
    struct model m;
    uint64_t most = 0, bytes = 0;
    model_open(&m, c->world[rank], "int8", HEARTH_OP_AVG);
    model_fill(&m, rank, 0);
    for (int step = 0; step < 60; step++) {
        one_step(&m, TENSORS);
        fixture_meet(c);
        bytes = metric(c->nodes[rank], "hearth_memory_bytes");
        fixture_meet(c);
        if (step < 30)
            most = bytes > most ? bytes : most;
    }
    check(bytes <= most + (UINT64_C(4) << 20), "memory grows: %" PRIu64 ", then %" PRIu64, most, bytes);
    model_close(&m);
}

TEST(test_steady_memory)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    struct steady rows[] = {{"none", 0},         {"fp16", 0},        {"bf16", 0},
                            {"int8", 0},         {"onebit", 0},      {"topk:0.05,chunk=64", 0},
                            {"topk:0.05", 1000}, {"randomk:0.1", 0}, {"powersgd:2", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        fixture_run(&c, steady, &rows[i]);
    fixture_run(&c, bounded, NULL);
    fixture_close(&c);
}

/* Each allocation of opening, registering and the first step fails once: an error, and then it works. */
TEST(test_no_memory)
{
    struct fixture c;
    fixture_open(&c, 1, NULL);
    struct heap *heap = c.nodes[0]->heap;
    for (int64_t n = 0, failed = 1; failed > 0; n++) {
        hearth_sync *sync = NULL;
        float x[64] = {1};
        failed = 0;
        atomic_store(&heap->fail_after, n);
        int status = hearth_sync_open(c.world[0], NULL, HEARTH_OP_SUM, &sync);
        if (status == HEARTH_OK)
            status = model_add(sync, 4, "x", x);
        if (status >= 0)
            status = hearth_sync_ready(sync, 0);
        if (status >= 0)
            status = hearth_sync_wait(sync, NULL);
        failed = status < 0;
        check(status >= 0 || status == HEARTH_NO_MEMORY, "after %d: %s", (int)n, hearth_error_text());
        atomic_store(&heap->fail_after, -1);
        hearth_sync_close(sync);
        if (n > 1000)
            fail_msg("it never works");
    }
    fixture_works(&c);
    fixture_close(&c);
}
