/* SPDX-License-Identifier: Apache-2.0 */
/* Closing nodes: in the middle of operations, in any order, early, with unfinished requests. */
#include <inttypes.h>
#include <stdatomic.h>

#include "conform/reference.h"

#define PATIENCE_MS 60000

static void close_own(struct fixture *c, int rank)
{
    hearth_node_close(c->nodes[rank]);
    c->nodes[rank] = NULL;
}

/* ---- while others are in an operation ---- */

struct leaving {
    enum hearth_algo algo;
    size_t count;
    int who;
};

static void leaving_member(struct fixture *c, int rank, void *arg)
{
    const struct leaving *l = arg;
    int32_t *x = must_alloc(l->count * sizeof *x);
    struct hearth_opts opts = opts_default();
    hearth_request *request = NULL;
    char who[32];
    memset(x, 0, l->count * sizeof *x);
    opts.algo = l->algo;
    opts.timeout_ms = PATIENCE_MS;
    snprintf(who, sizeof who, "rank %d", l->who);
    if (rank != l->who)
        check_ok(sum_in_place_nb(c->world[rank], x, l->count, &opts, &request));
    fixture_meet(c);
    if (rank == l->who) {
        close_own(c, rank);
    } else {
        check_status(hearth_request_wait(request, -1), HEARTH_PEER_LOST);
        check_text(hearth_request_error(request), who);
        check(hearth_request_error_reason(request) == HEARTH_REASON_PEER_LEFT, "because of %s",
              hearth_reason_name(hearth_request_error_reason(request)));
        hearth_request_close(request);
        for (int i = 0; i < 3; i++) {
            check_error(hearth_barrier(c->world[rank], NULL), HEARTH_GROUP_BROKEN, who);
            check(hearth_error_reason() == HEARTH_REASON_PEER_LEFT, "because of %s",
                  hearth_reason_name(hearth_error_reason()));
        }
        check_status(sum_in_place_nb(c->world[rank], x, 1, NULL, &request), HEARTH_GROUP_BROKEN);
        hearth_group *child = NULL;
        check_status(hearth_group_split(c->world[rank], 0, 0, NULL, &child), HEARTH_GROUP_BROKEN);
    }
    fixture_meet(c);
    free(x);
}

TEST(test_close_while_others_are_in_an_operation)
{
    const enum hearth_algo algos[] = {HEARTH_ALGO_EXCHANGE,    HEARTH_ALGO_RING,    HEARTH_ALGO_TREE,
                                      HEARTH_ALGO_STAR,        HEARTH_ALGO_HALVING, HEARTH_ALGO_DIRECT,
                                      HEARTH_ALGO_HIERARCHICAL};
    for (int i = 0; i < 7 * 4; i++) {
        struct leaving l = {algos[i % 7], i / 7 % 2 ? 300000 : 3, i % 3};
        fixture_once(i / 14 ? 4 : 3, NULL, leaving_member, &l);
    }
}

/* It took part, and leaves in the middle of its own operation. */
static void quitter_member(struct fixture *c, int rank, void *arg)
{
    const int *spin = arg;
    enum { COUNT = 400000 };
    int32_t *x = must_alloc(COUNT * sizeof *x);
    hearth_request *request = NULL;
    memset(x, 0, COUNT * sizeof *x);
    int status = sum_in_place_nb(c->world[rank], x, COUNT, NULL, &request);
    if (rank == 1) {
        for (int i = 0; i < *spin; i++)
            hearth_request_test(request);
        close_own(c, 1); /* with the request: it belongs to the node */
        memset(x, 0x55, COUNT * sizeof *x);
    } else {
        status = status == HEARTH_OK ? hearth_request_wait(request, -1) : status;
        check(status == HEARTH_PEER_LOST || status == HEARTH_OK || status == HEARTH_GROUP_BROKEN,
              "rank %d: %s: %s", rank, hearth_status_name(status), hearth_error_text());
        if (status != HEARTH_OK)
            check_text(hearth_error_text(), "rank 1");
    }
    fixture_meet(c);
    for (int i = 0; rank == 1 && i < COUNT; i++)
        if (x[i] != 0x55555555)
            check(false, "element %d was written after the close", i);
    free(x);
}

TEST(test_close_in_the_middle_of_ones_own_operation)
{
    for (int spin = 0; spin < 40; spin += 2)
        fixture_once(3, NULL, quitter_member, &spin);
}

/* ---- the end that everybody wants ---- */

