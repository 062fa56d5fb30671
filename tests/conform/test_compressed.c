/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed all-reduces: same bits on all members, nothing lost, all or nothing. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/mass.h"
#include "conform/reference.h"

static const char *const codecs[] = {
    "fp16",
    "bf16",
    "int8",
    "onebit",
    "topk:0.01",
    "topk:0.05,values=bf16",
    "topk:0.01,values=int8",
    "topk:0.02,chunk=4096,values=int8",
    "topk:0.1,chunk=64",
    "topk:1",
    "randomk:0.01",
    "randomk:0.1,values=bf16",
    "randomk:0.02,values=int8",
    "powersgd:2,rows=25",
};

#define CODEC_COUNT (sizeof codecs / sizeof *codecs)

static bool is_shared(const char *codec)
{
    return strncmp(codec, "randomk", 7) == 0 || strncmp(codec, "powersgd", 8) == 0;
}

static void step_member(struct fixture *c, int rank, void *arg)
{
    struct mass *m = arg;
    check_status(mass_step(c, m, rank), HEARTH_OK);
}

/* Some steps; the residual goes from one to the next. */
static void run_steps(struct fixture *c, struct mass *m, int steps)
{
    mass_open(m, c->size);
    for (int step = 0; step < steps; step++) {
        m->seed++;
        mass_fill_all(m, c->size);
        fixture_run(c, step_member, m);
        mass_check(m, c->size);
        checks_end();
    }
    mass_close(m, c->size);
}

TEST(test_same_bits_and_nothing_lost)
{
    static const size_t counts[] = {25, 1000, 4100, 100000};
    for (int size = 2; size <= 5; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (size_t k = 0; k < CODEC_COUNT; k++)
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                if (under_tsan() && (k + n + (size_t)size) % 3 != 0)
                    continue; /* every combination in the faster builds */
                enum hearth_op op = (k + n) & 1 ? HEARTH_OP_AVG : HEARTH_OP_SUM;
                struct mass m = mass_of(codecs[k], op, counts[n], k * 100 + n);
                run_steps(&c, &m, 3);
            }
        fixture_close(&c);
    }
}

TEST(test_types)
{
    static const enum hearth_dtype types[] = {HEARTH_F64, HEARTH_F16, HEARTH_BF16};
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t k = 0; k < CODEC_COUNT; k++) {
            struct mass m = mass_of(codecs[k], k & 1 ? HEARTH_OP_AVG : HEARTH_OP_SUM, 5000, 7000 + k);
            m.dtype = types[t];
            run_steps(&c, &m, 3);
        }
    fixture_close(&c);
}

TEST(test_algos)
{
    static const enum hearth_algo algos[] = {HEARTH_ALGO_DIRECT, HEARTH_ALGO_EXCHANGE};
    struct hearth_config config;
    config_small(&config);
    struct fixture c;
    fixture_open(&c, 4, &config);
    for (size_t a = 0; a < 2; a++)
        for (size_t k = 0; k < CODEC_COUNT; k++) {
            if (is_shared(codecs[k]))
                continue;
            struct mass m = mass_of(codecs[k], HEARTH_OP_AVG, 300000, 9000 + k);
            m.algo = algos[a];
            run_steps(&c, &m, 2);
        }
    fixture_close(&c);
}

TEST(test_weights)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (size_t k = 0; k < CODEC_COUNT; k++) {
        struct mass m = mass_of(codecs[k], HEARTH_OP_AVG, 5000, 500 + k);
        memcpy(m.weight, (double[3]){1, 2.5, 0.25}, 3 * sizeof(double));
        run_steps(&c, &m, 2);
    }
    fixture_close(&c);
}

TEST(test_two_levels)
{
    static const int host[] = {0, 1, 0, 1, 2};
    struct fixture c;
    fixture_open_known(&c, 5, host, 1);
    for (size_t k = 0; k < CODEC_COUNT; k++) {
        if (strncmp(codecs[k], "powersgd", 8) == 0)
            continue;
        struct mass m = mass_of(codecs[k], HEARTH_OP_AVG, 70000, 4000 + k);
        m.dtype = k % 3 == 0 ? HEARTH_BF16 : HEARTH_F32;
        m.algo = HEARTH_ALGO_HIERARCHICAL;
        run_steps(&c, &m, 3);
    }
    fixture_close(&c);
}

/* ---- without feedback ---- */

