/* SPDX-License-Identifier: Apache-2.0 */
/* Streams as conns: bounded buffers on both sides. What is sent is kept until the peer has acknowledged it;
 * what comes goes straight to who is reading, else into a ring as large as the window that the peer may fill.
 *
 * A link asks its pipes one after the other. A system call for each would be too many: one look at the
 * socket serves all streams of all lines, and a stream looks again only when it knows the outcome of the
 * last look. */
#include <string.h>

#include "os/clock.h"
#include "transport/quic_line.h"

#define PIECE_BYTES 131072u /* taken from the owner before they are written: still in the cache then */
#define ROOM_PARTS  8u      /* an owner who waits for room hears of this part of the ring */
#define ALLOW_PARTS 4u      /* so often does the peer hear that a window was read */

static struct quic_stream *stream_of(const struct conn *conn)
{
    return container_of(conn, struct quic_stream, conn);
}

/* ---- rings ---- */

bool quic_ring_make(struct heap *heap, struct quic_ring *ring, size_t size)
{
    uint8_t *bytes = heap_alloc_raw(heap, 1, size);
    if (!bytes)
        return false;
    *ring = (struct quic_ring){.bytes = bytes, .size = size};
    return true;
}

static size_t ring_room(const struct quic_ring *ring)
{
    return ring->size - (size_t)(ring->end - ring->done);
}

/* How far one can go from a place without turning round. */
static size_t straight(const struct quic_ring *ring, uint64_t at, size_t len)
{
    size_t left = ring->size - (size_t)(at & (ring->size - 1));
    return len < left ? len : left;
}

size_t quic_ring_put(struct quic_ring *ring, const void *bytes, size_t len)
{
    size_t room = ring_room(ring), done = 0;
    len = len < room ? len : room;
    while (done < len) {
        size_t part = straight(ring, ring->end, len - done);
        memcpy(ring->bytes + (ring->end & (ring->size - 1)), (const uint8_t *)bytes + done, part);
        ring->end += part;
        done += part;
    }
    return len;
}

size_t quic_ring_get(struct quic_ring *ring, void *target, size_t len)
{
    size_t there = (size_t)(ring->end - ring->done), done = 0;
    len = len < there ? len : there;
    while (done < len) {
        size_t part = straight(ring, ring->done, len - done);
        memcpy((uint8_t *)target + done, ring->bytes + (ring->done & (ring->size - 1)), part);
        ring->done += part;
        done += part;
    }
    return len;
}

/* ---- out ---- */

static ssize_t stream_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct quic_stream *s = stream_of(conn);
    size_t taken = 0, fresh = 0;

    if (s->line->lost)
        return HEARTH_PEER_LOST;
    s->wanted = false;
    for (int i = 0; i < count && !s->wanted; i++) {
        const uint8_t *bytes = pieces[i].iov_base;
        for (size_t done = 0; done < pieces[i].iov_len && !s->wanted;) {
            size_t left = pieces[i].iov_len - done;
            size_t part = quic_ring_put(&s->out, bytes + done, left < PIECE_BYTES ? left : PIECE_BYTES);
            done += part;
            taken += part;
            fresh += part;
            s->wanted = part == 0;
            if (fresh >= PIECE_BYTES) {
                quic_line_write(s->line, clock_real());
                fresh = 0;
            }
        }
    }
    quic_line_dirty(s->line);
    return s->line->lost ? HEARTH_PEER_LOST : (ssize_t)taken;
}

static int stream_flush(struct conn *conn)
{
    struct quic_stream *s = stream_of(conn);
    struct quic *quic = s->line->quic;

    if (quic->ready)
        quic_hear(quic);
    if (quic->due_ns != NEVER_NS)
        quic_tick(quic, clock_real());
    quic_speak(quic);
    if (s->line->lost)
        return HEARTH_PEER_LOST;
    return s->out.end > s->out_sent ? HEARTH_PENDING : HEARTH_OK;
}

static bool stream_holds(const struct conn *conn)
{
    return stream_of(conn)->line->quic->stuck;
}

