/* SPDX-License-Identifier: Apache-2.0 */
/* Dials a rendezvous, all its addresses side by side, again and again until somebody is there. */
#ifndef BOOTSTRAP_RENDEZVOUS_DIAL_H
#define BOOTSTRAP_RENDEZVOUS_DIAL_H

#include "bootstrap/rendezvous_client.h"
#include "connect/secure_stream.h"
#include "core/prng.h"
#include "os/resolve.h"

struct rendezvous_line {
    struct sock_addr addr;
    int fd;                       /* -1: between two attempts */
    struct secure_stream *stream; /* has the descriptor, from when it is chosen */
    uint64_t next_ns;             /* of the next attempt */
    uint64_t until_ns;            /* of this one: to connect, and then for handshake and welcome */
    uint32_t tries;
};

struct rendezvous_dial {
    const struct roster_setup *setup;
    struct rendezvous_client *client;
    struct prng prng;
    struct rendezvous_line lines[RESOLVE_MAX];
    int count;
    int chosen;   /* the line that was connected first, -1: none */
    uint32_t bad; /* attempts at which somebody was there, but no rendezvous */
    struct error last;
};

void rendezvous_dial_init(struct rendezvous_dial *c, struct rendezvous_client *client,
                          const struct sock_addr *addrs, int count, uint64_t seed);
void rendezvous_dial_close(struct rendezvous_dial *c);
/* Writes RESOLVE_MAX items. */
void rendezvous_dial_waits(const struct rendezvous_dial *c, struct sock_wait *items, uint64_t *deadline_ns);
/* As rendezvous_client_input; what may pass by itself is HEARTH_PENDING, with the reason in c->last. */
int MUST_CHECK rendezvous_dial_pump(struct rendezvous_dial *c, const struct sock_wait *items, uint64_t now_ns,
                                    struct error *error);

#endif
