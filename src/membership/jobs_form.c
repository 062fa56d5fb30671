/* SPDX-License-Identifier: Apache-2.0 */
/* When the leader forms a job, with whom, and in which order. */
#include <stdio.h>
#include <string.h>

#include "core/derived_id.h"
#include "core/hash.h"
#include "membership/jobs_inside.h"

/* ---- Refusals ---- */

static void refuse_others(struct jobs *jobs, const struct chair_job *job)
{
    char differ[JOB_TEXT_MAX / 2];

    for (int m = 0; m < jobs->census.size; m++) {
        struct told *told = &jobs->chair.told[m];
        for (int i = 0; i < told->wishes; i++) {
            struct told_wish *wish = &told->wish[i];
            if (wish->refusal[0] != '\0' || strcmp(wish->wish.job, job->job) != 0 ||
                strcmp(wish->wish.settings, job->settings) == 0 || chair_called(jobs, m, wish))
                continue;
            job_differ(wish->wish.settings, job->settings, differ, sizeof(differ));
            snprintf(wish->refusal, sizeof(wish->refusal), "others ask for job %s with other settings: %s",
                     job->job, differ);
            jobs->chair.changed = true;
        }
    }
}

/* ---- Forming ---- */

static bool job_runs(const struct jobs *jobs, const char *job)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->chair.runs) {
        const struct run *run = container_of(item, struct run, item);
        if (!run->ended && strcmp(run->job, job) == 0)
            return true;
    }
    for (int m = 0; m < jobs->census.size; m++) /* over, but held */
        for (int p = 0; p < jobs->chair.told[m].parts; p++)
            if (strcmp(jobs->chair.told[m].part[p].job, job) == 0)
                return true;
    return false;
}

/* Members that wish for the job and can be joined with each other; *due_ns: when they have waited enough. */
static int wishers(const struct jobs *jobs, struct chair_job *job, int *members, uint64_t now_ns,
                   uint64_t *due_ns)
{
    int count = 0, min = 1, missing = 0, residents = 0;

    *due_ns = job->released_ns;
    for (int m = 0; m < jobs->census.size; m++) {
        const struct told_wish *wish = chair_wish(jobs, m, job->job);
        bool guest = jobs->census.members[m].flags & FELLOW_GUEST;
        missing += !wish && !guest;
        residents += wish && !guest;
        if (!wish)
            continue;
        members[count++] = m;
        min = wish->wish.min > min ? wish->wish.min : min;
        *due_ns = wish->since_ns > *due_ns ? wish->since_ns : *due_ns;
    }
    if (missing > 0 || residents == 0) /* somebody may still come */
        *due_ns += JOBS_SETTLE_NS;
    count = chair_together(jobs, job->job, members, count, now_ns, &job->left);
    return count >= min ? count : 0;
}

/* ---- What may run elsewhere ---- */

/* It was begun in this instance, and rightly so. */
static bool begun_here(const struct jobs *jobs, const char *job)
{
    bool begun = chair_ended(&jobs->chair, job) > 0;

    for (int i = 0; i < jobs->chair.jobs; i++)
        begun |= jobs->chair.job[i].ran > 0 && strcmp(jobs->chair.job[i].job, job) == 0;
    for (int m = 0; m < jobs->census.size && !begun; m++) {
        const struct told_wish *wish = chair_wish(jobs, m, job);
        begun = wish && wish->ran && wish->ran->instance == jobs->census.instance;
    }
    return begun;
}

/* Somebody remembers a later view of the same instance. */
static bool outdated(const struct jobs *jobs, const char *job, const struct census *ran)
{
    for (int m = 0; m < jobs->census.size; m++) {
        const struct told_wish *wish = chair_wish(jobs, m, job);
        if (wish && wish->ran && wish->ran->instance == ran->instance && wish->ran->epoch > ran->epoch)
            return true;
    }
    return false;
}

const struct census *chair_elsewhere(const struct jobs *jobs, const char *job,
                                     bool missing[static CENSUS_MEMBERS_MAX])
{
    bool heard[CENSUS_MEMBERS_MAX], asks[CENSUS_MEMBERS_MAX];

    if (begun_here(jobs, job))
        return NULL;
    for (int m = 0; m < jobs->census.size; m++) {
        heard[m] = jobs->chair.told[m].heard;
        asks[m] = chair_wish(jobs, m, job) != NULL;
    }
    for (int m = 0; m < jobs->census.size; m++) {
        const struct told_wish *wish = chair_wish(jobs, m, job);
        if (wish && wish->ran && !outdated(jobs, job, wish->ran) &&
            job_record_elsewhere(wish->ran, &jobs->census, heard, asks, missing))
            return wish->ran;
    }
    return NULL;
}

/* ---- Order ---- */

