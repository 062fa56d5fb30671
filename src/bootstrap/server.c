/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts, reads, writes and closes as the rendezvous says. */
#include "bootstrap/server.h"

#include <assert.h>

#define ACCEPT_BATCH    32
#define ACCEPT_PAUSE_NS (100 * NS_PER_MS)
#define READ_BYTES      4096

int server_open(struct server *server, const struct rendezvous_setup *setup, const int *listeners, int count,
                bool borrowed, struct error *error)
{
    assert(count >= 1 && count <= SERVER_LISTENERS);
    *server = (struct server){.listener_count = count, .borrowed = borrowed, .self = -1};
    for (int i = 0; i < count; i++)
        server->listeners[i] = listeners[i];
    int status = rendezvous_open(setup, &server->meeting, error);
    if (status != HEARTH_OK)
        goto close;
    int limit = rendezvous_limit(server->meeting);
    server->fds = heap_alloc(setup->heap, (size_t)limit, sizeof(int));
    if (!server->fds) {
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory for its connections");
        goto close;
    }
    server->limit = limit;
    for (int i = 0; i < limit; i++)
        server->fds[i] = -1;
    return HEARTH_OK;
close:
    server_close(server);
    return status;
}

int server_join(struct server *server, uint64_t now_ns, struct error *error)
{
    int status = rendezvous_conn_open(server->meeting, now_ns, &server->self);
    if (status != HEARTH_OK)
        return error_set(error, status, RANK_NONE, "rendezvous: no memory for ourselves");
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

void server_close(struct server *server)
{
    server_deafen(server);
    for (int i = 0; i < server->limit; i++)
        sock_close(server->fds[i]);
    heap_free(server->fds);
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
    struct iovec pieces[3];

    if (pause && server->accept_ns < next)
        next = server->accept_ns;
    if (next < *deadline_ns)
        *deadline_ns = next;
    for (int i = 0; i < SERVER_LISTENERS; i++) {
        bool listens = i < server->listener_count && !pause;
        items[i] = (struct sock_wait){.fd = listens ? server->listeners[i] : -1, .want_recv = true};
    }
    for (int i = 0; i < server->limit; i++) {
        bool open = server->fds[i] >= 0;
        items[SERVER_LISTENERS + i] =
            (struct sock_wait){.fd = server->fds[i],
                               .want_recv = true,
                               .want_send = open && rendezvous_output(server->meeting, i, pieces) > 0};
    }
}

/* ---- moving bytes ---- */

static void conn_close(struct server *server, int conn, uint64_t now_ns)
{
    sock_close(server->fds[conn]);
    server->fds[conn] = -1;
    rendezvous_conn_closed(server->meeting, conn, now_ns);
}

static void reap(struct server *server, uint64_t now_ns)
{
    for (int i = 0; i < server->limit; i++)
        if (server->fds[i] >= 0 && rendezvous_conn_gone(server->meeting, i))
            conn_close(server, i, now_ns);
}

/* Whoever may come in: a unix name in the abstract space is open to all users. */
static bool welcome(int fd, const struct sock_addr *from)
{
    return sock_addr_family(from) != SOCK_UNIX || sock_same_user(fd);
}

static void accept_one(struct server *server, int fd, const struct sock_addr *from, uint64_t now_ns)
{
    int conn;

    if (!welcome(fd, from) || rendezvous_conn_open(server->meeting, now_ns, &conn) != HEARTH_OK) {
        sock_close(fd);
        return;
    }
    server->fds[conn] = fd;
    reap(server, now_ns);
}

static void accept_all(struct server *server, int listener, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sock_addr from;
        int fd, status = sock_accept(listener, &fd, &from);
        if (status == HEARTH_OK)
            accept_one(server, fd, &from, now_ns);
        else if (status != HEARTH_PENDING)
            server->accept_ns = now_ns + ACCEPT_PAUSE_NS;
        if (status != HEARTH_OK)
            return;
    }
}

static void conn_pump(struct server *server, int conn, uint64_t now_ns)
{
    uint8_t bytes[READ_BYTES];
    struct iovec target = {.iov_base = bytes, .iov_len = sizeof(bytes)}, pieces[3];
    ssize_t len = sock_recv(server->fds[conn], &target, 1);

    if (len > 0)
        rendezvous_input(server->meeting, conn, bytes, (size_t)len, now_ns);
    int count = rendezvous_output(server->meeting, conn, pieces);
    ssize_t sent = len >= 0 && count > 0 ? sock_send(server->fds[conn], pieces, count) : 0;
    if (sent > 0)
        rendezvous_sent(server->meeting, conn, (size_t)sent, now_ns);
    if (len < 0 || sent < 0)
        conn_close(server, conn, now_ns);
}

void server_pump(struct server *server, const struct sock_wait *items, uint64_t now_ns)
{
    for (int i = 0; i < server->limit; i++)
        if (server->fds[i] >= 0 && items[SERVER_LISTENERS + i].ready)
            conn_pump(server, i, now_ns);
    for (int i = 0; i < server->listener_count; i++)
        if (items[i].ready)
            accept_all(server, server->listeners[i], now_ns);
    rendezvous_tick(server->meeting, now_ns);
    reap(server, now_ns);
}
