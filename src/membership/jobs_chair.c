/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's side of jobs: what the members have reported, and what follows from it. Nothing is remembered
 * that reports do not bring back: a new leader, or a new term, begins with nothing.
 *
 * A member of a formation that reports neither to take part in it nor the wish that it fulfils has ended it,
 * or will never be in it: then it is over for all. Each wish has a serial, so that this can be told from a
 * report that crossed the formation on its way. */
#include <stdio.h>
#include <string.h>

#include "membership/jobs_inside.h"

void chair_init(struct chair *chair)
{
    list_init(&chair->runs);
}

void chair_sooner(uint64_t *deadline_ns, uint64_t at_ns)
{
    if (at_ns < *deadline_ns)
        *deadline_ns = at_ns;
}

/* ---- What was told ---- */

static void forget(struct told *told)
{
    for (int i = 0; i < told->wishes; i++)
        heap_free(told->wish[i].ran);
    heap_free(told->wish);
    heap_free(told->part);
    memset(told, 0, sizeof(*told));
}

static void drop_run(struct chair *chair, struct run *run)
{
    list_remove(&run->item);
    heap_free(run->letter);
    heap_free(run);
    chair->run_count--;
}

void chair_fini(struct jobs *jobs)
{
    struct chair *chair = &jobs->chair;
    struct list *item, *after;

    LIST_EACH (item, after, &chair->runs)
        drop_run(chair, container_of(item, struct run, item));
    for (int m = 0; m < CENSUS_MEMBERS_MAX; m++)
        forget(&chair->told[m]);
    chair->jobs = 0;
    chair->ended = 0;
    memset(chair->ended_job, 0, sizeof(chair->ended_job));
    chair->taken = false;
}

/* Who stays in the census keeps what it has told in this term. */
static void follow(struct jobs *jobs, const struct census *census, bool same_term, uint64_t now_ns)
{
    struct chair *chair = &jobs->chair;
    struct told before[CENSUS_MEMBERS_MAX];

    memcpy(before, chair->told, sizeof(before));
    memset(chair->told, 0, sizeof(chair->told));
    for (int m = 0; m < census->size; m++) {
        int was = census_find(&jobs->census, &census->members[m].id);
        chair->told[m].since_ns = now_ns;
        if (was < 0 || !same_term)
            continue;
        chair->told[m] = before[was];
        before[was] = (struct told){0};
    }
    for (int m = 0; m < CENSUS_MEMBERS_MAX; m++)
        forget(&before[m]);
}

void chair_census(struct jobs *jobs, const struct census *census, uint64_t now_ns)
{
    struct chair *chair = &jobs->chair;
    bool ours = identity_equal(&census->members[census->leader].id, &jobs->setup.self);

    bool same_term =
        ours && chair->taken && chair->instance == census->instance && chair->term == census->term;

    if (!same_term) {
        chair_fini(jobs);
        chair->sequence = 0;
    }
    follow(jobs, census, same_term, now_ns);
    chair->taken = ours;
    chair->instance = census->instance;
    chair->term = census->term;
    chair->changed = true;
    chair->next_ns = now_ns;
}

struct run *chair_run(const struct chair *chair, uint64_t id)
{
    struct list *item, *after;

    LIST_EACH (item, after, &chair->runs) {
        struct run *run = container_of(item, struct run, item);
        if (run->id == id)
            return run;
    }
    return NULL;
}

struct run *chair_add_run(struct jobs *jobs, uint64_t id, const char *job, uint64_t now_ns)
{
    if (jobs->chair.run_count >= JOBS_RUNS_MAX)
        return NULL;
    struct run *run = heap_alloc(jobs->setup.heap, 1, sizeof(*run));
    if (!run)
        return NULL;
    run->id = id;
    run->since_ns = now_ns;
    snprintf(run->job, sizeof(run->job), "%s", job);
    list_push(&jobs->chair.runs, &run->item);
    jobs->chair.run_count++;
    return run;
}

