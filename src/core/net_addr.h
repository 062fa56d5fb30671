/* SPDX-License-Identifier: Apache-2.0 */
/* An address of a peer with its port, in plain memory, and its bytes wherever it travels (docs/wire.md,
 * "Peer"). os/sock.h makes addresses of the system from it. */
#pragma once

#include "core/bytes.h"

#define NET_ADDR_LEN_MAX 19

struct net_addr {
    uint16_t family, port; /* 4 or 6 */
    uint32_t scope;        /* interface of a link-local one; means nothing elsewhere and does not travel */
    uint8_t bytes[16];     /* IPv4: the first 4, the others 0 */
};

size_t net_addr_len(const struct net_addr *addr); /* bytes: 7 or 19 */
void net_addr_put(struct writer *w, const struct net_addr *addr);
bool net_addr_get(struct reader *r, struct net_addr *addr); /* false, and r->bad: there is no such address */