static void ending_member(struct fixture *c, int rank, void *arg)
{
    uint64_t seed = *(const uint64_t *)arg;
    uint64_t own = seed * 10 + (uint64_t)rank;
    int operations = (int)draw_below(&seed, 40);
    int32_t x[600];
    for (int i = 0; i < operations; i++) { /* so that credit and acknowledgements are under way at the end */
        size_t count = 1 + draw_below(&seed, 600);
        memset(x, 0, sizeof x);
        check_ok(sum_in_place(c->world[rank], x, count, NULL));
    }
    struct hearth_opts opts = opts_default();
    const enum hearth_algo algos[] = {HEARTH_ALGO_AUTO, HEARTH_ALGO_HALVING, HEARTH_ALGO_TREE,
                                      HEARTH_ALGO_EXCHANGE};
    opts.algo = algos[draw_below(&seed, 4)];
    check_ok(hearth_barrier(c->world[rank], &opts));
    if (draw(&own) % 4 == 0)
        sleep_ms(1);
    close_own(c, rank);
}

TEST(test_members_close_after_a_barrier)
{
    for (uint64_t i = 0; i < 400; i++) {
        struct hearth_config config;
        config_small(&config);
        fixture_once(2 + (int)(i % 4), i % 2 ? &config : NULL, ending_member, &i);
    }
}

/* Whatever the last collective is, by whatever algorithm: who has its result may close, and must not disturb
 * those still at it or who have not begun it yet. */
static void last_member(struct fixture *c, int rank, void *arg)
{
    struct job *job = arg;
    if (job->seed % 3 == 0 && rank == (int)(job->seed / 3 % (uint64_t)job->size))
        sleep_ms(2);
    job->status[rank] = job_call(job, c->world[rank], rank);
    snprintf(job->text[rank], TEXT_MAX, "%s", hearth_error_text());
    close_own(c, rank);
}

TEST(test_close_after_every_kind_of_last_collective)
{
    const size_t counts[] = {1, 3, 3000, 70000};
    int repeats = getenv("HEARTH_TEST_SOAK") ? 200 : 8;
    for (int i = 0; i < repeats * KIND_COUNT * ALGOS; i++) {
        struct fixture c;
        struct job job;
        struct hearth_config config;
        int kind = i % KIND_COUNT, algo = i / KIND_COUNT % ALGOS, round = i / (KIND_COUNT * ALGOS);
        if (!kind_is_done_by((enum kind)kind, (enum hearth_algo)algo))
            continue;
        bool small = algo == HEARTH_ALGO_HALVING && kind != ALL_REDUCE;
        job_init(&job, (enum kind)kind, round % 2 ? 4 : 2, counts[(round + kind) % (small ? 2 : 4)]);
        job.dtype = HEARTH_I32;
        job.opts.algo = (enum hearth_algo)algo;
        job.seed = (uint64_t)(i + round);
        job.root = (int)job.seed % job.size;
        if (kind_is_vector(job.kind))
            job_draw_counts(&job);
        job_prepare(&job);
        config_small(&config);
        fixture_open(&c, job.size, round / 2 % 2 ? &config : NULL);
        fixture_run(&c, last_member, &job);
        job_check(&job);
        fixture_close(&c);
        job_free(&job);
    }
}

/* One member only gives: it is done when its bytes have left, and closes while the others still take them. */
static void giving_member(struct fixture *c, int rank, void *arg)
{
    struct job *job = arg;
    hearth_request *request = NULL;
    bool gives = rank == (job->kind == REDUCE || job->kind == GATHER ? 1 : 0);
    if (!gives)
        check_ok(job_start(job, c->world[rank], rank, &request));
    fixture_meet(c);
    job->status[rank] = gives ? job_call(job, c->world[rank], rank) : hearth_request_wait(request, -1);
    snprintf(job->text[rank], TEXT_MAX, "%s", hearth_error_text());
    if (gives)
        close_own(c, rank);
}

TEST(test_giver_closes_while_others_take)
{
    const enum kind kinds[] = {BROADCAST, SCATTER, REDUCE, GATHER, SCAN};
    const size_t counts[] = {3000, 15000, 40000, 300000};
    uint64_t seed = 5;
    for (int i = 0; i < 400; i++) {
        struct fixture c;
        struct job job;
        struct hearth_config config;
        struct hearth_tuning tuning;
        config_tuned(&config, &tuning);
        tuning.chunk_bytes = draw_below(&seed, 3) > 0 ? 16384 : tuning.chunk_bytes;
        tuning.eager_bytes = draw_below(&seed, 2) > 0 ? 16384 : tuning.eager_bytes;
        job_init(&job, kinds[i % 5], 2 + (int)draw_below(&seed, 2), counts[draw_below(&seed, 4)]);
        job.opts.algo = job.kind == SCAN ? HEARTH_ALGO_RING : HEARTH_ALGO_AUTO; /* rank 0 needs nobody */
        job.dtype = HEARTH_I32;
        job_prepare(&job);
        fixture_open(&c, job.size, &config);
        fixture_run(&c, giving_member, &job);
        job_check(&job);
        fixture_close(&c);
        job_free(&job);
    }
}

