/* SPDX-License-Identifier: Apache-2.0 */
/* Adds to counters and histograms, and writes them down in Prometheus' text format. */
#include "metrics/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "core/text_buf.h"

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

struct family {
    const char *name, *type, *help;
    size_t place; /* of its counter in the struct that the list is about */
    bool is_time; /* counted in nanoseconds, shown in seconds */
};

#define COUNT_OF(list) (sizeof(list) / sizeof((list)[0]))

static const struct family kind_families[] = {
    {"hearth_operations_total", "counter", "Operations that ended.",
     offsetof(struct metrics, kind[0].operations), false},
    {"hearth_operation_bytes_total", "counter", "Payload bytes that ended operations were asked to handle.",
     offsetof(struct metrics, kind[0].bytes), false},
    {"hearth_operation_failures_total", "counter", "Operations that ended with an error.",
     offsetof(struct metrics, kind[0].failures), false},
};

static const struct family duration = {"hearth_operation_duration_seconds", "histogram",
                                       "Time from the call to the end.", 0, true};

static const struct family link_families[] = {
    {"hearth_sent_frames_total", "counter", "Frames sent.", offsetof(struct metrics, frames_sent), false},
    {"hearth_sent_bytes_total", "counter", "Bytes sent, frame headers included.",
     offsetof(struct metrics, bytes_sent), false},
    {"hearth_received_frames_total", "counter", "Frames received.", offsetof(struct metrics, frames_received),
     false},
    {"hearth_received_bytes_total", "counter", "Bytes received, frame headers included.",
     offsetof(struct metrics, bytes_received), false},
    {"hearth_early_frames_total", "counter", "Frames that came before their operation was posted.",
     offsetof(struct metrics, frames_early), false},
    {"hearth_late_frames_total", "counter", "Frames that came after their operation had ended.",
     offsetof(struct metrics, frames_late), false},
    {"hearth_connection_errors_total", "counter", "Connections to members that ended without a goodbye.",
     offsetof(struct metrics, connection_errors), false},
};

static const struct family peer_families[] = {
    {"hearth_peer_wait_seconds_total", "counter", "Time with nothing to do but wait for this peer.",
     offsetof(struct metrics_peer, waited_ns), true},
    {"hearth_peer_skew_seconds", "gauge",
     "How late this peer's first piece of an operation comes, a moving average.",
     offsetof(struct metrics_peer, skew_ns), true},
    {"hearth_peer_skew_seconds_total", "counter",
     "How late this peer's first pieces have come, all together.",
     offsetof(struct metrics_peer, skew_total_ns), true},
    {"hearth_peer_busy_seconds_total", "counter",
     "Time in which bytes for this peer waited for room in its connections.",
     offsetof(struct metrics_peer, busy_ns), true},
    {"hearth_peer_busy_bytes_total", "counter", "Bytes that left for this peer in that time.",
     offsetof(struct metrics_peer, busy_bytes), false},
};

static const struct family compression_families[] = {
    {"hearth_compression_plain_bytes_total", "counter",
     "Bytes that compressed all_reduces would have sent plain.",
     offsetof(struct metrics, compression.plain_bytes), false},
    {"hearth_compression_sent_bytes_total", "counter", "Bytes that compressed all_reduces have sent.",
     offsetof(struct metrics, compression.sent_bytes), false},
};

static const struct family ratio = {"hearth_compression_ratio", "gauge",
                                    "Plain bytes by sent bytes, 1 if nothing was sent.", 0, false};

static const struct family time_families[] = {
    {"hearth_compression_seconds_total", "counter", "Time spent compressing.",
     offsetof(struct metrics, compression.compress_ns), true},
    {"hearth_decompression_seconds_total", "counter",
     "Time spent adding up and expanding what was compressed.",
     offsetof(struct metrics, compression.expand_ns), true},
    {"hearth_uptime_seconds", "gauge", "Time since the node was opened.", offsetof(struct metrics, uptime_ns),
     true},
};

static const struct family memory_families[] = {
    {"hearth_memory_bytes", "gauge", "Memory in use, user buffers aside.", 0, false},
    {"hearth_memory_peak_bytes", "gauge", "The most memory that was in use at once.", 0, false},
    {"hearth_memory_limit_bytes", "gauge", "The configured limit of memory, 0 if none.", 0, false},
    {"hearth_memory_blocks", "gauge", "Blocks of memory in use.", 0, false},
    {"hearth_allocations_total", "counter", "Allocations made: stands still in a steady state.", 0, false},
};

static void put_help(struct text_buf *t, const struct family *f)
{
    text_buf_print(t, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, f->type);
}

/* What ends a line of this family. */
static void put_value(struct text_buf *t, const struct family *f, uint64_t value)
{
    if (f->is_time)
        text_buf_print(t, " %" PRIu64 ".%09" PRIu64 "\n", value / NS_PER_S, value % NS_PER_S);
    else
        text_buf_print(t, " %" PRIu64 "\n", value);
}

static uint64_t counter_of(const struct family *f, const void *base)
{
    const char *at = (const char *)base + f->place;
    return read_counter((const _Atomic(uint64_t) *)(const void *)at);
}