static const struct told_wish *same_wish(const struct told *told, uint64_t serial)
{
    for (int i = 0; i < told->wishes; i++)
        if (told->wish[i].serial == serial)
            return &told->wish[i];
    return NULL;
}

static const struct told_part *same_part(const struct told *told, uint64_t formation)
{
    for (int i = 0; i < told->parts; i++)
        if (told->part[i].formation == formation)
            return &told->part[i];
    return NULL;
}

static bool take_wish(struct jobs *jobs, const struct told *before, const struct report_wish *from,
                      uint64_t now_ns, struct told_wish *wish)
{
    const struct told_wish *same = same_wish(before, from->serial);

    if (same) {
        *wish = *same;
    } else {
        wish->serial = from->serial;
        wish->done = from->done;
        wish->since_ns = now_ns;
        wish->wish.min = from->min;
        wish->wish.place_len = from->place_len;
        memcpy(wish->wish.job, from->job, sizeof(wish->wish.job));
        memcpy(wish->wish.settings, from->settings, sizeof(wish->wish.settings));
        memcpy(wish->wish.place, from->place, from->place_len);
    }
    wish->unreached = from->unreached; /* these change while it is wished for */
    memcpy(wish->unreached_id, from->unreached_id, sizeof(wish->unreached_id));
    wish->ran = NULL;
    if (!from->record)
        return true;
    struct reader r = reader_of(from->record, from->record_len);
    wish->ran = heap_alloc_raw(jobs->setup.heap, 1, sizeof(*wish->ran));
    return wish->ran && job_record_get(&r, wish->ran);
}

/* Makes the blocks for what a report says; false: no memory, and nothing is held. */
static bool take_report(struct jobs *jobs, const struct told *before, const struct report *report,
                        uint64_t now_ns, struct told *told)
{
    *told = (struct told){.heard = true, .since_ns = before->since_ns, .sequence = report->sequence};
    told->wish = heap_alloc(jobs->setup.heap, (size_t)report->wishes, sizeof(*told->wish));
    told->part = heap_alloc(jobs->setup.heap, (size_t)report->parts, sizeof(*told->part));
    if (!told->wish || !told->part) {
        forget(told);
        return false;
    }
    told->parts = report->parts;
    for (int i = 0; i < report->wishes; i++) {
        told->wishes++;
        if (!take_wish(jobs, before, &report->wish[i], now_ns, &told->wish[i])) {
            forget(told);
            return false;
        }
    }
    for (int i = 0; i < report->parts; i++) {
        struct told_part *part = &told->part[i];
        part->formation = report->part[i].formation;
        part->over = report->part[i].over;
        memcpy(part->job, report->part[i].job, sizeof(part->job));
        memcpy(part->settings, report->part[i].settings, sizeof(part->settings));
    }
    return true;
}

static struct chair_job *find_job(struct chair *chair, const char *job)
{
    for (int i = 0; i < chair->jobs; i++)
        if (strcmp(chair->job[i].job, job) == 0)
            return &chair->job[i];
    return NULL;
}

/* Formations that somebody let go of: whoever did may come again, so the wait begins anew. */
static bool note_releases(struct chair *chair, const struct told *before, const struct told *told,
                          uint64_t now_ns)
{
    bool any = false;

    for (int i = 0; i < before->parts; i++) {
        const struct told_part *part = &before->part[i], *now = same_part(told, part->formation);
        struct chair_job *job = find_job(chair, part->job);
        any |= !now || now->over != part->over;
        if (!now && job)
            job->released_ns = now_ns;
    }
    return any;
}

static bool wishes_differ(const struct told *before, const struct told *told)
{
    bool differ = before->wishes != told->wishes || before->parts != told->parts;

    for (int i = 0; i < told->wishes; i++) {
        const struct told_wish *same = same_wish(before, told->wish[i].serial);
        differ |= !same || (same->ran == NULL) != (told->wish[i].ran == NULL) ||
                  same->unreached != told->wish[i].unreached;
    }
    return differ;
}

