/* SPDX-License-Identifier: Apache-2.0 */
/* Averages: weights, rounding of integers and of 16-bit floats, and sums in rank order. */
#include <inttypes.h>
#include <math.h>

#include "conform/reference.h"

#define VALUES_MAX 8

/* One element per member, what must come out, on a cluster of `size`. */
struct average {
    enum hearth_dtype dtype;
    int size;
    double x[VALUES_MAX], weight[VALUES_MAX]; /* weight 0 everywhere: all 1 */
    double wanted;
};

static bool has_weights(const struct average *a)
{
    for (int i = 0; i < a->size; i++)
        if (a->weight[i] != 0)
            return true;
    return false;
}

static const enum hearth_algo algos[] = {HEARTH_ALGO_AUTO,         HEARTH_ALGO_RING,    HEARTH_ALGO_DIRECT,
                                         HEARTH_ALGO_HALVING,      HEARTH_ALGO_TREE,    HEARTH_ALGO_STAR,
                                         HEARTH_ALGO_HIERARCHICAL, HEARTH_ALGO_EXCHANGE};

static void average_member(struct fixture *c, int rank, void *arg)
{
    const struct average *a = arg;
    uint64_t x = 0, y, wanted = 0;
    set_number(a->dtype, &x, 0, a->x[rank]);
    set_number(a->dtype, &wanted, 0, a->wanted);
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        struct hearth_opts opts = opts_default();
        opts.algo = algos[i];
        if (has_weights(a))
            opts.weight = a->weight[rank];
        y = 0;
        check_ok(hearth_all_reduce(c->world[rank], &x, &y, 1, a->dtype, HEARTH_OP_AVG, &opts));
        check(y == wanted, "%s by %s on %d: rank %d has 0x%" PRIx64 " (%g), not 0x%" PRIx64 " (%g)",
              hearth_dtype_name(a->dtype), hearth_algo_name(opts.algo), a->size, rank, y,
              get_number(a->dtype, &y, 0), wanted, a->wanted);
    }
}

static void run_averages(const struct average *cases, size_t count)
{
    for (int size = 1; size <= VALUES_MAX; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (size_t i = 0; i < count; i++) {
            struct average a = cases[i];
            if (a.size == size)
                fixture_run(&c, average_member, &a);
        }
        fixture_close(&c);
    }
}

TEST(test_integers_round_to_nearest_even)
{
    const struct average cases[] = {
        {HEARTH_I32, 2, {1, 2}, {0}, 2}, /* 1.5 */
        {HEARTH_I32, 2, {2, 3}, {0}, 2}, /* 2.5 */
        {HEARTH_I32, 2, {-1, -2}, {0}, -2},
        {HEARTH_I32, 2, {-2, -3}, {0}, -2},
        {HEARTH_I32, 2, {0, 1}, {0}, 0}, /* 0.5 */
        {HEARTH_I32, 2, {0, -1}, {0}, 0},
        {HEARTH_I32, 3, {1, 1, 2}, {0}, 1}, /* 1.33 */
        {HEARTH_I32, 3, {1, 2, 2}, {0}, 2}, /* 1.67 */
        {HEARTH_I8, 2, {127, 126}, {0}, 126},
        {HEARTH_I8, 4, {127, 127, 127, 127}, {0}, 127}, /* the sum does not fit the type */
        {HEARTH_I8, 4, {-128, -128, -128, -128}, {0}, -128},
        {HEARTH_U8, 3, {255, 255, 254}, {0}, 255},
        {HEARTH_U8, 2, {255, 254}, {0}, 254},
        {HEARTH_U32, 2, {4294967295.0, 4294967294.0}, {0}, 4294967294.0},
        {HEARTH_I64, 2, {4503599627370497.0, 4503599627370498.0}, {0}, 4503599627370498.0},
        {HEARTH_U64, 2, {4503599627370496.0, 4503599627370497.0}, {0}, 4503599627370496.0},
        {HEARTH_I64, 5, {1, 2, 3, 4, -11}, {0}, 0}, /* -0.2 */
        {HEARTH_U8, 8, {1, 1, 1, 1, 0, 0, 0, 0}, {0}, 0},
        {HEARTH_U8, 8, {3, 3, 3, 3, 0, 0, 0, 0}, {0}, 2},
    };
    run_averages(cases, sizeof cases / sizeof *cases);
}

