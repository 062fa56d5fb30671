/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's networks, the best first. */
#define _GNU_SOURCE 1 /* IFF_* beside struct ifaddrs */
#include "os/host.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/sock_native.h"

/* ---- kinds ---- */

/* Beginnings of names. The first that fits counts. */
static const struct {
    enum interface_kind kind;
    const char *prefix[22];
} names[] = {
    {INTERFACE_VIRTUAL, {"docker",  "br-",    "veth",    "virbr",        "vnet",   "cni",   "flannel",
                         "cali",    "cilium", "kube",    "nodelocaldns", "podman", "lxcbr", "lxdbr",
                         "incusbr", "vmnet",  "vboxnet", "awdl",         "llw",    "dummy", "ifb"}},
    {INTERFACE_TUNNEL,
     {"tun", "utun", "wg", "ppp", "tailscale", "zt", "ipsec", "gre", "sit", "ip6tnl", "vti", "nebula",
      "nordlynx", "proton"}},
    {INTERFACE_WIRE, {"eth", "en", "wl", "ww", "ib", "bond", "team"}},
};

enum interface_kind interface_kind_of_name(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (const char *const *prefix = names[i].prefix; *prefix; prefix++)
            if (strncmp(name, *prefix, strlen(*prefix)) == 0)
                return names[i].kind;
    return INTERFACE_OTHER;
}

static bool sys_has(const char *name, const char *leaf)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, leaf);
    return access(path, F_OK) == 0;
}

bool interface_wireless(const char *name)
{
    return name[0] != '\0' && !strchr(name, '/') && sys_has(name, "wireless");
}

/* 0 if there is none. Decimal or 0x. */
static unsigned long sys_number(const char *name, const char *leaf)
{
    char path[128], text[32];
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, leaf);
    return file_read(path, text, sizeof text) ? strtoul(text, NULL, 0) : 0;
}

/* What /sys/class/net/NAME/type and tun_flags say: linux/if_arp.h, linux/if_tun.h. */
enum {
    ARP_ETHER = 1,
    ARP_INFINIBAND = 32,
    ARP_PPP = 512,
    ARP_TUNNEL = 768,
    ARP_TUNNEL6 = 769,
    ARP_SIT = 776,
    ARP_GRE = 778,
    ARP_NONE = 65534, /* tun, wireguard */
    TUN_IS_TUN = 1,
};

static enum interface_kind kind_of(const char *name, unsigned flags)
{
    if (flags & IFF_LOOPBACK)
        return INTERFACE_LOOPBACK;
    enum interface_kind kind = interface_kind_of_name(name);
    if (kind != INTERFACE_OTHER)
        return kind;
    switch (sys_number(name, "type")) {
    case ARP_PPP:
    case ARP_TUNNEL:
    case ARP_TUNNEL6:
    case ARP_SIT:
    case ARP_GRE:
    case ARP_NONE:
        return INTERFACE_TUNNEL;
    case ARP_INFINIBAND:
        return INTERFACE_WIRE;
    default:
        break;
    }
    if (sys_number(name, "tun_flags") & TUN_IS_TUN)
        return INTERFACE_TUNNEL;
    if (sys_has(name, "bridge"))
        return INTERFACE_OTHER;
    return sys_has(name, "device") || sys_has(name, "wireless") || sys_has(name, "bonding") ? INTERFACE_WIRE
                                                                                            : INTERFACE_OTHER;
}

/* ---- the default route ---- */

#define ROUTES_TEXT_MAX 16384

/* The interface of one line of /proc/net/route if that is a default route that is up, with its metric. */
static bool route_default(const char *line, char name[INTERFACE_NAME_MAX], unsigned long *metric)
{
    unsigned long target, gateway, flags, mask;

    return sscanf(line, "%15s %lx %lx %lx %*u %*u %lu %lx", name, &target, &gateway, &flags, metric, &mask) ==
               6 &&
           target == 0 && mask == 0 && (flags & 1) != 0;
}

/* Empty: there is none, or the system does not tell. */
static void default_interface(char best[INTERFACE_NAME_MAX])
{
    char text[ROUTES_TEXT_MAX], name[INTERFACE_NAME_MAX];
    unsigned long metric, metric_best = 0;

    best[0] = '\0';
    if (!file_read("/proc/net/route", text, sizeof text))
        return;
    for (const char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n')) {
        if (!route_default(line + 1, name, &metric) || (best[0] != '\0' && metric >= metric_best))
            continue;
        memcpy(best, name, INTERFACE_NAME_MAX);
        metric_best = metric;
    }
}

/* ---- the list ---- */

/* Smaller is better. */
static unsigned rank_of(const struct interface *i, const char *route)
{
    return (unsigned)i->kind << 4 | (unsigned)!i->up << 3 |
           (unsigned)(sock_addr_family(&i->addr) == SOCK_IPV6) << 2 | (unsigned)i->link_local << 1 |
           (unsigned)(strcmp(i->name, route) != 0);
}

static bool addr_link_local(const struct sockaddr *native)
{
    if (native->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, native, sizeof(v6));
        return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
    }
    struct sockaddr_in v4;
    memcpy(&v4, native, sizeof(v4));
    return ntohl(v4.sin_addr.s_addr) >> 16 == 0xa9fe; /* 169.254 */
}

/* False: no address that we can use. */
static bool interface_take(struct interface *i, const struct ifaddrs *from)
{
    if (!from->ifa_addr || !(from->ifa_flags & IFF_UP))
        return false;
    int family = from->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6)
        return false;
    socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memset(i, 0, sizeof *i);
    snprintf(i->name, sizeof i->name, "%s", from->ifa_name);
    i->kind = kind_of(i->name, from->ifa_flags);
    i->up = (from->ifa_flags & IFF_RUNNING) != 0;
    i->link_local = addr_link_local(from->ifa_addr);
    return sock_addr_take(&i->addr, from->ifa_addr, len);
}

int host_interfaces(struct interface list[INTERFACES_MAX], int *count)
{
    struct ifaddrs *all;
    struct interface one;
    char route[INTERFACE_NAME_MAX];
    int n = 0;

    if (getifaddrs(&all) != 0)
        return HEARTH_SYSTEM;
    default_interface(route);
    for (const struct ifaddrs *from = all; from; from = from->ifa_next) {
        if (!interface_take(&one, from))
            continue;
        int at = n;
        while (at > 0 && rank_of(&list[at - 1], route) > rank_of(&one, route))
            at--;
        if (at == INTERFACES_MAX)
            continue;
        n += n < INTERFACES_MAX; /* else the last one goes */
        memmove(&list[at + 1], &list[at], (size_t)(n - 1 - at) * sizeof list[0]);
        list[at] = one;
    }
    freeifaddrs(all);
    *count = n;
    return HEARTH_OK;
}

bool host_owns(const struct sock_addr *addr)
{
    struct ifaddrs *all;
    struct interface one;
    bool found = sock_addr_loopback(addr) || sock_addr_wildcard(addr);

    if (found || getifaddrs(&all) != 0)
        return found;
    for (const struct ifaddrs *from = all; from && !found; from = from->ifa_next)
        found = interface_take(&one, from) && sock_addr_same_host(&one.addr, addr);
    freeifaddrs(all);
    return found;
}
