/* SPDX-License-Identifier: Apache-2.0 */
/* Counts handshakes, names sources. */
#include "connect/admission_log.h"

#include <inttypes.h>

void admission_log_init(struct admission_log *log, const struct log *target, int more)
{
    *log = (struct admission_log){.log = *target};
    admission_init(&log->admission, more);
}

void admission_log_tick(struct admission_log *log, uint64_t now_ns)
{
    log->now_ns = now_ns;
    if (log->unreported == 0 || now_ns < log->reported_ns + NS_PER_S)
        return;
    log_write(&log->log, HEARTH_LOG_WARN, "HEARTH-BUSY",
              "%" PRIu64 " handshakes were put off: more than %d a second, or too many from one source",
              log->unreported, ADMISSION_PER_S);
    log->unreported = 0;
    log->reported_ns = now_ns;
}

bool admission_log_admit(struct admission_log *log, uint64_t source, bool weak)
{
    bool admitted = admission_take(&log->admission, source, weak, log->now_ns);

    log->refused += !admitted;
    log->unreported += !admitted;
    return admitted;
}

/* Whether this source is to be named now. */
static bool is_new(struct admission_log *log, uint64_t source)
{
    for (int i = 0; i < log->named_count; i++)
        if (log->named[i] == source)
            return false;
    if (log->named_count == ADMISSION_LOG_SOURCES)
        return false;
    log->named[log->named_count++] = source;
    return true;
}

void admission_log_complain(struct admission_log *log, const struct sock_addr *from, const char *why)
{
    char text[SOCK_TEXT_MAX];
    bool first = is_new(log, sock_addr_network(from));

    sock_addr_text(from, text, sizeof text);
    log_write(&log->log, first ? HEARTH_LOG_WARN : HEARTH_LOG_DEBUG, "HEARTH-STRANGER",
              "%s is sent away: %s%s", text, why,
              first && log->named_count == ADMISSION_LOG_SOURCES ? " (more strangers are not named)" : "");
}
