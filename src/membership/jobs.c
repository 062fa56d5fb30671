/* SPDX-License-Identifier: Apache-2.0 */
/* Every member's side of jobs: it reports its requests and formations to the leader, takes part in formations
 * and ends them. Messages carry state, not events: after a lost, duplicated or late one the next one corrects
 * all. */
#include "membership/jobs.h"

#include <stdio.h>
#include <string.h>

#include "membership/jobs_state.h"

int jobs_open(const struct jobs_setup *setup, struct jobs **out)
{
    struct jobs *jobs = heap_alloc(setup->heap, 1, sizeof *jobs);

    if (!jobs)
        return HEARTH_NO_MEMORY;
    jobs->setup = *setup;
    jobs->touched_ns = setup->now_ns;
    list_init(&jobs->leader.runs);
    *out = jobs;
    return HEARTH_OK;
}

static void free_slot(struct job_slot *slot)
{
    heap_free(slot->spec);
    heap_free(slot->ran);
    memset(slot, 0, sizeof *slot);
}

void jobs_close(struct jobs *jobs)
{
    if (!jobs)
        return;
    job_leader_fini(jobs);
    for (int i = 0; i < JOBS_MAX; i++)
        free_slot(&jobs->slots[i]);
    heap_free(jobs);
}

struct job_slot *jobs_slot(struct jobs *jobs, const char *job)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].state != SLOT_FREE && strcmp(jobs->slots[i].request.job, job) == 0)
            return &jobs->slots[i];
    return NULL;
}

static struct job_slot *find_part(struct jobs *jobs, uint64_t spec)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].spec && jobs->slots[i].spec->id == spec)
            return &jobs->slots[i];
    return NULL;
}

static void touch(struct jobs *jobs, uint64_t now_ns)
{
    jobs->changed = true;
    jobs->touched_ns = now_ns;
}

/* ---- Requests ---- */

static int check_request(const struct job_request *request, struct error *error)
{
    if (!memchr(request->job, '\0', sizeof request->job) || !job_name_ok(request->job))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "a job's name must have 1 to %d printable characters", JOB_NAME_MAX - 1);
    if (request->min < 1 || request->min > VIEW_MEMBERS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "job %s: at least %d members were asked for; it must be 1 to %d", request->job,
                         request->min, VIEW_MEMBERS_MAX);
    if (!memchr(request->settings, '\0', sizeof request->settings) || !job_text_ok(request->settings))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "job %s: settings must have at most %d printable characters", request->job,
                         JOB_SETTINGS_MAX - 1);
    if (request->place_len > JOB_PLACE_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "job %s: the place has %zu bytes; at most %d are allowed", request->job,
                         request->place_len, JOB_PLACE_MAX);
    return HEARTH_OK;
}

int jobs_request(struct jobs *jobs, const struct job_request *request, uint64_t done, uint64_t now_ns,
                 struct error *error)
{
    int status = check_request(request, error);
    if (status)
        return status;
    struct job_slot *slot = jobs_slot(jobs, request->job);
    if (slot && slot->state == SLOT_WAITING)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "this node asks for job %s already", request->job);
    if (slot && slot->state == SLOT_RUNNING)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "this node takes part in job %s already: close its group first", request->job);
    for (int i = 0; i < JOBS_MAX && !slot; i++)
        if (jobs->slots[i].state == SLOT_FREE)
            slot = &jobs->slots[i];
    if (!slot)
        return error_set(error, HEARTH_LIMIT, RANK_NONE,
                         "job %s: this node has %d jobs already; close one first", request->job, JOBS_MAX);
    free_slot(slot);
    slot->state = SLOT_WAITING;
    slot->request = *request;
    slot->done = done;
    slot->serial = ++jobs->serials;
    touch(jobs, now_ns);
    return HEARTH_OK;
}

int jobs_remember(struct jobs *jobs, const char *job, const struct view *ran, uint64_t now_ns)
{
    struct job_slot *slot = jobs_slot(jobs, job);
    struct view *copy = NULL;

    if (!slot || slot->state != SLOT_WAITING || (!ran && !slot->ran))
        return HEARTH_OK;
    if (ran && !(copy = heap_alloc_raw(jobs->setup.heap, 1, sizeof *copy)))
        return HEARTH_NO_MEMORY;
    if (copy)
        *copy = *ran;
    heap_free(slot->ran);
    slot->ran = copy;
    touch(jobs, now_ns);
    return HEARTH_OK;
}

