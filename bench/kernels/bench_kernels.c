/* SPDX-License-Identifier: Apache-2.0 */
/* bench_kernels: arithmetic on arrays, each measured in turns with a memcpy of the same bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/kernels/bench_codecs.h"
#include "cli/shared/args.h"
#include "cli/shared/json.h"
#include "cli/shared/progress.h"
#include "cli/shared/stats.h"
#include "cli/shared/text.h"
#include "core/prng.h"
#include "kernel/kernel.h"
#include "os/clock.h"
#include "os/workers.h"

#define TURNS_MIN    9
#define TURNS_MAX    99
#define TURNS_S      0.4   /* of one row, about */
#define CHUNK_MIN_S  50e-6 /* a shorter pass is repeated until it takes this long */
#define SAMPLE_COUNT 4099  /* elements that are compared with the scalar kernel */
#define ROWS_MAX     (DTYPE_COUNT * KERNEL_OPS + 4)

struct row {
    char name[32];
    enum { REDUCE, WIDEN, NARROW } kind;
    enum hearth_dtype dtype, source_dtype;
    int op;
    size_t source_len, target_len;  /* bytes of an element */
    size_t wide_len;                /* the longer of the two: `bytes` counts these */
    struct stats time, memcpy_time; /* seconds */
    bool ok;
};

struct kernel_bench {
    size_t bytes;
    const char *set, *match;
    int threads;
    bool json;
    const struct kernels *kernels;
    uint8_t *source, *target;
    struct row rows[ROWS_MAX];
    size_t count;
};

/* Not inlined and not seen through, so that copies nobody reads are made all the same. */
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

/* ---- which kernels ---- */

static struct row *add_row(struct kernel_bench *b, const char *format, const char *one, const char *other)
{
    struct row *row = &b->rows[b->count];
    snprintf(row->name, sizeof row->name, format, one, other);
    if (b->match && !strstr(row->name, b->match))
        return NULL;
    b->count++;
    return row;
}

static void add_convert(struct kernel_bench *b, enum hearth_dtype dtype, bool narrow)
{
    const char *name = hearth_dtype_name(dtype);
    struct row *row = add_row(b, "convert.%s_%s", narrow ? "f32" : name, narrow ? name : "f32");
    if (!row)
        return;
    row->kind = narrow ? NARROW : WIDEN;
    row->dtype = dtype;
    row->source_dtype = narrow ? HEARTH_F32 : dtype;
    row->source_len = narrow ? 4 : 2;
    row->target_len = narrow ? 2 : 4;
    row->wide_len = 4;
}

static void list_rows(struct kernel_bench *b)
{
    static const char *const ops[KERNEL_OPS] = {"sum", "prod", "min", "max", "band", "bor", "bxor"};
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum hearth_dtype dtype = (enum hearth_dtype)d;
        for (int op = 0; op < KERNEL_OPS; op++) {
            if (op >= KERNEL_AND && dtype < HEARTH_I8)
                continue;
            struct row *row = add_row(b, "reduce.%s.%s", hearth_dtype_name(dtype), ops[op]);
            if (!row)
                continue;
            row->dtype = row->source_dtype = dtype;
            row->op = op;
            row->source_len = row->target_len = row->wide_len = hearth_dtype_size(dtype);
        }
    }
    add_convert(b, HEARTH_BF16, true);
    add_convert(b, HEARTH_F16, true);
    add_convert(b, HEARTH_BF16, false);
    add_convert(b, HEARTH_F16, false);
}

/* ---- measuring ---- */

static void run_kernel(const struct kernels *set, const struct row *row, void *target, const void *source,
                       size_t count)
{
    if (row->kind == REDUCE)
        set->reduce(row->dtype, row->op, target, target, source, count);
    else if (row->kind == WIDEN)
        set->widen(row->dtype, target, source, count);
    else
        set->narrow(row->dtype, target, source, count);
}

/* Any bits at all, special values included, must give what the scalar kernel gives. */
static bool equals_scalar(const struct kernels *set, const struct row *row)
{
    static uint8_t source[SAMPLE_COUNT * 8], target[SAMPLE_COUNT * 8], expected[SAMPLE_COUNT * 8];
    struct prng prng;
    prng_init(&prng, 1);
    for (size_t i = 0; i < sizeof source; i++) {
        source[i] = (uint8_t)prng_u64(&prng);
        target[i] = expected[i] = (uint8_t)prng_u64(&prng);
    }
    run_kernel(set, row, target, source, SAMPLE_COUNT);
    run_kernel(kernels_named("scalar"), row, expected, source, SAMPLE_COUNT);
    return memcmp(target, expected, SAMPLE_COUNT * row->target_len) == 0;
}

