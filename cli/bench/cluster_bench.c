/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce among machines: what every member does in `hearth bench cluster`. */
#include "cli/bench/cluster_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench_nodes.h"
#include "os/clock.h"

#define SUM_MAX    4096 /* largest element of a result: exact in f32 */
#define TIMEOUT_MS 120000

struct bench {
    hearth_group *group;
    const struct bench_plan *plan;
    const atomic_bool *quit;
    struct hearth_opts opts;
    float *source, *target, *residual; /* of the largest size */
    double *times;                     /* [repeat] */
    bool plain;
};

static int call(struct bench *b, size_t bytes)
{
    size_t count = bytes / sizeof *b->source;
    if (b->plain)
        return hearth_all_reduce(b->group, b->source, b->target, count, HEARTH_F32, HEARTH_OP_SUM, &b->opts);
    return hearth_all_reduce_compressed(b->group, b->target, count, HEARTH_F32, HEARTH_OP_SUM, b->plan->codec,
                                        b->residual, &b->opts);
}

/* Compressed calls have their input where the result goes. */
static void prepare(struct bench *b, size_t bytes)
{
    if (!b->plain)
        memcpy(b->target, b->source, bytes);
}

/* Do all members agree that it is so? */
static int agree(struct bench *b, bool *good)
{
    uint8_t mine = *good;
    int status = hearth_all_reduce(b->group, &mine, &mine, 1, HEARTH_U8, HEARTH_OP_MIN, &b->opts);
    *good = mine != 0;
    return status;
}

/* Plain: every element is the sum. Compressed: what is left out is the codec's affair, but all have the same.
 */
static int verify(struct bench *b, size_t bytes, bool *right)
{
    struct bench_block block;
    if (!b->plain) {
        int status = hearth_group_same(b->group, b->target, bytes, NULL, NULL);
        *right = *right && status == HEARTH_OK;
        return status == HEARTH_DIFFERS ? HEARTH_OK : status;
    }
    bench_block_make(&block, HEARTH_F32, SUM_MAX, hearth_group_size(b->group), RANK_NONE);
    bool good = pattern_holds(b->target, bytes, block.bytes, block.len);
    int status = agree(b, &good);
    *right = *right && good;
    return status;
}

static int run_calls(struct bench *b, size_t bytes)
{
    for (uint32_t i = 0; i < b->plan->repeat; i++) {
        prepare(b, bytes);
        bool going = !b->quit || !atomic_load(b->quit);
        int status = going ? hearth_barrier(b->group, &b->opts) : HEARTH_CANCELLED;
        uint64_t start = clock_real();
        if (!status)
            status = call(b, bytes);
        b->times[i] = (double)(clock_real() - start) / (double)NS_PER_S;
        if (status)
            return status;
    }
    return HEARTH_OK;
}

static int run_size(struct bench *b, size_t bytes, struct cluster_bench_row *row)
{
    struct bench_block block;
    *row = (struct cluster_bench_row){.bytes = bytes, .right = true};
    bench_block_make(&block, HEARTH_F32, SUM_MAX, hearth_group_size(b->group), hearth_group_rank(b->group));
    pattern_fill(b->source, bytes, block.bytes, block.len);
    prepare(b, bytes);
    if (b->residual)
        memset(b->residual, 0, bytes);
    int status = call(b, bytes);
    if (!status)
        status = verify(b, bytes, &row->right);
    if (!status)
        status = run_calls(b, bytes);
    if (!status)
        status = verify(b, bytes, &row->right);
    if (!status)
        status = hearth_all_reduce(b->group, b->times, b->times, b->plan->repeat, HEARTH_F64, HEARTH_OP_MAX,
                                   &b->opts);
    if (!status)
        row->time = stats_of(b->times, b->plan->repeat);
    return status;
}

