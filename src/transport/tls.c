/* SPDX-License-Identifier: Apache-2.0 */
/* Streams over sockets in TLS records: each byte is touched once by the cipher and once by the system.
 *
 * Out, the cipher reads the frame and writes a buffer that stays in the processor's cache, and the system
 * takes several records from there at once. A short frame is one record. Of a long one the header has a
 * record of its own, so that the payload begins with a record: then the receiver can decrypt each straight
 * to where it belongs, without a copy.
 *
 * In, one read brings as many records as there are. A record that is no longer than what is asked for is
 * decrypted to there; another one where it stands, and served from there.
 *
 * As in tcp.c, a read that did not fill the buffer has emptied the socket: the next call that finds no whole
 * record says "nothing yet" without asking; the one after it asks again.
 *
 * Buffers are the node's, and held only while something is in them: a connection at rest has none. */
#include "transport/tls.h"

#include <assert.h>
#include <string.h>

#include "os/sock.h"
#include "transport/tcp.h"

/* A frame up to this size is one record: copying costs less than another record. */
#define TOGETHER_BYTES 4096u
#define PIECES_MAX     8
#define RECORD_ROOM    (RECORD_DATA_MAX + RECORD_EXTRA + RECORD_UPDATE_LEN)

struct tls_conn {
    struct conn conn;
    int fd;
    struct records *records;
    struct tls_buffers *buffers;
    bool emptied; /* the last read left nothing in the socket */
    bool deaf;    /* nobody takes what we send */
    bool starved; /* something was to be sent, and there was no buffer */
    bool finished;
    int end;      /* what recv says once all is given; HEARTH_OK: it goes on */
    uint8_t *out; /* [TLS_OUT_BYTES + TLS_BYE_BYTES]; NULL: nothing is in it */
    size_t out_begin, out_end;
    uint8_t *in;                   /* [TLS_IN_BYTES]; NULL: nothing is in it */
    size_t in_begin, in_end;       /* records */
    size_t plain_begin, plain_end; /* of `in`: decrypted and not asked for yet, before in_begin */
};

static_assert(TLS_IN_BYTES >= 2 * RECORD_MAX, "behind the longest record there is room");

/* ---- buffers: two stacks, what was used last is used next ---- */

enum { DIRECTIONS = 2 };

/* In a buffer that nobody has. */
struct free_buffer {
    struct free_buffer *next;
};

struct tls_buffers {
    struct heap *heap;
    unsigned users;
    unsigned taken; /* of both kinds */
    struct free_buffer *first[DIRECTIONS];
    unsigned count[DIRECTIONS]; /* of those */
};

struct tls_buffers *tls_buffers_open(struct heap *heap)
{
    struct tls_buffers *buffers = heap_alloc(heap, 1, sizeof *buffers);

    if (!buffers)
        return NULL;
    buffers->heap = heap;
    buffers->users = 1;
    for (int direction = 0; direction < DIRECTIONS; direction++) {
        uint8_t *one = tls_buffers_take(buffers, (enum tls_direction)direction);
        if (!one) {
            tls_buffers_close(buffers);
            return NULL;
        }
        tls_buffers_give(buffers, (enum tls_direction)direction, one);
    }
    return buffers;
}

struct tls_buffers *tls_buffers_share(struct tls_buffers *buffers)
{
    buffers->users++;
    return buffers;
}

static void free_beyond(struct tls_buffers *buffers, enum tls_direction direction, unsigned kept)
{
    while (buffers->count[direction] > kept) {
        struct free_buffer *one = buffers->first[direction];
        buffers->first[direction] = one->next;
        buffers->count[direction]--;
        heap_free(one);
    }
}

void tls_buffers_close(struct tls_buffers *buffers)
{
    if (!buffers || --buffers->users > 0)
        return;
    assert(buffers->taken == 0);
    free_beyond(buffers, TLS_OUT, 0);
    free_beyond(buffers, TLS_IN, 0);
    heap_free(buffers);
}

uint8_t *tls_buffers_take(struct tls_buffers *buffers, enum tls_direction direction)
{
    struct free_buffer *one = buffers->first[direction];

    if (one) {
        buffers->first[direction] = one->next;
        buffers->count[direction]--;
    } else {
        one = heap_alloc_raw(buffers->heap, 1,
                             direction == TLS_IN ? TLS_IN_BYTES : TLS_OUT_BYTES + TLS_BYE_BYTES);
    }
    buffers->taken += !!one;
    return (uint8_t *)one;
}

void tls_buffers_give(struct tls_buffers *buffers, enum tls_direction direction, uint8_t *buffer)
{
    struct free_buffer *one = (void *)buffer; /* it is aligned as the heap's blocks are */

    assert(buffers->taken > 0);
    buffers->taken--;
    one->next = buffers->first[direction];
    buffers->first[direction] = one;
    buffers->count[direction]++;
}