void jobs_unreached(struct jobs *jobs, const char *job, const struct identity *ids, int count,
                    uint64_t now_ns)
{
    struct job_slot *slot = jobs_slot(jobs, job);
    size_t len = (size_t)count * sizeof *ids;

    if (!slot || slot->state != SLOT_WAITING ||
        (slot->unreached == count && (count == 0 || memcmp(slot->unreached_id, ids, len) == 0)))
        return;
    slot->unreached = count;
    for (int i = 0; i < count; i++)
        slot->unreached_id[i] = ids[i];
    touch(jobs, now_ns);
}

void jobs_withdraw(struct jobs *jobs, const char *job, uint64_t now_ns)
{
    struct job_slot *slot = jobs_slot(jobs, job);

    if (!slot || (slot->spec && slot->formed_told))
        return;
    free_slot(slot);
    touch(jobs, now_ns);
}

void jobs_end(struct jobs *jobs, uint64_t spec, uint64_t now_ns)
{
    struct job_slot *slot = find_part(jobs, spec);

    if (!slot)
        return;
    free_slot(slot);
    touch(jobs, now_ns);
}

_Static_assert(VIEW_MEMBERS_MAX <= 64, "a bit for each rank");

static uint64_t bit_of(const struct group_spec *spec, const struct identity *member)
{
    for (int r = 0; r < spec->size; r++)
        if (r != spec->rank && identity_equal(&spec->members[r], member))
            return UINT64_C(1) << r;
    return 0;
}

void jobs_left(struct jobs *jobs, const struct identity *member)
{
    for (int i = 0; i < JOBS_MAX; i++)
        if (jobs->slots[i].spec)
            jobs->slots[i].left |= bit_of(jobs->slots[i].spec, member);
}

/* `here`: `who` is still in the view, so it ended the formation on purpose. */
static void set_over(struct jobs *jobs, struct job_slot *slot, const struct identity *who, bool here,
                     uint64_t now_ns)
{
    uint64_t bit = bit_of(slot->spec, who);

    slot->state = SLOT_OVER;
    slot->who = *who;
    slot->broken |= !here && (slot->left & bit) == 0;
    slot->lost |= bit;
    touch(jobs, now_ns);
}

/* ---- The view ---- */

/* Ends formations that have lost a member; names are those of the view before. An ended formation may still
 * have operations between the rest, so it is told of each later loss, too. */
static void end_broken(struct jobs *jobs, const struct view *view, uint64_t now_ns)
{
    char name[PEER_NAME_MAX];

    for (int i = 0; i < JOBS_MAX; i++) {
        struct job_slot *slot = &jobs->slots[i];
        bool taken = slot->state == SLOT_RUNNING || slot->state == SLOT_OVER;
        for (int r = 0; taken && r < slot->spec->size; r++) {
            const struct identity *who = &slot->spec->members[r];
            if (view_find(view, who) >= 0 || (slot->lost >> r & 1) != 0)
                continue;
            job_name_of(&jobs->view, who, name, sizeof name);
            snprintf(slot->text, sizeof slot->text, "%s is not a member any more", name);
            set_over(jobs, slot, who, false, now_ns);
        }
    }
}

void jobs_stranded(struct jobs *jobs, uint64_t now_ns)
{
    for (int i = 0; i < JOBS_MAX; i++) {
        struct job_slot *slot = &jobs->slots[i];
        if (slot->state != SLOT_RUNNING)
            continue;
        snprintf(slot->text, sizeof slot->text,
                 "too few members of the cluster are heard, the others may go on without this side");
        set_over(jobs, slot, &jobs->setup.self, false, now_ns);
    }
}

static bool same_leader(const struct view *a, const struct view *b)
{
    return a->size > 0 && b->size > 0 && a->instance == b->instance && a->term == b->term &&
           identity_equal(&a->members[a->leader].id, &b->members[b->leader].id);
}

void jobs_view(struct jobs *jobs, const struct view *view, bool leads, bool quorum, uint64_t now_ns)
{
    bool same = same_leader(&jobs->view, view);

    if (leads != jobs->leads || quorum != jobs->quorum) {
        jobs->leader.next_ns = now_ns;
        jobs->leader.changed = true;
    }
    jobs->leads = leads;
    jobs->quorum = quorum;
    if (same && view->epoch == jobs->view.epoch)
        return;
    end_broken(jobs, view, now_ns);
    job_leader_view(jobs, view, now_ns);
    if (jobs->links.instance == jobs->view.instance && jobs->links.epoch == jobs->view.epoch)
        topology_follow(&jobs->links, &jobs->view, view);
    else
        topology_reset(&jobs->links, view);
    if (!same) { /* another leader sends its own boards */
        jobs->board_sequence = 0;
        jobs->lines = 0;
    }
    jobs->view = *view;
    touch(jobs, now_ns);
}

