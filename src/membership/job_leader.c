/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's side of jobs: the reports of the members, and what follows from them. The leader keeps nothing
 * that reports do not restore: a new leader, or a new term, begins empty.
 *
 * A participant that reports neither the formation nor the request that it fulfils has ended it, or will
 * never be in it: then it is over for all. The serial of each request tells this case from a report that
 * crossed the FORM message. */
#include <stdio.h>
#include <string.h>

#include "membership/jobs_state.h"

void job_leader_sooner(uint64_t *deadline_ns, uint64_t at_ns)
{
    if (at_ns < *deadline_ns)
        *deadline_ns = at_ns;
}

/* ---- Reports ---- */

static void forget(struct told *told)
{
    for (int i = 0; i < told->requests; i++)
        heap_free(told->request[i].ran);
    heap_free(told->request);
    heap_free(told->part);
    memset(told, 0, sizeof *told);
}

static void drop_run(struct job_leader *leader, struct run *run)
{
    list_remove(&run->item);
    heap_free(run->message);
    heap_free(run);
    leader->run_count--;
}

void job_leader_fini(struct jobs *jobs)
{
    struct job_leader *leader = &jobs->leader;
    struct list *item, *after;

    LIST_EACH (item, after, &leader->runs)
        drop_run(leader, container_of(item, struct run, item));
    for (int m = 0; m < VIEW_MEMBERS_MAX; m++)
        forget(&leader->told[m]);
    leader->jobs = 0;
    leader->ended = 0;
    memset(leader->ended_job, 0, sizeof leader->ended_job);
    leader->taken = false;
}

/* Members that stay in the view keep their reports of this term. */
static void follow(struct jobs *jobs, const struct view *view, bool same_term, uint64_t now_ns)
{
    struct job_leader *leader = &jobs->leader;
    struct told before[VIEW_MEMBERS_MAX];

    memcpy(before, leader->told, sizeof before);
    memset(leader->told, 0, sizeof leader->told);
    for (int m = 0; m < view->size; m++) {
        int was = view_find(&jobs->view, &view->members[m].id);
        leader->told[m].since_ns = now_ns;
        if (was < 0 || !same_term)
            continue;
        leader->told[m] = before[was];
        before[was] = (struct told){0};
    }
    for (int m = 0; m < VIEW_MEMBERS_MAX; m++)
        forget(&before[m]);
}

void job_leader_view(struct jobs *jobs, const struct view *view, uint64_t now_ns)
{
    struct job_leader *leader = &jobs->leader;
    bool ours = identity_equal(&view->members[view->leader].id, &jobs->setup.self);

    bool same_term =
        ours && leader->taken && leader->instance == view->instance && leader->term == view->term;

    if (!same_term) {
        job_leader_fini(jobs);
        leader->sequence = 0;
    }
    follow(jobs, view, same_term, now_ns);
    leader->taken = ours;
    leader->instance = view->instance;
    leader->term = view->term;
    leader->changed = true;
    leader->next_ns = now_ns;
}

struct run *job_leader_run(const struct job_leader *leader, uint64_t id)
{
    struct list *item, *after;

    LIST_EACH (item, after, &leader->runs) {
        struct run *run = container_of(item, struct run, item);
        if (run->id == id)
            return run;
    }
    return NULL;
}

struct run *job_leader_add_run(struct jobs *jobs, uint64_t id, const char *job, uint64_t now_ns)
{
    if (jobs->leader.run_count >= JOBS_RUNS_MAX)
        return NULL;
    struct run *run = heap_alloc(jobs->setup.heap, 1, sizeof *run);
    if (!run)
        return NULL;
    run->id = id;
    run->since_ns = now_ns;
    snprintf(run->job, sizeof run->job, "%s", job);
    list_push(&jobs->leader.runs, &run->item);
    jobs->leader.run_count++;
    return run;
}

