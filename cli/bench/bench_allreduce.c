/* SPDX-License-Identifier: Apache-2.0 */
/* hearth bench allreduce: all_reduce among nodes of this process, in turns with a memcpy of the same bytes.
 *
 * One thread per node. They start together (rank_threads_align), then call a burst of all_reduces in place,
 * back to back; a call takes as long as it does on the slowest node. Between bursts the main thread copies
 * the same number of bytes, as often, while the nodes sleep. Bursts are short, so that a drift of the machine
 * hits both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench_compressed.h"
#include "cli/bench/bench_nodes.h"
#include "cli/commands.h"
#include "cli/plan/plan_setup.h"
#include "cli/shared/args.h"
#include "cli/shared/json.h"
#include "cli/shared/progress.h"
#include "cli/shared/stats.h"
#include "cli/shared/table.h"
#include "os/clock.h"

#define RANKS_MAX  BENCH_RANKS_MAX
#define PERIOD     1021 /* elements of the pattern; a prime, so that a piece at a wrong place shows */
#define SUM_MAX    100  /* largest element of a result: exact in every type */
#define SIZE_S     1.0  /* time for one size, about */
#define BURST_S    2e-3
#define BURST_MAX  200
#define ROUNDS_MIN 5
#define ROUNDS_MAX 100
#define CALLS_MAX  (BURST_MAX * ROUNDS_MAX)
#define COPY_BATCH (64 << 10) /* smaller copies are timed several at once */
#define WORD_LEN   16

struct allreduce_bench {
    /* What the user says. */
    struct bench_line line;
    const char *codec; /* NULL: not compressed */
    int dtype, algo, iters;
    struct arg_list sizes;
    bool json;

    struct bench_nodes nodes;
    double bursts[RANKS_MAX][BURST_MAX]; /* seconds of each call of this burst */
    bool right[RANKS_MAX];
    struct hearth_opts opts;
    struct mutex lock;
    char chosen[WORD_LEN]; /* the last algorithm the log spoke of; under the lock */
    uint8_t *copy_source, *copy_target;
    size_t bytes, element_len;
    int calls; /* of a burst */
    double times[CALLS_MAX + BURST_MAX], copies[CALLS_MAX + BURST_MAX];
    size_t time_count;
};

struct outcome {
    size_t calls;
    struct stats time, copy;
    uint64_t sent_len; /* per call, busiest node */
    char algo[WORD_LEN];
    uint32_t hops; /* 0: not known */
    bool right;
};

static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

/* ---- jobs of the nodes ---- */

static int input_at(int rank, int index, int ranks)
{
    return (index * 31 + rank * 17) % (SUM_MAX / ranks + 1);
}

static void make_block(const struct allreduce_bench *b, int rank, uint8_t *block)
{
    for (int i = 0; i < PERIOD; i++) {
        int value = 0;
        for (int r = 0; r < b->line.ranks; r++)
            value += rank == RANK_NONE || rank == r ? input_at(r, i, b->line.ranks) : 0;
        pattern_encode((enum hearth_dtype)b->dtype, value, block + (size_t)i * b->element_len);
    }
}

static void job_fill(void *arg, int index)
{
    struct allreduce_bench *b = arg;
    uint8_t block[PERIOD * 8];
    make_block(b, index, block);
    pattern_fill(b->nodes.list[index].buffer, b->bytes, block, PERIOD * b->element_len);
}

static void job_check(void *arg, int index)
{
    struct allreduce_bench *b = arg;
    uint8_t block[PERIOD * 8];
    make_block(b, RANK_NONE, block);
    b->right[index] = pattern_holds(b->nodes.list[index].buffer, b->bytes, block, PERIOD * b->element_len);
}

static void job_run(void *arg, int index)
{
    struct allreduce_bench *b = arg;
    struct bench_node *n = &b->nodes.list[index];
    size_t count = b->bytes / b->element_len;
    int status = HEARTH_OK;
    rank_threads_align(&b->nodes.threads);
    for (int c = 0; c < b->calls && !status; c++) {
        uint64_t start = clock_real();
        status = hearth_all_reduce(n->group, n->buffer, n->buffer, count, (enum hearth_dtype)b->dtype,
                                   HEARTH_OP_SUM, &b->opts);
        b->bursts[index][c] = (double)(clock_real() - start) / (double)NS_PER_S;
    }
    bench_note_failure(n, status);
}

/* ---- measuring ---- */

static int run_burst(struct allreduce_bench *b, int calls)
{
    b->calls = calls;
    return bench_nodes_run(&b->nodes, job_run, b, b->bytes);
}

