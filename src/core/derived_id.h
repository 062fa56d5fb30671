/* SPDX-License-Identifier: Apache-2.0 */
/* Ids that all members derive alike: of groups made out of others, of syncs, and of the tags under which the
 * library's own operations run in a caller's group. Every kind has its own label, so that no two kinds can
 * meet, whatever numbers callers choose (docs/payloads.md). */
#ifndef CORE_DERIVED_ID_H
#define CORE_DERIVED_ID_H

#include <stdint.h>

enum id_label {
    ID_SPLIT = 1,         /* group: of parent; number of the split, color */
    ID_REDUCTION = 2,     /* group of one compressed all-reduce: of the caller's group; tag, sequence */
    ID_HOST = 3,          /* group of one host in it: of the reduction's; number of the host */
    ID_LEADERS = 4,       /* group of one member of each host in it: of the reduction's */
    ID_GROUP_SPEC = 5,    /* group of hearth_form: of (seed, instance); (epoch, term), number */
    ID_SYNC = 6,          /* sync: of its group; number */
    ID_SYNC_TAG = 7,      /* tag: of the sync; what it is for */
    ID_ADAPT_TAG = 8,     /* tag: of the group; what it is for */
    ID_RECONCILE_TAG = 9, /* tag: of the group */
    ID_LABELS
};

uint64_t derived_id(enum id_label label, uint64_t parent, uint64_t first, uint64_t second);

#endif