TEST(test_randomk_is_right_on_average)
{
    enum { COUNT = 2000, STEPS = 400 };
    struct fixture c;
    static double sum[COUNT];
    struct mass m = {
        .codec = "randomk:0.1", .dtype = HEARTH_F32, .op = HEARTH_OP_SUM, .count = COUNT, .seed = 1};
    fixture_open(&c, 2, NULL);
    mass_open(&m, 2);
    double wanted = 0, got = 0, square = 0;
    for (int step = 0; step < STEPS; step++) {
        mass_fill_all(&m, 2);
        fixture_run(&c, step_member, &m);
        mass_check(&m, 2);
        for (size_t i = 0; i < COUNT; i++)
            sum[i] += get_number(m.dtype, m.x[0], i) / STEPS;
    }
    checks_end();
    for (size_t i = 0; i < COUNT; i++) {
        double x = get_number(m.dtype, m.x_before[0], i) + get_number(m.dtype, m.x_before[1], i);
        wanted += x * x;
        got += x * sum[i];
        square += sum[i] * sum[i];
    }
    assert_true(fabs(got / wanted - 1) < 0.05); /* it leans neither way */
    assert_true(square > 0);
    mass_close(&m, 2);
    fixture_close(&c);
}

/* ---- all or nothing ---- */

static int failing_rank;

static void poison_member(struct fixture *c, int rank, void *arg)
{
    struct mass *m = arg;
    if (check_status(mass_step(c, m, rank), HEARTH_POISONED)) {
        char word[16];
        snprintf(word, sizeof word, "rank %d", failing_rank);
        check_text(hearth_error_text(), word);
    }
}

TEST(test_poison_changes_nothing)
{
    static const double poison[] = {NAN, INFINITY, -INFINITY};
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (size_t k = 0; k < CODEC_COUNT; k++) {
        struct mass m = mass_of(codecs[k], HEARTH_OP_SUM, 5000, k);
        m.dtype = k & 1 ? HEARTH_BF16 : HEARTH_F32;
        mass_open(&m, 3);
        mass_fill_all(&m, 3);
        fixture_run(&c, step_member, &m); /* so that residuals hold something */
        mass_fill_all(&m, 3);
        failing_rank = (int)(k % 3);
        set_number(m.dtype, m.x[failing_rank], 4999 - k, poison[k % 3]);
        fixture_run(&c, poison_member, &m);
        mass_check_untouched(&m, 3);
        mass_fill(&m, failing_rank);
        fixture_run(&c, step_member, &m); /* the next step is as if nothing had been */
        mass_check(&m, 3);
        checks_end();
        mass_close(&m, 3);
    }
    fixture_close(&c);
}

/* Finite inputs whose sum is not: all members see it, none names another. */
static void overflow_member(struct fixture *c, int rank, void *arg)
{
    check_status(mass_step(c, arg, rank), HEARTH_POISONED);
}

TEST(test_sum_beyond_f32)
{
    static const enum hearth_algo algos[] = {HEARTH_ALGO_DIRECT, HEARTH_ALGO_EXCHANGE, HEARTH_ALGO_AUTO};
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (size_t k = 0; k < CODEC_COUNT; k++)
        for (size_t a = is_shared(codecs[k]) ? 2 : 0; a < 3; a++) {
            if (strcmp(codecs[k], "onebit") == 0 || is_shared(codecs[k]))
                continue; /* means and projections need not overflow */
            struct mass m = mass_of(codecs[k], HEARTH_OP_SUM, 5000, k);
            m.algo = algos[a];
            mass_open(&m, 3);
            for (int i = 0; i < 3; i++) {
                mass_fill(&m, i);
                for (size_t n = 0; n < 100; n++)
                    set_number(m.dtype, m.x[i], 50 * n, FLT_MAX);
            }
            fixture_run(&c, overflow_member, &m);
            mass_check_untouched(&m, 3);
            checks_end();
            mass_close(&m, 3);
        }
    fixture_close(&c);
}