static double burst_call(const struct allreduce_bench *b, int call)
{
    double slowest = 0;
    for (int r = 0; r < b->line.ranks; r++)
        slowest = b->bursts[r][call] > slowest ? b->bursts[r][call] : slowest;
    return slowest;
}

static double time_copy(const struct allreduce_bench *b)
{
    size_t batch = b->bytes < COPY_BATCH ? COPY_BATCH / b->bytes : 1;
    uint64_t start = clock_real();
    for (size_t i = 0; i < batch; i++)
        copy(b->copy_target, b->copy_source, b->bytes);
    return (double)(clock_real() - start) / (double)NS_PER_S / (double)batch;
}

/* One call on fresh input; is the result right on every node? */
static int verify(struct allreduce_bench *b, bool *right)
{
    rank_threads_run(&b->nodes.threads, job_fill, b);
    int code = run_burst(b, 1);
    if (code)
        return code;
    rank_threads_run(&b->nodes.threads, job_check, b);
    for (int r = 0; r < b->line.ranks; r++) {
        if (!b->right[r])
            fprintf(stderr,
                    "hearth bench allreduce: node %d has a wrong result for %s of %s; please report it\n", r,
                    text_bytes((double)b->bytes).s, hearth_dtype_name((enum hearth_dtype)b->dtype));
        *right = *right && b->right[r];
    }
    return EXIT_GOOD;
}

/* How many calls a burst, how many bursts: from the time of a call, or as the user says. */
static void pace(const struct allreduce_bench *b, double call_s, int *burst, int *rounds)
{
    double each = call_s + time_copy(b);
    double fit = BURST_S / each;
    *burst = fit < 1 ? 1 : fit > BURST_MAX ? BURST_MAX : (int)fit;
    double wanted = SIZE_S / (each * *burst);
    *rounds = wanted < ROUNDS_MIN ? ROUNDS_MIN : wanted > ROUNDS_MAX ? ROUNDS_MAX : (int)wanted;
    if (b->iters == 0)
        return;
    *burst = *burst < b->iters ? *burst : b->iters;
    *rounds = (b->iters + *burst - 1) / *burst;
}

static int measure(struct allreduce_bench *b, struct progress *progress, double share_begin,
                   struct outcome *out)
{
    int burst, rounds, code = verify(b, &out->right);
    if (!code)
        code = run_burst(b, 2);
    if (code)
        return code;
    pace(b, burst_call(b, 1), &burst, &rounds);
    bench_nodes_mark(&b->nodes);
    b->time_count = 0;
    for (int round = 0; round < rounds; round++) {
        for (int c = 0; c < burst; c++)
            b->copies[b->time_count + (size_t)c] = time_copy(b);
        code = run_burst(b, burst);
        if (code)
            return code;
        for (int c = 0; c < burst; c++)
            b->times[b->time_count++] = burst_call(b, c);
        progress_show(progress, share_begin + (double)round / rounds / (double)b->sizes.count);
    }
    out->calls = b->time_count;
    out->sent_len = bench_nodes_sent(&b->nodes) / b->time_count;
    out->time = stats_of(b->times, b->time_count);
    out->copy = stats_of(b->copies, b->time_count);
    return verify(b, &out->right);
}

/* ---- what was chosen ---- */

/* The node says once for every new plan which algorithm it takes: "... by ring". */
static void catch_plan(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    struct allreduce_bench *b = arg;
    enum hearth_algo algo;
    (void)level;
    if (strcmp(id, "HEARTH-PLAN") != 0)
        return;
    for (const char *by = strstr(text, " by "); by; by = strstr(by + 1, " by ")) {
        char word[WORD_LEN];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(by + 4, " ,;:"), by + 4);
        if (hearth_algo_parse(word, &algo) != HEARTH_OK)
            continue;
        mutex_lock(&b->lock);
        snprintf(b->chosen, sizeof b->chosen, "%s", word);
        mutex_unlock(&b->lock);
    }
}

static uint32_t hops_of(const struct allreduce_bench *b, const char *algo_name)
{
    struct plan_setup setup;
    struct rehearsal rehearsal;
    struct usage usage = {.name = "bench allreduce"};
    enum hearth_algo algo;
    if (hearth_algo_parse(algo_name, &algo) || algo == HEARTH_ALGO_AUTO)
        return 0;
    plan_setup_init(&setup);
    setup.ranks = b->line.ranks;
    setup.dtype = b->dtype;
    setup.bytes = b->bytes;
    if (plan_setup_build(&setup, &usage) != ARGS_GO)
        return 0;
    plan_setup_rehearse(&setup, algo, NULL, &rehearsal);
    plan_setup_fini(&setup);
    return rehearsal.done ? rehearsal.result.hops : 0;
}

