/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in: the view that the members of a cluster agree on. (struct view is the collective room's: what an
 * operation needs of a group.) docs/letters.md, is the law of its bytes. */
#ifndef MEMBERSHIP_CENSUS_H
#define MEMBERSHIP_CENSUS_H

#include "core/bytes.h"
#include "core/error.h"
#include "security/node_key.h"

#define CENSUS_MEMBERS_MAX  64
#define FELLOW_ADDRS_MAX    8
#define FELLOW_ADDR_MAX     20 /* bytes of one address: as sock_addr_encode makes them */
#define FELLOW_NAME_MAX     64 /* with the final 0, as all texts */
#define FELLOW_PLATFORM_MAX 32
#define FELLOW_LEN_MAX      512u /* bytes of a fellow on the wire */
#define CENSUS_LEN_MAX      (CENSUS_MEMBERS_MAX * FELLOW_LEN_MAX + 64u)

#define FELLOW_DEMO  (UINT32_C(1) << 0) /* takes part when somebody trains the demo */
#define FELLOW_BENCH (UINT32_C(1) << 1) /* takes part when somebody measures the cluster */
#define FELLOW_GUEST (UINT32_C(1) << 2) /* here for a while: takes part in jobs, never votes or leads */

/* A node as it describes itself. Its id is proven by the handshake of every connection; all else is a hint
 * for people and for plans. */
struct fellow {
    struct identity id;
    uint64_t machine;    /* os/host_facts.h: one key on two machines was copied */
    uint64_t host_id;    /* os/host.h: equal where memory can be shared */
    uint32_t flags;      /* FELLOW_ */
    uint32_t process;    /* for people */
    uint32_t memory_mib; /* of the machine */
    uint16_t cores;
    uint16_t cpu; /* bits: 1 AVX2, 2 AVX-512, 4 NEON, 8 AES */
    char name[FELLOW_NAME_MAX];
    char platform[FELLOW_PLATFORM_MAX]; /* "Linux 6.1 x86_64" */
    uint8_t addr_count;                 /* where it listens, best first; never link-local ones */
    uint8_t addr_lens[FELLOW_ADDRS_MAX];
    uint8_t addrs[FELLOW_ADDRS_MAX][FELLOW_ADDR_MAX];
};

/* One agreed view. Members stand in the order of seniority: who came later stands behind; who came in the
 * same view are ordered by id. */
struct census {
    uint64_t instance; /* of the cluster, drawn by its founder, never 0 */
    uint64_t epoch;    /* 1, 2, ... : within an instance there is one census of each */
    uint64_t term;     /* in which it was decided */
    int leader;        /* index */
    int size;
    struct fellow members[CENSUS_MEMBERS_MAX];
};

bool identity_equal(const struct identity *a, const struct identity *b);
int identity_compare(const struct identity *a, const struct identity *b); /* a total order: as memcmp */
void identity_text(const struct identity *id, char *text, size_t size);   /* short, for logs */
int census_find(const struct census *census, const struct identity *id);  /* index, -1: not in it */
/* It has a vote. Guests have none: they come and go, and nobody must miss them. */
bool census_votes(const struct census *census, int index);
/* So many of its voters can decide the next one: a majority, or exactly half with the leader. `present` has
 * a flag for each member; those of guests do not count. Without voters there is no quorum. */
bool census_quorum(const struct census *census, const bool *present);

void fellow_put(struct writer *w, const struct fellow *fellow);
/* Checks every field: false and r->bad for anything that may not be. What follows the known fields inside of
 * the fellow's own length is from a later version and skipped. */
bool fellow_get(struct reader *r, struct fellow *fellow);
void census_put(struct writer *w, const struct census *census);
bool census_get(struct reader *r, struct census *census); /* no member twice, a voter leads, sizes */

#endif
