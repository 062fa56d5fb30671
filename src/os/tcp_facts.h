/* SPDX-License-Identifier: Apache-2.0 */
/* What the system knows of a TCP connection, and how much it may hold back. */
#pragma once

#include <stdint.h>

/* The shortest round trip of any packet, in ns: neither our own slowness nor a queue that comes and goes is
 * in it. 0: not known, or no TCP. */
uint64_t tcp_least_round_trip(int fd);
/* At most so many bytes wait unsent in the system; what is on its way does not count. 0: as the system likes.
 * Without effect where the system cannot do it. */
void tcp_hold_back(int fd, int bytes);
