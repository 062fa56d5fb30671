/* SPDX-License-Identifier: Apache-2.0 */
/* Which address is dialled when: several side by side, again after a growing pause, a bounded number at
 * once. A machine without I/O; dial_driver.h has the sockets.
 *
 * A target is one address of one peer. It lives in its owner's table, next to what the owner knows of
 * it; the dialer knows when it may be dialled. An attempt is one connection to a target, from the start
 * until the owner reports the result: after the connect it covers the handshake and whatever the owner
 * needs to be sure of the peer (a greeting, a hello).
 *
 *     idle --want--> waiting --start--> connecting --connected--> open --secured--> held --kept--> idle
 *                       ^                   |                      |                 |
 *                       |                failed, late           failed, late       failed
 *                       +------ pause ------+----------------------+-----------------+
 *                       (doubles with every try; half of it is random)
 *
 *  - Owners stagger the addresses of a peer by the time they pass to dialer_want (a head start).
 *  - first_wins: the first connection cancels all other attempts; no attempt starts while it lasts.
 *  - Misses (no listener, or the wrong peer) are counted. A target with more than misses_max is given
 *    up.
 *  - Order of due targets: lower tier, fewer attempts under way to the same network, fewer tries,
 *    longer wait. A thousand forged addresses, or one host with a thousand names, delay other targets
 *    only briefly.
 *  - An attempt that takes longer than `slow` does not count in the window. With drops_slow it is
 *    broken off when another target needs its place.
 *  - adapts: the window starts small, grows while attempts succeed, and is halved when a peer cuts one
 *    or takes too long. Members that all dial at once slow each other down, and a listener closes slow
 *    handshakes. */
#pragma once

#include "core/list.h"
#include "core/prng.h"
#include "core/types.h"

#define DIAL_ATTEMPTS_MAX 192
#define DIAL_TIERS        2
#define DIAL_WINDOW_FIRST 16
#define DIAL_WINDOW_MIN   4
#define DIAL_SLOW_NS      (1500 * NS_PER_MS) /* longer, round trips aside: the peer is overloaded */
#define DIAL_ROUND_TRIPS  8                  /* more than connect, handshake and greeting need */

enum dial_fault {
    DIAL_UNREACHABLE, /* a miss: refused, no route, no answer to the connect */
    DIAL_WRONG_PEER,  /* a miss: connected, but it did not prove to be the node that was meant */
    DIAL_CLOSED,      /* it is there and did not take us */
    DIAL_CUT,         /* the same, and it may be overloaded */
    DIAL_SYSTEM,      /* our own system: no descriptors, no memory */
    DIAL_OTHER_USER   /* a unix socket that another user opened */
};

/* PRIVATE to dialer.c but for `key`, `network`, `tier` and `known`, which are the owner's to set. */
struct dial_target {
    struct list item; /* of dialer->wanted */
    uint32_t key;     /* whatever the owner knows it by */
    uint8_t tier;     /* 0 comes before 1 */
    bool known;       /* the peer was found there before: it is tried more often */
    int16_t attempt;  /* -1: none is under way */
    uint32_t tries;   /* failed; decides the pause */
    uint32_t misses;  /* of them */
    uint64_t next_ns; /* not started before */
    uint64_t network; /* sock_addr_network; 0: does not matter */
};

struct dialer_setup {
    int attempts_max; /* under way at once; at most DIAL_ATTEMPTS_MAX */
    int tier_max;     /* of one tier; 0: attempts_max */
    bool first_wins, adapts, drops_slow;
    uint64_t pause_ns;                     /* the first, after a failure */
    uint64_t pause_miss_ns;                /* the same after a miss */
    uint64_t pause_max_ns, pause_known_ns; /* the longest; of targets that are known */
    uint32_t misses_max;                   /* more, and the target is not wanted; UINT32_MAX: always */
    uint64_t connect_ns, handshake_ns;     /* an attempt may take so long for each; NEVER_NS: any time */
    uint64_t slow_connect_ns, slow_handshake_ns;
    int slow_shift; /* `slow` doubles with every try, so often */
    uint64_t seed;
};

enum dial_state { ATTEMPT_FREE, ATTEMPT_CONNECTING, ATTEMPT_OPEN, ATTEMPT_HELD };

struct dial_attempt {
    struct dial_target *target;
    enum dial_state state;
    uint64_t began_ns, connected_ns, deadline_ns, slow_ns;
};

struct dialer {
    struct dialer_setup setup;
    struct prng prng;
    struct list wanted;
    struct dial_attempt attempts[DIAL_ATTEMPTS_MAX];
    uint64_t now_ns;
    bool settled; /* nothing changed since dialer_output had nothing: */
    uint64_t due_ns;
    uint64_t pace_ns; /* how long handshakes take that succeed: the longest of late */
    int window;
    bool careful;       /* it was too large once: it grows by one when all of it went well */
    int good;           /* since it last changed, while it is careful */
    uint64_t shrunk_ns; /* when */
};

void dialer_init(struct dialer *d, const struct dialer_setup *setup, uint64_t now_ns);

void dial_target_init(struct dial_target *t, uint32_t key);
bool dial_target_busy(const struct dial_target *t);   /* an attempt is under way */
bool dial_target_wanted(const struct dial_target *t); /* or will be */
/* To be dialled from then on. An attempt that is under way goes on; tries and misses stay. */
void dialer_want(struct dialer *d, struct dial_target *t, uint64_t at_ns);
void dialer_unwant(struct dialer *d, struct dial_target *t); /* the same */
void dialer_want_anew(struct dialer *d, struct dial_target *t,
                      uint64_t at_ns); /* tries and misses are forgotten */
/* The owner's table moves: `to` takes the place of `from`. */
void dialer_move(struct dialer *d, struct dial_target *to, const struct dial_target *from);

/* ---- output and time ---- */

enum dial_why { DIAL_START, DIAL_LATE_CONNECT, DIAL_LATE_HANDSHAKE, DIAL_MAKES_ROOM };
/* Start this attempt; else close it: it is over, and accounted for. */
struct dial_order {
    enum dial_why why;
    struct dial_target *target;
    int attempt;
};
void dialer_tick(struct dialer *d, uint64_t now_ns);
bool dialer_output(struct dialer *d, struct dial_order *order); /* until false, after each tick or input */
uint64_t dialer_deadline(const struct dialer *d);               /* when to tick again */

/* ---- input ---- */

void dialer_connected(struct dialer *d, struct dial_target *t, uint64_t now_ns);
/* The handshake is done: from now on the attempt has no deadline but its owner's, and keeps its place. */
void dialer_secured(struct dialer *d, struct dial_target *t, uint64_t now_ns);
/* The end of an attempt; harmless where there is none. Kept: the target is not wanted any more.
 * Cancelled: no failure is counted. Failed: after a pause; with no attempt it is only put off. */
void dialer_kept(struct dialer *d, struct dial_target *t, uint64_t round_trip_ns, uint64_t now_ns);
void dialer_cancelled(struct dialer *d, struct dial_target *t);
void dialer_failed(struct dialer *d, struct dial_target *t, enum dial_fault fault, uint64_t now_ns);
