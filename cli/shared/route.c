/* SPDX-License-Identifier: Apache-2.0 */
/* Which of this machine's addresses others reach it by, and ports that are free on it. */
#include "cli/shared/route.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/shared/args.h"
#include "os/random.h"
#include "os/sock.h"

#define PORT_FIRST 20000 /* below those that systems hand out by themselves */
#define PORT_LAST  32000
#define PORT_TRIES 200

/* false: no address of IP. */
static bool address_text(const struct sockaddr *address, struct route *route)
{
    if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return false;
    socklen_t len = address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return getnameinfo(address, len, route->address, sizeof route->address, NULL, 0, NI_NUMERICHOST) == 0;
}

/* The first address for which one of both texts fits (NULL: not asked), IPv4 before IPv6. */
static bool find(const char *iface, const char *number, struct route *route)
{
    struct ifaddrs *all, *found = NULL;
    struct route one;
    if (getifaddrs(&all) != 0)
        return false;
    for (int pass = 0; pass < 2 && !found; pass++) {
        for (struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
            if (!address_text(at->ifa_addr, &one) || at->ifa_addr->sa_family != (pass ? AF_INET6 : AF_INET))
                continue;
            if ((iface && strcmp(at->ifa_name, iface) == 0) || (number && strcmp(one.address, number) == 0))
                found = at;
        }
    }
    if (found) {
        memcpy(route->address, one.address, sizeof one.address);
        snprintf(route->interface, sizeof route->interface, "%s", found->ifa_name);
    }
    freeifaddrs(all);
    return found;
}

/* Numbers in the form that getnameinfo gives; false: a name, or nothing at all. */
static bool normal_form(const char *text, struct route *route)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *info;
    if (getaddrinfo(text, NULL, &hints, &info) != 0)
        return false;
    bool good = address_text(info->ai_addr, route);
    freeaddrinfo(info);
    return good;
}

/* Not host_owns: for that all of 127/8 is ours, but other names of this machine may stand for other hosts. */
bool route_owns(const char *text)
{
    struct route route;
    return normal_form(text, &route) && find(NULL, route.address, &route);
}

bool route_bind(const char *text, struct route *route)
{
    struct route number;
    if (find(text, normal_form(text, &number) ? number.address : NULL, route))
        return true;
    snprintf(route->why, sizeof route->why, "'%s' is neither an interface nor an address of this machine",
             text);
    return false;
}

/* A datagram socket that is connected sends nothing, but the system decides for it which way to go. */
static bool source_of(const struct addrinfo *info, struct route *route)
{
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    int fd = socket(info->ai_family, SOCK_DGRAM, 0);
    bool good = fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
                address_text((struct sockaddr *)&own, route);
    if (fd >= 0)
        close(fd);
    return good;
}

bool route_to(const char *host, bool by_name, struct route *route)
{
    struct addrinfo hints = {.ai_flags = by_name ? 0 : AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM}, *all;
    bool found = false;
    int code = getaddrinfo(host, "9", &hints, &all);
    if (code != 0) {
        snprintf(route->why, sizeof route->why, "cannot find host '%s': %s", host, gai_strerror(code));
        return false;
    }
    for (struct addrinfo *one = all; one && !found; one = one->ai_next)
        found = source_of(one, route);
    freeaddrinfo(all);
    if (!found)
        snprintf(route->why, sizeof route->why, "no route to host '%s': %s", host, strerror(errno));
    else if (!find(NULL, route->address, route))
        route->interface[0] = 0;
    return found;
}

int route_check_bind(const struct usage *usage, const char *bind)
{
    struct route route;
    if (!bind || route_bind(bind, &route))
        return ARGS_GO;
    return args_refuse(usage, "--bind %.64s: %s", bind, route.why);
}

/* On a machine without IPv6 nothing listens there. */
static bool is_free(uint16_t port)
{
    static const char *const wildcards[] = {"0.0.0.0", "::"};
    int status = HEARTH_OK, fd;
    for (int i = 0; i < 2 && status == HEARTH_OK; i++) {
        struct sock_addr any;
        struct error error;
        status = sock_addr_parse(wildcards[i], port, &any);
        if (status == HEARTH_OK && (status = sock_listen(&any, 1, &fd, NULL, &error)) == HEARTH_OK)
            sock_close(fd);
        else if (i == 1 && status == HEARTH_SYSTEM)
            status = HEARTH_OK;
    }
    return status == HEARTH_OK;
}

uint16_t route_ports(void)
{
    for (int i = 0; i < PORT_TRIES; i++) {
        uint16_t draw;
        if (random_bytes(&draw, sizeof draw))
            return 0;
        uint16_t port = (uint16_t)(PORT_FIRST + draw % (PORT_LAST - PORT_FIRST));
        if (is_free(port) && is_free((uint16_t)(port + 1)))
            return port;
    }
    return 0;
}
