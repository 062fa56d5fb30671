/* SPDX-License-Identifier: Apache-2.0 */
/* What a listening end does about strangers beside turning them away: it bounds the handshakes that cost
 * something, and says who came and why he was sent away, without letting strangers fill the log. */
#pragma once

#include "core/log.h"
#include "os/sock.h"
#include "security/admission.h"

#define GUARD_NAMED_MAX 64 /* sources that are named in the log, each once */

struct guard {
    struct log log;
    struct admission admission;
    uint64_t now_ns;
    uint64_t refused, untold; /* handshakes that were not let in; those the log does not know of */
    uint64_t told_ns;         /* when it was told last */
    int named_count;
    uint64_t named[GUARD_NAMED_MAX]; /* sources: sock_addr_network */
};

/* `more` as of admission_init. */
void guard_init(struct guard *guard, const struct log *log, int more);
/* The time, as often as it is known; tells the log, at most once a second, how many were not let in. */
void guard_tick(struct guard *guard, uint64_t now_ns);
/* Whether one more handshake may cost us something; arguments as of admission_take. */
bool guard_admit(struct guard *guard, uint64_t source, bool weak);
/* Somebody was sent away for a reason that people should know: once for each source at WARN. */
void guard_complain(struct guard *guard, const struct sock_addr *from, const char *why);