static void note_choice(struct allreduce_bench *b, struct outcome *out)
{
    mutex_lock(&b->lock);
    const char *name = hearth_algo_name((enum hearth_algo)b->algo);
    if (b->algo == HEARTH_ALGO_AUTO && *b->chosen)
        name = b->chosen;
    snprintf(out->algo, sizeof out->algo, "%s", name);
    mutex_unlock(&b->lock);
    out->hops = hops_of(b, out->algo);
}

/* ---- showing ---- */

static const int widths[] = {8, -12, 8, 8, 9, 8, 9, 10, 6, 0};

static void show_head(const struct allreduce_bench *b)
{
    char machine[256], line[96];
    machine_line(machine, sizeof machine);
    bench_line_text(&b->line, line, sizeof line);
    printf("%sall_reduce of %s, sum, in place, %d node%s%s%s, beside memcpy on one thread\n%s\n\n",
           paint(stdout, PAINT_BOLD), hearth_dtype_name((enum hearth_dtype)b->dtype), b->line.ranks,
           b->line.ranks == 1 ? "" : "s", paint(stdout, PAINT_NONE), line, machine);
    COLUMNS(widths, "bytes", "algorithm", "median", "p99", "speed", "memcpy", "x memcpy", "node sends",
            "calls", "exact");
}

static void show_row(const struct allreduce_bench *b, const struct outcome *o)
{
    COLUMNS(widths, text_bytes((double)b->bytes).s, o->algo, text_time(o->time.median).s,
            text_time(o->time.p99).s, text_speed((double)b->bytes / o->time.median).s,
            text_time(o->copy.median).s, text_ratio(o->time.median / o->copy.median).s,
            text_bytes((double)o->sent_len).s, text_count(o->calls).s, text_exact(o->right).s);
}

static void row_json(const struct allreduce_bench *b, const struct outcome *o, json_t *row)
{
    row_text(row, "name", "allreduce");
    row_text(row, "transport", b->line.transport);
    row_bool(row, "secure", bench_line_secure(&b->line));
    row_text(row, "algo", o->algo);
    row_text(row, "compress", "none");
    row_text(row, "dtype", hearth_dtype_name((enum hearth_dtype)b->dtype));
    row_count(row, "ranks", (uint64_t)b->line.ranks);
    row_count(row, "bytes", b->bytes);
    row_count(row, "calls", o->calls);
    row_real(row, "median_us", o->time.median * 1e6);
    row_real(row, "p99_us", o->time.p99 * 1e6);
    row_real(row, "spread", o->time.spread);
    row_real(row, "bytes_per_s", (double)b->bytes / o->time.median);
    row_text(row, "vs", "memcpy");
    row_real(row, "vs_median_us", o->copy.median * 1e6);
    row_real(row, "ratio", o->time.median / o->copy.median);
    row_count(row, "bytes_sent", o->sent_len);
    if (o->hops > 0)
        row_count(row, "hops", o->hops);
    row_bool(row, "ok", o->right);
}

/* ---- the command ---- */

/* What memcpy moves. */
static int take_memory(struct allreduce_bench *b)
{
    size_t len = 64;
    for (size_t i = 0; i < b->sizes.count; i++)
        len = b->sizes.item[i] > len ? (b->sizes.item[i] + 63) / 64 * 64 : len;
    b->copy_source = aligned_alloc(64, len);
    b->copy_target = aligned_alloc(64, len);
    if (!b->copy_source || !b->copy_target)
        return command_fail("bench allreduce", "no memory for two buffers of %s; try a smaller --bytes",
                            text_bytes((double)len).s);
    memset(b->copy_source, 1, len);
    memset(b->copy_target, 2, len);
    return EXIT_GOOD;
}

static int run_sizes(struct allreduce_bench *b, json_t *doc)
{
    struct progress progress;
    int wrong = 0, code = EXIT_GOOD;
    if (!doc)
        show_head(b);
    progress_start(&progress, "bench allreduce");
    for (size_t i = 0; i < b->sizes.count && !code; i++) {
        struct outcome outcome = {.right = true};
        b->bytes = b->sizes.item[i];
        code = measure(b, &progress, (double)i / (double)b->sizes.count, &outcome);
        progress_hide(&progress);
        if (code)
            break;
        note_choice(b, &outcome);
        if (doc)
            row_json(b, &outcome, doc_row(doc));
        else
            show_row(b, &outcome);
        wrong += !outcome.right;
    }
    return wrong ? EXIT_FAILED_CHECK : code;
}

