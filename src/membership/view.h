/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in: the view that the members of a cluster agree on. (struct group_view is the collective room's:
 * what an operation needs of a group.) docs/messages.md, is the law of its bytes. */
#ifndef MEMBERSHIP_VIEW_H
#define MEMBERSHIP_VIEW_H

#include "core/bytes.h"
#include "core/error.h"
#include "security/node_key.h"

#define VIEW_MEMBERS_MAX  64
#define PEER_ADDRS_MAX    8
#define PEER_ADDR_MAX     20 /* bytes of one address: as sock_addr_encode makes them */
#define PEER_NAME_MAX     64 /* with the final 0, as all texts */
#define PEER_PLATFORM_MAX 32
#define PEER_INFO_LEN_MAX 512u /* bytes of a peer on the wire */
#define VIEW_LEN_MAX      (VIEW_MEMBERS_MAX * PEER_INFO_LEN_MAX + 64u)

#define PEER_DEMO  (UINT32_C(1) << 0) /* takes part when somebody trains the demo */
#define PEER_BENCH (UINT32_C(1) << 1) /* takes part when somebody measures the cluster */
#define PEER_GUEST (UINT32_C(1) << 2) /* here for a while: takes part in jobs, never votes or leads */

/* A node as it describes itself. Its id is proven by the handshake of every connection; all else is a hint
 * for people and for plans. */
struct peer_info {
    struct identity id;
    uint64_t machine;    /* os/host_facts.h: one key on two machines was copied */
    uint64_t host_id;    /* os/host.h: equal where memory can be shared */
    uint32_t flags;      /* PEER_INFO_ */
    uint32_t process;    /* for people */
    uint32_t memory_mib; /* of the machine */
    uint16_t cores;
    uint16_t cpu; /* bits: 1 AVX2, 2 AVX-512, 4 NEON, 8 AES */
    char name[PEER_NAME_MAX];
    char platform[PEER_PLATFORM_MAX]; /* "Linux 6.1 x86_64" */
    uint8_t addr_count;               /* where it listens, best first; never link-local ones */
    uint8_t addr_lens[PEER_ADDRS_MAX];
    uint8_t addrs[PEER_ADDRS_MAX][PEER_ADDR_MAX];
};

/* One agreed view. Members stand in the order of seniority: who came later stands behind; who came in the
 * same view are ordered by id. */
struct view {
    uint64_t instance; /* of the cluster, drawn by its founder, never 0 */
    uint64_t epoch;    /* 1, 2, ... : within an instance there is one view of each */
    uint64_t term;     /* in which it was decided */
    int leader;        /* index */
    int size;
    struct peer_info members[VIEW_MEMBERS_MAX];
};

bool identity_equal(const struct identity *a, const struct identity *b);
int identity_compare(const struct identity *a, const struct identity *b); /* a total order: as memcmp */
void identity_text(const struct identity *id, char *text, size_t size);   /* short, for logs */
int view_find(const struct view *view, const struct identity *id);        /* index, -1: not in it */
/* It has a vote. Guests have none: they come and go, and nobody must miss them. */
bool view_votes(const struct view *view, int index);
/* So many of its voters can decide the next one: a majority, or exactly half with the leader. `present` has
 * a flag for each member; those of guests do not count. Without voters there is no quorum. */
bool view_quorum(const struct view *view, const bool *present);

void peer_info_put(struct writer *w, const struct peer_info *info);
/* Checks every field: false and r->bad for anything that may not be. What follows the known fields inside of
 * the peer's own length is from a later version and skipped. */
bool peer_info_get(struct reader *r, struct peer_info *info);
void view_put(struct writer *w, const struct view *view);
bool view_get(struct reader *r, struct view *view); /* no member twice, a voter leads, sizes */

#endif
