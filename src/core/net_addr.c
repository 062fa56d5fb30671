/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of addresses: family, port, address. */
#include "core/net_addr.h"

static size_t ip_len(const struct net_addr *addr)
{
    return addr->family == 4 ? 4 : 16;
}

size_t net_addr_len(const struct net_addr *addr)
{
    return 3 + ip_len(addr);
}

void net_addr_put(struct writer *w, const struct net_addr *addr)
{
    put_u8(w, (uint8_t)addr->family);
    put_u16(w, addr->port);
    put_bytes(w, addr->bytes, ip_len(addr));
}

bool net_addr_get(struct reader *r, struct net_addr *addr)
{
    *addr = (struct net_addr){.family = get_u8(r)};
    addr->port = get_u16(r);
    get_bytes(r, addr->bytes, ip_len(addr));
    r->bad |= addr->family != 4 && addr->family != 6;
    return !r->bad;
}
