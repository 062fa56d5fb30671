/* SPDX-License-Identifier: Apache-2.0 */
/* hearth bench cluster: all_reduce across the machines that are up, beside what their ways could carry. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/cluster_bench.h"
#include "cli/cluster/cluster_open.h"
#include "cli/commands.h"
#include "cli/shared/args.h"
#include "cli/shared/listing.h"
#include "cli/shared/progress.h"
#include "cli/shared/route.h"

#define PATIENCE_S      30.0
#define MEASURE_S       10.0
#define FORM_TIMEOUT_MS 30000
#define REPEAT_DEFAULT  20
#define NAMES_MAX       1024

struct cluster_bench_args {
    /* What the user says. */
    struct arg_list sizes;
    int repeat;
    const char *codec, *seeds, *bind;
    bool json;

    struct cluster_session cluster;
    hearth_group *group;
    struct bench_plan plan;
    struct cluster_bound bound;
    bool beaten; /* the bound, by a call */
    uint32_t rows;
    bool wrong;
    struct listing listing;
    struct progress progress;
};

/* ---- the bound ---- */

static void find_bound(struct cluster_bench_args *b)
{
    int count;
    struct cluster_status *status = malloc(sizeof *status);
    struct hearth_member *members = cluster_members(b->group, &count);
    if (status && members && node_cluster_status(b->cluster.node, status) == HEARTH_OK)
        b->bound = cluster_bound(status, members, count);
    free(members);
    free(status);
}

static bool is_plain(const struct cluster_bench_args *b)
{
    return strcmp(b->plan.codec, "none") == 0;
}

/* Bytes that every member sends and receives, for each byte that is reduced. */
static double bus_factor(const struct cluster_bench_args *b)
{
    double size = hearth_group_size(b->group);
    return 2 * (size - 1) / size;
}

/* 0: not known. It speaks of plain numbers, and of lines as they were measured before: what was faster has
 * shown that they carry more. */
static double bound_s(struct cluster_bench_args *b, const struct cluster_bench_row *row)
{
    double bound = is_plain(b) ? (double)row->bytes * b->bound.s_per_byte : 0;
    if (bound <= row->time.median)
        return bound;
    b->beaten = true;
    return 0;
}

/* ---- showing ---- */

#define COLUMN_COUNT 8
static const struct column all_columns[COLUMN_COUNT] = {
    {"bytes", "bytes", FORM_BYTES, .width = 8},
    {"median", "median_us", FORM_US, .width = 9},
    {"p99", "p99_us", FORM_US, .width = 9},
    {"speed", "bytes_per_s", FORM_SPEED, .width = 10},
    {"bus", "bus_bytes_per_s", FORM_SPEED, .width = 10},
    {"bound", "vs_median_us", FORM_US, .width = 9, .none = "-"},
    {"bound/", "ratio", FORM_RATIO, .width = 7, .none = "-"},
    {"exact", "ok", FORM_EXACT, .width = 0}};

static void show_head(const struct cluster_bench_args *b)
{
    struct column columns[COLUMN_COUNT];
    char names[NAMES_MAX];
    if (b->listing.doc)
        return;
    memcpy(columns, all_columns, sizeof columns);
    cluster_names(b->group, names, sizeof names);
    printf("%sall_reduce of f32, sum, among %d machines%s: %s\n", paint(stdout, PAINT_BOLD),
           hearth_group_size(b->group), paint(stdout, PAINT_NONE), names);
    if (!is_plain(b)) {
        printf("compressed by %s\n", b->plan.codec);
        columns[COLUMN_COUNT - 1].head = "same";
    }
    if (b->bound.narrowest > 0)
        printf("the narrowest line carries %s\n", text_rate(b->bound.narrowest).s);
    putchar('\n');
    listing_head(&(struct listing){LISTING_COLUMNS(columns)});
    printf("%70s\n", "time");
}

static void seen(void *arg, const struct cluster_bench_row *row)
{
    struct cluster_bench_args *b = arg;
    double bound = bound_s(b, row), speed = (double)row->bytes / row->time.median;
    json_t *out = json_pack("{ss ss ss si sI si sf sf sf sf sf sb}", "name", "cluster", "compress",
                            b->plan.codec, "dtype", "f32", "ranks", hearth_group_size(b->group), "bytes",
                            (json_int_t)row->bytes, "calls", (int)b->plan.repeat, "median_us",
                            row->time.median * 1e6, "p99_us", row->time.p99 * 1e6, "spread", row->time.spread,
                            "bytes_per_s", speed, "bus_bytes_per_s", speed * bus_factor(b), "ok", row->right);
    if (bound > 0) {
        row_text(out, "vs", "bound");
        row_real(out, "vs_median_us", bound * 1e6);
        row_real(out, "ratio", bound / row->time.median);
    }
    progress_hide(&b->progress);
    b->wrong = b->wrong || !row->right;
    listing_row(&b->listing, out);
    progress_show(&b->progress, (double)++b->rows / (double)b->plan.size_count);
}

/* ---- the run ---- */

