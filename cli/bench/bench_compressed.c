/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed beside plain: the same nodes, the same gradients, one after the other.
 *
 * Each node has a gradient of its own: noise, of which a few elements are large, as gradients are. Before
 * every call it is copied into the buffer, outside of the timing. A round is one plain call and as many
 * compressed ones as take about as long, so that a drift of the machine hits both. The first compressed call
 * is not counted: it makes the state. After the last call of each kind the nodes compare the bits of what
 * they hold. */
#include "cli/bench/bench_compressed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/shared/progress.h"
#include "cli/shared/stats.h"
#include "cli/shared/table.h"
#include "core/hash.h"
#include "core/prng.h"
#include "os/clock.h"

#define COLUMN      4096 /* a tensor has so many rows, if its length allows */
#define SIZE_S      3.0  /* time for one size, about */
#define ROUNDS_MIN  2
#define ROUNDS_MAX  50
#define BURST_MAX   10 /* compressed calls of a round */
#define TIMES_MAX   10000
#define LARGE_EVERY 64 /* one of so many elements is large */
#define EXPLAIN_MAX 256

enum kind { PLAIN, COMPRESSED, KINDS };

struct compressed_bench_run {
    const struct compressed_bench *setup;
    struct bench_nodes nodes;
    hearth_compressor *compressors[BENCH_RANKS_MAX];
    double seconds[BENCH_RANKS_MAX]; /* of the last call */
    struct hash128 hashes[BENCH_RANKS_MAX];
    struct hearth_opts opts;
    size_t count;
    enum kind kind; /* of the call that runs */
    double times[KINDS][TIMES_MAX];
    size_t time_count[KINDS];
    uint64_t sent_len[KINDS]; /* of one call, by the busiest node */
};

struct compressed_outcome {
    struct stats time[KINDS];
    double speed_up;
    bool same; /* bits, on all nodes, of both */
    char how[EXPLAIN_MAX];
};

/* ---- jobs of the nodes ---- */

/* Sums of a few uniform numbers are near enough to a bell curve; one in LARGE_EVERY is eight times as
 * large. */
static void job_fill(void *arg, int index)
{
    struct compressed_bench_run *b = arg;
    float *gradient = (float *)(void *)b->nodes.list[index].source;
    struct prng prng;
    prng_init(&prng, 77 + (uint64_t)index);
    for (size_t i = 0; i < b->count; i++) {
        uint64_t bits = prng_u64(&prng);
        double sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (double)(bits >> (16 * k) & 0xffff) / 65535.0 - 0.5;
        gradient[i] = (float)(sum * 1e-3 * (bits % LARGE_EVERY == 0 ? 8 : 1));
    }
}

static int call_compressed(struct compressed_bench_run *b, int index)
{
    bool matrix = b->count % COLUMN == 0 && b->count > COLUMN;
    size_t dims[2] = {matrix ? COLUMN : b->count, b->count / COLUMN};
    struct hearth_tensor tensor = {.size = sizeof tensor,
                                   .name = "gradient",
                                   .data = b->nodes.list[index].buffer,
                                   .dtype = HEARTH_F32,
                                   .ndim = matrix ? 2 : 1,
                                   .dims = dims};
    return hearth_compressor_all_reduce(b->compressors[index], &tensor, HEARTH_OP_AVG, NULL);
}

static void job_call(void *arg, int index)
{
    struct compressed_bench_run *b = arg;
    struct bench_node *n = &b->nodes.list[index];
    memcpy(n->buffer, n->source, b->count * sizeof(float));
    rank_threads_align(&b->nodes.threads);
    uint64_t start = clock_real();
    int status = b->kind == PLAIN ? hearth_all_reduce(n->group, n->buffer, n->buffer, b->count, HEARTH_F32,
                                                      HEARTH_OP_AVG, &b->opts)
                                  : call_compressed(b, index);
    b->seconds[index] = (double)(clock_real() - start) / (double)NS_PER_S;
    bench_note_failure(n, status);
}

static void job_hash(void *arg, int index)
{
    struct compressed_bench_run *b = arg;
    b->hashes[index] = hash128(b->nodes.list[index].buffer, b->count * sizeof(float));
}

/* ---- measuring ---- */

