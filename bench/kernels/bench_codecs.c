/* SPDX-License-Identifier: Apache-2.0 */
/* bench_kernels, codecs: each row in turns with a memcpy of the same elements, medians. Targets are
 * shown beside what was measured, and never make the command fail: machines differ. */
#include "bench/kernels/bench_codecs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/kernels/codec_lab.h"
#include "cli/shared/progress.h"
#include "cli/shared/stats.h"
#include "cli/shared/text.h"
#include "os/clock.h"

#define TURNS_MIN           9
#define TURNS_MIN_REFERENCE 5 /* they take seconds */
#define TURNS_MAX           99
#define TURNS_S             1.0   /* of one row, about */
#define CHUNK_MIN_S         50e-6 /* a shorter pass is repeated until it takes this long */
#define SAMPLE_COUNT        16461 /* elements of the tensor that the scalar kernels do, too */
#define INDEX_TARGET        1.09  /* bits / entropy */
#define ELEMENT_TARGET      17.0  /* bits */
#define SCALING_TARGET      1.7   /* of two threads, where memcpy has that */

/* Not inlined and not seen through, so that copies nobody reads are made all the same. */
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

struct codec_measured {
    struct stats time, memcpy_time; /* seconds */
    double cpu_ratio;               /* as time / memcpy_time, of the time that the thread had a processor */
    double scaling, memcpy_scaling; /* one thread's time / that of all; 0: not measured */
    bool ok;
};

static bool fits(const char *match, const char *name)
{
    return !match || strstr(name, match);
}

/* ---- measuring ---- */

struct took {
    double wall, cpu; /* seconds */
};

static struct took now(void)
{
    struct timespec cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    return (struct took){(double)clock_real() / (double)NS_PER_S,
                         (double)cpu.tv_sec + (double)cpu.tv_nsec * 1e-9};
}

static struct took since(struct took start, int repeats)
{
    struct took end = now();
    return (struct took){(end.wall - start.wall) / repeats, (end.cpu - start.cpu) / repeats};
}

static struct took time_run(struct lab *lab, const struct lab_row *row, int repeats)
{
    struct took start = now();
    for (int i = 0; i < repeats; i++)
        row->run(lab);
    return since(start, repeats);
}

struct copying {
    struct lab *lab;
    size_t len, pieces;
};

static void copy_piece(void *arg, size_t piece)
{
    struct copying *c = arg;
    size_t from = c->len / c->pieces * piece,
           to = piece + 1 == c->pieces ? c->len : from + c->len / c->pieces;
    copy((uint8_t *)c->lab->out + from, (const uint8_t *)c->lab->x + from, to - from);
}

static struct took time_memcpy(struct lab *lab, const struct lab_row *row, int repeats)
{
    struct copying copying = {lab, lab_used(row, lab->count) * sizeof(float), workers_count(lab->workers)};
    struct took start = now();
    for (int i = 0; i < repeats; i++)
        workers_run(lab->workers, copy_piece, &copying, copying.pieces);
    return since(start, repeats);
}

/* Samples of one row, in turns. */
struct turns {
    int count, repeats;
    double wall[TURNS_MAX], cpu[TURNS_MAX], copy_wall[TURNS_MAX], copy_cpu[TURNS_MAX];
};

static void plan_turns(struct turns *turns, struct lab *lab, const struct lab_row *row)
{
    int least = row->flags & LAB_REFERENCE ? TURNS_MIN_REFERENCE : TURNS_MIN;
    if (!(row->flags & LAB_REFERENCE))
        time_run(lab, row, 1); /* the first touch */
    double once = time_memcpy(lab, row, 1).wall + time_run(lab, row, 1).wall;
    turns->repeats = once < CHUNK_MIN_S ? (int)(CHUNK_MIN_S / (once + 1e-9)) + 1 : 1;
    double wanted = TURNS_S / (once * turns->repeats);
    turns->count = wanted < least ? least : wanted > TURNS_MAX ? TURNS_MAX : (int)wanted;
}

