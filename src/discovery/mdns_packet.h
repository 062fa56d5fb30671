/* SPDX-License-Identifier: Apache-2.0 */
/* A look at a packet of multicast DNS before others take it apart. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether all of it is as it should be: every name ends, is not too long and points backwards only; every
 * record is whole, and of a length that its type allows. No CNAME and DNAME: they are not needed in multicast
 * DNS, and avahi 0.8 follows one that points at itself until its stack ends. */
bool mdns_packet_good(const uint8_t *bytes, size_t len);
