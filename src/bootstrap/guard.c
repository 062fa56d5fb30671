/* SPDX-License-Identifier: Apache-2.0 */
/* Counts handshakes and names strangers. */
#include "bootstrap/guard.h"

#include <inttypes.h>

#include "core/hash.h"

#define EACH_NS (NS_PER_S / GUARD_HANDSHAKES_PER_S)

void guard_init(struct guard *guard, const struct log *log, int more)
{
    *guard = (struct guard){.log = *log, .burst = (uint64_t)(GUARD_HANDSHAKES_BURST + more)};
}

void guard_tick(struct guard *guard, uint64_t now_ns)
{
    guard->now_ns = now_ns;
    if (guard->untold == 0 || now_ns < guard->told_ns + NS_PER_S)
        return;
    log_write(&guard->log, HEARTH_LOG_WARN, "HEARTH-BUSY",
              "%" PRIu64 " handshakes were put off: more than %d a second", guard->untold,
              GUARD_HANDSHAKES_PER_S);
    guard->untold = 0;
    guard->told_ns = now_ns;
}

/* Each costs a slice of time, and the debt may grow to that of a whole burst. */
bool guard_admit(void *arg)
{
    struct guard *guard = arg;
    uint64_t from_ns = guard->due_ns > guard->now_ns ? guard->due_ns : guard->now_ns;

    if (from_ns + EACH_NS - guard->now_ns > guard->burst * EACH_NS) {
        guard->refused++;
        guard->untold++;
        return false;
    }
    guard->due_ns = from_ns + EACH_NS;
    guard->admitted++;
    return true;
}

uint64_t guard_house(const struct sock_addr *from)
{
    struct sock_addr addr = *from;

    if (sock_addr_family(&addr) == SOCK_UNIX)
        return 0;
    sock_addr_set_port(&addr, 0);
    return hash64(1, addr.raw, addr.len);
}

/* Whether the log should hear of this address now. */
static bool is_new(struct guard *guard, uint64_t house)
{
    for (int i = 0; i < guard->named_count; i++)
        if (guard->named[i] == house)
            return false;
    if (guard->named_count == GUARD_NAMED_MAX)
        return false;
    guard->named[guard->named_count++] = house;
    return true;
}

void guard_complain(struct guard *guard, const struct sock_addr *from, const char *why)
{
    char text[SOCK_TEXT_MAX];
    bool first = is_new(guard, guard_house(from));

    sock_addr_text(from, text, sizeof(text));
    log_write(&guard->log, first ? HEARTH_LOG_WARN : HEARTH_LOG_DEBUG, "HEARTH-STRANGER",
              "%s is sent away: %s%s", text, why,
              first && guard->named_count == GUARD_NAMED_MAX ? " (more strangers are not named)" : "");
}