int chair_report(struct jobs *jobs, int from, const struct report *report, uint64_t now_ns)
{
    struct chair *chair = &jobs->chair;
    struct told *told = &chair->told[from], before = *told;

    if (!chair->taken || report->instance != chair->instance || report->term != chair->term ||
        (before.heard && report->sequence <= before.sequence))
        return HEARTH_OK; /* of another time */
    if (!take_report(jobs, &before, report, now_ns, told)) {
        *told = before;
        return HEARTH_NO_MEMORY; /* it will be told again */
    }
    for (int i = 0; i < report->parts; i++) {
        const struct report_part *part = &report->part[i];
        struct run *run = chair_run(chair, part->formation);
        if (!run && (run = chair_add_run(jobs, part->formation, part->job, now_ns)) != NULL) {
            run->size = part->size;
            memcpy(run->members, part->members, (size_t)part->size * sizeof(*part->members));
        }
    }
    bool released = note_releases(chair, &before, told, now_ns);
    if (released || wishes_differ(&before, told) || !before.heard) { /* else it says what is known */
        chair->changed = true;
        chair->next_ns = now_ns;
    }
    forget(&before);
    return HEARTH_OK;
}

/* ---- Formations that are over ---- */

/* Of a member in a formation. From ROLE_OVER on it is over for all; a later one says better why. */
enum role {
    ROLE_IN,
    ROLE_CALLED, /* the formation is still on its way to it */
    ROLE_SILENT, /* it has not reported in this term */
    ROLE_OVER,   /* it knows already that it is over */
    ROLE_OUT,    /* it has left, or does not want to be in it */
    ROLE_GONE    /* from the census */
};

static enum role role_of(const struct jobs *jobs, const struct run *run, int rank, int *member)
{
    int at = census_find(&jobs->census, &run->members[rank]);
    *member = at;
    if (at < 0)
        return ROLE_GONE;
    const struct told *told = &jobs->chair.told[at];
    const struct told_part *part = same_part(told, run->id);
    if (part)
        return part->over ? ROLE_OVER : ROLE_IN;
    if (!told->heard)
        return ROLE_SILENT;
    return run->ours && same_wish(told, run->serial[rank]) ? ROLE_CALLED : ROLE_OUT;
}

static void end_run(struct jobs *jobs, struct run *run, const struct identity *who, enum role role)
{
    const char *how = role == ROLE_GONE  ? "is not a member any more"
                      : role == ROLE_OUT ? "has left the group"
                                         : "knows that the group is over";
    char name[FELLOW_NAME_MAX];

    job_name_of(&jobs->census, who, name, sizeof(name));
    run->ended = true;
    run->who = *who;
    snprintf(run->why, sizeof(run->why), "%s %s", name, how);
    jobs->chair.changed = true;
    log_write(&jobs->setup.log, HEARTH_LOG_INFO, "HEARTH-JOB-ENDED", "job %s: %s", run->job, run->why);
}

/* Ends what is over and forgets what nobody holds. */
static void look_after_runs(struct jobs *jobs)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->chair.runs) {
        struct run *run = container_of(item, struct run, item);
        enum role most = ROLE_IN;
        int held = 0, whose = 0, member;
        for (int r = 0; r < run->size; r++) {
            enum role role = role_of(jobs, run, r, &member);
            held += member >= 0 && same_part(&jobs->chair.told[member], run->id);
            if (role > most) {
                most = role;
                whose = r;
            }
        }
        run->complete |= most == ROLE_IN;
        if (most >= ROLE_OVER && !run->ended)
            end_run(jobs, run, &run->members[whose], most);
        if (held == 0 && (run->ended || !run->ours))
            drop_run(&jobs->chair, run);
    }
}

/* ---- Wishes ---- */

bool chair_called(const struct jobs *jobs, int member, const struct told_wish *wish)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->chair.runs) {
        const struct run *run = container_of(item, struct run, item);
        if (!run->ours || run->ended || strcmp(run->job, wish->wish.job) != 0)
            continue;
        for (int r = 0; r < run->size; r++)
            if (run->serial[r] == wish->serial &&
                identity_equal(&run->members[r], &jobs->census.members[member].id))
                return true;
    }
    return false;
}