static void put_single(struct text_buf *t, const struct family *f, uint64_t value)
{
    put_help(t, f);
    text_buf_print(t, "%s", f->name);
    put_value(t, f, value);
}

static void put_singles(struct text_buf *t, const struct family *list, size_t count, const void *base)
{
    for (size_t i = 0; i < count; i++)
        put_single(t, &list[i], counter_of(&list[i], base));
}

/* The name with its first label, whose value has the three characters escaped that the format asks for. */
static void put_kind(struct text_buf *t, const char *name, const char *suffix, const char *kind)
{
    text_buf_print(t, "%s%s{kind=\"", name, suffix);
    for (; *kind; kind++) {
        if (*kind == '\n')
            text_buf_print(t, "\\n");
        else if (*kind == '"' || *kind == '\\')
            text_buf_print(t, "\\%c", *kind);
        else
            text_buf_print(t, "%c", *kind);
    }
    text_buf_print(t, "\"");
}

static void put_kinds(struct text_buf *t, const struct metrics *m, const char *const *kind_names)
{
    for (size_t i = 0; i < COUNT_OF(kind_families); i++) {
        put_help(t, &kind_families[i]);
        for (int kind = 0; kind < METRICS_KINDS; kind++) {
            const char *base = (const char *)m + (size_t)kind * sizeof m->kind[0];
            put_kind(t, kind_families[i].name, "", kind_names[kind]);
            text_buf_print(t, "}");
            put_value(t, &kind_families[i], counter_of(&kind_families[i], base));
        }
    }
}

static void put_histogram(struct text_buf *t, const struct histogram *h, const char *kind)
{
    uint64_t bucket[METRICS_BUCKETS];
    uint64_t count = histogram_read(h, bucket), sum_us = read_counter(&h->sum), below = 0;

    for (int i = 0; i < METRICS_BUCKETS - 1; i++) {
        uint64_t bound_us = UINT64_C(1) << i;
        below += bucket[i];
        put_kind(t, duration.name, "_bucket", kind);
        text_buf_print(t, ",le=\"%" PRIu64 ".%06" PRIu64 "\"} %" PRIu64 "\n", bound_us / US_PER_S,
                       bound_us % US_PER_S, below);
    }
    put_kind(t, duration.name, "_bucket", kind);
    text_buf_print(t, ",le=\"+Inf\"} %" PRIu64 "\n", count);
    put_kind(t, duration.name, "_sum", kind);
    text_buf_print(t, "} %" PRIu64 ".%06" PRIu64 "\n", sum_us / US_PER_S, sum_us % US_PER_S);
    put_kind(t, duration.name, "_count", kind);
    text_buf_print(t, "} %" PRIu64 "\n", count);
}

/* Kinds that never ran are left out: 34 lines of zeros each tell nobody anything. */
static void put_durations(struct text_buf *t, const struct metrics *m, const char *const *kind_names)
{
    put_help(t, &duration);
    for (int kind = 0; kind < METRICS_KINDS; kind++)
        if (read_counter(&m->kind[kind].duration_us.count) > 0)
            put_histogram(t, &m->kind[kind].duration_us, kind_names[kind]);
}

static void put_peers(struct text_buf *t, const struct metrics *m)
{
    for (size_t i = 0; i < COUNT_OF(peer_families); i++) {
        put_help(t, &peer_families[i]);
        for (int peer = 0; peer < m->peers; peer++) {
            text_buf_print(t, "%s{peer=\"%d\"}", peer_families[i].name, peer);
            put_value(t, &peer_families[i], counter_of(&peer_families[i], &m->peer[peer]));
        }
    }
}

static void put_ratio(struct text_buf *t, const struct metrics *m)
{
    uint64_t plain = read_counter(&m->compression.plain_bytes);
    uint64_t sent = read_counter(&m->compression.sent_bytes);
    put_help(t, &ratio);
    text_buf_print(t, "%s %.6f\n", ratio.name, sent > 0 ? (double)plain / (double)sent : 1.0);
}

static void put_memory(struct text_buf *t, const struct heap *heap)
{
    const uint64_t values[COUNT_OF(memory_families)] = {
        read_counter(&heap->bytes), read_counter(&heap->bytes_peak), heap->limit, read_counter(&heap->blocks),
        read_counter(&heap->calls)};
    for (size_t i = 0; i < COUNT_OF(memory_families); i++)
        put_single(t, &memory_families[i], values[i]);
}

size_t metrics_text(const struct metrics *m, const struct heap *heap, const char *const *kind_names,
                    char *text, size_t size)
{
    struct text_buf t = text_buf_of(text, size);

    put_kinds(&t, m, kind_names);
    put_durations(&t, m, kind_names);
    put_singles(&t, link_families, COUNT_OF(link_families), m);
    put_peers(&t, m);
    put_singles(&t, compression_families, COUNT_OF(compression_families), m);
    put_ratio(&t, m);
    put_singles(&t, time_families, COUNT_OF(time_families), m);
    put_memory(&t, heap);
    return t.len;
}
