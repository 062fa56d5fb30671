/* SPDX-License-Identifier: Apache-2.0 */
/* Whether multicast, by which mDNS finds others, works on an interface: as far as this machine can tell. */
#pragma once

#include "os/host.h"

/* Joins mDNS's group on this interface and sends a nonce to it, at a port of its own, so that mDNS programs
 * do not see it. HEARTH_OK: it came back. HEARTH_TIMEOUT: it was sent, and nothing came before the deadline.
 * HEARTH_SYSTEM: the system does not let us join or send. */
int MUST_CHECK multicast_probe(const struct interface *at, uint64_t deadline_ns, struct error *error);
