/* SPDX-License-Identifier: Apache-2.0 */
/* The place where members meet, as a machine without sockets or clock: connections are numbers, bytes come
 * in and go out, the time is told.
 *
 *     gathering --(all have registered)--> agreeing --(all are ready)--> over, GO
 *         ^                                   |
 *         +------(a member closed)------------+          (deadline, contradiction: over, REFUSE to all)
 *
 * Wrong size, version or settings and a rank claimed twice end the meeting for all; another job, garbage,
 * another secret, a name that was not proven, or one member too many only the connection that brought it. */
#pragma once

#include "connect/admission_log.h"
#include "core/error.h"
#include "core/heap.h"
#include "core/log.h"
#include "os/sock.h"
#include "security/credentials.h"

#define RENDEZVOUS_LEAVING  64             /* connections beside `size` */
#define RENDEZVOUS_LEAVE_NS (5 * NS_PER_S) /* to take a refusal */

struct rendezvous;

struct rendezvous_setup {
    struct heap *heap;
    struct log log;
    struct admission_log *admissions; /* lent while it is open: names connections that do not belong here */
    const char *job, *settings_text;  /* lent while it is open */
    int size;
    uint64_t settings;
    uint64_t seed; /* cluster ids are drawn from it */
    uint64_t deadline_ns;
    /* Lent while it is open. All NULL: plain. */
    const uint8_t *space;                  /* [NAMESPACE_LEN] of the cluster's secret */
    const uint8_t *secret;                 /* [SECRET_LEN] unix sockets: what members are told */
    const struct credentials *credentials; /* TCP: members must prove their identity */
};

/* HEARTH_MISMATCH: the others encrypt and this one (its name) is plain, or the other way round. */
int mixed_error(bool others_encrypt, const char *one, struct error *error);

/* How a connection came. */
struct rendezvous_origin {
    struct sock_addr from;       /* for the log */
    bool local;                  /* a unix socket of our own user, or ourselves: is told the secret */
    const struct identity *peer; /* proven by its handshake; NULL: none. Lent while it is open */
};

int MUST_CHECK rendezvous_open(const struct rendezvous_setup *setup, struct rendezvous **out,
                               struct error *error);
void rendezvous_close(struct rendezvous *r);

/* Connections are numbered 0 to rendezvous_limit - 1: members, and those that were refused and are to take
 * that. Opening one too many makes the oldest of the latter `gone`. */
int rendezvous_limit(const struct rendezvous *r);
int MUST_CHECK rendezvous_conn_open(struct rendezvous *r, const struct rendezvous_origin *origin,
                                    uint64_t now_ns, int *conn);
void rendezvous_conn_closed(struct rendezvous *r, int conn, uint64_t now_ns); /* its number is free again */
void rendezvous_input(struct rendezvous *r, int conn, const void *bytes, size_t len, uint64_t now_ns);
/* The next bytes that are to be sent, 0: none; how many of them were. */
size_t rendezvous_output(const struct rendezvous *r, int conn, const uint8_t **bytes);
void rendezvous_sent(struct rendezvous *r, int conn, size_t len, uint64_t now_ns);
/* Whether the caller is to close it at once (and say so with rendezvous_conn_closed). */
bool rendezvous_conn_gone(const struct rendezvous *r, int conn);

void rendezvous_tick(struct rendezvous *r, uint64_t now_ns);
uint64_t rendezvous_deadline(const struct rendezvous *r); /* of the next tick */

/* Whether GO or REFUSE was given out; `error` (may be NULL) has the reason of a refusal. */
bool rendezvous_over(const struct rendezvous *r, struct error *error);
/* Whether all that were told have closed, as members do when they have read it. */
bool rendezvous_quiet(const struct rendezvous *r);
