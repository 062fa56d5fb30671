/* SPDX-License-Identifier: Apache-2.0 */
/* Members call different things: all are told the same, nobody hangs, the group goes on.
 *
 * Not here: members with different chunking. Nodes of one process share a config, so they cannot disagree. */
#include <inttypes.h>

#include "conform/reference.h"

/* Deadlines that turn a hang into a failed check with a name. */
#define PATIENCE_MS 40000

/* What the odd member and the others call. */
struct difference {
    const char *name;
    const char *how; /* must be in the text */
    struct job most, odd;
    int who; /* the odd one */
    int status[MEMBERS_MAX];
    char text[MEMBERS_MAX][TEXT_MAX];
};

static void difference_member(struct fixture *c, int rank, void *arg)
{
    struct difference *d = arg;
    struct job job = rank == d->who ? d->odd : d->most;
    job.size = c->size;
    job.opts.timeout_ms = PATIENCE_MS;
    for (int i = 0; i < c->size; i++)
        job.weight[i] = 1;
    job_prepare(&job);
    d->status[rank] = job_call(&job, c->world[rank], rank);
    snprintf(d->text[rank], TEXT_MAX, "%s", d->status[rank] != HEARTH_OK ? hearth_error_text() : "");
    hear_late(c->world[rank], &d->status[rank], d->text[rank]);
    job_free(&job);
}

static void check_difference(const struct difference *d, int size)
{
    char who[32];
    snprintf(who, sizeof who, "rank %d", d->who);
    for (int r = 0; r < size; r++) {
        if (!check(d->status[r] == HEARTH_MISMATCH, "%s on %d, odd one %d: rank %d: %s: %s", d->name, size,
                   d->who, r, hearth_status_name(d->status[r]), d->text[r]))
            continue;
        check(strcmp(d->text[r], d->text[0]) == 0, "%s: rank %d says \"%s\", rank 0 \"%s\"", d->name, r,
              d->text[r], d->text[0]);
        check_text(d->text[r], who);
        check_text(d->text[r], d->how);
        const char *first = strstr(d->text[r], "rank ");
        check(first && strstr(first + 1, "rank "), "\"%s\" does not name the opposite", d->text[r]);
    }
}

/* The pairs of calls that members may disagree in. `size`: of the cluster. */
enum { DIFFERENCES = 22 };

static struct job call_of(enum kind kind, size_t count, int size)
{
    struct job job;
    job_init(&job, kind, size, count);
    return job;
}

static void differences(struct difference *list, int size)
{
    struct job plain = call_of(ALL_REDUCE, 100, size), other;
    for (int i = 0; i < DIFFERENCES; i++)
        list[i] = (struct difference){.name = "?", .most = plain, .odd = plain};
    int n = 0;
    list[n].name = "count";
    list[n].how = "of 101 f32";
    list[n++].odd.count = 101;
    list[n].name = "count, none";
    list[n].how = "of 0 f32";
    list[n++].odd.count = 0;
    list[n].name = "count, large";
    list[n].how = "of ";
    list[n].most.count = 300000;
    list[n++].odd.count = 299999;
    list[n].name = "count, small and large";
    list[n].how = "of 100 f32";
    list[n++].odd.count = 300000;
    list[n].name = "dtype";
    list[n].how = "100 i32";
    list[n++].odd.dtype = HEARTH_I32;
    list[n].name = "dtype of another size";
    list[n].how = "100 f64";
    list[n++].odd.dtype = HEARTH_F64;
    list[n].name = "op";
    list[n].how = "max";
    list[n++].odd.op = HEARTH_OP_MAX;
    list[n].name = "algo";
    list[n].how = "by tree";
    list[n].most.opts.algo = HEARTH_ALGO_RING;
    list[n++].odd.opts.algo = HEARTH_ALGO_TREE;
    list[n].name = "algo again";
    list[n].how = "by halving";
    list[n].most.opts.algo = HEARTH_ALGO_STAR;
    list[n++].odd.opts.algo = HEARTH_ALGO_HALVING;
    list[n].name = "rank order";
    list[n].how = "in rank order";
    list[n].most.opts.algo = list[n].odd.opts.algo = HEARTH_ALGO_DIRECT;
    list[n++].odd.opts.flags = HEARTH_FLAG_RANK_ORDER;
    const enum kind kinds[] = {BROADCAST, REDUCE, GATHER, SCATTER, ALL_GATHER, ALL_TO_ALL, SCAN, BARRIER};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        list[n].name = list[n].how = kind_name(kinds[i]);
        list[n++].odd = call_of(kinds[i], kinds[i] == BARRIER ? 0 : 100, size);
    }
    const enum kind rooted[] = {BROADCAST, REDUCE, GATHER, SCATTER};
    for (size_t i = 0; i < 4; i++) {
        other = call_of(rooted[i], 100, size);
        list[n].name = "root";
        list[n].how = "root 0";
        list[n].most = list[n].odd = other;
        list[n].most.root = size - 1;
        list[n++].odd.root = 0;
    }
    assert_int_equal(n, DIFFERENCES);
}