/* ---- requests, groups and callbacks that are left ---- */

struct heard {
    _Atomic(int) runs;
    int wanted;
};

static void count_run(void *arg, int status)
{
    struct heard *h = arg;
    check(status == h->wanted, "the callback heard %s", hearth_status_name(status));
    h->runs++;
}

TEST(test_close_with_what_is_left)
{
    enum { LEFT = 50 };
    for (int i = 0; i < 10; i++) {
        struct fixture c;
        hearth_request *requests[LEFT];
        struct heard heard = {.wanted = i % 2 ? HEARTH_PEER_LOST : HEARTH_CLOSED};
        int32_t x[LEFT] = {0};
        struct hearth_opts opts = opts_default();
        fixture_open(&c, 2, NULL);
        hearth_request *gather[2];
        for (int r = 0; r < 2; r++) /* finished, not freed */
            check_ok(hearth_barrier_nb(c.world[r], NULL, &gather[r]));
        check_ok(hearth_request_wait_all(gather, 2, -1));
        opts.done = count_run;
        opts.done_arg = &heard;
        for (int k = 0; k < LEFT; k++) {
            opts.tag = (uint64_t)k;
            check_ok(sum_in_place_nb(c.world[0], &x[k], 1, &opts, &requests[k]));
        }
        check(hearth_request_fd(requests[0]) >= 0, "no descriptor");
        close_own(&c, i % 2); /* the one that waits, or the one that is waited for */
        for (int k = 0; i % 2 && k < LEFT; k++)
            check_status(hearth_request_wait(requests[k], -1), HEARTH_PEER_LOST);
        check(heard.runs == LEFT, "%d of %d callbacks have run", heard.runs, LEFT);
        check_status(hearth_barrier(c.world[1 - i % 2], NULL), HEARTH_GROUP_BROKEN);
        fixture_close(&c);
    }
}

/* Groups that were split off are closed with their node; those of others break only if they had the node. */
static void groups_member(struct fixture *c, int rank, void *arg)
{
    hearth_group *pair = NULL, *all = NULL;
    int32_t x = 1, sum = 0;
    check_ok(hearth_group_split(c->world[rank], rank / 2, 0, NULL, &pair));
    check_ok(hearth_group_split(c->world[rank], 0, 0, NULL, &all));
    fixture_meet(c);
    if (rank == 3) {
        close_own(c, 3);
        fixture_meet(c);
        return;
    }
    fixture_meet(c);
    check_status(hearth_barrier(c->world[rank], NULL), HEARTH_GROUP_BROKEN);
    check_status(hearth_barrier(all, NULL), HEARTH_GROUP_BROKEN);
    if (rank == 2) {
        check_status(hearth_barrier(pair, NULL), HEARTH_GROUP_BROKEN);
        check_text(hearth_error_text(), "rank 1"); /* its rank in that group */
        return;
    }
    check_ok(hearth_all_reduce(pair, &x, &sum, 1, HEARTH_I32, HEARTH_OP_SUM, NULL));
    check(sum == 2, "rank %d: sum is %d", rank, sum);
}

TEST(test_groups_of_a_node_that_closed)
{
    for (int i = 0; i < 10; i++)
        fixture_once(4, NULL, groups_member, NULL);
}

/* ---- several nodes go ---- */

TEST(test_nodes_close_one_after_the_other)
{
    const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct fixture c;
        int32_t x = 1;
        fixture_open(&c, 4, NULL);
        for (int k = 0; k < 4; k++) {
            close_own(&c, orders[i][k]);
            for (int r = 0; r < 4; r++)
                if (c.nodes[r])
                    check_status(sum_in_place(c.world[r], &x, 1, NULL), HEARTH_GROUP_BROKEN);
        }
        fixture_close(&c);
    }
}

static void all_at_once(struct fixture *c, int rank, void *arg)
{
    hearth_request *request;
    int32_t x[100] = {0};
    check_ok(sum_in_place_nb(c->world[rank], x, 100, NULL, &request));
    fixture_meet(c);
    close_own(c, rank);
}

TEST(test_all_nodes_close_at_once)
{
    for (int i = 0; i < 50; i++)
        fixture_once(2 + i % 4, NULL, all_at_once, NULL);
}

/* Other clusters of the process do not notice. */
TEST(test_clusters_side_by_side)
{
    struct fixture a, b;
    fixture_open(&a, 3, NULL);
    fixture_open(&b, 2, NULL);
    fixture_works(&a);
    close_own(&a, 1);
    fixture_works(&b);
    fixture_close(&a);
    fixture_works(&b);
    fixture_close(&b);
}
