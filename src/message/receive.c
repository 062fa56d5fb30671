/* SPDX-License-Identifier: Apache-2.0 */
/* Receives, and messages that wait for one: matching in order, memory, ends. */
#include <assert.h>
#include <string.h>

#include "message/transfer.h"

#define BLOCK_HEAD 64u /* of a message in memory of the node: where its bytes begin */

static_assert(sizeof(struct message_block) <= BLOCK_HEAD, "the struct fits before the bytes");

struct hearth_message *message_alloc(struct heap *heap, size_t len)
{
    struct message_block *block =
        len > SIZE_MAX - BLOCK_HEAD ? NULL : heap_alloc_raw(heap, 1, BLOCK_HEAD + len);
    if (!block)
        return NULL;
    *block = (struct message_block){.message = {.size = sizeof block->message,
                                                .data = len > 0 ? (uint8_t *)block + BLOCK_HEAD : NULL,
                                                .len = len}};
    return &block->message;
}

/* ---- matching ---- */

static bool fits(const struct transfer *t, const struct message_arrival *a)
{
    return t->group->id == a->group && (uint32_t)t->channel == a->channel &&
           (t->any_rank ? t->group->rank_of[a->peer] != RANK_NONE : t->peer == a->peer) &&
           (t->tag == HEARTH_ANY_TAG || t->tag == a->tag);
}

static struct transfer *first_fitting(struct list *list, const struct message_arrival *a)
{
    struct list *item, *after;
    LIST_EACH (item, after, list) {
        struct transfer *t = container_of(item, struct transfer, item);
        if (fits(t, a))
            return t;
    }
    return NULL;
}

struct transfer *recv_for(struct messages *m, const struct message_arrival *a)
{
    if (m->posted == 0)
        return NULL;
    struct transfer *exact =
        first_fitting(bucket_of(m->recvs, message_key(a->group, a->channel, a->peer), a->tag), a);
    struct transfer *any = list_empty(&m->any) ? NULL : first_fitting(&m->any, a);
    if (!exact || !any)
        return exact ? exact : any;
    return exact->order < any->order ? exact : any;
}

static struct message_arrival *arrival_for(struct messages *m, const struct transfer *t)
{
    struct list *item, *after;
    if (list_empty(&m->arrivals))
        return NULL;
    if (t->any_rank || t->tag == HEARTH_ANY_TAG) {
        LIST_EACH (item, after, &m->arrivals) {
            struct message_arrival *a = container_of(item, struct message_arrival, order);
            if (!a->taker && fits(t, a))
                return a;
        }
        return NULL;
    }
    LIST_EACH (item, after,
               bucket_of(m->arrived, message_key(t->group->id, (uint32_t)t->channel, t->peer), t->tag)) {
        struct message_arrival *a = container_of(item, struct message_arrival, bucket);
        if (!a->taker && fits(t, a))
            return a;
    }
    return NULL;
}

/* ---- the receive gets its message ---- */

static int refusal_of(const struct transfer *t, const struct message_arrival *a, struct error *why)
{
    size_t len = a->coded ? a->plain_len : a->len;
    if (a->coded && a->dtype != t->dtype && !t->message)
        return error_set(why, HEARTH_MISMATCH, t->group->rank_of[a->peer],
                         "the message holds elements of type %s, the receive expects %s (opts.dtype)",
                         hearth_dtype_name(a->dtype), hearth_dtype_name(t->dtype));
    if (a->coded && t->parts)
        return error_set(why, HEARTH_UNSUPPORTED, t->group->rank_of[a->peer],
                         "the message was sent with a codec: receive it into one buffer");
    if (!t->message && len > t->len)
        return error_set(why, HEARTH_TOO_LONG, t->group->rank_of[a->peer],
                         "the message has %zu bytes, the receive has room for %zu", len, t->len);
    return HEARTH_OK;
}

/* What the sender hears, if it still waits. */
static void tell_refused(struct messages *m, const struct message_arrival *a, const struct error *why)
{
    if (a->self) {
        struct transfer *send = a->self;
        send_taken(send, why);
    } else if (a->peer != m->rank && (a->sync || !a->eager)) {
        message_tell(m, a->peer, FRAME_TAKEN, a->serial, why);
    }
}

