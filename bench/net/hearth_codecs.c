/* SPDX-License-Identifier: Apache-2.0 */
/* A compressed all-reduce in turns with the plain one, one process of several. Uses hearth.h only; rank,
 * world and line come from the environment.
 *
 *   hearth_codecs ROUNDS BYTES CODEC...
 *
 * A round is one plain call and, for each codec, as many as take about as long, at most BURST. Calls start
 * together; a call takes as long as on the slowest rank. Rank 0 prints a line of JSON for each codec. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <hearth.h>

#define COLUMNS     4096
#define BURST       5
#define ROUNDS_MAX  100
#define CODECS_MAX  16
#define LARGE_EVERY 64 /* one of so many elements is eight times as large as the rest */

struct series {
    const char *codec; /* NULL: plain */
    hearth_compressor *compressor;
    int burst;
    double times[BURST * ROUNDS_MAX];
    size_t count;
    double sent; /* bytes of the last call, by the busiest rank */
    bool same;
    char how[256];
};

struct bench {
    hearth_node *node;
    hearth_group *world;
    size_t count;
    float *gradient, *buffer;
};

static bool good(int status)
{
    if (status != HEARTH_OK)
        fprintf(stderr, "hearth_codecs: %s\n", hearth_error_text());
    return status == HEARTH_OK;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Each value becomes the largest of all ranks'. */
static bool greatest(struct bench *b, double *values, size_t count)
{
    return good(hearth_all_reduce(b->world, values, values, count, HEARTH_F64, HEARTH_OP_MAX, NULL));
}

static double sent_bytes(struct bench *b)
{
    static char text[1 << 16];
    static const char name[] = "\nhearth_sent_bytes_total ";
    if (hearth_node_metrics_text(b->node, text, sizeof text) < 0)
        return 0;
    const char *at = strstr(text, name);
    return at ? strtod(at + sizeof name - 1, NULL) : 0;
}

/* Noise of its own on every rank, near a bell curve, with some large elements, as gradients have. */
static void fill(struct bench *b)
{
    uint64_t state = 0x9e3779b97f4a7c15U * (uint64_t)(hearth_group_rank(b->world) + 1);
    for (size_t i = 0; i < b->count; i++) {
        double sum = 0;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (int k = 0; k < 4; k++)
            sum += (double)(state >> (16 * k) & 0xffff) / 65535.0 - 0.5;
        b->gradient[i] = (float)(sum * 1e-3 * (state % LARGE_EVERY == 0 ? 8 : 1));
    }
}

/* FNV-1a by words; 32 bits, since a double holds them exactly. */
static double hash_bits(const struct bench *b)
{
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < b->count; i++) {
        uint32_t bits;
        memcpy(&bits, &b->buffer[i], sizeof bits);
        hash = (hash ^ bits) * 16777619U;
    }
    return hash;
}

static bool all_reduce(struct bench *b, struct series *s)
{
    size_t dims[2] = {b->count / COLUMNS, COLUMNS};
    struct hearth_tensor tensor = {.size = sizeof tensor,
                                   .name = "gradient",
                                   .data = b->buffer,
                                   .dtype = HEARTH_F32,
                                   .ndim = 2,
                                   .dims = dims};
    if (!s->codec)
        return good(
            hearth_all_reduce(b->world, b->buffer, b->buffer, b->count, HEARTH_F32, HEARTH_OP_AVG, NULL));
    return good(hearth_compressor_all_reduce(s->compressor, &tensor, HEARTH_OP_AVG, NULL));
}

/* One call on the gradient; its time on the slowest rank. */
static bool call(struct bench *b, struct series *s, double *time)
{
    memcpy(b->buffer, b->gradient, b->count * sizeof(float));
    double before = sent_bytes(b);
    if (!good(hearth_barrier(b->world, NULL)))
        return false;
    double start = now_s();
    if (!all_reduce(b, s))
        return false;
    double seen[2] = {now_s() - start, sent_bytes(b) - before};
    if (!greatest(b, seen, 2))
        return false;
    *time = seen[0];
    s->sent = seen[1];
    return true;
}

static bool check_bits(struct bench *b, struct series *s)
{
    double hash = hash_bits(b), seen[2] = {hash, -hash};
    bool agreed = greatest(b, seen, 2);
    s->same = seen[0] == -seen[1];
    return agreed;
}

