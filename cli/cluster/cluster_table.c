/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a home cluster for people. */
#include "cli/cluster/cluster_table.h"

#include <string.h>

#include "cli/shared/text.h"
#include "security/node_key.h"

#define NAME_WIDTH 18

/* What came over a network may hold anything; a terminal would obey it. */
static void print_clean(FILE *file, const char *text, int width)
{
    int len = 0;
    for (; *text; text++, len++)
        fputc(*text >= ' ' && *text < 127 ? *text : '?', file);
    fprintf(file, "%*s", width > len ? width - len : 0, "");
}

static struct text micros(double us)
{
    return us < 0 ? (struct text){"-"} : text_time(us / 1e6);
}

/* What was so before it died says nothing now. */
static bool is_dead(const struct cluster_member *m)
{
    return strcmp(m->state, "dead") == 0;
}

static void draw_remarks(FILE *file, const struct cluster_member *m)
{
    const char *words[6];
    int count = 0;
    if (m->leads && !is_dead(m))
        words[count++] = "leads";
    if (m->self)
        words[count++] = "this machine";
    if (m->roles & HEARTH_ROLE_DEMO)
        words[count++] = "allows the demo";
    if (m->roles & HEARTH_ROLE_GUEST)
        words[count++] = "guest";
    for (int i = 0; i < count; i++)
        fprintf(file, "%s%s", i ? ", " : "  ", words[i]);
}

static enum paint health_paint(const char *state)
{
    if (strcmp(state, "healthy") == 0 || strcmp(state, "self") == 0)
        return PAINT_GOOD;
    return strcmp(state, "degraded") == 0 ? PAINT_BOLD : PAINT_BAD;
}

static void draw_member(FILE *file, const struct cluster_member *m)
{
    fprintf(file, "%s ", m->leads && !is_dead(m) ? "*" : " ");
    print_clean(file, m->name, NAME_WIDTH);
    fputc(' ', file);
    print_clean(file, m->short_id, 16);
    fprintf(file, "%s", paint(file, health_paint(m->state)));
    print_clean(file, m->state, 10);
    fprintf(file, "%s %8s", paint(file, PAINT_NONE),
            m->self ? "" : micros(is_dead(m) ? -1 : m->latency_us).s);
    draw_remarks(file, m);
    fputc('\n', file);
}

static int draw_jobs(FILE *file, const struct cluster_status *status)
{
    for (int i = 0; i < status->job_count; i++) {
        const struct cluster_job *job = &status->jobs[i];
        fprintf(file, "  job ");
        print_clean(file, job->name, 0);
        fprintf(file, ":");
        if (job->running > 0)
            fprintf(file, " runs with %d", job->running);
        if (job->wishing > 0)
            fprintf(file, "%s %d wait%s, %d are needed", job->running > 0 ? "," : "", job->wishing,
                    job->wishing == 1 ? "s" : "", job->min);
        fputc('\n', file);
    }
    return status->job_count;
}

int cluster_table_draw(FILE *file, const struct cluster_status *status, const char *note)
{
    int lines = 2;
    fprintf(file, "%s%d member%s%s, epoch %llu, term %llu", paint(file, PAINT_BOLD), status->count,
            status->count == 1 ? "" : "s", paint(file, PAINT_NONE), (unsigned long long)status->epoch,
            (unsigned long long)status->term);
    if (status->state[0]) {
        fprintf(file, ", ");
        print_clean(file, status->state, 0);
    }
    fprintf(file, "\n%s  %-*s %-16s%-10s %8s%s\n", paint(file, PAINT_DIM), NAME_WIDTH, "name", "id", "health",
            "latency", paint(file, PAINT_NONE));
    for (int i = 0; i < status->count; i++)
        draw_member(file, &status->members[i]);
    lines += status->count + draw_jobs(file, status);
    if (note && *note) {
        print_clean(file, note, 0);
        fputc('\n', file);
        lines++;
    }
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

void cluster_event_text(const struct hearth_event *event, char *text, size_t size)
{
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
    for (char *c = text; *c; c++)
        *c = *c >= ' ' && *c < 127 ? *c : '?';
}

void cluster_line(FILE *file, const char *text, time_t now)
{
    char clock[16] = "";
    struct tm tm;
    if (localtime_r(&now, &tm))
        strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    fprintf(file, "%s ", clock);
    print_clean(file, text, 0);
    fputc('\n', file);
    fflush(file);
}

void cluster_event_line(FILE *file, const struct hearth_event *event, time_t now)
{
    char text[512];
    cluster_event_text(event, text, sizeof text);
    cluster_line(file, text, now);
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