static void unpost(struct transfer *t)
{
    if (t->state != RECV_POSTED)
        return;
    t->messages->posted -= t->kind == TRANSFER_RECV && !list_empty(&t->item);
    list_remove(&t->item);
}

bool recv_match(struct transfer *t, const struct message_arrival *a, struct error *why)
{
    struct messages *m = t->messages;
    struct error ours;
    unpost(t);
    t->state = RECV_MATCHED;
    t->peer = a->peer;
    t->tag = a->tag;
    t->sync = a->sync;
    int status = refusal_of(t, a, why);
    t->coded = a->coded;
    t->plain_len = a->plain_len;
    t->dtype = a->dtype;
    if (status == HEARTH_OK && (t->message || a->coded) && !a->block) {
        t->block = message_alloc(m->heap, a->len);
        if (!t->block)
            status = error_because(why, HEARTH_REASON_NO_MEMORY, HEARTH_NO_MEMORY, t->group->rank,
                                   "no memory for a message of %zu bytes", a->len);
        else
            t->data = t->block->data;
        t->parts = NULL;
    }
    if (status == HEARTH_OK) {
        t->len = a->len;
        return true;
    }
    error_wrap(&ours, why, "%s: %s", transfer_name(t).s, why->text);
    transfer_end(t, &ours);
    return false;
}

uint8_t *recv_place(struct transfer *t, size_t offset, size_t len)
{
    if (!t->parts)
        return t->data + offset;
    for (size_t i = 0; i < t->count; i++) {
        if (offset < t->parts[i].len)
            return offset + len <= t->parts[i].len ? (uint8_t *)t->parts[i].data + offset : NULL;
        offset -= t->parts[i].len;
    }
    return NULL;
}

void recv_scatter(struct transfer *t, size_t offset, const uint8_t *bytes, size_t len)
{
    if (!t->parts) {
        if (len > 0)
            memcpy(t->data + offset, bytes, len);
        return;
    }
    for (size_t i = 0; i < t->count && len > 0; i++) {
        size_t room = t->parts[i].len;
        if (offset >= room) {
            offset -= room;
            continue;
        }
        size_t n = room - offset < len ? room - offset : len;
        memcpy((uint8_t *)t->parts[i].data + offset, bytes, n);
        bytes += n;
        len -= n;
        offset = 0;
    }
}

void recv_complete(struct transfer *t)
{
    struct messages *m = t->messages;
    if (t->sync && t->peer != m->rank)
        message_tell(m, t->peer, FRAME_TAKEN, t->serial, NULL);
    if (t->completion) {
        transfer_end(t, NULL);
        return;
    }
    struct hearth_message *block = t->block;
    const struct message_group *group = t->group;
    const struct message_sink *sink = &m->sinks[t->channel];
    block->rank = transfer_rank(t);
    block->tag = t->tag;
    t->block = NULL;
    transfer_end(t, NULL);
    sink->take(sink->arg, group, block);
}

void recv_accept(struct transfer *t, uint64_t serial)
{
    transfer_number(t, serial);
    t->accepted = true;
    t->messages->accepted++;
    message_tell(t->messages, t->peer, FRAME_ACCEPT, serial, NULL);
    if (t->len == 0)
        recv_complete(t);
}

void recv_bytes(struct transfer *t, size_t len)
{
    t->moved += len;
    if (t->moved == t->len)
        recv_complete(t);
}

/* ---- messages that wait ---- */

void arrival_free(struct message_arrival *a)
{
    list_remove(&a->bucket);
    list_remove(&a->order);
    heap_free(a->block);
    heap_free(a);
}

static void tell_probe(struct transfer *t, const struct message_arrival *a)
{
    t->peer = a->peer;
    t->tag = a->tag;
    t->len = a->len;
    t->coded = a->coded;
    t->plain_len = a->plain_len;
    transfer_end(t, NULL);
}