void jobs_links(struct jobs *jobs, const struct topology *links)
{
    if (links->instance == jobs->view.instance && links->epoch == jobs->view.epoch &&
        links->size == jobs->view.size)
        jobs->links = *links;
}

void jobs_measuring(struct jobs *jobs, bool measuring)
{
    if (jobs->measuring && !measuring)
        jobs->leader.next_ns = 0; /* a formation may wait for it */
    jobs->measuring = measuring;
}

/* ---- Messages ---- */

/* The requests known so far are fulfilled: only a later board shows new ones. */
static void forget_wanted(struct jobs *jobs, const char *job)
{
    for (int i = 0; i < jobs->wanteds; i++)
        if (strcmp(jobs->wanted[i].job, job) == 0)
            jobs->wanted[i--] = jobs->wanted[--jobs->wanteds];
}

static int take_form(struct jobs *jobs, uint64_t now_ns)
{
    const struct form *form = &jobs->scratch.form;
    const struct group_spec *f = &form->spec;
    struct job_slot *slot = jobs_slot(jobs, f->job);
    int rank = -1;

    if (f->instance != jobs->view.instance || f->term != jobs->view.term)
        return HEARTH_OK;
    for (int r = 0; r < f->size; r++) {
        if (view_find(&jobs->view, &f->members[r]) < 0)
            return HEARTH_OK; /* not in yet: the leader sends it again; or gone: it is over already */
        if (identity_equal(&f->members[r], &jobs->setup.self))
            rank = r;
    }
    if (rank < 0)
        return HEARTH_OK;
    if (!slot || slot->state != SLOT_WAITING || slot->serial != form->serial[rank] ||
        f->size < slot->request.min) { /* the user sets the minimum, not the leader */
        touch(jobs, now_ns);           /* the leader needs a new report */
        return HEARTH_OK;
    }
    slot->spec = heap_alloc_raw(jobs->setup.heap, 1, sizeof *slot->spec);
    if (!slot->spec)
        return HEARTH_NO_MEMORY; /* the leader sends it again */
    heap_free(slot->ran);        /* from now on it runs here */
    slot->ran = NULL;
    *slot->spec = *f;
    slot->spec->rank = rank;
    slot->state = SLOT_RUNNING;
    forget_wanted(jobs, f->job);
    touch(jobs, now_ns);
    return HEARTH_OK;
}

/* Keeps the list of jobs with open requests. */
static void note_wanted(struct jobs *jobs, const struct board *board)
{
    struct wanted before[BOARD_MAX];
    int count = jobs->wanteds;

    memcpy(before, jobs->wanted, sizeof before);
    jobs->wanteds = 0;
    for (int i = 0; i < board->lines; i++) {
        const struct job_line *line = &board->line[i].line;
        struct wanted *wanted = &jobs->wanted[jobs->wanteds];
        if (line->waiting == 0)
            continue;
        memcpy(wanted->job, line->job, sizeof wanted->job);
        wanted->told = false;
        for (int k = 0; k < count; k++)
            if (strcmp(before[k].job, line->job) == 0)
                wanted->told |= before[k].told;
        jobs->wanteds++;
    }
}

static void take_board(struct jobs *jobs, uint64_t now_ns)
{
    const struct board *board = &jobs->scratch.board;

    if (board->instance != jobs->view.instance || board->term != jobs->view.term)
        return;
    for (int i = 0; i < board->ended; i++) {
        struct job_slot *slot = find_part(jobs, board->end[i].spec);
        if (!slot || slot->state != SLOT_RUNNING)
            continue;
        memcpy(slot->text, board->end[i].why, sizeof slot->text);
        set_over(jobs, slot, &board->end[i].who, view_find(&jobs->view, &board->end[i].who) >= 0, now_ns);
    }
    for (int i = 0; i < board->refused; i++)
        for (int k = 0; k < JOBS_MAX; k++) {
            struct job_slot *slot = &jobs->slots[k];
            if (slot->state != SLOT_WAITING || slot->serial != board->refusal[i].serial)
                continue;
            slot->state = SLOT_REFUSED;
            slot->reason = board->refusal[i].reason;
            memcpy(slot->text, board->refusal[i].why, sizeof slot->text);
            touch(jobs, now_ns);
        }
    if (board->heard == 0)
        touch(jobs, now_ns); /* our report was lost, or came before it led */
    if (board->sequence <= jobs->board_sequence)
        return;
    jobs->board_sequence = board->sequence;
    jobs->lines = board->lines;
    memcpy(jobs->line, board->line, (size_t)board->lines * sizeof *board->line);
    note_wanted(jobs, board);
}

