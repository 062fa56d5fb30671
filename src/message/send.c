/* SPDX-License-Identifier: Apache-2.0 */
/* Sends: when they begin, their pieces, what became of them. */
#include <assert.h>
#include <string.h>

#include "message/transfer.h"

#define GATHER_BYTES 32768u /* shorter parts are copied together */

static enum link_class class_of(enum hearth_priority priority)
{
    return priority == HEARTH_PRIORITY_HIGH   ? LINK_HIGH
           : priority == HEARTH_PRIORITY_BULK ? LINK_BULK
                                              : LINK_MESSAGE;
}

/* ---- tags ---- */

static struct tag_queue *queue_find(const struct transfer *t)
{
    struct messages *m = t->messages;
    struct list *item, *after;
    LIST_EACH (item, after, bucket_of(m->tags, message_key(t->group->id, t->channel, t->peer), t->tag)) {
        struct tag_queue *q = container_of(item, struct tag_queue, bucket);
        if (q->group == t->group->id && q->tag == t->tag && q->channel == t->channel && q->peer == t->peer)
            return q;
    }
    return NULL;
}

static struct tag_queue *queue_get(const struct transfer *t)
{
    struct messages *m = t->messages;
    struct tag_queue *q = queue_find(t);
    if (q)
        return q;
    q = heap_alloc(m->heap, 1, sizeof *q);
    if (!q)
        return NULL;
    q->group = t->group->id;
    q->tag = t->tag;
    q->channel = t->channel;
    q->peer = t->peer;
    list_init(&q->item);
    list_init(&q->waiting);
    list_push(bucket_of(m->tags, message_key(q->group, q->channel, q->peer), q->tag), &q->bucket);
    return q;
}

static void queue_drop_idle(struct tag_queue *q)
{
    if (!list_empty(&q->waiting))
        return;
    list_remove(&q->item);
    if (q->announced > 0 || q->pinned)
        return;
    list_remove(&q->bucket);
    heap_free(q);
}

/* Its place among the announced is free. */
static void unannounce(struct transfer *t)
{
    struct tag_queue *q = queue_find(t);
    assert(q);
    q->announced--;
    peer_of(t->messages, t->peer)->announced--;
    queue_drop_idle(q);
}

/* ---- bytes ---- */

static void copy_out(struct transfer *t, uint8_t *target, size_t len)
{
    while (len > 0) {
        const struct hearth_iovec *part = &t->parts[t->part];
        size_t n = part->len - t->part_done < len ? part->len - t->part_done : len;
        if (n > 0)
            memcpy(target, (const uint8_t *)part->data + t->part_done, n);
        target += n;
        len -= n;
        t->part_done += n;
        if (t->part_done == part->len) {
            t->part++;
            t->part_done = 0;
        }
    }
}

/* The next bytes, at most len of them: where they stand, or a copy where parts are short. False: no memory.
 */
static bool next_bytes(struct transfer *t, size_t *len, struct link_data *out)
{
    if (!t->parts) {
        out->payload = t->data + t->moved;
        return true;
    }
    while (t->part < t->count && t->part_done == t->parts[t->part].len) {
        t->part++;
        t->part_done = 0;
    }
    if (t->part == t->count)
        return *len == 0;
    const struct hearth_iovec *part = &t->parts[t->part];
    size_t left = part->len - t->part_done;
    if (left >= *len || left >= GATHER_BYTES) {
        *len = left < *len ? left : *len;
        out->payload = (const uint8_t *)part->data + t->part_done;
        t->part_done += *len;
        return true;
    }
    out->payload = out->copy = heap_alloc_raw(t->messages->heap, 1, *len);
    if (!out->copy)
        return false;
    copy_out(t, out->copy, *len);
    return true;
}

/* ---- beginning ---- */

static bool fits_inline(const struct messages *m, const struct link *link, const struct transfer *t)
{
    const struct message_peer *p = &m->peers[t->peer];
    size_t most = link->pipe_count == 1 ? MESSAGE_INLINE_ALONE : MESSAGE_INLINE_MAX;
    return t->len <= most && t->len <= m->eager_bytes / 4 &&
           p->spent - p->returned + message_cost(t->len) <= m->eager_bytes;
}

