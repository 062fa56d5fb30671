/* SPDX-License-Identifier: Apache-2.0 */
/* When the leader forms a job, with which members, in which order. */
#include <stdio.h>
#include <string.h>

#include "core/derived_id.h"
#include "core/hash.h"
#include "membership/jobs_state.h"

/* ---- Refusals ---- */

static void refuse_others(struct jobs *jobs, const struct led_job *job)
{
    char differ[JOB_TEXT_MAX / 2];

    for (int m = 0; m < jobs->view.size; m++) {
        struct told *told = &jobs->leader.told[m];
        for (int i = 0; i < told->requests; i++) {
            struct told_request *request = &told->request[i];
            if (request->refused || strcmp(request->request.job, job->job) != 0 ||
                strcmp(request->request.settings, job->settings) == 0 || job_leader_called(jobs, m, request))
                continue;
            job_differ(request->request.settings, job->settings, differ, sizeof differ);
            request->refused = HEARTH_REASON_SETTINGS_DIFFER;
            snprintf(request->refusal, sizeof request->refusal,
                     "others ask for job %s with other settings: %s", job->job, differ);
            jobs->leader.changed = true;
        }
    }
}

/* ---- Forming ---- */

static bool job_runs(const struct jobs *jobs, const char *job)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        const struct run *run = container_of(item, struct run, item);
        if (!run->ended && strcmp(run->job, job) == 0)
            return true;
    }
    for (int m = 0; m < jobs->view.size; m++) /* over, but held */
        for (int p = 0; p < jobs->leader.told[m].parts; p++)
            if (strcmp(jobs->leader.told[m].part[p].job, job) == 0)
                return true;
    return false;
}

/* The members that request the job and reach each other; 0: too few. *due_ns: end of their settle time. */
static int requesters(const struct jobs *jobs, struct led_job *job, int *members, uint64_t now_ns,
                      uint64_t *due_ns)
{
    int count = 0, min = 1, missing = 0, residents = 0;

    *due_ns = job->released_ns;
    for (int m = 0; m < jobs->view.size; m++) {
        const struct told_request *request = led_request(jobs, m, job->job);
        bool guest = jobs->view.members[m].features & PEER_GUEST;
        missing += !request && !guest;
        residents += request && !guest;
        if (!request)
            continue;
        members[count++] = m;
        min = request->request.min > min ? request->request.min : min;
        *due_ns = request->since_ns > *due_ns ? request->since_ns : *due_ns;
    }
    if (missing > 0 || residents == 0) /* more requests may follow */
        *due_ns += JOBS_SETTLE_NS;
    count = job_leader_together(jobs, job->job, members, count, now_ns, &job->left);
    return count >= min ? count : 0;
}

/* ---- Jobs that may run elsewhere ---- */

/* It has started in this instance. */
static bool begun_here(const struct jobs *jobs, const char *job)
{
    bool begun = job_leader_ended(&jobs->leader, job) > 0;

    for (int i = 0; i < jobs->leader.jobs; i++)
        begun |= jobs->leader.job[i].ran > 0 && strcmp(jobs->leader.job[i].job, job) == 0;
    for (int m = 0; m < jobs->view.size && !begun; m++) {
        const struct told_request *request = led_request(jobs, m, job);
        begun = request && request->ran && request->ran->instance == jobs->view.instance;
    }
    return begun;
}

/* A member has a record of a later view of the same instance. */
static bool outdated(const struct jobs *jobs, const char *job, const struct view *ran)
{
    for (int m = 0; m < jobs->view.size; m++) {
        const struct told_request *request = led_request(jobs, m, job);
        if (request && request->ran && request->ran->instance == ran->instance &&
            request->ran->epoch > ran->epoch)
            return true;
    }
    return false;
}

const struct view *job_leader_elsewhere(const struct jobs *jobs, const char *job,
                                        bool missing[static VIEW_MEMBERS_MAX])
{
    bool heard[VIEW_MEMBERS_MAX], asks[VIEW_MEMBERS_MAX];

    if (begun_here(jobs, job))
        return NULL;
    for (int m = 0; m < jobs->view.size; m++) {
        heard[m] = jobs->leader.told[m].heard;
        asks[m] = led_request(jobs, m, job);
    }
    for (int m = 0; m < jobs->view.size; m++) {
        const struct told_request *request = led_request(jobs, m, job);
        if (request && request->ran && !outdated(jobs, job, request->ran) &&
            job_record_elsewhere(request->ran, &jobs->view, heard, asks, missing))
            return request->ran;
    }
    return NULL;
}

/* ---- Order ---- */

