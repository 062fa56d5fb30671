/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses where a node may be, and which of them to dial next. No I/O, no clock.
 *
 *  - One entry for each address: whoever listens there is one process, whatever is claimed. What a handshake
 *    proved stands above all claims; two different claims only mean that the address must be looked at.
 *  - First come those told by members, given by the user or proven before; then those who wait at an address
 *    that is not being dialled; then those tried least; then those who wait longest. So neither a thousand
 *    forged entries nor one machine with a thousand names keep another one waiting for long.
 *  - Full: entries that were never proven go first, those tried in vain before those not tried yet. */
#ifndef HOME_CANDIDATES_H
#define HOME_CANDIDATES_H

#include "core/heap.h"
#include "core/prng.h"
#include "membership/census.h"
#include "os/sock.h"

#define CANDIDATES_MAX        2048
#define CANDIDATE_WHY_MAX     160
#define CANDIDATE_HEAD_START  (100 * NS_PER_MS) /* of the better address of a node */
#define CANDIDATE_COURTESY    (200 * NS_PER_MS) /* the larger identity waits: the smaller one dials it */
#define CANDIDATE_PAUSE_MIN   (250 * NS_PER_MS)
#define CANDIDATE_PAUSE_MAX   (15 * NS_PER_S)
#define CANDIDATE_PAUSE_KNOWN (4 * NS_PER_S) /* at most, where a fellow was proven to be */
#define CANDIDATE_TIERS       2
#define CANDIDATE_BUCKETS     1024
#define CANDIDATES_LEFT_MAX   64 /* identities that are remembered after they left */

struct candidate {
    bool used;
    bool seed;      /* the user gave the address */
    bool trusted;   /* a member told it */
    bool claimed;   /* `who` is set */
    bool proven;    /* and it was found to be so */
    bool linked;    /* we are joined to `who` */
    bool contested; /* somebody says that another one is there */
    bool self;      /* it is us: never dialled */
    bool dialling;
    int next;          /* in its bucket */
    uint32_t tries;    /* since we were joined to it; decides about the pause */
    uint32_t contests; /* looked at in vain while joined to `who` */
    uint64_t order;    /* counts the entries */
    uint64_t told_ns, tried_ns;
    uint64_t next_ns;    /* not dialled before */
    uint64_t contest_ns; /* not looked at before while joined to `who` */
    uint64_t house;      /* sock_addr_network */
    uint64_t round_trip_ns;
    struct identity who;
    struct sock_addr addr;
    char why[CANDIDATE_WHY_MAX]; /* the last failure */
};

struct candidates {
    struct heap *heap;
    struct identity self;
    struct prng prng;
    struct candidate *list;
    int room, count;
    int buckets[CANDIDATE_BUCKETS]; /* by address: index, -1: empty */
    uint64_t told;
    uint64_t due_ns; /* of the next one, if `settled` */
    bool settled;
    uint64_t swept_ns;
    struct identity left[CANDIDATES_LEFT_MAX]; /* a ring: the oldest goes first */
    uint64_t left_count;
};

void candidates_init(struct candidates *c, struct heap *heap, const struct identity *self, uint64_t seed,
                     uint64_t now_ns);
void candidates_fini(struct candidates *c);

struct candidate_tip {
    const struct sock_addr *addr;
    const struct identity *claim; /* NULL: a seed */
    bool trusted;
    bool linked; /* we are joined to the one claimed */
};
void candidates_tell(struct candidates *c, const struct candidate_tip *tip, uint64_t now_ns);

/* What comes before what: 0 before 1. */
int candidate_tier(const struct candidate *e);
/* Who of a tier is to be dialled now: index, -1: nobody. `houses`: of those that are being dialled. */
int candidates_pick(const struct candidates *c, int tier, const uint64_t *houses, int count, uint64_t now_ns);
uint64_t candidates_due(const struct candidates *c); /* when there will be somebody */
void candidates_settle(struct candidates *c);        /* remembers that, for as long as nothing changes */
void candidates_sweep(struct candidates *c, uint64_t now_ns); /* forgets who was not told for long */

void candidates_dialling(struct candidates *c, int index, uint64_t now_ns);
void candidates_failed(struct candidates *c, int index, const char *why, uint64_t now_ns);
void candidates_given_up(struct candidates *c, int index, uint64_t now_ns); /* not needed any more */
void candidates_self(struct candidates *c, int index);
/* This one listens there. */
void candidates_proven(struct candidates *c, int index, const struct identity *who, bool linked,
                       uint64_t round_trip_ns, uint64_t now_ns);
void candidates_linked(struct candidates *c, const struct identity *who);
/* The connection to it ended. `at_once`: all its addresses are dialled without a pause, but for courtesy. */
void candidates_lost(struct candidates *c, const struct identity *who, bool at_once, uint64_t now_ns);
/* It said goodbye: its addresses are forgotten, unless the user gave them, and later tips about it are
 * ignored. An identity has one process, so it does not come back. */
void candidates_left(struct candidates *c, const struct identity *who);
bool candidates_has_left(const struct candidates *c, const struct identity *who);
void candidates_hurry(struct candidates *c, uint64_t now_ns);
/* Where it is best dialled; -1: not known. */
int candidates_best(const struct candidates *c, const struct identity *who);

#endif
