/* SPDX-License-Identifier: Apache-2.0 */
/* Which of this machine's addresses others reach it by, and ports that are free on it. */
#include "cli/shared/route.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/shared/args.h"
#include "os/random.h"

#define PORT_FIRST 20000 /* below those that systems hand out by themselves */
#define PORT_LAST  32000
#define PORT_TRIES 200
#define WHY_MAX    256

/* false: no address of IP. */
static bool address_text(const struct sockaddr *address, char *text)
{
    socklen_t len = sizeof(struct sockaddr_in6);
    if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return false;
    if (address->sa_family == AF_INET)
        len = sizeof(struct sockaddr_in);
    return getnameinfo(address, len, text, ROUTE_TEXT_MAX, NULL, 0, NI_NUMERICHOST) == 0;
}

/* The first address for which one of both texts fits (NULL: not asked), IPv4 before IPv6. */
static bool find(const char *iface, const char *number, char *address, char *name)
{
    struct ifaddrs *all, *found = NULL;
    char text[ROUTE_TEXT_MAX];
    if (getifaddrs(&all) != 0)
        return false;
    for (int pass = 0; pass < 2 && !found; pass++) {
        for (struct ifaddrs *one = all; one && !found; one = one->ifa_next) {
            if (!address_text(one->ifa_addr, text) || one->ifa_addr->sa_family != (pass ? AF_INET6 : AF_INET))
                continue;
            if ((iface && strcmp(one->ifa_name, iface) == 0) || (number && strcmp(text, number) == 0))
                found = one;
        }
    }
    if (found) {
        snprintf(address, ROUTE_TEXT_MAX, "%s", text);
        snprintf(name, ROUTE_IFACE_MAX, "%s", found->ifa_name);
    }
    freeifaddrs(all);
    return found;
}

/* Numbers in the form that getnameinfo gives; false: a name, or nothing at all. */
static bool normal_form(const char *text, char *address)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *info;
    if (getaddrinfo(text, NULL, &hints, &info) != 0)
        return false;
    bool good = address_text(info->ai_addr, address);
    freeaddrinfo(info);
    return good;
}

/* Not host_owns: for that all of 127/8 is ours, but other names of this machine may stand for other hosts. */
bool route_owns(const char *text)
{
    char number[ROUTE_TEXT_MAX], address[ROUTE_TEXT_MAX], interface[ROUTE_IFACE_MAX];
    return normal_form(text, number) && find(NULL, number, address, interface);
}

bool route_bind(const char *text, char *address, char *interface, char *why, size_t size)
{
    char number[ROUTE_TEXT_MAX];
    if (find(text, normal_form(text, number) ? number : NULL, address, interface))
        return true;
    snprintf(why, size, "'%s' is neither an interface nor an address of this machine", text);
    return false;
}

/* A datagram socket that is connected sends nothing, but the system decides for it which way to go. */
static bool source_of(const struct addrinfo *info, char *address)
{
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    int fd = socket(info->ai_family, SOCK_DGRAM, 0);
    bool good = fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
                address_text((struct sockaddr *)&own, address);
    if (fd >= 0)
        close(fd);
    return good;
}

bool route_to(const char *host, char *address, char *interface, char *why, size_t size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *all;
    bool found = false;
    int code = getaddrinfo(host, "9", &hints, &all);
    if (code != 0) {
        snprintf(why, size, "cannot find host '%s': %s", host, gai_strerror(code));
        return false;
    }
    for (struct addrinfo *one = all; one && !found; one = one->ai_next)
        found = source_of(one, address);
    freeaddrinfo(all);
    if (!found)
        snprintf(why, size, "no way from here to host '%s': %s", host, strerror(errno));
    if (found && !find(NULL, address, address, interface))
        snprintf(interface, ROUTE_IFACE_MAX, "unknown");
    return found;
}

bool route_interface(const char *bind, const char *master, char *interface)
{
    char address[ROUTE_TEXT_MAX], why[ROUTE_TEXT_MAX + 64];
    if (bind && bind[0])
        return route_bind(bind, address, interface, why, sizeof why);
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM}, *info;
    if (!master || getaddrinfo(master, "9", &hints, &info) != 0)
        return false;
    bool found = source_of(info, address) && find(NULL, address, address, interface);
    freeaddrinfo(info);
    return found;
}

static bool is_free(uint16_t port)
{
    struct sockaddr_in6 address = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    struct sockaddr_in plain = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, six = socket(AF_INET6, SOCK_STREAM, 0), four = socket(AF_INET, SOCK_STREAM, 0);
    bool good = four >= 0 && bind(four, (struct sockaddr *)&plain, sizeof plain) == 0;
    if (six >= 0 && setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0)
        good = good && (bind(six, (struct sockaddr *)&address, sizeof address) == 0 || errno != EADDRINUSE);
    if (four >= 0)
        close(four);
    if (six >= 0)
        close(six);
    return good;
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

int route_check_bind(const struct usage *usage, const char *bind)
{
    char address[ROUTE_TEXT_MAX], interface[ROUTE_IFACE_MAX], why[WHY_MAX];
    if (!bind || route_bind(bind, address, interface, why, sizeof why))
        return ARGS_GO;
    return args_refuse(usage, "--bind %.64s: %s", bind, why);
}
