/* SPDX-License-Identifier: Apache-2.0 */
/* Frames in and out of a conn, one at a time in each direction. */
#include "transport/link.h"

#include <assert.h>
#include <string.h>

#include "wire/record.h"

/* A link reads at most this much before it gives the others their turn. */
#define PUMP_BYTES_MAX (4u << 20)

#define CONTROL_FIRST 16u /* a divisor of LINK_CONTROL_QUEUE by a power of two */
#define GRANT_LOOKS   64u /* queued control frames that are looked at for an older grant */

void link_init(struct link *link, const struct link_setup *setup)
{
    memset(link, 0, sizeof *link);
    link->conn = setup->conn;
    link->events = setup->events;
    link->events_arg = setup->events_arg;
    link->heap = setup->heap;
    link->metrics = setup->metrics;
    link->rank = setup->rank;
    link->eager_budget = setup->eager_budget;
}

bool link_up(const struct link *link)
{
    return link->conn != NULL;
}

void link_fail(struct link *link, int status, const char *what)
{
    if (link->failure.status == HEARTH_OK)
        error_set(&link->failure, status, link->rank, "%s", what);
}

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

/* ---- out ---- */

bool link_room(const struct link *link)
{
    return link->conn != NULL && link->data_count < LINK_DATA_QUEUE;
}

void link_send_data(struct link *link, const struct frame *frame, const void *payload, void *owner,
                    void *cookie)
{
    assert(link_room(link));
    uint32_t at = (link->data_head + link->data_count++) % LINK_DATA_QUEUE;
    link->data[at] =
        (struct link_item){.frame = *frame, .payload = payload, .owner = owner, .cookie = cookie};
    if (frame->flags & FRAME_EAGER)
        link->eager_spent += link_eager_cost(frame->length);
}

