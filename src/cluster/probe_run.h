/* SPDX-License-Identifier: Apache-2.0 */
/* One probe on its connection, either end of it. Never blocks; bounded in bytes, time and work at once. */
#pragma once

#include "cluster/probe_messages.h"
#include "connect/secure_stream.h"
#include "core/heap.h"

struct probe_run;

struct probe_run_setup {
    struct heap *heap;
    struct secure_stream *stream; /* ready, hellos are exchanged; the run's from now on, also when it fails */
    bool sends;                   /* it dialled */
    uint64_t burst_ns;            /* sender: how long to send, unless 8 MiB are reached before */
    uint64_t now_ns;
};
int MUST_CHECK probe_run_open(const struct probe_run_setup *setup, struct probe_run **out);
void probe_run_close(struct probe_run *run); /* NULL is allowed */

/* HEARTH_PENDING: goes on. HEARTH_OK: it is over, and there is a result. HEARTH_TIMEOUT, HEARTH_PEER_LOST,
 * HEARTH_PROTOCOL: it is over without one. Time is read from the clock for every look at the socket. */
int MUST_CHECK probe_run_pump(struct probe_run *run);
const struct probe_result *probe_run_result(const struct probe_run *run);
uint64_t probe_run_time(const struct probe_run *run); /* nanoseconds since it began */
int probe_run_fd(const struct probe_run *run);
/* What to wait for; *deadline_ns is lowered. */
struct sock_wait probe_run_wait(const struct probe_run *run, uint64_t *deadline_ns);
