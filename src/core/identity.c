/* SPDX-License-Identifier: Apache-2.0 */
/* Identities: equal, and in which order. */
#include "core/identity.h"

#include <string.h>

bool identity_equal(const struct identity *a, const struct identity *b)
{
    return a->instance == b->instance && memcmp(a->node.bytes, b->node.bytes, NODE_ID_LEN) == 0;
}

int identity_compare(const struct identity *a, const struct identity *b)
{
    int order = memcmp(a->node.bytes, b->node.bytes, NODE_ID_LEN);

    if (order != 0)
        return order;
    return a->instance < b->instance ? -1 : a->instance > b->instance;
}