static bool reports_itself(const struct report *report, const struct identity *from)
{
    for (int p = 0; p < report->parts; p++) {
        bool in = false;
        for (int m = 0; m < report->part[p].size; m++)
            in |= identity_equal(&report->part[p].members[m], from);
        if (!in)
            return false;
    }
    return true;
}

int jobs_input(struct jobs *jobs, const struct received *message, uint64_t now_ns, const char **what)
{
    int status, member = view_find(&jobs->view, message->from);
    bool leader = member >= 0 && member == jobs->view.leader;

    switch (message->kind) {
    case MESSAGE_REPORT:
        status = report_decode(&jobs->scratch.report, message->payload, message->len, what);
        if (status)
            return status;
        if (!reports_itself(&jobs->scratch.report, message->from)) {
            *what = "report: its sender is not in a reported formation";
            return HEARTH_PROTOCOL;
        }
        return member >= 0 ? job_leader_report(jobs, member, &jobs->scratch.report, now_ns) : HEARTH_OK;
    case MESSAGE_FORM:
        status = form_decode(&jobs->scratch.form, message->payload, message->len, what);
        return status || !leader ? status : take_form(jobs, now_ns);
    case MESSAGE_BOARD:
        status = board_decode(&jobs->scratch.board, message->payload, message->len, what);
        if (status == HEARTH_OK && leader)
            take_board(jobs, now_ns);
        return status;
    default:
        *what = "not a message of jobs";
        return HEARTH_PROTOCOL;
    }
}

void jobs_send(struct jobs *jobs, const struct identity *to, uint8_t kind, const void *payload, size_t len,
               uint64_t now_ns)
{
    const char *what = "";

    if (!identity_equal(to, &jobs->setup.self))
        outbox_put(jobs->setup.outbox, to, kind, payload, len);
    else if (jobs_input(jobs, &(struct received){to, kind, payload, len}, now_ns, &what))
        log_write(&jobs->setup.log, HEARTH_LOG_DEBUG, "HEARTH-JOB-MESSAGE",
                  "message to this node failed (no memory: sent again): %s", what);
}

/* ---- Time ---- */

static void write_report(struct jobs *jobs, struct report *report)
{
    *report = (struct report){.instance = jobs->view.instance, .term = jobs->view.term};
    report->sequence = ++jobs->sequence;
    for (int i = 0; i < JOBS_MAX; i++) {
        const struct job_slot *slot = &jobs->slots[i];
        if (slot->state == SLOT_WAITING) {
            struct report_request *request = &report->request[report->requests++];
            request->serial = slot->serial;
            request->done = slot->done;
            request->min = slot->request.min;
            request->place = slot->request.place;
            request->place_len = slot->request.place_len;
            request->ran = slot->ran;
            request->unreached = slot->unreached;
            memcpy(request->unreached_id, slot->unreached_id, sizeof request->unreached_id);
            memcpy(request->job, slot->request.job, sizeof request->job);
            memcpy(request->settings, slot->request.settings, sizeof request->settings);
        } else if (slot->spec) {
            struct report_part *part = &report->part[report->parts++];
            part->spec = slot->spec->id;
            part->over = slot->state == SLOT_OVER;
            part->size = slot->spec->size;
            part->members = slot->spec->members;
            memcpy(part->job, slot->request.job, sizeof part->job);
            memcpy(part->settings, slot->request.settings, sizeof part->settings);
        }
    }
}

static void send_report(struct jobs *jobs, uint64_t now_ns)
{
    const struct identity *leader = &jobs->view.members[jobs->view.leader].id;

    write_report(jobs, &jobs->scratch.report);
    size_t len = report_encode(&jobs->scratch.report, jobs->bytes, sizeof jobs->bytes);
    jobs->changed = false;
    jobs->report_ns = now_ns + JOBS_REPORT_NS;
    jobs_send(jobs, leader, MESSAGE_REPORT, jobs->bytes, len, now_ns);
}

void jobs_tick(struct jobs *jobs, uint64_t now_ns)
{
    if (jobs->view.size == 0 || view_find(&jobs->view, &jobs->setup.self) < 0) {
        jobs->changed = false; /* the next view causes a report */
        return;
    }
    if (jobs->changed || now_ns >= jobs->report_ns)
        send_report(jobs, now_ns);
    if (now_ns >= jobs->leader.next_ns)
        job_leader_tick(jobs, now_ns);
    if (jobs->changed && jobs->leader.taken) /* by a message of this node to itself */
        send_report(jobs, now_ns);
}

