/* SPDX-License-Identifier: Apache-2.0 */
/* A compressor: what it keeps of many tensors, over steps, threads and errors. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/gradients.h"

/* ---- arguments ---- */

static int try(hearth_compressor *compressor, const char *name, enum hearth_dtype dtype, int ndim,
               const size_t *dims)
{
    static float data[4];
    struct hearth_tensor tensor = {sizeof tensor, name, data, dtype, ndim, dims};
    return hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, NULL);
}

static void bad_opens(hearth_group *group)
{
    struct hearth_compressor_config config;
    hearth_compressor *compressor = NULL;
    hearth_compressor_config_init(&config);
    check_status(hearth_compressor_open(NULL, NULL, &compressor), HEARTH_INVALID);
    check_status(hearth_compressor_open(group, NULL, NULL), HEARTH_INVALID);
    config.size--;
    check_status(hearth_compressor_open(group, &config, &compressor), HEARTH_INVALID);
    check_text(hearth_error_text(), "config.size");
    config.size++;
    config.codec = "topk:2";
    check_status(hearth_compressor_open(group, &config, &compressor), HEARTH_INVALID);
    check_text(hearth_error_text(), "topk:2");
    config.codec = "int8";
    config.exclude = "a,,b";
    check_status(hearth_compressor_open(group, &config, &compressor), HEARTH_INVALID);
    check_text(hearth_error_text(), "exclude");
    check(!compressor, "a refused open gave a compressor");
}

static void bad_tensors(hearth_compressor *compressor)
{
    char longest[258];
    memset(longest, 'n', sizeof longest);
    longest[257] = 0;
    check_status(try(compressor, longest, HEARTH_F32, 1, (size_t[]){4}), HEARTH_INVALID);
    check_text(hearth_error_text(), "name");
    check_status(try(compressor, longest + 2, HEARTH_F32, 1, (size_t[]){4}), HEARTH_OK);
    check_status(try(compressor, NULL, HEARTH_F32, 1, (size_t[]){4}), HEARTH_INVALID);
    check_status(try(compressor, "", HEARTH_F32, 1, (size_t[]){4}), HEARTH_INVALID);
    check_status(try(compressor, "a\n", HEARTH_F32, 1, (size_t[]){4}), HEARTH_INVALID);
    check_status(try(compressor, "x", HEARTH_I32, 1, (size_t[]){4}), HEARTH_UNSUPPORTED);
    check_text(hearth_error_text(), "'x' is i32");
    check_status(try(compressor, "x", HEARTH_F32, 9, (size_t[9]){4}), HEARTH_INVALID);
    check_status(try(compressor, "x", HEARTH_F32, -1, (size_t[]){4}), HEARTH_INVALID);
    check_status(try(compressor, "x", HEARTH_F32, 1, NULL), HEARTH_INVALID);
    check_status(try(compressor, "x", HEARTH_F32, 2, (size_t[]){SIZE_MAX, 2}), HEARTH_INVALID);
    check_status(hearth_compressor_all_reduce(compressor, NULL, HEARTH_OP_SUM, NULL), HEARTH_INVALID);
    check(stats_of(compressor, NULL).tensors == 1, "a refused call left a tensor behind");
}

static void bad_calls(hearth_compressor *compressor)
{
    float data[4];
    hearth_request *request;
    struct hearth_opts opts = opts_default();
    struct hearth_tensor tensor = {sizeof tensor, "x", NULL, HEARTH_F32, 1, (size_t[]){4}};
    check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, NULL), HEARTH_INVALID);
    check_text(hearth_error_text(), "data of tensor 'x'");
    tensor.data = data;
    check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_PROD, NULL), HEARTH_UNSUPPORTED);
    check_status(hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_PROD, NULL, &request),
                 HEARTH_UNSUPPORTED);
    check_status(hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_SUM, NULL, NULL),
                 HEARTH_INVALID);
    opts.size--;
    check_status(hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_SUM, &opts, &request),
                 HEARTH_INVALID);
    check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, &opts), HEARTH_INVALID);
    check(stats_of(compressor, NULL).tensors == 1, "a refused call left a tensor behind");
}

