/* SPDX-License-Identifier: Apache-2.0 */
/* Dials a rendezvous, all its addresses side by side, again and again until one answers. */
#pragma once

#include "bootstrap/rendezvous_client.h"
#include "connect/dial_driver.h"
#include "os/resolve.h"

struct rendezvous_dial {
    const struct roster_setup *setup;
    struct rendezvous_client *client;
    const struct sock_addr *addrs;
    struct dial_driver driver;
    struct dial_target targets[RESOLVE_MAX]; /* of the same */
    int chosen;                              /* the address that was connected first, -1: none */
    struct secure_stream *stream;            /* to it, from when the handshake is done */
    uint64_t until_ns;                       /* for handshake and welcome */
    uint32_t bad;                            /* attempts that reached a listener, but no rendezvous */
    struct error last;
};

/* `addrs` is lent. HEARTH_NO_MEMORY; rendezvous_dial_close is allowed then too. */
int MUST_CHECK rendezvous_dial_init(struct rendezvous_dial *d, struct rendezvous_client *client,
                                    const struct sock_addr *addrs, int count, uint64_t seed);
void rendezvous_dial_close(struct rendezvous_dial *d);
#define RENDEZVOUS_DIAL_WAITS_MAX (RESOLVE_MAX + 1)
/* Writes at most RENDEZVOUS_DIAL_WAITS_MAX items, gives their number. */
size_t rendezvous_dial_waits(const struct rendezvous_dial *d, struct sock_wait *items, uint64_t *deadline_ns);
/* As rendezvous_client_input; what may pass by itself is HEARTH_PENDING, with the reason in d->last. */
int MUST_CHECK rendezvous_dial_pump(struct rendezvous_dial *d, uint64_t now_ns, struct error *error);
