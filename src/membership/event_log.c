/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of events. */
#include "membership/event_log.h"

#include "security/node_key.h"

struct hearth_event *event_log_add(struct event_log *log, enum hearth_event_kind kind,
                                   const struct identity *node)
{
    struct hearth_event *event = &log->events[log->count++ % EVENT_LOG_MAX];
    *event = (struct hearth_event){.size = sizeof *event, .kind = kind};
    if (node && node->instance != 0)
        node_id_text(&node->node, event->id);
    return event;
}

bool event_log_next(const struct event_log *log, uint64_t *place, struct hearth_event *event)
{
    uint64_t oldest = log->count > EVENT_LOG_MAX ? log->count - EVENT_LOG_MAX : 0;
    *place = *place > oldest ? *place : oldest;
    if (*place >= log->count)
        return false;
    *event = log->events[(*place)++ % EVENT_LOG_MAX];
    return true;
}
