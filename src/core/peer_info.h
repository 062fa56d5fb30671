/* SPDX-License-Identifier: Apache-2.0 */
/* A node as it describes itself, in plain memory: the one form in which rooms hold what is known of a peer.
 * wire/peer_codec.h has its bytes. */
#pragma once

#include "core/identity.h"
#include "core/net_addr.h"

#define PEER_ADDRS_MAX    8
#define PEER_NAME_MAX     64 /* with the final 0, as all texts */
#define PEER_PLATFORM_MAX 32

#define PEER_DEMO  (UINT32_C(1) << 0) /* takes part when somebody trains the demo */
#define PEER_BENCH (UINT32_C(1) << 1) /* takes part when somebody measures the cluster */
#define PEER_GUEST (UINT32_C(1) << 2) /* here for a while: takes part in jobs, never votes or leads */
#define PEER_SHM   (UINT32_C(1) << 3) /* takes links through shared memory */
#define PEER_QUIC  (UINT32_C(1) << 4) /* takes links through QUIC, at the ports where it listens */

/* Its id is proven by the handshake of every connection; all else is a hint for people and for plans. */
struct peer_info {
    struct identity id;  /* node 0: plain */
    uint64_t machine;    /* os/host.h: one key on two machines was copied; 0: not said */
    uint64_t host_id;    /* os/host.h: equal where memory can be shared */
    uint32_t features;   /* PEER_ bits */
    uint32_t process;    /* its process id, for people */
    uint32_t memory_mib; /* of the machine; 0: not said */
    uint16_t cores;      /* likewise */
    uint16_t cpu;        /* bits: 1 AVX2, 2 AVX-512, 4 NEON, 8 AES */
    char name[PEER_NAME_MAX];
    char platform[PEER_PLATFORM_MAX]; /* "Linux 6.1 x86_64" */
    int addr_count;                   /* where it listens, best first; none: shared memory only */
    struct net_addr addrs[PEER_ADDRS_MAX];
};
