/* SPDX-License-Identifier: Apache-2.0 */
/* A job runs in one group only, and keeps its instance busy.
 *
 * Machines that start together may find each other before they find the running cluster, and form the same
 * job; and a new leader does not know yet what runs. So instances that each run the job may merge. A
 * formation that has lasted then stays, and the members of a new one wait for the next formation. If none has
 * lasted, all end and the job forms again with all members. */
#include <stdio.h>
#include <string.h>

#include "membership/jobs_state.h"

static bool lasts(const struct run *run, uint64_t now_ns)
{
    return now_ns >= run->since_ns + JOBS_LASTS_NS;
}

/* ---- Busy ---- */

/* A formation that is over but held does not count: a member that was removed and returns still holds it, and
 * must not make its instance busy. Runs without a record (no memory) do count. */
static bool part_runs(const struct jobs *jobs, const struct told_part *part)
{
    return !part->over && !job_leader_run(&jobs->leader, part->spec);
}

static bool unnoted_run(const struct jobs *jobs)
{
    for (int m = 0; m < jobs->view.size; m++)
        for (int p = 0; p < jobs->leader.told[m].parts; p++)
            if (part_runs(jobs, &jobs->leader.told[m].part[p]))
                return true;
    return false;
}

bool jobs_busy(const struct jobs *jobs, uint64_t now_ns)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        const struct run *run = container_of(item, struct run, item);
        if (!run->ended && (!run->ours || lasts(run, now_ns)))
            return true;
    }
    return unnoted_run(jobs);
}

bool jobs_running(const struct jobs *jobs)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].state == SLOT_RUNNING)
            return true;
    return jobs_busy(jobs, NEVER_NS);
}

/* ---- Two runs of one job ---- */

static bool twins(const struct run *a, const struct run *b)
{
    return a != b && !a->ended && !b->ended && strcmp(a->job, b->job) == 0;
}

/* The run that this one must end for; NULL: none. */
static const struct run *rival_of(const struct jobs *jobs, const struct run *run, uint64_t now_ns)
{
    const struct run *rival = NULL;
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        const struct run *other = container_of(item, struct run, item);
        if (twins(run, other) && (lasts(other, now_ns) || !lasts(run, now_ns)))
            rival = rival && lasts(rival, now_ns) ? rival : other;
    }
    return rival;
}

static void end_for(struct jobs *jobs, struct run *run)
{
    run->ended = true;
    jobs->leader.changed = true;
    log_write(&jobs->setup.log, HEARTH_LOG_WARN, "HEARTH-JOB-TWICE",
              "job %s runs in two groups; the one of %d members ends: %s", run->job, run->size, run->why);
}

void job_leader_end_twins(struct jobs *jobs, uint64_t now_ns)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        struct run *run = container_of(item, struct run, item);
        const struct run *rival = rival_of(jobs, run, now_ns);
        run->doomed = rival;
        if (!rival)
            continue;
        run->who = run->members[0]; /* the others end first; then it does, too */
        snprintf(run->why, sizeof run->why, "%s",
                 lasts(rival, now_ns) ? "the job runs in another group already"
                                      : "two groups of this job have met, and form it again together");
    }
    LIST_EACH (item, after, &jobs->leader.runs) {
        struct run *run = container_of(item, struct run, item);
        if (run->doomed)
            end_for(jobs, run);
    }
}