/* Only 64-bit averages can leave the range of their type: their mean is rounded to f64, upwards here. */
TEST(test_integers_saturate)
{
    const struct average cases[] = {
        {HEARTH_U64, 2, {0x1p64, 0x1p64}, {0}, 0x1p64}, /* set_number saturates: 2^64 - 1 */
        {HEARTH_I64, 2, {0x1p63, 0x1p63}, {0}, 0x1p63},
        {HEARTH_I64, 2, {-0x1p63, -0x1p63}, {0}, -0x1p63},
        {HEARTH_U64, 3, {0x1p64, 0x1p64, 0x1p64}, {0}, 0x1p64},
        {HEARTH_I64, 1, {0x1p63}, {0}, 0x1p63},
    };
    run_averages(cases, sizeof cases / sizeof *cases);
}

TEST(test_weights)
{
    const struct average cases[] = {
        {HEARTH_F32, 2, {1, 3}, {3, 1}, 1.5},
        {HEARTH_F64, 2, {1, 3}, {0.25, 0.75}, 2.5},
        {HEARTH_F32, 3, {1, 2, 4}, {1, 0, 1}, 2.5}, /* weight 0: its value does not count */
        {HEARTH_I32, 3, {10, 1000, 20}, {1, 0, 3}, 18},
        {HEARTH_I8, 2, {-100, 100}, {3, 1}, -50},
        {HEARTH_F16, 2, {1, 2}, {1, 3}, 1.75},
        {HEARTH_BF16, 4, {1, 2, 3, 4}, {4, 3, 2, 1}, 2},
        {HEARTH_F32, 1, {7}, {5}, 7},
        {HEARTH_I64, 1, {7}, {0.5}, 7},
        {HEARTH_F64, 8, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 1, 1, 1, 1, 1, 9}, 6.25},
        {HEARTH_U8, 5, {200, 100, 0, 0, 0}, {2, 1, 0.5, 0.5, 0}, 125},
        {HEARTH_F32, 7, {8, 8, 8, 8, 8, 8, 1}, {1, 1, 1, 1, 1, 1, 8}, 4},
    };
    run_averages(cases, sizeof cases / sizeof *cases);
}

/* A batch of one member: whatever its weight, N = 1 gives back the input. */
static void alone(struct fixture *c, int rank, void *arg)
{
    uint64_t seed = 11;
    for (int dtype = 0; dtype < DTYPES; dtype++) {
        for (int i = 0; i < 200; i++) {
            struct job job;
            job_init(&job, ALL_REDUCE, 1, 1);
            job.dtype = (enum hearth_dtype)dtype;
            job.op = HEARTH_OP_AVG;
            job.seed = draw(&seed) >> 8;
            job.values = ANY;
            uint64_t x = 0, y = 0;
            fill_values(&job, 0, &x, 1);
            struct hearth_opts opts = opts_default();
            opts.weight = i % 2 ? 1 : 4;
            check_ok(hearth_all_reduce(c->world[0], &x, &y, 1, job.dtype, HEARTH_OP_AVG, &opts));
            check(x == y, "%s: 0x%" PRIx64 " became 0x%" PRIx64, hearth_dtype_name(job.dtype), x, y);
        }
    }
}

TEST(test_alone)
{
    fixture_once(1, NULL, alone, NULL);
}

/* ---- 16-bit floats: kept in f32, rounded once ---- */

struct half {
    enum hearth_dtype dtype;
    enum hearth_op op;
    int size;
    double x[VALUES_MAX];
    double wanted; /* rounding once; rounding after each step gives something else */
};

static void half_member(struct fixture *c, int rank, void *arg)
{
    const struct half *h = arg;
    uint16_t x, y, wanted;
    set_number(h->dtype, &x, 0, h->x[rank]);
    set_number(h->dtype, &wanted, 0, h->wanted);
    check(get_number(h->dtype, &x, 0) == h->x[rank], "%g is not a number of the type", h->x[rank]);
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        struct hearth_opts opts = opts_default();
        opts.algo = algos[i];
        y = 0;
        check_ok(hearth_all_reduce(c->world[rank], &x, &y, 1, h->dtype, h->op, &opts));
        check(y == wanted, "%s %s by %s on %d: rank %d has %g, not %g", hearth_dtype_name(h->dtype),
              hearth_op_name(h->op), hearth_algo_name(opts.algo), h->size, rank, get_number(h->dtype, &y, 0),
              get_number(h->dtype, &wanted, 0));
    }
}

