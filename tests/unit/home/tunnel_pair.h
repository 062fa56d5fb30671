/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes of one cluster, and tunnels between them whose handshake is done. */
#ifndef TESTS_HOME_TUNNEL_PAIR_H
#define TESTS_HOME_TUNNEL_PAIR_H

#include "bootstrap/tunnel.h"
#include "core/heap.h"

/* With a key of its own; all have the same secret. Asserts. */
struct credentials *tunnel_person(struct heap *heap, uint64_t instance);
/* Over TCP on this machine: [0] dialled [1]. */
void tunnel_pair(struct heap *heap, const struct credentials *dials, const struct credentials *listens,
                 struct tunnel *pair[2]);

#endif