void arrival_keep(struct messages *m, struct message_arrival *a)
{
    struct list *item, *after;
    list_push(bucket_of(m->arrived, message_key(a->group, a->channel, a->peer), a->tag), &a->bucket);
    list_push(&m->arrivals, &a->order);
    LIST_EACH (item, after, &m->probes) {
        struct transfer *t = container_of(item, struct transfer, item);
        if (fits(t, a))
            tell_probe(t, a);
    }
}

/* It will not be received; its place is free. */
static void arrival_account(struct messages *m, const struct message_arrival *a)
{
    if (a->eager && a->peer == m->rank)
        peer_of(m, m->rank)->held -= message_cost(a->len);
    else if (a->eager)
        message_release(m, a->peer, a->len);
    else if (!a->self)
        peer_of(m, a->peer)->announced_to_us--;
}

/* The payload of it that is coming in is dropped. */
static void drop_incoming(struct messages *m, const struct message_arrival *a)
{
    struct message_peer *p = peer_of(m, a->peer);
    struct link *link = link_there(m, a->peer);
    for (int i = 0; i < LINK_PIPES_MAX; i++) {
        if (p->incoming[i].arrival != a)
            continue;
        if (link)
            link_drop_incoming(link, &p->incoming[i]);
        p->incoming[i] = (struct message_incoming){0};
    }
}

void arrival_drop(struct messages *m, struct message_arrival *a)
{
    drop_incoming(m, a);
    arrival_account(m, a);
    arrival_free(a);
}

void message_refuse(struct messages *m, const struct message_arrival *a, const struct error *why)
{
    arrival_account(m, a);
    tell_refused(m, a, why);
}

void arrival_refuse(struct messages *m, struct message_arrival *a, const struct error *why)
{
    struct message_arrival copy = *a;
    drop_incoming(m, a);
    arrival_free(a); /* first: the end of a send to ourselves looks for it */
    message_refuse(m, &copy, why);
}

/* From our own send, which has waited. */
static void take_from_self(struct message_arrival *a, struct transfer *t)
{
    struct transfer *send = a->self;
    size_t offset = 0;
    if (!send->parts)
        recv_scatter(t, 0, send->data, send->len);
    for (size_t i = 0; send->parts && i < send->count; i++) {
        recv_scatter(t, offset, send->parts[i].data, send->parts[i].len);
        offset += send->parts[i].len;
    }
    a->self = NULL;
    arrival_free(a);
    transfer_end(send, NULL);
    recv_complete(t);
}

/* The bytes are here. */
static void take_whole(struct messages *m, struct message_arrival *a, struct transfer *t)
{
    if (t->message || a->coded) {
        t->block = a->block;
        a->block = NULL;
    } else if (a->len > 0) {
        recv_scatter(t, 0, a->block->data, a->len);
    }
    t->moved = a->len;
    arrival_account(m, a);
    arrival_free(a);
    recv_complete(t);
}

void arrival_take(struct messages *m, struct message_arrival *a, struct transfer *t)
{
    struct error why;
    if (t->state == RECV_POSTED && !recv_match(t, a, &why)) {
        arrival_refuse(m, a, &why);
        return;
    }
    t->serial = a->serial;
    if (a->self) {
        take_from_self(a, t);
    } else if (a->whole) {
        take_whole(m, a, t);
    } else if (a->eager) {
        transfer_number(t, a->serial);
        a->taker = t;
    } else {
        uint64_t serial = a->serial;
        arrival_account(m, a);
        arrival_free(a);
        recv_accept(t, serial);
    }
}

/* ---- sinks ---- */

static struct transfer *sink_recv(struct messages *m, const struct message_group *group,
                                  const struct message_arrival *a)
{
    struct transfer *t = transfer_get(m);
    if (!t)
        return NULL;
    t->kind = TRANSFER_RECV;
    t->state = RECV_POSTED;
    t->group = group;
    t->channel = (enum message_channel)a->channel;
    t->peer = a->peer;
    t->tag = a->tag;
    t->message = &t->block; /* of any length; the sink gets the block itself */
    t->deadline_ns = NEVER_NS;
    transfer_time(t);
    return t;
}

