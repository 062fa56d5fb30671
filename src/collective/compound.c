/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are made of several operations: the numbers of their parts (docs/payloads.md).
 *
 *   63                     26 25   24 23           0
 *   | number of the opening | track | part of track |
 */
#include "collective/state.h"

#define INDEX_BITS 24
#define TRACK_BITS 2
#define CALL_SHIFT (INDEX_BITS + TRACK_BITS)
#define INDEX_MAX  (UINT32_C(1) << INDEX_BITS)
#define CALL_MAX   (UINT64_C(1) << (64 - CALL_SHIFT))

uint64_t part_sequence(const struct compound *compound, enum inner_kind kind, uint32_t track)
{
    return compound->sequence << CALL_SHIFT | (uint64_t)track << INDEX_BITS | compound->next[kind][track];
}

struct part part_of_sequence(uint64_t sequence)
{
    return (struct part){.call = sequence >> CALL_SHIFT,
                         .track = (uint32_t)(sequence >> INDEX_BITS) & (PART_TRACKS - 1),
                         .index = (uint32_t)sequence & (INDEX_MAX - 1)};
}

int compound_check(const struct compound *compound, enum inner_kind kind, uint32_t track, struct error *error)
{
    if (compound->sequence < CALL_MAX && compound->next[kind][track] < INDEX_MAX - 1)
        return HEARTH_OK;
    return error_set(error, HEARTH_LIMIT, RANK_NONE,
                     "no number is left for a part: a call has at most 2^%d, a tag of a group 2^%d calls",
                     INDEX_BITS, 64 - CALL_SHIFT);
}

static struct compound *compound_find(const struct group *outer, uint64_t tag, uint64_t sequence)
{
    struct list *item, *after;
    LIST_EACH (item, after, &outer->compounds) {
        struct compound *c = container_of(item, struct compound, item);
        if (c->tag == tag && c->sequence == sequence)
            return c;
    }
    return NULL;
}

bool group_passed(const struct group *group, uint64_t tag, uint64_t sequence)
{
    if (!group->outer)
        return sequence < group_sequence(group, tag);
    struct part part = part_of_sequence(sequence);
    if (part.call >= group_sequence(group->outer, tag))
        return false;
    const struct compound *c = compound_find(group->outer, tag, part.call);
    return !c || part.index < c->next[group->kind][part.track];
}

void compound_close(struct group *group, struct compound *compound)
{
    if (list_empty(&compound->item))
        return;
    list_remove(&compound->item);
    engine_drop_parts(group, compound->tag, compound->sequence);
}