/* Control frames are few, as a rule: the queue begins small and keeps what it has grown to. */
static bool control_grow(struct link *link)
{
    uint32_t capacity = link->control_capacity == 0 ? CONTROL_FIRST : link->control_capacity * 2;
    struct link_item *items = heap_alloc_raw(link->heap, capacity, sizeof *items);
    if (items == NULL)
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
    if (!link_up(link) || grant_joins(link, frame))
        return;
    if (link->control_count == LINK_CONTROL_QUEUE) {
        link_fail(link, HEARTH_PEER_LOST, "it does not take the control frames we send");
        return;
    }
    struct link_item item = {.frame = *frame};
    bool ok = link->control_count < link->control_capacity || control_grow(link);
    if (ok && frame->length > 0) {
        item.copy = heap_alloc_raw(link->heap, 1, frame->length);
        ok = item.copy != NULL;
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

/* Takes the next frame off the queues: control first, so that bulk never delays it by more than one frame. */
static bool out_next(struct link *link)
{
    if (link->control_count > 0) {
        link->out = link->control[link->control_head];
        link->control_head = (link->control_head + 1) % link->control_capacity;
        link->control_count--;
    } else if (link->data_count > 0) {
        link->out = link->data[link->data_head];
        link->data_head = (link->data_head + 1) % LINK_DATA_QUEUE;
        link->data_count--;
    } else {
        return false;
    }
    link->out.frame.link_sequence = ++link->out_sequence;
    link->out.frame.ack = link->in_sequence;
    link->out.frame.credit = link->eager_told = link->eager_released;
    frame_encode(&link->out.frame, link->out_header);
    link->out_done = 0;
    link->out_busy = true;
    return true;
}

static void out_finish(struct link *link)
{
    struct link_item item = link->out;
    link->out_busy = false;
    heap_free(item.copy);
    atomic_fetch_add_explicit(&link->metrics->frames_sent, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&link->metrics->bytes_sent, FRAME_HEADER_LEN + (uint64_t)item.frame.length,
                              memory_order_relaxed);
    if (item.owner != NULL)
        link->events->on_sent(link->events_arg, link, item.owner, item.cookie);
}

/* Writes the frame on its way. True when it is out. */
static bool out_write(struct link *link, bool *moved)
{
    size_t whole = FRAME_HEADER_LEN + (size_t)link->out.frame.length;
    while (link->out_done < whole) {
        struct iovec pieces[2];
        int count = 0;
        size_t done = link->out_done;
        if (done < FRAME_HEADER_LEN) {
            pieces[count++] = (struct iovec){link->out_header + done, FRAME_HEADER_LEN - done};
            done = FRAME_HEADER_LEN;
        }
        if (done < whole) {
            const uint8_t *payload = link->out.payload;
            pieces[count++] =
                (struct iovec){(void *)(uintptr_t)(payload + (done - FRAME_HEADER_LEN)), whole - done};
        }
        ssize_t n = link->conn->transport->send(link->conn, pieces, count);
        link->unheard = n < 0;
        if (n <= 0)
            return false;
        link->out_done += (size_t)n;
        *moved = true;
    }
    return true;
}

static bool pump_out(struct link *link)
{
    bool moved = false, room = false;
    /* Tell the peer of released credit before it can starve: docs/wire.md, flow control. */
    if (link->eager_released - link->eager_told >= link->eager_budget / 8 && link->control_count == 0 &&
        link->data_count == 0 && !link->out_busy)
        link_send_control(link, &(struct frame){.kind = FRAME_CREDIT}, NULL);
    while (link->failure.status == HEARTH_OK && (link->out_busy || out_next(link))) {
        if (!out_write(link, &moved))
            break;
        room = room || link->out.frame.kind == FRAME_DATA;
        out_finish(link);
    }
    if (room)
        link->events->on_room(link->events_arg, link);
    return moved;
}

void link_forget(struct link *link, const void *owner)
{
    uint32_t kept = 0, count = link->data_count;
    for (uint32_t i = 0; i < count; i++) {
        struct link_item item = link->data[(link->data_head + i) % LINK_DATA_QUEUE];
        if (item.owner != owner)
            link->data[(link->data_head + kept++) % LINK_DATA_QUEUE] = item;
        else if (item.frame.flags & FRAME_EAGER)
            link->eager_spent -= link_eager_cost(item.frame.length);
    }
    link->data_count = kept;
    if (!link->out_busy || link->out.owner != owner)
        return;
    link->out.owner = NULL;
    size_t len = link->out.frame.length;
    if (len == 0 || !link_up(link))
        return;
    link->out.copy = heap_alloc_raw(link->heap, 1, len);
    if (link->out.copy == NULL) {
        link->out_busy = false;
        link_fail(link, HEARTH_NO_MEMORY, "no memory to finish a frame of a cancelled operation");
        return;
    }
    memcpy(link->out.copy, link->out.payload, len);
    link->out.payload = link->out.copy;
}

/* ---- in ---- */

static void in_header_done(struct link *link)
{
    const char *what = NULL;
    if (frame_decode(&link->in, link->in_header, &what) != HEARTH_OK) {
        link_fail(link, HEARTH_PROTOCOL, what);
        return;
    }
    if (link->in.link_sequence != link->in_sequence + 1) {
        link_fail(link, HEARTH_PROTOCOL, "a frame is missing or came twice");
        return;
    }
    if ((link->in.kind == FRAME_HELLO) == link->heard_hello) {
        link_fail(link, HEARTH_PROTOCOL, link->heard_hello ? "a second hello" : "no hello");
        return;
    }
    if (link->eager_spent - link->in.credit > link->eager_budget) {
        link_fail(link, HEARTH_PROTOCOL, "it returns eager credit that was not spent");
        return;
    }
    link->heard_hello = true;
    link->in_sequence++;
    bool credit = link->eager_returned != link->in.credit;
    link->eager_returned = link->in.credit;
    link->in_target = link->in_cookie = NULL;
    if (link->in.kind == FRAME_DATA)
        link->in_target = link->events->on_data(link->events_arg, link, &link->in, &link->in_cookie);
    else
        link->in_target = link->in_control;
    if (credit)
        link->events->on_room(link->events_arg, link);
}

static void in_payload_done(struct link *link)
{
    struct frame frame = link->in;
    void *cookie = link->in_cookie;
    bool wanted = link->in_target != NULL || (cookie != NULL && frame.length == 0);
    link->in_done = 0;
    link->in_target = link->in_cookie = NULL;
    atomic_fetch_add_explicit(&link->metrics->frames_received, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&link->metrics->bytes_received, FRAME_HEADER_LEN + (uint64_t)frame.length,
                              memory_order_relaxed);
    if (frame.kind != FRAME_DATA)
        link->events->on_control(link->events_arg, link, &frame, link->in_control);
    else if (wanted)
        link->events->on_payload(link->events_arg, link, &frame, cookie);
}

/* Reads towards the end of the frame at hand: bytes, 0, or a negative status. */
static ssize_t in_read(struct link *link)
{
    static const size_t drop_len = FRAME_CONTROL_MAX;
    void *target;
    size_t len;
    if (link->in_done < FRAME_HEADER_LEN) {
        target = link->in_header + link->in_done;
        len = FRAME_HEADER_LEN - link->in_done;
    } else {
        size_t at = link->in_done - FRAME_HEADER_LEN;
        len = link->in.length - at;
        if (link->in_target != NULL) {
            target = (uint8_t *)link->in_target + at;
        } else { /* dropped: the control buffer is free while a data frame comes in */
            target = link->in_control;
            len = len < drop_len ? len : drop_len;
        }
    }
    return link->conn->transport->recv(link->conn, target, len);
}

static bool pump_in(struct link *link)
{
    size_t budget = PUMP_BYTES_MAX;
    bool moved = false;
    while (link->failure.status == HEARTH_OK && budget > 0) {
        ssize_t n = in_read(link);
        if (n < 0)
            link_fail(link, HEARTH_PEER_LOST, "the connection is gone");
        if (n <= 0)
            break;
        moved = true;
        budget -= (size_t)n < budget ? (size_t)n : budget;
        bool was_header = link->in_done < FRAME_HEADER_LEN;
        link->in_done += (size_t)n;
        if (was_header && link->in_done == FRAME_HEADER_LEN)
            in_header_done(link);
        if (link->failure.status == HEARTH_OK && link->in_done >= FRAME_HEADER_LEN &&
            link->in_done == FRAME_HEADER_LEN + (size_t)link->in.length)
            in_payload_done(link);
    }
    return moved;
}

void link_drop_incoming(struct link *link, const void *cookie)
{
    if (link->in_cookie != cookie || cookie == NULL)
        return;
    link->in_target = link->in_cookie = NULL;
}

/* ---- both ---- */

static void drop_queues(struct link *link)
{
    for (; link->control_count > 0; link->control_count--) {
        heap_free(link->control[link->control_head].copy);
        link->control_head = (link->control_head + 1) % link->control_capacity;
    }
    if (link->out_busy)
        heap_free(link->out.copy);
    link->out_busy = false;
    link->data_count = 0;
    heap_free(link->control);
    link->control = NULL;
    link->control_capacity = 0;
}

bool link_pump(struct link *link)
{
    if (!link_up(link))
        return false;
    bool moved = pump_in(link);
    moved = pump_out(link) || moved;
    if (link->unheard) { /* who has closed may have said something before, between our two looks */
        while (pump_in(link))
            continue;
        link_fail(link, HEARTH_PEER_LOST, "the connection is gone");
    }
    if (link->failure.status == HEARTH_OK)
        return moved;
    struct error why = link->failure;
    link->conn->transport->close(link->conn);
    link->conn = NULL;
    drop_queues(link);
    link->in_target = link->in_cookie = NULL;
    link->events->on_down(link->events_arg, link, &why);
    return true;
}

void link_fini(struct link *link, const struct error *bye)
{
    if (!link_up(link))
        return;
    if (bye != NULL && link->failure.status == HEARTH_OK && link->control_count < LINK_CONTROL_QUEUE) {
        uint8_t payload[FRAME_CONTROL_MAX];
        size_t len = error_encode(bye, payload, sizeof payload);
        link->data_count = 0; /* no data after a goodbye, but the frame that has begun is finished */
        link->out.owner = NULL;
        link_send_control(link, &(struct frame){.kind = FRAME_BYE, .length = (uint32_t)len}, payload);
        pump_out(link); /* what does not fit is lost: the peer sees the connection end */
    }
    link->conn->transport->close(link->conn);
    link->conn = NULL;
    drop_queues(link);
}
