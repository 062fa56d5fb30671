/* SPDX-License-Identifier: Apache-2.0 */
/* hearth doctor: interfaces, multicast, mDNS, ports and our own addresses. */
#include <string.h>

#include "cli/cluster/network_scan.h"
#include "cli/doctor/doctor.h"
#include "cli/shared/json.h"
#include "connect/dial_driver.h"
#include "discovery/mdns_line.h"
#include "os/clock.h"
#include "os/datagram.h"
#include "os/multicast_probe.h"

#define MULTICAST_WAIT_NS (500 * NS_PER_MS)
#define SELF_WAIT_NS      NS_PER_S
#define LOOK_S            2.5
#define MTU_MIN           1280
#define BACKLOG           4
#define DATAGRAM_BUFFER   65536

/* ---- interfaces ---- */

static const char *kind_name(enum interface_kind kind)
{
    static const char *const names[] = {"network", "other", "tunnel", "virtual", "loopback"};
    return names[kind];
}

/* Without port and brackets. */
static void host_text(const struct sock_addr *addr, char *target, size_t size)
{
    char text[SOCK_TEXT_MAX];
    sock_addr_text(addr, text, sizeof text);
    bool v6 = text[0] == '[';
    size_t len = strcspn(text + v6, v6 ? "]" : ":");
    snprintf(target, size, "%.*s", (int)len, text + v6);
}

/* Whether one of the same name stands above it; `family`: and of the same family. */
static bool seen_above(const struct doctor *d, int index, bool family)
{
    const struct interface *at = &d->interfaces[index];
    for (int i = 0; i < index; i++) {
        const struct interface *other = &d->interfaces[i];
        if (strcmp(other->name, at->name) == 0 &&
            (!family || sock_addr_family(&other->addr) == sock_addr_family(&at->addr)))
            return true;
    }
    return false;
}

static void check_interface(struct doctor *d, int index)
{
    const struct interface *at = &d->interfaces[index];
    char addresses[256] = "", mtu_text[32] = "", fix[128] = "", path[64];
    snprintf(path, sizeof path, "/sys/class/net/%s/mtu", at->name);
    double mtu = number_in(path);
    for (int i = index; i < d->interface_count; i++) {
        char text[SOCK_TEXT_MAX];
        size_t used = strlen(addresses);
        if (strcmp(d->interfaces[i].name, at->name) != 0)
            continue;
        host_text(&d->interfaces[i].addr, text, sizeof text);
        snprintf(addresses + used, sizeof addresses - used, "%s%s", used ? ", " : "", text);
    }
    if (mtu > 0)
        snprintf(mtu_text, sizeof mtu_text, ", MTU %.0f", mtu);
    if (mtu > 0 && mtu < MTU_MIN)
        snprintf(fix, sizeof fix,
                 FIX "ip link set %s mtu 1500, or leave it out with HEARTH_BIND: IPv6 and quic need %d",
                 at->name, MTU_MIN);
    d->about = at->name;
    doctor_note(d, fix[0] ? WARN : PASS, "interface", "%s, %s%s: %s%s", kind_name(at->kind),
                at->up ? "up" : "nothing is plugged in", mtu_text, addresses, fix);
    d->about = NULL;
}

/* One by which other machines may be reached. */
static bool leads_out(const struct interface *at)
{
    return at->up && at->kind != INTERFACE_LOOPBACK && at->kind != INTERFACE_VIRTUAL;
}

static void check_interfaces(struct doctor *d)
{
    int out = 0;
    for (int i = 0; i < d->interface_count; i++) {
        out += leads_out(&d->interfaces[i]);
        if (!seen_above(d, i, false))
            check_interface(d, i);
    }
    if (out == 0)
        doctor_note(d, WARN, "network",
                    "no interface leads to other machines" FIX
                    "plug in a cable or join the wireless network; ip address shows what there is");
}

/* Of the node that runs here, as it tells them; false: none does, or it is no member. */
static bool note_told(struct doctor *d)
{
    size_t i;
    const json_t *member;
    json_array_foreach(json_object_get(json_object_get(d->status, "view"), "members"), i, member)
    {
        const json_t *addresses = json_object_get(member, "addresses");
        size_t count = json_array_size(addresses);
        const char *first = json_string_value(json_array_get(addresses, 0));
        if (strcmp(json_text_of(member, "state"), "self") != 0 || !first)
            continue;
        doctor_note(d, PASS, "bind", "the node that runs here tells others %s first, of %zu address%s", first,
                    count, count == 1 ? "" : "es");
        return true;
    }
    return false;
}

