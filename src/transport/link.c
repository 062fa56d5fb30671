/* SPDX-License-Identifier: Apache-2.0 */
/* Frames in and out of the pipes, one at a time in each direction of each. */
#include "transport/link.h"

#include <assert.h>
#include <string.h>

#include "wire/record.h"

/* A link reads at most this much before it gives the others their turn. */
#define PUMP_BYTES_MAX (4u << 20)

static_assert(REFERENCE_LEN <= LINK_INLINE_MAX, "a reference is sent in one piece with its header");

#define REFERENCE_MIN  1024u /* payload bytes: a shorter one is copied with its header */
#define RARE_LOOKS     8u    /* looks at the pipes where something is expected for one at the others */
#define SHORT_DATA_MAX 1024u /* payload bytes of data that may take the control pipe */

static const uint32_t class_turns[LINK_CLASSES] = {
    [LINK_HIGH] = 16, [LINK_NORMAL] = 4, [LINK_MESSAGE] = 4, [LINK_BULK] = 1, [LINK_FIRST] = 16};

void link_init(struct link *link, const struct link_setup *setup)
{
    assert(setup->count >= 1 && setup->count <= LINK_PIPES_MAX);
    memset(link, 0, sizeof *link);
    for (int i = 0; i < setup->count; i++)
        link->pipes[i].conn = setup->conns[i];
    link->pipe_count = setup->count;
    link->pipe_next = setup->count > 1;
    link->up = link->expects_data = true;
    link->events = setup->events;
    link->events_arg = setup->events_arg;
    link->heap = setup->heap;
    link->metrics = setup->metrics;
    link->throttle = setup->throttle && setup->throttle->rate > 0 ? setup->throttle : NULL;
    link->rank = setup->rank;
    link->eager_budget = setup->eager_budget;
}

bool link_up(const struct link *link)
{
    return link->up;
}

void link_fail(struct link *link, int status, const char *what)
{
    if (link->failure.status == HEARTH_OK)
        error_set(&link->failure, status, link->rank, "%s", what);
}

void link_lost(struct link *link, enum hearth_reason reason, const char *what)
{
    if (link->failure.status == HEARTH_OK)
        error_because(&link->failure, reason, HEARTH_PEER_LOST, link->rank, "%s", what);
}

/* ---- out ---- */

static bool carries_data(const struct link *link, int pipe)
{
    return pipe > 0 || link->pipe_count == 1;
}

static bool goes_anywhere(uint8_t kind)
{
    return kind == FRAME_GRANT || kind == FRAME_CREDIT;
}

/* How much of a data frame, of which `done` bytes have been let through, is let through at once. */
static size_t piece_of(const struct link *link, const struct link_item *item, size_t done)
{
    size_t left = FRAME_HEADER_LEN + (size_t)item->frame.length - done,
           piece = throttle_piece(link->throttle);
    return left < piece || link->pipe_count == 1 ? left : piece;
}

static struct link_item *head_of(struct link *link, enum link_class class)
{
    struct link_queue *queue = &link->queues[class];
    return queue->count > 0 ? &queue->items[queue->head] : NULL;
}

static bool is_held_back(struct link *link, const struct link_item *item)
{
    return link->throttle &&
           !throttle_pass(link->throttle, &link->place, piece_of(link, item, 0), item->queued_ns);
}

static void head_take(struct link *link, enum link_class class, struct link_item *item)
{
    struct link_queue *queue = &link->queues[class];
    *item = queue->items[queue->head];
    queue->head = (queue->head + 1) % LINK_DATA_QUEUE;
    queue->count--;
}

/* The class that is next at the data pipes (`top` is the first that goes there); LINK_CLASSES: nothing waits.
 * Each has its turns before the classes below it; when no class that waits has any, all get theirs again. */
static enum link_class class_next(struct link *link, enum link_class top)
{
    enum link_class first = LINK_CLASSES;
    for (enum link_class c = top; c < LINK_CLASSES; c++) {
        if (link->queues[c].count == 0)
            continue;
        if (link->turns[c] > 0)
            return c;
        first = first == LINK_CLASSES ? c : first;
    }
    memcpy(link->turns, class_turns, sizeof link->turns);
    return first;
}

static bool data_pipes_busy(const struct link *link)
{
    for (int i = 1; i < link->pipe_count; i++)
        if (!link->pipes[i].out_busy)
            return false;
    return true;
}

