/* SPDX-License-Identifier: Apache-2.0 */
/* A member's measures of its own paths, and which of them the leader does not know yet. No I/O. */
#pragma once

#include "cluster/probe_messages.h"

/* Traffic of operations counts as a measure from this amount. */
#define PEER_TRAFFIC_BYTES (1024u * 1024)

struct peer_addr {
    struct sock_addr addr;
    uint32_t mbit_x10; /* of the last probe to it */
};

struct probe_peer {
    struct identity id;
    uint32_t round_trip_us, loss_ppm;
    uint32_t told_us, told_ppm; /* the values last sent to the leader */
    uint8_t kind;               /* enum path_kind, of the local interface */
    uint8_t how;                /* enum measured_how: of a rate to report */
    bool untold;
    uint32_t mbit_x10; /* that rate */
    uint64_t traffic_bytes, traffic_ns;
    int addr_count;
    struct peer_addr addrs[PEER_ADDRS_MAX];
};

struct probe_peers {
    int count;
    struct probe_peer list[VIEW_MEMBERS_MAX];
};

/* Changes to the other members of this view; keeps the measures of those that stay. */
void peers_view(struct probe_peers *peers, const struct view *view, const struct identity *self);
struct probe_peer *peers_find(struct probe_peers *peers, const struct identity *id); /* NULL: none */
void peers_forget_told(struct probe_peers *peers); /* a new leader knows nothing */

void peer_round_trip(struct probe_peer *peer, uint64_t round_trip_ns, uint32_t loss_ppm, enum path_kind kind);
void peer_traffic(struct probe_peer *peer, uint64_t bytes, uint64_t time_ns);
/* The result of a probe to this address; NULL or without a length: unknown address. */
void peer_probed(struct probe_peer *peer, const struct sock_addr *addr, uint32_t mbit_x10,
                 enum path_kind kind);
void peer_failed(struct probe_peer *peer, const struct sock_addr *addr);   /* it is no longer the best */
bool peer_best_addr(const struct probe_peer *peer, struct sock_addr *out); /* false: none was measured */

/* Writes the values to report, and marks them as reported. */
void peers_tell(struct probe_peers *peers, struct measured *measured);
bool peers_have_news(const struct probe_peers *peers);

/* By the local end of a connection. */
enum path_kind path_kind_here(const struct sock_addr *local);