static void check_bind(struct doctor *d)
{
    struct sock_addr listen, addrs[8];
    struct error error;
    int count = 0;
    char text[SOCK_TEXT_MAX];
    const struct host_wanted wanted = {d->config.bind, d->config.advertise, d->config.port,
                                       clock_real() + SELF_WAIT_NS};
    if (note_told(d))
        return;
    if (host_choose(&wanted, &listen, addrs, 8, &count, &error)) {
        doctor_note(d, FAIL, "bind", "%s" FIX "%s", error.text,
                    d->config.bind || d->config.advertise
                        ? "set HEARTH_BIND and HEARTH_ADVERTISE to what there is, or unset them"
                        : "switch an interface on: ip link set NAME up");
        return;
    }
    if (count == 0)
        return;
    host_text(&addrs[0], text, sizeof text);
    doctor_note(d, PASS, "bind", "others are told %s first, of %d address%s", text, count,
                count == 1 ? "" : "es");
}

/* ---- multicast ---- */

static void check_multicast_at(struct doctor *d, const struct interface *at)
{
    struct error error;
    const char *family = sock_addr_family(&at->addr) == SOCK_IPV6 ? "IPv6" : "IPv4";
    d->about = at->name;
    if (multicast_probe(at, clock_real() + MULTICAST_WAIT_NS, &error) == HEARTH_OK)
        doctor_note(d, PASS, "multicast", "%s: joined, sent and heard", family);
    else if (at->kind == INTERFACE_TUNNEL) /* few of them carry it, and there is no fix */
        doctor_note(d, PASS, "multicast", "%s: %s", family, error.text);
    else
        doctor_note(d, WARN, "multicast",
                    "%s: %s" FIX
                    "ip link set %s multicast on, and let udp port 5353 through the firewall; or name a node "
                    "of the cluster: HEARTH_SEEDS",
                    family, error.text, at->name);
    d->about = NULL;
}

static bool mdns_off(const struct doctor *d)
{
    return d->config.mdns && d->config.mdns[0] == 0;
}

static void check_multicast(struct doctor *d)
{
    if (mdns_off(d)) /* then nothing is sent to anybody */
        return;
    for (int i = 0; i < d->interface_count; i++) {
        if (leads_out(&d->interfaces[i]) && !seen_above(d, i, true))
            check_multicast_at(d, &d->interfaces[i]);
    }
}

/* ---- mDNS ---- */

static void check_mdns(struct doctor *d)
{
    const struct look look = {
        .helper = d->config.mdns, .bind = d->config.bind, .wait_s = LOOK_S, .until_first = true};
    struct error error;
    json_t *found;
    if (mdns_off(d)) {
        doctor_note(d, PASS, "mdns",
                    "switched off (HEARTH_MDNS), and so is the check of multicast; seeds: %s",
                    d->config.seeds ? d->config.seeds : "none");
        return;
    }
    if (network_scan(&look, &found, &error)) {
        doctor_note(d, FAIL, "mdns",
                    "%s" FIX "install hearth-mdns beside hearth, or name it with HEARTH_MDNS", error.text);
        return;
    }
    const json_t *discovery = json_object_get(found, "discovery");
    bool works = json_flag_of(discovery, "mdns");
    doctor_note(d, works ? PASS : WARN, "mdns", "%s%s", json_text_of(discovery, "text"),
                works ? ""
                      : FIX "install hearth-mdns beside hearth, or name it with HEARTH_MDNS; without mDNS: "
                            "HEARTH_SEEDS");
    size_t others = json_array_size(json_object_get(d->status ? d->status : found, "nodes"));
    if (others > 0)
        doctor_note(d, PASS, "others", "%zu address%s of other nodes seen: hearth nodes", others,
                    others == 1 ? "" : "es");
    else
        doctor_note(d, WARN, "others",
                    "no other node was seen" FIX
                    "start hearth up on another machine of this network; wireless networks for guests keep "
                    "machines apart; between networks name a node: HEARTH_SEEDS");
    json_decref(found);
}

/* ---- ports ---- */

