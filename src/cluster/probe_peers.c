/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the measures of this node's own paths. */
#include "cluster/probe_peers.h"

#include "cluster/probe_meter.h"
#include "os/host.h"

#define NOISE_US  50u /* smaller differences of round trips do not count */
#define US_MAX    UINT32_MAX
#define PPM_NOISE 1000u

void peers_view(struct probe_peers *peers, const struct view *view, const struct identity *self)
{
    int kept = 0;

    for (int i = 0; i < peers->count; i++)
        if (view_find(view, &peers->list[i].id) >= 0)
            peers->list[kept++] = peers->list[i];
    peers->count = kept;
    for (int i = 0; i < view->size; i++) {
        const struct identity *id = &view->members[i].id;
        if (!identity_equal(id, self) && !peers_find(peers, id))
            peers->list[peers->count++] = (struct probe_peer){.id = *id};
    }
}

struct probe_peer *peers_find(struct probe_peers *peers, const struct identity *id)
{
    for (int i = 0; i < peers->count; i++)
        if (identity_equal(&peers->list[i].id, id))
            return &peers->list[i];
    return NULL;
}

void peers_forget_told(struct probe_peers *peers)
{
    for (int i = 0; i < peers->count; i++)
        peers->list[i].told_us = peers->list[i].told_ppm = 0;
}

/* ---- measures ---- */

void peer_round_trip(struct probe_peer *peer, uint64_t round_trip_ns, uint32_t loss_ppm, enum path_kind kind)
{
    uint64_t us = (round_trip_ns + NS_PER_US - 1) / NS_PER_US;

    peer->round_trip_us = us < US_MAX ? (uint32_t)us : US_MAX;
    peer->loss_ppm = loss_ppm < 1000000 ? loss_ppm : 1000000;
    peer->untold |= kind != PATH_UNKNOWN && kind != peer->kind;
    if (kind != PATH_UNKNOWN)
        peer->kind = (uint8_t)kind;
}

void peer_traffic(struct probe_peer *peer, uint64_t bytes, uint64_t time_ns)
{
    peer->traffic_bytes += bytes;
    peer->traffic_ns += time_ns;
    if (peer->traffic_bytes < PEER_TRAFFIC_BYTES || peer->traffic_ns == 0)
        return;
    uint32_t mbit_x10 = meter_mbit_x10((double)peer->traffic_bytes * 1e9 / (double)peer->traffic_ns);
    peer->traffic_bytes = peer->traffic_ns = 0;
    if (peer->how == MEASURED_PROBE)
        return; /* a probe result outranks it and is reported first */
    peer->mbit_x10 =
        peer->how == MEASURED_NOT ? mbit_x10 : (uint32_t)(((uint64_t)peer->mbit_x10 + mbit_x10) / 2);
    peer->how = MEASURED_TRAFFIC;
}

void peer_probed(struct probe_peer *peer, const struct sock_addr *addr, uint32_t mbit_x10,
                 enum path_kind kind)
{
    int at = 0;

    peer->mbit_x10 = mbit_x10;
    peer->how = MEASURED_PROBE;
    if (kind != PATH_UNKNOWN)
        peer->kind = (uint8_t)kind;
    if (!addr || addr->len == 0)
        return;
    while (at < peer->addr_count && !sock_addr_equal(&peer->addrs[at].addr, addr))
        at++;
    if (at == PEER_ADDRS_MAX) { /* many address changes: the oldest goes */
        for (at = 0; at + 1 < PEER_ADDRS_MAX; at++)
            peer->addrs[at] = peer->addrs[at + 1];
    } else if (at == peer->addr_count) {
        peer->addr_count++;
    }
    peer->addrs[at] = (struct peer_addr){.addr = *addr, .mbit_x10 = mbit_x10};
}

void peer_failed(struct probe_peer *peer, const struct sock_addr *addr)
{
    for (int i = 0; i < peer->addr_count; i++)
        if (sock_addr_equal(&peer->addrs[i].addr, addr))
            peer->addrs[i].mbit_x10 = 0;
}

bool peer_best_addr(const struct probe_peer *peer, struct sock_addr *out)
{
    uint32_t best = 0;

    for (int i = 0; i < peer->addr_count; i++)
        if (peer->addrs[i].mbit_x10 > best) {
            best = peer->addrs[i].mbit_x10;
            *out = peer->addrs[i].addr;
        }
    return best > 0;
}

/* ---- reports ---- */

/* By more than a quarter, and more than noise. */
static bool differs(uint32_t was, uint32_t is, uint32_t noise)
{
    uint64_t low = was < is ? was : is, high = was < is ? is : was;
    return high > low + noise && high * 4 > low * 5;
}

static bool has_news(const struct probe_peer *p)
{
    return p->how != MEASURED_NOT || p->untold || differs(p->told_us, p->round_trip_us, NOISE_US) ||
           (p->round_trip_us > 0 && p->told_us == 0) || differs(p->told_ppm, p->loss_ppm, PPM_NOISE);
}

bool peers_have_news(const struct probe_peers *peers)
{
    for (int i = 0; i < peers->count; i++)
        if (has_news(&peers->list[i]))
            return true;
    return false;
}

void peers_tell(struct probe_peers *peers, struct measured *measured)
{
    for (int i = 0; i < peers->count && measured->count < MEASURED_PATHS_MAX; i++) {
        struct probe_peer *p = &peers->list[i];
        if (!has_news(p))
            continue;
        measured->paths[measured->count++] = (struct measured_path){.to = p->id,
                                                                    .mbit_x10 = p->mbit_x10,
                                                                    .round_trip_us = p->round_trip_us,
                                                                    .loss_ppm = p->loss_ppm,
                                                                    .kind = p->kind,
                                                                    .how = p->how};
        p->told_us = p->round_trip_us;
        p->told_ppm = p->loss_ppm;
        p->untold = false;
        p->how = MEASURED_NOT;
        p->mbit_x10 = 0;
    }
}

/* ---- interfaces ---- */

enum path_kind path_kind_here(const struct sock_addr *local)
{
    struct interface list[INTERFACES_MAX];
    int count = 0;

    if (sock_addr_loopback(local))
        return PATH_SAME_HOST;
    if (host_interfaces(list, &count) != HEARTH_OK)
        return PATH_UNKNOWN;
    for (int i = 0; i < count; i++) {
        if (!sock_addr_same_host(&list[i].addr, local))
            continue;
        switch (list[i].kind) {
        case INTERFACE_WIRE:
            return interface_wireless(list[i].name) ? PATH_WIRELESS : PATH_WIRE;
        case INTERFACE_TUNNEL:
            return PATH_TUNNEL;
        case INTERFACE_LOOPBACK:
            return PATH_SAME_HOST;
        default:
            return PATH_OTHER;
        }
    }
    return PATH_UNKNOWN;
}
