/* SPDX-License-Identifier: Apache-2.0 */
/* The home cluster as a node sees it, read out of hearth_status_json. */
#include "cli/cluster/cluster_status.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "membership/topology.h"

#define GROWTH    4096 /* the text may grow between two calls */
#define MBIT_BYTE 125000.0

/* ---- fields, each of which may be missing ---- */

static void copy_text(json_t *object, const char *key, char *target, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(target, size, "%s", text ? text : "");
}

static double number(json_t *object, const char *key, double otherwise)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static int whole(json_t *object, const char *key, int otherwise)
{
    json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (int)json_integer_value(value) : otherwise;
}

/* ---- the parts ---- */

static unsigned roles_of(json_t *member)
{
    static const struct {
        const char *name;
        enum hearth_role role;
    } names[] = {{"demo", HEARTH_ROLE_DEMO}, {"bench", HEARTH_ROLE_BENCH}, {"guest", HEARTH_ROLE_GUEST}};
    json_t *list = json_object_get(member, "flags"), *item;
    unsigned roles = 0;
    size_t index;
    json_array_foreach(list, index, item)
    {
        const char *text = json_string_value(item);
        for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
            roles |= strcmp(text, names[i].name) == 0 ? (unsigned)names[i].role : 0;
    }
    return roles;
}

static void take_member(struct cluster_status *status, json_t *object, int leader)
{
    if (status->count == CLUSTER_MEMBERS_MAX)
        return;
    struct cluster_member *m = &status->members[status->count++];
    m->rank = whole(object, "rank", -1);
    copy_text(object, "id", m->id, sizeof m->id);
    copy_text(object, "short", m->short_id, sizeof m->short_id);
    copy_text(object, "name", m->name, sizeof m->name);
    copy_text(object, "state", m->state, sizeof m->state);
    m->latency_us = number(object, "latency_us", -1);
    m->late_us = number(object, "late_us", -1);
    m->self = strcmp(m->state, "self") == 0;
    m->leads = m->rank >= 0 && m->rank == leader;
    m->roles = roles_of(object);
}

static void take_view(struct cluster_status *status, json_t *view)
{
    json_t *item;
    size_t index;
    int leader = whole(view, "leader", -1);
    status->epoch = (uint64_t)json_integer_value(json_object_get(view, "epoch"));
    status->term = (uint64_t)json_integer_value(json_object_get(view, "term"));
    copy_text(view, "state", status->state, sizeof status->state);
    json_array_foreach(json_object_get(view, "members"), index, item) take_member(status, item, leader);
}

static void take_jobs(struct cluster_status *status, json_t *jobs)
{
    json_t *item;
    size_t index;
    json_array_foreach(jobs, index, item)
    {
        if (status->job_count == CLUSTER_JOBS_MAX)
            return;
        struct cluster_job *job = &status->jobs[status->job_count++];
        copy_text(item, "job", job->name, sizeof job->name);
        job->min = whole(item, "min", 0);
        job->wishing = whole(item, "wishing", 0);
        job->running = whole(item, "running", 0);
    }
}

static int place_of(const struct cluster_status *status, int rank)
{
    for (int i = 0; i < status->count; i++) {
        if (status->members[i].rank == rank && rank >= 0)
            return i;
    }
    return -1;
}

static void take_links(struct cluster_status *status, json_t *links)
{
    json_t *item;
    size_t index;
    json_array_foreach(links, index, item)
    {
        int from = place_of(status, whole(item, "from", -1)), to = place_of(status, whole(item, "to", -1));
        const char *kind = json_string_value(json_object_get(item, "kind"));
        double mbit = number(item, "mbit", 0);
        if (from < 0 || to < 0)
            continue;
        status->inside[from][to] = kind && strcmp(kind, path_kind_name(PATH_SAME_HOST)) == 0;
        if (mbit > 0)
            status->rate[from][to] = mbit * MBIT_BYTE;
    }
}

bool cluster_status_parse(const char *text, struct cluster_status *status)
{
    json_t *root = json_loads(text, 0, NULL);
    *status = (struct cluster_status){.epoch = 0};
    if (!json_is_object(root)) {
        json_decref(root);
        return false;
    }
    take_view(status, json_object_get(root, "view"));
    take_jobs(status, json_object_get(root, "jobs"));
    take_links(status, json_object_get(root, "links"));
    json_decref(root);
    return true;
}

bool cluster_status_read(hearth_node *node, struct cluster_status *status)
{
    int64_t len = hearth_status_json(node, NULL, 0);
    size_t room = len > 0 ? (size_t)len + GROWTH : 0;
    char *text = room ? malloc(room) : NULL;
    bool good = text && (len = hearth_status_json(node, text, room)) > 0 && (size_t)len < room;
    good = good && cluster_status_parse(text, status);
    free(text);
    return good;
}

/* ---- questions ---- */

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