void tls_buffers_rest(struct tls_buffers *buffers)
{
    if (buffers->taken > 0)
        return;
    free_beyond(buffers, TLS_OUT, TLS_KEPT);
    free_beyond(buffers, TLS_IN, TLS_KEPT);
}

/* ---- out ---- */

static struct tls_conn *tls_of(const struct conn *conn)
{
    return container_of(conn, struct tls_conn, conn);
}

/* HEARTH_OK: all has left; HEARTH_PENDING; HEARTH_PEER_LOST. */
static int push(struct tls_conn *c)
{
    if (!c->out)
        return c->deaf ? HEARTH_PEER_LOST : HEARTH_OK;
    struct iovec piece = {c->out + c->out_begin, c->out_end - c->out_begin};
    ssize_t n = c->deaf || piece.iov_len == 0 ? 0 : sock_send(c->fd, &piece, 1);
    c->deaf = c->deaf || n < 0;
    if (!c->deaf && (size_t)n < piece.iov_len) {
        c->out_begin += (size_t)n;
        return HEARTH_PENDING;
    }
    c->out_begin = c->out_end = 0;
    tls_buffers_give(c->buffers, TLS_OUT, c->out);
    c->out = NULL;
    return c->deaf ? HEARTH_PEER_LOST : HEARTH_OK;
}

/* What is still to be sealed. */
struct tls_rest {
    const struct iovec *pieces;
    int count;
    struct iovec first; /* what is left of the first piece */
    size_t left;        /* in all */
};

static struct tls_rest rest_of(const struct iovec *pieces, int count)
{
    struct tls_rest rest = {.pieces = pieces, .count = count, .first = {NULL, 0}};
    for (int i = 0; i < count; i++)
        rest.left += pieces[i].iov_len;
    return rest;
}

/* Goes on to a first piece that is not empty. There is one. */
static void rest_settle(struct tls_rest *rest)
{
    while (rest->first.iov_len == 0) {
        rest->first = *rest->pieces++;
        rest->count--;
    }
}

/* One record: of all that is left if that is short, else of the first piece. */
static bool seal_next(struct tls_conn *c, struct tls_rest *rest)
{
    struct iovec pieces[PIECES_MAX];
    size_t len = rest->left;
    int count = 1;
    rest_settle(rest);
    pieces[0] = rest->first;
    if (len <= TOGETHER_BYTES && rest->count < PIECES_MAX) {
        for (; count <= rest->count; count++)
            pieces[count] = rest->pieces[count - 1];
    } else {
        len = rest->first.iov_len < RECORD_DATA_MAX ? rest->first.iov_len : RECORD_DATA_MAX;
        rest->first.iov_base = (uint8_t *)rest->first.iov_base + len;
        rest->first.iov_len -= len;
    }
    size_t sealed = records_seal(c->records, pieces, count, len, c->out + c->out_end);
    c->out_end += sealed;
    rest->left -= len;
    return sealed > 0;
}

static ssize_t tls_send(struct conn *conn, const struct iovec *pieces, int count)
{
    struct tls_conn *c = tls_of(conn);
    struct tls_rest rest = rest_of(pieces, count);
    size_t len = rest.left;

    int status = push(c);
    while (status == HEARTH_OK && rest.left > 0 && (c->out = tls_buffers_take(c->buffers, TLS_OUT))) {
        while (rest.left > 0 && c->out_end + RECORD_ROOM <= TLS_OUT_BYTES && !c->deaf)
            c->deaf = !seal_next(c, &rest);
        status = push(c);
    }
    c->starved = status == HEARTH_OK && rest.left > 0;
    return status == HEARTH_PEER_LOST ? status : (ssize_t)(len - rest.left);
}

static int tls_flush(struct conn *conn)
{
    tls_of(conn)->starved = false; /* whoever has more to send tries now */
    return push(tls_of(conn));
}

static bool tls_holds(const struct conn *conn)
{
    return tls_of(conn)->out || tls_of(conn)->starved;
}

static uint64_t tls_due(const struct conn *conn)
{
    (void)conn;
    return NEVER_NS;
}

/* ---- in ---- */

/* The length of the next record if all of it is here; else 0. */
static size_t record_here(struct tls_conn *c)
{
    size_t here = c->in_end - c->in_begin;
    if (c->end != HEARTH_OK || here < RECORD_HEADER_LEN)
        return 0;
    size_t len = records_length(c->in + c->in_begin);
    if (len == 0)
        c->end = HEARTH_PROTOCOL;
    return len <= here ? len : 0;
}

/* Bytes read, 0, or a status. Nothing decrypted is left. Without a buffer nothing is read, and the descriptor
 * goes on to show that there is something. */
static ssize_t read_more(struct tls_conn *c)
{
    size_t here = c->in_end - c->in_begin;
    if (!c->in && !(c->in = tls_buffers_take(c->buffers, TLS_IN)))
        return 0;
    memmove(c->in, c->in + c->in_begin, here);
    c->in_begin = 0;
    c->in_end = here;
    struct iovec room = {c->in + here, TLS_IN_BYTES - here};
    ssize_t got = sock_recv(c->fd, &room, 1);
    if (got > 0) {
        c->emptied = (size_t)got < room.iov_len;
        c->in_end += (size_t)got;
    }
    return got;
}

