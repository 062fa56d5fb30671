/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a home cluster for people. */
#include <string.h>

#include "cli/cluster/cluster_open.h"
#include "cli/shared/table.h"
#include "security/node_key.h"

#define LINE_MAX_LEN 512

/* What was so before it died says nothing now. */
static bool is_dead(const struct cluster_member *m)
{
    return strcmp(m->state, "dead") == 0;
}

static enum paint health_paint(const char *state)
{
    if (strcmp(state, "healthy") == 0 || strcmp(state, "self") == 0)
        return PAINT_NONE;
    return strcmp(state, "degraded") == 0 ? PAINT_BOLD : PAINT_BAD;
}

static void add_member(struct table *table, const struct cluster_member *m)
{
    bool leads = m->leads && !is_dead(m), known = !m->self && !is_dead(m) && m->latency_us >= 0;
    const char *words[] = {leads ? "leads" : NULL, m->self ? "this machine" : NULL,
                           m->roles & HEARTH_ROLE_DEMO ? "allows the demo" : NULL,
                           m->roles & HEARTH_ROLE_GUEST ? "guest" : NULL};
    char remarks[64] = "";
    for (size_t i = 0, at = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i])
            at += (size_t)snprintf(remarks + at, sizeof remarks - at, "%s%s", at ? ", " : "", words[i]);
    }
    TABLE_ROW(table, health_paint(m->state), leads ? "*" : " ", m->name, m->short_id, m->state,
              known     ? text_time(m->latency_us / 1e6).s
              : m->self ? ""
                        : "-",
              remarks);
}

static int draw_jobs(FILE *file, const struct cluster_status *status)
{
    for (int i = 0; i < status->job_count; i++) {
        const struct cluster_job *job = &status->jobs[i];
        char name[sizeof job->name];
        fprintf(file, "  job %s:", plain_text(job->name, name, sizeof name));
        if (job->running > 0)
            fprintf(file, " runs with %d", job->running);
        if (job->waiting > 0)
            fprintf(file, "%s %d wait%s, %d are needed", job->running > 0 ? "," : "", job->waiting,
                    job->waiting == 1 ? "s" : "", job->min);
        fputc('\n', file);
    }
    return status->job_count;
}

int cluster_table_draw(FILE *file, const struct cluster_status *status, const char *note)
{
    struct table table;
    char text[LINE_MAX_LEN];
    bool noted = note && *note;
    fprintf(file, "%s%d member%s%s, epoch %llu, term %llu%s%s\n", paint(file, PAINT_BOLD), status->count,
            status->count == 1 ? "" : "s", paint(file, PAINT_NONE), (unsigned long long)status->epoch,
            (unsigned long long)status->term, status->state[0] ? ", " : "", status->state);
    table_open(&table, "llllrl");
    TABLE_ROW(&table, PAINT_DIM, " ", "name", "id", "health", "latency", "");
    for (int i = 0; i < status->count; i++)
        add_member(&table, &status->members[i]);
    table_print(&table, file, "");
    table_close(&table);
    int lines = 2 + status->count + draw_jobs(file, status) + noted;
    if (noted)
        fprintf(file, "%s\n", plain_text(note, text, sizeof text));
    return lines;
}

/* ---- events ---- */

static const char *event_word(const struct hearth_event *event)
{
    switch (event->kind) {
    case HEARTH_EVENT_JOINED:
        return "joined";
    case HEARTH_EVENT_LEFT:
        return "left";
    case HEARTH_EVENT_HEALTH:
        return event->health;
    case HEARTH_EVENT_LEADER:
        return "leads";
    case HEARTH_EVENT_VIEW:
        return "view";
    case HEARTH_EVENT_QUORUM_LOST:
        return "quorum lost";
    case HEARTH_EVENT_QUORUM_BACK:
        return "quorum back";
    case HEARTH_EVENT_JOB_WANTED:
        return "job wanted";
    case HEARTH_EVENT_TROUBLE:
        return "trouble";
    }
    return "news";
}

void cluster_event_text(const struct hearth_event *event, char *target, size_t target_size)
{
    char text[LINE_MAX_LEN];
    size_t size = sizeof text;
    struct node_id id;
    char who[NODE_ID_SHORT] = "";
    if (node_id_parse(event->id, &id) == HEARTH_OK)
        node_id_short(&id, who);
    if (event->kind == HEARTH_EVENT_VIEW)
        snprintf(text, size, "view %llu: %d member%s", (unsigned long long)event->epoch, event->members,
                 event->members == 1 ? "" : "s");
    else
        snprintf(text, size, "%s%s%s%s%s%s%s", event_word(event), event->name[0] ? " " : "", event->name,
                 who[0] ? " " : "", who, event->text[0] ? ": " : "", event->text);
    plain_text(text, target, target_size);
}

void cluster_line(FILE *file, const char *text, time_t now)
{
    char clock[16] = "", plain[LINE_MAX_LEN];
    struct tm tm;
    if (localtime_r(&now, &tm))
        strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    fprintf(file, "%s %s\n", clock, plain_text(text, plain, sizeof plain));
    fflush(file);
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
            return status->jobs[i].waiting > 0;
    }
    return false;
}