static void run_differences(int size, const struct hearth_config *config)
{
    static struct difference list[DIFFERENCES];
    struct fixture c;
    fixture_open(&c, size, config);
    differences(list, size);
    for (int i = 0; i < DIFFERENCES; i++) {
        for (int who = 0; who < size; who++) {
            list[i].who = who;
            fixture_run(&c, difference_member, &list[i]);
            check_difference(&list[i], size);
            checks_end();
        }
    }
    fixture_works(&c);
    fixture_close(&c);
}

TEST(test_two_members_disagree)
{
    run_differences(2, NULL);
}

TEST(test_one_of_four_disagrees)
{
    run_differences(4, NULL);
}

TEST(test_one_of_three_disagrees_in_small_chunks)
{
    struct hearth_config config;
    config_small(&config);
    run_differences(3, &config);
}

/* Codec: NULL and "none" mean the same. */
static void codec_member(struct fixture *c, int rank, void *arg)
{
    struct hearth_opts opts = opts_default();
    opts.codec = rank == 0 ? "none" : NULL;
    float x = 1, y = 0;
    check_ok(hearth_all_reduce(c->world[rank], &x, &y, 1, HEARTH_F32, HEARTH_OP_SUM, &opts));
}

TEST(test_codec_none_is_no_codec)
{
    fixture_once(3, NULL, codec_member, NULL);
}

/* What need not agree: deadline, weight, restore, callback, in place or not. */
static void may_differ(struct fixture *c, int rank, void *arg)
{
    struct hearth_opts opts = opts_default();
    float x = (float)rank, y = -1, *target = rank == 1 ? &x : &y;
    opts.timeout_ms = rank == 2 ? 50000 : -1;
    opts.weight = rank + 1;
    opts.flags = rank == 0 ? HEARTH_FLAG_RESTORE : 0;
    check_ok(hearth_all_reduce(c->world[rank], &x, target, 1, HEARTH_F32, HEARTH_OP_SUM, &opts));
    check(*target == 3, "rank %d has %g", rank, (double)*target);
}

TEST(test_what_may_differ)
{
    fixture_once(3, NULL, may_differ, NULL);
}

/* ---- a root that had returned ---- */

struct early_root {
    int root;
    int late; /* how many calls until the root heard */
    char text[MEMBERS_MAX][TEXT_MAX];
};

static void early_root_member(struct fixture *c, int rank, void *arg)
{
    struct early_root *e = arg;
    float x[8] = {0};
    hearth_group *g = c->world[rank];
    if (rank == e->root) {
        check_ok(hearth_broadcast(g, x, 8, HEARTH_F32, e->root, NULL));
        fixture_meet(c); /* the others have not called yet: nobody could know */
        fixture_meet(c);
    } else {
        fixture_meet(c);
        check_status(hearth_broadcast(g, x, 7, HEARTH_F32, e->root, NULL), HEARTH_MISMATCH);
        snprintf(e->text[rank], TEXT_MAX, "%s", hearth_error_text());
        fixture_meet(c);
    }
    int status = rank == e->root ? HEARTH_OK : HEARTH_MISMATCH;
    hear_late(g, &status, e->text[rank]);
    check_status(status, HEARTH_MISMATCH);
}

TEST(test_root_that_had_returned_hears_from_a_later_call)
{
    for (int size = 2; size <= 4; size++) {
        struct fixture c;
        fixture_open(&c, size, NULL);
        for (int i = 0; i < 20; i++) {
            static struct early_root e;
            e.root = i % size;
            fixture_run(&c, early_root_member, &e);
            for (int r = 0; r < size; r++)
                check(strcmp(e.text[r], e.text[e.root]) == 0, "rank %d says \"%s\", the root \"%s\"", r,
                      e.text[r], e.text[e.root]);
            check_text(e.text[0], "broadcast of 8 f32");
            check_text(e.text[0], "broadcast of 7 f32");
            checks_end();
        }
        fixture_works(&c);
        fixture_close(&c);
    }
}

/* Rank 0 judges, so its own news cannot be under way any more: the very next call has it, and only that. */
static void arbiter_member(struct fixture *c, int rank, void *arg)
{
    float x[4] = {0};
    hearth_group *g = c->world[rank];
    if (rank == 0)
        check_ok(hearth_broadcast(g, x, 4, HEARTH_F32, 0, NULL));
    fixture_meet(c);
    if (rank == 1)
        check_status(hearth_broadcast(g, x, 3, HEARTH_F32, 0, NULL), HEARTH_MISMATCH);
    fixture_meet(c);
    if (rank == 0)
        check_error(hearth_barrier(g, NULL), HEARTH_MISMATCH, "rank 1 called broadcast of 3 f32");
    check_ok(hearth_barrier(g, NULL));
}

