/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes; transfers, their deadlines and their ends. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "core/sized.h"
#include "message/transfer.h"
#include "wire/record.h"

struct list *bucket_of(struct list *buckets, uint64_t a, uint64_t b)
{
    return &buckets[hash_mix(a, b) % MESSAGE_BUCKETS];
}

uint64_t message_key(uint64_t group, uint32_t channel, int peer)
{
    return group + (uint64_t)channel * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(unsigned)peer;
}

/* ---- transfers ---- */

struct transfer *transfer_get(struct messages *m)
{
    struct list *item = list_pop(&m->free);
    struct transfer *t = item ? container_of(item, struct transfer, item) : heap_alloc(m->heap, 1, sizeof *t);
    if (!t)
        return NULL;
    *t = (struct transfer){.messages = m, .peer = RANK_NONE};
    list_init(&t->item);
    list_init(&t->number);
    list_init(&t->timer);
    m->count++;
    return t;
}

/* Deadlines are mostly in the order of the calls: the place is near the end. */
void transfer_time(struct transfer *t)
{
    struct list *after = t->messages->timers.prev;
    while (after != &t->messages->timers &&
           container_of(after, struct transfer, timer)->deadline_ns > t->deadline_ns)
        after = after->prev;
    list_push(after->next, &t->timer);
}

struct transfer *transfer_find(struct messages *m, int peer, uint64_t serial, enum transfer_kind kind)
{
    struct list *item, *after;
    LIST_EACH (item, after, bucket_of(m->numbers, (uint64_t)peer, serial)) {
        struct transfer *t = container_of(item, struct transfer, number);
        if (t->peer == peer && t->serial == serial && t->kind == kind)
            return t;
    }
    return NULL;
}

void transfer_number(struct transfer *t, uint64_t serial)
{
    t->serial = serial;
    list_push(bucket_of(t->messages->numbers, (uint64_t)t->peer, serial), &t->number);
}

int transfer_rank(const struct transfer *t)
{
    return t->peer >= 0 ? t->group->rank_of[t->peer] : RANK_NONE;
}

/* Parts of a remote call: their tags are numbers of calls. */
static void call_name(const struct transfer *t, struct transfer_name *name)
{
    static const char *const nouns[CHANNEL_COUNT] = {"message", "request", "reply", "cancel"};
    if (t->kind == TRANSFER_SEND)
        snprintf(name->s, sizeof name->s, "%s of %zu bytes to rank %d", nouns[t->channel], t->len,
                 transfer_rank(t));
    else
        snprintf(name->s, sizeof name->s, "%s from rank %d", nouns[t->channel], transfer_rank(t));
}

struct transfer_name transfer_name(const struct transfer *t)
{
    struct transfer_name name;
    char whom[24] = "any rank";
    if (t->peer >= 0)
        snprintf(whom, sizeof whom, "rank %d", transfer_rank(t));
    if (t->channel != CHANNEL_USER)
        call_name(t, &name);
    else if (t->kind == TRANSFER_SEND)
        snprintf(name.s, sizeof name.s, "send of %zu bytes to %s%s", t->len, whom, tag_text(t->tag).s);
    else
        snprintf(name.s, sizeof name.s, "%s from %s%s", t->kind == TRANSFER_PROBE ? "probe" : "receive", whom,
                 t->tag == HEARTH_ANY_TAG ? "" : tag_text(t->tag).s);
    return name;
}

int transfer_waits_for(const struct transfer *t)
{
    return t->peer >= 0 && t->peer != t->messages->rank ? t->peer : RANK_NONE;
}

/* The results of a receive that has succeeded. */
static void write_results(struct transfer *t)
{
    int rank = transfer_rank(t);
    size_t len = t->coded ? t->plain_len : t->len;
    if (t->got)
        *t->got = len;
    if (t->received) {
        struct hearth_received own = {.rank = rank, .tag = t->tag, .len = len};
        sized_write(t->received, t->received->size, &own, sizeof own);
    }
    if (!t->block)
        return;
    t->block->rank = rank;
    t->block->tag = t->tag;
    container_of(t->block, struct message_block, message)->plain_len = t->plain_len;
    container_of(t->block, struct message_block, message)->dtype = t->dtype;
    *(t->coded ? t->coded_out : t->message) = t->block;
    t->block = NULL;
}

