/* SPDX-License-Identifier: Apache-2.0 */
/* Why a job has not started: one sentence with names. */
#include <stdio.h>
#include <string.h>

#include "membership/jobs_state.h"

#define NAMES_SHOWN 5

void job_name_of(const struct view *view, const struct identity *id, char *text, size_t size)
{
    int at = view_find(view, id);

    if (at >= 0 && view->members[at].name[0] != '\0')
        snprintf(text, size, "%s", view->members[at].name);
    else
        identity_text(id, text, size);
}

/* ---- Settings ---- */

/* Finds "name=..." by its first `len` characters in a list; "": not found. */
static const char *setting_of(const char *list, const char *name, size_t len)
{
    while (*list) {
        if (strncmp(list, name, len) == 0)
            return list;
        list += strcspn(list, " ");
        list += strspn(list, " ");
    }
    return list;
}

/* The first setting of `list` that `other` does not have with the same value; NULL: none. */
static const char *first_missing(const char *list, const char *other, const char **instead)
{
    while (*list) {
        size_t len = strcspn(list, " "), name = strcspn(list, "= ");
        const char *there = setting_of(other, list, name < len ? name + 1 : len);
        if (strcspn(there, " ") != len || strncmp(there, list, len) != 0) {
            *instead = there;
            return list;
        }
        list += len;
        list += strspn(list, " ");
    }
    return NULL;
}

void job_differ(const char *theirs, const char *ours, char *text, size_t size)
{
    const char *mine = "", *yours = first_missing(theirs, ours, &mine);

    if (!yours) {
        yours = "";
        mine = first_missing(ours, theirs, &yours);
    }
    if (!mine) { /* the same settings in another order */
        mine = ours;
        yours = theirs;
    }
    int mine_len = (int)strcspn(mine, " "), yours_len = (int)strcspn(yours, " ");
    snprintf(text, size, "%.*s here, %.*s there", yours_len > 0 ? yours_len : 7,
             yours_len > 0 ? yours : "nothing", mine_len > 0 ? mine_len : 7, mine_len > 0 ? mine : "nothing");
}

/* ---- Names ---- */

struct name_list {
    char text[JOB_TEXT_MAX / 2];
    int count, shown;
};

static void add_name(const struct view *view, int member, struct name_list *names)
{
    char name[PEER_NAME_MAX];
    size_t len = strlen(names->text);

    names->count++;
    if (names->shown == NAMES_SHOWN)
        return;
    job_name_of(view, &view->members[member].id, name, sizeof name);
    if (len + strlen(name) + sizeof(", and 64 more") > sizeof names->text)
        return;
    snprintf(names->text + len, sizeof names->text - len, "%s%s", len > 0 ? ", " : "", name);
    names->shown++;
}

static void end_names(struct name_list *names)
{
    size_t len = strlen(names->text);

    if (names->shown < names->count)
        snprintf(names->text + len, sizeof names->text - len, " and %d more", names->count - names->shown);
}

/* ---- The sentence ---- */

void job_elsewhere(const struct view *ran, const bool *missing, const char *job, char *text, size_t size)
{
    struct name_list names = {0};

    for (int i = 0; i < ran->size; i++)
        if (missing[i])
            add_name(ran, i, &names);
    end_names(&names);
    snprintf(
        text, size,
        "it ran with %d members, and may run without this side: waiting for %s (to start it again: hearth "
        "job forget %s)",
        ran->size, names.text, job);
}

struct tally {
    int min, waiting, running, holding, silent;
    int left; /* requesting members that the running group cannot reach */
    struct name_list requesters, holders, silents;
};

static void count_runs(const struct jobs *jobs, const char *job, struct tally *t)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        const struct run *run = container_of(item, struct run, item);
        if (run->ended || strcmp(run->job, job) != 0)
            continue;
        t->running += run->size;
    }
}

static void count_members(const struct jobs *jobs, const struct led_job *job, uint64_t now_ns,
                          struct tally *t)
{
    for (int m = 0; m < jobs->view.size; m++) {
        const struct told *told = &jobs->leader.told[m];
        const struct told_request *request = led_request(jobs, m, job->job);
        if (request) {
            t->waiting++;
            t->left += job_leader_left_out(&job->left, &jobs->view.members[m].id, now_ns);
            t->min = request->request.min > t->min ? request->request.min : t->min;
            add_name(&jobs->view, m, &t->requesters);
        }
        for (int p = 0; p < told->parts; p++)
            if (strcmp(told->part[p].job, job->job) == 0) {
                t->holding++;
                add_name(&jobs->view, m, &t->holders);
            }
        if (job_leader_silent(jobs, m, now_ns)) {
            t->silent++;
            add_name(&jobs->view, m, &t->silents);
        }
    }
    end_names(&t->requesters);
    end_names(&t->holders);
    end_names(&t->silents);
}

