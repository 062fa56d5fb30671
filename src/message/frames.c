/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a peer: begins, pieces, answers. What breaks docs/wire.md takes the link down. */
#include "message/transfer.h"
#include "wire/record.h"

static void violated(struct messages *m, int peer, const char *what)
{
    struct link *link = link_of(m, peer);
    if (link)
        link_fail(link, HEARTH_PROTOCOL, what);
}

static void out_of_memory(struct messages *m, int peer)
{
    struct link *link = link_of(m, peer);
    if (link)
        link_fail(link, HEARTH_NO_MEMORY, "no memory for a message");
}

/* ---- begins ---- */

static bool coding_good(const struct frame *frame)
{
    size_t element = hearth_dtype_size((enum hearth_dtype)(frame->step >> 8));
    return element > 0 && frame->lane == CHANNEL_USER && frame->fingerprint <= INT64_MAX &&
           frame->fingerprint % element == 0;
}

static const char *begin_fault(struct messages *m, int peer, const struct frame *frame)
{
    const struct message_peer *p = peer_of(m, peer);
    const struct message_group *group = m->setup.group(m->setup.arg, frame->group);
    bool eager = frame->flags & FRAME_EAGER, coded = frame->step & MESSAGE_CODED;
    if (frame->sequence <= p->heard)
        return "a message that has begun before";
    if (group && group->rank_of[peer] == RANK_NONE)
        return "a message for a group it is not in";
    if (frame->lane >= CHANNEL_COUNT || frame->tag == HEARTH_ANY_TAG || frame->total > INT64_MAX)
        return "a message with a bad channel, tag or length";
    if ((frame->step & ~(MESSAGE_SYNC | MESSAGE_CODED | 0xff00u)) != 0 ||
        (!coded && frame->step > MESSAGE_SYNC) || (coded ? !coding_good(frame) : frame->fingerprint != 0))
        return "a message with bad properties";
    if (eager ? frame->length != frame->total : frame->length != 0)
        return "a message that begins with some of its bytes";
    if (eager && p->held + message_cost(frame->length) > m->eager_bytes)
        return "more messages than its budget allows";
    if (!eager && p->announced_to_us >= MESSAGE_HELD_MAX)
        return "more announced messages than are allowed";
    return NULL;
}

static struct message_arrival arrival_of(int peer, const struct frame *frame)
{
    bool coded = frame->step & MESSAGE_CODED;
    return (struct message_arrival){
        .group = frame->group,
        .tag = frame->tag,
        .serial = frame->sequence,
        .channel = frame->lane,
        .peer = peer,
        .len = frame->total,
        .plain_len = frame->fingerprint,
        .eager = frame->flags & FRAME_EAGER,
        .sync = frame->step & MESSAGE_SYNC,
        .coded = coded,
        .dtype = coded ? (enum hearth_dtype)(frame->step >> 8) : HEARTH_F32,
    };
}

/* Of a group that is closed here. */
static void refuse_closed(struct messages *m, const struct message_arrival *a)
{
    struct error why;
    error_because(&why, HEARTH_REASON_CANCELLED, HEARTH_ABORTED, RANK_NONE,
                  "the receiver has closed the group");
    message_refuse(m, a, &why);
}

/* Where bytes of the receive's message go: straight into its memory, or first into a block if they cross its
 * parts. `incoming` is filled in, and what comes has no other place. */
static void *into_recv(struct message_incoming *incoming, size_t len, void **cookie)
{
    struct transfer *t = incoming->recv;
    uint8_t *place = len > 0 ? recv_place(t, incoming->offset, len) : NULL;
    *cookie = incoming;
    if (place || len == 0)
        return place;
    incoming->bounce = heap_alloc_raw(t->messages->heap, 1, len);
    if (incoming->bounce)
        return incoming->bounce;
    out_of_memory(t->messages, t->peer);
    *incoming = (struct message_incoming){0};
    *cookie = NULL;
    return NULL;
}