TEST(test_halves_round_once)
{
    /* f16 has 11 bits: from 2048 on only even numbers; 2048 + 1 would be 2048 again each time. */
    const struct half cases[] = {
        {HEARTH_F16, HEARTH_OP_SUM, 5, {2048, 1, 1, 1, 1}, 2052},
        {HEARTH_F16, HEARTH_OP_SUM, 4, {1, 1, 1, 2048}, 2052}, /* 2051, a tie: to even */
        {HEARTH_F16, HEARTH_OP_SUM, 3, {60000, 60000, -60000}, 60000},
        {HEARTH_F16, HEARTH_OP_SUM, 4, {40000, 40000, -40000, -39936}, 64}, /* 80000 is beyond the type */
        {HEARTH_F16, HEARTH_OP_PROD, 3, {300, 300, 0.001953125}, 175.75},
        {HEARTH_F16, HEARTH_OP_AVG, 2, {60000, 60000}, 60000},
        {HEARTH_F16, HEARTH_OP_AVG, 4, {2048, 2050, 2050, 2052}, 2050},
        {HEARTH_F16, HEARTH_OP_SUM, 2, {0x1p-24, 0x1p-24}, 0x1p-23}, /* subnormal */
        {HEARTH_F16, HEARTH_OP_AVG, 2, {0x1p-24, 0}, 0},             /* half of the smallest: to even */
        {HEARTH_F16, HEARTH_OP_AVG, 2, {0x1p-24, 0x1p-23}, 0x1p-23},
        {HEARTH_F16, HEARTH_OP_SUM, 2, {65504, 16}, (double)INFINITY}, /* as IEEE says */
        {HEARTH_F16, HEARTH_OP_SUM, 2, {65504, 15.9921875}, 65504},
        /* bf16 has 8 bits: from 256 on only even numbers. */
        {HEARTH_BF16, HEARTH_OP_SUM, 5, {256, 1, 1, 1, 1}, 260},
        {HEARTH_BF16, HEARTH_OP_SUM, 8, {256, 1, 1, 1, 1, 1, 1, 1}, 264}, /* 263: to even */
        {HEARTH_BF16, HEARTH_OP_SUM, 3, {1, 0.00390625, 0.00390625}, 1.0078125},
        {HEARTH_BF16, HEARTH_OP_PROD, 3, {255, 255, 0.0078125}, 508},
        {HEARTH_BF16, HEARTH_OP_AVG, 4, {256, 258, 258, 260}, 258},
        {HEARTH_BF16, HEARTH_OP_SUM, 2, {0x1p-133, 0x1p-133}, 0x1p-132},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct half h = cases[i];
        fixture_once(h.size, NULL, half_member, &h);
    }
}

/* ---- every collective that averages, every type, odd weights ---- */

TEST(test_weights_in_every_reduction)
{
    uint64_t seed = 21;
    const enum kind kinds[] = {ALL_REDUCE, REDUCE_SCATTER, REDUCE_SCATTERV, REDUCE};
    for (int size = 2; size <= 8; size += 3) {
        struct fixture c;
        struct hearth_config config;
        config_small(&config);
        fixture_open(&c, size, size == 5 ? &config : NULL);
        for (int i = 0; i < 4 * DTYPES; i++) {
            struct job job;
            job_init(&job, kinds[i / DTYPES], size, 3001);
            job.dtype = (enum hearth_dtype)(i % DTYPES);
            job.op = HEARTH_OP_AVG;
            job.root = size - 1;
            job.seed = draw(&seed) >> 40;
            job.values = ANY;
            job.in_place = i & 1;
            for (int r = 0; r < size; r++) /* exact in binary: the reference of integers is exact then */
                job.weight[r] = (double)draw_below(&seed, 9) / 4;
            job.weight[size / 2] = 1;
            if (job.kind == REDUCE_SCATTERV)
                job_draw_counts(&job);
            job_do(&job, &c);
        }
        fixture_close(&c);
    }
}

/* Nobody has any weight: nothing to divide by, but the same bits everywhere, and no trap. */
static void weightless(struct fixture *c, int rank, void *arg)
{
    struct hearth_opts opts = opts_default();
    opts.weight = 0;
    for (int dtype = 0; dtype < DTYPES; dtype++) {
        uint64_t x = 0, y = 0;
        set_number((enum hearth_dtype)dtype, &x, 0, rank + 1);
        check_ok(
            hearth_all_reduce(c->world[rank], &x, &y, 1, (enum hearth_dtype)dtype, HEARTH_OP_AVG, &opts));
        check_ok(hearth_group_same(c->world[rank], &y, sizeof y, NULL, NULL));
        double got = get_number((enum hearth_dtype)dtype, &y, 0);
        check(dtype_is_integer((enum hearth_dtype)dtype) ? y == 0 : got != got, "%s: 0 / 0 is %g",
              hearth_dtype_name((enum hearth_dtype)dtype), got);
    }
}