static void take_turn(struct turns *turns, int turn, struct lab *lab, const struct lab_row *row)
{
    struct took copied = time_memcpy(lab, row, turns->repeats); /* what a decode adds to is as before */
    struct took ran = time_run(lab, row, turns->repeats);
    turns->copy_wall[turn] = copied.wall;
    turns->copy_cpu[turn] = copied.cpu;
    turns->wall[turn] = ran.wall;
    turns->cpu[turn] = ran.cpu;
}

static void measure(struct lab *lab, const struct lab_row *row, struct workers *workers,
                    struct codec_measured *m)
{
    static struct turns one, all; /* static: large */
    bool split = workers && row->flags & LAB_SPLIT;
    plan_turns(&one, lab, row);
    all.repeats = one.repeats;
    for (int i = 0; i < one.count; i++) {
        take_turn(&one, i, lab, row);
        if (!split)
            continue;
        lab->workers = workers;
        take_turn(&all, i, lab, row);
        lab->workers = NULL;
    }
    size_t count = (size_t)one.count;
    m->time = stats_of(one.wall, count);
    m->memcpy_time = stats_of(one.copy_wall, count);
    m->cpu_ratio = stats_of(one.cpu, count).median / stats_of(one.copy_cpu, count).median;
    if (split) {
        m->scaling = m->time.median / stats_of(all.wall, count).median;
        m->memcpy_scaling = m->memcpy_time.median / stats_of(all.copy_wall, count).median;
    }
}

/* A small tensor must leave the same bits everywhere as with the scalar kernels. */
static bool equals_scalar(const struct lab_row *row, const struct kernels *kernels)
{
    struct lab ours, scalar;
    bool opened = lab_open(&ours, kernels, SAMPLE_COUNT);
    bool ok = lab_open(&scalar, kernels_named("scalar"), SAMPLE_COUNT) && opened;
    if (ok) {
        lab_prepare(&ours, row);
        lab_prepare(&scalar, row);
        row->run(&ours);
        row->run(&scalar);
        ok = lab_equal(&ours, &scalar);
    }
    lab_close(&ours);
    lab_close(&scalar);
    return ok;
}

/* ---- showing ---- */

/* A list of results is kept to compare topk_chunk with what others do. */
struct show {
    const struct codec_bench *bench;
    double chunk_s; /* of topk_chunk.encode_feedback, for an element; 0: not measured */
    struct progress progress;
};

static double ratio_of(const struct codec_measured *m)
{
    return m->time.median / m->memcpy_time.median;
}

static double element_s(const struct lab *lab, const struct lab_row *row, const struct codec_measured *m)
{
    return m->time.median / (double)lab_used(row, lab->count);
}

/* How many times as fast topk_chunk is: the time of an element, as sort has fewer of them. */
static double speed_up(const struct show *show, const struct lab *lab, const struct lab_row *row,
                       const struct codec_measured *m)
{
    return row->flags & LAB_REFERENCE && show->chunk_s > 0 ? element_s(lab, row, m) / show->chunk_s : 0;
}

static double entries_per_s(const struct lab *lab, const struct codec_measured *m)
{
    return (double)lab_entries(lab) / m->time.median;
}

static void show_notes(const struct show *show, const struct lab *lab, const struct lab_row *row,
                       const struct codec_measured *m)
{
    double faster = speed_up(show, lab, row, m);
    if (row->flags & LAB_ENTRIES)
        printf("  %.0f M entries/s", entries_per_s(lab, m) / 1e6);
    if (row->entries_m > 0)
        printf(" (target %.0f)", row->entries_m);
    if (faster > 0)
        printf("  topk_chunk is %s x as fast (target %.0f)", text_ratio(faster).s, row->reference);
    if (lab_used(row, lab->count) != lab->count)
        printf("  of %s elements", text_count(lab_used(row, lab->count)).s);
    if (m->scaling > 0)
        printf("  %d threads: %s x (memcpy %s x)", show->bench->threads, text_ratio(m->scaling).s,
               text_ratio(m->memcpy_scaling).s);
    printf("\n");
}

