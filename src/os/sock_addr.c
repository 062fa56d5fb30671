/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: text, wire and system forms. */
#include "os/sock.h"

#include <arpa/inet.h>
#include <assert.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "core/hash.h"
#include "os/sock_native.h"

#define HOST_MAX     64 /* characters of a numeric host, with its final 0 */
#define PORT_LEN_MAX 5

union native {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
};
_Static_assert(sizeof(union native) <= sizeof(((struct sock_addr *)0)->raw), "raw holds every kind");

static union native native_of(const struct sock_addr *addr)
{
    union native n;
    memset(&n, 0, sizeof n);
    memcpy(&n, addr->raw, addr->len < sizeof n ? addr->len : sizeof n);
    return n;
}

static void native_put(struct sock_addr *addr, const void *native, size_t len)
{
    memset(addr, 0, sizeof *addr);
    memcpy(addr->raw, native, len);
    addr->len = (uint32_t)len;
}

static void v4_put(struct sock_addr *addr, const void *ip, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&v4.sin_addr, ip, 4);
    native_put(addr, &v4, sizeof(v4));
}

static void v6_put(struct sock_addr *addr, const struct in6_addr *ip, uint16_t port, uint32_t scope)
{
    if (IN6_IS_ADDR_V4MAPPED(ip)) {
        v4_put(addr, &ip->s6_addr[12], port);
        return;
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = *ip};
    v6.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(ip) ? scope : 0;
    native_put(addr, &v6, sizeof(v6));
}

bool sock_addr_take(struct sock_addr *addr, const struct sockaddr *native, socklen_t len)
{
    union native n;

    if (len < sizeof native->sa_family || len > sizeof n)
        return false;
    memset(&n, 0, sizeof n);
    memcpy(&n, native, len);
    if (n.any.sa_family == AF_INET && len >= sizeof n.v4)
        v4_put(addr, &n.v4.sin_addr, ntohs(n.v4.sin_port));
    else if (n.any.sa_family == AF_INET6 && len >= sizeof n.v6)
        v6_put(addr, &n.v6.sin6_addr, ntohs(n.v6.sin6_port), n.v6.sin6_scope_id);
    else if (n.any.sa_family == AF_UNIX)
        native_put(addr, &n.un, len);
    else
        return false;
    return true;
}

const struct sockaddr *sock_addr_native(const struct sock_addr *addr)
{
    return (const struct sockaddr *)(const void *)addr->raw;
}

enum sock_family sock_addr_family(const struct sock_addr *addr)
{
    if (addr->len == 0)
        return SOCK_NONE;
    switch (native_of(addr).any.sa_family) {
    case AF_INET:
        return SOCK_IPV4;
    case AF_INET6:
        return SOCK_IPV6;
    case AF_UNIX:
        return SOCK_UNIX;
    default:
        return SOCK_NONE;
    }
}

uint16_t sock_addr_port(const struct sock_addr *addr)
{
    union native n = native_of(addr);
    enum sock_family family = sock_addr_family(addr);
    return family == SOCK_IPV4 ? ntohs(n.v4.sin_port) : family == SOCK_IPV6 ? ntohs(n.v6.sin6_port) : 0;
}

void sock_addr_set_port(struct sock_addr *addr, uint16_t port)
{
    union native n = native_of(addr);
    enum sock_family family = sock_addr_family(addr);
    if (family == SOCK_IPV4)
        v4_put(addr, &n.v4.sin_addr, port);
    else if (family == SOCK_IPV6)
        v6_put(addr, &n.v6.sin6_addr, port, n.v6.sin6_scope_id);
}

bool sock_addr_equal(const struct sock_addr *a, const struct sock_addr *b)
{
    return a->len == b->len && memcmp(a->raw, b->raw, a->len) == 0;
}

bool sock_addr_same_host(const struct sock_addr *a, const struct sock_addr *b)
{
    struct net_addr one, two;

    return sock_addr_to_net(a, &one) && sock_addr_to_net(b, &two) && one.family == two.family &&
           memcmp(one.bytes, two.bytes, sizeof one.bytes) == 0;
}

