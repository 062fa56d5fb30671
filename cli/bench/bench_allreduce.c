/* SPDX-License-Identifier: Apache-2.0 */
/* hearth bench, and its allreduce: among nodes of this process, in turns with a reference.
 *
 * One thread per node. They start together (rank_threads_align), then make a burst of calls; a call takes as
 * long as it does on the slowest node. Bursts are short and alternate with the reference, so that a drift of
 * the machine hits both.
 *
 * Plain: sums in place, back to back; the reference is a memcpy of the same bytes by the main thread, while
 * the nodes sleep.
 * Compressed: averages of gradients, noise of which a few elements are large; the reference is the plain
 * all_reduce. The gradient is copied into the buffer before each call, outside of the timing. The first
 * compressed call is not counted: it makes the state. The nodes compare the bits of what they hold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench_nodes.h"
#include "cli/commands.h"
#include "cli/plan/plan_setup.h"
#include "cli/shared/args.h"
#include "cli/shared/listing.h"
#include "cli/shared/progress.h"
#include "cli/shared/stats.h"
#include "core/hash.h"
#include "core/prng.h"
#include "os/clock.h"

#define SUM_MAX     100        /* largest element of a result: exact in every type */
#define BURST_MAX   200        /* calls of a burst */
#define COPY_BATCH  (64 << 10) /* smaller copies are timed several at once */
#define COLUMN      4096       /* a gradient has so many rows, if its length allows */
#define LARGE_EVERY 64         /* one of so many elements of a gradient is large */
#define EXPLAIN_MAX 256
#define WORD_LEN    16

/* How long one size is measured. */
static const struct bench_pace {
    double size_s, burst_s; /* burst_s 0: as long as one call of the reference */
    int burst_max, rounds_min, rounds_max;
} paces[] = {{1.0, 2e-3, BURST_MAX, 5, 100}, {3.0, 0, 10, 2, 50}};
#define CALLS_MAX 20000

enum kind { REFERENCE, MEASURED, KINDS };

struct allreduce_bench {
    /* What the user says. */
    struct bench_line line;
    const char *codec; /* NULL: not compressed */
    int dtype, algo, iters;
    struct arg_list sizes;
    bool json;

    struct bench_nodes nodes;
    hearth_compressor *compressors[BENCH_RANKS_MAX];
    double bursts[BENCH_RANKS_MAX][BURST_MAX]; /* seconds of each call of this burst */
    bool right[BENCH_RANKS_MAX];
    struct hash128 hashes[BENCH_RANKS_MAX];
    struct hearth_opts opts;
    struct mutex lock;
    char chosen[WORD_LEN]; /* the last algorithm the log spoke of; under the lock */
    uint8_t *copy_source, *copy_target;
    size_t bytes, element_len;

    enum kind kind; /* of the burst that runs */
    int calls;
    double took[BURST_MAX]; /* of the last burst: each call, on the slowest node */
    double times[KINDS][CALLS_MAX + BURST_MAX];
    size_t time_count[KINDS];
    uint64_t sent_len[KINDS]; /* of a call, by the busiest node */
    bool good;                /* all results were right */
};

static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

/* ---- jobs of the nodes ---- */

/* Sums of a few uniform numbers are near enough to a bell curve. */
static void fill_gradient(float *gradient, size_t count, int rank)
{
    struct prng prng;
    prng_init(&prng, 77 + (uint64_t)rank);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = prng_u64(&prng);
        double sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (double)(bits >> (16 * k) & 0xffff) / 65535.0 - 0.5;
        gradient[i] = (float)(sum * 1e-3 * (bits % LARGE_EVERY == 0 ? 8 : 1));
    }
}

static void job_fill(void *arg, int index)
{
    struct allreduce_bench *b = arg;
    struct bench_node *n = &b->nodes.list[index];
    struct bench_block block;
    if (b->codec) {
        fill_gradient((float *)(void *)n->source, b->bytes / sizeof(float), index);
        return;
    }
    bench_block_make(&block, (enum hearth_dtype)b->dtype, SUM_MAX, b->line.ranks, index);
    pattern_fill(n->buffer, b->bytes, block.bytes, block.len);
}