/* The first call says what a tensor looks like. */
static void other_shapes(hearth_compressor *compressor)
{
    check_status(try(compressor, "y", HEARTH_F32, 2, (size_t[]){2, 2}), HEARTH_OK);
    check_status(try(compressor, "y", HEARTH_F32, 1, (size_t[]){4}), HEARTH_INVALID);
    check_text(hearth_error_text(), "f32 [2, 2]");
    check_text(hearth_error_text(), "f32 [4]");
    check_status(try(compressor, "y", HEARTH_BF16, 2, (size_t[]){2, 2}), HEARTH_INVALID);
    check_text(hearth_error_text(), "bf16 [2, 2]");
    check_status(hearth_compressor_reset(compressor, "y"), HEARTH_OK);
    check_status(try(compressor, "y", HEARTH_F32, 1, (size_t[]){4}), HEARTH_OK);
    check(hearth_compressor_explain(compressor, "y", NULL, 0) > 0, "%s", hearth_error_text());
    check_status(hearth_compressor_reset(compressor, "z"), HEARTH_INVALID);
    check_text(hearth_error_text(), "'z'");
}

static void bad_others(hearth_compressor *compressor)
{
    static const double factors[] = {0, -1, 1e31, 1e-31, (double)INFINITY, (double)NAN};
    char text[8];
    struct hearth_compressor_stats stats = {.size = 1};
    check_status(hearth_compressor_stats(compressor, NULL, &stats), HEARTH_INVALID);
    check_status(hearth_compressor_stats(compressor, NULL, NULL), HEARTH_INVALID);
    check_status((int)hearth_compressor_explain(compressor, NULL, text, 3), HEARTH_INVALID);
    check_status((int)hearth_compressor_explain(compressor, "z", text, 3), HEARTH_INVALID);
    check_status(hearth_compressor_add_rule(compressor, NULL, "int8"), HEARTH_INVALID);
    check_status(hearth_compressor_add_rule(compressor, "a", NULL), HEARTH_INVALID);
    check_status(hearth_compressor_add_rule(compressor, "a", "int9"), HEARTH_INVALID);
    check_text(hearth_error_text(), "int9");
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        check_status(hearth_compressor_scale(compressor, factors[i]), HEARTH_INVALID);
    check_status(hearth_compressor_scale(NULL, 1), HEARTH_INVALID);
    hearth_compressor_close(NULL);
}

/* Of a group that is closed before it. */
static void closed_late(hearth_group *world)
{
    hearth_group *group = NULL;
    hearth_compressor *compressor = NULL;
    check_status(hearth_group_split(world, 0, 0, NULL, &group), HEARTH_OK);
    check_status(hearth_compressor_open(group, NULL, &compressor), HEARTH_OK);
    check_status(try(compressor, "w", HEARTH_F32, 2, (size_t[]){2, 2}), HEARTH_OK);
    hearth_group_close(group);
    hearth_compressor_close(compressor);
}

TEST(test_arguments)
{
    struct fixture c;
    hearth_compressor *compressor = NULL;
    fixture_open(&c, 1, NULL);
    bad_opens(c.world[0]);
    check_status(hearth_compressor_open(c.world[0], NULL, &compressor), HEARTH_OK);
    bad_tensors(compressor);
    bad_calls(compressor);
    other_shapes(compressor);
    bad_others(compressor);
    closed_late(c.world[0]);
    fixture_close(&c); /* the compressor goes with its node */
    checks_end();
}

/* ---- what is counted, scaled, forgotten and explained ---- */