static const struct told_request *same_request(const struct told *told, uint64_t serial)
{
    for (int i = 0; i < told->requests; i++)
        if (told->request[i].serial == serial)
            return &told->request[i];
    return NULL;
}

static const struct told_part *same_part(const struct told *told, uint64_t spec)
{
    for (int i = 0; i < told->parts; i++)
        if (told->part[i].spec == spec)
            return &told->part[i];
    return NULL;
}

static bool take_request(struct jobs *jobs, const struct told *before, const struct report_request *from,
                         uint64_t now_ns, struct told_request *request)
{
    const struct told_request *same = same_request(before, from->serial);

    if (same) {
        *request = *same;
    } else {
        request->serial = from->serial;
        request->done = from->done;
        request->since_ns = now_ns;
        request->request.min = from->min;
        request->request.place_len = from->place_len;
        memcpy(request->request.job, from->job, sizeof request->request.job);
        memcpy(request->request.settings, from->settings, sizeof request->request.settings);
        memcpy(request->request.place, from->place, from->place_len);
    }
    request->unreached = from->unreached; /* may change while it waits */
    memcpy(request->unreached_id, from->unreached_id, sizeof request->unreached_id);
    request->ran = NULL;
    if (!from->record)
        return true;
    struct reader r = reader_of(from->record, from->record_len);
    request->ran = heap_alloc_raw(jobs->setup.heap, 1, sizeof *request->ran);
    return request->ran && job_record_get(&r, request->ran);
}

/* Copies a report to the heap; false: no memory, and nothing is held. */
static bool take_report(struct jobs *jobs, const struct told *before, const struct report *report,
                        uint64_t now_ns, struct told *told)
{
    *told = (struct told){.heard = true, .since_ns = before->since_ns, .sequence = report->sequence};
    told->request = heap_alloc(jobs->setup.heap, (size_t)report->requests, sizeof *told->request);
    told->part = heap_alloc(jobs->setup.heap, (size_t)report->parts, sizeof *told->part);
    if (!told->request || !told->part) {
        forget(told);
        return false;
    }
    told->parts = report->parts;
    for (int i = 0; i < report->requests; i++) {
        told->requests++;
        if (!take_request(jobs, before, &report->request[i], now_ns, &told->request[i])) {
            forget(told);
            return false;
        }
    }
    for (int i = 0; i < report->parts; i++) {
        struct told_part *part = &told->part[i];
        part->spec = report->part[i].spec;
        part->over = report->part[i].over;
        memcpy(part->job, report->part[i].job, sizeof part->job);
        memcpy(part->settings, report->part[i].settings, sizeof part->settings);
    }
    return true;
}

static struct led_job *find_job(struct job_leader *leader, const char *job)
{
    for (int i = 0; i < leader->jobs; i++)
        if (strcmp(leader->job[i].job, job) == 0)
            return &leader->job[i];
    return NULL;
}

/* Formations that the member has released: it may request the job again, so the settle time starts again. */
static bool note_releases(struct job_leader *leader, const struct told *before, const struct told *told,
                          uint64_t now_ns)
{
    bool any = false;

    for (int i = 0; i < before->parts; i++) {
        const struct told_part *part = &before->part[i], *now = same_part(told, part->spec);
        struct led_job *job = find_job(leader, part->job);
        any |= !now || now->over != part->over;
        if (!now && job)
            job->released_ns = now_ns;
    }
    return any;
}

static bool requests_differ(const struct told *before, const struct told *told)
{
    bool differ = before->requests != told->requests || before->parts != told->parts;

    for (int i = 0; i < told->requests; i++) {
        const struct told_request *same = same_request(before, told->request[i].serial);
        differ |=
            !same || (!same->ran) != (!told->request[i].ran) || same->unreached != told->request[i].unreached;
    }
    return differ;
}

