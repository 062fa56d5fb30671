/* SPDX-License-Identifier: Apache-2.0 */
/* Members adopt another ring order: all or nobody, whatever goes wrong, and every collective is right in any
 * order. Without the machinery that measures: rank 0 proposes what the test draws. */
#include "conform/cluster_group.h"
#include "conform/reference.h"
#include "node/adapt.h"

/* What each member of a round is told to do, and what came of it. */
struct round {
    struct ring_order wanted, adopted[MEMBERS_MAX];
    int status[MEMBERS_MAX];
    char text[MEMBERS_MAX][TEXT_MAX];
    int odd; /* the rank that does something else, or -1 */
};

static void adapt(struct round *round, hearth_group *group, int rank)
{
    struct error error = {.status = HEARTH_OK};
    round->adopted[rank].size = -1;
    round->status[rank] =
        adapt_together(group, rank == 0 ? &round->wanted : NULL, -1, &round->adopted[rank], &error);
    snprintf(round->text[rank], TEXT_MAX, "%s", error.text);
}

static void adapt_member(struct fixture *c, int rank, void *arg)
{
    adapt(arg, c->world[rank], rank);
}

/* Any order; of its places the first `near` are one site. */
static void draw_ring_order(struct ring_order *a, int size, int near, uint64_t *seed)
{
    *a = (struct ring_order){.size = size,
                             .sites = near < size ? 2 : 1,
                             .inside_mbit_x10 = 10000,
                             .across_mbit_x10 = 1000,
                             .inside_us = 200,
                             .across_us = 3000};
    for (int i = 0; i < size; i++) {
        int k = (int)draw_below(seed, (uint64_t)i + 1);
        a->order[i] = a->order[k];
        a->order[k] = i;
        a->site[i] = i >= near;
    }
}

static void check_all(const struct round *round, int size, int status)
{
    for (int r = 0; r < size; r++)
        check(round->status[r] == status, "rank %d: %s: %s", r, hearth_status_name(round->status[r]),
              round->text[r]);
}

/* ---- collectives ---- */

static void run_types(struct fixture *c, uint64_t *seed)
{
    for (int dtype = 0; dtype < DTYPES; dtype++)
        for (int op = 0; op < OPS && op_exists((enum hearth_op)op, (enum hearth_dtype)dtype); op++) {
            struct job job;
            job_init(&job, ALL_REDUCE, c->size, (size_t)draw_below(seed, 3000));
            job.opts.algo = HEARTH_ALGO_RING;
            job.dtype = (enum hearth_dtype)dtype;
            job.op = (enum hearth_op)op;
            job.seed = draw_below(seed, 1u << 30);
            job.in_place = draw(seed) & 1;
            job.values = WHOLE;
            job_do(&job, c);
        }
}

static void run_kinds(struct fixture *c, enum hearth_algo algo, uint64_t *seed)
{
    static const enum kind kinds[] = {ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, SCAN};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct job job;
        job_init(&job, kinds[i], c->size, (size_t)draw_below(seed, 3000));
        job.opts.algo = algo;
        job.root = (int)draw_below(seed, (uint64_t)c->size);
        job.seed = draw_below(seed, 1u << 30);
        job.values = ANY;
        job_do(&job, c);
    }
}

TEST(test_every_type_in_any_order)
{
    static struct round round;
    uint64_t seed = 5;
    for (int size = 2; size <= MEMBERS_USUAL; size++) {
        struct fixture c;
        struct hearth_config config;
        config_small(&config);
        fixture_open(&c, size, size % 2 != 0 ? &config : NULL);
        for (int again = 0; again < 3; again++) {
            draw_ring_order(&round.wanted, size, 1 + (int)draw_below(&seed, (uint64_t)size), &seed);
            fixture_run(&c, adapt_member, &round);
            check_all(&round, size, HEARTH_OK);
            checks_end();
            for (int r = 0; r < size; r++)
                assert_memory_equal(&round.adopted[r], &round.wanted, sizeof round.wanted);
            run_kinds(&c, HEARTH_ALGO_RING, &seed);
            run_kinds(&c, HEARTH_ALGO_AUTO, &seed);
        }
        run_types(&c, &seed);
        fixture_close(&c);
    }
}