static int run_bench(struct allreduce_bench *b, json_t *doc)
{
    const struct bench_wants wants = {.line = &b->line, .sizes = &b->sizes, .log = catch_plan, .log_arg = b};
    hearth_opts_init(&b->opts);
    b->opts.algo = (enum hearth_algo)b->algo;
    int code = bench_nodes_open(&b->nodes, &wants);
    if (!code)
        code = take_memory(b);
    if (!code)
        code = run_sizes(b, doc);
    bench_nodes_close(&b->nodes);
    free(b->copy_source);
    free(b->copy_target);
    return code;
}

static int check_bench(struct allreduce_bench *b, const struct usage *usage)
{
    b->element_len = hearth_dtype_size((enum hearth_dtype)b->dtype);
    for (size_t i = 0; i < b->sizes.count; i++) {
        if (b->sizes.item[i] % b->element_len)
            return args_refuse(usage, "--bytes %zu is not a whole number of %s elements of %zu bytes",
                               b->sizes.item[i], hearth_dtype_name((enum hearth_dtype)b->dtype),
                               b->element_len);
    }
    if (b->codec && hearth_codec_check(b->codec))
        return args_refuse(usage, "--compress %s", hearth_error_text());
    if (b->codec && b->dtype != HEARTH_F32)
        return args_refuse(usage, "--compress is measured with --dtype f32");
    return bench_line_check(&b->line, usage);
}

static int run_either(struct allreduce_bench *b, int argc, char **argv)
{
    const struct compressed_bench compressed = {.line = b->line,
                                                .codec = b->codec,
                                                .algo = (enum hearth_algo)b->algo,
                                                .iters = b->iters,
                                                .sizes = &b->sizes};
    json_t *doc = NULL;
    if (b->json && !(doc = doc_open(argc, argv)))
        return EXIT_FAILED_CHECK;
    int code = b->codec ? bench_compressed(&compressed, doc) : run_bench(b, doc);
    return doc && !doc_close(doc) ? EXIT_FAILED_CHECK : code;
}

int bench_allreduce(int argc, char **argv)
{
    struct allreduce_bench *b = calloc(1, sizeof *b); /* large: it holds the times */
    if (!b || mutex_init(&b->lock)) {
        free(b);
        return command_fail("bench allreduce", "no memory");
    }
    b->line = (struct bench_line){.transport = "mem", .ranks = 4};
    b->sizes = (struct arg_list){{4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, (size_t)100 << 20}, 6};
    struct arg args[] = {
        {"transport", ARG_TEXT, &b->line.transport,
         .about = "what joins the nodes: " BENCH_TRANSPORTS " (default mem)", .value_name = "NAME"},
        {"ranks", ARG_INT, &b->line.ranks, .about = "nodes, one thread each (default 4)", .min = 1,
         .max = RANKS_MAX},
        {"bytes", ARG_SIZES, &b->sizes, .about = "sizes of the buffer (default 4,1K,64K,1M,16M,100M)",
         .min = 1},
        {"dtype", ARG_CHOICE, &b->dtype, .about = "type of the elements (default f32)",
         .choice = plan_setup_dtype},
        {"algo", ARG_CHOICE, &b->algo, .about = "algorithm (default auto)", .choice = plan_setup_algo},
        {"compress", ARG_TEXT, &b->codec, .about = "a codec: measured in turns with the plain all_reduce",
         .value_name = "CODEC"},
        {"rate", ARG_RATE, &b->line.rate, .about = "what a node sends at most (default: no limit)"},
        {"rtt", ARG_DURATION, &b->line.rtt_s, .about = "mem: the way there and back takes so long"},
        {"plain", ARG_FLAG, &b->line.plain, .about = "tcp, shm: no secret, no encryption"},
        {"iters", ARG_INT, &b->iters, .about = "calls of each size (default auto: about a second)", .min = 1,
         .max = CALLS_MAX, .word = "auto"},
        {"json", ARG_FLAG, &b->json, .about = "print one JSON object"},
    };
    struct usage usage = {
        "bench allreduce",
        "all_reduce among nodes of this process. A call takes as long as on the slowest node; median "
        "and 99th percentile of many calls, in turns with a memcpy of the same bytes, or with --compress "
        "the compressed in turns with the plain one; the result is checked on every node.",
        "hearth bench allreduce --ranks 2 --bytes 100M --compress topk:0.01,values=int8 --rate 100mbit",
        USAGE_ARGS(args)};
    int code = args_parse(&usage, argc - 1, argv + 1);
    if (code == ARGS_GO)
        code = check_bench(b, &usage);
    if (code == ARGS_GO)
        code = run_either(b, argc, argv);
    mutex_fini(&b->lock);
    free(b);
    return code;
}