TEST(test_next_call_of_the_arbiter_has_the_news)
{
    fixture_often(20, 2, NULL, arbiter_member, NULL);
}

/* ---- again and again ---- */

static uint64_t memory_after(struct fixture *c, struct difference *list, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        struct difference *d = &list[i % DIFFERENCES];
        d->who = i / 3 % c->size;
        fixture_run(c, difference_member, d);
        check_difference(d, c->size);
    }
    fixture_works(c);
    return cluster_memory(c);
}

TEST(test_fifty_times_without_growth)
{
    static struct difference list[DIFFERENCES];
    struct fixture c;
    fixture_open(&c, 4, NULL);
    differences(list, 4);
    for (int i = 0; i < DIFFERENCES; i++) { /* what nodes keep for later would hide what they lose */
        list[i].most.count = list[i].most.count > 1000 ? 1000 : list[i].most.count;
        list[i].odd.count = list[i].odd.count > 1000 ? 999 : list[i].odd.count;
    }
    uint64_t before = memory_after(&c, list, 2 * DIFFERENCES * 3);
    uint64_t after = memory_after(&c, list, 2 * DIFFERENCES * 3);
    print_message("memory of four nodes: %" PRIu64 " bytes, later %" PRIu64 "\n", before, after);
    assert_true(after <= before + (256u << 10));
    fixture_close(&c);
}

/* ---- members that post late ---- */

/* Ranks 0 and 1 disagree over tag 7 at once; the others come to it after the verdict, and are told. */
static void late_member(struct fixture *c, int rank, void *arg)
{
    char(*text)[TEXT_MAX] = arg;
    struct hearth_opts opts = opts_default();
    size_t count = rank == 1 ? 3000 : 3001;
    float *x = must_alloc(3001 * sizeof *x), *y = must_alloc(3001 * sizeof *y);
    memset(x, 0, 3001 * sizeof *x);
    opts.tag = 7;
    opts.timeout_ms = PATIENCE_MS;
    if (rank > 1)
        fixture_meet(c);
    check_status(hearth_all_reduce(c->world[rank], x, y, count, HEARTH_F32, HEARTH_OP_SUM, &opts),
                 HEARTH_MISMATCH);
    snprintf(text[rank], TEXT_MAX, "%s", hearth_error_text());
    if (rank <= 1)
        fixture_meet(c);
    free(x);
    free(y);
}

TEST(test_members_that_post_after_the_verdict)
{
    static char text[MEMBERS_MAX][TEXT_MAX];
    struct fixture c;
    uint64_t before = 0;
    fixture_open(&c, 4, NULL);
    for (int i = 0; i < 400; i++) {
        fixture_run(&c, late_member, text);
        for (int r = 1; r < 4; r++)
            check(strcmp(text[r], text[0]) == 0, "rank %d says \"%s\", rank 0 \"%s\"", r, text[r], text[0]);
        checks_end();
        if (i % 10 == 9)
            fixture_works(&c);
        if (i == 49)
            before = cluster_memory(&c);
    }
    uint64_t after = cluster_memory(&c);
    print_message("memory of four nodes: %" PRIu64 " bytes, later %" PRIu64 "\n", before, after);
    /* What a node keeps for later depends on who was quicker; what is lost for ever adds up. */
    assert_true(after <= before + (256u << 10));
    fixture_close(&c);
}

/* A disagreement under one tag does not touch what runs under others. */
static void other_tags(struct fixture *c, int rank, void *arg)
{
    enum { RUNNING = 16, COUNT = 20000 };
    hearth_request *requests[RUNNING];
    int32_t *x = must_alloc(RUNNING * COUNT * sizeof *x);
    struct hearth_opts opts = opts_default();
    for (size_t i = 0; i < RUNNING * COUNT; i++)
        x[i] = rank + (int32_t)i;
    for (size_t i = 0; i < RUNNING; i++) {
        opts.tag = i;
        size_t count = i % 4 == 3 && rank == 2 ? COUNT - 1 : COUNT;
        check_ok(sum_in_place_nb(c->world[rank], x + i * COUNT, count, &opts, &requests[i]));
    }
    for (size_t i = 0; i < RUNNING; i++) {
        check_status(hearth_request_wait(requests[i], -1), i % 4 == 3 ? HEARTH_MISMATCH : HEARTH_OK);
        for (size_t k = i * COUNT; i % 4 != 3 && k < (i + 1) * COUNT; k++)
            if (x[k] != c->size * (int32_t)k + c->size * (c->size - 1) / 2)
                check(false, "rank %d: element %zu is %d", rank, k, x[k]);
        hearth_request_close(requests[i]);
    }
    free(x);
}

TEST(test_other_tags_go_on)
{
    fixture_often(10, 4, NULL, other_tags, NULL);
}