static int one_call(struct compressed_bench_run *b, enum kind kind, double *time)
{
    b->kind = kind;
    bench_nodes_mark(&b->nodes);
    int code = bench_nodes_run(&b->nodes, job_call, b, b->count * sizeof(float));
    *time = 0;
    for (int r = 0; r < b->nodes.ranks; r++)
        *time = b->seconds[r] > *time ? b->seconds[r] : *time;
    b->sent_len[kind] = bench_nodes_sent(&b->nodes);
    return code;
}

static int timed_call(struct compressed_bench_run *b, enum kind kind)
{
    double time;
    int code = one_call(b, kind, &time);
    if (!code && b->time_count[kind] < TIMES_MAX)
        b->times[kind][b->time_count[kind]++] = time;
    return code;
}

static bool same_bits(struct compressed_bench_run *b)
{
    bool same = true;
    rank_threads_run(&b->nodes.threads, job_hash, b);
    for (int r = 1; r < b->nodes.ranks; r++) {
        const struct hash128 *a = &b->hashes[0], *c = &b->hashes[r];
        bool equal = a->low == c->low && a->high == c->high;
        if (!equal)
            fprintf(stderr, "hearth bench allreduce: nodes 0 and %d hold different bits; please report it\n",
                    r);
        same = same && equal;
    }
    return same;
}

static int measure(struct compressed_bench_run *b, struct progress *progress, struct compressed_outcome *out)
{
    double plain_s, cold_s, warm_s;
    rank_threads_run(&b->nodes.threads, job_fill, b);
    b->time_count[PLAIN] = b->time_count[COMPRESSED] = 0;
    int code = one_call(b, COMPRESSED, &cold_s);
    if (!code)
        code = one_call(b, COMPRESSED, &warm_s);
    if (!code)
        code = one_call(b, PLAIN, &plain_s);
    if (code)
        return code;
    out->same = same_bits(b);
    int burst = warm_s > 0 ? (int)(plain_s / warm_s) : BURST_MAX;
    burst = burst < 1 ? 1 : burst > BURST_MAX ? BURST_MAX : burst;
    int rounds = (int)(SIZE_S / (plain_s + burst * warm_s));
    rounds = rounds < ROUNDS_MIN ? ROUNDS_MIN : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    rounds = b->setup->iters > 0 ? b->setup->iters : rounds;
    for (int round = 0; round < rounds && !code; round++) {
        code = timed_call(b, PLAIN);
        for (int i = 0; i < burst && !code; i++)
            code = timed_call(b, COMPRESSED);
        progress_show(progress, (double)(round + 1) / rounds);
    }
    if (code)
        return code;
    out->same = same_bits(b) && out->same;
    for (int k = 0; k < KINDS; k++)
        out->time[k] = stats_of(b->times[k], b->time_count[k]);
    out->speed_up = out->time[PLAIN].median / out->time[COMPRESSED].median;
    if (hearth_compressor_explain(b->compressors[0], "gradient", out->how, sizeof out->how) < 0)
        out->how[0] = 0;
    return EXIT_GOOD;
}

/* ---- showing ---- */

static const int widths[] = {8, 9, 9, 9, 9, 8, 10, 10, 6, 0};

static void show_head(const struct compressed_bench_run *b)
{
    char machine[256], line[96];
    machine_line(machine, sizeof machine);
    bench_line_text(&b->setup->line, line, sizeof line);
    printf("%sall_reduce of f32, average, by %s, %d node%s%s%s, in turns with the plain one\n%s\n\n",
           paint(stdout, PAINT_BOLD), b->setup->codec, b->nodes.ranks, b->nodes.ranks == 1 ? "" : "s",
           paint(stdout, PAINT_NONE), line, machine);
    COLUMNS(widths, "bytes", "plain", "p99", "compr.", "p99", "speed-up", "plain sent", "sent", "calls",
            "same bits");
}