static void *begin_matched(struct messages *m, struct transfer *t, const struct message_arrival *a,
                           struct message_incoming *incoming, void **cookie)
{
    struct error why;
    if (!recv_match(t, a, &why)) {
        message_refuse(m, a, &why);
        return NULL;
    }
    if (a->eager) {
        transfer_number(t, a->serial);
        t->eager = true;
        *incoming = (struct message_incoming){.recv = t};
        return into_recv(incoming, a->len, cookie);
    }
    peer_of(m, a->peer)->announced_to_us--;
    recv_accept(t, a->serial);
    return NULL;
}

static void *begin_kept(struct messages *m, const struct message_arrival *a,
                        struct message_incoming *incoming, void **cookie)
{
    struct message_arrival *kept = heap_alloc(m->heap, 1, sizeof *kept);
    struct hearth_message *block = kept && a->eager ? message_alloc(m->heap, a->len) : NULL;
    if (!kept || (a->eager && !block)) {
        heap_free(kept);
        out_of_memory(m, a->peer);
        return NULL;
    }
    *kept = *a;
    list_init(&kept->bucket);
    list_init(&kept->order);
    kept->block = block;
    arrival_keep(m, kept);
    if (a->eager) {
        *incoming = (struct message_incoming){.arrival = kept};
        *cookie = incoming;
        return block->data;
    }
    if (m->sinks[a->channel].take && m->setup.group(m->setup.arg, a->group))
        sink_offer(m, kept);
    return NULL;
}

static void *message_begins(struct messages *m, int peer, const struct frame *frame,
                            struct message_incoming *incoming, void **cookie)
{
    struct message_peer *p = peer_of(m, peer);
    const char *fault = begin_fault(m, peer, frame);
    if (fault) {
        violated(m, peer, fault);
        return NULL;
    }
    struct message_arrival a = arrival_of(peer, frame);
    p->heard = frame->sequence;
    if (a.eager)
        p->held += message_cost(a.len);
    else
        p->announced_to_us++;
    const struct message_group *group = m->setup.group(m->setup.arg, frame->group);
    if (!group && m->setup.closed(m->setup.arg, frame->group)) {
        refuse_closed(m, &a);
        return NULL;
    }
    if (group && group->over.status != HEARTH_OK) {
        message_refuse(m, &a, &group->over);
        return NULL;
    }
    struct transfer *t = recv_for(m, &a);
    return t ? begin_matched(m, t, &a, incoming, cookie) : begin_kept(m, &a, incoming, cookie);
}

/* ---- pieces ---- */

/* The receive that waits for the piece. NULL: it has ended, or the peer has broken the rules. */
static struct transfer *piece_for(struct messages *m, int peer, const struct frame *frame)
{
    struct transfer *t = transfer_find(m, peer, frame->sequence, TRANSFER_RECV);
    if (frame->sequence > peer_of(m, peer)->heard) {
        violated(m, peer, "a piece of a message that has not begun");
        return NULL;
    }
    if (!t || t->eager)
        return NULL;
    if (frame->total > t->len || frame->length > t->len - frame->total || frame->length == 0 ||
        frame->length > t->len - t->moved) {
        violated(m, peer, "a piece that does not fit its message");
        return NULL;
    }
    return t;
}

void *messages_data(struct messages *m, int peer, int pipe, const struct frame *frame, bool lends,
                    void **cookie)
{
    struct message_incoming *incoming = &peer_of(m, peer)->incoming[pipe];
    if (frame->kind == FRAME_MESSAGE)
        return message_begins(m, peer, frame, incoming, cookie);
    struct transfer *t = piece_for(m, peer, frame);
    if (!t)
        return NULL;
    *incoming = (struct message_incoming){.recv = t, .offset = frame->total};
    *cookie = incoming;
    return lends ? LINK_LEND : into_recv(incoming, frame->length, cookie);
}

static void arrival_whole(struct messages *m, struct message_arrival *a)
{
    struct transfer *t = a->taker;
    a->whole = true;
    if (t) {
        a->taker = NULL;
        list_remove(&t->number);
        arrival_take(m, a, t);
    } else if (m->sinks[a->channel].take && m->setup.group(m->setup.arg, a->group)) {
        sink_offer(m, a);
    }
}

