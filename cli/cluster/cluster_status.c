/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about the cluster, as a node of this process sees it. */
#include "cli/cluster/cluster_status.h"

#include <string.h>

int cluster_status_count(const struct cluster_status *status, enum hearth_role role)
{
    int count = 0;
    for (int i = 0; i < status->count; i++)
        count += !status->members[i].self && (status->members[i].roles & (unsigned)role);
    return count;
}

double cluster_status_path(const struct cluster_status *status, const char *from, const char *to)
{
    double best = 0;
    if (strcmp(from, to) == 0)
        return -1;
    for (int i = 0; i < status->count; i++) {
        for (int k = 0; k < status->count; k++) {
            if (strcmp(status->members[i].id, from) != 0 || strcmp(status->members[k].id, to) != 0)
                continue;
            if (status->inside[i][k] && !(status->rate[i][k] > 0))
                return -1;
            best = status->rate[i][k] > best ? status->rate[i][k] : best;
        }
    }
    return best;
}

static bool takes_part(const struct cluster_member *m, enum hearth_role role)
{
    return m->self || (m->roles & (unsigned)role);
}

bool cluster_status_measured(const struct cluster_status *status, enum hearth_role role)
{
    for (int i = 0; i < status->count; i++) {
        for (int k = 0; k < status->count; k++) {
            const struct cluster_member *from = &status->members[i], *to = &status->members[k];
            if (takes_part(from, role) && takes_part(to, role) &&
                cluster_status_path(status, from->id, to->id) == 0)
                return false;
        }
    }
    return true;
}

bool cluster_status_wanted(const struct cluster_status *status, const char *job)
{
    for (int i = 0; i < status->job_count; i++) {
        if (strcmp(status->jobs[i].name, job) == 0)
            return status->jobs[i].wishing > 0;
    }
    return false;
}
