/* SPDX-License-Identifier: Apache-2.0 */
/* What waits to leave a link, the eager credit that lets it in, and what a link waits for when nothing
 * moves. */
#include <assert.h>
#include <string.h>

#include "transport/link.h"

#define CONTROL_FIRST 16u /* a divisor of LINK_CONTROL_QUEUE by a power of two */
#define GRANT_LOOKS   64u /* queued control frames that are looked at for an older grant */

/* ---- eager credit ---- */

uint32_t link_eager_cost(size_t len)
{
    return (uint32_t)len + LINK_EAGER_COST;
}

bool link_eager_fits(const struct link *link, size_t len)
{
    uint32_t outstanding = link->eager_spent - link->eager_returned;
    return len < link->eager_budget && outstanding + link_eager_cost(len) <= link->eager_budget;
}

void link_eager_release(struct link *link, size_t len)
{
    link->eager_released += link_eager_cost(len);
}

/* ---- queues ---- */

bool link_room(const struct link *link, enum link_class class)
{
    return link->up && !link->parting && link->queues[class].count < LINK_DATA_QUEUE;
}

bool link_has_data(const struct link *link)
{
    for (enum link_class c = 0; c < LINK_CLASSES; c++)
        if (link->queues[c].count > 0)
            return true;
    return false;
}

void link_send_data(struct link *link, const struct link_data *data)
{
    struct link_queue *queue = &link->queues[data->class];
    assert(link_room(link, data->class));
    queue->items[(queue->head + queue->count++) % LINK_DATA_QUEUE] = (struct link_item){
        .frame = data->frame,
        .payload = data->payload,
        .copy = data->copy,
        .owner = data->owner,
        .cookie = data->cookie,
        .queued_ns = link->throttle ? link->throttle->now_ns : 0,
    };
    if (data->frame.kind == FRAME_DATA && (data->frame.flags & FRAME_EAGER))
        link->eager_spent += link_eager_cost(data->frame.length);
}

bool link_queued(const struct link *link, const void *owner)
{
    for (int i = 0; i < link->pipe_count; i++)
        if (link->pipes[i].out_busy && link->pipes[i].out.owner == owner)
            return false;
    for (enum link_class c = 0; c < LINK_CLASSES; c++)
        for (uint32_t i = 0; i < link->queues[c].count; i++)
            if (link->queues[c].items[(link->queues[c].head + i) % LINK_DATA_QUEUE].owner == owner)
                return true;
    return false;
}

/* Control frames are few, as a rule: the queue begins small and keeps what it has grown to. */
static bool control_grow(struct link *link)
{
    uint32_t capacity = link->control_capacity == 0 ? CONTROL_FIRST : link->control_capacity * 2;
    struct link_item *items = heap_alloc_raw(link->heap, capacity, sizeof *items);
    if (!items)
        return false;
    for (uint32_t i = 0; i < link->control_count; i++)
        items[i] = link->control[(link->control_head + i) % link->control_capacity];
    heap_free(link->control);
    link->control = items;
    link->control_head = 0;
    link->control_capacity = capacity;
    return true;
}

/* A grant that is still waiting is overtaken by the next for the same operation: one of them is enough. */
static bool grant_joins(struct link *link, const struct frame *frame)
{
    uint32_t looks = link->control_count < GRANT_LOOKS ? link->control_count : GRANT_LOOKS;
    for (uint32_t i = 0; frame->kind == FRAME_GRANT && i < looks; i++) {
        uint32_t at = (link->control_head + link->control_count - 1 - i) % link->control_capacity;
        struct frame *queued = &link->control[at].frame;
        if (queued->kind != FRAME_GRANT || queued->group != frame->group || queued->tag != frame->tag ||
            queued->sequence != frame->sequence)
            continue;
        *queued = *frame;
        return true;
    }
    return false;
}

void link_send_control(struct link *link, const struct frame *frame, const void *payload)
{
    if (!link_up(link) || link->parting || grant_joins(link, frame))
        return;
    if (link->control_count == LINK_CONTROL_QUEUE) {
        link_lost(link, HEARTH_REASON_PEER_SILENT, "it does not take the control frames we send");
        return;
    }
    struct link_item item = {.frame = *frame};
    bool ok = link->control_count < link->control_capacity || control_grow(link);
    if (ok && frame->length > 0) {
        item.copy = heap_alloc_raw(link->heap, 1, frame->length);
        ok = item.copy;
    }
    if (!ok) {
        link_fail(link, HEARTH_NO_MEMORY, "no memory for a control frame");
        return;
    }
    if (frame->length > 0)
        memcpy(item.copy, payload, frame->length);
    item.payload = item.copy;
    link->control[(link->control_head + link->control_count++) % link->control_capacity] = item;
}

/* ---- sleeping ---- */

/* The pipe waits for room in its connection, and the descriptor will show it. Where bytes are kept until the
 * peer has them, the descriptor has room long before the connection has: `due` tells. */
static bool wants_room(const struct pipe *pipe)
{
    if (pipe->conn->transport->holding)
        return pipe_holds(pipe);
    return pipe->out_busy && pipe->out_done < pipe->out_free;
}

uint64_t link_due(const struct link *link)
{
    uint64_t due = NEVER_NS;
    for (int i = 0; i < link->pipe_count && link->up; i++) {
        const struct holding *holding = link->pipes[i].conn->transport->holding;
        uint64_t at = holding ? holding->due(link->pipes[i].conn) : NEVER_NS;
        due = at < due ? at : due;
    }
    return due;
}

size_t link_waits(const struct link *link, struct sock_wait *items, size_t max)
{
    size_t count = 0;
    for (int i = 0; i < link->pipe_count && link->up && count < max; i++) {
        const struct pipe *pipe = &link->pipes[i];
        items[count++] = (struct sock_wait){
            .fd = pipe->conn->transport->descriptor(pipe->conn),
            .want_recv = link_reads(link, i),
            /* Room in shared memory does not show there: the peer signals it. */
            .want_send = wants_room(pipe) && !pipe->conn->transport->sharing,
        };
    }
    return count;
}

void link_attend(struct link *link, const struct sock_wait *items, size_t count)
{
    for (size_t i = 0; i < count && link->up && i < (size_t)link->pipe_count; i++)
        if (items[i].ready)
            link->pipes[i].conn->transport->attend(link->pipes[i].conn);
    link->looks = 0;
}

void link_doze(struct link *link, bool asleep)
{
    for (int i = 0; i < link->pipe_count && link->up; i++) {
        const struct pipe *pipe = &link->pipes[i];
        pipe->conn->transport->doze(pipe->conn, asleep, wants_room(pipe));
    }
}

bool link_stuck(const struct link *link)
{
    for (int i = 0; i < link->pipe_count && link->up; i++)
        if (wants_room(&link->pipes[i]))
            return true;
    return false;
}

uint64_t link_heard(const struct link *link)
{
    uint64_t heard = 0;
    for (int i = 0; i < link->pipe_count; i++)
        heard += ((uint64_t)link->pipes[i].in_sequence << 32) + link->pipes[i].in_done;
    return heard;
}
