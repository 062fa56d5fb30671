/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed all-reduces between real processes: same bits on all, nothing lost, with residuals of the
 * caller, with a compressor, with a sync whose tensors become ready in another order on every member; on a
  * slow line and with more than one thread. */
#include <math.h>

#include "conform/mass.h"
#include "conform/model.h"
#include "process/team.h"
#include "support/watchdog.h"

#define STEPS   3
#define ROWS    50
#define JOIN_S  90
#define SLOW    "50mbit"
#define THREADS 2

static const char *const codecs[] = {
    "none",
    "fp16",
    "bf16",
    "int8",
    "int8,stochastic,feedback=off",
    "onebit",
    "topk:0.01",
    "topk:0.05,values=bf16",
    "topk:0.01,values=int8",
    "topk:0.02,chunk=4096,values=int8",
    "topk:0.1,chunk=64",
    "randomk:0.01",
    "randomk:0.1,values=bf16",
    "randomk:0.02,values=int8",
    "powersgd:2,rows=50",
    "powersgd:2,alternate", /* only with a compressor */
};

#define CODEC_COUNT (sizeof codecs / sizeof *codecs)

struct plan {
    size_t count;   /* of the largest tensor */
    bool slow;      /* a rate */
    bool every_way; /* not only the usual one */
};

static bool has_ways(const char *codec)
{
    return strcmp(codec, "none") != 0 && strncmp(codec, "randomk", 7) != 0 &&
           strncmp(codec, "powersgd", 8) != 0;
}

static bool keeps(const char *codec)
{
    return strcmp(codec, "none") != 0 && !strstr(codec, "feedback=off");
}

/* Every member gets what all others hold at this place. */
static void gather(hearth_group *world, void *arrays[], size_t len)
{
    int rank = hearth_group_rank(world), size = hearth_group_size(world);
    uint8_t *all = must_alloc(len * (size_t)size);
    check_ok(hearth_all_gather(world, arrays[rank], all, len, HEARTH_U8, NULL));
    for (int i = 0; i < size; i++)
        memcpy(arrays[i], all + (size_t)i * len, len);
    free(all);
}

/* ---- the caller's residual ---- */

static void mass_run(hearth_group *world, struct mass *m)
{
    int rank = hearth_group_rank(world), size = hearth_group_size(world);
    struct fixture c = {.size = size};
    size_t len = m->count * hearth_dtype_size(m->dtype);
    c.world[rank] = world;
    mass_open(m, size);
    for (int step = 0; step < STEPS && !checks_failed(); step++) {
        m->seed++;
        mass_fill(m, rank);
        if (!check_ok(mass_step(&c, m, rank)))
            break;
        check_ok(hearth_group_same(world, m->x[rank], len, NULL, NULL));
        gather(world, m->x, len);
        gather(world, m->x_before, len);
        gather(world, m->e, mass_residual_len(m));
        gather(world, m->e_before, mass_residual_len(m));
        mass_check(m, size);
    }
    mass_close(m, size);
}

static void masses(hearth_group *world, const struct plan *plan)
{
    static const enum hearth_dtype types[] = {HEARTH_F32, HEARTH_BF16, HEARTH_F64, HEARTH_F16};
    static const enum hearth_algo algos[] = {HEARTH_ALGO_AUTO, HEARTH_ALGO_DIRECT, HEARTH_ALGO_EXCHANGE};
    for (size_t k = 0; k + 1 < CODEC_COUNT && !checks_failed(); k++) {
        size_t ways = plan->every_way && has_ways(codecs[k]) ? 3 : 1;
        for (size_t i = 0; i < ways; i++) {
            struct mass m = {.codec = codecs[k],
                             .dtype = types[(k + i) % 4],
                             .op = k & 1 ? HEARTH_OP_AVG : HEARTH_OP_SUM,
                             .algo = algos[i],
                             .count = i == 2 ? ROWS * 7 : plan->count,
                             .feedback = keeps(codecs[k]),
                             .seed = 100 * k};
            mass_run(world, &m);
        }
    }
}

/* ---- a compressor ---- */

/* Numbers from -1 to 1, the larger the rarer. */
static void fill_step(float *x, size_t count, int rank, int step)
{
    uint64_t seed = (uint64_t)(1000 * rank + step);
    for (size_t i = 0; i < count; i++) {
        float unit = (float)(int32_t)draw(&seed) / 2147483648.0F;
        x[i] = unit * unit * unit;
    }
}