/* The class that is next at a pipe for control: where bulk fills the data pipes, a barrier still gets
 * through. */
static enum link_class short_class(struct link *link)
{
    if (link->queues[LINK_FIRST].count > 0)
        return LINK_FIRST;
    for (enum link_class c = LINK_HIGH; c < LINK_CLASSES && data_pipes_busy(link); c++) {
        const struct link_item *head = head_of(link, c);
        if (head && head->frame.length <= SHORT_DATA_MAX)
            return c;
    }
    return LINK_CLASSES;
}

/* The pipe's next frame with a payload. */
static bool data_next(struct link *link, int pipe, struct link_item *item)
{
    enum link_class class =
        !carries_data(link, pipe) ? short_class(link) : class_next(link, pipe == 0 ? LINK_FIRST : LINK_HIGH);
    const struct link_item *head = class < LINK_CLASSES ? head_of(link, class) : NULL;
    if (!head || is_held_back(link, head))
        return false;
    head_take(link, class, item);
    link->turns[class] -= link->turns[class] > 0;
    return true;
}

/* The goodbye, behind all that goes through the pipe. */
static bool bye_next(struct link *link, int pipe, struct link_item *item)
{
    if (!link->parting)
        return false;
    link->pipes[pipe].said_bye = true;
    *item = (struct link_item){.frame = {.kind = FRAME_BYE, .length = link->bye_len}, .payload = link->bye};
    return true;
}

/* Takes the pipe's next frame off the queues: control first, so that where one pipe carries everything, bulk
 * never delays it by more than one frame. */
static bool item_next(struct link *link, int pipe, struct link_item *item)
{
    if (link->pipes[pipe].said_bye)
        return false;
    if (link->control_count > 0 &&
        (pipe == 0 || goes_anywhere(link->control[link->control_head].frame.kind))) {
        *item = link->control[link->control_head];
        link->control_head = (link->control_head + 1) % link->control_capacity;
        link->control_count--;
        return true;
    }
    return data_next(link, pipe, item) || bye_next(link, pipe, item);
}

/* The pipe's frame sets out. */
static void out_begin(struct link *link, struct pipe *pipe)
{
    const struct sharing *sharing = pipe->conn->transport->sharing;
    struct frame *frame = &pipe->out.frame;
    pipe->out_len = FRAME_HEADER_LEN + (size_t)frame->length;
    pipe->out_reference = -1;
    if (sharing && (frame->kind == FRAME_DATA || frame->kind == FRAME_PIECE) &&
        frame->length >= REFERENCE_MIN)
        pipe->out_reference =
            sharing->refer(pipe->conn, pipe->out.payload, frame->length, pipe->out_header + FRAME_HEADER_LEN);
    pipe->out_front = FRAME_HEADER_LEN;
    if (pipe->out_reference >= 0) {
        frame->flags |= FRAME_REFERENCE;
        pipe->out_front = pipe->out_len = FRAME_HEADER_LEN + REFERENCE_LEN;
    } else if (frame->length > 0 && frame->length <= LINK_INLINE_MAX) {
        memcpy(pipe->out_header + FRAME_HEADER_LEN, pipe->out.payload, frame->length);
        pipe->out_front = pipe->out_len;
    }
    frame->link_sequence = ++pipe->out_sequence;
    frame->ack = pipe->in_sequence;
    frame->credit = link->eager_told = link->eager_released;
    frame_encode(frame, pipe->out_header);
    pipe->out_done = 0;
    pipe->out_free = pipe->out_len;
    pipe->out_busy = true;
    if (!link->throttle)
        return;
    if (!frame_is_bulk(frame->kind))
        throttle_push(link->throttle, pipe->out_len);
    else if (pipe->out_reference < 0)
        pipe->out_free = piece_of(link, &pipe->out, 0);
}

/* The throttle may let more of the pipe's frame through. */
static bool out_free_more(struct link *link, struct pipe *pipe)
{
    size_t piece = piece_of(link, &pipe->out, pipe->out_free);
    if (!throttle_pass(link->throttle, &link->place, piece, pipe->out.queued_ns))
        return false;
    pipe->out_free += piece;
    return true;
}

static bool out_next(struct link *link, int number)
{
    struct pipe *pipe = &link->pipes[number];
    if (!item_next(link, number, &pipe->out))
        return false;
    out_begin(link, pipe);
    return true;
}

