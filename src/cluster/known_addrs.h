/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses where a node may be, and which of them a dialer is to dial. No I/O, no clock.
 *
 *  - One entry for each address: whoever listens there is one process, whatever is claimed. What a handshake
 *    proved stands above all claims; two different claims only mean that the address must be looked at.
 *  - Those told by members, given by the user or proven before are of the first tier.
 *  - Full: entries that were never proven go first, those tried in vain before those not tried yet. */
#pragma once

#include "connect/dialer.h"
#include "core/heap.h"
#include "membership/view.h"
#include "os/sock.h"

#define KNOWN_ADDRS_MAX        2048
#define KNOWN_ADDR_WHY_MAX     160
#define KNOWN_ADDR_HEAD_START  (100 * NS_PER_MS) /* of the better address of a node */
#define KNOWN_ADDR_COURTESY    (200 * NS_PER_MS) /* the larger identity waits: the smaller one dials it */
#define KNOWN_ADDR_PAUSE_MIN   (250 * NS_PER_MS)
#define KNOWN_ADDR_PAUSE_MAX   (15 * NS_PER_S)
#define KNOWN_ADDR_PAUSE_KNOWN (4 * NS_PER_S) /* at most, where a peer was proven to be */
#define KNOWN_ADDR_DIALS_MAX   32             /* at once */
#define KNOWN_ADDR_BUCKETS     1024
#define KNOWN_ADDRS_LEFT_MAX   64 /* identities that are remembered after they left */

struct known_addr {
    bool used;
    bool seed;                 /* the user gave the address */
    bool trusted;              /* a member told it */
    bool claimed;              /* `who` is set */
    bool proven;               /* and it was found to be so */
    bool linked;               /* we are joined to `who` */
    bool contested;            /* somebody says that another one is there */
    bool self;                 /* it is us: never dialled */
    struct dial_target target; /* its key is our index; tries are counted since we were joined */
    int next;                  /* in its bucket */
    uint32_t contests;         /* looked at in vain while joined to `who` */
    uint64_t order;            /* counts the entries */
    uint64_t told_ns, tried_ns;
    uint64_t contest_ns; /* not looked at before while joined to `who` */
    uint64_t round_trip_ns;
    struct identity who;
    struct sock_addr addr;
    char why[KNOWN_ADDR_WHY_MAX]; /* the last failure */
};

struct known_addrs {
    struct heap *heap;
    struct identity self;
    struct dialer *dialer;
    struct known_addr *list;
    int room, count;
    int buckets[KNOWN_ADDR_BUCKETS]; /* by address: index, -1: empty */
    uint64_t told;
    uint64_t swept_ns;
    struct identity left[KNOWN_ADDRS_LEFT_MAX]; /* a ring: the oldest goes first */
    uint64_t left_count;
};

/* How the dialer of a table is to be set up. */
struct dialer_setup known_addrs_dialing(uint64_t connect_timeout_ns, uint64_t seed);
/* `dialer` is lent. */
void known_addrs_init(struct known_addrs *c, struct heap *heap, const struct identity *self,
                      struct dialer *dialer, uint64_t now_ns);
void known_addrs_fini(struct known_addrs *c);

struct known_addr_tip {
    const struct sock_addr *addr;
    const struct identity *claim; /* NULL: a seed */
    bool trusted;
    bool linked; /* we are joined to the one claimed */
};
void known_addrs_tell(struct known_addrs *c, const struct known_addr_tip *tip, uint64_t now_ns);

/* What comes before what: 0 before 1. */
int known_addr_tier(const struct known_addr *e);
void known_addrs_sweep(struct known_addrs *c, uint64_t now_ns); /* forgets who was not told for long */

/* The attempt ends with it, if the dialer has not ended it. */
void known_addrs_failed(struct known_addrs *c, int index, const char *why, uint64_t now_ns);
void known_addrs_given_up(struct known_addrs *c, int index, uint64_t now_ns); /* not needed any more */
void known_addrs_self(struct known_addrs *c, int index);
void known_addrs_released(struct known_addrs *c, int index); /* the attempt is over */
/* This one listens there. The attempt goes on. */
void known_addrs_proven(struct known_addrs *c, int index, const struct identity *who, bool linked,
                        uint64_t round_trip_ns, uint64_t now_ns);
void known_addrs_linked(struct known_addrs *c, const struct identity *who);
/* The connection to it ended. `at_once`: all its addresses are dialled without a pause, but for courtesy. */
void known_addrs_lost(struct known_addrs *c, const struct identity *who, bool at_once, uint64_t now_ns);
/* It said goodbye: its addresses are forgotten, unless the user gave them, and later tips about it are
 * ignored. An identity has one process, so it does not come back. */
void known_addrs_left(struct known_addrs *c, const struct identity *who);
bool known_addrs_has_left(const struct known_addrs *c, const struct identity *who);
void known_addrs_hurry(struct known_addrs *c, uint64_t now_ns);
/* Where it is best dialled; -1: not known. */
int known_addrs_best(const struct known_addrs *c, const struct identity *who);