/* Besides the timers: what the owner would find if it asked now, and has not asked for since. The descriptor
 * does not show it any more. */
static uint64_t stream_due(const struct conn *conn)
{
    const struct quic_stream *s = stream_of(conn);
    if (s->in.end > s->in.done || (s->line->lost && !s->told))
        return 0;
    if (s->wanted && ring_room(&s->out) >= s->out.size / ROOM_PARTS)
        return 0;
    return s->number == 0 ? s->line->quic->due_ns : NEVER_NS;
}

/* ---- in ---- */

void quic_stream_take(struct quic_stream *s, const uint8_t *bytes, size_t len)
{
    size_t straight_on = 0;
    if (s->target_left > 0 && s->in.end == s->in.done) {
        straight_on = len < s->target_left ? len : s->target_left;
        memcpy(s->target, bytes, straight_on);
        s->target += straight_on;
        s->target_left -= straight_on;
    }
    /* All fits: QUIC lets nobody send more than the window. */
    if (quic_ring_put(&s->in, bytes + straight_on, len - straight_on) < len - straight_on)
        quic_line_lose(s->line, "it sends more than it may");
}

/* The peer may send so much more, and hears of it now and then. */
static void stream_read(struct quic_stream *s, size_t len)
{
    s->in_owed += len;
    if (s->in_owed < s->in.size / ALLOW_PARTS || s->line->lost)
        return;
    quic_engine_allow(s->line->engine, s->number, s->in_owed);
    s->in_owed = 0;
    quic_line_dirty(s->line);
}

static ssize_t stream_end(struct quic_stream *s)
{
    if (!s->line->lost && !s->ended)
        return 0;
    s->told = true;
    return HEARTH_PEER_LOST;
}

static ssize_t stream_recv(struct conn *conn, void *target, size_t len_max)
{
    struct quic_stream *s = stream_of(conn);
    struct quic *quic = s->line->quic;

    quic_speak(quic); /* what was sent before somebody asks for an answer */
    if (len_max == 0)
        return 0;
    size_t got = quic_ring_get(&s->in, target, len_max);
    if (got == 0 && !s->line->lost) {
        if (s->round != quic->round || (quic->emptied && !quic->ready)) {
            s->round = quic->round;
            quic->emptied = false;
            return stream_end(s);
        }
        s->target = target;
        s->target_left = len_max;
        quic_hear(quic);
        got = len_max - s->target_left;
        s->target = NULL;
        s->target_left = 0;
        s->round = quic->round;
        quic_speak(quic);
    }
    if (got == 0)
        return stream_end(s);
    stream_read(s, got);
    return (ssize_t)got;
}

/* ---- the rest ---- */

static void stream_close(struct conn *conn)
{
    struct quic_stream *s = stream_of(conn);
    s->live = false;
    if (--s->line->live == 0)
        quic_line_linger(s->line);
}

static int stream_descriptor(const struct conn *conn)
{
    return stream_of(conn)->line->quic->port.fd;
}

static void stream_attend(struct conn *conn)
{
    stream_of(conn)->line->quic->ready = true;
}

static const struct holding quic_holding = {
    .flush = stream_flush,
    .holds = stream_holds,
    .due = stream_due,
};

static const struct transport quic_transport = {
    .scheme = "quic",
    .send = stream_send,
    .recv = stream_recv,
    .close = stream_close,
    .descriptor = stream_descriptor,
    .attend = stream_attend,
    .doze = conn_doze_nothing,
    .holding = &quic_holding,
};

struct quic_stream *quic_stream_new(struct quic_line *line, int number)
{
    struct quic_stream *s = heap_alloc(line->quic->heap, 1, sizeof *s);
    if (!s)
        return NULL;
    s->conn.transport = &quic_transport;
    s->line = line;
    s->number = number;
    return s;
}

void quic_stream_free(struct quic_stream *s)
{
    if (!s)
        return;
    heap_free(s->out.bytes);
    heap_free(s->in.bytes);
    heap_free(s);
}

void quic_look(const struct conn *conn, struct quic_engine_state *state)
{
    quic_engine_look(stream_of(conn)->line->engine, state);
}