int job_leader_report(struct jobs *jobs, int from, const struct report *report, uint64_t now_ns)
{
    struct job_leader *leader = &jobs->leader;
    struct told *told = &leader->told[from], before = *told;

    if (!leader->taken || report->instance != leader->instance || report->term != leader->term ||
        (before.heard && report->sequence <= before.sequence))
        return HEARTH_OK; /* outdated */
    if (!take_report(jobs, &before, report, now_ns, told)) {
        *told = before;
        return HEARTH_NO_MEMORY; /* the member reports again */
    }
    for (int i = 0; i < report->parts; i++) {
        const struct report_part *part = &report->part[i];
        struct run *run = job_leader_run(leader, part->spec);
        if (!run && (run = job_leader_add_run(jobs, part->spec, part->job, now_ns))) {
            run->size = part->size;
            memcpy(run->members, part->members, (size_t)part->size * sizeof *part->members);
        }
    }
    bool released = note_releases(leader, &before, told, now_ns);
    if (released || requests_differ(&before, told) || !before.heard) { /* else nothing is new */
        leader->changed = true;
        leader->next_ns = now_ns;
    }
    forget(&before);
    return HEARTH_OK;
}

/* ---- Ended formations ---- */

/* Of a member in a formation. From ROLE_OVER on it is over for all; the highest role gives the reason. */
enum role {
    ROLE_IN,
    ROLE_CALLED, /* it has not answered the FORM message */
    ROLE_SILENT, /* it has not reported in this term */
    ROLE_OVER,   /* it reports the end */
    ROLE_OUT,    /* it has left, or withdrew its request */
    ROLE_GONE    /* from the view */
};

static enum role role_of(const struct jobs *jobs, const struct run *run, int rank, int *member)
{
    int at = view_find(&jobs->view, &run->members[rank]);
    *member = at;
    if (at < 0)
        return ROLE_GONE;
    const struct told *told = &jobs->leader.told[at];
    const struct told_part *part = same_part(told, run->id);
    if (part)
        return part->over ? ROLE_OVER : ROLE_IN;
    if (!told->heard)
        return ROLE_SILENT;
    return run->ours && same_request(told, run->serial[rank]) ? ROLE_CALLED : ROLE_OUT;
}

static void end_run(struct jobs *jobs, struct run *run, const struct identity *who, enum role role)
{
    const char *how = role == ROLE_GONE  ? "is not a member any more"
                      : role == ROLE_OUT ? "has left the group"
                                         : "knows that the group is over";
    char name[PEER_NAME_MAX];

    job_name_of(&jobs->view, who, name, sizeof name);
    run->ended = true;
    run->who = *who;
    snprintf(run->why, sizeof run->why, "%s %s", name, how);
    jobs->leader.changed = true;
    log_write(&jobs->setup.log, HEARTH_LOG_INFO, "HEARTH-JOB-ENDED", "job %s: %s", run->job, run->why);
}

/* Ends formations that are over and drops those that no member holds. */
static void look_after_runs(struct jobs *jobs)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        struct run *run = container_of(item, struct run, item);
        enum role most = ROLE_IN;
        int held = 0, whose = 0, member;
        for (int r = 0; r < run->size; r++) {
            enum role role = role_of(jobs, run, r, &member);
            held += member >= 0 && same_part(&jobs->leader.told[member], run->id);
            if (role > most) {
                most = role;
                whose = r;
            }
        }
        run->complete |= most == ROLE_IN;
        if (most >= ROLE_OVER && !run->ended)
            end_run(jobs, run, &run->members[whose], most);
        if (held == 0 && (run->ended || !run->ours))
            drop_run(&jobs->leader, run);
    }
}

/* ---- Requests ---- */

bool job_leader_called(const struct jobs *jobs, int member, const struct told_request *request)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        const struct run *run = container_of(item, struct run, item);
        if (!run->ours || run->ended || strcmp(run->job, request->request.job) != 0)
            continue;
        for (int r = 0; r < run->size; r++)
            if (run->serial[r] == request->serial &&
                identity_equal(&run->members[r], &jobs->view.members[member].id))
                return true;
    }
    return false;
}