static void job_check(void *arg, int index)
{
    struct allreduce_bench *b = arg;
    struct bench_node *n = &b->nodes.list[index];
    struct bench_block block;
    if (b->codec) {
        b->hashes[index] = hash128(n->buffer, b->bytes);
        return;
    }
    bench_block_make(&block, (enum hearth_dtype)b->dtype, SUM_MAX, b->line.ranks, RANK_NONE);
    b->right[index] = pattern_holds(n->buffer, b->bytes, block.bytes, block.len);
}

static int call_compressed(struct allreduce_bench *b, int index)
{
    size_t count = b->bytes / sizeof(float);
    bool matrix = count % COLUMN == 0 && count > COLUMN;
    size_t dims[2] = {matrix ? COLUMN : count, count / COLUMN};
    struct hearth_tensor tensor = {.size = sizeof tensor,
                                   .name = "gradient",
                                   .data = b->nodes.list[index].buffer,
                                   .dtype = HEARTH_F32,
                                   .ndim = matrix ? 2 : 1,
                                   .dims = dims};
    return hearth_compressor_all_reduce(b->compressors[index], &tensor, HEARTH_OP_AVG, NULL);
}

static int call_once(struct allreduce_bench *b, struct bench_node *n, int index)
{
    if (b->codec && b->kind == MEASURED)
        return call_compressed(b, index);
    return hearth_all_reduce(n->group, n->buffer, n->buffer, b->bytes / b->element_len,
                             (enum hearth_dtype)b->dtype, b->codec ? HEARTH_OP_AVG : HEARTH_OP_SUM, &b->opts);
}

/* After a failure a node still comes to where the others wait for it. */
static void job_run(void *arg, int index)
{
    struct allreduce_bench *b = arg;
    struct bench_node *n = &b->nodes.list[index];
    int status = HEARTH_OK;
    for (int c = 0; c < b->calls; c++) {
        if (b->codec)
            memcpy(n->buffer, n->source, b->bytes);
        if (b->codec || c == 0)
            rank_threads_align(&b->nodes.threads);
        uint64_t start = clock_real();
        if (!status)
            status = call_once(b, n, index);
        b->bursts[index][c] = (double)(clock_real() - start) / (double)NS_PER_S;
    }
    bench_note_failure(n, status);
}

/* ---- measuring ---- */

static double time_copy(const struct allreduce_bench *b)
{
    size_t batch = b->bytes < COPY_BATCH ? COPY_BATCH / b->bytes : 1;
    uint64_t start = clock_real();
    for (size_t i = 0; i < batch; i++)
        copy(b->copy_target, b->copy_source, b->bytes);
    return (double)(clock_real() - start) / (double)NS_PER_S / (double)batch;
}

static int run_burst(struct allreduce_bench *b, enum kind kind, int calls)
{
    b->kind = kind;
    b->calls = calls;
    if (kind == REFERENCE && !b->codec) {
        for (int c = 0; c < calls; c++)
            b->took[c] = time_copy(b);
        return EXIT_GOOD;
    }
    bench_nodes_mark(&b->nodes);
    int code = bench_nodes_run(&b->nodes, job_run, b, b->bytes);
    b->sent_len[kind] = bench_nodes_sent(&b->nodes) / (uint64_t)calls;
    for (int c = 0; c < calls; c++) {
        b->took[c] = 0;
        for (int r = 0; r < b->line.ranks; r++)
            b->took[c] = b->bursts[r][c] > b->took[c] ? b->bursts[r][c] : b->took[c];
    }
    return code;
}

static int timed_burst(struct allreduce_bench *b, enum kind kind, int calls)
{
    int code = run_burst(b, kind, calls);
    for (int c = 0; c < calls && b->time_count[kind] < CALLS_MAX + BURST_MAX; c++)
        b->times[kind][b->time_count[kind]++] = b->took[c];
    return code;
}

/* Is what the last call left right on every node? */
static void check(struct allreduce_bench *b)
{
    rank_threads_run(&b->nodes.threads, job_check, b);
    for (int r = 0; r < b->line.ranks; r++) {
        const struct hash128 *first = &b->hashes[0], *own = &b->hashes[r];
        bool right = b->codec ? first->low == own->low && first->high == own->high : b->right[r];
        b->good = b->good && right;
        if (!right && b->codec)
            fprintf(stderr, "hearth bench allreduce: nodes 0 and %d hold different bits; please report it\n",
                    r);
        else if (!right)
            fprintf(stderr,
                    "hearth bench allreduce: node %d has a wrong result for %s of %s; please report it\n", r,
                    text_bytes((double)b->bytes).s, hearth_dtype_name((enum hearth_dtype)b->dtype));
    }
}