static double time_kernel(const struct kernel_bench *b, const struct row *row, int repeats)
{
    uint64_t start = clock_real();
    for (int i = 0; i < repeats; i++)
        run_kernel(b->kernels, row, b->target, b->source, b->bytes / row->wide_len);
    return (double)(clock_real() - start) / (double)NS_PER_S / repeats;
}

static double time_memcpy(const struct kernel_bench *b, int repeats)
{
    uint64_t start = clock_real();
    for (int i = 0; i < repeats; i++)
        copy(b->target, b->source, b->bytes);
    return (double)(clock_real() - start) / (double)NS_PER_S / repeats;
}

/* Ones: products and sums stay finite, and nothing becomes subnormal. */
static void fill(const struct kernel_bench *b, const struct row *row)
{
    uint8_t one[8];
    pattern_encode(row->source_dtype, 1, one);
    pattern_fill(b->source, b->bytes, one, row->source_len);
    memcpy(b->target, b->source, b->bytes);
}

static void measure(const struct kernel_bench *b, struct row *row)
{
    double times[TURNS_MAX], copies[TURNS_MAX];
    row->ok = equals_scalar(b->kernels, row);
    fill(b, row);
    time_kernel(b, row, 1); /* the first touch */
    double once = time_memcpy(b, 1) + time_kernel(b, row, 1);
    int repeats = once < CHUNK_MIN_S ? (int)(CHUNK_MIN_S / (once + 1e-9)) + 1 : 1;
    double wanted = TURNS_S / (once * repeats);
    int turns = wanted < TURNS_MIN ? TURNS_MIN : wanted > TURNS_MAX ? TURNS_MAX : (int)wanted;
    for (int i = 0; i < turns; i++) {
        copies[i] = time_memcpy(b, repeats); /* brings the ones back, too */
        times[i] = time_kernel(b, row, repeats);
    }
    row->time = stats_of(times, (size_t)turns);
    row->memcpy_time = stats_of(copies, (size_t)turns);
}

/* ---- showing ---- */

static void show_row(const struct kernel_bench *b, const struct row *row)
{
    double ratio = row->time.median / row->memcpy_time.median;
    printf("  %-18s %10s %10s %10s %10s %9s   %s%s%s\n", row->name, text_time(row->time.median).s,
           text_time(row->time.p99).s, text_speed((double)b->bytes / row->time.median).s,
           text_time(row->memcpy_time.median).s, text_ratio(ratio).s, row->ok ? "" : paint(stdout, PAINT_BAD),
           row->ok ? "yes" : "NO", row->ok ? "" : paint(stdout, PAINT_NONE));
    fflush(stdout);
}

static void row_json(const struct kernel_bench *b, const struct row *from, json_t *row)
{
    row_text(row, "name", from->name);
    row_text(row, "set", b->kernels->name);
    row_count(row, "bytes", b->bytes);
    row_real(row, "median_us", from->time.median * 1e6);
    row_real(row, "p99_us", from->time.p99 * 1e6);
    row_real(row, "bytes_per_s", (double)b->bytes / from->time.median);
    row_text(row, "vs", "memcpy");
    row_real(row, "vs_median_us", from->memcpy_time.median * 1e6);
    row_real(row, "ratio", from->time.median / from->memcpy_time.median);
    row_bool(row, "ok", from->ok);
}

static int run_rows(struct kernel_bench *b, json_t *doc)
{
    struct progress progress;
    int wrong = 0;
    if (!doc) {
        printf("%skernels of set %s%s, %s, beside a memcpy of as many bytes\n\n", paint(stdout, PAINT_BOLD),
               b->kernels->name, paint(stdout, PAINT_NONE), text_bytes((double)b->bytes).s);
        printf("  %-18s %10s %10s %10s %10s %9s   %s\n", "kernel", "median", "p99", "speed", "memcpy",
               "x memcpy", "exact");
    }
    progress_start(&progress, "bench_kernels");
    for (size_t i = 0; i < b->count; i++) {
        uint64_t mode = fpmode_enter();
        measure(b, &b->rows[i]);
        fpmode_leave(mode);
        wrong += !b->rows[i].ok;
        progress_hide(&progress);
        if (doc)
            row_json(b, &b->rows[i], doc_row(doc));
        else
            show_row(b, &b->rows[i]);
        progress_show(&progress, (double)(i + 1) / (double)b->count);
    }
    progress_hide(&progress);
    return wrong;
}

