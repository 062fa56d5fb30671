/* SPDX-License-Identifier: Apache-2.0 */
/* Whether multicast works on an interface: a nonce goes to mDNS's group and must come back. */
#define _GNU_SOURCE 1 /* struct ip_mreq, struct ifreq */
#include "os/multicast_probe.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>

#include "os/clock.h"
#include "os/random.h"
#include "os/sock_native.h"

#define AGAIN_NS  (100 * NS_PER_MS) /* between two sendings: a full queue may lose one */
#define NONCE_LEN 16

struct probe {
    const struct interface *at;
    bool v6;
    unsigned index; /* of the interface */
    int hears, says;
    struct sock_addr group; /* with the port at which we hear */
    uint8_t nonce[NONCE_LEN];
};

static int refuse(const struct probe *p, const char *what, struct error *error)
{
    return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot %s on %s: %s", what, p->at->name,
                     strerror(errno));
}

static bool option(int fd, int level, int name, const void *value, socklen_t len)
{
    return setsockopt(fd, level, name, value, len) == 0;
}

static struct in_addr v4_of(const struct sock_addr *addr)
{
    return ((const struct sockaddr_in *)(const void *)sock_addr_native(addr))->sin_addr;
}

static bool join(const struct probe *p)
{
    if (p->v6) {
        struct ipv6_mreq request = {.ipv6mr_interface = p->index};
        request.ipv6mr_multiaddr =
            ((const struct sockaddr_in6 *)(const void *)sock_addr_native(&p->group))->sin6_addr;
        return option(p->hears, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request);
    }
    struct ip_mreq request = {.imr_interface = v4_of(&p->at->addr), .imr_multiaddr = v4_of(&p->group)};
    return option(p->hears, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
}

/* Through this interface, no further than the next machine, and back to ourselves. */
static bool aim(const struct probe *p)
{
    if (p->v6) {
        int on = 1, hops = 1;
        return option(p->says, IPPROTO_IPV6, IPV6_MULTICAST_IF, &p->index, sizeof p->index) &&
               option(p->says, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &on, sizeof on) &&
               option(p->says, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops);
    }
    struct in_addr own = v4_of(&p->at->addr);
    unsigned char on = 1, hops = 1;
    return option(p->says, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own) &&
           option(p->says, IPPROTO_IP, IP_MULTICAST_LOOP, &on, sizeof on) &&
           option(p->says, IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof hops);
}

/* Takes a free port for the hearing socket; the group gets it too. */
static bool take_port(struct probe *p)
{
    struct sock_addr bound;

    if (sock_addr_parse(p->v6 ? "::" : "0.0.0.0", 0, &bound) != HEARTH_OK ||
        bind(p->hears, sock_addr_native(&bound), bound.len) != 0 || sock_local(p->hears, &bound) != HEARTH_OK)
        return false;
    return sock_addr_parse(p->v6 ? "ff02::fb" : "224.0.0.251", sock_addr_port(&bound), &p->group) ==
           HEARTH_OK;
}

static bool heard(const struct probe *p)
{
    uint8_t bytes[NONCE_LEN + 1];
    ssize_t len;
    while ((len = recv(p->hears, bytes, sizeof bytes, 0)) >= 0) {
        if (len == NONCE_LEN && memcmp(bytes, p->nonce, NONCE_LEN) == 0)
            return true;
    }
    return false;
}

static int exchange(const struct probe *p, uint64_t deadline_ns, struct error *error)
{
    struct sock_wait item = {.fd = p->hears, .want_recv = true};
    do {
        if (sendto(p->says, p->nonce, NONCE_LEN, 0, sock_addr_native(&p->group), p->group.len) < 0)
            return refuse(p, "send to mDNS's group", error);
        uint64_t again = clock_real() + AGAIN_NS;
        sock_wait(&item, 1, again < deadline_ns ? again : deadline_ns);
        if (heard(p))
            return HEARTH_OK;
    } while (clock_real() < deadline_ns);
    return error_set(error, HEARTH_TIMEOUT, RANK_NONE,
                     "a datagram sent to mDNS's group on %s did not come back", p->at->name);
}

/* The system joins and sends on such an interface too, and nobody else hears it. Loopback never has the flag.
 */
static bool switched_off(const struct probe *p)
{
    struct ifreq ask;
    memset(&ask, 0, sizeof ask);
    memcpy(ask.ifr_name, p->at->name, strnlen(p->at->name, sizeof ask.ifr_name - 1));
    return p->at->kind != INTERFACE_LOOPBACK && ioctl(p->says, SIOCGIFFLAGS, &ask) == 0 &&
           (ask.ifr_flags & IFF_MULTICAST) == 0;
}

int multicast_probe(const struct interface *at, uint64_t deadline_ns, struct error *error)
{
    struct probe p = {.at = at, .v6 = sock_addr_family(&at->addr) == SOCK_IPV6};
    int status;
    p.index = if_nametoindex(at->name);
    p.hears = sock_make(p.v6 ? AF_INET6 : AF_INET, SOCK_DGRAM);
    p.says = sock_make(p.v6 ? AF_INET6 : AF_INET, SOCK_DGRAM);
    if (p.hears < 0 || p.says < 0 || random_bytes(p.nonce, sizeof p.nonce))
        status = refuse(&p, "make sockets", error);
    else if (switched_off(&p))
        status = error_set(error, HEARTH_SYSTEM, RANK_NONE, "multicast is switched off on %s", at->name);
    else if (!take_port(&p) || !join(&p))
        status = refuse(&p, "join mDNS's group", error);
    else if (!aim(&p))
        status = refuse(&p, "choose the interface for mDNS", error);
    else
        status = exchange(&p, deadline_ns, error);
    sock_close(p.hears);
    sock_close(p.says);
    return status;
}