/* One member cancels, as soon as it has started: it and all others are as before. */
static void cancel_member(struct fixture *c, int rank, void *arg)
{
    struct mass *m = arg;
    hearth_request *request;
    struct hearth_opts opts = opts_default();
    mass_remember(m, rank);
    int status = hearth_all_reduce_compressed_nb(c->world[rank], m->x[rank], m->count, m->dtype, m->op,
                                                 m->codec, m->e[rank], &opts, &request);
    if (!check_status(status, HEARTH_OK))
        return;
    if (rank == failing_rank) {
        sleep_ms((int)(m->seed % 4));
        check_status(hearth_request_cancel(request), HEARTH_OK);
        status = hearth_request_test(request);
        check(status == HEARTH_CANCELLED || status == HEARTH_OK, "cancel gave %s",
              hearth_status_name(status));
    } else {
        status = hearth_request_wait(request, -1);
        check(status == HEARTH_ABORTED || status == HEARTH_OK, "rank %d: %s: %s", rank,
              hearth_status_name(status), hearth_request_error(request));
    }
    hearth_request_close(request);
    if (status != HEARTH_OK) /* else the cancel came too late */
        mass_check_member(m, rank);
}

TEST(test_cancel_changes_nothing)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (size_t k = 0; k < (under_tsan() ? 1 : 3) * CODEC_COUNT; k++) {
        struct mass m = mass_of(codecs[k % CODEC_COUNT], HEARTH_OP_AVG, 200000, k);
        mass_open(&m, 3);
        mass_fill_all(&m, 3);
        fixture_run(&c, step_member, &m);
        failing_rank = (int)(k % 3);
        fixture_run(&c, cancel_member, &m);
        fixture_works(&c);
        mass_fill_all(&m, 3);
        fixture_run(&c, step_member, &m);
        mass_check(&m, 3);
        checks_end();
        mass_close(&m, 3);
    }
    fixture_close(&c);
}

/* ---- members that disagree ---- */

static void settings_diff_member(struct fixture *c, int rank, void *arg)
{
    static const char *const other[] = {"int8", "topk:0.01,values=int8", "randomk:0.01"};
    float x[4096] = {0}, e[4096] = {0};
    int which = *(int *)arg;
    const char *codec = rank == 1 ? other[which] : "topk:0.01";
    size_t count = rank == 2 && which == 0 ? 4000 : 4096;
    int status =
        hearth_all_reduce_compressed(c->world[rank], x, count, HEARTH_F32, HEARTH_OP_SUM, codec, e, NULL);
    if (check_status(status, HEARTH_MISMATCH)) {
        check_text(hearth_error_text(), "rank 1");
        check_text(hearth_error_text(), other[which]);
        check_text(hearth_error_text(), "topk:0.01");
    }
}

TEST(test_members_that_disagree)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (int which = 0; which < 3; which++) {
        fixture_run(&c, settings_diff_member, &which);
        fixture_works(&c);
    }
    fixture_close(&c);
}

static void other_call_member(struct fixture *c, int rank, void *arg)
{
    float x[4096] = {0}, e[4096] = {0};
    char text[TEXT_MAX] = "";
    int status = rank == 1 ? hearth_all_reduce(c->world[rank], x, x, 4096, HEARTH_F32, HEARTH_OP_SUM, NULL)
                           : hearth_all_reduce_compressed(c->world[rank], x, 4096, HEARTH_F32, HEARTH_OP_SUM,
                                                          "int8", e, NULL);
    snprintf(text, sizeof text, "%s", hearth_error_text());
    hear_late(c->world[rank], &status, text);
    if (check_status(status, HEARTH_MISMATCH))
        check_text(text, "all_reduce_compressed");
}

TEST(test_another_call)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    fixture_run(&c, other_call_member, NULL);
    fixture_works(&c);
    fixture_close(&c);
}

/* ---- several at once ---- */

#define TENSORS 6

static void many_member(struct fixture *c, int rank, void *arg)
{
    struct mass *all = arg;
    hearth_request *requests[TENSORS];
    for (int k = 0; k < TENSORS; k++) {
        int t = rank & 1 ? TENSORS - 1 - k : k; /* members start them in different order */
        struct mass *m = &all[t];
        struct hearth_opts opts = opts_default();
        opts.tag = (uint64_t)t + 10;
        mass_remember(m, rank);
        check_status(hearth_all_reduce_compressed_nb(c->world[rank], m->x[rank], m->count, m->dtype, m->op,
                                                     m->codec, m->e[rank], &opts, &requests[t]),
                     HEARTH_OK);
    }
    check_status(hearth_request_wait_all(requests, TENSORS, -1), HEARTH_OK);
    for (int t = 0; t < TENSORS; t++)
        hearth_request_close(requests[t]);
}

