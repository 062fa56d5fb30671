/* SPDX-License-Identifier: Apache-2.0 */
/* Tags and groups: operations in different order, side by side, thousands after each other. */
#include <inttypes.h>

#include "conform/reference.h"
#include "node/node.h"

/* ---- different order under different tags ---- */

struct mix {
    int operations;
    size_t small, large; /* elements */
    bool backwards;      /* odd ranks in exactly the other order, else everyone in an order of its own */
    uint64_t seed;
};

static size_t mix_count(const struct mix *m, int i)
{
    return i % 3 == 0 ? m->large : m->small;
}

static void mix_order(const struct mix *m, int rank, int *order)
{
    uint64_t seed = m->seed + (uint64_t)rank;
    for (int i = 0; i < m->operations; i++)
        order[i] = m->backwards && rank % 2 ? m->operations - 1 - i : i;
    for (int i = m->operations - 1; !m->backwards && i > 0; i--) {
        int k = (int)draw_below(&seed, (uint64_t)i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

static void mix_member(struct fixture *c, int rank, void *arg)
{
    const struct mix *m = arg;
    int *order = must_alloc((size_t)m->operations * sizeof *order);
    int32_t **x = must_alloc((size_t)m->operations * sizeof *x);
    hearth_request **requests = must_alloc((size_t)m->operations * sizeof *requests);
    mix_order(m, rank, order);
    for (int i = 0; i < m->operations; i++) {
        int at = order[i];
        struct hearth_opts opts = opts_default();
        size_t count = mix_count(m, at);
        opts.tag = UINT64_C(0xffffffff00000000) + (uint64_t)at; /* tags have 64 bits */
        x[at] = must_alloc(count * sizeof(int32_t));
        for (size_t k = 0; k < count; k++)
            x[at][k] = rank + at + (int32_t)(k % 1000);
        check_ok(sum_in_place_nb(c->world[rank], x[at], count, &opts, &requests[at]));
    }
    check_ok(hearth_request_wait_all(requests, (size_t)m->operations, -1));
    for (int i = 0; i < m->operations; i++) {
        for (size_t k = 0; k < mix_count(m, i); k++)
            if (x[i][k] != c->size * (i + (int32_t)(k % 1000)) + c->size * (c->size - 1) / 2)
                check(false, "rank %d, operation %d: element %zu is %d", rank, i, k, x[i][k]);
        hearth_request_close(requests[i]);
        free(x[i]);
    }
    free(order);
    free(x);
    free(requests);
}

/* Each operation may hold its window, beside what the eager budget lets come before. */
static void check_memory(struct fixture *c, const struct hearth_config *config, const struct mix *m)
{
    for (int i = 0; i < c->size; i++) {
        uint64_t peak = metric(c->nodes[i], "hearth_memory_peak_bytes");
        uint64_t each = tuning_of(config)->window_bytes * 2 + 16384;
        uint64_t bound = (uint64_t)m->operations * each +
                         (uint64_t)c->size * tuning_of(config)->eager_bytes * 2 + (4u << 20);
        check(peak <= bound, "node %d had %" PRIu64 " bytes, more than %" PRIu64, i, peak, bound);
    }
}

static void run_mix(int size, bool small, const struct mix *m)
{
    struct fixture c;
    struct hearth_config config;
    hearth_config_init(&config);
    if (small)
        config_small(&config);
    fixture_open(&c, size, &config);
    for (int i = 0; i < 3; i++) {
        struct mix again = *m;
        again.seed += (uint64_t)i * 100;
        fixture_run(&c, mix_member, &again);
    }
    check_memory(&c, &config, m);
    fixture_works(&c);
    fixture_close(&c);
}

TEST(test_different_order_on_two)
{
    run_mix(2, false, &(struct mix){.operations = 40, .small = 3, .large = 300000, .backwards = true});
    run_mix(2, true, &(struct mix){.operations = 100, .small = 300, .large = 20000, .backwards = true});
    run_mix(2, true, &(struct mix){.operations = 100, .small = 300, .large = 20000, .seed = 1});
    run_mix(2, true, &(struct mix){.operations = 300, .small = 1000, .large = 1000, .seed = 2});
}

TEST(test_different_order_on_four)
{
    run_mix(4, false, &(struct mix){.operations = 30, .small = 3, .large = 300000, .backwards = true});
    run_mix(4, true, &(struct mix){.operations = 60, .small = 300, .large = 20000, .backwards = true});
    run_mix(4, true, &(struct mix){.operations = 60, .small = 300, .large = 20000, .seed = 3});
    run_mix(4, true, &(struct mix){.operations = 200, .small = 1000, .large = 1000, .seed = 4});
}

/* Every collective at once, each under a tag of its own, each member in its own order. */
static void zoo_member(struct fixture *c, int rank, void *arg)
{
    struct job *jobs = arg;
    hearth_request *requests[KIND_COUNT];
    struct mix order_of = {.operations = KIND_COUNT, .seed = 77};
    int order[KIND_COUNT];
    mix_order(&order_of, rank, order);
    for (int i = 0; i < KIND_COUNT; i++)
        check_ok(job_start(&jobs[order[i]], c->world[rank], rank, &requests[order[i]]));
    for (int i = 0; i < KIND_COUNT; i++) {
        jobs[i].status[rank] = hearth_request_wait(requests[i], -1);
        hearth_request_close(requests[i]);
    }
}

TEST(test_every_collective_side_by_side)
{
    static struct job jobs[KIND_COUNT];
    for (int size = 2; size <= 5; size++) {
        struct fixture c;
        struct hearth_config config;
        config_small(&config);
        fixture_open(&c, size, size % 2 ? NULL : &config);
        for (int i = 0; i < KIND_COUNT; i++) {
            job_init(&jobs[i], (enum kind)i, size, i == BARRIER ? 0 : 20000);
            jobs[i].opts.tag = (uint64_t)i;
            jobs[i].dtype = HEARTH_I32;
            jobs[i].root = i % size;
            job_prepare(&jobs[i]);
        }
        fixture_run(&c, zoo_member, jobs);
        for (int i = 0; i < KIND_COUNT; i++) {
            job_check(&jobs[i]);
            job_free(&jobs[i]);
        }
        fixture_close(&c);
    }
}

/* ---- groups ---- */

static int32_t sum_on(hearth_group *group, int32_t x, uint64_t tag)
{
    struct hearth_opts opts = opts_default();
    int32_t sum = -1;
    opts.tag = tag;
    check_ok(hearth_all_reduce(group, &x, &sum, 1, HEARTH_I32, HEARTH_OP_SUM, &opts));
    return sum;
}

static void split_member(struct fixture *c, int rank, void *arg)
{
    hearth_group *half = NULL, *reversed = NULL, *none = c->world[rank], *nested = NULL;
    hearth_group *w = c->world[rank];
    check_ok(hearth_group_split(w, rank % 2, 0, NULL, &half));
    check(hearth_group_size(half) == 2 && hearth_group_rank(half) == rank / 2, "rank %d: %d of %d", rank,
          hearth_group_rank(half), hearth_group_size(half));
    check_ok(hearth_barrier(half, NULL));
    check(sum_on(half, rank, 0) == (rank % 2 ? 4 : 2), "rank %d: wrong sum of a half", rank);

    check_ok(hearth_group_split(w, 7, -rank, NULL, &reversed)); /* ordered by key */
    check(hearth_group_rank(reversed) == 3 - rank, "rank %d is %d backwards", rank,
          hearth_group_rank(reversed));
    int32_t x = rank;
    check_ok(hearth_broadcast(reversed, &x, 1, HEARTH_I32, 0, NULL));
    check(x == 3, "rank %d: the first backwards is %d", rank, x);

    check_ok(hearth_group_split(w, rank == 2 ? -1 : 0, 0, NULL, &none));
    check((!none) == (rank == 2), "rank %d: a negative color is no member", rank);
    if (none)
        check(hearth_group_size(none) == 3 && sum_on(none, rank, 0) == 4, "rank %d: wrong sum of three",
              rank);

    check_ok(hearth_group_split(reversed, hearth_group_rank(reversed) / 2, 0, NULL, &nested));
    check(hearth_group_size(nested) == 2 && sum_on(nested, rank, 5) == (rank < 2 ? 1 : 5), "rank %d: nested",
          rank);
    hearth_group *alone = NULL;
    check_ok(hearth_group_split(nested, hearth_group_rank(nested), 0, NULL, &alone));
    check(hearth_group_size(alone) == 1 && sum_on(alone, rank, 0) == rank, "rank %d: alone", rank);
    check_ok(hearth_barrier(alone, NULL));

    hearth_group_close(nested); /* before its child, in any order */
    check(sum_on(alone, rank, 0) == rank, "rank %d: the child does not need its parent", rank);
    hearth_group_close(alone);
    hearth_group_close(none);
    hearth_group_close(half);
    check(sum_on(reversed, 1, 0) == 4 && sum_on(w, 1, 0) == 4, "rank %d: the others go on", rank);
    hearth_group_close(reversed);
    hearth_group_close(NULL);
    hearth_group_close(w); /* a world is left to its node */
    check(sum_on(w, 1, 0) == 4, "rank %d: the world was closed", rank);
}

TEST(test_split)
{
    struct fixture c;
    fixture_open(&c, 4, NULL);
    uint64_t before = 0;
    for (int i = 0; i < 40; i++) {
        fixture_run(&c, split_member, NULL);
        before = i == 9 ? cluster_memory(&c) : before;
    }
    uint64_t after = cluster_memory(&c);
    print_message("memory of four nodes: %" PRIu64 " bytes, later %" PRIu64 "\n", before, after);
    assert_true(after <= before + before / 50);
    fixture_close(&c);
}

/* Keys and colors of any size. */
static void odd_colors(struct fixture *c, int rank, void *arg)
{
    const int colors[] = {INT32_MAX, INT32_MAX, 0, INT32_MIN};
    const int keys[] = {INT32_MAX, INT32_MIN, 0, 0};
    hearth_group *group = NULL;
    check_ok(hearth_group_split(c->world[rank], colors[rank], keys[rank], NULL, &group));
    check((!group) == (rank == 3), "rank %d", rank);
    if (rank < 2)
        check(hearth_group_rank(group) == 1 - rank, "rank %d is %d", rank, hearth_group_rank(group));
    hearth_group_close(group);
    /* In a split the colors may differ, the options of the collective in it not. */
    struct hearth_opts opts = opts_default();
    opts.tag = 12345;
    check_ok(hearth_group_split(c->world[rank], 1, 0, &opts, &group));
    hearth_group_close(group);
}

TEST(test_colors_and_keys_of_any_size)
{
    fixture_once(4, NULL, odd_colors, NULL);
}

/* Parent, two kinds of children and a grandchild at work at once, all under the same tags and sequences:
 * values say whose they are. */
enum { GROUPS = 4, ROUNDS = 30, LEN = 5000 };

static void crosstalk_member(struct fixture *c, int rank, void *arg)
{
    hearth_group *g[GROUPS] = {c->world[rank]};
    check_ok(hearth_group_split(g[0], rank % 2, 0, NULL, &g[1]));
    check_ok(hearth_group_split(g[0], rank / 2, 0, NULL, &g[2]));
    check_ok(hearth_group_split(g[1], 0, -rank, NULL, &g[3]));
    int32_t(*x)[LEN] = must_alloc(GROUPS * sizeof *x);
    uint64_t seed = (uint64_t)rank;
    for (int round = 0; round < ROUNDS; round++) {
        hearth_request *requests[GROUPS];
        int first = (int)draw_below(&seed, GROUPS);
        size_t count = round % 2 ? LEN : 3;
        for (int i = 0; i < GROUPS; i++) {
            int at = (first + i) % GROUPS;
            struct hearth_opts opts = opts_default();
            opts.tag = (uint64_t)(round % 3);
            for (size_t k = 0; k < count; k++)
                x[at][k] = (at + 1) * 1000000 + round * 1000 + hearth_group_rank(g[at]);
            check_ok(hearth_all_reduce_nb(g[at], x[at], x[at], count, HEARTH_I32, HEARTH_OP_MAX, &opts,
                                          &requests[at]));
        }
        check_ok(hearth_request_wait_all(requests, GROUPS, -1));
        for (int i = 0; i < GROUPS; i++) {
            int32_t wanted = (i + 1) * 1000000 + round * 1000 + hearth_group_size(g[i]) - 1;
            for (size_t k = 0; k < count; k++)
                if (x[i][k] != wanted)
                    check(false, "rank %d, group %d, round %d: %d, not %d", rank, i, round, x[i][k], wanted);
            hearth_request_close(requests[i]);
        }
    }
    for (int i = 1; i < GROUPS; i++)
        hearth_group_close(g[i]);
    free(x);
}

TEST(test_groups_do_not_hear_each_other)
{
    for (int size = 2; size <= 6; size += 2)
        fixture_often(1, size, NULL, crosstalk_member, NULL);
}

/* The first operations on a new group, while others have not made it yet: data, aborts, disagreement. */
static void young_member(struct fixture *c, int rank, void *arg)
{
    const int *round = arg;
    hearth_group *group = NULL;
    hearth_request *request = NULL;
    struct hearth_opts opts = opts_default();
    int32_t x[4] = {1, 1, 1, 1};
    opts.timeout_ms = 60000;
    check_ok(hearth_group_split(c->world[rank], 1, 0, NULL, &group));
    opts.tag = 1;
    if (rank == *round % c->size) { /* at once, and away again */
        check_ok(sum_in_place_nb(group, x, 1, &opts, &request));
        check_ok(hearth_request_cancel(request));
        int status = hearth_request_test(request);
        check(status == HEARTH_CANCELLED || status == HEARTH_OK, "rank %d: %s", rank,
              hearth_status_name(status));
        hearth_request_close(request);
    } else {
        int status = sum_in_place(group, x, 1, &opts);
        check(status == HEARTH_ABORTED || status == HEARTH_OK, "rank %d: %s: %s", rank,
              hearth_status_name(status), hearth_error_text());
    }
    opts.tag = 2;
    size_t count = rank == (*round + 1) % c->size ? 3 : 2;
    check_status(sum_in_place(group, x, count, &opts), HEARTH_MISMATCH);
    check_ok(hearth_barrier(group, NULL));
    hearth_group_close(group);
}

TEST(test_a_group_at_its_beginning)
{
    struct fixture c;
    fixture_open(&c, 3, NULL);
    for (int i = 0; i < 300 / slow_factor(); i++)
        fixture_run(&c, young_member, &i);
    fixture_works(&c);
    fixture_close(&c);
}

/* ---- thousands on one tag ---- */

/* More than 16 bits can count, in a row under one tag, all checked. */
enum { CONSECUTIVE = 70000, AHEAD = 24 }; /* no divisor of 65,536: a round straddles it */

static int32_t consecutive_value(int number, int rank)
{
    return number + rank;
}

static hearth_request *consecutive_start(hearth_group *group, int32_t *x, int number)
{
    struct hearth_opts opts = opts_default();
    hearth_request *request = NULL;
    opts.tag = 3;
    *x = consecutive_value(number, hearth_group_rank(group));
    check_ok(sum_in_place_nb(group, x, 1, &opts, &request));
    return request;
}

static void consecutive_end(hearth_group *group, hearth_request *request, const int32_t *sum, int number)
{
    int32_t wanted = 0;
    check_ok(hearth_request_wait(request, -1));
    for (int r = 0; r < hearth_group_size(group); r++)
        wanted += consecutive_value(number, r);
    if (*sum != wanted)
        check(false, "rank %d: operation %d gives %d", hearth_group_rank(group), number, *sum);
    hearth_request_close(request);
}

static void consecutive_member(struct fixture *c, int rank, void *arg)
{
    hearth_group *g = c->world[rank];
    hearth_request *requests[AHEAD];
    int32_t x[AHEAD];
    for (int first = 0; first < CONSECUTIVE && !checks_failed(); first += AHEAD) {
        /* The round in which the number passes 2^16: rank 0 is on the other side before rank 1 begins. */
        bool passes = first < 65536 && first + AHEAD > 65536;
        if (passes && rank != 0)
            fixture_meet(c);
        for (int i = 0; i < AHEAD; i++)
            requests[i] = consecutive_start(g, &x[i], first + i);
        if (passes && rank == 0)
            fixture_meet(c);
        for (int i = 0; i < AHEAD; i++)
            consecutive_end(g, requests[i], &x[i], first + i);
    }
}

TEST(test_seventy_thousand_under_one_tag)
{
    fixture_often(1, 2, NULL, consecutive_member, NULL);
}

/* As many tags as there may be, then one more. */
static void tags_member(struct fixture *c, int rank, void *arg)
{
    struct hearth_opts opts = opts_default();
    int32_t x = 1;
    for (uint64_t tag = 0; tag < 65536 && !checks_failed(); tag++) {
        opts.tag = tag * UINT64_C(0x100000001);
        check_ok(hearth_all_reduce(c->world[rank], &x, &x, 1, HEARTH_I32, HEARTH_OP_MAX, &opts));
    }
    opts.tag = 1;
    check_status(hearth_all_reduce(c->world[rank], &x, &x, 1, HEARTH_I32, HEARTH_OP_MAX, &opts),
                 HEARTH_LIMIT);
    check_text(hearth_error_text(), "65536 tags");
    opts.tag = 0;
    check_ok(hearth_all_reduce(c->world[rank], &x, &x, 1, HEARTH_I32, HEARTH_OP_MAX, &opts));
}

TEST(test_tags_are_limited)
{
    fixture_once(1, NULL, tags_member, NULL);
}