static void counting_member(struct fixture *c, int rank, void *arg)
{
    const char *codec = arg;
    static const struct kind narrow = {"w.narrow", NULL, HEARTH_F32, 2, {100, 80, 0}},
                             wide = {"w.wide", NULL, HEARTH_F64, 2, {100, 80, 0}};
    hearth_compressor *compressor = open_compressor(c->world[rank], codec, 0, 0);
    float *data = must_alloc(8000 * sizeof(double));
    struct hearth_tensor tensor = tensor_of(&narrow, data), tensor_wide = tensor_of(&wide, data);
    for (int step = 0; step < 3; step++) {
        fill(&narrow, data, rank, step);
        check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_AVG, NULL), HEARTH_OK);
    }
    fill(&wide, data, rank, 9);
    check_status(hearth_compressor_all_reduce(compressor, &tensor_wide, HEARTH_OP_AVG, NULL), HEARTH_OK);
    struct hearth_compressor_stats one = stats_of(compressor, "w.narrow"),
                                   other = stats_of(compressor, "w.wide"), all = stats_of(compressor, NULL);
    check(one.tensors == 1 && one.steps == 3 && all.tensors == 2 && all.steps == 4, "steps are not counted");
    check(all.plain_bytes == one.plain_bytes + other.plain_bytes && one.sent_bytes > 0,
          "bytes are not counted");
    check(one.ratio > 2, "%s sends 1/%g", codec, one.ratio);
    check(one.captured > 0 && one.captured < 1, "%s captured %g", codec, one.captured);
    check(one.residual_norm > 0 && fabs(all.residual_norm - hypot(one.residual_norm, other.residual_norm)) <
                                       1e-9 * all.residual_norm,
          "norms: %g, %g, both %g", one.residual_norm, other.residual_norm, all.residual_norm);
    check_status(hearth_compressor_scale(compressor, 0.25), HEARTH_OK);
    check(stats_of(compressor, NULL).residual_norm == all.residual_norm / 4, "the residuals are not scaled");
    check_status(hearth_compressor_scale(compressor, 1e30), HEARTH_OK);
    check_status(hearth_compressor_scale(compressor, 1e30), HEARTH_INVALID);
    check_text(hearth_error_text(), "beyond f32");
    check_status(hearth_compressor_scale(compressor, 1e-30), HEARTH_OK);

    /* Plain from now on: what was left behind goes along, and nothing is left then. */
    check_status(hearth_compressor_add_rule(compressor, "w.*", "none"), HEARTH_OK);
    fill(&narrow, data, rank, 3);
    check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_AVG, NULL), HEARTH_OK);
    check(stats_of(compressor, "w.narrow").residual_norm == 0, "a plain step leaves something behind");
    check(stats_of(compressor, "w.narrow").captured == 1, "a plain step does not capture all");
    check_status(hearth_compressor_reset(compressor, NULL), HEARTH_OK);
    check(stats_of(compressor, NULL).tensors == 0 && stats_of(compressor, NULL).captured == 1,
          "reset leaves something");
    free(data);
    hearth_compressor_close(compressor);
}

TEST(test_counting)
{
    struct fixture c;
    static char codecs[][24] = {"topk:0.01", "topk:0.01,chunk=1024", "randomk:0.1", "powersgd:3", "int8"};
    fixture_open(&c, 2, NULL);
    for (int i = 0; i < 5; i++)
        fixture_run(&c, counting_member, codecs[i]);
    fixture_close(&c);
}

static void check_explain(hearth_compressor *compressor, const char *name, const char *word,
                          const char *other_word)
{
    char text[TEXT_MAX * 2], cut[8];
    int64_t len = hearth_compressor_explain(compressor, name, text, sizeof text);
    if (!check(len > 0 && len < (int64_t)sizeof text, "explain: %s", hearth_error_text()))
        return;
    check_text(text, name);
    check_text(text, word);
    check_text(text, other_word);
    check(hearth_compressor_explain(compressor, name, NULL, 0) == len, "the length differs without a buffer");
    check(hearth_compressor_explain(compressor, name, cut, sizeof cut) == len && strlen(cut) == 7,
          "a short buffer is not filled");
}