uint64_t sock_addr_network(const struct sock_addr *addr)
{
    union native n = native_of(addr);

    switch (sock_addr_family(addr)) {
    case SOCK_IPV4:
        return hash64(4, &n.v4.sin_addr, sizeof n.v4.sin_addr);
    case SOCK_IPV6: /* every interface has the same /64 for itself, beside those of its network */
        return hash64(6 + (uint64_t)n.v6.sin6_scope_id, &n.v6.sin6_addr, 8);
    default:
        return 0;
    }
}

bool sock_addr_loopback(const struct sock_addr *addr)
{
    union native n = native_of(addr);
    enum sock_family family = sock_addr_family(addr);
    return family == SOCK_UNIX || (family == SOCK_IPV4 && ntohl(n.v4.sin_addr.s_addr) >> 24 == 127) ||
           (family == SOCK_IPV6 && IN6_IS_ADDR_LOOPBACK(&n.v6.sin6_addr));
}

bool sock_addr_wildcard(const struct sock_addr *addr)
{
    union native n = native_of(addr);
    enum sock_family family = sock_addr_family(addr);
    return (family == SOCK_IPV4 && n.v4.sin_addr.s_addr == htonl(INADDR_ANY)) ||
           (family == SOCK_IPV6 && IN6_IS_ADDR_UNSPECIFIED(&n.v6.sin6_addr));
}

/* ---- unix ---- */

_Static_assert(SOCK_FOLDER_MAX + 1 + SOCK_NAME_MAX <= sizeof(((struct sockaddr_un *)0)->sun_path),
               "every name fits behind every folder");
_Static_assert(SOCK_PATH_MAX < sizeof(((struct sockaddr_un *)0)->sun_path), "with its final 0");

const char *sock_addr_path(const struct sock_addr *addr, bool *private)
{
    const char *path = (const char *)addr->raw + offsetof(struct sockaddr_un, sun_path);

    if (sock_addr_family(addr) != SOCK_UNIX || addr->len <= offsetof(struct sockaddr_un, sun_path) ||
        path[0] == '\0')
        return NULL;
    *private = sock_folder_holds(path);
    return path;
}

static int unix_put(struct sock_addr *addr, const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t len = strlen(path);

    if (len > SOCK_PATH_MAX)
        return HEARTH_INVALID;
    memcpy(un.sun_path, path, len);
    native_put(addr, &un, offsetof(struct sockaddr_un, sun_path) + len + 1);
    return HEARTH_OK;
}

void sock_addr_in_folder(struct sock_addr *addr, const char *folder, const char *name)
{
    char path[SOCK_FOLDER_MAX + 1 + SOCK_NAME_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int status = unix_put(addr, path);
    assert(status == HEARTH_OK);
    (void)status;
}

/* Printable, and a plain file name. */
static bool name_good(const char *name)
{
    size_t len = strnlen(name, SOCK_NAME_MAX + 1);
    if (len == 0 || len > SOCK_NAME_MAX || name[0] == '.')
        return false;
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '/')
            return false;
    return true;
}

static int unix_parse(const char *text, struct sock_addr *out)
{
    char folder[SOCK_FOLDER_MAX];

    if (text[0] == '/')
        return unix_put(out, text);
    if (text[0] != '@' || !name_good(text + 1))
        return HEARTH_INVALID;
    sock_folder(folder);
    sock_addr_in_folder(out, folder, text + 1);
    return HEARTH_OK;
}

static void unix_text(const struct sock_addr *addr, char *text, size_t size)
{
    bool private = false;
    const char *path = sock_addr_path(addr, &private);

    if (!path)
        snprintf(text, size, "unix:"); /* the end that dialled has no name */
    else
        snprintf(text, size, "unix:%s%.*s", private ? "@" : "",
                 (int)sizeof(((struct sockaddr_un *)0)->sun_path), private ? strrchr(path, '/') + 1 : path);
}

/* ---- text ---- */

