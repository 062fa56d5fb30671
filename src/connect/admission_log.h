/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a listening end: bounds the handshakes that cost something, and names connections that were
 * refused, without letting strangers fill the log. */
#pragma once

#include "core/log.h"
#include "os/sock.h"
#include "security/admission.h"

#define ADMISSION_LOG_SOURCES 64 /* named at WARN, each once */

struct admission_log {
    struct log log;
    struct admission admission;
    uint64_t now_ns;
    uint64_t refused, unreported; /* handshakes that were not admitted; those of them not in the log yet */
    uint64_t reported_ns;
    int named_count;
    uint64_t named[ADMISSION_LOG_SOURCES]; /* sources: sock_addr_network */
};

/* `more` as of admission_init. */
void admission_log_init(struct admission_log *log, const struct log *target, int more);
/* Tells the time; logs at most once a second how many handshakes were refused. */
void admission_log_tick(struct admission_log *log, uint64_t now_ns);
/* Whether one more handshake may be made; arguments as of admission_take. */
bool admission_log_admit(struct admission_log *log, uint64_t source, bool weak);
/* A connection was refused for a reason that people should know: once for each source at WARN. */
void admission_log_complain(struct admission_log *log, const struct sock_addr *from, const char *why);