/* As a node would: all interfaces, both families where there are both. */
static int try_port(uint16_t port, bool datagrams, struct error *error)
{
    static const char *const wildcards[] = {"::", "0.0.0.0"};
    int status = HEARTH_SYSTEM;
    for (int i = 0; i < 2 && status == HEARTH_SYSTEM; i++) {
        struct sock_addr addr, bound;
        struct datagram_port udp;
        int fd = -1;
        if (sock_addr_parse(wildcards[i], port, &addr))
            continue;
        status = datagrams ? datagram_open(&addr, DATAGRAM_BUFFER, &udp, &bound, error)
                           : sock_listen(&addr, BACKLOG, &fd, &bound, error);
        if (status == HEARTH_OK && datagrams)
            datagram_close(&udp);
        else if (status == HEARTH_OK)
            sock_unlisten(fd);
    }
    return status;
}

static void check_port(struct doctor *d)
{
    struct error error;
    int64_t ours = json_count_of(json_object_get(d->status, "self"), "port");
    unsigned wanted = d->config.port;
    if (d->status) {
        doctor_note(d, PASS, "port", "%lld, of the node that runs here", (long long)ours);
        return;
    }
    int tcp = try_port(d->config.port, false, &error);
    int status = tcp == HEARTH_OK ? try_port(d->config.port, true, &error) : tcp;
    if (status == HEARTH_OK)
        doctor_note(d, PASS, "port", "%u is free, tcp and udp", wanted);
    else if (status == HEARTH_LIMIT)
        doctor_note(d, WARN, "port",
                    "%s %u is taken by another program: a node takes the next free one" FIX
                    "ss -lntup 'sport = :%u' shows which; another one: HEARTH_PORT",
                    tcp ? "tcp" : "udp", wanted, wanted);
    else
        doctor_note(d, FAIL, "port", "%s" FIX "choose another one: HEARTH_PORT", error.text);
}

/* ---- our own addresses ---- */

static int dial_self(const struct sock_addr *own, struct error *error)
{
    struct sock_addr bound;
    int listener = -1, dialled = -1;
    int status = sock_listen(own, BACKLOG, &listener, &bound, error);
    if (status)
        return status;
    status = dial_wait(&bound, clock_real() + SELF_WAIT_NS, &dialled, error);
    sock_close(dialled);
    sock_unlisten(listener);
    return status;
}

static bool arrives(struct datagram_port *port, uint64_t deadline)
{
    uint8_t room[DATAGRAM_BATCH];
    struct datagrams list = {.bytes = room};
    struct sock_wait item = {.fd = port->fd, .want_recv = true};
    while (clock_real() < deadline) {
        sock_wait(&item, 1, deadline);
        if (datagram_recv(port, &list, 1) == 1 && list.len == 4 && memcmp(room, "self", 4) == 0)
            return true;
    }
    return false;
}

static int send_self(const struct sock_addr *own, struct error *error)
{
    struct datagram_port port;
    struct sock_addr bound;
    int status = datagram_open(own, DATAGRAM_BUFFER, &port, &bound, error);
    if (status)
        return status;
    status = datagram_send(&port, &bound, "self", 4, 4);
    if (status)
        error_set(error, status, RANK_NONE, "the system refuses to send");
    else if (!arrives(&port, clock_real() + SELF_WAIT_NS))
        status = error_set(error, HEARTH_TIMEOUT, RANK_NONE, "nothing arrives");
    datagram_close(&port);
    return status;
}

static void check_self(struct doctor *d, const struct interface *at, bool datagrams)
{
    char address[SOCK_TEXT_MAX];
    struct error error;
    host_text(&at->addr, address, sizeof address);
    d->about = address;
    int status = datagrams ? send_self(&at->addr, &error) : dial_self(&at->addr, &error);
    doctor_note(d, status ? FAIL : PASS, datagrams ? "udp" : "tcp", "%s%s%s%s",
                status ? "not even this machine reaches it: " : "reached from here", status ? error.text : "",
                status ? FIX "look at ip address, and at the firewall's rules for " : "",
                status ? at->name : "");
    d->about = NULL;
}

void doctor_check_network(struct doctor *d)
{
    if (host_interfaces(d->interfaces, &d->interface_count)) {
        doctor_note(d, FAIL, "network",
                    "the system does not tell its interfaces" FIX "name the address to use: HEARTH_BIND");
        d->interface_count = 0;
    }
    check_interfaces(d);
    check_bind(d);
    check_multicast(d);
    check_mdns(d);
    check_port(d);
    for (int i = 0; i < 2 * d->interface_count; i++) {
        const struct interface *at = &d->interfaces[i % d->interface_count];
        if (at->up)
            check_self(d, at, i >= d->interface_count);
    }
}