static void explaining_member(struct fixture *c, int rank, void *arg)
{
    hearth_compressor *compressor = NULL;
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.codec = "topk:0.01";
    config.exclude = "*.norm,*.bias";
    config.warmup_steps = 1;
    config.ramp_steps = 10;
    check_status(hearth_compressor_open(c->world[rank], &config, &compressor), HEARTH_OK);
    check_status(hearth_compressor_add_rule(compressor, "head.*", "int8"), HEARTH_OK);
    float *data = must_alloc(8000 * sizeof *data);
    static const struct kind some[] = {{"a.bias", NULL, HEARTH_F32, 2, {80, 100, 0}},
                                       {"a.vector", NULL, HEARTH_F32, 1, {8000, 0, 0}},
                                       {"a.small", NULL, HEARTH_F32, 2, {4, 100, 0}},
                                       {"a.weight", NULL, HEARTH_F32, 2, {80, 100, 0}},
                                       {"head.1", NULL, HEARTH_F32, 1, {100, 0, 0}}};
    for (int i = 0; i < 10; i++) {
        fill(&some[i % 5], data, rank, i);
        struct hearth_tensor tensor = tensor_of(&some[i % 5], data);
        check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, NULL), HEARTH_OK);
        if (i == 3)
            check_explain(compressor, "a.weight", "topk", "ramp, step 1 of 10, ratio 0.25");
    }
    check_explain(compressor, "a.bias", "f32 [80, 100]", "excluded by '*.bias'");
    check_explain(compressor, "a.vector", "none", "fewer than two dimensions");
    check_explain(compressor, "a.small", "none", "fewer than 4096 elements");
    check_explain(compressor, "a.weight", "topk", "ramp, step 2 of 10");
    check_explain(compressor, "head.1", "int8", "rule 'head.*'");
    free(data);
    hearth_compressor_close(compressor);
}

TEST(test_explaining)
{
    fixture_once(2, NULL, explaining_member, NULL);
}

/* ---- operations in flight ---- */

static const struct kind flying = {"flying", NULL, HEARTH_F32, 2, {128, 64, 0}};
static const struct kind resting = {"resting", NULL, HEARTH_F32, 2, {128, 64, 0}};

/* Rank 0 is in the operation alone: what it asks for meanwhile is refused, and nothing is harmed. */
static void flying_member(struct fixture *c, int rank, void *arg)
{
    hearth_compressor *compressor = open_compressor(c->world[rank], "topk:0.05", 0, 0);
    hearth_request *request = NULL, *second = NULL;
    struct hearth_compressor_stats stats = {.size = sizeof stats};
    float *data = must_alloc(kind_count(&flying) * sizeof *data);
    struct hearth_tensor tensor = tensor_of(&flying, data), still = tensor_of(&resting, data);
    fill(&flying, data, rank, 0);
    check_status(hearth_compressor_all_reduce(compressor, &still, HEARTH_OP_SUM, NULL), HEARTH_OK);
    if (rank == 0) {
        check_status(hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_SUM, NULL, &request),
                     HEARTH_OK);
        check_status(hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_SUM, NULL, &second),
                     HEARTH_INVALID);
        check_text(hearth_error_text(), "'flying' is in an operation");
        check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, NULL), HEARTH_INVALID);
        check_status(hearth_compressor_reset(compressor, "flying"), HEARTH_INVALID);
        check_text(hearth_error_text(), "'flying'");
        check_status(hearth_compressor_reset(compressor, NULL), HEARTH_INVALID);
        check_status(hearth_compressor_scale(compressor, 2), HEARTH_INVALID);
        check_status((int)hearth_compressor_save(compressor, NULL, 0), HEARTH_INVALID);
        check_status(hearth_compressor_stats(compressor, NULL, &stats), HEARTH_INVALID);
        check_status(hearth_compressor_stats(compressor, "resting", &stats), HEARTH_OK);
        check_explain(compressor, "flying", "topk", "f32 [128, 64]");
    }
    fixture_meet(c);
    if (rank != 0)
        check_status(hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_SUM, NULL, &request),
                     HEARTH_OK);
    check_status(hearth_request_wait(request, -1), HEARTH_OK);
    hearth_request_close(request);
    check(stats_of(compressor, "flying").steps == 1, "steps are not counted");
    fill(&flying, data, rank, 1);
    check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, NULL), HEARTH_OK);
    free(data);
    hearth_compressor_close(compressor);
}