/* Order and sites matter with three hosts or more. */
static bool order_matters(const struct jobs *jobs, const int *members, int count)
{
    uint64_t first = jobs->view.members[members[0]].host_id, second = first;

    for (int i = 1; i < count; i++) {
        uint64_t host = jobs->view.members[members[i]].host_id;
        if (host != first && host != second && second != first)
            return true;
        second = second == first ? host : second;
    }
    return false;
}

static uint64_t draw_id(struct jobs *jobs)
{
    uint64_t id = 0;

    while (id == 0 || job_leader_run(&jobs->leader, id)) {
        id = derived_id(ID_GROUP_SPEC, hash_mix(jobs->setup.seed, jobs->view.instance),
                        hash_mix(jobs->view.epoch, jobs->view.term), ++jobs->leader.formations);
    }
    return id;
}

static void arrange(const struct jobs *jobs, const int *members, int count, struct ring_order *out)
{
    uint64_t hosts[VIEW_MEMBERS_MAX];

    for (int i = 0; i < count; i++)
        hosts[i] = jobs->view.members[members[i]].host_id;
    topology_arrange(&jobs->links, members, hosts, count, out);
}

static void write_form(struct jobs *jobs, const char *job, const int *members, int count)
{
    struct form *form = &jobs->scratch.form;
    struct group_spec *f = &form->spec;
    struct ring_order best;

    memset(form, 0, sizeof *form);
    arrange(jobs, members, count, &best);
    f->id = draw_id(jobs);
    f->size = count;
    f->sites = (uint8_t)best.sites;
    f->inside_mbit_x10 = best.inside_mbit_x10;
    f->across_mbit_x10 = best.across_mbit_x10;
    f->inside_us = best.inside_us;
    f->across_us = best.across_us;
    f->instance = jobs->view.instance;
    f->epoch = jobs->view.epoch;
    f->term = jobs->view.term;
    snprintf(f->job, sizeof f->job, "%s", job);
    for (int rank = 0; rank < count; rank++) {
        int m = members[best.order[rank]];
        const struct told_request *request = led_request(jobs, m, job);
        f->members[rank] = jobs->view.members[m].id;
        f->site[rank] = (uint8_t)best.site[rank];
        f->done[rank] = request->done;
        f->place_len[rank] = (uint16_t)request->request.place_len;
        memcpy(f->place[rank], request->request.place, request->request.place_len);
        form->serial[rank] = request->serial;
    }
}

static void form_job(struct jobs *jobs, const struct led_job *job, const int *members, int count,
                     uint64_t now_ns)
{
    const struct form *form = &jobs->scratch.form;

    write_form(jobs, job->job, members, count);
    size_t len = form_encode(form, jobs->bytes, sizeof jobs->bytes);
    uint8_t *message = heap_alloc(jobs->setup.heap, 1, len);
    struct run *run = message ? job_leader_add_run(jobs, form->spec.id, job->job, now_ns) : NULL;
    if (!run) { /* no memory: tried again with the next board */
        heap_free(message);
        return;
    }
    memcpy(message, jobs->bytes, len);
    run->message = message;
    run->message_len = len;
    run->ours = true;
    run->size = count;
    memcpy(run->members, form->spec.members, sizeof run->members);
    memcpy(run->serial, form->serial, sizeof run->serial);
    jobs->leader.changed = true;
    const char *left = job->left.text;
    log_write(&jobs->setup.log, left[0] ? HEARTH_LOG_WARN : HEARTH_LOG_INFO, "HEARTH-JOB-FORMED",
              "job %s begins with %d member%s%s%s", job->job, count, count == 1 ? "" : "s",
              left[0] ? ", " : "", left);
}

void job_leader_form(struct jobs *jobs, uint64_t now_ns)
{
    struct job_leader *leader = &jobs->leader;
    bool missing[VIEW_MEMBERS_MAX];
    int members[VIEW_MEMBERS_MAX];
    uint64_t due_ns;

    for (int m = 0; m < jobs->view.size; m++)
        if (job_leader_silent(jobs, m, now_ns)) {
            job_leader_sooner(&leader->next_ns, leader->told[m].since_ns + JOBS_SILENT_NS);
            return; /* it may run a job, or have requested it first */
        }
    for (int i = 0; i < leader->jobs; i++) {
        refuse_others(jobs, &leader->job[i]);
        if (!jobs->leads || !jobs->quorum || job_runs(jobs, leader->job[i].job))
            continue;
        int count = requesters(jobs, &leader->job[i], members, now_ns, &due_ns);
        if (count == 0 || job_leader_elsewhere(jobs, leader->job[i].job, missing))
            continue;
        if (jobs->measuring && order_matters(jobs, members, count))
            due_ns += JOBS_MEASURE_NS;
        if (now_ns >= due_ns)
            form_job(jobs, &leader->job[i], members, count, now_ns);
        else
            job_leader_sooner(&leader->next_ns, due_ns);
    }
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