uint64_t jobs_deadline(const struct jobs *jobs)
{
    uint64_t next_ns = jobs->report_ns;

    if (jobs->view.size == 0 || view_find(&jobs->view, &jobs->setup.self) < 0)
        return NEVER_NS;
    if (jobs->changed && jobs->touched_ns < next_ns)
        next_ns = jobs->touched_ns;
    if (jobs->leader.taken && jobs->leader.next_ns < next_ns)
        next_ns = jobs->leader.next_ns;
    return next_ns;
}

/* ---- State ---- */

bool jobs_takes_part(struct jobs *jobs, uint64_t spec)
{
    const struct job_slot *slot = find_part(jobs, spec);

    return slot && slot->state == SLOT_RUNNING;
}

bool jobs_runs(struct jobs *jobs, const char *job)
{
    const struct job_slot *slot = jobs_slot(jobs, job);

    return slot && slot->state == SLOT_RUNNING;
}

bool jobs_whole(struct jobs *jobs, uint64_t spec)
{
    const struct job_slot *slot = find_part(jobs, spec);

    return slot && !slot->broken;
}

uint64_t jobs_lost(struct jobs *jobs, uint64_t spec)
{
    const struct job_slot *slot = find_part(jobs, spec);

    return slot ? slot->lost : 0;
}

/* From the call on, before it reports the formation: it connects in between. */
static bool is_called(const struct jobs *jobs, const struct identity *member)
{
    struct list *item, *after;

    LIST_EACH (item, after, &jobs->leader.runs) {
        const struct run *run = container_of(item, struct run, item);
        for (int r = 0; run->ours && !run->ended && r < run->size; r++)
            if (identity_equal(&run->members[r], member))
                return true;
    }
    return false;
}

int jobs_taking_part(const struct jobs *jobs, struct identity members[static VIEW_MEMBERS_MAX])
{
    int count = 0;

    if (!jobs->leader.taken && jobs_running(jobs))
        members[count++] = jobs->setup.self;
    for (int i = 0; jobs->leader.taken && i < jobs->view.size; i++) {
        const struct told *told = &jobs->leader.told[i];
        bool at_work = is_called(jobs, &jobs->view.members[i].id);
        for (int k = 0; k < told->parts && !at_work; k++)
            at_work = !told->part[k].over;
        if (at_work)
            members[count++] = jobs->view.members[i].id;
    }
    return count;
}

int jobs_board(const struct jobs *jobs, struct job_line lines[BOARD_MAX])
{
    for (int i = 0; i < jobs->lines; i++)
        lines[i] = jobs->line[i].line;
    return jobs->lines;
}

/* The news of a slot; false: none. */
static bool slot_news(struct jobs *jobs, struct job_slot *slot, struct job_news *news)
{
    memcpy(news->job, slot->request.job, sizeof news->job);
    if (slot->state == SLOT_REFUSED) {
        news->kind = JOB_REFUSED;
        news->reason = slot->reason;
        memcpy(news->text, slot->text, sizeof news->text);
        free_slot(slot);
        return true;
    }
    if (!slot->spec)
        return false;
    news->id = slot->spec->id;
    if (!slot->formed_told) {
        slot->formed_told = true;
        jobs->shown = *slot->spec;
        news->kind = JOB_FORMED;
        news->spec = &jobs->shown;
        return true;
    }
    if (slot->state != SLOT_OVER || (slot->over_told && slot->lost == slot->lost_told))
        return false;
    slot->over_told = true;
    news->kind = JOB_ENDED;
    news->lost = slot->lost & ~slot->lost_told;
    slot->lost_told = slot->lost;
    news->who = slot->who;
    memcpy(news->text, slot->text, sizeof news->text);
    return true;
}

bool jobs_news(struct jobs *jobs, struct job_news *news)
{
    for (int i = 0; i < JOBS_MAX; i++) {
        *news = (struct job_news){0};
        if (slot_news(jobs, &jobs->slots[i], news))
            return true;
    }
    *news = (struct job_news){.kind = JOB_WANTED};
    for (int i = 0; i < jobs->wanteds; i++) {
        struct wanted *wanted = &jobs->wanted[i];
        const struct job_slot *slot = jobs_slot(jobs, wanted->job);
        if (wanted->told ||
            (slot && slot->state != SLOT_RUNNING)) /* requested, or held until the next request */
            continue;
        wanted->told = true;
        memcpy(news->job, wanted->job, sizeof news->job);
        return true;
    }
    return false;
}
