/* SPDX-License-Identifier: Apache-2.0 */
/* The cases that nexar tests, and a test for each defect that was found in its collectives. */
#include <inttypes.h>
#include <math.h>

#include "conform/reference.h"

/* ---- what nexar tests: constant data, with the numbers of its own tests ---- */

struct constant {
    enum hearth_dtype dtype;
    enum hearth_op op;
    int size;
    size_t count;
    double add;    /* rank r gives r + add */
    double wanted; /* every element of every member */
};

static void constant_member(struct fixture *c, int rank, void *arg)
{
    const struct constant *k = arg;
    char x[64], y[64];
    for (size_t i = 0; i < k->count; i++)
        set_number(k->dtype, x, i, rank + k->add);
    check_ok(hearth_all_reduce(c->world[rank], x, y, k->count, k->dtype, k->op, NULL));
    for (size_t i = 0; i < k->count; i++)
        check(get_number(k->dtype, y, i) == k->wanted, "rank %d: element %zu is %g", rank, i,
              get_number(k->dtype, y, i));
}

TEST(test_allreduce)
{
    const struct constant cases[] = {
        {HEARTH_F32, HEARTH_OP_SUM, 2, 4, 1, 3},  {HEARTH_F32, HEARTH_OP_SUM, 3, 6, 1, 6},
        {HEARTH_I32, HEARTH_OP_SUM, 4, 8, 1, 10}, {HEARTH_F32, HEARTH_OP_MIN, 3, 4, 1, 1},
        {HEARTH_F32, HEARTH_OP_MAX, 3, 4, 1, 3},  {HEARTH_F32, HEARTH_OP_PROD, 2, 4, 2, 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct constant k = cases[i];
        fixture_once(k.size, NULL, constant_member, &k);
    }
}

/* 7 elements on 3 ranks, i*(r+1) -> 6i; 6 on 3; 5 on 4: no division that fits. */
static void uneven_member(struct fixture *c, int rank, void *arg)
{
    const size_t *count = arg;
    float x[8], y[8];
    struct hearth_opts opts = opts_default();
    for (int algo = 0; algo < ALGOS; algo++) {
        opts.algo = (enum hearth_algo)algo;
        for (size_t i = 0; i < *count; i++)
            x[i] = (float)i * (float)(rank + 1);
        check_ok(hearth_all_reduce(c->world[rank], x, y, *count, HEARTH_F32, HEARTH_OP_SUM, &opts));
        for (size_t i = 0; i < *count; i++)
            check(y[i] == (float)i * (float)(c->size * (c->size + 1) / 2), "rank %d by %s: element %zu is %g",
                  rank, hearth_algo_name(opts.algo), i, (double)y[i]);
    }
}

TEST(test_allreduce_uneven_count)
{
    size_t counts[] = {7, 6, 5};
    int sizes[] = {3, 3, 4};
    for (int i = 0; i < 3; i++)
        fixture_once(sizes[i], NULL, uneven_member, &counts[i]);
}

static void run_kind(enum kind kind, int size, int root, enum hearth_dtype dtype, enum hearth_op op)
{
    struct fixture c;
    struct job job;
    fixture_open(&c, size, NULL);
    job_init(&job, kind, size, 6);
    job.root = root;
    job.dtype = dtype;
    job.op = op;
    job_do(&job, &c);
    fixture_close(&c);
}

TEST(test_broadcast_gather_scatter_exchange)
{
    run_kind(BROADCAST, 3, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(BROADCAST, 3, 2, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(BROADCAST, 5, 0, HEARTH_I32, HEARTH_OP_SUM);
    run_kind(ALL_GATHER, 3, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(ALL_GATHER, 4, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(ALL_TO_ALL, 2, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(ALL_TO_ALL, 4, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(GATHER, 3, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(GATHER, 4, 2, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(SCATTER, 3, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(SCATTER, 4, 2, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(REDUCE, 2, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(REDUCE, 4, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(REDUCE, 3, 1, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(REDUCE_SCATTER, 2, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(REDUCE_SCATTER, 3, 0, HEARTH_F32, HEARTH_OP_SUM);
    run_kind(SCAN, 2, 0, HEARTH_F32, HEARTH_OP_MAX);
}

/* scan of 1, 2, 3, 4: 1, 3, 6, 10; exclusive: 0, 1, 3; product: 1, 1, 2, 6. */
static void scan_member(struct fixture *c, int rank, void *arg)
{
    const float sums[] = {1, 3, 6, 10}, before[] = {0, 1, 3, 6}, products[] = {1, 1, 2, 6};
    float x = (float)(rank + 1), y = -1;
    check_ok(hearth_scan(c->world[rank], &x, &y, 1, HEARTH_F32, HEARTH_OP_SUM, NULL));
    check(y == sums[rank], "rank %d: scan gives %g", rank, (double)y);
    check_ok(hearth_exclusive_scan(c->world[rank], &x, &y, 1, HEARTH_F32, HEARTH_OP_SUM, NULL));
    check(y == before[rank], "rank %d: exclusive scan gives %g", rank, (double)y);
    check_ok(hearth_exclusive_scan(c->world[rank], &x, &y, 1, HEARTH_F32, HEARTH_OP_PROD, NULL));
    check(y == products[rank], "rank %d: exclusive product gives %g", rank, (double)y);
}

TEST(test_scan)
{
    for (int size = 3; size <= 4; size++)
        fixture_once(size, NULL, scan_member, NULL);
}

/* two_concurrent_allreduces on 4: 10 and 100; split into two pairs: 3 and 7. */
static void pairs_member(struct fixture *c, int rank, void *arg)
{
    int32_t x[2] = {rank + 1, 10 * (rank + 1)}, y = rank + 1;
    hearth_request *requests[2];
    hearth_group *pair = NULL;
    for (int i = 0; i < 2; i++)
        check_ok(sum_in_place_nb(c->world[rank], &x[i], 1, NULL, &requests[i]));
    check_ok(hearth_request_wait_all(requests, 2, -1));
    check(x[0] == 10 && x[1] == 100, "rank %d: %d and %d", rank, x[0], x[1]);
    hearth_request_close(requests[0]);
    hearth_request_close(requests[1]);
    check_ok(hearth_group_split(c->world[rank], rank / 2, rank, NULL, &pair));
    check_ok(sum_in_place(pair, &y, 1, NULL));
    check(y == (rank < 2 ? 3 : 7), "rank %d: the pair has %d", rank, y);
    hearth_group_close(pair);
}

TEST(test_two_concurrent_allreduces_and_split)
{
    fixture_once(4, NULL, pairs_member, NULL);
}

/* ---- defects ---- */

static float large_value(int rank, size_t i)
{
    return (float)(rank + 1) * (float)(i % 1021);
}

static void large_member(struct fixture *c, int rank, void *arg)
{
    size_t count = *(const size_t *)arg;
    float *x = must_alloc(count * sizeof *x);
    struct hearth_opts opts = opts_default();
    const enum hearth_algo algos[] = {HEARTH_ALGO_AUTO, HEARTH_ALGO_RING};
    for (int k = 0; k < 2; k++) {
        opts.algo = algos[k];
        for (size_t i = 0; i < count; i++)
            x[i] = large_value(rank, i);
        check_ok(hearth_all_reduce(c->world[rank], x, x, count, HEARTH_F32, HEARTH_OP_SUM, &opts));
        float factor = (float)(c->size * (c->size + 1) / 2);
        for (size_t i = 0; i < count; i++)
            if (x[i] != factor * (float)(i % 1021)) {
                check(false, "rank %d by %s: element %zu of %zu is %g", rank, hearth_algo_name(opts.algo), i,
                      count, (double)x[i]);
                break;
            }
    }
    free(x);
}

/* Sanitizers are slow: the same arithmetic with a sixteenth of everything, chunks included. */
static void run_large(int size, size_t bytes)
{
    struct hearth_config config;
    struct hearth_tuning tuning;
    config_tuned(&config, &tuning);
    size_t count = bytes / sizeof(float);
    if (slow_factor() > 1) {
        count = count / 16 + (count % 16 > 0);
        tuning.chunk_bytes /= 16;
        tuning.window_bytes /= 16;
        tuning.eager_bytes /= 16;
    }
    fixture_once(size, &config, large_member, &count);
}

/* W6: segments cut in bytes, offset and length floored: elements skipped without an error. */
TEST(test_w6_no_element_is_skipped)
{
    run_large(2, 10u << 20);
    run_large(2, 25u << 20);
    run_large(4, 100u << 20);
    run_large(8, 100u << 20);
}

/* W7: each rank computed its own number of segments: 2,097,153 f32 on 4 ranks. */
TEST(test_w7_ranks_agree_on_segments)
{
    run_large(4, UINT32_C(2097153) * 4);
    run_large(4, UINT32_C(2097151) * 4);
    run_large(3, UINT32_C(2097153) * 4);
}

/* W8: the collective's number was cut to 16 bits, the tag 0 was special. The 65,536th and its neighbours are
 * large, so that they are cut into segments. */
static void tag_member(struct fixture *c, int rank, void *arg)
{
    enum { COUNT = 5000 };
    int32_t *x = must_alloc(COUNT * sizeof *x);
    for (int i = 0; i < 65600 && !checks_failed(); i++) {
        size_t count = i >= 65530 && i <= 65540 ? COUNT : 1;
        for (size_t k = 0; k < count; k++)
            x[k] = i + rank + (int32_t)k;
        check_ok(sum_in_place(c->world[rank], x, count, NULL));
        for (size_t k = 0; k < count; k++)
            if (x[k] != c->size * (i + (int32_t)k) + 1)
                check(false, "rank %d: operation %d: element %zu is %d", rank, i, k, x[k]);
    }
    free(x);
}

TEST(test_w8_operation_65536)
{
    struct hearth_config config;
    config_small(&config);
    fixture_once(2, &config, tag_member, NULL);
}

/* W4: reduce_scatter gave rank i the chunk i + 1. Every chunk is different here, and what is gathered again
 * is what all_reduce gives, bit for bit. */
static void scatter_gather_member(struct fixture *c, int rank, void *arg)
{
    const enum hearth_algo *algo = arg;
    enum { PART = 257 };
    size_t n = (size_t)c->size, count = PART * n;
    float *x = must_alloc(count * 4), *whole = must_alloc(count * 4), *again = must_alloc(count * 4),
          part[PART];
    struct hearth_opts opts = opts_default();
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(i / PART * 1000 + i % PART) + (float)rank * 0.25f;
    opts.algo = *algo;
    opts.flags = HEARTH_FLAG_RANK_ORDER;
    check_ok(hearth_all_reduce(c->world[rank], x, whole, count, HEARTH_F32, HEARTH_OP_SUM, &opts));
    check_ok(hearth_reduce_scatter(c->world[rank], x, part, PART, HEARTH_F32, HEARTH_OP_SUM, &opts));
    check(memcmp(part, whole + (size_t)rank * PART, sizeof part) == 0, "rank %d has another chunk", rank);
    opts.flags = 0;
    check_ok(hearth_all_gather(c->world[rank], part, again, PART, HEARTH_F32, &opts));
    check(memcmp(again, whole, count * 4) == 0, "rank %d: reduce_scatter + all_gather is not all_reduce",
          rank);
    free(x);
    free(whole);
    free(again);
}

TEST(test_w4_rank_i_gets_chunk_i)
{
    enum hearth_algo algos[] = {HEARTH_ALGO_AUTO, HEARTH_ALGO_DIRECT};
    for (int size = 1; size <= 8; size++) {
        for (int i = 0; i < 2; i++)
            fixture_often(1, size, NULL, scatter_gather_member, &algos[i]);
    }
}

/* W10, W11: 16-bit conversions and NaN were different in vector body, tail and on other machines. One value
 * at every place of a long buffer must give one result. */
static void places_member(struct fixture *c, int rank, void *arg)
{
    enum hearth_dtype dtype = *(const enum hearth_dtype *)arg;
    enum { COUNT = 77 };
    const double values[] = {1.9998, 7.999, 0.49995, 1.6e-6, 0x1p-24, 65504, 3.14159, 1e-3};
    const enum hearth_op ops[] = {HEARTH_OP_SUM, HEARTH_OP_MIN, HEARTH_OP_MAX, HEARTH_OP_PROD};
    uint16_t x[COUNT], y[COUNT], nan;
    set_number(dtype, &nan, 0, (double)NAN);
    for (int i = 0; i < 8 * 4 * 2; i++) {
        bool with_nan = i / 32;
        for (size_t k = 0; k < COUNT; k++)
            set_number(dtype, x, k, with_nan && rank == 1 ? (double)NAN : values[i % 8]);
        check_ok(hearth_all_reduce(c->world[rank], x, y, COUNT, dtype, ops[i / 8 % 4], NULL));
        for (size_t k = 0; k < COUNT; k++)
            check(y[k] == y[0] && (!with_nan || y[k] == nan), "%s %s of %g: 0x%04x at 0, 0x%04x at %zu",
                  hearth_dtype_name(dtype), hearth_op_name(ops[i / 8 % 4]), values[i % 8], y[0], y[k], k);
        if (!with_nan && ops[i / 8 % 4] == HEARTH_OP_MIN)
            check(y[0] == x[0], "%s: 0x%04x became 0x%04x", hearth_dtype_name(dtype), x[0], y[0]);
    }
}

TEST(test_w10_w11_one_result_at_every_place)
{
    enum hearth_dtype dtypes[] = {HEARTH_F16, HEARTH_BF16};
    for (int i = 0; i < 2; i++)
        fixture_often(1, 3, NULL, places_member, &dtypes[i]);
}

/* exclusive_scan: the identity of min and max was the largest finite number. */
static void identity_member(struct fixture *c, int rank, void *arg)
{
    const enum hearth_op ops[] = {HEARTH_OP_SUM, HEARTH_OP_PROD, HEARTH_OP_MIN, HEARTH_OP_MAX};
    for (int i = 0; i < DTYPES * 4; i++) {
        enum hearth_dtype dtype = (enum hearth_dtype)(i % DTYPES);
        enum hearth_op op = ops[i / DTYPES];
        char x[5 * 8], y[5 * 8];
        for (size_t k = 0; k < 5; k++)
            set_number(dtype, x, k, 3);
        check_ok(hearth_exclusive_scan(c->world[rank], x, y, 5, dtype, op, NULL));
        for (size_t k = 0; rank == 0 && k < 5; k++)
            check(get_bits(dtype, y, k) == identity_bits(dtype, op), "%s %s: 0x%" PRIx64,
                  hearth_dtype_name(dtype), hearth_op_name(op), get_bits(dtype, y, k));
    }
    float x = 1, y = 0;
    check_ok(hearth_exclusive_scan(c->world[rank], &x, &y, 1, HEARTH_F32, HEARTH_OP_MIN, NULL));
    check(rank > 0 || (isinf(y) && y > 0), "min over nobody is %g", (double)y);
}

TEST(test_identity_of_exclusive_scan)
{
    for (int size = 1; size <= 3; size++)
        fixture_once(size, NULL, identity_member, NULL);
}

/* Scan and its shift used one tag: two messages could change places. Many in a row, different each time. */
static void scans_member(struct fixture *c, int rank, void *arg)
{
    struct hearth_opts opts = opts_default();
    for (int i = 0; i < 500; i++) {
        int64_t x = (int64_t)i * 100 + rank, y = -1, wanted = 0;
        opts.algo = i % 2 ? HEARTH_ALGO_RING : HEARTH_ALGO_TREE;
        for (int r = 0; r < rank; r++)
            wanted += (int64_t)i * 100 + r;
        check_ok(hearth_exclusive_scan(c->world[rank], &x, &y, 1, HEARTH_I64, HEARTH_OP_SUM, &opts));
        check(y == wanted, "rank %d: exclusive scan %d gives %" PRId64, rank, i, y);
        check_ok(hearth_scan(c->world[rank], &x, &y, 1, HEARTH_I64, HEARTH_OP_SUM, &opts));
        check(y == wanted + x, "rank %d: scan %d gives %" PRId64, rank, i, y);
    }
}

TEST(test_scans_in_a_row)
{
    fixture_once(5, NULL, scans_member, NULL);
}

/* A root outside the group went through unchecked and underflowed. */
TEST(test_root_out_of_range)
{
    const int roots[] = {2, -1, INT32_MAX, INT32_MIN};
    struct fixture c;
    float x[4] = {0}, y[4];
    fixture_open(&c, 2, NULL);
    for (int i = 0; i < 4; i++) {
        check_status(hearth_broadcast(c.world[0], x, 1, HEARTH_F32, roots[i], NULL), HEARTH_INVALID);
        check_status(hearth_reduce(c.world[0], x, y, 1, HEARTH_F32, HEARTH_OP_SUM, roots[i], NULL),
                     HEARTH_INVALID);
        check_status(hearth_gather(c.world[0], x, y, 1, HEARTH_F32, roots[i], NULL), HEARTH_INVALID);
        check_status(hearth_scatter(c.world[0], x, y, 1, HEARTH_F32, roots[i], NULL), HEARTH_INVALID);
    }
    fixture_works(&c);
    fixture_close(&c);
}

/* W12: barriers failed once a client was a second old, and whenever another message was in their lane. */
static void old_member(struct fixture *c, int rank, void *arg)
{
    hearth_request *requests[20];
    int32_t x[20];
    struct hearth_opts opts = opts_default();
    check_ok(hearth_barrier(c->world[rank], NULL));
    sleep_ms(1500);
    check_ok(hearth_barrier(c->world[rank], NULL));
    for (int i = 0; i < 20; i++) { /* traffic of all sorts around the next ones */
        opts.tag = (uint64_t)i + 1;
        x[i] = i;
        check_ok(sum_in_place_nb(c->world[rank], &x[i], 1, &opts, &requests[i]));
        if (i % 5 == 0)
            check_ok(hearth_barrier(c->world[rank], NULL));
    }
    check_ok(hearth_barrier(c->world[rank], NULL));
    check_ok(hearth_request_wait_all(requests, 20, -1));
    for (int i = 0; i < 20; i++)
        hearth_request_close(requests[i]);
    check_ok(hearth_barrier(c->world[rank], NULL));
}

TEST(test_w12_barrier_long_after_the_start)
{
    for (int size = 2; size <= 5; size += 3)
        fixture_once(size, NULL, old_member, NULL);
}

/* Freeing a handle let a task go on writing into the buffer. */
static void freed_member(struct fixture *c, int rank, void *arg)
{
    enum { COUNT = 200000 };
    hearth_request *request = NULL;
    int32_t *x = must_alloc(COUNT * sizeof *x);
    memset(x, 0, COUNT * sizeof *x);
    int status = sum_in_place_nb(c->world[rank], x, COUNT, NULL, &request);
    check_ok(status);
    if (rank == 0) {
        hearth_request_close(request);
        free(x); /* a sanitizer sees every later access */
        return;
    }
    status = hearth_request_wait(request, -1);
    check(status == HEARTH_OK || status == HEARTH_ABORTED, "rank %d: %s", rank, hearth_status_name(status));
    hearth_request_close(request);
    free(x);
}

TEST(test_buffers_are_free_after_a_free)
{
    fixture_often(50, 3, NULL, freed_member, NULL);
}