static size_t take_plain(struct tls_conn *c, void *target, size_t len_max)
{
    size_t len = c->plain_end - c->plain_begin < len_max ? c->plain_end - c->plain_begin : len_max;
    memcpy(target, c->in + c->plain_begin, len);
    c->plain_begin += len;
    return len;
}

/* Decrypts the record at hand: what of it went to the target. */
static size_t open_next(struct tls_conn *c, size_t record_len, uint8_t *target, size_t len_max)
{
    size_t at = c->in_begin;
    bool fits = record_len - RECORD_EXTRA <= len_max;
    void *place = fits ? target : c->in + at + RECORD_HEADER_LEN;
    ssize_t len = records_open_one(c->records, c->in + at, record_len, place);
    c->in_begin += record_len;
    if (len < 0) {
        c->end = (int)len;
        return 0;
    }
    if (fits)
        return (size_t)len;
    c->plain_begin = at + RECORD_HEADER_LEN;
    c->plain_end = c->plain_begin + (size_t)len;
    return take_plain(c, target, len_max);
}

static ssize_t recv_some(struct tls_conn *c, void *target, size_t len_max)
{
    uint8_t *bytes = target;
    size_t done = 0, record_len;

    if (len_max == 0)
        return 0;
    if (c->plain_begin < c->plain_end)
        return (ssize_t)take_plain(c, target, len_max);
    if (record_here(c) == 0 && c->end == HEARTH_OK) {
        if (c->emptied) {
            c->emptied = false;
            return 0;
        }
        ssize_t got = read_more(c);
        if (got < 0)
            c->end = (int)got;
    }
    while (done < len_max && (record_len = record_here(c)) > 0)
        done += open_next(c, record_len, bytes + done, len_max - done);
    return done > 0 ? (ssize_t)done : c->end;
}

static ssize_t tls_recv(struct conn *conn, void *target, size_t len_max)
{
    struct tls_conn *c = tls_of(conn);
    ssize_t got = recv_some(c, target, len_max);
    if (c->in && c->in_begin == c->in_end && c->plain_begin == c->plain_end) {
        tls_buffers_give(c->buffers, TLS_IN, c->in);
        c->in = NULL;
        c->in_begin = c->in_end = c->plain_begin = c->plain_end = 0;
    }
    return got;
}

/* ---- the rest ---- */

/* The goodbye tells the peer that nothing was cut off. It goes behind what is held. */
static void say_bye(struct tls_conn *c)
{
    uint8_t bye[TLS_BYE_BYTES];
    if (!c->out) {
        struct iovec piece = {bye, records_bye(c->records, bye)};
        if (piece.iov_len > 0 && !c->deaf)
            (void)sock_send(c->fd, &piece, 1);
        return;
    }
    c->out_end += records_bye(c->records, c->out + c->out_end);
    push(c);
}

/* As in tcp.c. */
static void tls_finish(struct conn *conn)
{
    struct tls_conn *c = tls_of(conn);
    say_bye(c);
    c->finished = true;
    sock_finish(c->fd);
}

static void tls_close(struct conn *conn)
{
    struct tls_conn *c = tls_of(conn);

    if (!c->finished)
        say_bye(c);
    tcp_drain_close(c->fd);
    records_close(c->records);
    if (c->out)
        tls_buffers_give(c->buffers, TLS_OUT, c->out);
    if (c->in)
        tls_buffers_give(c->buffers, TLS_IN, c->in);
    tls_buffers_close(c->buffers);
    heap_free(c);
}

static int tls_descriptor(const struct conn *conn)
{
    return tls_of(conn)->fd;
}

static void tls_attend(struct conn *conn)
{
    tls_of(conn)->emptied = false;
}

/* The system knows who sleeps. */
static void tls_doze(struct conn *conn, bool asleep, bool want_room)
{
    (void)want_room;
    if (asleep)
        tls_buffers_rest(tls_of(conn)->buffers);
}

static const struct holding tls_holding = {
    .flush = tls_flush,
    .holds = tls_holds,
    .due = tls_due,
};

static const struct transport tls_transport = {
    .scheme = "tls",
    .send = tls_send,
    .recv = tls_recv,
    .finish = tls_finish,
    .close = tls_close,
    .descriptor = tls_descriptor,
    .attend = tls_attend,
    .doze = tls_doze,
    .holding = &tls_holding,
};

struct conn *tls_conn(struct tls_buffers *buffers, int fd, struct records *records)
{
    struct tls_conn *c = heap_alloc(buffers->heap, 1, sizeof *c);

    if (!c) {
        sock_close(fd);
        records_close(records);
        return NULL;
    }
    c->conn.transport = &tls_transport;
    c->buffers = tls_buffers_share(buffers);
    c->fd = fd;
    c->records = records;
    return &c->conn;
}
