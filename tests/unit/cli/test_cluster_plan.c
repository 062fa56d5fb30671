/* SPDX-License-Identifier: Apache-2.0 */
/* What a starter tells the machines that are up: bytes and limits; and what they do then, among nodes of this
 * process: the measurement, and the demo with images that only the starter has. */
#include "cli/bench/cluster_bench.h"
#include "cli/demo/cluster_demo.h"
#include "cli/shared/rank_threads.h"
#include "support/suite.h"

#define NODES 3

static struct cluster_plan bench_sample(void)
{
    struct cluster_plan plan = {.kind = CLUSTER_PLAN_BENCH};
    plan.bench =
        (struct bench_plan){.sizes = {4, 40000, 1 << 20}, .size_count = 3, .repeat = 3, .codec = "none"};
    return plan;
}

static struct cluster_plan demo_sample(void)
{
    struct cluster_plan plan = {.kind = CLUSTER_PLAN_DEMO};
    plan.demo = (struct demo_plan){.seed = UINT64_C(0x1122334455667788),
                                   .data_hash = 5,
                                   .train_count = 60,
                                   .test_count = 20,
                                   .width = 3,
                                   .height = 2,
                                   .classes = 4,
                                   .hidden = 256,
                                   .batch = 7,
                                   .steps_max = 10,
                                   .test_images = 20,
                                   .rate = 0.25f,
                                   .target = 2.0f, /* never */
                                   .lanes = 2,
                                   .codecs = {"none", "int8"}};
    return plan;
}

/* ---- bytes ---- */

TEST(test_round_trip)
{
    uint8_t bytes[CLUSTER_PLAN_LEN], again[CLUSTER_PLAN_LEN];
    const char *why;
    struct cluster_plan plans[] = {bench_sample(), demo_sample()}, out;
    for (int i = 0; i < 2; i++) {
        cluster_plan_encode(&plans[i], bytes);
        assert_true(cluster_plan_decode(&out, bytes, &why));
        assert_int_equal(out.kind, plans[i].kind);
        cluster_plan_encode(&out, again);
        assert_memory_equal(bytes, again, sizeof bytes);
    }
    assert_int_equal(out.demo.seed, UINT64_C(0x1122334455667788));
    assert_int_equal(out.demo.batch, 7);
    assert_true(out.demo.rate == 0.25f);
    assert_string_equal(out.demo.codecs[1], "int8");
    assert_memory_equal(bytes, "HPLN", 4);
}

static bool refused(const struct cluster_plan *plan, const char *what)
{
    uint8_t bytes[CLUSTER_PLAN_LEN];
    struct cluster_plan out;
    const char *why;
    cluster_plan_encode(plan, bytes);
    bool good = cluster_plan_decode(&out, bytes, &why);
    return !good && strcmp(why, what) == 0;
}

TEST(test_bench_limits)
{
    struct cluster_plan plan = bench_sample();
    plan.bench.size_count = 0;
    assert_true(refused(&plan, "the number of sizes"));
    plan.bench.size_count = CLUSTER_SIZES_MAX + 1;
    assert_true(refused(&plan, "the number of sizes"));
    plan = bench_sample();
    plan.bench.sizes[1] = 6;
    assert_true(refused(&plan, "a size"));
    plan.bench.sizes[1] = CLUSTER_BYTES_MAX + 4;
    assert_true(refused(&plan, "a size"));
    plan = bench_sample();
    plan.bench.repeat = 0;
    assert_true(refused(&plan, "the number of calls"));
    plan = bench_sample();
    memset(plan.bench.codec, 'x', sizeof plan.bench.codec); /* no end */
    assert_true(refused(&plan, "the codec"));
    plan.kind = (enum cluster_plan_kind)3;
    assert_true(refused(&plan, "its kind"));
}

TEST(test_demo_limits)
{
    struct cluster_plan plan = demo_sample();
    plan.demo.width = 0;
    assert_true(refused(&plan, "the images"));
    plan = demo_sample();
    plan.demo.train_count = 1u << 20;
    plan.demo.width = plan.demo.height = 1024;
    assert_true(refused(&plan, "the size of the images"));
    plan = demo_sample();
    plan.demo.hidden = 300;
    assert_true(refused(&plan, "the hidden layer"));
    plan = demo_sample();
    plan.demo.batch = 61;
    assert_true(refused(&plan, "the batch"));
    plan = demo_sample();
    plan.demo.test_images = 21;
    assert_true(refused(&plan, "the number of steps"));
    plan = demo_sample();
    plan.demo.rate = -1;
    assert_true(refused(&plan, "the rates"));
    plan = demo_sample();
    plan.demo.lanes = 6;
    assert_true(refused(&plan, "the number of codecs"));
    plan = demo_sample();
    snprintf(plan.demo.codecs[1], CLUSTER_CODEC_MAX, "nonsense");
    assert_true(refused(&plan, "a codec"));
}

TEST(test_other_version)
{
    uint8_t bytes[CLUSTER_PLAN_LEN];
    struct cluster_plan plan = bench_sample();
    const char *why;
    cluster_plan_encode(&plan, bytes);
    bytes[4]++;
    assert_false(cluster_plan_decode(&plan, bytes, &why));
    assert_string_equal(why, "its version");
}

/* ---- among nodes ---- */

static struct members {
    hearth_node *nodes[NODES];
    struct rank_threads threads;
    unsigned starters; /* by bits of ranks */
    struct cluster_plan plans[NODES];
    int status[NODES], starter[NODES], rows[NODES];
    bool right[NODES];
    struct dataset train, test;
    uint64_t hash[NODES];
    size_t steps[NODES];
} members, *const m = &members;

