/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective with every type, operation, algorithm, number of members and awkward count. */
#include "conform/reference.h"

static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Which algorithms a collective has. MAY: only for some sizes and counts. */
enum { NO, YES, MAY };

static const uint8_t table[KIND_COUNT][ALGOS] = {
    /*                   auto ring dir. halv tree star hier exch */
    [ALL_REDUCE] = {YES, YES, YES, YES, YES, YES, YES, YES},
    [REDUCE_SCATTER] = {YES, YES, YES, MAY, NO, NO, NO, NO},
    [REDUCE_SCATTERV] = {YES, YES, YES, MAY, NO, NO, NO, NO},
    [ALL_GATHER] = {YES, YES, YES, MAY, NO, NO, NO, NO},
    [ALL_GATHERV] = {YES, YES, YES, MAY, NO, NO, NO, NO},
    [BROADCAST] = {YES, YES, NO, NO, YES, YES, NO, NO},
    [REDUCE] = {YES, YES, NO, NO, YES, YES, NO, NO},
    [GATHER] = {YES, NO, YES, NO, NO, NO, NO, NO},
    [GATHERV] = {YES, NO, YES, NO, NO, NO, NO, NO},
    [SCATTER] = {YES, NO, YES, NO, NO, NO, NO, NO},
    [SCATTERV] = {YES, NO, YES, NO, NO, NO, NO, NO},
    [ALL_TO_ALL] = {YES, NO, YES, NO, NO, NO, NO, NO},
    [ALL_TO_ALLV] = {YES, NO, YES, NO, NO, NO, NO, NO},
    [SCAN] = {YES, YES, NO, NO, YES, NO, NO, NO},
    [EXCLUSIVE_SCAN] = {YES, YES, NO, NO, YES, NO, NO, NO},
    [BARRIER] = {YES, NO, NO, YES, YES, NO, NO, YES},
};

static bool has_avg(enum kind kind)
{
    return kind != SCAN && kind != EXCLUSIVE_SCAN;
}

/* What was run: [kind][dtype][op] and [kind][algo][size]. */
static bool types_seen[KIND_COUNT][DTYPES][OPS], algos_seen[KIND_COUNT][ALGOS][SIZES];

/* Draws all that the caller does not fix. */
static void draw_rest(struct job *job, uint64_t *seed)
{
    job->seed = draw_below(seed, 1u << 30);
    job->root = (int)draw_below(seed, (uint64_t)job->size);
    job->in_place = draw(seed) & 1;
    job->nonblocking = draw(seed) & 1;
    job->null_target = draw(seed) & 1;
    job->values = draw(seed) & 1 ? WHOLE : ANY;
    job->offset = hearth_dtype_size(job->dtype) * draw_below(seed, 4);
    if (kind_is_vector(job->kind))
        job_draw_counts(job);
}

static void draw_type(struct job *job, uint64_t *seed)
{
    job->dtype = (enum hearth_dtype)draw_below(seed, DTYPES);
    job->op = (enum hearth_op)draw_below(seed, OPS);
    if ((job->op == HEARTH_OP_AVG && !has_avg(job->kind)) || !op_exists(job->op, job->dtype))
        job->op = HEARTH_OP_SUM;
}

/* Refused on all members, with words that say what there is; nothing happened. */
static void check_refused(const struct job *job)
{
    for (int r = 0; r < job->size; r++) {
        if (!check(job->status[r] == HEARTH_UNSUPPORTED, "%s: rank %d: %s", job_name(job), r,
                   hearth_status_name(job->status[r])))
            continue;
        check_text(job->text[r], hearth_algo_name(job->opts.algo));
        int listed = 0;
        for (int a = 1; a < ALGOS; a++) {
            const char *list = strstr(job->text[r], "goes by");
            bool there = list && strstr(list, hearth_algo_name((enum hearth_algo)a));
            uint8_t has = table[job->kind][a];
            check(has == MAY || there == (has == YES), "%s: \"%s\" does not tell the truth about %s",
                  job_name(job), job->text[r], hearth_algo_name((enum hearth_algo)a));
            listed += there;
        }
        check(listed > 0, "%s: \"%s\" names no algorithm", job_name(job), job->text[r]);
    }
}

static void do_job(struct job *job, struct fixture *c, int size_index)
{
    uint8_t has = table[job->kind][job->opts.algo];
    job_run(job, c);
    bool refused = job->status[0] == HEARTH_UNSUPPORTED;
    if (has == NO || (has == MAY && refused))
        check_refused(job);
    else
        job_check(job);
    job_free(job);
    checks_end();
    algos_seen[job->kind][job->opts.algo][size_index] = true;
    if (!refused)
        types_seen[job->kind][job->dtype][job->op] = true;
}

