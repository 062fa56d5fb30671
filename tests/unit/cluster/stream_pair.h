/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes of one cluster, and tunnels between them whose handshake is done. */
#pragma once

#include "connect/secure_stream.h"
#include "core/heap.h"

/* With a key of its own; all have the same secret. Asserts. */
struct credentials *secure_stream_person(struct heap *heap, uint64_t instance);
/* Over TCP on this machine: [0] dialled [1]. */
void secure_stream_pair(struct heap *heap, const struct credentials *dials, const struct credentials *listens,
                        struct secure_stream *pair[2]);
