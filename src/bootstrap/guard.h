/* SPDX-License-Identifier: Apache-2.0 */
/* What a listening end does about strangers beside turning them away: it bounds the handshakes that cost
 * something, and says who came and why he was sent away, without letting strangers fill the log. */
#ifndef BOOTSTRAP_GUARD_H
#define BOOTSTRAP_GUARD_H

#include "core/log.h"
#include "os/sock.h"

/* Handshakes of those who know the secret, or have heard and repeat what somebody said who does: so many a
 * second, and so many at once: a full mesh of 64 members with 9 connections each comes to 567 at rank 0. */
#define GUARD_HANDSHAKES_PER_S 64
#define GUARD_HANDSHAKES_BURST 512
#define GUARD_NAMED_MAX        64 /* addresses that are named in the log, each once */

struct guard {
    struct log log;
    uint64_t burst;
    uint64_t now_ns;
    uint64_t due_ns; /* when the last handshake that was let in is paid for */
    uint64_t admitted;
    uint64_t refused, untold; /* handshakes that were not let in; those the log does not know of */
    uint64_t told_ns;         /* when it was told last */
    int named_count;
    uint64_t named[GUARD_NAMED_MAX]; /* houses */
};

/* `more` handshakes at once than usual. */
void guard_init(struct guard *guard, const struct log *log, int more);
/* The time, as often as it is known; tells the log, at most once a second, how many were not let in. */
void guard_tick(struct guard *guard, uint64_t now_ns);
/* Whether one more handshake may cost us something: a session_admit_fn, with the guard as its argument. */
bool guard_admit(void *guard);
/* A number for an address, whatever the port; all unix sockets have one. */
uint64_t guard_house(const struct sock_addr *from);
/* Somebody was sent away for a reason that people should know: once for each address at WARN. */
void guard_complain(struct guard *guard, const struct sock_addr *from, const char *why);

#endif