void messages_payload(struct messages *m, int peer, const struct frame *frame, void *cookie,
                      struct loan *loan)
{
    struct message_incoming incoming = *(struct message_incoming *)cookie;
    *(struct message_incoming *)cookie = (struct message_incoming){0};
    if (incoming.arrival) {
        arrival_whole(m, incoming.arrival);
        return;
    }
    struct transfer *t = incoming.recv;
    if (incoming.bounce)
        recv_scatter(t, incoming.offset, incoming.bounce, frame->length);
    heap_free(incoming.bounce);
    if (loan->data) {
        recv_scatter(t, incoming.offset, loan->data, frame->length);
        bool good = loan_good(loan);
        loan_end(loan);
        if (!good)
            return; /* its sender has given the message up, and says so */
    }
    if (frame->kind == FRAME_MESSAGE)
        message_release(m, peer, frame->length);
    recv_bytes(t, frame->length);
}

/* ---- answers ---- */

static void withdrawn(struct messages *m, int peer, const struct frame *frame, const struct error *why)
{
    struct list *item, *after;
    struct transfer *t = transfer_find(m, peer, frame->sequence, TRANSFER_RECV);
    if (t) {
        struct error ours;
        error_wrap(&ours, why, "%s: %s", transfer_name(t).s, why->text);
        if (!message_lost(why))
            ours.rank = transfer_rank(t);
        transfer_end(t, &ours);
        return;
    }
    LIST_EACH (item, after, &m->arrivals) {
        struct message_arrival *a = container_of(item, struct message_arrival, order);
        if (a->peer != peer || a->serial != frame->sequence)
            continue;
        a->sync = false;
        if (a->eager && !a->whole)
            return; /* it has left its sender: it will come */
        arrival_drop(m, a);
        return;
    }
}

static void released(struct messages *m, int peer, const struct frame *frame)
{
    struct message_peer *p = peer_of(m, peer);
    if (frame->total > p->spent || frame->total < p->returned) {
        violated(m, peer, "it returns budget for messages that was not spent");
        return;
    }
    p->returned = frame->total;
    send_pump(m, peer);
}

void messages_control(struct messages *m, int peer, const struct frame *frame, const uint8_t *payload)
{
    struct error why;
    bool with_error = frame->length > 0;
    if (frame->kind == FRAME_RELEASE) {
        released(m, peer, frame);
        return;
    }
    if ((with_error || frame->kind == FRAME_WITHDRAW) &&
        error_decode(&why, payload, frame->length) != HEARTH_OK) {
        violated(m, peer, "an answer to a message with a bad payload");
        return;
    }
    if (frame->kind == FRAME_WITHDRAW) {
        withdrawn(m, peer, frame, &why);
        return;
    }
    if (frame->sequence > peer_of(m, peer)->begun) {
        violated(m, peer, "an answer to a message that has not begun");
        return;
    }
    struct transfer *t = transfer_find(m, peer, frame->sequence, TRANSFER_SEND);
    if (!t)
        return; /* it has ended */
    if (frame->kind == FRAME_ACCEPT)
        send_accepted(t);
    else
        send_taken(t, with_error ? &why : NULL);
}

void messages_sent(struct transfer *t, uint8_t kind)
{
    send_left(t, kind);
}

void messages_room(struct messages *m, int peer)
{
    send_pump(m, peer);
}

void messages_hello(struct messages *m, int peer, bool able)
{
    struct message_peer *p = peer_of(m, peer);
    struct list *item, *after;
    p->heard_hello = true;
    p->able = able;
    if (able) {
        send_pump(m, peer);
        return;
    }
    LIST_EACH (item, after, &m->timers) {
        struct transfer *t = container_of(item, struct transfer, timer);
        struct error why;
        if (t->kind != TRANSFER_SEND || t->peer != peer)
            continue;
        error_set(&why, HEARTH_UNSUPPORTED, transfer_rank(t),
                  "%s: it runs a version of Hearth without messages", transfer_name(t).s);
        why.fate = HEARTH_FATE_NOT_DELIVERED;
        transfer_end(t, &why);
    }
}
