/* SPDX-License-Identifier: Apache-2.0 */
/* PEERS: the nodes connected to the sender, and their addresses. So one known address is enough to find a
 * whole cluster, across networks that mDNS does not cross. docs/cluster_messages.md, "peers". */
#pragma once

#include "membership/view.h"
#include "os/sock.h"

#define GOSSIP_MAX     64 /* nodes in one message */
#define GOSSIP_LEN_MAX (2 + GOSSIP_MAX * (40 + 1 + PEER_ADDRS_MAX * 20))

size_t gossip_encode(const struct peer_info *const *peer_set, int count, void *target, size_t size);

/* Called for every address in the message. */
typedef void gossip_fn(void *arg, const struct identity *id, const struct sock_addr *addr);
/* HEARTH_PROTOCOL: malformed, and nothing was called. */
int MUST_CHECK gossip_decode(const void *source, size_t len, gossip_fn *fn, void *arg);