void link_send_hello(struct link *link, const void *payload, size_t len)
{
    struct frame frame = {.kind = FRAME_HELLO, .length = (uint32_t)len};
    link_send_control(link, &frame, payload);
    for (int i = 1; i < link->pipe_count; i++) {
        struct pipe *pipe = &link->pipes[i];
        void *copy = heap_alloc_raw(link->heap, 1, len);
        if (!copy) {
            link_fail(link, HEARTH_NO_MEMORY, "no memory for a hello");
            return;
        }
        memcpy(copy, payload, len);
        pipe->out = (struct link_item){.frame = frame, .payload = copy, .copy = copy};
        out_begin(link, pipe);
    }
}

/* The memory is the owner's again. */
static void item_left(struct link *link, const struct link_item *item)
{
    heap_free(item->copy);
    if (item->owner)
        link->events->on_sent(link->events_arg, link, item);
}

static void out_finish(struct link *link, struct pipe *pipe)
{
    struct link_item item = pipe->out;
    pipe->out_busy = false;
    atomic_fetch_add_explicit(&link->metrics->frames_sent, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&link->metrics->bytes_sent, pipe->out_len, memory_order_relaxed);
    if (pipe->out_reference < 0) {
        item_left(link, &item);
        return;
    }
    assert(!(link->lent_mask >> pipe->out_reference & 1));
    link->lent[pipe->out_reference] = item;
    link->lent_mask |= UINT64_C(1) << pipe->out_reference;
}

/* Payloads that the peer has read in our memory. */
static bool out_returned(struct link *link, struct pipe *pipe)
{
    const struct sharing *sharing = pipe->conn->transport->sharing;
    if (!sharing)
        return false;
    uint64_t back = sharing->returned(pipe->conn);
    if (back & ~link->lent_mask) { /* its frame has not left yet, or there was none */
        link_fail(link, HEARTH_PROTOCOL, "it gives back memory that was not lent to it");
        return false;
    }
    for (uint64_t left = back; left != 0; left &= left - 1) {
        int number = __builtin_ctzll(left);
        struct link_item item = link->lent[number];
        link->lent_mask &= ~(UINT64_C(1) << number);
        item_left(link, &item);
    }
    return back != 0;
}

/* The peer has gone its way: what it was sent whole it has, whatever is still held for others. */
static void out_settle(struct link *link)
{
    for (int i = 0; i < link->pipe_count; i++) {
        struct pipe *pipe = &link->pipes[i];
        out_returned(link, pipe);
        if (pipe->out_busy && pipe->out_done == pipe->out_len)
            out_finish(link, pipe);
    }
}

/* Writes the frame on its way. True when it is out. */
static bool out_write(struct link *link, struct pipe *pipe, bool *moved)
{
    size_t front = pipe->out_front;
    while (pipe->out_done < pipe->out_len) {
        if (pipe->out_done == pipe->out_free && !out_free_more(link, pipe))
            return false;
        struct iovec pieces[2];
        int count = 0;
        size_t done = pipe->out_done;
        if (done < front) {
            pieces[count++] = (struct iovec){pipe->out_header + done, front - done};
            done = front;
        }
        if (done < pipe->out_free) {
            const uint8_t *payload = pipe->out.payload;
            pieces[count++] =
                (struct iovec){(void *)(uintptr_t)(payload + (done - front)), pipe->out_free - done};
        }
        ssize_t n = pipe->conn->transport->send(pipe->conn, pieces, count);
        if (n < 0)
            link->unheard = true;
        if (n <= 0)
            return false;
        pipe->out_done += (size_t)n;
        link->written += (uint64_t)n;
        *moved = true;
    }
    return true;
}

/* What the connection took and has not sent yet. */
static void out_flush(struct link *link, struct pipe *pipe)
{
    const struct holding *holding = pipe->conn->transport->holding;
    if (holding && holding->flush(pipe->conn) == HEARTH_PEER_LOST)
        link->unheard = true;
}

bool pipe_holds(const struct pipe *pipe)
{
    const struct holding *holding = pipe->conn->transport->holding;
    return holding && holding->holds(pipe->conn);
}

static bool pump_pipe_out(struct link *link, int number, bool *room)
{
    struct pipe *pipe = &link->pipes[number];
    bool moved = out_returned(link, pipe);
    out_flush(link, pipe);
    while (link->failure.status == HEARTH_OK && (pipe->out_busy || out_next(link, number))) {
        /* A frame has not left while some of it is held: whoever closes after the last one would lose it. */
        if (!out_write(link, pipe, &moved) || pipe_holds(pipe))
            break;
        *room = *room || frame_is_bulk(pipe->out.frame.kind);
        out_finish(link, pipe);
        if (link->pipe_count > 2 && number > 0)
            break; /* the other pipes have their turn */
    }
    return moved;
}