static void show_row(const struct show *show, const struct lab *lab, const struct lab_row *row,
                     const struct codec_measured *m)
{
    double bytes = (double)(lab_used(row, lab->count) * sizeof(float));
    printf("  %-26s %10s %10s %10s %10s %9s %7s   %s%-5s%s", row->name, text_time(m->time.median).s,
           text_time(m->time.p99).s, text_speed(bytes / m->time.median).s, text_time(m->memcpy_time.median).s,
           text_ratio(ratio_of(m)).s, row->target > 0 ? text_ratio(row->target).s : "",
           m->ok ? "" : paint(stdout, PAINT_BAD), m->ok ? "yes" : "NO",
           m->ok ? "" : paint(stdout, PAINT_NONE));
    show_notes(show, lab, row, m);
    fflush(stdout);
}

static void row_json(const struct show *show, const struct lab *lab, const struct lab_row *from,
                     const struct codec_measured *m)
{
    json_t *row = doc_row(show->bench->doc);
    double faster = speed_up(show, lab, from, m);
    size_t bytes = lab_used(from, lab->count) * sizeof(float);
    row_text(row, "name", from->name);
    row_text(row, "compress", from->codec);
    row_text(row, "set", show->bench->kernels->name);
    row_count(row, "bytes", bytes);
    row_real(row, "median_us", m->time.median * 1e6);
    row_real(row, "p99_us", m->time.p99 * 1e6);
    row_real(row, "bytes_per_s", (double)bytes / m->time.median);
    row_text(row, "vs", "memcpy");
    row_real(row, "vs_median_us", m->memcpy_time.median * 1e6);
    row_real(row, "ratio", ratio_of(m));
    row_real(row, "cpu_ratio", m->cpu_ratio);
    row_bool(row, "ok", m->ok);
    if (from->target > 0)
        row_real(row, "target", from->target);
    if (from->flags & LAB_ENTRIES)
        row_real(row, "entries_per_s", entries_per_s(lab, m));
    if (from->entries_m > 0)
        row_real(row, "target_entries_per_s", from->entries_m * 1e6);
    if (faster > 0) {
        row_real(row, "speed_up", faster);
        row_real(row, "target_speed_up", from->reference);
    }
    if (m->scaling > 0) {
        row_count(row, "threads", (uint64_t)show->bench->threads);
        row_real(row, "scaling", m->scaling);
        row_real(row, "vs_scaling", m->memcpy_scaling);
    }
}

static bool run_row(struct show *show, struct lab *lab, const struct lab_row *row, struct workers *workers)
{
    struct codec_measured m = {.ok = equals_scalar(row, show->bench->kernels)};
    lab_prepare(lab, row);
    measure(lab, row, workers, &m);
    lab_restore(lab, row);
    m.ok = m.ok && !lab->failed;
    if (strcmp(row->name, "topk_chunk.encode_feedback") == 0)
        show->chunk_s = element_s(lab, row, &m);
    progress_hide(&show->progress);
    if (show->bench->doc)
        row_json(show, lab, row, &m);
    else
        show_row(show, lab, row, &m);
    return m.ok;
}

/* ---- bits: nothing is timed, lengths follow from the counts ---- */

static const char *const bits_names[] = {"topk.bits", "topk_chunk.bits"};
static const char *const bits_codecs[] = {"topk:0.01,values=int8", "topk:0.015625,chunk=4096,values=int8"};
#define BITS_COUNT (sizeof bits_names / sizeof *bits_names)

/* Of an index of a list of `keep` of `count`: log2 of the number of such lists. */
static double entropy_of(size_t keep, size_t count)
{
    double all = lgamma((double)count + 1), in = lgamma((double)keep + 1),
           out = lgamma((double)(count - keep) + 1);
    return (all - in - out) / log(2.0) / (double)keep;
}