static void all_algorithms(struct fixture *c, int size_index, uint64_t seed)
{
    size_t n = (size_t)c->size;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 1000, 4097};
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        for (int algo = 0; algo < ALGOS; algo++) {
            size_t runs = kind == BARRIER || table[kind][algo] == NO ? 1 : sizeof counts / sizeof *counts;
            for (size_t i = 0; i < runs; i++) {
                struct job job;
                job_init(&job, (enum kind)kind, c->size, kind == BARRIER ? 0 : counts[i]);
                job.opts.algo = (enum hearth_algo)algo;
                draw_type(&job, &seed);
                draw_rest(&job, &seed);
                do_job(&job, c, size_index);
            }
        }
    }
}

TEST(test_every_algorithm_and_count)
{
    for (int s = 0; s < SIZES; s++) {
        struct fixture c;
        fixture_open(&c, sizes[s], NULL);
        all_algorithms(&c, s, 1000 + (uint64_t)s);
        fixture_close(&c);
    }
}

TEST(test_every_algorithm_and_count_in_small_chunks)
{
    struct hearth_config config;
    config_small(&config);
    for (int s = 0; s < SIZES; s++) {
        struct fixture c;
        fixture_open(&c, sizes[s], &config);
        all_algorithms(&c, s, 2000 + (uint64_t)s);
        fixture_close(&c);
    }
}

static void all_types(struct fixture *c, int size_index, uint64_t *seed)
{
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        for (int i = 0; i < DTYPES * OPS; i++) {
            struct job job;
            job_init(&job, (enum kind)kind, c->size, 1 + draw_below(seed, 2500));
            job.dtype = (enum hearth_dtype)(i / OPS);
            job.op = (enum hearth_op)(i % OPS);
            if (job.op != HEARTH_OP_SUM && !kind_has_op(job.kind))
                continue;
            if ((job.op == HEARTH_OP_AVG && !has_avg(job.kind)) || !op_exists(job.op, job.dtype))
                continue;
            do {
                job.opts.algo = (enum hearth_algo)draw_below(seed, ALGOS);
            } while (table[kind][job.opts.algo] != YES);
            draw_rest(&job, seed);
            do_job(&job, c, size_index);
        }
    }
}

TEST(test_every_type_and_operation)
{
    uint64_t seed = 3;
    struct hearth_config config;
    config_small(&config);
    for (int s = 1; s < SIZES; s += under_tsan() || under_asan() ? 3 : 1) {
        struct fixture c;
        fixture_open(&c, sizes[s], s % 2 ? &config : NULL);
        all_types(&c, s, &seed);
        fixture_close(&c);
    }
}

TEST(test_nothing_was_left_out)
{
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        for (int i = 0; i < ALGOS * SIZES; i++)
            assert_true(algos_seen[kind][i / SIZES][i % SIZES]);
        for (int i = 0; i < DTYPES * OPS; i++) {
            bool exists = kind_has_op((enum kind)kind) ? i % OPS != HEARTH_OP_AVG || has_avg((enum kind)kind)
                                                       : i % OPS == HEARTH_OP_SUM;
            exists = exists && op_exists((enum hearth_op)(i % OPS), (enum hearth_dtype)(i / OPS));
            assert_true(!exists || types_seen[kind][i / OPS][i % OPS]);
        }
    }
}

/* Many lanes, blocks and grants: a window of one chunk, a million elements. */
static void large(struct fixture *c, uint64_t *seed)
{
    size_t count = slow_factor() > 1 ? 150001 : 1000003;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        for (int algo = 1; algo < ALGOS; algo++) {
            if (table[kind][algo] != YES || kind == BARRIER)
                continue;
            struct job job;
            size_t parts = kind == ALL_REDUCE || kind == BROADCAST || kind == REDUCE || kind == SCAN ||
                                   kind == EXCLUSIVE_SCAN
                               ? 1
                               : (size_t)c->size;
            job_init(&job, (enum kind)kind, c->size, count / parts);
            job.opts.algo = (enum hearth_algo)algo;
            job.dtype = draw(seed) & 1 ? HEARTH_F32 : HEARTH_BF16;
            draw_rest(&job, seed);
            job_do(&job, c);
        }
    }
}

TEST(test_large_buffers)
{
    uint64_t seed = 4;
    struct fixture c;
    fixture_open(&c, 4, NULL);
    large(&c, &seed);
    fixture_close(&c);
}

TEST(test_large_buffers_in_small_chunks)
{
    uint64_t seed = 5;
    struct fixture c;
    struct hearth_config config;
    config_small(&config);
    fixture_open(&c, 3, &config);
    large(&c, &seed);
    fixture_close(&c);
}