static bool may_announce(const struct messages *m, int peer, const struct tag_queue *q)
{
    uint32_t all = m->peers[peer].announced;
    return all < MESSAGE_HELD_MAX && q->announced < (all < MESSAGE_HELD_MAX / 2 ? MESSAGE_TAG_MAX : 1);
}

static void begin(struct transfer *t, struct link *link, bool eager, struct link_data *out)
{
    struct message_peer *p = peer_of(t->messages, t->peer);
    t->eager = eager;
    t->state = SEND_BEGUN;
    t->unsent = 1;
    transfer_number(t, ++p->begun);
    out->owner = t;
    out->class = LINK_FIRST;
    out->frame = (struct frame){
        .kind = FRAME_MESSAGE,
        .flags = eager ? FRAME_EAGER : 0,
        .length = eager ? (uint32_t)t->len : 0,
        .group = t->group->id,
        .epoch = t->group->epoch,
        .tag = t->tag,
        .sequence = t->serial,
        .fingerprint = t->coded ? t->plain_len : 0,
        .lane = (uint32_t)t->channel,
        .step = (t->sync ? MESSAGE_SYNC : 0) | (t->coded ? MESSAGE_CODED | (uint32_t)t->dtype << 8 : 0),
        .total = t->len,
    };
    link_send_data(link, out);
}

/* A message inside of one frame stands in one place. False: no memory to bring its parts together. */
static bool make_inline(struct transfer *t, struct link_data *out)
{
    if (!t->parts || t->len == 0) {
        out->payload = t->data;
        return true;
    }
    out->payload = out->copy = heap_alloc_raw(t->messages->heap, 1, t->len);
    if (out->copy)
        copy_out(t, out->copy, t->len);
    return out->copy;
}

/* Begins the send if it may. False: it waits. */
static bool try_begin(struct transfer *t, struct link *link)
{
    struct messages *m = t->messages;
    struct message_peer *p = peer_of(m, t->peer);
    struct link_data out = {0};
    if (!link_room(link, LINK_FIRST))
        return false;
    if (fits_inline(m, link, t) && make_inline(t, &out)) {
        p->spent += message_cost(t->len);
        begin(t, link, true, &out);
        return true;
    }
    struct tag_queue *q = queue_get(t);
    if (!q || !may_announce(m, t->peer, q)) {
        if (q)
            queue_drop_idle(q);
        return false;
    }
    q->announced++;
    p->announced++;
    begin(t, link, false, &out);
    return true;
}

/* ---- pieces ---- */

static bool send_piece(struct transfer *t, struct link *link)
{
    struct messages *m = t->messages;
    if (t->moved == t->len || !link_room(link, t->class))
        return false;
    size_t most = MESSAGE_PIECE_CHUNKS * m->chunk_bytes;
    size_t len = t->len - t->moved < most ? t->len - t->moved : most;
    struct link_data out = {.owner = t, .class = t->class};
    if (!next_bytes(t, &len, &out)) {
        link_fail(link, HEARTH_NO_MEMORY, "no memory to join the parts of a message");
        return false;
    }
    out.frame = (struct frame){
        .kind = FRAME_PIECE, .length = (uint32_t)len, .sequence = t->serial, .total = t->moved};
    t->moved += len;
    t->unsent++;
    link_send_data(link, &out);
    if (t->moved == t->len)
        list_remove(&t->item);
    return true;
}

/* One piece of each in turn. */
static void pump_pieces(struct messages *m, int peer, struct link *link)
{
    struct list *item, *after;
    for (bool moved = true; moved;) {
        moved = false;
        LIST_EACH (item, after, &peer_of(m, peer)->moving)
            moved = send_piece(container_of(item, struct transfer, item), link) || moved;
    }
}

static void pump_queue(struct tag_queue *q, struct link *link)
{
    while (!list_empty(&q->waiting)) {
        struct transfer *t = container_of(q->waiting.next, struct transfer, item);
        q->pinned = true;
        list_remove(&t->item);
        bool begun = try_begin(t, link);
        q->pinned = false;
        if (!begun) {
            list_push(q->waiting.next, &t->item);
            return;
        }
    }
}