static void show_bits(const struct show *show, size_t which, size_t count)
{
    struct codec_list list;
    struct error error;
    if (codec_parse(bits_codecs[which], &list, &error) != HEARTH_OK)
        return;
    struct codec codec = list.codec[0], wide = codec;
    wide.values = VALUES_F32;
    size_t range = codec.chunk > 0 && codec.chunk < count ? codec.chunk : count,
           keep = codec_keeps(&codec, range);
    double element = 8.0 * (double)sparse_len(&codec, keep, range) / (double)keep;
    double index = 8.0 * (double)sparse_len(&wide, keep, range) / (double)keep - 32.0;
    double entropy = entropy_of(keep, range);
    if (!show->bench->doc) {
        printf("  %-26s an index %.2f bits, %.3f x its entropy (target %.2f); an entry %.2f bits (target "
               "%.0f)\n",
               bits_names[which], index, index / entropy, INDEX_TARGET, element, ELEMENT_TARGET);
        return;
    }
    json_t *row = doc_row(show->bench->doc);
    row_text(row, "name", bits_names[which]);
    row_text(row, "compress", bits_codecs[which]);
    row_real(row, "index_bits", index);
    row_text(row, "vs", "entropy");
    row_real(row, "vs_bits", entropy);
    row_real(row, "ratio", index / entropy);
    row_real(row, "target", INDEX_TARGET);
    row_real(row, "entry_bits", element);
    row_real(row, "target_entry_bits", ELEMENT_TARGET);
    row_bool(row, "ok", true);
}

/* ---- all of it ---- */

bool bench_codecs_fit(const char *match)
{
    bool found = false;
    for (size_t i = 0; i < lab_row_count; i++)
        found = found || fits(match, lab_rows[i].name);
    for (size_t i = 0; i < BITS_COUNT; i++)
        found = found || fits(match, bits_names[i]);
    return found;
}

static int run_all(struct show *show, struct lab *lab, struct workers *workers)
{
    const struct codec_bench *b = show->bench;
    int wrong = 0;
    progress_start(&show->progress, "bench_kernels");
    for (size_t i = 0; i < lab_row_count; i++) {
        if (!fits(b->match, lab_rows[i].name))
            continue;
        uint64_t mode = fpmode_enter();
        wrong += !run_row(show, lab, &lab_rows[i], workers);
        fpmode_leave(mode);
        progress_show(&show->progress, (double)(i + 1) / (double)lab_row_count);
    }
    progress_hide(&show->progress);
    for (size_t i = 0; i < BITS_COUNT; i++)
        if (fits(b->match, bits_names[i]))
            show_bits(show, i, lab->count);
    return wrong;
}

static void print_head(const struct codec_bench *b)
{
    printf("\n%scodecs by kernels of set %s%s, a tensor of %s floats, beside a memcpy of it\n",
           paint(stdout, PAINT_BOLD), b->kernels->name, paint(stdout, PAINT_NONE),
           text_count(b->bytes / sizeof(float)).s);
    if (b->threads > 1)
        printf("times are of one thread; two threads are to be %.1f x as fast where memcpy is\n",
               SCALING_TARGET);
    printf("\n  %-26s %10s %10s %10s %10s %9s %7s   %s\n", "codec", "median", "p99", "speed", "memcpy",
           "x memcpy", "target", "exact");
}

int bench_codecs_run(const struct codec_bench *bench)
{
    struct show show = {.bench = bench};
    struct lab lab;
    struct workers *workers = NULL;
    int wrong = -1;
    if (!lab_open(&lab, bench->kernels, bench->bytes / sizeof(float)))
        fprintf(stderr, "bench_kernels: no memory for five tensors of %s; try a smaller --bytes\n",
                text_bytes((double)bench->bytes).s);
    else if (bench->threads > 1 && !(workers = workers_start(&lab.heap, (uint32_t)bench->threads)))
        fprintf(stderr, "bench_kernels: cannot start %d threads\n", bench->threads);
    else {
        if (!bench->doc)
            print_head(bench);
        wrong = run_all(&show, &lab, workers);
    }
    workers_stop(workers);
    lab_close(&lab);
    return wrong;
}