void transfer_end(struct transfer *t, const struct error *why)
{
    struct messages *m = t->messages;
    struct completion *completion = t->completion;
    if (t->kind == TRANSFER_SEND)
        send_let_go(t);
    else
        recv_let_go(t);
    list_remove(&t->item);
    list_remove(&t->number);
    list_remove(&t->timer);
    if (completion) {
        if (!why)
            write_results(t);
        completion->error = why ? *why : (struct error){.rank = RANK_NONE, .origin = RANK_NONE};
        completion->ended = true;
        completion->transfer = NULL;
        list_push(m->finished, &completion->item);
    }
    heap_free(t->block);
    m->accepted -= t->accepted;
    m->count--;
    list_push(&m->free, &t->item);
    if (t->kind == TRANSFER_SEND && t->peer != m->rank)
        send_pump(m, t->peer); /* others may have waited for its place */
}

/* ---- frames ---- */

void message_tell(struct messages *m, int peer, uint8_t kind, uint64_t serial, const struct error *why)
{
    uint8_t payload[FRAME_CONTROL_MAX];
    struct link *link = link_of(m, peer);
    struct frame frame = {.kind = kind, .sequence = serial};
    if (!link)
        return;
    if (why)
        frame.length = (uint32_t)error_encode(why, payload, sizeof payload);
    link_send_control(link, &frame, payload);
}

uint64_t message_cost(size_t len)
{
    return (uint64_t)len + LINK_EAGER_COST;
}

void message_release(struct messages *m, int peer, size_t len)
{
    struct message_peer *p = peer_of(m, peer);
    struct link *link = link_of(m, peer);
    p->released += message_cost(len);
    p->held -= message_cost(len);
    if (!link || p->released - p->told < m->eager_bytes / 8)
        return;
    p->told = p->released;
    link_send_control(link, &(struct frame){.kind = FRAME_RELEASE, .total = p->released}, NULL);
}

/* ---- deadlines, cancel ---- */

static const char *fate_text(const struct transfer *t, enum hearth_fate fate)
{
    if (t->channel != CHANNEL_USER)
        return ""; /* the call says it in its own words */
    return fate == HEARTH_FATE_NOT_DELIVERED ? "; it was not delivered"
           : fate == HEARTH_FATE_DELIVERED   ? "; it was delivered"
           : fate == HEARTH_FATE_UNKNOWN     ? "; it may have been delivered"
                                             : "";
}

/* Ends it here; the other side hears that its part is over. */
static void give_up(struct transfer *t, struct error *ours, const struct error *theirs)
{
    struct messages *m = t->messages;
    int peer = t->peer;
    uint64_t serial = t->serial;
    bool tell = !list_empty(&t->number) && peer != m->rank, send = t->kind == TRANSFER_SEND;
    ours->fate = send ? send_fate(t) : HEARTH_FATE_NONE;
    transfer_end(t, ours);
    if (tell)
        message_tell(m, peer, send ? FRAME_WITHDRAW : FRAME_TAKEN, serial, theirs);
}

void transfer_cancel(struct transfer *t)
{
    struct error ours, theirs;
    int rank = transfer_rank(t);
    enum hearth_fate fate = t->kind == TRANSFER_SEND ? send_fate(t) : HEARTH_FATE_NONE;
    error_set(&ours, HEARTH_CANCELLED, rank, "%s: cancelled%s", transfer_name(t).s, fate_text(t, fate));
    error_because(&theirs, HEARTH_REASON_CANCELLED, HEARTH_ABORTED, t->group->rank,
                  "%s: rank %d has cancelled it", transfer_name(t).s, t->group->rank);
    give_up(t, &ours, &theirs);
}

static void transfer_expired(struct transfer *t)
{
    struct error ours, theirs;
    unsigned long long ms = (t->deadline_ns - t->posted_ns) / NS_PER_MS;
    int rank = transfer_rank(t);
    char whom[64] = "";
    enum hearth_fate fate = t->kind == TRANSFER_SEND ? send_fate(t) : HEARTH_FATE_NONE;
    if (rank != RANK_NONE)
        snprintf(whom, sizeof whom, ": rank %d %s", rank,
                 t->kind != TRANSFER_SEND
                     ? (t->state == RECV_MATCHED ? "has not sent all of it" : "has sent nothing")
                 : t->state == SEND_MOVING || (t->state == SEND_BEGUN && t->eager) ? "does not read"
                                                                                   : "has not received it");
    error_set(&ours, HEARTH_TIMEOUT, rank, "%s: timed out after %llu ms%s%s", transfer_name(t).s, ms, whom,
              fate_text(t, fate));
    error_because(&theirs, HEARTH_REASON_TIMED_OUT, HEARTH_ABORTED, t->group->rank,
                  "%s: its timeout of %llu ms passed at rank %d", transfer_name(t).s, ms, t->group->rank);
    give_up(t, &ours, &theirs);
}