TEST(test_many_in_any_order)
{
    static const char *const names[TENSORS] = {"int8",         "topk:0.01",           "bf16",
                                               "randomk:0.05", "powersgd:2,rows=100", "topk:0.02,chunk=4096"};
    struct mass all[TENSORS];
    struct fixture c;
    fixture_open(&c, 4, NULL);
    for (int t = 0; t < TENSORS; t++) {
        all[t] = mass_of(names[t], HEARTH_OP_AVG, 100000, (uint64_t)t);
        mass_open(&all[t], 4);
    }
    for (int step = 0; step < 5; step++) {
        for (int t = 0; t < TENSORS; t++)
            mass_fill_all(&all[t], 4);
        fixture_run(&c, many_member, all);
        for (int t = 0; t < TENSORS; t++)
            mass_check(&all[t], 4);
        checks_end();
    }
    for (int t = 0; t < TENSORS; t++)
        mass_close(&all[t], 4);
    fixture_close(&c);
}

/* ---- threads ---- */

/* The bits do not depend on how many threads compress. */
TEST(test_threads_change_no_bit)
{
    for (size_t k = 0; k < CODEC_COUNT; k++) {
        uint64_t hash[2];
        for (uint32_t threads = 1; threads <= 2; threads++) {
            struct fixture c;
            struct mass m = mass_of(codecs[k], HEARTH_OP_SUM, 2500000 / (size_t)slow_factor() / 25 * 25, k);
            fixture_open_known(&c, 2, NULL, threads == 1 ? 1 : 3);
            mass_open(&m, 2);
            mass_fill_all(&m, 2);
            fixture_run(&c, step_member, &m);
            hash[threads - 1] = hash_bytes(m.x[0], m.count * 4) ^ hash_bytes(m.e[1], m.count * 4);
            mass_close(&m, 2);
            fixture_close(&c);
        }
        check(hash[0] == hash[1], "%s: other bits with more threads", codecs[k]);
    }
    checks_end();
}

/* ---- arguments ---- */

TEST(test_bad_arguments)
{
    static float x[16];
    const struct {
        void *buffer;
        size_t count;
        enum hearth_dtype dtype;
        enum hearth_op op;
        const char *codec;
        void *residual;
        int status;
        const char *word;
    } rows[] = {
        {NULL, 16, HEARTH_F32, HEARTH_OP_SUM, "int8", NULL, HEARTH_INVALID, "buffer"},
        {x, 16, HEARTH_I32, HEARTH_OP_SUM, "int8", NULL, HEARTH_UNSUPPORTED, "i32"},
        {x, 16, HEARTH_F32, HEARTH_OP_MAX, "int8", NULL, HEARTH_UNSUPPORTED, "max"},
        {x, 16, HEARTH_F32, HEARTH_OP_SUM, "topk", NULL, HEARTH_INVALID, "topk:RATIO"},
        {x, 16, HEARTH_F32, HEARTH_OP_SUM, "powersgd:2", NULL, HEARTH_INVALID, "rows="},
        {x, 16, HEARTH_F32, HEARTH_OP_SUM, "int8", x + 4, HEARTH_INVALID, "overlap"},
        {x, SIZE_MAX / 2, HEARTH_F32, HEARTH_OP_SUM, "int8", NULL, HEARTH_INVALID, "2^63"},
    };
    struct fixture c;
    fixture_open(&c, 2, NULL);
    hearth_group *g = c.world[0];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_status(hearth_all_reduce_compressed(g, rows[i].buffer, rows[i].count, rows[i].dtype, rows[i].op,
                                                  rows[i].codec, rows[i].residual, NULL),
                     rows[i].status);
        check_text(hearth_error_text(), rows[i].word);
    }
    check_status(hearth_all_reduce_compressed(NULL, x, 16, HEARTH_F32, HEARTH_OP_SUM, "int8", NULL, NULL),
                 HEARTH_INVALID);
    check_status(
        hearth_all_reduce_compressed_nb(g, x, 16, HEARTH_F32, HEARTH_OP_SUM, "int8", NULL, NULL, NULL),
        HEARTH_INVALID);
    struct hearth_opts opts = opts_default();
    opts.algo = HEARTH_ALGO_RING;
    check_status(hearth_all_reduce_compressed(g, x, 16, HEARTH_F32, HEARTH_OP_SUM, "int8", NULL, &opts),
                 HEARTH_UNSUPPORTED);
    check_text(hearth_error_text(), "ring");
    checks_end();
    fixture_works(&c); /* none of them used a number */
    fixture_close(&c);
}