static int members_open(void **state)
{
    members = (struct members){.starters = 0};
    assert_int_equal(hearth_node_open_local(NULL, NODES, m->nodes), HEARTH_OK);
    assert_true(rank_threads_open(&m->threads, NODES));
    return 0;
}

static int members_close(void **state)
{
    rank_threads_close(&m->threads);
    for (int i = 0; i < NODES; i++)
        hearth_node_close(m->nodes[i]);
    return 0;
}

static void job_share(void *arg, int index)
{
    struct cluster_plan plan = bench_sample();
    plan.bench.repeat = (uint32_t)index + 1;
    m->plans[index] = plan;
    m->status[index] = cluster_plan_share(hearth_node_world(m->nodes[index]), m->starters >> index & 1,
                                          &m->plans[index], &m->starter[index]);
}

TEST_WITH(test_share, members_open, members_close)
{
    for (m->starters = 0; m->starters < 1u << NODES; m->starters++) {
        rank_threads_run(&m->threads, job_share, NULL);
        int first = m->starters & 1 ? 0 : m->starters & 2 ? 1 : m->starters & 4 ? 2 : -1;
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(m->starter[i], first);
            assert_int_equal(m->status[i], first < 0 ? HEARTH_INVALID : HEARTH_OK);
            if (first >= 0)
                assert_int_equal(m->plans[i].bench.repeat, first + 1);
        }
    }
}

static void seen(void *arg, const struct cluster_bench_row *row)
{
    int index = *(int *)arg;
    m->rows[index]++;
    m->right[index] = m->right[index] && row->right && row->time.median > 0;
}

static void job_bench(void *arg, int index)
{
    m->right[index] = true;
    m->rows[index] = 0;
    m->status[index] =
        cluster_bench_run(hearth_node_world(m->nodes[index]), &m->plans[0].bench, seen, &index, NULL);
}

TEST_WITH(test_bench, members_open, members_close)
{
    static const char *const codecs[] = {"none", "int8", "topk:0.01"};
    for (int c = 0; c < 3; c++) {
        m->plans[0] = bench_sample();
        snprintf(m->plans[0].bench.codec, CLUSTER_CODEC_MAX, "%s", codecs[c]);
        rank_threads_run(&m->threads, job_bench, NULL);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(m->status[i], HEARTH_OK);
            assert_int_equal(m->rows[i], 3);
            assert_true(m->right[i]);
        }
    }
}

static void job_quit(void *arg, int index)
{
    atomic_bool quit = index == 1;
    struct bench_plan plan = bench_sample().bench;
    m->status[index] = cluster_bench_run(hearth_node_world(m->nodes[index]), &plan, NULL, NULL, &quit);
    if (index == 1) { /* as hearth up does when it leaves */
        hearth_node_close(m->nodes[index]);
        m->nodes[index] = NULL;
    }
}

TEST_WITH(test_quit, members_open, members_close)
{
    rank_threads_run(&m->threads, job_quit, NULL);
    assert_int_equal(m->status[1], HEARTH_CANCELLED);
    assert_int_not_equal(m->status[0], HEARTH_OK);
    assert_int_not_equal(m->status[2], HEARTH_OK);
}

static void make_images(struct dataset *set, const struct demo_plan *plan, size_t count)
{
    size_t pixels = (size_t)plan->width * plan->height;
    *set = (struct dataset){.count = count,
                            .width = (int)plan->width,
                            .height = (int)plan->height,
                            .classes = (int)plan->classes};
    set->images.bytes = malloc(count * pixels);
    set->labels.bytes = malloc(count);
    assert_true(set->images.bytes && set->labels.bytes);
    for (size_t i = 0; i < count; i++) {
        set->labels.bytes[i] = (uint8_t)(i % plan->classes);
        for (size_t p = 0; p < pixels; p++)
            set->images.bytes[i * pixels + p] =
                (uint8_t)(i * 37 + p * 11 + (i % plan->classes == p ? 200u : 0u));
    }
}

static void job_demo(void *arg, int index)
{
    struct race *race = calloc(1, sizeof *race);
    hearth_group *group = hearth_node_world(m->nodes[index]);
    struct cluster_demo demo = {
        .group = group, .plan = &m->plans[0], .starter = 2, .starts = index == 2, .race = race};
    if (index == 2) {
        demo.train = m->train;
        demo.test = m->test;
    }
    cluster_demo_race(&demo.plan->demo, NODES, race);
    m->right[index] = cluster_demo_run(&demo) == HEARTH_OK && race->lanes[0].result.same &&
                      race->lanes[1].result.same && race->lanes[0].done && race->lanes[1].done;
    m->hash[index] = race->lanes[0].result.hash ^ race->lanes[1].result.hash;
    m->steps[index] = race->lanes[0].result.steps + race->lanes[1].result.steps;
    m->rows[index] = (int)race->lanes[1].point_count;
    cluster_demo_fini(&demo);
    free(race);
}

TEST_WITH(test_demo, members_open, members_close)
{
    m->plans[0] = demo_sample();
    make_images(&m->train, &m->plans[0].demo, 60);
    make_images(&m->test, &m->plans[0].demo, 20);
    m->plans[0].demo.data_hash = cluster_demo_hash(&m->train, &m->test);
    rank_threads_run(&m->threads, job_demo, NULL);
    for (int i = 0; i < NODES; i++) {
        assert_true(m->right[i]);
        assert_int_equal(m->steps[i], 20);
        assert_int_equal(m->rows[i], 2); /* looked at every five steps */
        assert_int_equal(m->hash[i], m->hash[0]);
    }
    m->plans[0].demo.data_hash++; /* what comes is not what was promised */
    rank_threads_run(&m->threads, job_demo, NULL);
    for (int i = 0; i < NODES; i++)
        assert_false(m->right[i]);
    dataset_free(&m->train);
    dataset_free(&m->test);
}
