/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and histograms of one node. Written by any thread without locks, read as a snapshot of text. */
#pragma once

#include <stdatomic.h>

#include "core/heap.h"
#include "core/types.h"

#define METRICS_KINDS   11 /* collectives, in the order of enum plan_kind */
#define METRICS_BUCKETS 32 /* of powers of two, from 1 us (durations) */

struct histogram {
    /* Bucket i: values < 2^i units that are not in a lower one; the last holds the rest. */
    _Atomic(uint64_t) bucket[METRICS_BUCKETS];
    _Atomic(uint64_t) count, sum;
};
void histogram_add(struct histogram *h, uint64_t value);

struct metrics {
    struct {
        _Atomic(uint64_t) operations, bytes, failures; /* ended; payload bytes asked for; ended badly */
        struct histogram duration_us;
    } kind[METRICS_KINDS];
    _Atomic(uint64_t) frames_sent, frames_received, bytes_sent, bytes_received; /* headers included */
    _Atomic(uint64_t) frames_early, frames_late;   /* before their operation was posted; after it had ended */
    _Atomic(uint64_t) connection_errors;           /* links that ended without a goodbye */
    _Atomic(uint64_t) uptime_ns;                   /* of the node, set before the text is made */
    struct {                                       /* of compressed all_reduces that ended well: */
        _Atomic(uint64_t) plain_bytes, sent_bytes; /* what the plain ones would have sent; what these sent */
        _Atomic(uint64_t) compress_ns, expand_ns;  /* work on payloads before and after their way */
    } compression;
    int peers;
    struct metrics_peer {
        _Atomic(uint64_t) waited_ns;              /* the node had nothing to do but wait for it */
        _Atomic(uint64_t) skew_ns, skew_total_ns; /* how late its first pieces came: average, all */
        _Atomic(uint64_t) busy_ns, busy_bytes;    /* while bytes for it waited for room; left then */
    } * peer;                                     /* [peers] */
};
/* Its first piece of an operation came so late. One thread at a time for each peer. */
void metrics_skew(struct metrics *m, int peer, uint64_t late_ns);

int MUST_CHECK metrics_init(struct metrics *m, int peers, struct heap *heap);
void metrics_fini(struct metrics *m);
/* Prometheus exposition format, names hearth_*; kind_names[METRICS_KINDS]. As snprintf: the whole length. */
size_t metrics_text(const struct metrics *m, const struct heap *heap, const char *const *kind_names,
                    char *text, size_t size);