static void why_running(const struct tally *t, const struct left_out *left, char *text, size_t size)
{
    snprintf(text, size, "it runs with %d member%s%s%s%s and takes new ones when it forms again", t->running,
             t->running == 1 ? "" : "s", left->text[0] ? ", " : "", left->text, left->text[0] ? "," : "");
}

void job_waits_for(const struct jobs *jobs, const struct led_job *job, uint64_t now_ns,
                   struct board_line *line)
{
    int before = job_leader_ended(&jobs->leader, job->job);
    struct tally t = {0};
    bool missing[VIEW_MEMBERS_MAX];
    const struct view *ran = job_leader_elsewhere(jobs, job->job, missing);

    count_runs(jobs, job->job, &t);
    count_members(jobs, job, now_ns, &t);
    memcpy(line->line.job, job->job, sizeof line->line.job);
    line->line.min = t.min;
    line->line.waiting = t.running > 0 ? t.waiting - t.left : t.waiting;
    line->line.running = t.running < VIEW_MEMBERS_MAX ? t.running : VIEW_MEMBERS_MAX;
    if (t.running > 0)
        why_running(&t, &job->left, line->why, sizeof line->why);
    else if (t.holding > 0)
        snprintf(line->why, sizeof line->why, "waiting for nodes that still hold the old group: %s",
                 t.holders.text);
    else if (ran)
        job_elsewhere(ran, missing, job->job, line->why, sizeof line->why);
    else if (t.waiting < t.min && before > 0)
        snprintf(line->why, sizeof line->why,
                 "it ran with %d member%s and has ended; to begin it again, %d of %d are there: %s", before,
                 before == 1 ? "" : "s", t.waiting, t.min, t.requesters.text);
    else if (t.waiting < t.min)
        snprintf(line->why, sizeof line->why, "%d of %d are there: %s", t.waiting, t.min, t.requesters.text);
    else if (t.waiting - t.left < t.min)
        snprintf(line->why, sizeof line->why, "%d are there, but %d of %d %s", t.waiting, t.waiting - t.left,
                 t.min, job->left.text);
    else if (!jobs->leads || !jobs->quorum)
        snprintf(line->why, sizeof line->why,
                 "the leader hears too few members of the cluster; nothing is formed until it does");
    else if (t.silent > 0)
        snprintf(line->why, sizeof line->why, "waiting for the first report of: %s", t.silents.text);
    else
        snprintf(line->why, sizeof line->why, "%d are there: it forms as soon as no other node joins%s",
                 t.waiting, jobs->measuring ? " and the paths between them are measured" : "");
}

/* The leader's line for the job, or NULL. */
static const struct board_line *line_of(const struct jobs *jobs, const char *job)
{
    for (int i = 0; i < jobs->lines; i++)
        if (strcmp(jobs->line[i].line.job, job) == 0)
            return &jobs->line[i];
    return NULL;
}

static void why_not_yet(const struct jobs *jobs, const struct job_slot *slot, char *text, size_t size)
{
    const struct board_line *line = line_of(jobs, slot->request.job);
    bool missing[VIEW_MEMBERS_MAX];
    char leader[PEER_NAME_MAX];

    if (jobs->view.size == 0 || !jobs->quorum) {
        snprintf(text, size, "too few members of the cluster are heard; nothing is formed until they are");
    } else if (line && line->line.running == 0 && slot->ran &&
               job_record_elsewhere(slot->ran, &jobs->view, NULL, NULL, missing)) {
        job_elsewhere(slot->ran, missing, slot->request.job, text, size); /* we know the names */
    } else if (line && line->why[0] != '\0') {
        snprintf(text, size, "%s", line->why);
    } else {
        job_name_of(&jobs->view, &jobs->view.members[jobs->view.leader].id, leader, sizeof leader);
        snprintf(text, size, "waiting for the leader, %s, to hear of it", leader);
    }
}

void jobs_why_not(struct jobs *jobs, const char *job, char *text, size_t size)
{
    const struct job_slot *slot = jobs_slot(jobs, job);

    text[0] = '\0';
    if (!slot)
        snprintf(text, size, "this node does not ask for it");
    else if (slot->state == SLOT_REFUSED)
        snprintf(text, size, "%s", slot->text);
    else if (slot->state == SLOT_WAITING)
        why_not_yet(jobs, slot, text, size);
}
