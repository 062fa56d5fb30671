/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets around a rendezvous. */
#pragma once

#include "bootstrap/rendezvous.h"
#include "connect/secure_stream.h"

#define SERVER_LISTENERS 8

struct server_conn {
    int fd;                       /* -1: there is none */
    struct secure_stream *stream; /* has the descriptor; NULL: nothing has come yet */
    bool local;                   /* a unix socket, of our own user */
    bool admitted;                /* it knocked as only members can */
    bool ready;                   /* the handshake is done */
    struct guard *guard;
    struct sock_addr from;
};

struct server {
    struct heap *heap;
    const struct credentials *credentials; /* TCP; NULL: plain */
    struct rendezvous *meeting;
    int listeners[SERVER_LISTENERS];
    int listener_count;
    bool borrowed;             /* the listener is somebody else's, who goes on with it after GO */
    struct server_conn *conns; /* [limit] */
    int limit;
    int self;           /* the connection without a socket, of the member that serves; -1: none */
    uint64_t accept_ns; /* no sooner: descriptors had run out */
};

/* Takes the listeners, also when it fails. */
int MUST_CHECK server_open(struct server *server, const struct rendezvous_setup *setup, const int *listeners,
                           int count, bool borrowed, struct error *error);
/* The member that serves takes part through a connection without a socket. */
int MUST_CHECK server_join(struct server *server, uint64_t now_ns, struct error *error);
void server_part(struct server *server, uint64_t now_ns);
void server_close(struct server *server);  /* harmless on one that is zero or closed */
void server_deafen(struct server *server); /* nobody else is let in */

/* server_items is how many `server_waits` writes and `server_pump` reads back; the latter never blocks. */
size_t server_items(const struct server *server);
void server_waits(const struct server *server, struct sock_wait *items, uint64_t now_ns,
                  uint64_t *deadline_ns);
void server_pump(struct server *server, const struct sock_wait *items, uint64_t now_ns);