const struct told_request *led_request(const struct jobs *jobs, int member, const char *job)
{
    const struct told *told = &jobs->leader.told[member];

    for (int i = 0; i < told->requests; i++)
        if (strcmp(told->request[i].request.job, job) == 0 && !told->request[i].refused &&
            !job_leader_called(jobs, member, &told->request[i]))
            return &told->request[i];
    return NULL;
}

bool job_leader_silent(const struct jobs *jobs, int member, uint64_t now_ns)
{
    const struct told *told = &jobs->leader.told[member];

    return !told->heard && now_ns < told->since_ns + JOBS_SILENT_NS;
}

static struct led_job *want_job(struct job_leader *leader, const char *job)
{
    struct led_job *at = find_job(leader, job);

    if (!at && leader->jobs < BOARD_MAX) {
        at = &leader->job[leader->jobs++];
        *at = (struct led_job){0};
        snprintf(at->job, sizeof at->job, "%s", job);
    }
    if (at)
        at->wanted = true;
    return at;
}

/* The settings of participants count, then the previous ones, then those of the first request. */
static void settle_settings(const struct jobs *jobs, struct led_job *job)
{
    const char *first = NULL;
    uint64_t first_ns = NEVER_NS;
    bool kept = false;

    for (int m = 0; m < jobs->view.size; m++) {
        const struct told *told = &jobs->leader.told[m];
        const struct told_request *request = led_request(jobs, m, job->job);
        for (int p = 0; p < told->parts; p++)
            if (strcmp(told->part[p].job, job->job) == 0) {
                memcpy(job->settings, told->part[p].settings, sizeof job->settings);
                job->settled = true;
                return;
            }
        kept |= request && job->settled && strcmp(request->request.settings, job->settings) == 0;
        if (request && request->since_ns < first_ns) {
            first_ns = request->since_ns;
            first = request->request.settings;
        }
    }
    if (first && !kept)
        memcpy(job->settings, first, sizeof job->settings);
    job->settled |= !!first;
}

int job_leader_ended(const struct job_leader *leader, const char *job)
{
    for (int i = 0; i < JOBS_ENDED_MAX; i++)
        if (leader->ended_job[i].ran > 0 && strcmp(leader->ended_job[i].job, job) == 0)
            return leader->ended_job[i].ran;
    return 0;
}

static void note_ended(struct job_leader *leader, const struct led_job *job)
{
    if (job->ran == 0)
        return;
    for (int i = 0; i < JOBS_ENDED_MAX; i++)
        if (strcmp(leader->ended_job[i].job, job->job) == 0)
            leader->ended_job[i].ran = 0;
    struct ended_job *ended = &leader->ended_job[leader->ended++ % JOBS_ENDED_MAX];
    ended->ran = job->ran;
    memcpy(ended->job, job->job, sizeof ended->job);
}

static void note_part(struct job_leader *leader, const struct told_part *part)
{
    const struct run *run = job_leader_run(leader, part->spec);
    struct led_job *job = want_job(leader, part->job);

    if (job && run && run->complete)
        job->ran = run->size;
}

static void list_jobs(struct jobs *jobs)
{
    struct job_leader *leader = &jobs->leader;

    for (int i = 0; i < leader->jobs; i++)
        leader->job[i].wanted = false;
    for (int m = 0; m < jobs->view.size; m++) {
        struct told *told = &leader->told[m];
        for (int i = 0; i < told->parts; i++)
            note_part(leader, &told->part[i]);
        for (int i = 0; i < told->requests; i++)
            if (!told->request[i].refused && !want_job(leader, told->request[i].request.job)) {
                told->request[i].refused = HEARTH_REASON_BUSY;
                snprintf(told->request[i].refusal, JOB_TEXT_MAX,
                         "the cluster has %d jobs already; wait until one has ended", BOARD_MAX);
                leader->changed = true;
            }
    }
    for (int i = 0; i < leader->jobs; i++)
        if (!leader->job[i].wanted) {
            note_ended(leader, &leader->job[i]);
            leader->job[i--] = leader->job[--leader->jobs];
        }
    for (int i = 0; i < leader->jobs; i++)
        settle_settings(jobs, &leader->job[i]);
}

