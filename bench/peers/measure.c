/* SPDX-License-Identifier: Apache-2.0 */
/* The measuring loop that all peers share.
 *
 * Per size: one call on whole numbers, compared with the exact sums; one on fractions, to see whether all
 * ranks have the same bits; batches of growing length, which warm up and say how many calls fit into the
 * time; the timed calls; then both checks again. Calls follow each other without anything in between. Each
 * rank notes the time of each of its calls; the largest over the ranks is the time of the call, collected
 * when all is over.
 *
 * In place the sums grow by the number of ranks with every call. So that no number overflows or becomes
 * subnormal (both can change the speed of arithmetic), the buffer is filled anew after a block of calls,
 * outside of the timing. The first call after that is not timed either, since the ranks come to it from the
 * filling, not from a call. */
#include "bench/peers/measure.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/samples.h"

#define CALLS_MIN    5
#define CALLS_MAX    20000
#define WARMUP_SHARE 0.2     /* of the time: a batch that takes this long ends the warm-up */
#define PERIOD       1009    /* prime, so that a piece in the wrong place is a wrong piece */
#define GROWTH_MAX   0x1p100 /* of a number within a block; the first sums are below 2^24 */
#define RANKS_MAX    128
#define PAGE_LEN     ((size_t)4096)
#define SECONDS_MAX  600.0

struct session {
    const struct peer *peer;
    double seconds;
    float *buffer;
    size_t count;
    int block; /* calls between two fillings */
    double times[CALLS_MAX];
};

struct verdict {
    bool exact, same; /* the sums are right; all ranks have the same bits, also where sums must be rounded */
};

struct memory {
    double peak,
        share; /* bytes, beyond the buffer: highest resident set, and now, shared pages split among users */
};

/* ---- agreement between ranks ---- */

static bool barrier(const struct session *s)
{
    double nothing = 0;
    return s->peer->greatest(s->peer->self, &nothing, 1);
}

static bool agree_on_first(const struct session *s, double *value)
{
    *value = s->peer->rank == 0 ? *value : -HUGE_VAL;
    return s->peer->greatest(s->peer->self, value, 1);
}

/* ---- contents ---- */

static void fill_whole(const struct session *s)
{
    for (size_t i = 0; i < s->count; i++)
        s->buffer[i] = (float)((i % PERIOD + 1) * (size_t)(s->peer->rank + 1));
}

static void fill_fractions(const struct session *s)
{
    for (size_t i = 0; i < s->count; i++)
        s->buffer[i] = 1.0F / (float)(i % PERIOD + (size_t)s->peer->rank + 3);
}

static bool is_exact(const struct session *s)
{
    size_t factor = (size_t)s->peer->ranks * (size_t)(s->peer->ranks + 1) / 2;
    for (size_t i = 0; i < s->count; i++)
        if (s->buffer[i] != (float)((i % PERIOD + 1) * factor))
            return false;
    return true;
}

/* FNV-1a by words; 32 bits, since a double holds them exactly. */
static uint32_t hash_bits(const struct session *s)
{
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < s->count; i++) {
        uint32_t bits;
        memcpy(&bits, &s->buffer[i], sizeof bits);
        hash = (hash ^ bits) * 16777619U;
    }
    return hash;
}

/* What was good before stays good only if it is so again. */
static bool verify(const struct session *s, struct verdict *verdict)
{
    const struct peer *peer = s->peer;
    fill_whole(s);
    if (!barrier(s) || !peer->all_reduce(peer->self))
        return false;
    double wrong = !is_exact(s);
    fill_fractions(s);
    if (!barrier(s) || !peer->all_reduce(peer->self))
        return false;
    double hash = hash_bits(s), seen[3] = {wrong, hash, -hash};
    if (!peer->greatest(peer->self, seen, 3))
        return false;
    verdict->exact = verdict->exact && seen[0] == 0;
    verdict->same = verdict->same && seen[1] == -seen[2];
    return true;
}

/* ---- time ---- */

static bool run_calls(struct session *s, int calls)
{
    const struct peer *peer = s->peer;
    for (int done = 0; done < calls;) {
        int end = calls - done < s->block ? calls : done + s->block;
        fill_whole(s);
        if (!barrier(s) || !peer->all_reduce(peer->self))
            return false;
        for (; done < end; done++) {
            double start = now_s();
            if (!peer->all_reduce(peer->self))
                return false;
            s->times[done] = now_s() - start;
        }
    }
    return true;
}

/* Warms up and finds how many calls fit, as rank 0 sees it. */
static bool pace(struct session *s, int *calls)
{
    double took = 0, most = CALLS_MAX;
    int batch = 1;
    for (;; batch *= 2) {
        if (!run_calls(s, batch))
            return false;
        took = 0;
        for (int i = 0; i < batch; i++)
            took += s->times[i];
        if (!agree_on_first(s, &took))
            return false;
        if (took >= s->seconds * WARMUP_SHARE || batch > CALLS_MAX / 2)
            break;
    }
    double fit = s->seconds * batch / took;
    *calls = (int)(fit < CALLS_MIN ? CALLS_MIN : fit > most ? most : fit);
    return true;
}