/* Data pipes in turn, until nothing moves. */
static bool pump_data_out(struct link *link, bool *room)
{
    bool moved = false;
    for (bool more = link->pipe_count > 1; more;) {
        more = false;
        for (int i = 1; i < link->pipe_count; i++) {
            more = pump_pipe_out(link, link->pipe_next, room) || more;
            link->pipe_next = link->pipe_next + 1 < link->pipe_count ? link->pipe_next + 1 : 1;
        }
        moved = moved || more;
    }
    return moved;
}

bool link_pump_out(struct link *link)
{
    bool room = false;
    bool carried = link->control_count > 0 || (link->pipe_count == 1 && !link->throttle &&
                                               (link_has_data(link) || link->pipes[0].out_busy));
    /* Tell the peer of released credit before it can starve: docs/wire.md, flow control. */
    if (link->eager_released - link->eager_told >= link->eager_budget / 8 && !carried)
        link_send_control(link, &(struct frame){.kind = FRAME_CREDIT}, NULL);
    bool moved = pump_data_out(link, &room);
    moved = pump_pipe_out(link, 0, &room) || moved;
    if (room)
        link->events->on_room(link->events_arg, link);
    return moved;
}

/* The frame is finished from a copy; the owner may use its memory. */
static void pipe_forget(struct link *link, struct pipe *pipe, const void *owner)
{
    if (!pipe->out_busy || pipe->out.owner != owner)
        return;
    pipe->out.owner = NULL;
    size_t len = pipe->out.frame.length;
    if (pipe->out_reference >= 0)
        pipe->conn->transport->sharing->withdraw(pipe->conn, pipe->out_reference);
    if (pipe->out_front == pipe->out_len || pipe->out.copy || !link_up(link))
        return;
    pipe->out.copy = heap_alloc_raw(link->heap, 1, len);
    if (!pipe->out.copy) {
        pipe->out_busy = false;
        link_fail(link, HEARTH_NO_MEMORY, "no memory to finish a frame of a cancelled operation");
        return;
    }
    memcpy(pipe->out.copy, pipe->out.payload, len);
    pipe->out.payload = pipe->out.copy;
}

/* Its frames of the class that wait are taken back. */
static void queue_forget(struct link *link, struct link_queue *queue, const void *owner)
{
    uint32_t kept = 0, count = queue->count;
    for (uint32_t i = 0; i < count; i++) {
        struct link_item item = queue->items[(queue->head + i) % LINK_DATA_QUEUE];
        if (item.owner != owner) {
            queue->items[(queue->head + kept++) % LINK_DATA_QUEUE] = item;
            continue;
        }
        heap_free(item.copy);
        if (item.frame.kind == FRAME_DATA && (item.frame.flags & FRAME_EAGER))
            link->eager_spent -= link_eager_cost(item.frame.length);
    }
    queue->count = kept;
}

void link_forget(struct link *link, const void *owner)
{
    for (enum link_class c = 0; c < LINK_CLASSES; c++)
        queue_forget(link, &link->queues[c], owner);
    for (int i = 0; i < link->pipe_count; i++)
        pipe_forget(link, &link->pipes[i], owner);
    for (uint64_t left = link->lent_mask; left != 0; left &= left - 1) {
        int number = __builtin_ctzll(left);
        if (link->lent[number].owner != owner)
            continue;
        struct conn *conn = link->pipes[0].conn; /* who shares memory has one pipe */
        conn->transport->sharing->withdraw(conn, number);
        link->lent[number].owner = NULL;
    }
}

/* ---- in ---- */

/* Frames of another pipe may have told of more already. */
static bool credit_more(const struct link *link, uint32_t credit)
{
    return (int32_t)(credit - link->eager_returned) > 0;
}

