/* SPDX-License-Identifier: Apache-2.0 */
/* Counts handshakes and names strangers. */
#include "connect/admission_log.h"

#include <inttypes.h>

void guard_init(struct guard *guard, const struct log *log, int more)
{
    *guard = (struct guard){.log = *log};
    admission_init(&guard->admission, more);
}

void guard_tick(struct guard *guard, uint64_t now_ns)
{
    guard->now_ns = now_ns;
    if (guard->untold == 0 || now_ns < guard->told_ns + NS_PER_S)
        return;
    log_write(&guard->log, HEARTH_LOG_WARN, "HEARTH-BUSY",
              "%" PRIu64 " handshakes were put off: more than %d a second, or too many from one source",
              guard->untold, ADMISSION_PER_S);
    guard->untold = 0;
    guard->told_ns = now_ns;
}

bool guard_admit(struct guard *guard, uint64_t source, bool weak)
{
    bool admitted = admission_take(&guard->admission, source, weak, guard->now_ns);

    guard->refused += !admitted;
    guard->untold += !admitted;
    return admitted;
}

/* Whether the log should hear of this source now. */
static bool is_new(struct guard *guard, uint64_t source)
{
    for (int i = 0; i < guard->named_count; i++)
        if (guard->named[i] == source)
            return false;
    if (guard->named_count == GUARD_NAMED_MAX)
        return false;
    guard->named[guard->named_count++] = source;
    return true;
}

void guard_complain(struct guard *guard, const struct sock_addr *from, const char *why)
{
    char text[SOCK_TEXT_MAX];
    bool first = is_new(guard, sock_addr_network(from));

    sock_addr_text(from, text, sizeof text);
    log_write(&guard->log, first ? HEARTH_LOG_WARN : HEARTH_LOG_DEBUG, "HEARTH-STRANGER",
              "%s is sent away: %s%s", text, why,
              first && guard->named_count == GUARD_NAMED_MAX ? " (more strangers are not named)" : "");
}
