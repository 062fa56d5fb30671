/* SPDX-License-Identifier: Apache-2.0 */
/* A table of ways that is accepted must encode to the bytes it came from, and can be arranged. */
#include <stdlib.h>
#include <string.h>

#include "membership/outbox.h"
#include "membership/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static uint8_t again[MESSAGE_PAYLOAD_MAX];
    static struct topology table;
    struct ring_order order;
    uint64_t hosts[VIEW_MEMBERS_MAX];
    int members[VIEW_MEMBERS_MAX];

    if (len > sizeof again || topology_decode(&table, bytes, len))
        return 0;
    if (topology_encode(&table, again, sizeof again) != len || memcmp(again, bytes, len) != 0)
        abort();
    int count = table.size < 12 ? table.size : 12; /* larger ones only take longer */
    for (int i = 0; i < count; i++) {
        members[i] = i;
        hosts[i] = (uint64_t)i + (topology_path(&table, i, 0)->kind == PATH_SAME_HOST ? 0 : 100);
    }
    topology_arrange(&table, members, hosts, count, &order);
    if (order.size != count || order.sites < 1 || order.sites > count)
        abort();
    return 0;
}
