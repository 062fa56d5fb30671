/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a probe on its connection. Never blocks; bounded in bytes, time and work per call. */
#pragma once

#include "cluster/probe_messages.h"
#include "connect/secure_stream.h"
#include "core/heap.h"

struct probe_run;

struct probe_run_setup {
    struct heap *heap;
    struct secure_stream *stream; /* after the hellos; the run owns it, also when it fails to open */
    bool sends;                   /* it dialled */
    uint64_t burst_ns;            /* sender: time to send, unless 8 MiB are reached before */
    uint64_t now_ns;
};
int MUST_CHECK probe_run_open(const struct probe_run_setup *setup, struct probe_run **out);
void probe_run_close(struct probe_run *run); /* NULL is allowed */

/* HEARTH_PENDING: goes on. HEARTH_OK: over, with a result. HEARTH_TIMEOUT, HEARTH_PEER_LOST, HEARTH_PROTOCOL:
 * over without one. Reads the clock with every read of the socket. */
int MUST_CHECK probe_run_pump(struct probe_run *run);
const struct probe_result *probe_run_result(const struct probe_run *run);
uint64_t probe_run_time(const struct probe_run *run); /* nanoseconds since it began */
int probe_run_fd(const struct probe_run *run);
/* The socket to wait for; lowers *deadline_ns. */
struct sock_wait probe_run_wait(const struct probe_run *run, uint64_t *deadline_ns);