static void add_to(double *sum, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += (double)x[i];
}

/* What it keeps comes out when everything is sent: then all that went in has come out. */
static void kept_run(hearth_group *world, const char *codec, size_t count)
{
    enum { LAST = 2 * STEPS };
    int rank = hearth_group_rank(world), size = hearth_group_size(world);
    size_t dims[2] = {ROWS, count / ROWS}, wrong = 0;
    float *x = must_alloc(count * sizeof *x);
    double *in = calloc(count, sizeof *in), *out = calloc(count, sizeof *out);
    struct hearth_tensor tensor = {sizeof tensor, "w", x, HEARTH_F32, 2, dims};
    hearth_compressor *compressor = NULL;
    check_ok(hearth_compressor_open(world, NULL, &compressor));
    for (int step = 0; step <= LAST && !checks_failed(); step++) {
        check_ok(hearth_compressor_add_rule(compressor, "w", step < LAST ? codec : "topk:1"));
        for (int i = 0; step < LAST && i < size; i++) {
            fill_step(x, count, i, step);
            add_to(in, x, count);
        }
        if (step < LAST)
            fill_step(x, count, rank, step);
        else
            memset(x, 0, count * sizeof *x);
        check_ok(hearth_compressor_all_reduce(compressor, &tensor, HEARTH_OP_SUM, NULL));
        check_ok(hearth_group_same(world, x, count * sizeof *x, NULL, NULL));
        add_to(out, x, count);
    }
    for (size_t i = 0; i < count; i++)
        wrong += keeps(codec) && fabs(in[i] - out[i]) > 1e-5 * size;
    check(wrong == 0, "%s: %zu of %zu elements have lost something", codec, wrong, count);
    hearth_compressor_close(compressor);
    free(out);
    free(in);
    free(x);
}

static void compressors(hearth_group *world, const struct plan *plan)
{
    for (size_t k = 0; k < CODEC_COUNT && !checks_failed(); k++)
        if (strcmp(codecs[k], "powersgd:2,rows=50") != 0)
            kept_run(world, codecs[k], plan->count);
}

/* ---- a sync ---- */

static void syncs(hearth_group *world, const struct plan *plan)
{
    static const char *const by[] = {"int8", "topk:0.05", "randomk:0.1", "powersgd:2", "none"};
    int rank = hearth_group_rank(world);
    for (size_t k = plan->slow ? 3 : 0; k < sizeof by / sizeof *by && !checks_failed(); k++) {
        struct model m;
        model_open(&m, world, by[k], HEARTH_OP_AVG);
        for (int step = 0; step < STEPS; step++) {
            model_fill(&m, rank, step);
            model_reduce(&m, world, HEARTH_OP_AVG, 1);
            model_ready(&m, (uint64_t)(100 * step + rank));
            check_ok(hearth_sync_wait(m.sync, NULL));
            if (strcmp(by[k], "none") == 0)
                model_check(&m, m.wanted, "the average");
            model_same(&m, world);
        }
        model_close(&m);
    }
}

/* ---- the life of a member ---- */

static void member(struct team *team, int rank, void *arg)
{
    const struct plan *plan = arg;
    (void)team, (void)rank;
    set_number_env("HEARTH_COMPRESS_THREADS", THREADS);
    if (plan->slow)
        setenv("HEARTH_RATE", SLOW, 1);
    hearth_node *node = member_open();
    if (!node)
        return;
    masses(hearth_node_world(node), plan);
    compressors(hearth_node_world(node), plan);
    syncs(hearth_node_world(node), plan);
    hearth_node_close(node);
}

static void run(int size, const char *transport, const struct plan *plan)
{
    struct team team;
    watchdog(2 * JOIN_S * (unsigned)slow_factor(), transport);
    team_start(&team, size, transport, member, (void *)plan);
    team_join(&team, JOIN_S);
    team_free(&team);
    checks_end();
}

TEST(test_tcp)
{
    static const struct plan plan = {.count = 20000, .every_way = true};
    for (int size = 2; size <= 4; size++)
        run(size, "tcp", &plan);
}

TEST(test_shm)
{
    static const struct plan plan = {.count = 20000, .every_way = true};
    for (int size = 2; size <= 4; size++)
        run(size, "shm", &plan);
}

TEST(test_slow_line)
{
    static const struct plan plan = {.count = 5000, .slow = true};
    run(3, "tcp", &plan);
}