const struct told_wish *chair_wish(const struct jobs *jobs, int member, const char *job)
{
    const struct told *told = &jobs->chair.told[member];

    for (int i = 0; i < told->wishes; i++)
        if (strcmp(told->wish[i].wish.job, job) == 0 && told->wish[i].refusal[0] == '\0' &&
            !chair_called(jobs, member, &told->wish[i]))
            return &told->wish[i];
    return NULL;
}

bool chair_silent(const struct jobs *jobs, int member, uint64_t now_ns)
{
    const struct told *told = &jobs->chair.told[member];

    return !told->heard && now_ns < told->since_ns + JOBS_SILENT_NS;
}

static struct chair_job *want_job(struct chair *chair, const char *job)
{
    struct chair_job *at = find_job(chair, job);

    if (!at && chair->jobs < BOARD_MAX) {
        at = &chair->job[chair->jobs++];
        *at = (struct chair_job){0};
        snprintf(at->job, sizeof(at->job), "%s", job);
    }
    if (at)
        at->wanted = true;
    return at;
}

/* The settings of those who run it count, then those that counted before, then the first one's. */
static void settle_settings(const struct jobs *jobs, struct chair_job *job)
{
    const char *first = NULL;
    uint64_t first_ns = NEVER_NS;
    bool kept = false;

    for (int m = 0; m < jobs->census.size; m++) {
        const struct told *told = &jobs->chair.told[m];
        const struct told_wish *wish = chair_wish(jobs, m, job->job);
        for (int p = 0; p < told->parts; p++)
            if (strcmp(told->part[p].job, job->job) == 0) {
                memcpy(job->settings, told->part[p].settings, sizeof(job->settings));
                job->settled = true;
                return;
            }
        kept |= wish && job->settled && strcmp(wish->wish.settings, job->settings) == 0;
        if (wish && wish->since_ns < first_ns) {
            first_ns = wish->since_ns;
            first = wish->wish.settings;
        }
    }
    if (first && !kept)
        memcpy(job->settings, first, sizeof(job->settings));
    job->settled |= first != NULL;
}

int chair_ended(const struct chair *chair, const char *job)
{
    for (int i = 0; i < JOBS_ENDED_MAX; i++)
        if (chair->ended_job[i].ran > 0 && strcmp(chair->ended_job[i].job, job) == 0)
            return chair->ended_job[i].ran;
    return 0;
}

/* The newest end of a job counts. */
static void note_ended(struct chair *chair, const struct chair_job *job)
{
    if (job->ran == 0)
        return;
    for (int i = 0; i < JOBS_ENDED_MAX; i++)
        if (strcmp(chair->ended_job[i].job, job->job) == 0)
            chair->ended_job[i].ran = 0;
    struct ended_job *ended = &chair->ended_job[chair->ended++ % JOBS_ENDED_MAX];
    ended->ran = job->ran;
    memcpy(ended->job, job->job, sizeof(ended->job));
}

static void note_part(struct chair *chair, const struct told_part *part)
{
    const struct run *run = chair_run(chair, part->formation);
    struct chair_job *job = want_job(chair, part->job);

    if (job && run && run->complete)
        job->ran = run->size;
}

static void list_jobs(struct jobs *jobs)
{
    struct chair *chair = &jobs->chair;

    for (int i = 0; i < chair->jobs; i++)
        chair->job[i].wanted = false;
    for (int m = 0; m < jobs->census.size; m++) {
        struct told *told = &chair->told[m];
        for (int i = 0; i < told->parts; i++)
            note_part(chair, &told->part[i]);
        for (int i = 0; i < told->wishes; i++)
            if (told->wish[i].refusal[0] == '\0' && !want_job(chair, told->wish[i].wish.job)) {
                snprintf(told->wish[i].refusal, JOB_TEXT_MAX,
                         "the cluster has %d jobs already; wait until one has ended", BOARD_MAX);
                chair->changed = true;
            }
    }
    for (int i = 0; i < chair->jobs; i++)
        if (!chair->job[i].wanted) {
            note_ended(chair, &chair->job[i]);
            chair->job[i--] = chair->job[--chair->jobs];
        }
    for (int i = 0; i < chair->jobs; i++)
        settle_settings(jobs, &chair->job[i]);
}

