/* SPDX-License-Identifier: Apache-2.0 */
/* Known addresses of nodes, and which of them to dial. No I/O, no clock.
 *
 *  - One entry for each address: one process listens there, whatever is claimed. The proof of a handshake
 *    outranks all claims; a different claim only causes another dial.
 *  - Addresses told by members, given by the user or proven before are of the first tier.
 *  - A full table drops entries that were never proven first, failed ones before untried ones. */
#pragma once

#include "connect/dialer.h"
#include "core/heap.h"
#include "membership/view.h"
#include "os/sock.h"

#define KNOWN_ADDRS_MAX        2048
#define KNOWN_ADDR_WHY_MAX     160
#define KNOWN_ADDR_HEAD_START  (100 * NS_PER_MS) /* for the better address of a node */
#define KNOWN_ADDR_COURTESY    (200 * NS_PER_MS) /* the larger identity waits: the smaller one dials it */
#define KNOWN_ADDR_PAUSE_MIN   (250 * NS_PER_MS)
#define KNOWN_ADDR_PAUSE_MAX   (15 * NS_PER_S)
#define KNOWN_ADDR_PAUSE_KNOWN (4 * NS_PER_S) /* at most, for a proven address */
#define KNOWN_ADDR_DIALS_MAX   32             /* at once */
#define KNOWN_ADDR_BUCKETS     1024
#define KNOWN_ADDRS_LEFT_MAX   64 /* identities of nodes that left */

struct known_addr {
    bool used;
    bool seed;                 /* the user gave the address */
    bool trusted;              /* a member told it */
    bool claimed;              /* `who` is set */
    bool proven;               /* a handshake proved `who` */
    bool linked;               /* `who` is connected */
    bool contested;            /* another claim names a different node */
    bool self;                 /* this node: never dialled */
    struct dial_target target; /* its key is our index; tries count since the last connection */
    int next;                  /* in its bucket */
    uint32_t contests;         /* dials in vain while `who` is connected */
    uint64_t order;            /* number of the entry */
    uint64_t told_ns, tried_ns;
    uint64_t contest_ns; /* earliest contest dial while `who` is connected */
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

/* The dialer setup for a table. */
struct dialer_setup known_addrs_dialing(uint64_t connect_timeout_ns, uint64_t seed);
/* `dialer` is lent. */
void known_addrs_init(struct known_addrs *c, struct heap *heap, const struct identity *self,
                      struct dialer *dialer, uint64_t now_ns);
void known_addrs_fini(struct known_addrs *c);

struct known_addr_tip {
    const struct sock_addr *addr;
    const struct identity *claim; /* NULL: a seed */
    bool trusted;
    bool linked; /* the claimed node is connected */
};
void known_addrs_tell(struct known_addrs *c, const struct known_addr_tip *tip, uint64_t now_ns);

/* Tier 0 comes before tier 1. */
int known_addr_tier(const struct known_addr *e);
void known_addrs_sweep(struct known_addrs *c, uint64_t now_ns); /* forgets old unconfirmed entries */

/* Ends the attempt, if the dialer has not. */
void known_addrs_failed(struct known_addrs *c, int index, const char *why, uint64_t now_ns);
void known_addrs_given_up(struct known_addrs *c, int index, uint64_t now_ns); /* not needed any more */
void known_addrs_self(struct known_addrs *c, int index);
void known_addrs_released(struct known_addrs *c, int index); /* the attempt is over */
/* This node listens there. The attempt goes on. */
void known_addrs_proven(struct known_addrs *c, int index, const struct identity *who, bool linked,
                        uint64_t round_trip_ns, uint64_t now_ns);
void known_addrs_linked(struct known_addrs *c, const struct identity *who);
/* The connection to it ended. `at_once`: dials all its addresses without a pause, except for courtesy. */
void known_addrs_lost(struct known_addrs *c, const struct identity *who, bool at_once, uint64_t now_ns);
/* It has left: its addresses are forgotten, unless the user gave them, and later tips about it are ignored.
 * An identity has one process, so it does not come back. */
void known_addrs_left(struct known_addrs *c, const struct identity *who);
bool known_addrs_has_left(const struct known_addrs *c, const struct identity *who);
void known_addrs_hurry(struct known_addrs *c, uint64_t now_ns);
/* The best address to dial; -1: unknown. */
int known_addrs_best(const struct known_addrs *c, const struct identity *who);
