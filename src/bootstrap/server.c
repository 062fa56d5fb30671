/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts, reads, writes and closes as the rendezvous says. */
#include "bootstrap/server.h"

#include <assert.h>
#include <string.h>

#include "wire/meeting.h"
#include "wire/record.h"

#define ACCEPT_BATCH    32
#define ACCEPT_PAUSE_NS (100 * NS_PER_MS)
#define READ_BYTES      SECURE_STREAM_MESSAGE_MAX /* so that nothing that was read is left for later */

int server_open(struct server *server, const struct rendezvous_setup *setup, const int *listeners, int count,
                bool borrowed, struct error *error)
{
    assert(count >= 1 && count <= SERVER_LISTENERS);
    *server = (struct server){.listener_count = count, .borrowed = borrowed, .self = -1};
    server->heap = setup->heap;
    server->credentials = setup->credentials;
    for (int i = 0; i < count; i++)
        server->listeners[i] = listeners[i];
    int status = rendezvous_open(setup, &server->meeting, error);
    if (status != HEARTH_OK)
        goto close;
    int limit = rendezvous_limit(server->meeting);
    server->conns = heap_alloc(setup->heap, (size_t)limit, sizeof(struct server_conn));
    if (!server->conns) {
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory for its connections");
        goto close;
    }
    server->limit = limit;
    for (int i = 0; i < limit; i++)
        server->conns[i].fd = -1;
    return HEARTH_OK;
close:
    server_close(server);
    return status;
}

int server_join(struct server *server, uint64_t now_ns, struct error *error)
{
    struct rendezvous_origin origin = {.local = true};
    int status = rendezvous_conn_open(server->meeting, &origin, now_ns, &server->self);
    if (status != HEARTH_OK)
        return error_set(error, status, RANK_NONE, "rendezvous: no memory for ourselves");
    if (server->credentials)
        rendezvous_conn_proven(server->meeting, server->self, credentials_self(server->credentials));
    return HEARTH_OK;
}

void server_part(struct server *server, uint64_t now_ns)
{
    if (server->self >= 0)
        rendezvous_conn_closed(server->meeting, server->self, now_ns);
    server->self = -1;
}

void server_deafen(struct server *server)
{
    for (int i = 0; i < server->listener_count && !server->borrowed; i++)
        sock_unlisten(server->listeners[i]);
    server->listener_count = 0;
}

static void conn_free(struct server_conn *c)
{
    if (c->stream)
        secure_stream_close(c->stream);
    else
        sock_close(c->fd);
    *c = (struct server_conn){.fd = -1};
}

void server_close(struct server *server)
{
    server_deafen(server);
    for (int i = 0; i < server->limit; i++)
        conn_free(&server->conns[i]);
    heap_free(server->conns);
    rendezvous_close(server->meeting);
    *server = (struct server){.self = -1};
}

/* ---- waiting ---- */

size_t server_items(const struct server *server)
{
    return SERVER_LISTENERS + (size_t)server->limit;
}

void server_waits(const struct server *server, struct sock_wait *items, uint64_t now_ns,
                  uint64_t *deadline_ns)
{
    bool pause = now_ns < server->accept_ns;
    uint64_t next = rendezvous_deadline(server->meeting);
    const uint8_t *bytes;

    if (pause && server->accept_ns < next)
        next = server->accept_ns;
    if (next < *deadline_ns)
        *deadline_ns = next;
    for (int i = 0; i < SERVER_LISTENERS; i++) {
        bool listens = i < server->listener_count && !pause;
        items[i] = (struct sock_wait){.fd = listens ? server->listeners[i] : -1, .want_recv = true};
    }
    for (int i = 0; i < server->limit; i++) {
        const struct server_conn *c = &server->conns[i];
        bool out = c->stream && secure_stream_wants_send(c->stream);
        if (c->ready)
            out = out || rendezvous_output(server->meeting, i, &bytes) > 0;
        items[SERVER_LISTENERS + i] = (struct sock_wait){.fd = c->fd, .want_recv = true, .want_send = out};
    }
}

/* ---- moving bytes ---- */

static void conn_close(struct server *server, int conn, uint64_t now_ns)
{
    conn_free(&server->conns[conn]);
    rendezvous_conn_closed(server->meeting, conn, now_ns);
}

static void reap(struct server *server, uint64_t now_ns)
{
    for (int i = 0; i < server->limit; i++)
        if (server->conns[i].fd >= 0 && rendezvous_conn_gone(server->meeting, i))
            conn_close(server, i, now_ns);
}

/* Who may come in: a unix socket may stand in a folder that others can reach. */
static bool welcome(int fd, const struct sock_addr *from)
{
    return sock_addr_family(from) != SOCK_UNIX || sock_same_user(fd);
}

static void accept_one(struct server *server, int fd, const struct sock_addr *from, uint64_t now_ns)
{
    struct rendezvous_origin origin = {*from, sock_addr_family(from) == SOCK_UNIX};
    int conn;

    if (!welcome(fd, from) || rendezvous_conn_open(server->meeting, &origin, now_ns, &conn) != HEARTH_OK) {
        sock_close(fd);
        return;
    }
    server->conns[conn] = (struct server_conn){.fd = fd, .local = origin.local, .from = *from};
    reap(server, now_ns);
}

