/* SPDX-License-Identifier: Apache-2.0 */
/* One job, two formations. Each was formed in an instance of its own, and the instances have become one
 * since: a leader that has just been elected, or has just formed the job, does not know yet that its instance
 * works. Neither is worth more than the other: both end, and all of them form the job again, together. */
#include <stdio.h>
#include <string.h>

#include "membership/jobs_inside.h"

static bool same_job(const struct run *a, const struct run *b)
{
    return a != b && !a->ended && !b->ended && strcmp(a->job, b->job) == 0;
}

static const struct run *twin_of(const struct jobs *jobs, const struct run *run)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->chair.runs) {
        const struct run *other = container_of(item, struct run, item);
        if (same_job(run, other))
            return other;
    }
    return NULL;
}

static void end_twin(struct jobs *jobs, struct run *run)
{
    run->ended = true;
    snprintf(run->why, sizeof(run->why), "two groups of this job have met: it forms again, with all of them");
    jobs->chair.changed = true;
    log_write(&jobs->setup.log, HEARTH_LOG_WARN, "HEARTH-JOB-TWICE",
              "job %s ran in two groups, one of %d: both end", run->job, run->size);
}

void chair_end_twins(struct jobs *jobs)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->chair.runs) {
        struct run *run = container_of(item, struct run, item);
        const struct run *twin = twin_of(jobs, run);
        run->twin = twin != NULL;
        if (twin)
            run->who = twin->members[0];
    }
    LIST_EACH (item, after, &jobs->chair.runs) {
        struct run *run = container_of(item, struct run, item);
        if (run->twin)
            end_twin(jobs, run);
    }
}