/* ---- what it changes ---- */

TEST(test_maps_and_costs)
{
    static struct round round;
    struct fixture c;
    fixture_open(&c, 4, NULL);
    const struct group_view *view = group_view(c.world[2]->group);
    struct link_cost across = view->across;
    round.wanted = (struct ring_order){.size = 4,
                                       .sites = 2,
                                       .order = {1, 3, 2, 0},
                                       .site = {0, 0, 1, 1},
                                       .inside_mbit_x10 = 10000,
                                       .across_mbit_x10 = 1000,
                                       .inside_us = 200,
                                       .across_us = 3000};
    fixture_run(&c, adapt_member, &round);
    check_all(&round, 4, HEARTH_OK);
    assert_memory_equal(view->order, round.wanted.order, 4 * sizeof(int));
    assert_true(view->host[1] == view->host[3] && view->host[0] == view->host[2]);
    assert_true(view->host[0] != view->host[1] && view->site[0] != view->site[1]);
    assert_int_equal(view->port_sharers, 2);
    assert_true(view->across.bytes_per_s < view->inside.bytes_per_s && view->across.alpha_s > 1e-3);
    round.wanted = (struct ring_order){.size = 4, .sites = 1, .order = {2, 3, 0, 1}};
    fixture_run(&c, adapt_member, &round);
    check_all(&round, 4, HEARTH_OK);
    assert_null(view->order); /* round as ranks do */
    assert_true(view->host[0] == view->host[1] && view->site[0] == view->site[1]);
    assert_true(view->across.bytes_per_s == across.bytes_per_s); /* nothing measured: as it was */
    round.wanted = (struct ring_order){.size = 0};
    fixture_run(&c, adapt_member, &round);
    check_all(&round, 4, HEARTH_OK);
    fixture_works(&c);
    fixture_close(&c);
}

/* A group that is split off goes round as its parent does, and adopts by itself; two levels follow sites. */
static void child_member(struct fixture *c, int rank, void *arg)
{
    struct round *round = arg;
    hearth_group *child = NULL;
    struct hearth_opts opts = opts_default();
    float x[1000], e[1000] = {0};
    adapt(round, c->world[rank], rank);
    check_ok(hearth_group_split(c->world[rank], rank == 4 ? -1 : 0, -rank, NULL, &child));
    opts.algo = HEARTH_ALGO_HIERARCHICAL;
    for (int i = 0; i < 1000; i++)
        x[i] = 1;
    check_ok(
        hearth_all_reduce_compressed(c->world[rank], x, 1000, HEARTH_F32, HEARTH_OP_SUM, "int8", e, &opts));
    check(x[7] > 4.9f && x[7] < 5.1f, "rank %d: %g", rank, (double)x[7]);
    if (!child)
        return;
    static const int order[] = {2, 0, 3, 1}; /* parent's ranks 1 3 0 2, as the child counts them */
    const struct group_view *view = group_view(child->group);
    check(view->order && memcmp(view->order, order, sizeof order) == 0, "rank %d: another order", rank);
    int32_t sum = -1, one = 1;
    opts.algo = HEARTH_ALGO_RING;
    check_ok(hearth_all_reduce(child, &one, &sum, 1, HEARTH_I32, HEARTH_OP_SUM, &opts));
    check(sum == 4, "rank %d: %d", rank, sum);
    hearth_group_close(child);
}

TEST(test_children_follow)
{
    static struct round round;
    struct fixture c;
    fixture_open(&c, 5, NULL);
    round.wanted = (struct ring_order){
        .size = 5, .sites = 2, .order = {1, 4, 3, 0, 2}, .site = {0, 0, 0, 1, 1}, .across_mbit_x10 = 1000};
    fixture_run(&c, child_member, &round);
    check_all(&round, 5, HEARTH_OK);
    fixture_works(&c);
    fixture_close(&c);
}

/* ---- what goes wrong ---- */