bool messages_check_time(struct messages *m, uint64_t now_ns)
{
    bool any = false;
    while (!list_empty(&m->timers)) {
        struct transfer *t = container_of(m->timers.next, struct transfer, timer);
        if (t->deadline_ns > now_ns)
            break;
        transfer_expired(t);
        any = true;
    }
    return any;
}

uint64_t messages_deadline(const struct messages *m)
{
    return list_empty(&m->timers) ? NEVER_NS
                                  : container_of(m->timers.next, struct transfer, timer)->deadline_ns;
}

bool messages_busy(const struct messages *m)
{
    return m->count > 0;
}

bool messages_begin_expected(const struct messages *m)
{
    return m->count > m->accepted;
}

bool messages_pieces_expected(const struct messages *m)
{
    return m->accepted > 0;
}

/* ---- loss ---- */

struct ending {
    const struct message_group *group; /* NULL: all */
    const struct message_loss *loss;   /* NULL: not about one peer */
    bool unmoved;                      /* only what has not begun to move */
    bool spares_replies;
    const struct error *why;
};

static bool concerns(const struct transfer *t, const struct ending *e)
{
    bool moves = t->state == SEND_MOVING || t->state == SEND_LEFT || t->state == RECV_MATCHED ||
                 t->state == SEND_BEGUN;
    if (e->group && t->group != e->group)
        return false;
    if (e->spares_replies && t->channel == CHANNEL_REPLY && t->kind == TRANSFER_SEND)
        return false;
    if (e->loss && (t->peer != e->loss->peer || t->group->rank_of[e->loss->peer] == RANK_NONE))
        return false;
    return !e->unmoved || !moves;
}

static void end_for(struct transfer *t, const struct ending *e)
{
    struct error why;
    enum hearth_fate fate = t->kind == TRANSFER_SEND ? send_fate(t) : HEARTH_FATE_NONE;
    if (e->loss)
        error_because(&why, e->loss->reason, e->loss->status, transfer_rank(t), "%s: rank %d %.160s%s",
                      transfer_name(t).s, transfer_rank(t), e->loss->how, fate_text(t, fate));
    else
        error_wrap(&why, e->why, "%s: %.200s%s", transfer_name(t).s, e->why->text, fate_text(t, fate));
    why.fate = fate;
    int peer = t->peer;
    uint64_t serial = t->serial;
    bool tell = e->unmoved && t->kind == TRANSFER_SEND && !list_empty(&t->number);
    transfer_end(t, &why);
    if (tell) /* it may have been accepted in the meantime */
        message_tell(t->messages, peer, FRAME_WITHDRAW, serial, e->why);
}

/* All transfers have a timer. */
static void end_each(struct messages *m, const struct ending *e)
{
    struct list *item, *after;
    LIST_EACH (item, after, &m->timers) {
        struct transfer *t = container_of(item, struct transfer, timer);
        if (concerns(t, e))
            end_for(t, e);
    }
}

/* A receive from any rank fails when no member is left to send. */
static void end_lonely(struct messages *m, const struct message_loss *loss)
{
    struct list *item, *after;
    LIST_EACH (item, after, &m->timers) {
        struct transfer *t = container_of(item, struct transfer, timer);
        bool alone = t->any_rank && t->state == RECV_POSTED && t->group->size > 1;
        for (int i = 0; alone && i < t->group->size; i++)
            alone = i == t->group->rank || !link_of(m, t->group->members[i]);
        struct error why;
        if (!alone)
            continue;
        error_because(&why, loss->reason, loss->status, t->group->rank_of[loss->peer],
                      "%s: all other members are gone: rank %d %.160s", transfer_name(t).s,
                      t->group->rank_of[loss->peer], loss->how);
        transfer_end(t, &why);
    }
}

/* What it announced will not come; what has come whole counts if it left in peace. */
static void drop_arrivals(struct messages *m, int peer, bool left)
{
    struct list *item, *after;
    LIST_EACH (item, after, &m->arrivals) {
        struct message_arrival *a = container_of(item, struct message_arrival, order);
        if (a->peer == peer && !(left && a->whole))
            arrival_free(a);
    }
}

void messages_departed(struct messages *m, const struct message_loss *loss)
{
    struct message_peer *p = peer_of(m, loss->peer);
    for (int i = 0; i < LINK_PIPES_MAX; i++)
        heap_free(p->incoming[i].bounce);
    memset(p->incoming, 0, sizeof p->incoming);
    p->gone = true;
    p->able = false;
    end_each(m, &(struct ending){.loss = loss});
    end_lonely(m, loss);
    drop_arrivals(m, loss->peer, loss->left);
}

