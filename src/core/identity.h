/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a handshake proves: a key, and which process that has it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define NODE_ID_LEN 32

/* SHA3-256 of the public key. */
struct node_id {
    uint8_t bytes[NODE_ID_LEN];
};

/* A member: a node, and which process of it. Ranks that share a key file differ by the instance. */
struct identity {
    struct node_id node;
    uint64_t instance; /* drawn once per hearth_node_open, never 0 */
};

bool identity_equal(const struct identity *a, const struct identity *b);
int identity_compare(const struct identity *a, const struct identity *b); /* a total order: as memcmp */
