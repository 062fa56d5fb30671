/* SPDX-License-Identifier: Apache-2.0 */
/* Who takes part in a formation now. */
#include "membership/jobs_inside.h"

bool jobs_takes_part(const struct jobs *jobs, uint64_t formation)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].state == SLOT_RUNNING && jobs->slots[i].formation->id == formation)
            return true;
    return false;
}

uint64_t jobs_lost(const struct jobs *jobs, uint64_t formation)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].formation && jobs->slots[i].formation->id == formation)
            return jobs->slots[i].lost;
    return 0;
}

int jobs_taking_part(const struct jobs *jobs, struct identity members[static CENSUS_MEMBERS_MAX])
{
    int count = 0;

    for (int i = 0; jobs->chair.taken && i < jobs->census.size; i++) {
        const struct told *told = &jobs->chair.told[i];
        bool at_work = false;
        for (int k = 0; k < told->parts && !at_work; k++)
            at_work = !told->part[k].over;
        if (at_work)
            members[count++] = jobs->census.members[i].id;
    }
    return count;
}