TEST(test_in_flight)
{
    fixture_once(3, NULL, flying_member, NULL);
}

/* An operation that fails leaves everything as it was. */
static void closing_member(struct fixture *c, int rank, void *arg)
{
    const char *codec = arg;
    hearth_compressor *compressor = open_compressor(c->world[rank], codec, 0, 0);
    hearth_request *request = NULL;
    size_t len, before_len = 0;
    uint8_t *before = NULL;
    float *data = must_alloc(kind_count(&flying) * sizeof *data);
    struct hearth_opts opts = opts_default();
    opts.flags = HEARTH_FLAG_RESTORE; /* for codec none */
    struct hearth_tensor tensor = tensor_of(&flying, data);
    fill(&flying, data, rank, 0);
    check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, NULL), HEARTH_OK);
    fill(&flying, data, rank, 1);
    uint64_t input = hash_bytes(data, kind_count(&flying) * sizeof *data);
    if (rank == 1)
        before = save(compressor, &before_len);
    if (rank == 0) {
        check_status(hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_SUM, &opts, &request),
                     HEARTH_OK);
        hearth_compressor_close(compressor);
        check_status(hearth_request_test(request), HEARTH_CANCELLED);
        hearth_request_close(request);
    }
    fixture_meet(c); /* the others come too late for it to end well */
    if (rank == 1) {
        check_status(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, &opts), HEARTH_ABORTED);
        uint8_t *after = save(compressor, &len);
        check(len == before_len && memcmp(before, after, len) == 0, "an aborted step changed the state");
        free(after);
    } else if (rank == 2) {
        check_status(hearth_compressor_all_reduce_nb(compressor, &tensor, HEARTH_OP_SUM, &opts, &request),
                     HEARTH_OK);
        check_status(hearth_request_wait(request, -1), HEARTH_ABORTED);
        hearth_request_close(request);
        hearth_compressor_close(compressor);
    }
    check(hash_bytes(data, kind_count(&flying) * sizeof *data) == input, "the buffer has changed");
    free(before);
    free(data);
}

TEST(test_close_cancels)
{
    static char codecs[][16] = {"topk:0.05", "int8", "none"};
    for (int i = 0; i < 3; i++) {
        struct fixture c;
        fixture_open(&c, 3, NULL);
        fixture_run(&c, closing_member, codecs[i]);
        fixture_works(&c);
        fixture_close(&c); /* rank 1's compressor goes with its node */
    }
}

/* ---- operations that start operations ---- */

#define CHAIN 20

struct chain {
    hearth_compressor *compressor;
    struct hearth_tensor tensor;
    struct hearth_opts opts;
    _Atomic(hearth_request *) requests[CHAIN];
    _Atomic(int) started;
};

static void chain_start(struct chain *chain)
{
    int at = atomic_fetch_add(&chain->started, 1);
    hearth_request *request = NULL;
    if (at < CHAIN)
        check_status(hearth_compressor_all_reduce_nb(chain->compressor, &chain->tensor, HEARTH_OP_AVG,
                                                     &chain->opts, &request),
                     HEARTH_OK);
    if (request)
        atomic_store(&chain->requests[at], request);
}

static void chain_next(void *arg, int status)
{
    check_status(status, HEARTH_OK);
    chain_start(arg);
}