static void busy_member(struct fixture *c, int rank, void *arg)
{
    struct round *round = arg;
    hearth_request *request = NULL;
    struct hearth_opts opts = opts_default();
    int32_t one = 1, sum = -1;
    opts.tag = 9;
    if (rank == round->odd)
        check_ok(
            hearth_all_reduce_nb(c->world[rank], &one, &sum, 1, HEARTH_I32, HEARTH_OP_SUM, &opts, &request));
    adapt(round, c->world[rank], rank);
    if (rank == round->odd) {
        check_ok(hearth_request_wait(request, -1));
        hearth_request_close(request);
    } else {
        check_ok(hearth_all_reduce(c->world[rank], &one, &sum, 1, HEARTH_I32, HEARTH_OP_SUM, &opts));
    }
    check(sum == c->size, "rank %d: %d", rank, sum);
}

TEST(test_an_operation_in_flight)
{
    static struct round round;
    struct fixture c;
    uint64_t seed = 3;
    fixture_open(&c, 3, NULL);
    for (int odd = 0; odd < 3; odd++) {
        round.odd = odd;
        draw_ring_order(&round.wanted, 3, 1, &seed);
        fixture_run(&c, busy_member, &round);
        for (int r = 0; r < 3; r++) {
            check(round.status[r] == (r == odd ? HEARTH_INVALID : HEARTH_ABORTED), "rank %d: %s: %s", r,
                  hearth_status_name(round.status[r]), round.text[r]);
            check_text(round.text[r], "in flight");
            check(!group_view(c.world[r]->group)->order, "rank %d has adopted it", r);
        }
        checks_end();
    }
    fixture_run(&c, adapt_member, &round);
    check_all(&round, 3, HEARTH_OK);
    fixture_works(&c);
    fixture_close(&c);
}

TEST(test_a_wrong_record)
{
    static struct round round;
    struct fixture c;
    fixture_open(&c, 3, NULL);
    round.wanted = (struct ring_order){.size = 3, .sites = 1, .order = {0, 2, 2}};
    fixture_run(&c, adapt_member, &round);
    check_all(&round, 3, HEARTH_PROTOCOL);
    round.wanted = (struct ring_order){.size = 2, .sites = 1, .order = {1, 0}};
    fixture_run(&c, adapt_member, &round);
    check_all(&round, 3, HEARTH_PROTOCOL);
    checks_end();
    for (int r = 0; r < 3; r++)
        assert_null(group_view(c.world[r]->group)->order);
    fixture_works(&c);
    fixture_close(&c);
}

/* ---- a member that is lost ---- */

static void lost_member(struct cluster_group *f, int member, void *arg)
{
    struct round *round = arg;
    if (member == round->odd)
        cluster_group_leave(f, member);
    else
        adapt(round, cluster_group_world(f, member), member);
}

/* Whoever it is and whenever it goes: nobody hangs, and the group is over for all who are left. */
TEST(test_a_member_is_lost)
{
    static struct round round;
    struct cluster_group f;
    uint64_t seed = 4;
    cluster_group_open(&f);
    for (int odd = 0; odd < 3; odd++) {
        cluster_group_group(&f, (const int[]){0, 1, 2}, 3);
        round.odd = odd;
        draw_ring_order(&round.wanted, 3, 1, &seed);
        cluster_group_run(&f, lost_member, &round);
        for (int r = 0; r < 3; r++)
            if (r != odd)
                check(round.status[r] == HEARTH_VIEW_CHANGED, "rank %d: %s: %s", r,
                      hearth_status_name(round.status[r]), round.text[r]);
        checks_end();
    }
    cluster_group_close(&f);
}

/* ---- the public call, where nothing is formed ---- */

static void plain_member(struct fixture *c, int rank, void *arg)
{
    check_ok(hearth_group_adapt(c->world[rank], NULL));
    check(!group_view(c->world[rank]->group)->order, "rank %d has an order", rank);
}

TEST(test_a_group_that_was_not_formed)
{
    struct fixture c;
    fixture_open(&c, 2, NULL);
    fixture_run(&c, plain_member, NULL);
    assert_int_equal(hearth_group_adapt(NULL, NULL), HEARTH_INVALID);
    struct hearth_opts opts = opts_default();
    opts.timeout_ms = -2;
    assert_int_equal(hearth_group_adapt(c.world[0], &opts), HEARTH_INVALID);
    fixture_close(&c);
}