static bool header_fits(struct link *link, struct pipe *pipe)
{
    const char *what = NULL;
    if (frame_decode(&pipe->in, pipe->in_header, &what) != HEARTH_OK)
        link_fail(link, HEARTH_PROTOCOL, what);
    else if (pipe->in.link_sequence != pipe->in_sequence + 1)
        link_fail(link, HEARTH_PROTOCOL, "a frame is missing or came twice");
    else if ((pipe->in.kind == FRAME_HELLO) == pipe->heard_hello)
        link_fail(link, HEARTH_PROTOCOL, pipe->heard_hello ? "a second hello" : "no hello");
    else if (credit_more(link, pipe->in.credit) &&
             pipe->in.credit - link->eager_returned > link->eager_spent - link->eager_returned)
        link_fail(link, HEARTH_PROTOCOL, "it returns eager credit that was not spent");
    else if ((pipe->in.flags & FRAME_REFERENCE) && !pipe->conn->transport->sharing)
        link_fail(link, HEARTH_PROTOCOL, "a reference where no memory is shared");
    else
        return true;
    return false;
}

static void in_header_done(struct link *link, int number)
{
    struct pipe *pipe = &link->pipes[number];
    if (!header_fits(link, pipe))
        return;
    bool reference = pipe->in.flags & FRAME_REFERENCE;
    pipe->in_len = FRAME_HEADER_LEN + (reference ? REFERENCE_LEN : (size_t)pipe->in.length);
    pipe->heard_hello = true;
    pipe->in_sequence++;
    bool credit = credit_more(link, pipe->in.credit);
    if (credit)
        link->eager_returned = pipe->in.credit;
    pipe->in_target = pipe->in_cookie = NULL;
    if (frame_is_bulk(pipe->in.kind)) {
        const struct sharing *sharing = pipe->conn->transport->sharing;
        bool lends =
            reference || (sharing && pipe->in.kind == FRAME_DATA && pipe->in.length >= REFERENCE_MIN &&
                          sharing->lends(pipe->conn, pipe->in.length));
        pipe->in_target =
            link->events->on_data(link->events_arg, link, number, &pipe->in, lends, &pipe->in_cookie);
    } else {
        pipe->in_target = pipe->in_control;
    }
    if (credit)
        link->events->on_room(link->events_arg, link);
}

/* A reference has come: the payload is lent, or copied to where it is wanted. */
static bool reference_done(struct link *link, struct pipe *pipe, struct loan *loan)
{
    loan->conn = pipe->conn;
    loan->data =
        pipe->conn->transport->sharing->look_up(pipe->conn, pipe->in_control, pipe->in.length, &loan->token);
    if (!loan->data) {
        link_fail(link, HEARTH_PROTOCOL, "a reference to memory that it does not share");
        return false;
    }
    if (pipe->in_target == LINK_LEND)
        return true;
    if (pipe->in_target)
        memcpy(pipe->in_target, loan->data, pipe->in.length);
    loan_end(loan);
    return true;
}

static bool all_said_bye(const struct link *link)
{
    for (int i = 0; i < link->pipe_count; i++)
        if (!link->pipes[i].heard_bye)
            return false;
    return true;
}

static void in_payload_done(struct link *link, struct pipe *pipe)
{
    struct frame frame = pipe->in;
    struct loan loan = {0};
    void *cookie = pipe->in_cookie;
    if ((frame.flags & FRAME_REFERENCE) && !reference_done(link, pipe, &loan))
        return;
    bool wanted = pipe->in_target || (cookie && frame.length == 0);
    if (pipe->in_target == LINK_LEND && !(frame.flags & FRAME_REFERENCE)) {
        loan.conn = pipe->conn;
        loan.data = pipe->conn->transport->sharing->borrow(pipe->conn, frame.length, &loan.token);
        assert(loan.data);
    }
    pipe->in_done = 0;
    pipe->in_target = pipe->in_cookie = NULL;
    atomic_fetch_add_explicit(&link->metrics->frames_received, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&link->metrics->bytes_received, pipe->in_len, memory_order_relaxed);
    /* Every pipe says goodbye, so that nothing which was sent before is missed; the last one counts. */
    pipe->heard_bye = frame.kind == FRAME_BYE;
    if (pipe->heard_bye && !all_said_bye(link))
        return;
    if (pipe->heard_bye)
        out_settle(link);
    if (!frame_is_bulk(frame.kind))
        link->events->on_control(link->events_arg, link, &frame, pipe->in_control);
    else if (wanted)
        link->events->on_payload(link->events_arg, link, &frame, cookie, &loan);
}