void send_pump(struct messages *m, int peer)
{
    struct message_peer *p = peer_of(m, peer);
    struct link *link = link_of(m, peer);
    struct list *item, *after;
    if (!link || !p->able)
        return;
    LIST_EACH (item, after, &p->queues) {
        struct tag_queue *q = container_of(item, struct tag_queue, item);
        pump_queue(q, link);
        queue_drop_idle(q);
        if (link_room(link, LINK_FIRST))
            continue;
        if (after != &p->queues) { /* the next time the queue behind it has the first choice */
            list_remove(&p->queues);
            list_push(after, &p->queues);
        }
        break;
    }
    pump_pieces(m, peer, link);
}

/* ---- events ---- */

static void check_left(struct transfer *t)
{
    if (t->unsent > 0 || t->moved < t->len)
        return;
    t->state = SEND_LEFT;
    if (!t->sync)
        transfer_end(t, NULL);
}

void send_left(struct transfer *t, uint8_t kind)
{
    t->unsent--;
    if (kind == FRAME_MESSAGE && t->eager)
        t->moved = t->len;
    else if (kind == FRAME_MESSAGE && t->state == SEND_BEGUN)
        t->state = SEND_ANNOUNCED;
    if (t->eager || t->state == SEND_MOVING)
        check_left(t);
}

void send_accepted(struct transfer *t)
{
    if (t->eager || (t->state != SEND_BEGUN && t->state != SEND_ANNOUNCED))
        return;
    unannounce(t);
    t->state = SEND_MOVING;
    if (t->len > 0) {
        list_push(&peer_of(t->messages, t->peer)->moving, &t->item);
        send_pump(t->messages, t->peer);
    } else {
        check_left(t); /* no piece will do it */
    }
}

void send_taken(struct transfer *t, const struct error *why)
{
    struct error error;
    if (!why) {
        transfer_end(t, NULL);
        return;
    }
    error_wrap(&error, why, "%s: %s", transfer_name(t).s, why->text);
    if (!message_lost(why))
        error.rank = transfer_rank(t);
    error.fate = HEARTH_FATE_NOT_DELIVERED;
    transfer_end(t, &error);
}

enum hearth_fate send_fate(const struct transfer *t)
{
    struct link *link = link_there(t->messages, t->peer);
    bool whole = t->eager || t->len == 0; /* the frame that begins it is all there is */
    switch (t->state) {
    case SEND_BEGUN:
        return whole && (!link || !link_queued(link, t)) ? HEARTH_FATE_UNKNOWN : HEARTH_FATE_NOT_DELIVERED;
    case SEND_ANNOUNCED:
        return whole && t->peer != t->messages->rank ? HEARTH_FATE_UNKNOWN : HEARTH_FATE_NOT_DELIVERED;
    case SEND_MOVING:
        return t->moved == t->len ? HEARTH_FATE_UNKNOWN : HEARTH_FATE_NOT_DELIVERED;
    case SEND_LEFT:
        return HEARTH_FATE_UNKNOWN;
    default:
        return HEARTH_FATE_NOT_DELIVERED;
    }
}

/* ---- ourselves ---- */

static struct message_arrival *self_arrival(struct transfer *t)
{
    struct messages *m = t->messages;
    struct message_arrival *a = heap_alloc(m->heap, 1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct message_arrival){.group = t->group->id,
                                  .tag = t->tag,
                                  .channel = (uint32_t)t->channel,
                                  .peer = m->rank,
                                  .serial = ++peer_of(m, m->rank)->begun,
                                  .len = t->len,
                                  .plain_len = t->plain_len,
                                  .sync = t->sync,
                                  .coded = t->coded,
                                  .dtype = t->dtype,
                                  .self = t};
    list_init(&a->bucket);
    list_init(&a->order);
    return a;
}

/* A short one need not wait for its receive. */
static void self_copy(struct transfer *t, struct message_arrival *a)
{
    struct messages *m = t->messages;
    struct message_peer *p = peer_of(m, m->rank);
    if (t->sync || t->len > MESSAGE_INLINE_ALONE || p->held + message_cost(t->len) > m->eager_bytes)
        return;
    struct hearth_message *block = message_alloc(m->heap, t->len);
    if (!block)
        return;
    if (t->parts)
        copy_out(t, block->data, t->len);
    else if (t->len > 0)
        memcpy(block->data, t->data, t->len);
    a->self = NULL;
    a->block = block;
    a->eager = a->whole = true;
    p->held += message_cost(t->len);
    transfer_end(t, NULL);
}