/* On fresh input. */
static int verify(struct allreduce_bench *b)
{
    rank_threads_run(&b->nodes.threads, job_fill, b);
    int code = run_burst(b, MEASURED, 1);
    if (!code)
        check(b);
    return code;
}

/* The first calls are slower than the rest. Afterwards `once` has the time of a call of each kind. */
static int warm_up(struct allreduce_bench *b, double once[KINDS])
{
    int code = verify(b);
    if (!code)
        code = run_burst(b, MEASURED, 2);
    once[MEASURED] = b->took[1];
    if (!code)
        code = run_burst(b, REFERENCE, 1);
    once[REFERENCE] = b->took[0];
    if (!code && b->codec)
        check(b);
    return code;
}

static int clamp(double value, int least, int most)
{
    return !(value > least) ? least : value > most ? most : (int)value;
}

static int measure(struct allreduce_bench *b, struct progress *progress, size_t index)
{
    const struct bench_pace *pace = &paces[b->codec ? 1 : 0];
    double once[KINDS], share = 1 / (double)b->sizes.count;
    int code = warm_up(b, once);
    if (code)
        return code;
    double both = once[REFERENCE] + once[MEASURED];
    int burst = clamp(pace->burst_s > 0 ? pace->burst_s / both : once[REFERENCE] / once[MEASURED], 1,
                      pace->burst_max);
    int copies = b->codec ? 1 : burst;
    int rounds = clamp(pace->size_s / (copies * once[REFERENCE] + burst * once[MEASURED]), pace->rounds_min,
                       pace->rounds_max);
    if (b->iters > 0) {
        copies = copies < b->iters ? copies : b->iters;
        burst = b->codec ? burst : copies;
        rounds = (b->iters + copies - 1) / copies;
    }
    b->time_count[REFERENCE] = b->time_count[MEASURED] = 0;
    for (int round = 0; round < rounds && !code; round++) {
        code = timed_burst(b, REFERENCE, copies);
        if (!code)
            code = timed_burst(b, MEASURED, burst);
        progress_show(progress, share * ((double)index + (double)round / rounds));
    }
    if (!code && b->codec)
        check(b);
    return code || b->codec ? code : verify(b);
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

/* 0: not known. */
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

/* ---- showing ---- */

static const struct column plain_columns[] = {
    {"bytes", "bytes", FORM_BYTES, .width = 8},       {"algorithm", "algo", FORM_TEXT, .width = -12},
    {"median", "median_us", FORM_US, .width = 8},     {"p99", "p99_us", FORM_US, .width = 8},
    {"speed", "bytes_per_s", FORM_SPEED, .width = 9}, {"memcpy", "vs_median_us", FORM_US, .width = 8},
    {"x memcpy", "ratio", FORM_RATIO, .width = 9},    {"node sends", "bytes_sent", FORM_BYTES, .width = 10},
    {"calls", "calls", FORM_COUNT, .width = 6},       {"exact", "ok", FORM_EXACT, .width = 0}};
static const struct column compressed_columns[] = {{"bytes", "bytes", FORM_BYTES, .width = 8},
                                                   {"plain", "vs_median_us", FORM_US, .width = 9},
                                                   {"p99", "vs_p99_us", FORM_US, .width = 9},
                                                   {"compr.", "median_us", FORM_US, .width = 9},
                                                   {"p99", "p99_us", FORM_US, .width = 9},
                                                   {"speed-up", "speed_up", FORM_RATIO, .width = 8},
                                                   {"plain sent", "vs_bytes_sent", FORM_BYTES, .width = 10},
                                                   {"sent", "bytes_sent", FORM_BYTES, .width = 10},
                                                   {"calls", "calls", FORM_COUNT, .width = 6},
                                                   {"same bits", "ok", FORM_EXACT, .width = 0}};

static void show_head(const struct allreduce_bench *b, const struct listing *listing)
{
    char machine[256], line[96], what[512] = "sum, in place";
    if (listing->doc)
        return;
    machine_line(machine, sizeof machine);
    bench_line_text(&b->line, line, sizeof line);
    if (b->codec)
        snprintf(what, sizeof what, "average, by %s", b->codec);
    printf("%sall_reduce of %s, %s, %d node%s%s%s, %s\n%s\n\n", paint(stdout, PAINT_BOLD),
           hearth_dtype_name((enum hearth_dtype)b->dtype), what, b->line.ranks, b->line.ranks == 1 ? "" : "s",
           paint(stdout, PAINT_NONE), line,
           b->codec ? "in turns with the plain one" : "beside memcpy on one thread", machine);
    listing_head(listing);
}

/* The algorithm of a plain call, and how long its longest chain of messages is. */
static void row_choice(struct allreduce_bench *b, json_t *row)
{
    mutex_lock(&b->lock);
    const char *name = hearth_algo_name((enum hearth_algo)b->algo);
    row_text(row, "algo", b->algo == HEARTH_ALGO_AUTO && *b->chosen ? b->chosen : name);
    mutex_unlock(&b->lock);
    uint32_t hops = hops_of(b, json_text_of(row, "algo"));
    if (hops > 0)
        row_count(row, "hops", hops);
}

static void show_row(struct allreduce_bench *b, const struct listing *listing)
{
    struct stats time = stats_of(b->times[MEASURED], b->time_count[MEASURED]);
    struct stats vs = stats_of(b->times[REFERENCE], b->time_count[REFERENCE]);
    char how[EXPLAIN_MAX] = "";
    json_t *row = json_pack(
        "{ss ss sb ss ss si sI sI sf sf sf sf ss sf sf sI sb}", "name", "allreduce", "transport",
        b->line.transport, "secure", bench_line_secure(&b->line), "compress", b->codec ? b->codec : "none",
        "dtype", hearth_dtype_name((enum hearth_dtype)b->dtype), "ranks", b->line.ranks, "bytes",
        (json_int_t)b->bytes, "calls", (json_int_t)b->time_count[MEASURED], "median_us", time.median * 1e6,
        "p99_us", time.p99 * 1e6, "spread", time.spread, "bytes_per_s", (double)b->bytes / time.median, "vs",
        b->codec ? "plain" : "memcpy", "vs_median_us", vs.median * 1e6, "ratio", time.median / vs.median,
        "bytes_sent", (json_int_t)b->sent_len[MEASURED], "ok", b->good);
    if (b->codec) {
        if (hearth_compressor_explain(b->compressors[0], "gradient", how, sizeof how) < 0)
            how[0] = 0;
        row_text(row, "how", how);
        row_real(row, "rate_bits_per_s", b->line.rate * 8);
        row_real(row, "rtt_us", b->line.rtt_s * 1e6);
        row_real(row, "vs_p99_us", vs.p99 * 1e6);
        row_real(row, "speed_up", vs.median / time.median);
        row_count(row, "vs_bytes_sent", b->sent_len[REFERENCE]);
    } else {
        row_choice(b, row);
    }
    listing_row(listing, row);
    if (how[0] && !listing->doc)
        printf("  %8s %s\n", "", how);
}

/* ---- the command ---- */

/* What memcpy moves. */
static int take_memory(struct allreduce_bench *b)
{
    size_t len = bench_largest(&b->sizes);
    if (b->codec)
        return EXIT_GOOD;
    b->copy_source = aligned_alloc(64, len);
    b->copy_target = aligned_alloc(64, len);
    if (!b->copy_source || !b->copy_target)
        return command_fail("bench allreduce", "no memory for two buffers of %s; try a smaller --bytes",
                            text_bytes((double)len).s);
    memset(b->copy_source, 1, len);
    memset(b->copy_target, 2, len);
    return EXIT_GOOD;
}

static int open_compressors(struct allreduce_bench *b)
{
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    config.codec = b->codec;
    config.vectors = 1;
    config.min_count = 0;
    for (int r = 0; b->codec && r < b->nodes.ranks; r++) {
        if (hearth_compressor_open(b->nodes.list[r].group, &config, &b->compressors[r]))
            return command_fail("bench allreduce", "node %d: %s", r, hearth_error_text());
    }
    return EXIT_GOOD;
}

static void close_compressors(struct allreduce_bench *b)
{
    for (int r = 0; r < b->nodes.ranks; r++) {
        hearth_compressor_close(b->compressors[r]);
        b->compressors[r] = NULL;
    }
}

/* Each size begins without a past. */
static int run_sizes(struct allreduce_bench *b, const struct listing *listing)
{
    struct progress progress;
    int wrong = 0, code = EXIT_GOOD;
    show_head(b, listing);
    progress_start(&progress, "bench allreduce");
    for (size_t i = 0; i < b->sizes.count && !code; i++) {
        b->bytes = b->sizes.item[i];
        b->good = true;
        code = open_compressors(b);
        if (!code)
            code = measure(b, &progress, i);
        progress_hide(&progress);
        if (!code)
            show_row(b, listing);
        wrong += !b->good;
        close_compressors(b);
    }
    return wrong ? EXIT_FAILED_CHECK : code;
}

static int run_bench(struct allreduce_bench *b, int argc, char **argv)
{
    struct listing listing = {b->codec ? compressed_columns : plain_columns,
                              sizeof plain_columns / sizeof *plain_columns, NULL};
    if (!listing_open(&listing, b->json, argc, argv))
        return EXIT_FAILED_CHECK;
    hearth_opts_init(&b->opts);
    b->opts.algo = (enum hearth_algo)b->algo;
    int code = bench_nodes_open(&b->nodes, &b->line, &b->sizes, b->codec, catch_plan, b);
    if (!code)
        code = take_memory(b);
    if (!code)
        code = run_sizes(b, &listing);
    bench_nodes_close(&b->nodes);
    free(b->copy_source);
    free(b->copy_target);
    return listing_close(&listing, code);
}

static int check_args(struct allreduce_bench *b, const struct usage *usage)
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

int bench_allreduce(int argc, char **argv)
{
    struct allreduce_bench *b = calloc(1, sizeof *b); /* large: it holds the times */
    if (!b || mutex_init(&b->lock)) {
        free(b);
        return command_fail("bench allreduce", "no memory");
    }
    b->line = (struct bench_line){.command = "bench allreduce", .transport = "mem", .ranks = 4};
    b->sizes = (struct arg_list){{4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, (size_t)100 << 20}, 6};
    struct arg args[] = {
        {"transport", ARG_TEXT, &b->line.transport,
         .about = "what joins the nodes: " BENCH_TRANSPORTS " (default mem)", .value_name = "NAME"},
        {"ranks", ARG_INT, &b->line.ranks, .about = "nodes, one thread each (default 4)", .min = 1,
         .max = BENCH_RANKS_MAX},
        {"bytes", ARG_SIZES, &b->sizes, .about = "sizes of the buffer (default 4,1K,64K,1M,16M,100M)",
         .min = 1},
        {"dtype", ARG_CHOICE, &b->dtype, .about = "type of the elements (default f32)",
         .choice = plan_setup_dtype},
        {"algo", ARG_CHOICE, &b->algo, .about = "algorithm (default auto)", .choice = plan_setup_algo},
        {"compress", ARG_TEXT, &b->codec, .about = "a codec: measured in turns with the plain all_reduce",
         .value_name = "CODEC"},
        {"rate", ARG_RATE, &b->line.rate, .about = "what a node sends at most (default: no limit)"},
        {"rtt", ARG_DURATION, &b->line.rtt_s, .about = "mem: round trip time (default 0)"},
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
        code = check_args(b, &usage);
    if (code == ARGS_GO)
        code = run_bench(b, argc, argv);
    mutex_fini(&b->lock);
    free(b);
    return code;
}

int cmd_bench(int argc, char **argv)
{
    static const struct subcommand benches[] = {
        {"allreduce", bench_allreduce, "all_reduce among nodes of this process, against memcpy",
         "hearth bench allreduce --transport mem --ranks 4 --bytes 4,1K,64K,1M,16M,100M"},
        {"messages", bench_messages, "messages and remote calls between two nodes of this process",
         "hearth bench messages --transport tcp --bytes 4,64K,100M"},
        {"cluster", bench_cluster, "all_reduce across the machines where `hearth up` runs, verified",
         "hearth bench cluster --sizes 1M,16M"},
    };
    static const struct subcommand_list all = {
        " bench", "benchmark",
        "How fast collectives and messages are. On this machine each is measured side by side with a memcpy\n"
        "of the same bytes or with bare sockets in the same run; every result is verified. Exit code 1 if "
        "it\n"
        "is wrong.",
        benches, sizeof benches / sizeof *benches};
    return subcommand_run(&all, argc, argv);
}