static void accept_all(struct server *server, int listener, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sock_addr from;
        int fd, status = sock_accept(listener, &fd, &from);
        if (status == HEARTH_OK) {
            accept_one(server, fd, &from, now_ns);
            continue;
        }
        if (status != HEARTH_PENDING) {
            server->accept_ns = now_ns + ACCEPT_PAUSE_NS;
            log_write(&rendezvous_guard(server->meeting)->log, HEARTH_LOG_WARN, "HEARTH-NO-ACCEPT",
                      "rendezvous: a member cannot be heard: the process has too many files open");
        }
        return;
    }
}

/* Gives what the meeting has to say to the secure stream, as much as that takes now. */
static void conn_say(struct server *server, int conn, uint64_t now_ns)
{
    struct secure_stream *stream = server->conns[conn].stream;
    const uint8_t *bytes;
    size_t len;

    while ((len = rendezvous_output(server->meeting, conn, &bytes)) > 0) {
        len = len < SECURE_STREAM_MESSAGE_MAX ? len : SECURE_STREAM_MESSAGE_MAX;
        if (!secure_stream_send(stream, bytes, len))
            return;
        rendezvous_sent(server->meeting, conn, len, now_ns);
    }
}

/* HEARTH_OK, or that it has ended. */
static int conn_talk(struct server *server, int conn, uint64_t now_ns)
{
    uint8_t bytes[READ_BYTES];
    ssize_t len = secure_stream_recv(server->conns[conn].stream, bytes, sizeof bytes);

    if (len < 0)
        return (int)len;
    if (len > 0)
        rendezvous_input(server->meeting, conn, bytes, (size_t)len, now_ns);
    conn_say(server, conn, now_ns);
    return HEARTH_OK;
}

static bool conn_admit(void *arg, bool weak)
{
    struct server_conn *c = arg;

    c->admitted = guard_admit(c->guard, sock_addr_network(&c->from), weak);
    return c->admitted;
}

static int conn_begin(struct server *server, struct server_conn *c)
{
    struct secure_stream_setup setup = {
        .heap = server->heap,
        .credentials = c->local ? NULL : server->credentials,
        .role = CHANNEL_LISTENS,
        .admit = conn_admit,
        .admit_arg = c,
    };

    if (c->stream)
        return HEARTH_OK;
    c->guard = rendezvous_guard(server->meeting);
    int status = secure_stream_open(&setup, c->fd, &c->stream);
    if (status != HEARTH_OK)
        c->fd = -1;
    return status;
}

/* Plain where we are not, or the other way round: a refusal in plain words is what its people will see, or
 * what tells its end that we are plain. */
static void answer_mixed(const struct server *server, const struct server_conn *c)
{
    uint8_t bytes[MESSAGE_HEADER_LEN + MEETING_SMALL_MAX];
    struct iovec piece = {.iov_base = bytes};
    struct error error;

    error_because(
        &error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_MISMATCH, RANK_NONE,
        "rendezvous: the others %s, this process %s: start all members with plain, or (better) none",
        server->credentials ? "encrypt" : "are plain", server->credentials ? "is plain" : "encrypts");
    size_t len = error_encode(&error, bytes + MESSAGE_HEADER_LEN, MEETING_SMALL_MAX);
    message_seal(MEETING_REFUSE, bytes + MESSAGE_HEADER_LEN, len, NULL, 0, bytes);
    piece.iov_len = MESSAGE_HEADER_LEN + len;
    (void)sock_send(secure_stream_fd(c->stream), &piece, 1);
}

/* It has ended, for a reason that the log may have to know. */
static void conn_end(struct server *server, int conn, const struct error *error, uint64_t now_ns)
{
    const struct server_conn *c = &server->conns[conn];
    bool mixed = c->stream && secure_stream_mixed(c->stream);

    if (mixed)
        answer_mixed(server, c);
    if (mixed || error->status == HEARTH_PROTOCOL)
        guard_complain(rendezvous_guard(server->meeting), &c->from,
                       mixed ? secure_stream_mixed_text(c->stream) : error->text);
    conn_close(server, conn, now_ns);
}

static void conn_pump(struct server *server, int conn, uint64_t now_ns)
{
    struct server_conn *c = &server->conns[conn];
    bool before = c->admitted;
    struct error error;

    error_clear(&error);
    int status = conn_begin(server, c);
    if (status == HEARTH_OK)
        status = secure_stream_pump(c->stream, &error);
    if (c->admitted && !before)
        rendezvous_conn_admitted(server->meeting, conn, now_ns);
    if (status == HEARTH_OK && !c->ready) {
        c->ready = true;
        if (secure_stream_peer(c->stream))
            rendezvous_conn_proven(server->meeting, conn, secure_stream_peer(c->stream));
    }
    if (status == HEARTH_OK)
        status = conn_talk(server, conn, now_ns);
    if (status != HEARTH_OK && status != HEARTH_PENDING)
        conn_end(server, conn, &error, now_ns);
}

void server_pump(struct server *server, const struct sock_wait *items, uint64_t now_ns)
{
    guard_tick(rendezvous_guard(server->meeting), now_ns);
    for (int i = 0; i < server->limit; i++)
        if (server->conns[i].fd >= 0 && items[SERVER_LISTENERS + i].ready)
            conn_pump(server, i, now_ns);
    for (int i = 0; i < server->listener_count; i++)
        if (items[i].ready)
            accept_all(server, server->listeners[i], now_ns);
    rendezvous_tick(server->meeting, now_ns);
    reap(server, now_ns);
}
