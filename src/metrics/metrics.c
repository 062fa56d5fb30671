/* SPDX-License-Identifier: Apache-2.0 */
/* Adds to counters and histograms, and writes them down in Prometheus' text format. */
#include "metrics/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define US_PER_S UINT64_C(1000000)

/* ---- Histograms --------------------------------------------------------------------------------------- */

static uint64_t read_counter(const _Atomic(uint64_t) *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void histogram_add(struct histogram *h, uint64_t value)
{
    int width = value == 0 ? 0 : 64 - __builtin_clzll(value);
    int index = width < METRICS_BUCKETS ? width : METRICS_BUCKETS - 1;

    atomic_fetch_add_explicit(&h->bucket[index], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
}

/* Others go on adding: one reading of the buckets is taken, and the count is what that holds. */
static uint64_t histogram_read(const struct histogram *h, uint64_t bucket[METRICS_BUCKETS])
{
    uint64_t count = 0;

    for (int i = 0; i < METRICS_BUCKETS; i++)
        count += bucket[i] = read_counter(&h->bucket[i]);
    return count;
}

uint64_t histogram_quantile(const struct histogram *h, double quantile)
{
    uint64_t bucket[METRICS_BUCKETS];
    uint64_t count = histogram_read(h, bucket), below = 0;

    assert(quantile >= 0 && quantile <= 1);
    if (count == 0)
        return 0;
    double place = quantile * (double)count; /* so many values lie at or below the quantile */
    for (int i = 0; i < METRICS_BUCKETS - 1; i++) {
        below += bucket[i];
        if (below > 0 && (double)below >= place)
            return UINT64_C(1) << i;
    }
    return UINT64_MAX;
}

/* ---- Metrics ------------------------------------------------------------------------------------------ */

int metrics_init(struct metrics *m, int peers, struct heap *heap)
{
    assert(peers >= 0);
    memset(m, 0, sizeof *m);
    m->peer = heap_alloc(heap, (size_t)peers, sizeof m->peer[0]);
    if (!m->peer)
        return HEARTH_NO_MEMORY;
    m->peers = peers;
    return HEARTH_OK;
}

void metrics_fini(struct metrics *m)
{
    heap_free(m->peer);
    m->peer = NULL;
    m->peers = 0;
}

#define SKEW_SHARE 5 /* one part in so many of an average is the newest value */

void metrics_skew(struct metrics *m, int peer, uint64_t late_ns)
{
    struct metrics_peer *p = &m->peer[peer];
    int64_t average = (int64_t)read_counter(&p->skew_ns);
    average += ((int64_t)late_ns - average) / SKEW_SHARE;
    atomic_store_explicit(&p->skew_ns, (uint64_t)average, memory_order_relaxed);
    if (late_ns > 0)
        atomic_store_explicit(&p->skew_total_ns, read_counter(&p->skew_total_ns) + late_ns,
                              memory_order_relaxed);
}

/* ---- Text --------------------------------------------------------------------------------------------- */

struct metrics_text {
    char *at;
    size_t size, len; /* len: of the whole text, also of what did not fit */
};

__attribute__((format(printf, 2, 3))) static void text_add(struct metrics_text *t, const char *format, ...)
{
    bool room = t->len < t->size;
    va_list args;

    va_start(args, format);
    int len = vsnprintf(room ? t->at + t->len : NULL, room ? t->size - t->len : 0, format, args);
    va_end(args);
    t->len += len > 0 ? (size_t)len : 0;
}

static void text_family(struct metrics_text *t, const char *name, const char *type, const char *help)
{
    text_add(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void text_single(struct metrics_text *t, const char *name, const char *type, const char *help,
                        uint64_t value)
{
    text_family(t, name, type, help);
    text_add(t, "%s %" PRIu64 "\n", name, value);
}

/* A label's value, with the three characters escaped that the format asks for. */
static void text_label(struct metrics_text *t, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n')
            text_add(t, "\\n");
        else if (*value == '"' || *value == '\\')
            text_add(t, "\\%c", *value);
        else
            text_add(t, "%c", *value);
    }
}

static void text_kind(struct metrics_text *t, const char *name, const char *kind)
{
    text_add(t, "%s{kind=\"", name);
    text_label(t, kind);
}

enum kind_counter { OPERATIONS, BYTES, FAILURES };

static uint64_t kind_value(const struct metrics *m, int kind, enum kind_counter which)
{
    switch (which) {
    case OPERATIONS:
        return read_counter(&m->kind[kind].operations);
    case BYTES:
        return read_counter(&m->kind[kind].bytes);
    case FAILURES:
        return read_counter(&m->kind[kind].failures);
    }
    return 0;
}

static void text_kinds(struct metrics_text *t, const struct metrics *m, const char *const *kind_names)
{
    static const struct {
        const char *name, *help;
    } families[] = {
        [OPERATIONS] = {"hearth_operations_total", "Operations that ended."},
        [BYTES] = {"hearth_operation_bytes_total",
                   "Payload bytes that ended operations were asked to handle."},
        [FAILURES] = {"hearth_operation_failures_total", "Operations that ended with an error."},
    };

    for (int which = OPERATIONS; which <= FAILURES; which++) {
        text_family(t, families[which].name, "counter", families[which].help);
        for (int kind = 0; kind < METRICS_KINDS; kind++) {
            text_kind(t, families[which].name, kind_names[kind]);
            text_add(t, "\"} %" PRIu64 "\n", kind_value(m, kind, (enum kind_counter)which));
        }
    }
}

static void text_histogram(struct metrics_text *t, const struct histogram *h, const char *kind)
{
    uint64_t bucket[METRICS_BUCKETS];
    uint64_t count = histogram_read(h, bucket), sum_us = read_counter(&h->sum), below = 0;

    for (int i = 0; i < METRICS_BUCKETS - 1; i++) {
        uint64_t bound_us = UINT64_C(1) << i;
        below += bucket[i];
        text_kind(t, "hearth_operation_duration_seconds_bucket", kind);
        text_add(t, "\",le=\"%" PRIu64 ".%06" PRIu64 "\"} %" PRIu64 "\n", bound_us / US_PER_S,
                 bound_us % US_PER_S, below);
    }
    text_kind(t, "hearth_operation_duration_seconds_bucket", kind);
    text_add(t, "\",le=\"+Inf\"} %" PRIu64 "\n", count);
    text_kind(t, "hearth_operation_duration_seconds_sum", kind);
    text_add(t, "\"} %" PRIu64 ".%06" PRIu64 "\n", sum_us / US_PER_S, sum_us % US_PER_S);
    text_kind(t, "hearth_operation_duration_seconds_count", kind);
    text_add(t, "\"} %" PRIu64 "\n", count);
}

/* Kinds that never ran are left out: 34 lines of zeros each tell nobody anything. */
static void text_durations(struct metrics_text *t, const struct metrics *m, const char *const *kind_names)
{
    text_family(t, "hearth_operation_duration_seconds", "histogram", "Time from the call to the end.");
    for (int kind = 0; kind < METRICS_KINDS; kind++)
        if (read_counter(&m->kind[kind].duration_us.count) > 0)
            text_histogram(t, &m->kind[kind].duration_us, kind_names[kind]);
}

static void text_links(struct metrics_text *t, const struct metrics *m)
{
    text_single(t, "hearth_sent_frames_total", "counter", "Frames sent.", read_counter(&m->frames_sent));
    text_single(t, "hearth_sent_bytes_total", "counter", "Bytes sent, frame headers included.",
                read_counter(&m->bytes_sent));
    text_single(t, "hearth_received_frames_total", "counter", "Frames received.",
                read_counter(&m->frames_received));
    text_single(t, "hearth_received_bytes_total", "counter", "Bytes received, frame headers included.",
                read_counter(&m->bytes_received));
    text_single(t, "hearth_early_frames_total", "counter",
                "Frames that came before their operation was posted.", read_counter(&m->frames_early));
    text_single(t, "hearth_late_frames_total", "counter", "Frames that came after their operation had ended.",
                read_counter(&m->frames_late));
}

static void text_seconds(struct metrics_text *t, const char *name, const char *type, const char *help,
                         uint64_t ns)
{
    text_family(t, name, type, help);
    text_add(t, "%s %" PRIu64 ".%09" PRIu64 "\n", name, ns / NS_PER_S, ns % NS_PER_S);
}

static void text_compression(struct metrics_text *t, const struct metrics *m)
{
    uint64_t plain = read_counter(&m->compression.plain_bytes);
    uint64_t sent = read_counter(&m->compression.sent_bytes);
    text_single(t, "hearth_compression_plain_bytes_total", "counter",
                "Bytes that compressed all_reduces would have sent plain.", plain);
    text_single(t, "hearth_compression_sent_bytes_total", "counter",
                "Bytes that compressed all_reduces have sent.", sent);
    text_family(t, "hearth_compression_ratio", "gauge", "Plain bytes by sent bytes, 1 if nothing was sent.");
    text_add(t, "hearth_compression_ratio %.6f\n", sent > 0 ? (double)plain / (double)sent : 1.0);
    text_seconds(t, "hearth_compression_seconds_total", "counter", "Time spent compressing.",
                 read_counter(&m->compression.compress_ns));
    text_seconds(t, "hearth_decompression_seconds_total", "counter",
                 "Time spent adding up and expanding what was compressed.",
                 read_counter(&m->compression.expand_ns));
}

/* One line a peer of a number of nanoseconds that stands at this place of struct metrics_peer. */
static void text_peers(struct metrics_text *t, const struct metrics *m, const char *name, const char *type,
                       const char *help, size_t place)
{
    text_family(t, name, type, help);
    for (int peer = 0; peer < m->peers; peer++) {
        const char *at = (const char *)&m->peer[peer] + place;
        uint64_t ns = read_counter((const _Atomic(uint64_t) *)(const void *)at);
        text_add(t, "%s{peer=\"%d\"} %" PRIu64 ".%09" PRIu64 "\n", name, peer, ns / NS_PER_S, ns % NS_PER_S);
    }
}

static void text_waits(struct metrics_text *t, const struct metrics *m)
{
    text_peers(t, m, "hearth_peer_wait_seconds_total", "counter",
               "Time with nothing to do but wait for this peer.", offsetof(struct metrics_peer, waited_ns));
    text_peers(t, m, "hearth_peer_skew_seconds", "gauge",
               "How late this peer's first piece of an operation comes, a moving average.",
               offsetof(struct metrics_peer, skew_ns));
    text_peers(t, m, "hearth_peer_skew_seconds_total", "counter",
               "How late this peer's first pieces have come, all together.",
               offsetof(struct metrics_peer, skew_total_ns));
    text_peers(t, m, "hearth_peer_busy_seconds_total", "counter",
               "Time in which bytes for this peer waited for room in its connections.",
               offsetof(struct metrics_peer, busy_ns));
    text_family(t, "hearth_peer_busy_bytes_total", "counter", "Bytes that left for this peer in that time.");
    for (int peer = 0; peer < m->peers; peer++)
        text_add(t, "hearth_peer_busy_bytes_total{peer=\"%d\"} %" PRIu64 "\n", peer,
                 read_counter(&m->peer[peer].busy_bytes));
}

static void text_memory(struct metrics_text *t, const struct heap *heap)
{
    text_single(t, "hearth_memory_bytes", "gauge", "Memory in use, user buffers aside.",
                read_counter(&heap->bytes));
    text_single(t, "hearth_memory_peak_bytes", "gauge", "The most memory that was in use at once.",
                read_counter(&heap->bytes_peak));
    text_single(t, "hearth_memory_limit_bytes", "gauge", "The configured limit of memory, 0 if none.",
                heap->limit);
    text_single(t, "hearth_memory_blocks", "gauge", "Blocks of memory in use.", read_counter(&heap->blocks));
    text_single(t, "hearth_allocations_total", "counter", "Allocations made: stands still in a steady state.",
                read_counter(&heap->calls));
}

size_t metrics_text(const struct metrics *m, const struct heap *heap, const char *const *kind_names,
                    char *text, size_t size)
{
    struct metrics_text t = {.at = text, .size = size};

    if (size > 0)
        text[0] = '\0';
    text_kinds(&t, m, kind_names);
    text_durations(&t, m, kind_names);
    text_links(&t, m);
    text_single(&t, "hearth_connection_errors_total", "counter",
                "Connections to members that ended without a goodbye.", read_counter(&m->connection_errors));
    text_waits(&t, m);
    text_compression(&t, m);
    text_seconds(&t, "hearth_uptime_seconds", "gauge", "Time since the node was opened.",
                 read_counter(&m->uptime_ns));
    text_memory(&t, heap);
    return t.len;
}
