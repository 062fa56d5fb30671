/* SPDX-License-Identifier: Apache-2.0 */
/* Peers for tests. */
#include "people.h"

#include <stdio.h>
#include <string.h>

struct peer_info person(int number)
{
    struct peer_info f;
    memset(&f, 0, sizeof f);
    f.id.node.bytes[0] = (uint8_t)number;
    memset(f.id.node.bytes + 1, 0xa5, NODE_ID_LEN - 1);
    f.id.instance = UINT64_C(0x1000) + (uint64_t)number;
    f.machine = UINT64_C(0x11110000) + (uint64_t)number;
    f.host_id = UINT64_C(0x22220000) + (uint64_t)number;
    f.process = 4000 + (uint32_t)number;
    f.memory_mib = 16384;
    f.cores = 8;
    f.cpu = 9;
    snprintf(f.name, sizeof f.name, "node-%d", number);
    snprintf(f.platform, sizeof f.platform, "Linux 6.1 x86_64");
    f.addr_count = 2;
    f.addrs[0] = (struct net_addr){4, 52416, 0, {192, 168, 1, (uint8_t)number}};
    f.addrs[1] = (struct net_addr){6, 52416, 0, {0xfd, 0, 1, [15] = (uint8_t)number}};
    return f;
}

struct view people(int size, int leader)
{
    struct view c;
    memset(&c, 0, sizeof c);
    c.instance = 77;
    c.epoch = 5;
    c.term = 3;
    c.leader = leader;
    c.size = size;
    for (int i = 0; i < size; i++)
        c.members[i] = person(i);
    return c;
}