static void chain_member(struct fixture *c, int rank, void *arg)
{
    uint64_t *hash = arg;
    struct chain chain = {.compressor = open_compressor(c->world[rank], "topk:0.05", 0, 0),
                          .opts = opts_default()};
    float *data = must_alloc(kind_count(&flying) * sizeof *data);
    fill(&flying, data, rank, 0);
    chain.tensor = tensor_of(&flying, data);
    chain.opts.done = chain_next;
    chain.opts.done_arg = &chain;
    chain_start(&chain);
    for (int i = 0; i < CHAIN && !checks_failed(); i++) {
        hearth_request *request;
        while (!(request = atomic_load(&chain.requests[i])) && !checks_failed())
            sleep_ms(1);
        if (request)
            check_status(hearth_request_wait(request, -1), HEARTH_OK);
    }
    for (int i = 0; i < CHAIN; i++)
        hearth_request_close(atomic_load(&chain.requests[i]));
    uint64_t wanted = c->size > 1 ? CHAIN : 0; /* alone there is nothing to do, and nothing to count */
    check(stats_of(chain.compressor, "flying").steps == wanted, "steps are not counted");
    hash[rank] = hash_bytes(data, kind_count(&flying) * sizeof *data);
    free(data);
    hearth_compressor_close(chain.compressor);
}

TEST(test_callbacks)
{
    for (int size = 1; size <= 3; size++) {
        struct fixture c;
        uint64_t hash[MEMBERS_MAX];
        fixture_open(&c, size, NULL);
        fixture_run(&c, chain_member, hash);
        fixture_close(&c);
        for (int i = 1; i < size; i++)
            check(hash[i] == hash[0], "ranks 0 and %d differ", i);
    }
    checks_end();
}

/* ---- many threads, one compressor ---- */

enum { THREADS = 4, ROUNDS = 8 };

struct weaver {
    hearth_compressor *compressor;
    int rank, thread;
    uint64_t hash;
};

static void *weave(void *arg)
{
    struct weaver *w = arg;
    char name[32];
    struct kind kind = {name, NULL, HEARTH_F32, 2, {64, 64 + (size_t)w->thread, 0}};
    struct hearth_opts opts = opts_default();
    float *data = must_alloc(kind_count(&kind) * sizeof *data);
    opts.tag = (uint64_t)w->thread;
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof name, "t%d.%d", w->thread, i % 3);
        fill(&kind, data, w->rank, i);
        struct hearth_tensor tensor = tensor_of(&kind, data);
        check_status(hearth_compressor_all_reduce(w->compressor, &tensor, HEARTH_OP_AVG, &opts), HEARTH_OK);
        w->hash = w->hash * 31 + hash_bytes(data, kind_count(&kind) * sizeof *data);
        check(stats_of(w->compressor, name).steps == (uint64_t)i / 3 + 1, "steps are not counted");
        check(hearth_compressor_explain(w->compressor, name, NULL, 0) > 0, "%s", hearth_error_text());
    }
    free(data);
    return NULL;
}

static void weaving_member(struct fixture *c, int rank, void *arg)
{
    uint64_t(*hash)[THREADS] = arg;
    pthread_t threads[THREADS];
    struct weaver weavers[THREADS];
    hearth_compressor *compressor = open_compressor(c->world[rank], "topk:0.02,chunk=64", 0, 0);
    for (int i = 0; i < THREADS; i++) {
        weavers[i] = (struct weaver){compressor, rank, i, 0};
        check(pthread_create(&threads[i], NULL, weave, &weavers[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        hash[rank][i] = weavers[i].hash;
    }
    check(stats_of(compressor, NULL).tensors == (uint64_t)THREADS * 3, "tensors are missing");
    hearth_compressor_close(compressor);
}

TEST(test_threads)
{
    struct fixture c;
    uint64_t hash[MEMBERS_MAX][THREADS];
    fixture_open(&c, 3, NULL);
    fixture_run(&c, weaving_member, hash);
    fixture_close(&c);
    for (int i = 0; i < 3 * THREADS; i++)
        check(hash[i / THREADS][i % THREADS] == hash[0][i % THREADS], "thread %d of rank %d differs",
              i % THREADS, i / THREADS);
    checks_end();
}
