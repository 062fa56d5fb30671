/* SPDX-License-Identifier: Apache-2.0 */
/* Ids that all members derive alike: of groups made out of others, of syncs, and of the tags under which the
 * library's own operations run in a caller's group. Every kind has its own label, so that no two kinds can
 * meet, whatever numbers callers choose (docs/payloads.md). */
#pragma once

#include "core/hash.h"

enum id_label {
    ID_SPLIT = 1,         /* group: of parent; number of the split, color */
    ID_REDUCTION = 2,     /* a compressed all-reduce: of the caller's group; tag, sequence */
    ID_HOST = 3,          /* group of the members of one host: of the inner group; their ranks */
    ID_LEADERS = 4,       /* group of one member of each host: of the inner group; their ranks */
    ID_GROUP_SPEC = 5,    /* group of hearth_group_form: of (seed, instance); (epoch, term), number */
    ID_SYNC = 6,          /* sync: of its group; number */
    ID_SYNC_TAG = 7,      /* tag: of the sync; what it is for */
    ID_ADAPT_TAG = 8,     /* tag: of the group; what it is for */
    ID_RECONCILE_TAG = 9, /* tag: of the group */
    ID_INNER = 10,        /* group for the parts of compressed all-reduces: of the caller's group */
    ID_LABELS
};

/* Labels come first in the running hash, so that ids of two kinds never share a beginning. */
static inline uint64_t derived_id(enum id_label label, uint64_t parent, uint64_t first, uint64_t second)
{
    return hash_mix(hash_mix(hash_mix((uint64_t)label, parent), first), second);
}
