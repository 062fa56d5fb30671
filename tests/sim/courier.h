/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between simulated members, drawn from a seed, and what must hold of them however they end: each is
 * received at most once, whole, and in the order of its sender and tag; what a failed send says of its
 * message is true; when all is over nothing is held. */
#pragma once

#include "virtual.h"

#define COURIER_SENDS 160
#define COURIER_RECVS 640
#define COURIER_PARTS 5

struct courier_send {
    int from, to;
    uint64_t tag;
    uint8_t *bytes;
    size_t len;
    struct hearth_iovec parts[COURIER_PARTS];
    bool sync, coded, patient; /* patient: its deadline is far away */
    bool left_to_chance;       /* it was cancelled, or its node is gone */
    hearth_request *request;   /* NULL: ended, or gone with its node */
    int status;                /* HEARTH_PENDING: not ended */
    enum hearth_fate fate;
};

struct courier_recv {
    int at; /* rank of the receiver */
    bool patient, cancelled;
    uint8_t *buffer; /* NULL: `message` gets it */
    size_t size;
    struct hearth_message *message;
    struct hearth_received received;
    struct hearth_iovec parts[COURIER_PARTS];
    hearth_request *request;
    int status;
};

struct courier {
    struct sim *sim;
    struct prng prng;
    bool calm; /* nothing goes wrong: every message must be received */
    bool gone[SIM_MAX];
    size_t len_max;
    int tags;
    int send_count, recv_count;
    struct courier_send sends[COURIER_SENDS];
    struct courier_recv recvs[COURIER_RECVS];
};

void courier_init(struct courier *c, struct sim *sim, uint64_t seed, bool calm);
void courier_free(struct courier *c);
/* One thing, drawn: a send, a receive, a probe, a cancel. */
void courier_act(struct courier *c);
/* Notes what has ended. */
void courier_collect(struct courier *c);
/* The node closes (or has crashed): its requests end nowhere. */
void courier_lose(struct courier *c, int rank);
/* Receives all that can be received, and lets the rest come to its end. Fails the test if something does not
 * end. */
void courier_drain(struct courier *c);
/* What must hold. Gives the number of messages that were received. */
uint64_t courier_check(const struct courier *c);
uint64_t courier_hash(const struct courier *c, uint64_t hash);
/* That nodes hold nothing of messages that are over, and budgets balance. */
void courier_check_idle(struct courier *c);