bool sock_port_parse(const char *text, uint16_t *port)
{
    uint32_t value = 0;
    size_t len = strnlen(text, PORT_LEN_MAX + 1);

    if (len == 0 || len > PORT_LEN_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *port = (uint16_t)value;
    return value <= UINT16_MAX;
}

static int v6_parse(char *host, uint16_t port, struct sock_addr *out)
{
    struct in6_addr ip;
    uint32_t scope = 0;
    char *percent = strchr(host, '%');

    if (percent) {
        *percent = '\0';
        scope = if_nametoindex(percent + 1);
        if (scope == 0)
            return HEARTH_INVALID;
    }
    if (inet_pton(AF_INET6, host, &ip) != 1)
        return HEARTH_INVALID;
    v6_put(out, &ip, port, scope);
    return HEARTH_OK;
}

int sock_addr_parse(const char *text, uint16_t default_port, struct sock_addr *out)
{
    char host[HOST_MAX];
    struct in_addr ip;
    uint16_t port = default_port;

    if (strncmp(text, "unix:", 5) == 0)
        return unix_parse(text + 5, out);
    const char *colon = strchr(text, ':'), *end = NULL;
    bool v6 = text[0] == '[';
    if (v6) {
        end = strchr(++text, ']');
        if (!end || (end[1] != '\0' && (end[1] != ':' || !sock_port_parse(end + 2, &port))))
            return HEARTH_INVALID;
    } else if (colon && strchr(colon + 1, ':')) {
        v6 = true;
        end = text + strlen(text);
    } else {
        end = colon ? colon : text + strlen(text);
        if (colon && !sock_port_parse(colon + 1, &port))
            return HEARTH_INVALID;
    }
    if ((size_t)(end - text) >= sizeof host)
        return HEARTH_INVALID;
    memcpy(host, text, (size_t)(end - text));
    host[end - text] = '\0';
    if (v6)
        return v6_parse(host, port, out);
    if (inet_pton(AF_INET, host, &ip) != 1)
        return HEARTH_INVALID;
    v4_put(out, &ip, port);
    return HEARTH_OK;
}

void sock_addr_text(const struct sock_addr *addr, char *text, size_t size)
{
    union native n = native_of(addr);
    char host[INET6_ADDRSTRLEN] = "", name[IF_NAMESIZE] = "";

    assert(size > 0);
    switch (sock_addr_family(addr)) {
    case SOCK_IPV4:
        inet_ntop(AF_INET, &n.v4.sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, sock_addr_port(addr));
        return;
    case SOCK_IPV6:
        inet_ntop(AF_INET6, &n.v6.sin6_addr, host, sizeof host);
        if (n.v6.sin6_scope_id != 0 && !if_indextoname(n.v6.sin6_scope_id, name))
            name[0] = '\0';
        snprintf(text, size, "[%s%s%s]:%u", host, name[0] != '\0' ? "%" : "", name, sock_addr_port(addr));
        return;
    case SOCK_UNIX:
        unix_text(addr, text, size);
        return;
    default:
        snprintf(text, size, "none");
        return;
    }
}

/* ---- wire: family (4 or 6), port, address. Scopes mean nothing to other machines: they stay here. ---- */

bool sock_addr_to_net(const struct sock_addr *addr, struct net_addr *out)
{
    union native n = native_of(addr);
    enum sock_family family = sock_addr_family(addr);

    *out = (struct net_addr){.family = family == SOCK_IPV4 ? 4 : 6, .port = sock_addr_port(addr)};
    if (family == SOCK_IPV4) {
        memcpy(out->bytes, &n.v4.sin_addr, 4);
    } else if (family == SOCK_IPV6) {
        memcpy(out->bytes, &n.v6.sin6_addr, 16);
        out->scope = n.v6.sin6_scope_id;
    }
    return family == SOCK_IPV4 || family == SOCK_IPV6;
}

struct sock_addr sock_addr_of(const struct net_addr *net)
{
    struct sock_addr addr;
    struct in6_addr ip;

    memcpy(&ip, net->bytes, sizeof ip);
    if (net->family == 4)
        v4_put(&addr, &ip, net->port);
    else
        v6_put(&addr, &ip, net->port, net->scope);
    return addr;
}
