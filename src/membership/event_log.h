/* SPDX-License-Identifier: Apache-2.0 */
/* The last events of a cluster, in their public form. */
#pragma once

#include <hearth.h>

#include "core/identity.h"

#define EVENT_LOG_MAX 256

struct event_log {
    uint64_t count; /* ever */
    struct hearth_event events[EVENT_LOG_MAX];
};

/* Replaces the oldest event. `node` NULL or all zero: the event is about no node. The caller fills in the
 * rest. */
struct hearth_event *event_log_add(struct event_log *log, enum hearth_event_kind kind,
                                   const struct identity *node);
/* The next event for a reader; false: none. Each reader keeps its place (begins with 0) and skips events that
 * were replaced. */
bool event_log_next(const struct event_log *log, uint64_t *place, struct hearth_event *event);
