/* SPDX-License-Identifier: Apache-2.0 */
/* Nouns that several rooms share: status, ranks, the view that all members of a group agree on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hearth.h>

#define DTYPE_COUNT 10
#define OP_COUNT    8
#define ALGO_COUNT  8
#define RANK_NONE   (-1)

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

#define NEVER_NS UINT64_MAX /* a deadline that does not come */

#define MUST_CHECK __attribute__((warn_unused_result))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* What a link between two members costs. Part of the agreed view, never of private measurement. */
struct link_cost {
    double alpha_s;     /* from send to receive of an empty message, seconds */
    double bytes_per_s; /* of one member's port, each way */
    double gamma_s;     /* seconds to combine one byte */
    double overhead_s;  /* a member's own work per message, seconds */
};

/* What all members agree on before they compute together. Everything the selection of an algorithm may
 * use is here. */
struct group_view {
    uint64_t group;          /* id of the group: in every frame */
    uint32_t epoch;          /* counts the views of one group */
    int size;                /* members */
    const int *host;         /* host[rank]: members with equal numbers share a host; NULL = all on one */
    const int *site;         /* likewise for sites, which hold whole hosts; NULL = each host is one */
    const int *order;        /* order[place]: ranks as they stand in a ring; NULL = by rank */
    struct link_cost inside; /* between members of one host */
    struct link_cost across; /* between hosts */
    int port_sharers;        /* members of a host that share its port to the others; 0: each has its own */
    bool crowded;            /* some host has more members than processors */
    bool inner;              /* its operations are parts of a call, which says itself where a failure began */
    size_t chunk_bytes, window_bytes, eager_bytes;
    enum hearth_algo algo; /* for calls that leave it open */
};

/* The site of a member, or its host where sites are not known: links between these are the slow ones. */
int view_place(const struct group_view *view, int rank);
/* The order of a ring of some of the members, in a group of their own: ranks[i] becomes its rank i. */
void view_order(const struct group_view *view, const int *ranks, int count, int *order);

size_t dtype_size(enum hearth_dtype dtype); /* 0 if unknown */
/* False for bit operations on floating-point types. Both must be known ones. */
bool op_takes(enum hearth_op op, enum hearth_dtype dtype);
