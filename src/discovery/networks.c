/* SPDX-License-Identifier: Apache-2.0 */
/* Which interfaces mDNS is to use: as host_best chooses addresses, but all of an interface's. */
#include "discovery/networks.h"

#include <stdio.h>
#include <string.h>

/* Kinds from best to worst; a worse one is used only where no better one is. */
static int tier_of(enum interface_kind kind)
{
    return kind == INTERFACE_OTHER ? INTERFACE_WIRE : (int)kind;
}

static bool bound_to(const struct interface *i, const char *bind)
{
    struct sock_addr addr;

    if (strcmp(i->name, bind) == 0)
        return true;
    if (sock_addr_parse(bind, 0, &addr) != HEARTH_OK)
        return false;
    if (sock_addr_wildcard(&addr))
        return sock_addr_family(&addr) != SOCK_IPV4 || sock_addr_family(&i->addr) == SOCK_IPV4;
    return sock_addr_same_host(&addr, &i->addr);
}

static bool bind_is_one(const char *bind)
{
    struct sock_addr addr;

    return bind && !(sock_addr_parse(bind, 0, &addr) == HEARTH_OK && sock_addr_wildcard(&addr));
}

/* All usable addresses of the interface that is at this place, in the list's order. */
static void add(struct networks *n, const struct interface *list, int count, int at, const char *bind)
{
    struct network *network = &n->list[n->count];
    struct sock_addr addrs[MDNS_ADDRESSES];
    int found = 0;

    if (n->count == NETWORKS_MAX || networks_find(n, list[at].name))
        return;
    for (int i = 0; i < count && found < MDNS_ADDRESSES; i++)
        if (strcmp(list[i].name, list[at].name) == 0 && (!bind || bound_to(&list[i], bind)))
            addrs[found++] = list[i].addr;
    memset(network, 0, sizeof *network);
    memcpy(network->name, list[at].name, sizeof network->name);
    network->loopback = list[at].kind == INTERFACE_LOOPBACK;
    while (found > 0 &&
           mdns_line_address(network->name, addrs, found, network->line, sizeof network->line) == 0)
        found--; /* long ones at the end */
    n->count += found > 0;
}

void networks_choose(struct networks *n, const struct interface *list, int count, const char *bind)
{
    bool one = bind_is_one(bind);
    int best = INTERFACE_LOOPBACK;

    memset(n, 0, sizeof *n);
    for (int i = 0; i < count; i++)
        if (list[i].up && tier_of(list[i].kind) < best)
            best = tier_of(list[i].kind);
    for (int i = 0; i < count; i++) {
        bool usable = tier_of(list[i].kind) == best || list[i].kind == INTERFACE_LOOPBACK;
        if (one ? bound_to(&list[i], bind) : list[i].up && usable)
            add(n, list, count, i, bind);
    }
}

void networks_look(struct networks *n, const char *bind)
{
    struct interface list[INTERFACES_MAX];
    int count = 0;

    if (host_interfaces(list, &count) != HEARTH_OK)
        count = 0;
    networks_choose(n, list, count, bind);
}

const struct network *networks_find(const struct networks *n, const char *name)
{
    for (int i = 0; i < n->count; i++)
        if (strcmp(n->list[i].name, name) == 0)
            return &n->list[i];
    return NULL;
}

bool networks_equal(const struct networks *a, const struct networks *b)
{
    if (a->count != b->count)
        return false;
    for (int i = 0; i < a->count; i++)
        if (strcmp(a->list[i].line, b->list[i].line) != 0)
            return false;
    return true;
}
