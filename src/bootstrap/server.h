/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets around a rendezvous: half-open connections until they have registered, then secure streams. */
#pragma once

#include "bootstrap/rendezvous.h"
#include "connect/half_open.h"

struct server {
    struct rendezvous *meeting;
    struct half_open *half_open;
    struct secure_stream **streams; /* [limit], by connection of the meeting; NULL: none */
    int limit;
    int self; /* the connection without a socket, of the member that serves; -1: none */
    uint8_t mixed_answer[MESSAGE_HEADER_LEN + ERROR_TEXT_MAX + 8];
};

/* Takes the listeners, also when it fails; lent: the caller goes on with them after GO. */
int MUST_CHECK server_open(struct server *server, const struct rendezvous_setup *setup, const int *listeners,
                           int count, bool lent, struct error *error);
/* The member that serves takes part through a connection without a socket. */
int MUST_CHECK server_join(struct server *server, const struct identity *self, uint64_t now_ns,
                           struct error *error);
void server_part(struct server *server, uint64_t now_ns);
void server_close(struct server *server); /* harmless on one that is zero or closed */

/* At most how many items server_waits writes and server_pump reads back; the latter never blocks. */
size_t server_items(int size);
size_t server_waits(const struct server *server, struct sock_wait *items, uint64_t *deadline_ns);
void server_pump(struct server *server, const struct sock_wait *items, uint64_t now_ns);