/* An order and sites are a matter of three hosts and more. */
static bool order_matters(const struct jobs *jobs, const int *members, int count)
{
    uint64_t first = jobs->census.members[members[0]].host_id, second = first;

    for (int i = 1; i < count; i++) {
        uint64_t host = jobs->census.members[members[i]].host_id;
        if (host != first && host != second && second != first)
            return true;
        second = second == first ? host : second;
    }
    return false;
}

static uint64_t draw_id(struct jobs *jobs)
{
    uint64_t id = 0;

    while (id == 0 || chair_run(&jobs->chair, id)) {
        id = derived_id(ID_FORMATION, hash_mix(jobs->setup.seed, jobs->census.instance),
                        hash_mix(jobs->census.epoch, jobs->census.term), ++jobs->chair.formations);
    }
    return id;
}

static void arrange(const struct jobs *jobs, const int *members, int count, struct arrangement *out)
{
    uint64_t hosts[CENSUS_MEMBERS_MAX];

    for (int i = 0; i < count; i++)
        hosts[i] = jobs->census.members[members[i]].host_id;
    topology_arrange(&jobs->links, members, hosts, count, out);
}

static void write_form(struct jobs *jobs, const char *job, const int *members, int count)
{
    struct form *form = &jobs->scratch.form;
    struct formation *f = &form->formation;
    struct arrangement best;

    memset(form, 0, sizeof(*form));
    arrange(jobs, members, count, &best);
    f->id = draw_id(jobs);
    f->size = count;
    f->sites = (uint8_t)best.sites;
    f->inside_mbit_x10 = best.inside_mbit_x10;
    f->across_mbit_x10 = best.across_mbit_x10;
    f->inside_us = best.inside_us;
    f->across_us = best.across_us;
    f->instance = jobs->census.instance;
    f->epoch = jobs->census.epoch;
    f->term = jobs->census.term;
    snprintf(f->job, sizeof(f->job), "%s", job);
    for (int rank = 0; rank < count; rank++) {
        int m = members[best.order[rank]];
        const struct told_wish *wish = chair_wish(jobs, m, job);
        f->members[rank] = jobs->census.members[m].id;
        f->site[rank] = (uint8_t)best.site[rank];
        f->done[rank] = wish->done;
        f->place_len[rank] = (uint16_t)wish->wish.place_len;
        memcpy(f->place[rank], wish->wish.place, wish->wish.place_len);
        form->serial[rank] = wish->serial;
    }
}

static void form_job(struct jobs *jobs, const struct chair_job *job, const int *members, int count,
                     uint64_t now_ns)
{
    const struct form *form = &jobs->scratch.form;

    write_form(jobs, job->job, members, count);
    size_t len = form_encode(form, jobs->bytes, sizeof(jobs->bytes));
    uint8_t *letter = heap_alloc(jobs->setup.heap, 1, len);
    struct run *run = letter ? chair_add_run(jobs, form->formation.id, job->job, now_ns) : NULL;
    if (!run) { /* no memory: tried again with the next board */
        heap_free(letter);
        return;
    }
    memcpy(letter, jobs->bytes, len);
    run->letter = letter;
    run->letter_len = len;
    run->ours = true;
    run->size = count;
    memcpy(run->members, form->formation.members, sizeof(run->members));
    memcpy(run->serial, form->serial, sizeof(run->serial));
    jobs->chair.changed = true;
    const char *left = job->left.text;
    log_write(&jobs->setup.log, left[0] ? HEARTH_LOG_WARN : HEARTH_LOG_INFO, "HEARTH-JOB-FORMED",
              "job %s begins with %d member%s%s%s", job->job, count, count == 1 ? "" : "s",
              left[0] ? ", " : "", left);
}

void chair_form(struct jobs *jobs, uint64_t now_ns)
{
    struct chair *chair = &jobs->chair;
    bool missing[CENSUS_MEMBERS_MAX];
    int members[CENSUS_MEMBERS_MAX];
    uint64_t due_ns;

    for (int m = 0; m < jobs->census.size; m++)
        if (chair_silent(jobs, m, now_ns)) {
            chair_sooner(&chair->next_ns, chair->told[m].since_ns + JOBS_SILENT_NS);
            return; /* it may run a job, or be the first to wish for it */
        }
    for (int i = 0; i < chair->jobs; i++) {
        refuse_others(jobs, &chair->job[i]);
        if (!jobs->leads || !jobs->quorum || job_runs(jobs, chair->job[i].job))
            continue;
        int count = wishers(jobs, &chair->job[i], members, now_ns, &due_ns);
        if (count == 0 || chair_elsewhere(jobs, chair->job[i].job, missing))
            continue;
        if (jobs->measuring && order_matters(jobs, members, count))
            due_ns += JOBS_MEASURE_NS;
        if (now_ns >= due_ns)
            form_job(jobs, &chair->job[i], members, count, now_ns);
        else
            chair_sooner(&chair->next_ns, due_ns);
    }
}