static int take_memory(struct bench *b)
{
    size_t most = 0;
    for (uint32_t i = 0; i < b->plan->size_count; i++)
        most = b->plan->sizes[i] > most ? (size_t)b->plan->sizes[i] : most;
    b->source = malloc(most);
    b->target = malloc(most);
    b->residual = b->plain ? NULL : malloc(most);
    b->times = calloc(b->plan->repeat, sizeof *b->times);
    bool mine = b->source && b->target && b->times && (b->plain || b->residual), all = mine;
    int status = agree(b, &all);
    return status ? status : all ? HEARTH_OK : HEARTH_NO_MEMORY;
}

int cluster_bench_run(hearth_group *group, const struct bench_plan *plan, cluster_bench_fn *seen, void *arg,
                      const atomic_bool *quit)
{
    struct bench b = {.group = group, .plan = plan, .quit = quit, .plain = strcmp(plan->codec, "none") == 0};
    hearth_opts_init(&b.opts);
    b.opts.timeout_ms = TIMEOUT_MS;
    int status = take_memory(&b);
    for (uint32_t i = 0; i < plan->size_count && !status; i++) {
        struct cluster_bench_row row;
        status = run_size(&b, (size_t)plan->sizes[i], &row);
        if (!status && seen)
            seen(arg, &row);
    }
    free(b.source);
    free(b.target);
    free(b.residual);
    free(b.times);
    return status;
}

/* ---- the bound ---- */

/* Bytes a second between members. Inside of a machine nothing is slow. */
struct paths {
    int count;
    double rate[CLUSTER_MEMBERS_MAX][CLUSTER_MEMBERS_MAX];
};

static bool paths_fill(struct paths *w, const struct cluster_status *status,
                       const struct hearth_member *members, int count)
{
    w->count = count;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++) {
            double rate = i == k ? -1 : cluster_status_path(status, members[i].id, members[k].id);
            if (rate == 0)
                return false;
            w->rate[i][k] = rate < 0 ? INFINITY : rate;
        }
    }
    return true;
}

/* The first member of its machine. */
static int machine_of(const struct paths *w, int member)
{
    int first = 0;
    while (isfinite(w->rate[first][member]))
        first++;
    return first;
}

/* What all machines together can send, or receive: each by its best way, which is what its line carries. */
static double sum_lines(const struct paths *w, bool out, int *machines)
{
    double best[CLUSTER_MEMBERS_MAX] = {0}, sum = 0;
    *machines = 0;
    for (int i = 0; i < w->count; i++) {
        int machine = machine_of(w, i);
        *machines += machine == i;
        for (int k = 0; k < w->count; k++) {
            double rate = out ? w->rate[i][k] : w->rate[k][i];
            if (isfinite(rate) && rate > best[machine])
                best[machine] = rate;
        }
    }
    for (int i = 0; i < w->count; i++)
        sum += best[i];
    return sum;
}

/* Of the best routes from each member to each other one, over any others, the narrowest. */
static double narrowest_route(struct paths *w)
{
    double narrowest = INFINITY;
    for (int via = 0; via < w->count; via++) {
        for (int i = 0; i < w->count; i++) {
            for (int k = 0; k < w->count; k++)
                w->rate[i][k] = fmax(w->rate[i][k], fmin(w->rate[i][via], w->rate[via][k]));
        }
    }
    for (int i = 0; i < w->count; i++) {
        for (int k = 0; k < w->count; k++)
            narrowest = fmin(narrowest, w->rate[i][k]);
    }
    return narrowest;
}

struct cluster_bound cluster_bound(const struct cluster_status *status, const struct hearth_member *members,
                                   int count)
{
    struct cluster_bound bound = {0, 0};
    struct paths w;
    int machines;
    if (count > CLUSTER_MEMBERS_MAX || !paths_fill(&w, status, members, count))
        return bound;
    double lines = fmin(sum_lines(&w, true, &machines), sum_lines(&w, false, &machines));
    if (machines < 2)
        return bound;
    bound.narrowest = narrowest_route(&w);
    bound.s_per_byte = fmax(1 / bound.narrowest, 2.0 * (machines - 1) / lines);
    return bound;
}
