/* SPDX-License-Identifier: Apache-2.0 */
/* Streams over sockets, with as few system calls as frames.
 *
 * A link asks for a header, then for a payload, then for the next header: a system call each, and one more to
 * learn that nothing else has come. So every read offers the system two places: what the link asked for, and
 * the readahead. The tail of a payload brings the next header along, and a small frame comes whole; later
 * calls are served from the readahead. Long payloads go straight to their target.
 *
 * A read that filled less than both places has emptied the socket. The next call says "nothing yet" without
 * asking; the one after it asks again. */
#include "transport/tcp.h"

#include <string.h>

#include "os/sock.h"

/* Of each large frame about so much is copied once more; small frames up to this size need one call. */
#define READAHEAD_BYTES 4096
#define SHORT_BYTES     1024        /* less is read through the readahead */
#define DRAIN_BYTES_MAX (4u << 20)  /* read and dropped by close */
#define DRAIN_BYTES     (16u << 10) /* at once */

struct tcp_conn {
    struct conn conn;
    int fd;
    bool emptied; /* the last read left nothing in the socket */
    size_t begin, end;
    uint8_t readahead[READAHEAD_BYTES];
};

static struct tcp_conn *tcp_of(const struct conn *conn)
{
    return container_of(conn, struct tcp_conn, conn);
}

static ssize_t tcp_send(struct conn *conn, const struct iovec *pieces, int count)
{
    return sock_send(tcp_of(conn)->fd, pieces, count);
}

static size_t take_readahead(struct tcp_conn *c, void *target, size_t len_max)
{
    size_t len = c->end - c->begin < len_max ? c->end - c->begin : len_max;
    memcpy(target, c->readahead + c->begin, len);
    c->begin += len;
    return len;
}

/* Something short is wanted, a header as a rule: all that has come goes into the readahead, by the cheapest
 * system call there is. A caller that spins makes it again and again. */
static ssize_t recv_short(struct tcp_conn *c, void *target, size_t len_max)
{
    struct iovec place = {c->readahead, sizeof c->readahead};
    ssize_t got = sock_recv(c->fd, &place, 1);

    if (got <= 0)
        return got;
    c->emptied = (size_t)got < sizeof c->readahead;
    c->begin = 0;
    c->end = (size_t)got;
    return (ssize_t)take_readahead(c, target, len_max);
}

static ssize_t recv_long(struct tcp_conn *c, void *target, size_t len_max)
{
    struct iovec places[2] = {{target, len_max}, {c->readahead, sizeof c->readahead}};
    ssize_t got = sock_recv(c->fd, places, 2);

    if (got <= 0)
        return got;
    size_t len = (size_t)got;
    c->emptied = len < len_max + sizeof c->readahead;
    c->begin = 0;
    c->end = len > len_max ? len - len_max : 0;
    return (ssize_t)(len - c->end);
}

static ssize_t tcp_recv(struct conn *conn, void *target, size_t len_max)
{
    struct tcp_conn *c = tcp_of(conn);

    if (len_max == 0)
        return 0;
    if (c->begin < c->end)
        return (ssize_t)take_readahead(c, target, len_max);
    if (c->emptied) {
        c->emptied = false;
        return 0;
    }
    return len_max < SHORT_BYTES ? recv_short(c, target, len_max) : recv_long(c, target, len_max);
}

/* A peer that still sends when our socket is closed resets the connection, and what it has not received yet
 * is gone. It closes its end when it has read our last frame. */
static void tcp_finish(struct conn *conn)
{
    sock_finish(tcp_of(conn)->fd);
}

/* A peer that keeps sending gets its reset after DRAIN_BYTES_MAX. */
void tcp_drain_close(int fd)
{
    uint8_t bytes[DRAIN_BYTES];
    struct iovec scratch = {bytes, sizeof bytes};

    sock_finish(fd);
    for (size_t drained = 0; drained < DRAIN_BYTES_MAX;) {
        ssize_t got = sock_recv(fd, &scratch, 1);
        if (got <= 0)
            break;
        drained += (size_t)got;
    }
    sock_close(fd);
}

static void tcp_close(struct conn *conn)
{
    tcp_drain_close(tcp_of(conn)->fd);
    heap_free(tcp_of(conn));
}

static int tcp_descriptor(const struct conn *conn)
{
    return tcp_of(conn)->fd;
}

static void tcp_attend(struct conn *conn)
{
    tcp_of(conn)->emptied = false;
}

static const struct transport tcp_transport = {
    .scheme = "tcp",
    .send = tcp_send,
    .recv = tcp_recv,
    .finish = tcp_finish,
    .close = tcp_close,
    .descriptor = tcp_descriptor,
    .attend = tcp_attend,
    .doze = conn_doze_nothing, /* the system knows who sleeps */
};

struct conn *tcp_conn(struct heap *heap, int fd)
{
    struct tcp_conn *c = heap_alloc(heap, 1, sizeof *c);

    if (!c) {
        sock_close(fd);
        return NULL;
    }
    c->conn.transport = &tcp_transport;
    c->fd = fd;
    return &c->conn;
}