static void show_row(const struct compressed_bench_run *b, const struct compressed_outcome *o)
{
    const struct stats *plain = &o->time[PLAIN], *fast = &o->time[COMPRESSED];
    COLUMNS(widths, text_bytes((double)b->count * sizeof(float)).s, text_time(plain->median).s,
            text_time(plain->p99).s, text_time(fast->median).s, text_time(fast->p99).s,
            text_ratio(o->speed_up).s, text_bytes((double)b->sent_len[PLAIN]).s,
            text_bytes((double)b->sent_len[COMPRESSED]).s, text_count(b->time_count[COMPRESSED]).s,
            text_exact(o->same).s);
    if (o->how[0])
        COLUMNS(widths, "", o->how);
}

static void row_json(const struct compressed_bench_run *b, const struct compressed_outcome *o, json_t *row)
{
    row_text(row, "name", "allreduce");
    row_text(row, "transport", b->setup->line.transport);
    row_bool(row, "secure", bench_line_secure(&b->setup->line));
    row_text(row, "compress", b->setup->codec);
    row_text(row, "how", o->how);
    row_text(row, "dtype", "f32");
    row_count(row, "ranks", (uint64_t)b->nodes.ranks);
    row_count(row, "bytes", b->count * sizeof(float));
    row_real(row, "rate_bits_per_s", b->setup->line.rate * 8);
    row_real(row, "rtt_us", b->setup->line.rtt_s * 1e6);
    row_count(row, "calls", b->time_count[COMPRESSED]);
    row_real(row, "median_us", o->time[COMPRESSED].median * 1e6);
    row_real(row, "p99_us", o->time[COMPRESSED].p99 * 1e6);
    row_real(row, "spread", o->time[COMPRESSED].spread);
    row_real(row, "bytes_per_s", (double)b->count * sizeof(float) / o->time[COMPRESSED].median);
    row_text(row, "vs", "plain");
    row_real(row, "vs_median_us", o->time[PLAIN].median * 1e6);
    row_real(row, "ratio", 1 / o->speed_up);
    row_real(row, "speed_up", o->speed_up);
    row_count(row, "bytes_sent", b->sent_len[COMPRESSED]);
    row_count(row, "vs_bytes_sent", b->sent_len[PLAIN]);
    row_bool(row, "ok", o->same);
}

/* ---- the command ---- */

static int open_compressors(struct compressed_bench_run *b)
{
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.codec = b->setup->codec;
    config.vectors = 1;
    config.min_count = 0;
    for (int r = 0; r < b->nodes.ranks; r++) {
        if (hearth_compressor_open(b->nodes.list[r].group, &config, &b->compressors[r]) == HEARTH_OK)
            continue;
        return command_fail("bench allreduce", "node %d: %s", r, hearth_error_text());
    }
    return EXIT_GOOD;
}

static void close_compressors(struct compressed_bench_run *b)
{
    for (int r = 0; r < b->nodes.ranks; r++) {
        hearth_compressor_close(b->compressors[r]);
        b->compressors[r] = NULL;
    }
}

/* Each size begins without a past. */
static int run_sizes(struct compressed_bench_run *b, json_t *doc)
{
    struct progress progress;
    int code = EXIT_GOOD, wrong = 0;
    if (!doc)
        show_head(b);
    for (size_t i = 0; i < b->setup->sizes->count && !code; i++) {
        struct compressed_outcome outcome = {0};
        b->count = b->setup->sizes->item[i] / sizeof(float);
        progress_start(&progress, "bench allreduce");
        code = open_compressors(b);
        if (!code)
            code = measure(b, &progress, &outcome);
        progress_hide(&progress);
        if (!code && doc)
            row_json(b, &outcome, doc_row(doc));
        else if (!code)
            show_row(b, &outcome);
        wrong += !code && !outcome.same;
        close_compressors(b);
    }
    return wrong ? EXIT_FAILED_CHECK : code;
}

int bench_compressed(const struct compressed_bench *setup, json_t *doc)
{
    const struct bench_wants wants = {.line = &setup->line, .sizes = setup->sizes, .sources = true};
    struct compressed_bench_run *b = calloc(1, sizeof *b); /* large: it holds the times */
    if (!b)
        return command_fail("bench allreduce", "no memory");
    b->setup = setup;
    hearth_opts_init(&b->opts);
    b->opts.algo = setup->algo;
    int code = bench_nodes_open(&b->nodes, &wants);
    if (!code)
        code = run_sizes(b, doc);
    bench_nodes_close(&b->nodes);
    free(b);
    return code;
}