/* ---- Messages ---- */

static void send_forms(struct jobs *jobs, uint64_t now_ns)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
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
                jobs_send(jobs, &run->members[r], MESSAGE_FORM, run->message, run->message_len, now_ns);
        }
        if (now_ns >= run->resend_ns)
            run->resend_ns = now_ns + JOBS_RESEND_NS;
        if (waiting)
            job_leader_sooner(&jobs->leader.next_ns, run->resend_ns);
    }
}

/* ---- The board ---- */

static void write_personal(struct jobs *jobs, int member, struct board *board)
{
    const struct told *told = &jobs->leader.told[member];

    board->heard = told->heard ? told->sequence : 0;
    board->ended = board->refused = 0;
    for (int i = 0; i < told->parts; i++) {
        const struct run *run = job_leader_run(&jobs->leader, told->part[i].spec);
        if (!run || !run->ended || told->part[i].over)
            continue;
        struct board_end *end = &board->end[board->ended++];
        end->spec = run->id;
        end->who = run->who;
        memcpy(end->why, run->why, sizeof end->why);
    }
    for (int i = 0; i < told->requests; i++)
        if (told->request[i].refused) {
            struct board_refusal *refusal = &board->refusal[board->refused++];
            refusal->serial = told->request[i].serial;
            refusal->reason = told->request[i].refused;
            memcpy(refusal->why, told->request[i].refusal, sizeof refusal->why);
        }
}

static void send_board(struct jobs *jobs, int member, uint64_t now_ns)
{
    struct board *board = &jobs->scratch.board;

    write_personal(jobs, member, board);
    size_t len = board_encode(board, jobs->bytes, sizeof jobs->bytes);
    jobs_send(jobs, &jobs->view.members[member].id, MESSAGE_BOARD, jobs->bytes, len, now_ns);
}

static void send_boards(struct jobs *jobs, uint64_t now_ns)
{
    struct job_leader *leader = &jobs->leader;
    struct board *board = &jobs->scratch.board;
    int self = jobs->view.leader;
    uint64_t due_ns = leader->board_ns + (leader->changed ? JOBS_BOARD_NS : JOBS_REPORT_NS);

    if (now_ns < due_ns && leader->sequence > 0) {
        job_leader_sooner(&leader->next_ns, due_ns);
        return;
    }
    memset(board, 0, sizeof *board);
    board->instance = leader->instance;
    board->term = leader->term;
    board->sequence = ++leader->sequence;
    board->lines = leader->jobs;
    for (int i = 0; i < leader->jobs; i++)
        job_waits_for(jobs, &leader->job[i], now_ns, &board->line[i]);
    for (int m = 0; m < jobs->view.size; m++)
        if (m != self)
            send_board(jobs, m, now_ns);
    send_board(jobs, self, now_ns); /* last: decoding it overwrites the board */
    leader->changed = false;
    leader->board_ns = now_ns;
    job_leader_sooner(&leader->next_ns, now_ns + JOBS_REPORT_NS);
}

void job_leader_tick(struct jobs *jobs, uint64_t now_ns)
{
    struct job_leader *leader = &jobs->leader;

    leader->next_ns = NEVER_NS;
    if (!leader->taken)
        return;
    look_after_runs(jobs);
    job_leader_end_twins(jobs, now_ns);
    list_jobs(jobs);
    job_leader_form(jobs, now_ns);
    send_forms(jobs, now_ns);
    send_boards(jobs, now_ns);
}