void messages_group_over(struct messages *m, struct message_group *group, const struct error *why)
{
    struct list *item, *after;
    if (group->over.status != HEARTH_OK)
        return;
    group->over = *why;
    end_each(m, &(struct ending){.group = group, .unmoved = true, .why = why});
    LIST_EACH (item, after, &m->arrivals) {
        struct message_arrival *a = container_of(item, struct message_arrival, order);
        if (a->group == group->id && !a->taker)
            arrival_refuse(m, a, why);
    }
}

void messages_tell_over(struct messages *m, const struct message_group *group)
{
    uint8_t payload[FRAME_CONTROL_MAX];
    struct frame frame = {.kind = FRAME_WITHDRAW, .group = group->id, .epoch = group->epoch};
    frame.length = (uint32_t)error_encode(&group->over, payload, sizeof payload);
    for (int i = 0; i < group->size; i++) {
        struct link *link = i != group->rank ? link_of(m, group->members[i]) : NULL;
        if (link && peer_of(m, group->members[i])->able)
            link_send_control(link, &frame, payload);
    }
}

void messages_end(struct messages *m, const struct message_group *group, const struct error *why)
{
    end_each(m, &(struct ending){.group = group, .why = why});
}

void messages_end_waits(struct messages *m, const struct error *why)
{
    end_each(m, &(struct ending){.spares_replies = true, .why = why});
}

void messages_group_closed(struct messages *m, const struct message_group *group)
{
    struct list *item, *after;
    struct error why;
    error_because(&why, HEARTH_REASON_CANCELLED, HEARTH_CANCELLED, group->rank, "the group was closed");
    LIST_EACH (item, after, &m->timers) {
        struct transfer *t = container_of(item, struct transfer, timer);
        if (t->group == group)
            transfer_cancel(t);
    }
    LIST_EACH (item, after, &m->arrivals) {
        struct message_arrival *a = container_of(item, struct message_arrival, order);
        if (a->group == group->id)
            arrival_refuse(m, a, &why);
    }
}

void messages_group_opened(struct messages *m, const struct message_group *group)
{
    struct list *item, *after;
    LIST_EACH (item, after, &m->arrivals) {
        struct message_arrival *a = container_of(item, struct message_arrival, order);
        if (a->group == group->id && m->sinks[a->channel].take)
            sink_offer(m, a);
    }
}

/* ---- opening, closing ---- */

static void lists_init(struct messages *m)
{
    list_init(&m->timers);
    list_init(&m->free);
    list_init(&m->any);
    list_init(&m->probes);
    list_init(&m->arrivals);
    for (uint32_t i = 0; i < MESSAGE_BUCKETS; i++) {
        list_init(&m->recvs[i]);
        list_init(&m->arrived[i]);
        list_init(&m->numbers[i]);
        list_init(&m->tags[i]);
    }
    for (int i = 0; i < m->size; i++) {
        list_init(&m->peers[i].queues);
        list_init(&m->peers[i].moving);
    }
}

int messages_open(const struct messages_setup *setup, struct messages **out)
{
    struct messages *m = heap_alloc(setup->heap, 1, sizeof *m);
    if (!m)
        return HEARTH_NO_MEMORY;
    m->setup = *setup;
    m->heap = setup->heap;
    m->rank = setup->rank;
    m->size = setup->size;
    m->eager_bytes = setup->eager_bytes;
    m->chunk_bytes = setup->chunk_bytes;
    m->finished = setup->finished;
    m->peers = heap_alloc(setup->heap, (size_t)setup->size, sizeof *m->peers);
    if (!m->peers) {
        heap_free(m);
        return HEARTH_NO_MEMORY;
    }
    lists_init(m);
    *out = m;
    return HEARTH_OK;
}

void messages_set_sink(struct messages *m, enum message_channel channel, const struct message_sink *sink)
{
    m->sinks[channel] = *sink;
}

void messages_close(struct messages *m)
{
    struct list *item;
    while (!list_empty(&m->arrivals))
        arrival_free(container_of(m->arrivals.next, struct message_arrival, order));
    while ((item = list_pop(&m->free)))
        heap_free(container_of(item, struct transfer, item));
    for (int i = 0; i < m->size; i++)
        for (int pipe = 0; pipe < LINK_PIPES_MAX; pipe++)
            heap_free(m->peers[i].incoming[pipe].bounce);
    heap_free(m->peers);
    heap_free(m);
}
