/* SPDX-License-Identifier: Apache-2.0 */
/* Who takes part in a formation now, and how it is arranged. */
#include <string.h>

#include "membership/jobs_state.h"

bool jobs_takes_part(const struct jobs *jobs, uint64_t spec)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].state == SLOT_RUNNING && jobs->slots[i].spec->id == spec)
            return true;
    return false;
}

bool jobs_runs(const struct jobs *jobs, const char *job)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].state == SLOT_RUNNING && strcmp(jobs->slots[i].request.job, job) == 0)
            return true;
    return false;
}

bool jobs_whole(const struct jobs *jobs, uint64_t spec)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].spec && jobs->slots[i].spec->id == spec)
            return !jobs->slots[i].broken;
    return false;
}

uint64_t jobs_lost(const struct jobs *jobs, uint64_t spec)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].spec && jobs->slots[i].spec->id == spec)
            return jobs->slots[i].lost;
    return 0;
}

/* As soon as it is called, and not only when it says that it has come: in between it is joined. */
static bool is_called(const struct jobs *jobs, const struct identity *member)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        const struct run *run = container_of(item, struct run, item);
        for (int r = 0; run->ours && !run->ended && r < run->size; r++)
            if (identity_equal(&run->members[r], member))
                return true;
    }
    return false;
}

int jobs_taking_part(const struct jobs *jobs, struct identity members[static VIEW_MEMBERS_MAX])
{
    int count = 0;

    if (!jobs->leader.taken && jobs_running(jobs))
        members[count++] = jobs->setup.self;
    for (int i = 0; jobs->leader.taken && i < jobs->view.size; i++) {
        const struct told *told = &jobs->leader.told[i];
        bool at_work = is_called(jobs, &jobs->view.members[i].id);
        for (int k = 0; k < told->parts && !at_work; k++)
            at_work = !told->part[k].over;
        if (at_work)
            members[count++] = jobs->view.members[i].id;
    }
    return count;
}

void group_spec_ring_order(const struct group_spec *f, struct ring_order *out)
{
    *out = (struct ring_order){
        .size = f->size,
        .sites = f->sites,
        .inside_mbit_x10 = f->inside_mbit_x10,
        .across_mbit_x10 = f->across_mbit_x10,
        .inside_us = f->inside_us,
        .across_us = f->across_us,
    };
    for (int rank = 0; rank < f->size; rank++) {
        out->order[rank] = rank;
        out->site[rank] = f->site[rank];
    }
}