void sends_to_self(struct transfer *t)
{
    struct messages *m = t->messages;
    struct message_arrival *a = self_arrival(t);
    t->state = SEND_ANNOUNCED;
    if (!a) {
        struct error why;
        error_set(&why, HEARTH_NO_MEMORY, t->group->rank, "%s: no memory", transfer_name(t).s);
        why.fate = HEARTH_FATE_NOT_DELIVERED;
        transfer_end(t, &why);
        return;
    }
    struct transfer *recv = recv_for(m, a);
    if (recv) {
        arrival_take(m, a, recv);
        return;
    }
    arrival_keep(m, a);
    if (m->sinks[t->channel].take)
        sink_offer(m, a);
    else
        self_copy(t, a);
}

/* ---- from the caller ---- */

static void fill(struct transfer *t, const struct message_group *group, const struct message_send *send)
{
    t->kind = TRANSFER_SEND;
    t->state = SEND_WAITING;
    t->group = group;
    t->channel = send->channel;
    t->peer = group->members[send->to];
    t->tag = send->tag;
    t->parts = send->parts;
    t->count = send->count;
    t->data = (uint8_t *)(uintptr_t)send->data;
    t->len = send->len;
    t->sync = send->sync;
    t->coded = send->coded;
    t->plain_len = send->plain_len;
    t->dtype = send->dtype;
    t->class = class_of(send->priority);
    t->posted_ns = send->now_ns;
    t->deadline_ns = send->deadline_ns;
}

int message_send(struct messages *m, const struct message_group *group, const struct message_send *send,
                 struct completion *completion, struct error *error)
{
    int peer = group->members[send->to];
    struct message_peer *p = peer_of(m, peer);
    struct link *link = link_of(m, peer);
    if (peer != m->rank && p->heard_hello && !p->able && link)
        return error_set(error, HEARTH_UNSUPPORTED, send->to,
                         "send: rank %d runs a version of Hearth without messages", send->to);
    struct transfer *t = m->count < MESSAGE_COUNT_MAX ? transfer_get(m) : NULL;
    if (!t && m->count >= MESSAGE_COUNT_MAX)
        return error_set(error, HEARTH_LIMIT, RANK_NONE,
                         "send: %u sends and receives are in flight, no more are allowed", m->count);
    if (!t)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "send: no memory");
    fill(t, group, send);
    t->completion = completion;
    if (completion) {
        *completion = (struct completion){.transfer = t, .error = {.rank = RANK_NONE, .origin = RANK_NONE}};
        list_init(&completion->item);
    }
    transfer_time(t);
    if (peer == m->rank) {
        sends_to_self(t);
        return HEARTH_OK;
    }
    if (link && p->able && list_empty(&p->queues) && try_begin(t, link))
        return HEARTH_OK;
    struct tag_queue *q = queue_get(t);
    if (!q) {
        t->completion = NULL;
        error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "send: no memory");
        transfer_end(t, error);
        return HEARTH_NO_MEMORY;
    }
    list_push(&q->waiting, &t->item);
    if (list_empty(&q->item))
        list_push(&p->queues, &q->item);
    send_pump(m, peer);
    return HEARTH_OK;
}

void send_let_go(struct transfer *t)
{
    struct messages *m = t->messages;
    struct link *link = link_there(m, t->peer);
    bool begins = t->state == SEND_BEGUN || t->state == SEND_ANNOUNCED;
    if (t->peer == m->rank) {
        struct list *item, *after;
        LIST_EACH (item, after, &m->arrivals) {
            struct message_arrival *a = container_of(item, struct message_arrival, order);
            if (a->self == t)
                arrival_free(a);
        }
        return;
    }
    if (t->state == SEND_BEGUN && t->eager && link && link_queued(link, t))
        peer_of(m, t->peer)->spent -= message_cost(t->len);
    if (link && t->unsent > 0)
        link_forget(link, t);
    if (begins && !t->eager)
        unannounce(t);
    if (t->state != SEND_WAITING)
        return;
    list_remove(&t->item);
    struct tag_queue *q = queue_find(t);
    if (q)
        queue_drop_idle(q);
}