static int measure(struct cluster_bench_args *b)
{
    struct cluster_plan plan = {.kind = CLUSTER_PLAN_BENCH, .bench = b->plan};
    int starter, status = cluster_plan_share(b->group, true, &plan, &starter);
    if (!status && plan.kind != CLUSTER_PLAN_BENCH)
        status = HEARTH_PROTOCOL;
    if (status)
        return status;
    bool ours = starter == hearth_group_rank(b->group);
    b->plan = plan.bench;
    if (!ours)
        fprintf(stderr,
                "hearth bench cluster: another machine began to measure at the same time: this is what "
                "it asked for\n");
    find_bound(b);
    show_head(b);
    progress_start(&b->progress, "bench cluster");
    status = cluster_bench_run(b->group, &b->plan, seen, b, NULL);
    progress_hide(&b->progress);
    if (b->beaten && !b->listing.doc)
        printf("\n  no bound: that was faster than the lines were measured before; short bursts may be\n");
    return status;
}

static int run(struct cluster_bench_args *b, const struct usage *usage)
{
    const struct cluster_gathering what = {
        .job = CLUSTER_BENCH_JOB,
        .role = HEARTH_ROLE_BENCH,
        .patience_s = PATIENCE_S,
        .measure_s = MEASURE_S,
        .nobody = "there are members, but none that measures; type on the other machines: hearth up"};
    int code = cluster_gather(usage, &b->cluster, &what, &b->group);
    if (code != ARGS_GO)
        return code;
    int status = measure(b);
    if (status)
        fprintf(stderr, "hearth bench cluster: %s: %s\n", hearth_status_name(status), hearth_error_text());
    hearth_group_close(b->group);
    return status || b->wrong ? EXIT_FAILED_CHECK : EXIT_GOOD;
}

static int check(struct cluster_bench_args *b, const struct usage *usage)
{
    if (b->sizes.count > CLUSTER_SIZES_MAX)
        return args_refuse(usage, "--sizes takes at most %d sizes", CLUSTER_SIZES_MAX);
    for (size_t i = 0; i < b->sizes.count; i++) {
        if (b->sizes.item[i] % sizeof(float) || b->sizes.item[i] > CLUSTER_BYTES_MAX)
            return args_refuse(usage, "--sizes %zu is not a multiple of 4 up to 1G", b->sizes.item[i]);
        b->plan.sizes[i] = b->sizes.item[i];
    }
    if (strlen(b->codec) >= CLUSTER_CODEC_MAX)
        return args_refuse(usage, "--compress is longer than %d characters", CLUSTER_CODEC_MAX - 1);
    if (hearth_codec_check(b->codec))
        return args_refuse(usage, "--compress: %s", hearth_error_text());
    snprintf(b->plan.codec, sizeof b->plan.codec, "%s", b->codec);
    b->plan.size_count = (uint32_t)b->sizes.count;
    b->plan.repeat = (uint32_t)b->repeat;
    return route_check_bind(usage, b->bind);
}

int bench_cluster(int argc, char **argv)
{
    struct cluster_bench_args b = {.sizes = {.item = {4096, 65536, 1 << 20, 16 << 20}, .count = 4},
                                   .repeat = REPEAT_DEFAULT,
                                   .codec = "none",
                                   .listing = {LISTING_COLUMNS(all_columns)}};
    const struct arg args[] = {
        {"sizes", ARG_SIZES, &b.sizes, .about = "of the buffer (default 4K,64K,1M,16M)", .min = 4},
        {"repeat", ARG_INT, &b.repeat, .about = "calls of each size (default 20)", .min = 1, .max = 10000},
        {"compress", ARG_TEXT, &b.codec, .value_name = "CODEC",
         .about = "measure compressed calls, like int8"},
        {"seeds", ARG_TEXT, &b.seeds, .value_name = "LIST",
         .about = "host[:port],...: nodes to ask beside those that are found"},
        {"bind", ARG_TEXT, &b.bind, .value_name = "IFACE|ADDR", .about = "network to use (default: all)"},
        {"json", ARG_FLAG, &b.json, .about = "print one JSON object instead of a table"},
    };
    const struct usage usage = {
        "bench cluster",
        "Measures all_reduce across this machine and those where `hearth up` runs. `bus` is what each member "
        "sends; `bound` is what no algorithm can beat on lines as they were measured.",
        "hearth bench cluster --sizes 1M,16M", USAGE_ARGS(args)};
    int code = args_parse(&usage, argc - 1, argv + 1);
    if (code == ARGS_GO)
        code = check(&b, &usage);
    if (code != ARGS_GO)
        return code;
    const struct hearth_config said = {.seeds = b.seeds,
                                       .bind = b.bind,
                                       .roles = HEARTH_ROLE_GUEST | HEARTH_ROLE_BENCH,
                                       .form_timeout_ms = FORM_TIMEOUT_MS};
    code = cluster_enter(&usage, &said, &b.cluster);
    if (code != ARGS_GO)
        return code;
    code = EXIT_FAILED_CHECK;
    if (listing_open(&b.listing, b.json, argc, argv))
        code = listing_close(&b.listing, run(&b, &usage));
    cluster_leave(&b.cluster);
    return code;
}
