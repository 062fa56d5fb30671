/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of sync_decide.h. */
#include "gradient/sync_decide.h"

#include <stddef.h>

#include "core/hash.h"

uint64_t sync_lineage(uint64_t lineage, uint64_t steps, uint64_t attempt)
{
    return hash_mix(hash_mix(lineage, steps), attempt);
}

static bool has(const struct sync_record *record, uint64_t flags)
{
    return (record->flags & flags) == flags;
}

static bool more(const struct sync_record *a, const struct sync_record *b)
{
    return a->steps != b->steps ? a->steps > b->steps : a->round > b->round;
}

/* Who has the model; NULL: nobody has a sync. The lower rank wins a tie. */
static const struct sync_record *foremost(const struct sync_record *records, int size, uint64_t flags)
{
    const struct sync_record *first = NULL;
    for (int i = 0; i < size; i++)
        if (has(&records[i], flags) && (!first || more(&records[i], first)))
            first = &records[i];
    return first;
}

struct sync_decision sync_decide(const struct sync_record *records, int size)
{
    uint64_t counts = SYNC_PRESENT | SYNC_JOINED;
    const struct sync_record *first = foremost(records, size, counts);
    if (!first)
        first = foremost(records, size, counts = SYNC_PRESENT);
    if (!first)
        return (struct sync_decision){0};
    struct sync_decision d = {first->steps, first->lineage, first->attempt, true};
    for (int i = 0; i < size; i++) {
        const struct sync_record *r = &records[i];
        if (has(r, counts) && r->steps == d.steps && r->lineage == d.lineage && r->round == first->round)
            d.commit = d.commit && has(r, SYNC_PREPARED) && r->attempt == d.attempt;
    }
    return d;
}

enum sync_verdict sync_verdict(const struct sync_decision *d, const struct sync_record *r)
{
    bool prepared = has(r, SYNC_PREPARED);
    bool there = r->steps == d->steps && r->lineage == d->lineage;
    if (d->commit)
        return there && prepared && r->attempt == d->attempt ? SYNC_COMMIT : SYNC_BEHIND;
    if (there)
        return SYNC_CONTINUE;
    bool follows =
        prepared && r->steps + 1 == d->steps && sync_lineage(r->lineage, r->steps, r->attempt) == d->lineage;
    return follows ? SYNC_COMMIT_TAKEN : SYNC_BEHIND;
}