static void limit_member(struct fixture *c, int rank, void *arg)
{
    static float x[2][10000], e[2][10000];
    check_status(hearth_all_reduce_compressed(c->world[rank], x[rank], 10000, HEARTH_F32, HEARTH_OP_SUM,
                                              "int8", e[rank], NULL),
                 HEARTH_LIMIT);
    check_text(hearth_error_text(), "2 ranks");
    check_text(hearth_error_text(), "40000 bytes");
    check_text(hearth_error_text(), "65536");
    check_text(hearth_error_text(), "HEARTH_COMPRESSED_ALLREDUCE_MAX_BYTES");
}

TEST(test_guard)
{
    struct hearth_config config;
    struct fixture c;
    hearth_config_init(&config);
    struct hearth_tuning tuning;
    hearth_tuning_init(&tuning);
    config.tuning = &tuning;
    tuning.compressed_allreduce_max_bytes = 65536;
    fixture_open(&c, 2, &config);
    fixture_run(&c, limit_member, NULL);
    fixture_close(&c);
}

TEST(test_alone_and_empty)
{
    struct fixture c;
    float x[4] = {1, NAN, 3, 4}, e[4] = {5, 6, 7, 8}, x_before[4], e_before[4];
    hearth_request *request;
    memcpy(x_before, x, sizeof x);
    memcpy(e_before, e, sizeof e);
    fixture_open(&c, 1, NULL);
    check_status(
        hearth_all_reduce_compressed(c.world[0], x, 4, HEARTH_F32, HEARTH_OP_AVG, "topk:0.5", e, NULL),
        HEARTH_OK);
    check_status(hearth_all_reduce_compressed_nb(c.world[0], x, 4, HEARTH_F32, HEARTH_OP_AVG, "int8", e, NULL,
                                                 &request),
                 HEARTH_OK);
    check_status(hearth_request_wait(request, -1), HEARTH_OK);
    hearth_request_close(request);
    assert_memory_equal(x, x_before, sizeof x);
    assert_memory_equal(e, e_before, sizeof e);
    fixture_close(&c);
    fixture_open(&c, 2, NULL);
    check_status(
        hearth_all_reduce_compressed(c.world[0], NULL, 0, HEARTH_F32, HEARTH_OP_AVG, "topk:0.5", NULL, NULL),
        HEARTH_OK);
    fixture_close(&c);
    checks_end();
}

/* ---- closing in the middle ---- */

TEST(test_close_in_flight)
{
    for (int i = 0; i < 10; i++) {
        struct fixture c;
        hearth_request *requests[2];
        static float x[2][100000], e[2][100000];
        fixture_open(&c, 3, NULL); /* the third never comes */
        for (int k = 0; k < 2; k++)
            check_status(hearth_all_reduce_compressed_nb(c.world[k], x[k], 100000, HEARTH_F32, HEARTH_OP_SUM,
                                                         codecs[i], e[k], NULL, &requests[k]),
                         HEARTH_OK);
        if (i & 1)
            sleep_ms(2);
        fixture_close(&c);
        checks_end();
    }
}

/* The groups that compressed all-reduces have for themselves, known by (tag, number), and those of splits,
 * known by (number, color), are never taken for each other. */
static void splits_after_compressed(struct fixture *c, int rank, void *arg)
{
    float x[64] = {1}, one = 1;
    struct hearth_opts opts = opts_default();
    opts.timeout_ms = 10000;
    for (opts.tag = 0; opts.tag < 4; opts.tag++)
        for (int i = 0; i < 3; i++)
            check_status(hearth_all_reduce_compressed(c->world[rank], x, 64, HEARTH_F32, HEARTH_OP_AVG,
                                                      "int8", NULL, &opts),
                         HEARTH_OK);
    opts.tag = 0;
    for (int color = 0; color < 3; color++) {
        hearth_group *child = NULL;
        if (!check_status(hearth_group_split(c->world[rank], color, 0, &opts, &child), HEARTH_OK))
            return;
        check_status(hearth_all_reduce(child, &one, &one, 1, HEARTH_F32, HEARTH_OP_MAX, &opts), HEARTH_OK);
        hearth_group_close(child);
    }
}

TEST(test_splits_after_compressed)
{
    fixture_once(3, NULL, splits_after_compressed, NULL);
}
