/* SPDX-License-Identifier: Apache-2.0 */
/* Which of this machine's addresses others reach it by, and ports that are free on it. */
#include "cli/shared/route.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/shared/args.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/random.h"
#include "os/resolve.h"
#include "os/sock_native.h"

#define PORT_FIRST 20000 /* below those that systems hand out by themselves */
#define PORT_LAST  32000
#define PORT_TRIES 200
#define LOOKUP_NS  (10 * NS_PER_S)

/* The first address of an interface, or this address if it is one of ours (NULL: not asked). */
static bool find(const char *name, const struct sock_addr *own, struct route *route)
{
    struct interface list[INTERFACES_MAX];
    char text[SOCK_TEXT_MAX];
    int count;
    if (host_interfaces(list, &count))
        return false;
    for (const struct interface *i = list; i < list + count; i++) {
        if (!(name && strcmp(i->name, name) == 0) && !(own && sock_addr_same_host(&i->addr, own)))
            continue;
        sock_addr_text(&i->addr, text, sizeof text);
        size_t open = text[0] == '[', len = open ? strcspn(text, "]") : strcspn(text, ":");
        snprintf(route->address, sizeof route->address, "%.*s", (int)(len - open), text + open);
        snprintf(route->interface, sizeof route->interface, "%.*s", INTERFACE_NAME_MAX - 1, i->name);
        return true;
    }
    return false;
}

/* Not host_owns: for that all of 127/8 is ours, but other names of this machine may stand for other hosts. */
bool route_owns(const char *text)
{
    struct sock_addr address;
    struct route route;
    return sock_addr_parse(text, 0, &address) == HEARTH_OK && find(NULL, &address, &route);
}

bool route_bind(const char *text, struct route *route)
{
    struct sock_addr address;
    if (find(text, sock_addr_parse(text, 0, &address) == HEARTH_OK ? &address : NULL, route))
        return true;
    snprintf(route->why, sizeof route->why, "'%s' is neither an interface nor an address of this machine",
             text);
    return false;
}

/* A datagram socket that is connected sends nothing, but the system decides for it which way to go. */
static bool source_of(const struct sock_addr *to, struct sock_addr *source)
{
    int fd = socket(sock_addr_native(to)->sa_family, SOCK_DGRAM, 0);
    bool good =
        fd >= 0 && connect(fd, sock_addr_native(to), to->len) == 0 && sock_local(fd, source) == HEARTH_OK;
    if (fd >= 0)
        close(fd);
    return good;
}

bool route_to(const char *host, bool by_name, struct route *route)
{
    struct sock_addr to[RESOLVE_MAX], source;
    struct error error;
    bool found = false;
    int count = sock_addr_parse(host, 9, &to[0]) == HEARTH_OK;
    if (count == 0 && by_name && resolve(host, 9, clock_real() + LOOKUP_NS, to, &count, &error)) {
        snprintf(route->why, sizeof route->why, "%.*s", (int)sizeof route->why - 1, error.text);
        return false;
    }
    for (int i = 0; i < count && !found; i++)
        found = source_of(&to[i], &source);
    if (!found)
        snprintf(route->why, sizeof route->why, "no route to host '%s': %s", host, strerror(errno));
    return found && find(NULL, &source, route);
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