void sink_offer(struct messages *m, struct message_arrival *a)
{
    const struct message_group *group = m->setup.group(m->setup.arg, a->group);
    const struct message_sink *sink = &m->sinks[a->channel];
    struct error why;
    if (a->eager && !a->whole)
        return; /* when it has come */
    if (sink->wants(sink->arg, group, a->len, &why) != HEARTH_OK) {
        arrival_refuse(m, a, &why);
        return;
    }
    struct transfer *t = sink_recv(m, group, a);
    if (t) {
        arrival_take(m, a, t);
        return;
    }
    error_because(&why, HEARTH_REASON_NO_MEMORY, HEARTH_ABORTED, group->rank, "rank %d is out of memory",
                  group->rank);
    arrival_refuse(m, a, &why);
}

/* ---- from the caller ---- */

static void fill(struct transfer *t, const struct message_group *group, const struct message_recv *recv)
{
    t->kind = recv->probe ? TRANSFER_PROBE : TRANSFER_RECV;
    t->state = RECV_POSTED;
    t->group = group;
    t->channel = recv->channel;
    t->any_rank = recv->from == HEARTH_ANY_RANK;
    t->peer = t->any_rank ? RANK_NONE : group->members[recv->from];
    t->tag = recv->tag;
    t->parts = recv->parts;
    t->count = recv->count;
    t->data = recv->buffer;
    t->len = recv->len;
    t->message = recv->message;
    t->coded_out = recv->coded;
    t->dtype = recv->dtype;
    t->received = recv->received;
    t->got = recv->got;
    t->posted_ns = recv->now_ns;
    t->deadline_ns = recv->deadline_ns;
    t->order = t->messages->order++;
}

static void post(struct messages *m, struct transfer *t)
{
    struct list *list = &m->any;
    if (t->kind == TRANSFER_PROBE)
        list = &m->probes;
    else if (!t->any_rank && t->tag != HEARTH_ANY_TAG)
        list = bucket_of(m->recvs, message_key(t->group->id, (uint32_t)t->channel, t->peer), t->tag);
    list_push(list, &t->item);
    m->posted += t->kind == TRANSFER_RECV;
}

int message_recv(struct messages *m, const struct message_group *group, const struct message_recv *recv,
                 struct completion *completion, struct error *error)
{
    if (m->count >= MESSAGE_COUNT_MAX)
        return error_set(error, HEARTH_LIMIT, RANK_NONE,
                         "receive: %u sends and receives are in flight, no more are allowed", m->count);
    struct transfer *t = transfer_get(m);
    if (!t)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "receive: no memory");
    fill(t, group, recv);
    struct message_arrival *a = arrival_for(m, t);
    if (!a && recv->gone) {
        error_wrap(error, recv->gone, "%s: %s", transfer_name(t).s, recv->gone->text);
        transfer_end(t, error);
        return error->status;
    }
    t->completion = completion;
    *completion = (struct completion){.transfer = t, .error = {.rank = RANK_NONE, .origin = RANK_NONE}};
    list_init(&completion->item);
    transfer_time(t);
    if (a && recv->probe)
        tell_probe(t, a);
    else if (a)
        arrival_take(m, a, t);
    else
        post(m, t);
    return HEARTH_OK;
}

void recv_let_go(struct transfer *t)
{
    struct messages *m = t->messages;
    unpost(t);
    if (t->state != RECV_MATCHED || t->peer == m->rank)
        return;
    struct message_peer *p = peer_of(m, t->peer);
    struct link *link = link_there(m, t->peer);
    struct list *item, *after;
    for (int i = 0; i < LINK_PIPES_MAX; i++) {
        struct message_incoming *incoming = &p->incoming[i];
        if (incoming->recv != t)
            continue;
        if (link)
            link_drop_incoming(link, incoming);
        heap_free(incoming->bounce);
        *incoming = (struct message_incoming){0};
        if (t->eager)
            message_release(m, t->peer, t->len);
    }
    if (t->moved == t->len || list_empty(&t->number))
        return;
    LIST_EACH (item, after, &m->arrivals) {
        struct message_arrival *a = container_of(item, struct message_arrival, order);
        if (a->taker == t)
            arrival_drop(m, a);
    }
}
