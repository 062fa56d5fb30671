/* SPDX-License-Identifier: Apache-2.0 */
/* Names to addresses, with a deadline: the system's look-up cannot be interrupted, so it runs on a thread of
 * its own that is left behind (detached, bounded in number) when it does not answer in time. */
#pragma once

#include "os/sock.h"

#define RESOLVE_MAX 8 /* addresses given for one name */

/* "host:port", "[v6]:port", "host" (then default_port), "unix:...". IPv4 and IPv6, in the system's order.
 * HEARTH_INVALID: not of this form; HEARTH_TIMEOUT; HEARTH_SYSTEM: no such host. The text names it. */
int MUST_CHECK resolve(const char *text, uint16_t default_port, uint64_t deadline_ns,
                       struct sock_addr addrs[RESOLVE_MAX], int *count, struct error *error);
/* The same for a name, without waiting: begin, ask until it is not HEARTH_PENDING, close. Closing
 * before that abandons the look-up. HEARTH_LIMIT: too many are under way. */
struct lookup;
int MUST_CHECK lookup_begin(const char *text, uint16_t default_port, struct lookup **out,
                            struct error *error);
int MUST_CHECK lookup_ask(struct lookup *lookup, struct sock_addr addrs[RESOLVE_MAX], int *count,
                          struct error *error);
void lookup_close(struct lookup *lookup); /* NULL is allowed */

/* Only the form: HEARTH_OK or HEARTH_INVALID with a text. Nothing is looked up. */
int MUST_CHECK resolve_check(const char *text, struct error *error);
