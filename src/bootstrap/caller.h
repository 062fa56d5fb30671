/* SPDX-License-Identifier: Apache-2.0 */
/* Dials a rendezvous, all its addresses side by side, again and again until somebody is there. */
#ifndef BOOTSTRAP_CALLER_H
#define BOOTSTRAP_CALLER_H

#include "bootstrap/applicant.h"
#include "bootstrap/tunnel.h"
#include "core/prng.h"
#include "os/resolve.h"

struct line {
    struct sock_addr addr;
    int fd;                /* -1: between two attempts */
    struct tunnel *tunnel; /* has the descriptor, from when it is chosen */
    uint64_t next_ns;      /* of the next attempt */
    uint64_t until_ns;     /* of this one: to connect, and then for handshake and welcome */
    uint32_t tries;
};

struct caller {
    const struct roster_setup *setup;
    struct applicant *applicant;
    struct prng prng;
    struct line lines[RESOLVE_MAX];
    int count;
    int chosen;   /* the line that was connected first, -1: none */
    uint32_t bad; /* attempts at which somebody was there, but no rendezvous */
    struct error last;
};

void caller_init(struct caller *c, struct applicant *applicant, const struct sock_addr *addrs, int count,
                 uint64_t seed);
void caller_close(struct caller *c);
/* Writes RESOLVE_MAX items. */
void caller_waits(const struct caller *c, struct sock_wait *items, uint64_t *deadline_ns);
/* As applicant_input; what may pass by itself is HEARTH_PENDING, with the reason in c->last. */
int MUST_CHECK caller_pump(struct caller *c, const struct sock_wait *items, uint64_t now_ns,
                           struct error *error);

#endif
