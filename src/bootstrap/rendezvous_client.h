/* SPDX-License-Identifier: Apache-2.0 */
/* A member's side of the rendezvous, as a machine without sockets: it registers, confirms rosters, waits
 * for GO. */
#pragma once

#include "bootstrap/roster.h"
#include "wire/message.h"

struct rendezvous_client {
    const struct roster_setup *setup;
    int rank;      /* wanted; RANK_NONE: any */
    bool welcomed; /* the other end is a rendezvous */
    bool refused;  /* the last error was said by the rendezvous, or is of its kind: trying again is no use */
    struct error
        objection; /* why this process cannot be a member, for all to hear; its status HEARTH_OK: it can */
    bool wants_secret; /* the rendezvous hands it out */
    bool has_secret;
    uint8_t secret[SECRET_LEN];
    struct message_reader in;
    struct message_queue out;
    struct roster roster; /* the last that came; members NULL: none */
};

/* `setup` is lent. HEARTH_NO_MEMORY. */
int MUST_CHECK rendezvous_client_init(struct rendezvous_client *c, const struct roster_setup *setup,
                                      int rank);
void rendezvous_client_fini(struct rendezvous_client *c);
/* Begins on a new connection. */
void rendezvous_client_begin(struct rendezvous_client *c, uint64_t now_ns);
/* What is to be sent, length 0: nothing; how much of it was. */
struct iovec rendezvous_client_output(const struct rendezvous_client *c);
void rendezvous_client_sent(struct rendezvous_client *c, size_t len);
/* HEARTH_OK: GO has come and c->roster is agreed. HEARTH_PENDING. Anything else: the connection is of no
 * use, and why: refused by the rendezvous, or HEARTH_PROTOCOL because this is not a rendezvous. */
int MUST_CHECK rendezvous_client_input(struct rendezvous_client *c, const void *bytes, size_t len,
                                       struct error *error);
