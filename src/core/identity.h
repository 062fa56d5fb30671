/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a handshake proves: a key, and which process that has it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

/* A total order, as memcmp. */
static inline int identity_compare(const struct identity *a, const struct identity *b)
{
    int order = memcmp(a->node.bytes, b->node.bytes, NODE_ID_LEN);

    if (order != 0)
        return order;
    return a->instance < b->instance ? -1 : a->instance > b->instance;
}

static inline bool identity_equal(const struct identity *a, const struct identity *b)
{
    return identity_compare(a, b) == 0;
}