/* The first call of a codec makes its state; the second says how many fit into the time of a plain one. */
static bool warm_up(struct bench *b, struct series *all, size_t count)
{
    double plain_s = 0, time;
    for (size_t i = 0; i < count; i++) {
        if (!call(b, &all[i], &time) || (i > 0 && !call(b, &all[i], &time)) || !check_bits(b, &all[i]))
            return false;
        plain_s = i == 0 ? time : plain_s;
        double fit = plain_s / time;
        all[i].burst = fit < 1 ? 1 : fit > BURST ? BURST : (int)fit;
    }
    return true;
}

static bool run_rounds(struct bench *b, struct series *all, size_t count, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            for (int k = 0; k < all[i].burst; k++)
                if (!call(b, &all[i], &all[i].times[all[i].count++]))
                    return false;
            if (round == rounds - 1 && all[i].same && !check_bits(b, &all[i]))
                return false;
        }
    }
    return true;
}

/* ---- showing ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(struct series *s)
{
    qsort(s->times, s->count, sizeof *s->times, compare);
    size_t half = s->count / 2;
    return s->count % 2 ? s->times[half] : (s->times[half - 1] + s->times[half]) / 2;
}

static void print_rows(const struct bench *b, struct series *all, size_t count)
{
    double plain_us = median(&all[0]) * 1e6;
    for (size_t i = 1; i < count; i++) {
        double us = median(&all[i]) * 1e6;
        printf("{\"name\": \"hearth\", \"compress\": \"%s\", \"how\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
               "\"calls\": %zu, ",
               all[i].codec, all[i].how, hearth_group_size(b->world), b->count * sizeof(float), all[i].count);
        printf("\"median_us\": %.3f, \"vs\": \"plain\", \"vs_median_us\": %.3f, \"ratio\": %.6f, "
               "\"speed_up\": %.3f, ",
               us, plain_us, us / plain_us, plain_us / us);
        printf("\"bytes_sent\": %.0f, \"vs_bytes_sent\": %.0f, \"ok\": %s}\n", all[i].sent, all[0].sent,
               all[i].same && all[0].same ? "true" : "false");
    }
    fflush(stdout);
}

/* ---- the program ---- */

static bool open_compressors(struct bench *b, struct series *all, size_t count)
{
    struct hearth_compressor_config config;
    hearth_compressor_config_init(&config);
    for (size_t i = 1; i < count; i++) {
        config.codec = all[i].codec;
        if (!good(hearth_compressor_open(b->world, &config, &all[i].compressor)))
            return false;
    }
    return true;
}

static bool run(struct bench *b, struct series *all, size_t count, int rounds)
{
    size_t len = b->count * sizeof(float);
    b->gradient = aligned_alloc(COLUMNS, len);
    b->buffer = aligned_alloc(COLUMNS, len);
    if (!b->gradient || !b->buffer || !good(hearth_node_open(NULL, &b->node)))
        return false;
    b->world = hearth_node_world(b->node);
    fill(b);
    bool done =
        open_compressors(b, all, count) && warm_up(b, all, count) && run_rounds(b, all, count, rounds);
    for (size_t i = 1; done && i < count; i++)
        if (hearth_compressor_explain(all[i].compressor, "gradient", all[i].how, sizeof all[i].how) < 0)
            all[i].how[0] = 0;
    if (done && hearth_group_rank(b->world) == 0)
        print_rows(b, all, count);
    hearth_node_close(b->node);
    return done;
}

int main(int argc, char **argv)
{
    static struct series all[1 + CODECS_MAX]; /* large, and a program measures once */
    struct bench bench = {0};
    long rounds = argc > 3 ? strtol(argv[1], NULL, 10) : 0;
    unsigned long long len = argc > 3 ? strtoull(argv[2], NULL, 10) : 0;
    size_t count = 1;
    if (rounds < 1 || rounds > ROUNDS_MAX || argc - 3 > CODECS_MAX || len == 0 ||
        len % (COLUMNS * sizeof(float)) != 0) {
        fprintf(stderr, "hearth_codecs ROUNDS BYTES CODEC...: 1 to %d rounds, a multiple of %zu bytes\n",
                ROUNDS_MAX, COLUMNS * sizeof(float));
        return 2;
    }
    for (int i = 3; i < argc; i++)
        all[count++].codec = argv[i];
    bench.count = len / sizeof(float);
    bool done = run(&bench, all, count, (int)rounds);
    free(bench.gradient);
    free(bench.buffer);
    return done ? 0 : 1;
}