/* ---- Letters ---- */

static void send_forms(struct jobs *jobs, uint64_t now_ns)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->chair.runs) {
        struct run *run = container_of(item, struct run, item);
        bool waiting = false;
        int member;
        if (!run->ours || run->ended)
            continue;
        for (int r = 0; r < run->size; r++) {
            if (role_of(jobs, run, r, &member) != ROLE_CALLED)
                continue;
            waiting = true;
            if (now_ns >= run->resend_ns)
                jobs_send(jobs, &run->members[r], LETTER_FORM, run->letter, run->letter_len, now_ns);
        }
        if (now_ns >= run->resend_ns)
            run->resend_ns = now_ns + JOBS_RESEND_NS;
        if (waiting)
            chair_sooner(&jobs->chair.next_ns, run->resend_ns);
    }
}

/* ---- The board ---- */

static void write_personal(struct jobs *jobs, int member, struct board *board)
{
    const struct told *told = &jobs->chair.told[member];

    board->heard = told->heard ? told->sequence : 0;
    board->ended = board->refused = 0;
    for (int i = 0; i < told->parts; i++) {
        const struct run *run = chair_run(&jobs->chair, told->part[i].formation);
        if (!run || !run->ended || told->part[i].over)
            continue;
        struct board_end *end = &board->end[board->ended++];
        end->formation = run->id;
        end->who = run->who;
        memcpy(end->why, run->why, sizeof(end->why));
    }
    for (int i = 0; i < told->wishes; i++)
        if (told->wish[i].refusal[0] != '\0') {
            struct board_refusal *refusal = &board->refusal[board->refused++];
            refusal->serial = told->wish[i].serial;
            memcpy(refusal->why, told->wish[i].refusal, sizeof(refusal->why));
        }
}

static void send_board(struct jobs *jobs, int member, uint64_t now_ns)
{
    struct board *board = &jobs->scratch.board;

    write_personal(jobs, member, board);
    size_t len = board_encode(board, jobs->bytes, sizeof(jobs->bytes));
    jobs_send(jobs, &jobs->census.members[member].id, LETTER_BOARD, jobs->bytes, len, now_ns);
}

static void send_boards(struct jobs *jobs, uint64_t now_ns)
{
    struct chair *chair = &jobs->chair;
    struct board *board = &jobs->scratch.board;
    int self = jobs->census.leader;
    uint64_t due_ns = chair->board_ns + (chair->changed ? JOBS_BOARD_NS : JOBS_REPORT_NS);

    if (now_ns < due_ns && chair->sequence > 0) {
        chair_sooner(&chair->next_ns, due_ns);
        return;
    }
    memset(board, 0, sizeof(*board));
    board->instance = chair->instance;
    board->term = chair->term;
    board->sequence = ++chair->sequence;
    board->lines = chair->jobs;
    for (int i = 0; i < chair->jobs; i++)
        job_waits_for(jobs, &chair->job[i], now_ns, &board->line[i]);
    for (int m = 0; m < jobs->census.size; m++)
        if (m != self)
            send_board(jobs, m, now_ns);
    send_board(jobs, self, now_ns); /* last: reading it overwrites what was written */
    chair->changed = false;
    chair->board_ns = now_ns;
    chair_sooner(&chair->next_ns, now_ns + JOBS_REPORT_NS);
}

void chair_tick(struct jobs *jobs, uint64_t now_ns)
{
    struct chair *chair = &jobs->chair;

    chair->next_ns = NEVER_NS;
    if (!chair->taken)
        return;
    look_after_runs(jobs);
    chair_end_twins(jobs, now_ns);
    list_jobs(jobs);
    chair_form(jobs, now_ns);
    send_forms(jobs, now_ns);
    send_boards(jobs, now_ns);
}