/* Gives the number of rows whose bits are wrong; -1 with a message: no memory. */
static int run_arithmetic(struct kernel_bench *b, json_t *doc)
{
    int wrong = -1;
    if (b->count == 0)
        return 0;
    b->source = aligned_alloc(64, (b->bytes + 63) / 64 * 64);
    b->target = aligned_alloc(64, (b->bytes + 63) / 64 * 64);
    if (b->source && b->target)
        wrong = run_rows(b, doc);
    else
        fprintf(stderr, "bench_kernels: no memory for two buffers of %s; try a smaller --bytes\n",
                text_bytes((double)b->bytes).s);
    free(b->source);
    free(b->target);
    return wrong;
}

static int run_bench(struct kernel_bench *b, int argc, char **argv)
{
    json_t *doc = NULL;
    if (b->json && !(doc = doc_open(argc, argv)))
        return EXIT_FAILED_CHECK;
    if (doc)
        row_text(doc, "command", "bench_kernels");
    const struct codec_bench codecs = {b->bytes, b->kernels, b->match, b->threads, doc};
    int wrong = run_arithmetic(b, doc), more = 0;
    if (wrong >= 0 && bench_codecs_fit(b->match))
        more = bench_codecs_run(&codecs);
    bool written = !doc || doc_close(doc);
    if (wrong < 0 || more < 0 || !written)
        return EXIT_FAILED_CHECK;
    wrong += more;
    if (wrong)
        fprintf(stderr,
                "bench_kernels: %d kernel%s give%s other bits than the scalar definition; this is a "
                "bug in Hearth, please report it with your processor's name\n",
                wrong, wrong == 1 ? "" : "s", wrong == 1 ? "s" : "");
    return wrong ? EXIT_FAILED_CHECK : EXIT_GOOD;
}

int main(int argc, char **argv)
{
    struct kernel_bench bench = {.bytes = (size_t)256 << 20, .threads = 1};
    struct arg args[] = {
        {"bytes", ARG_SIZE, &bench.bytes,
         .about = "of each array; of conversions and codecs, the f32 side (default 256M)", .min = 64},
        {"set", ARG_TEXT, &bench.set, .about = "scalar, avx2 or neon (default: the best this processor has)",
         .value_name = "NAME"},
        {"match", ARG_TEXT, &bench.match, .about = "only kernels whose name contains this, like reduce.f32"},
        {"threads", ARG_INT, &bench.threads,
         .about = "codecs with feedback also by so many threads, beside memcpy by as many (default 1)",
         .min = 1, .max = WORKERS_MAX},
        {"json", ARG_FLAG, &bench.json, .about = "print one JSON object"},
    };
    struct usage usage = {
        "",
        "How fast arrays are combined, converted and compressed, each kernel measured in turns with a memcpy "
        "of the same bytes (median of at least 9 turns), and compared bit for bit with the scalar one; topk "
        "also beside what others do: nth_element and sort of (magnitude, index).",
        "bench_kernels --match encode_feedback --threads 2", USAGE_ARGS(args), .program = "bench_kernels"};
    int code = args_parse(&usage, argc, argv);
    if (code != ARGS_GO)
        return code;
    if (bench.bytes % 64)
        return args_refuse(&usage, "--bytes %zu is not a multiple of 64", bench.bytes);
    bench.kernels = bench.set ? kernels_named(bench.set) : kernels_best();
    if (!bench.kernels)
        return args_refuse(&usage, "--set %s: this processor or build does not have it; it has scalar and %s",
                           bench.set, kernels_best()->name);
    list_rows(&bench);
    if (bench.count == 0 && !bench_codecs_fit(bench.match))
        return args_refuse(&usage,
                           "--match %s fits no kernel; names are like reduce.f32.sum, convert.f32_bf16 and "
                           "int8.encode_feedback",
                           bench.match);
    return run_bench(&bench, argc, argv);
}