TEST(test_no_weight_at_all)
{
    for (int size = 1; size <= 4; size++)
        fixture_once(size, NULL, weightless, NULL);
}

/* ---- order of ranks ---- */

#define ORDER_COUNT 3000

/* ((x0 op x1) op x2) ..., in the type that sums are kept in. */
static void in_order(const struct job *job, size_t index, void *target)
{
    enum hearth_dtype d = job->dtype;
    bool average = job->op == HEARTH_OP_AVG;
    double sum = 0;
    float single = 0;
    for (int r = 0; r < job->size; r++) {
        double x = get_number(d, job->input[r], index), w = average ? job->weight[r] : 1;
        float product = (float)x * (float)w;
        sum = r == 0 ? x * w : sum + x * w;
        single = r == 0 ? product : single + product;
    }
    double total = 0;
    for (int r = 0; r < job->size; r++)
        total += job->weight[r];
    if (d == HEARTH_F64)
        set_number(d, target, index, average ? sum / total : sum);
    else
        set_number(d, target, index, (double)(average ? single / (float)total : single));
}

static void check_order(struct fixture *c, enum kind kind, enum hearth_dtype dtype, enum hearth_op op)
{
    int supported = 0;
    for (int algo = 0; algo < ALGOS; algo++) {
        struct job job;
        job_init(&job, kind, c->size, kind == REDUCE_SCATTER ? ORDER_COUNT / 5 : ORDER_COUNT);
        job.dtype = dtype;
        job.op = op;
        job.values = ANY;
        job.opts.algo = (enum hearth_algo)algo;
        job.opts.flags = HEARTH_FLAG_RANK_ORDER;
        for (int r = 0; r < c->size; r++)
            job.weight[r] = op == HEARTH_OP_AVG ? r + 1 : 1;
        job_run(&job, c);
        if (job.status[0] == HEARTH_UNSUPPORTED) {
            check(algo != HEARTH_ALGO_AUTO, "%s: nothing goes in rank order", job_name(&job));
            check_text(job.text[0], "in rank order");
            job_free(&job);
            continue;
        }
        supported++;
        job_check(&job);
        size_t len = hearth_dtype_size(dtype), count = job_source_count(&job, 0);
        char *wanted = must_alloc(count * len);
        for (size_t i = 0; i < count; i++)
            in_order(&job, i, wanted);
        for (int r = 0; r < c->size; r++) {
            size_t first = kind == REDUCE_SCATTER ? (size_t)r * job.count : 0;
            size_t got = job_target_count(&job, r);
            check(got == 0 || memcmp(wanted + first * len, job.target[r], got * len) == 0,
                  "%s: rank %d does not have the bits of rank order", job_name(&job), r);
        }
        free(wanted);
        job_free(&job);
        checks_end();
    }
    assert_true(supported >= 2); /* auto and the one it chose */
}

TEST(test_rank_order_is_one_result_for_all_algorithms)
{
    const enum kind kinds[] = {ALL_REDUCE, REDUCE_SCATTER, REDUCE};
    const enum hearth_dtype dtypes[] = {HEARTH_F32, HEARTH_F64, HEARTH_F16, HEARTH_BF16};
    struct hearth_config config;
    config_small(&config);
    for (int size = 1; size <= 8; size++) {
        struct fixture c;
        fixture_open(&c, size, size % 2 ? &config : NULL);
        for (int i = 0; i < 12; i++) {
            check_order(&c, kinds[i / 4], dtypes[i % 4], HEARTH_OP_SUM);
            check_order(&c, kinds[i / 4], dtypes[i % 4], HEARTH_OP_AVG);
        }
        fixture_close(&c);
    }
}

/* Scans are in rank order by definition: the flag changes no bit of the result of those that take it. */
TEST(test_scan_in_rank_order)
{
    struct fixture c;
    fixture_open(&c, 7, NULL);
    struct job plain, ordered;
    job_init(&plain, SCAN, 7, 500);
    plain.values = ANY;
    plain.opts.algo = HEARTH_ALGO_RING;
    ordered = plain;
    ordered.opts.flags = HEARTH_FLAG_RANK_ORDER;
    job_run(&plain, &c);
    job_check(&plain);
    job_run(&ordered, &c);
    job_check(&ordered);
    for (int r = 0; r < 7; r++)
        assert_memory_equal(plain.target[r], ordered.target[r], 500 * sizeof(float));
    job_free(&plain);
    job_free(&ordered);
    fixture_close(&c);
}