/* The interface asks for no alignment. */
TEST(test_buffers_at_odd_addresses)
{
    uint64_t seed = 6;
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        for (int dtype = 0; dtype < DTYPES; dtype++) {
            struct job job;
            job_init(&job, (enum kind)kind, c.size, 500);
            job.dtype = (enum hearth_dtype)dtype;
            draw_rest(&job, &seed);
            job.op = has_avg(job.kind) ? HEARTH_OP_AVG : HEARTH_OP_SUM;
            job.offset = 1 + draw_below(&seed, 7);
            job_do(&job, &c);
        }
    }
    fixture_close(&c);
}

/* The config's algorithm is taken where the collective has it, and only there. */
TEST(test_algorithm_of_the_config)
{
    uint64_t seed = 7;
    for (int algo = 0; algo < ALGOS; algo++) {
        struct fixture c;
        struct hearth_config config;
        struct hearth_tuning tuning;
        config_tuned(&config, &tuning);
        tuning.algo = (enum hearth_algo)algo;
        fixture_open(&c, 4, &config);
        for (int kind = 0; kind < KIND_COUNT; kind++) {
            struct job job;
            job_init(&job, (enum kind)kind, c.size, kind == BARRIER ? 0 : 321);
            draw_rest(&job, &seed);
            job_do(&job, &c);
        }
        fixture_close(&c);
    }
}

static void barrier_holds(struct fixture *c, int rank, void *arg)
{
    _Atomic(int) *entered = arg;
    struct hearth_opts opts = opts_default();
    const enum hearth_algo algos[] = {HEARTH_ALGO_AUTO, HEARTH_ALGO_HALVING, HEARTH_ALGO_TREE,
                                      HEARTH_ALGO_EXCHANGE};
    for (int round = 0; round < 40; round++) {
        opts.algo = algos[round % 4];
        if (rank == round % c->size)
            sleep_ms(1);
        (*entered)++;
        check_ok(hearth_barrier(c->world[rank], &opts));
        check(*entered >= (round + 1) * c->size, "rank %d left barrier %d before all had come", rank, round);
    }
}

TEST(test_barrier_waits_for_all)
{
    for (int s = 1; s < SIZES; s++) {
        _Atomic(int) entered = 0;
        fixture_once(sizes[s], NULL, barrier_holds, &entered);
    }
}

struct same {
    uint8_t bytes[MEMBERS_MAX];
    int status, who;
};

static void same_done(void *arg, int status)
{
    *(int *)arg = status;
}

static void same_member(struct fixture *c, int rank, void *arg)
{
    struct same *s = arg;
    struct hearth_opts opts = opts_default();
    int told = -7;
    opts.done = same_done;
    opts.done_arg = &told;
    opts.tag = 5;
    uint8_t buffer[3000] = {0};
    buffer[2999] = s->bytes[rank];
    int who = -7;
    check_status(hearth_group_same(c->world[rank], buffer, sizeof buffer, &opts, &who), s->status);
    check(told == s->status, "rank %d: the callback was told %d", rank, told);
    check(who == s->who, "rank %d: who is %d, not %d", rank, who, s->who);
    if (s->status == HEARTH_DIFFERS)
        check_status(hearth_group_same(c->world[rank], buffer, sizeof buffer, NULL, NULL), s->status);
    check_ok(hearth_group_same(c->world[rank], NULL, 0, NULL, &who));
    /* The same bytes, but not as many. */
    int wanted = c->size > 1 ? HEARTH_DIFFERS : HEARTH_OK;
    check_status(hearth_group_same(c->world[rank], "xxxxxxxxxxxxxxxx", 4 + (size_t)rank, NULL, NULL), wanted);
}

TEST(test_same_names_who_differs)
{
    struct {
        int size;
        struct same same;
    } cases[] = {
        {1, {{5}, HEARTH_OK, -7}},
        {2, {{5, 5}, HEARTH_OK, -7}},
        {2, {{5, 6}, HEARTH_DIFFERS, 1}}, /* a tie: the lower rank is right */
        {3, {{1, 2, 2}, HEARTH_DIFFERS, 0}},
        {3, {{1, 2, 3}, HEARTH_DIFFERS, 1}},
        {4, {{1, 1, 2, 2}, HEARTH_DIFFERS, 2}},
        {5, {{1, 2, 2, 3, 2}, HEARTH_DIFFERS, 0}},
        {8, {{9, 9, 9, 9, 9, 9, 9, 0}, HEARTH_DIFFERS, 7}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        fixture_once(cases[i].size, NULL, same_member, &cases[i].same);
}
