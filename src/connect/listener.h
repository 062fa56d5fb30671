/* SPDX-License-Identifier: Apache-2.0 */
/* A node's listening sockets. The mesh takes the connections that have greeted; the unix socket is open only
 * while joining. */
#pragma once

#include "connect/half_open.h"
#include "wire/greeting.h"

/* The member that greetings must name. */
struct listener_self {
    uint64_t cluster, instance;
    int rank;
    const struct credentials *credentials; /* NULL: plain; lent until listener_settle */
};

/* The node pumps its half-open connections after the mesh is made, too: later ones are refused, bounded in
 * number, time and memory. */
struct listener {
    struct half_open *half_open;
    struct listener_self self; /* PRIVATE; cluster 0: not known yet */
    bool receiving;            /* PRIVATE */
};

/* The first words are a greeting: what is said of words and their judge in the setup does not matter. */
int MUST_CHECK listener_open(const struct half_open_setup *setup, struct listener **out, struct error *error);
void listener_close(struct listener *listener);

/* From now on connections are kept for listener_take. Before this, none is. */
void listener_receive(struct listener *listener, const struct listener_self *self);
/* The mesh is made; the unix socket is closed. Plain: a greeting is answered with GREETING_JOINED. Else
 * connections are closed as they come, without a handshake. */
void listener_settle(struct listener *listener);
/* Listens for members of this host too. */
int MUST_CHECK listener_open_local(struct listener *listener, struct error *error);
/* Where that member listens for its neighbours. */
void listener_local_addr(uint64_t cluster, int rank, struct sock_addr *out);

/* The next connection that has greeted us, the caller's from then on; nothing behind its 64 bytes is read.
 * False: none. To be called until then after each half_open_pump. */
bool listener_take(struct listener *listener, struct half_open_incoming *incoming, struct greeting *greeting);
/* Answers a connection no, and closes it. */
void listener_refuse(struct secure_stream *stream, const struct greeting *greeting,
                     enum greeting_reason reason);