/* Reads towards the end of the frame at hand: bytes, 0, or a negative status. */
static ssize_t in_read(struct pipe *pipe)
{
    static const size_t drop_len = FRAME_CONTROL_MAX;
    void *target;
    size_t len;
    if (pipe->in_done < FRAME_HEADER_LEN) {
        target = pipe->in_header + pipe->in_done;
        len = FRAME_HEADER_LEN - pipe->in_done;
    } else {
        size_t at = pipe->in_done - FRAME_HEADER_LEN;
        len = pipe->in_len - pipe->in_done;
        if (pipe->in.flags & FRAME_REFERENCE) {
            target = pipe->in_control + at;
        } else if (pipe->in_target == LINK_LEND) {
            return pipe->conn->transport->sharing->ready(pipe->conn, len);
        } else if (pipe->in_target) {
            target = (uint8_t *)pipe->in_target + at;
        } else { /* dropped: the control buffer is free while a data frame comes in */
            target = pipe->in_control;
            len = len < drop_len ? len : drop_len;
        }
    }
    return pipe->conn->transport->recv(pipe->conn, target, len);
}

/* A pipe that has said goodbye may be closed; it waits for the others. */
bool link_reads(const struct link *link, int pipe)
{
    return !link->pipes[pipe].heard_bye || all_said_bye(link);
}

static bool pump_pipe_in(struct link *link, int number)
{
    struct pipe *pipe = &link->pipes[number];
    size_t budget = PUMP_BYTES_MAX;
    bool moved = false;
    while (link->failure.status == HEARTH_OK && budget > 0 && link_reads(link, number)) {
        ssize_t n = in_read(pipe);
        if (n == HEARTH_PROTOCOL)
            link_fail(link, HEARTH_PROTOCOL, "a record was forged or damaged on its way");
        else if (n < 0)
            link_lost(link, HEARTH_REASON_PEER_CLOSED, "the connection is gone");
        if (n <= 0)
            break;
        moved = true;
        budget -= (size_t)n < budget ? (size_t)n : budget;
        bool was_header = pipe->in_done < FRAME_HEADER_LEN;
        pipe->in_done += (size_t)n;
        if (was_header && pipe->in_done == FRAME_HEADER_LEN)
            in_header_done(link, number);
        if (link->failure.status == HEARTH_OK && pipe->in_done >= FRAME_HEADER_LEN &&
            pipe->in_done == pipe->in_len)
            in_payload_done(link, pipe);
    }
    const struct sharing *sharing = pipe->conn->transport->sharing;
    if (moved && sharing && sharing->held_up(pipe->conn))
        link->events->on_held_up(link->events_arg, link);
    return moved;
}

/* What comes through a pipe that nobody waits at is rare; a system call each time would cost more. */
static bool pump_in(struct link *link)
{
    bool moved = false, rare = false, all = link->looks++ % RARE_LOOKS == 0;
    for (int i = 1; (link->expects_data || all) && i < link->pipe_count; i++)
        moved = pump_pipe_in(link, i) || moved;
    rare = moved && !link->expects_data;
    if ((link->pipe_count == 1 || link->expects_first || all) && pump_pipe_in(link, 0)) {
        rare = rare || !link->expects_first;
        moved = true;
    }
    if (rare)
        link->looks = 0;
    return moved;
}

void link_drop_incoming(struct link *link, const void *cookie)
{
    for (int i = 0; i < link->pipe_count; i++)
        if (cookie && link->pipes[i].in_cookie == cookie)
            link->pipes[i].in_target = link->pipes[i].in_cookie = NULL;
}

/* ---- both ---- */

/* Reads to the end of what a peer said that has closed. A look may find nothing because the one before found
 * all there was; the next knows. */
static void pump_in_last(struct link *link)
{
    for (int quiet = 0; quiet < 2;) {
        link->looks = 0;
        quiet = pump_in(link) ? 0 : quiet + 1;
    }
}

bool link_pump(struct link *link)
{
    if (!link_up(link))
        return false;
    bool moved = link_pump_out(link); /* first: the peer may be waiting for it */
    if (pump_in(link))
        moved = link_pump_out(link) || true;
    if (link->unheard) { /* who has closed may have said something before, between our two looks */
        pump_in_last(link);
        link_lost(link, HEARTH_REASON_PEER_CLOSED, "the connection is gone");
    }
    link_part_on(link);
    if (link->failure.status == HEARTH_OK)
        return moved;
    struct error why = link->failure;
    link_fini(link);
    link->events->on_down(link->events_arg, link, &why);
    return true;
}