/* ---- memory ---- */

/* A number of kB in a file of /proc, in bytes; 0 where there is none. */
static double proc_bytes(const char *path, const char *key)
{
    char line[256];
    double bytes = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            bytes = strtod(line + strlen(key), NULL) * 1024;
    if (file)
        fclose(file);
    return bytes;
}

/* The highest resident set since now; where the kernel has no such thing, since the start. */
static void peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (!file)
        return;
    fputs("5", file);
    fclose(file);
}

static bool memory_look(const struct session *s, struct memory *memory)
{
    double len = (double)s->count * sizeof(float);
    double over[2] = {proc_bytes("/proc/self/status", "VmHWM:") - len,
                      proc_bytes("/proc/self/smaps_rollup", "Pss:") - len};
    if (!s->peer->greatest(s->peer->self, over, 2))
        return false;
    *memory = (struct memory){over[0], over[1]};
    return true;
}

/* ---- a size ---- */

static void print_row(const struct session *s, int calls, const struct memory *memory,
                      const struct verdict *verdict)
{
    const struct peer *p = s->peer;
    const double *t = s->times;
    double median = samples_median(t, calls), p99 = samples_p99(t, calls);
    printf("{\"name\": \"%s\", \"algo\": \"%s\", \"alloc\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
           "\"calls\": %d, ",
           p->name, p->algo, p->alloc, p->ranks, s->count * sizeof(float), calls);
    printf("\"median_us\": %.3f, \"p99_us\": %.3f, \"min_us\": %.3f, ", median * 1e6, p99 * 1e6, t[0] * 1e6);
    printf("\"rss_over_bytes\": %.0f, \"pss_over_bytes\": %.0f, ", memory->peak, memory->share);
    printf("\"same_bits\": %s, \"ok\": %s}\n", verdict->same ? "true" : "false",
           verdict->exact ? "true" : "false");
    fflush(stdout);
}

static bool measure_buffer(struct session *s)
{
    struct verdict verdict = {true, true};
    struct memory memory;
    int calls;
    peak_reset();
    if (!verify(s, &verdict) || !pace(s, &calls) || !run_calls(s, calls))
        return false;
    if (!s->peer->greatest(s->peer->self, s->times, (size_t)calls) || !memory_look(s, &memory) ||
        !verify(s, &verdict))
        return false;
    samples_sort(s->times, calls);
    if (s->peer->rank == 0)
        print_row(s, calls, &memory, &verdict);
    return true;
}

static bool measure_size(struct session *s, const char *size)
{
    char *end;
    unsigned long long len = strtoull(size, &end, 10);
    if (*end || len < sizeof(float) || len % sizeof(float) != 0 || len > SIZE_MAX / 2) {
        fprintf(stderr, "%s: %s is not a size in bytes, a multiple of 4\n", s->peer->name, size);
        return false;
    }
    float *own = aligned_alloc(PAGE_LEN, (len + PAGE_LEN - 1) / PAGE_LEN * PAGE_LEN);
    if (!own) {
        fprintf(stderr, "%s: no memory for %s bytes\n", s->peer->name, size);
        return false;
    }
    s->buffer = own;
    s->count = len / sizeof(float);
    bool good = s->peer->prepare(s->peer->self, &s->buffer, s->count);
    if (good) {
        good = measure_buffer(s);
        s->peer->finish(s->peer->self);
    }
    free(own);
    return good;
}

int measure(const struct peer *peer, const char *seconds, char **sizes)
{
    static struct session session; /* large, and a program measures once */
    session = (struct session){.peer = peer, .seconds = strtod(seconds, NULL)};
    if (!(session.seconds > 0 && session.seconds <= SECONDS_MAX)) {
        fprintf(stderr, "%s: --seconds %s: more than 0, at most %g\n", peer->name, seconds, SECONDS_MAX);
        return 2;
    }
    if (peer->ranks < 2 || peer->ranks > RANKS_MAX) {
        fprintf(stderr, "%s: %d ranks: 2 to %d can be measured\n", peer->name, peer->ranks, RANKS_MAX);
        return 2;
    }
    for (double growth = peer->ranks; growth <= GROWTH_MAX; growth *= peer->ranks)
        session.block++;
    for (; *sizes; sizes++)
        if (!measure_size(&session, *sizes))
            return 1;
    return 0;
}

char **settings_take(char **argv, struct setting *settings, size_t count)
{
    char **at = argv + 1;
    for (; *at && strncmp(*at, "--", 2) == 0; at += 2) {
        struct setting *found = NULL;
        for (size_t i = 0; i < count; i++)
            found = strcmp(*at + 2, settings[i].name) == 0 ? &settings[i] : found;
        if (!found || !at[1]) {
            fprintf(stderr, "%s: %s: %s\n", argv[0], *at, found ? "a value is missing" : "no such setting");
            return NULL;
        }
        found->value = at[1];
    }
    if (!*at)
        fprintf(stderr, "%s: sizes are missing, in bytes\n", argv[0]);
    return *at ? at : NULL;
}
