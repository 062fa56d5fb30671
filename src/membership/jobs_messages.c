/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the messages of jobs as docs/cluster_messages.md says. */
#include "membership/jobs_messages.h"

#include <string.h>

#include "core/error.h"

/* ---- Pieces ---- */

/* False: malformed, or a duplicate. */
static bool get_new_identity(struct reader *r, struct identity *ids, int at)
{
    if (!identity_get(r, &ids[at]))
        return false;
    for (int i = 0; i < at; i++)
        if (identity_equal(&ids[i], &ids[at]))
            return false;
    return true;
}

static int malformed(const char **what, const char *how)
{
    *what = how;
    return HEARTH_PROTOCOL;
}

/* ---- Report ---- */

size_t report_encode(const struct report *report, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u64(&w, report->instance);
    put_u64(&w, report->term);
    put_u64(&w, report->sequence);
    put_u8(&w, (uint8_t)report->requests);
    put_u8(&w, (uint8_t)report->parts);
    for (int i = 0; i < report->requests; i++) {
        const struct report_request *request = &report->request[i];
        put_u64(&w, request->serial);
        put_u64(&w, request->done);
        put_u8(&w, (uint8_t)request->min);
        text_put(&w, request->job, sizeof request->job);
        text_put(&w, request->settings, sizeof request->settings);
        put_u16(&w, (uint16_t)request->place_len);
        put_bytes(&w, request->place, request->place_len);
        put_u8(&w, request->ran || request->record);
        if (request->ran)
            job_record_put(&w, request->ran);
        else
            put_bytes(&w, request->record, request->record_len);
        put_u8(&w, (uint8_t)request->unreached);
        for (int m = 0; m < request->unreached; m++)
            identity_put(&w, &request->unreached_id[m]);
    }
    for (int i = 0; i < report->parts; i++) {
        const struct report_part *part = &report->part[i];
        put_u64(&w, part->spec);
        put_u8(&w, part->over);
        put_u8(&w, (uint8_t)part->size);
        text_put(&w, part->job, sizeof part->job);
        text_put(&w, part->settings, sizeof part->settings);
        for (int m = 0; m < part->size; m++)
            identity_put(&w, &part->members[m]);
    }
    return w.bad ? 0 : size - (size_t)(w.end - w.at);
}

static bool get_record(struct reader *r, struct report_request *request)
{
    struct view ran;
    uint8_t some = get_u8(r);

    request->ran = NULL;
    request->record = some ? r->at : NULL;
    if (r->bad || some > 1 || (some && !job_record_get(r, &ran)))
        return false;
    request->record_len = some ? (size_t)(r->at - request->record) : 0;
    return true;
}

static bool get_unreached(struct reader *r, struct report_request *request)
{
    request->unreached = get_u8(r);
    if (r->bad || request->unreached > JOB_UNREACHED_MAX)
        return false;
    for (int m = 0; m < request->unreached; m++)
        if (!get_new_identity(r, request->unreached_id, m))
            return false;
    return true;
}

static bool get_request(struct reader *r, struct report_request *request)
{
    request->serial = get_u64(r);
    request->done = get_u64(r);
    request->min = get_u8(r);
    if (request->serial == 0 || request->min < 1 || request->min > VIEW_MEMBERS_MAX ||
        !text_get(r, request->job, sizeof request->job) || request->job[0] == '\0' ||
        !text_get(r, request->settings, sizeof request->settings))
        return false;
    request->place_len = get_u16(r);
    request->place = r->at;
    if (r->bad || request->place_len > JOB_PLACE_MAX || request->place_len > reader_left(r))
        return false;
    r->at += request->place_len;
    return get_record(r, request) && get_unreached(r, request);
}

static bool get_part(struct reader *r, struct report_part *part, struct identity *members)
{
    part->spec = get_u64(r);
    uint8_t over = get_u8(r);
    part->size = get_u8(r);
    part->over = over == 1;
    part->members = members;
    if (part->spec == 0 || over > 1 || part->size < 1 || part->size > VIEW_MEMBERS_MAX ||
        !text_get(r, part->job, sizeof part->job) || part->job[0] == '\0' ||
        !text_get(r, part->settings, sizeof part->settings))
        return false;
    for (int m = 0; m < part->size; m++)
        if (!get_new_identity(r, members, m))
            return false;
    return true;
}

static const char *report_job(const struct report *report, int at)
{
    return at < report->requests ? report->request[at].job : report->part[at - report->requests].job;
}

int report_decode(struct report *report, const void *source, size_t len, const char **what)
{
    struct reader r = reader_of(source, len);

    report->instance = get_u64(&r);
    report->term = get_u64(&r);
    report->sequence = get_u64(&r);
    report->requests = get_u8(&r);
    report->parts = get_u8(&r);
    if (r.bad || report->instance == 0 || report->term == 0 || report->sequence == 0)
        return malformed(what, "report: no instance, term or sequence");
    if (report->requests + report->parts > JOBS_MAX)
        return malformed(what, "report: too many jobs");
    for (int i = 0; i < report->requests; i++)
        if (!get_request(&r, &report->request[i]))
            return malformed(what, "report: malformed request");
    for (int i = 0; i < report->parts; i++)
        if (!get_part(&r, &report->part[i], report->pool[i]))
            return malformed(what, "report: malformed part");
    if (reader_left(&r) > 0)
        return malformed(what, "report: trailing bytes");
    for (int i = 0; i < report->requests + report->parts; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(report_job(report, i), report_job(report, j)) == 0)
                return malformed(what, "report: a job appears twice");
    return HEARTH_OK;
}

/* ---- Form ---- */

size_t form_encode(const struct form *form, void *target, size_t size)
{
    const struct group_spec *f = &form->spec;
    struct writer w = writer_of(target, size);

    put_u64(&w, f->instance);
    put_u64(&w, f->epoch);
    put_u64(&w, f->term);
    put_u64(&w, f->id);
    put_u32(&w, f->inside_mbit_x10);
    put_u32(&w, f->across_mbit_x10);
    put_u32(&w, f->inside_us);
    put_u32(&w, f->across_us);
    put_u8(&w, (uint8_t)f->size);
    put_u8(&w, f->sites);
    text_put(&w, f->job, sizeof f->job);
    for (int i = 0; i < f->size; i++) {
        identity_put(&w, &f->members[i]);
        put_u64(&w, form->serial[i]);
        put_u64(&w, f->done[i]);
        put_u8(&w, f->site[i]);
        put_u16(&w, f->place_len[i]);
        put_bytes(&w, f->place[i], f->place_len[i]);
    }
    return w.bad ? 0 : size - (size_t)(w.end - w.at);
}

static bool get_form_member(struct reader *r, struct form *form, int at)
{
    struct group_spec *f = &form->spec;
    int before = at > 0 ? f->site[at - 1] : 0;

    if (!get_new_identity(r, f->members, at))
        return false;
    form->serial[at] = get_u64(r);
    f->done[at] = get_u64(r);
    f->site[at] = get_u8(r);
    f->place_len[at] = get_u16(r);
    if (r->bad || form->serial[at] == 0 || f->place_len[at] > JOB_PLACE_MAX)
        return false;
    get_bytes(r, f->place[at], f->place_len[at]);
    return !r->bad && (f->site[at] == before || (at > 0 && f->site[at] == before + 1));
}

int form_decode(struct form *form, const void *source, size_t len, const char **what)
{
    struct group_spec *f = &form->spec;
    struct reader r = reader_of(source, len);

    memset(form, 0, sizeof *form);
    f->instance = get_u64(&r);
    f->epoch = get_u64(&r);
    f->term = get_u64(&r);
    f->id = get_u64(&r);
    f->inside_mbit_x10 = get_u32(&r);
    f->across_mbit_x10 = get_u32(&r);
    f->inside_us = get_u32(&r);
    f->across_us = get_u32(&r);
    f->size = get_u8(&r);
    f->sites = get_u8(&r);
    if (r.bad || f->instance == 0 || f->epoch == 0 || f->term == 0 || f->id == 0)
        return malformed(what, "form: no id, instance, epoch or term");
    if (f->size < 1 || f->size > VIEW_MEMBERS_MAX)
        return malformed(what, "form: invalid number of members");
    if (!text_get(&r, f->job, sizeof f->job) || f->job[0] == '\0')
        return malformed(what, "form: no job name");
    for (int i = 0; i < f->size; i++)
        if (!get_form_member(&r, form, i))
            return malformed(what, "form: malformed member");
    if (f->sites != f->site[f->size - 1] + 1)
        return malformed(what, "form: number of sites does not match the members");
    if (reader_left(&r) > 0)
        return malformed(what, "form: trailing bytes");
    return HEARTH_OK;
}

/* ---- Board ---- */

size_t board_encode(const struct board *board, void *target, size_t size)
{
    struct writer w = writer_of(target, size);

    put_u64(&w, board->instance);
    put_u64(&w, board->term);
    put_u64(&w, board->sequence);
    put_u64(&w, board->heard);
    put_u8(&w, (uint8_t)board->lines);
    put_u8(&w, (uint8_t)board->ended);
    put_u8(&w, (uint8_t)board->refused);
    for (int i = 0; i < board->lines; i++) {
        put_u8(&w, (uint8_t)board->line[i].line.min);
        put_u8(&w, (uint8_t)board->line[i].line.waiting);
        put_u8(&w, (uint8_t)board->line[i].line.running);
        text_put(&w, board->line[i].line.job, sizeof board->line[i].line.job);
        text_put(&w, board->line[i].why, sizeof board->line[i].why);
    }
    for (int i = 0; i < board->ended; i++) {
        put_u64(&w, board->end[i].spec);
        identity_put(&w, &board->end[i].who);
        text_put(&w, board->end[i].why, sizeof board->end[i].why);
    }
    for (int i = 0; i < board->refused; i++) {
        put_u64(&w, board->refusal[i].serial);
        put_u8(&w, (uint8_t)board->refusal[i].reason);
        text_put(&w, board->refusal[i].why, sizeof board->refusal[i].why);
    }
    return w.bad ? 0 : size - (size_t)(w.end - w.at);
}

static bool get_line(struct reader *r, struct board_line *at)
{
    at->line.min = get_u8(r);
    at->line.waiting = get_u8(r);
    at->line.running = get_u8(r);
    return at->line.min <= VIEW_MEMBERS_MAX && at->line.waiting <= VIEW_MEMBERS_MAX &&
           at->line.running <= VIEW_MEMBERS_MAX && text_get(r, at->line.job, sizeof at->line.job) &&
           at->line.job[0] != '\0' && text_get(r, at->why, sizeof at->why);
}

static bool get_end(struct reader *r, struct board_end *end)
{
    end->spec = get_u64(r);
    return end->spec != 0 && identity_get(r, &end->who) && text_get(r, end->why, sizeof end->why);
}

static bool get_refusal(struct reader *r, struct board_refusal *refusal)
{
    refusal->serial = get_u64(r);
    uint8_t reason = get_u8(r);
    refusal->reason = (enum hearth_reason)reason;
    return refusal->serial != 0 && reason != HEARTH_REASON_NONE && reason < REASON_COUNT &&
           text_get(r, refusal->why, sizeof refusal->why);
}

int board_decode(struct board *board, const void *source, size_t len, const char **what)
{
    struct reader r = reader_of(source, len);

    board->instance = get_u64(&r);
    board->term = get_u64(&r);
    board->sequence = get_u64(&r);
    board->heard = get_u64(&r);
    board->lines = get_u8(&r);
    board->ended = get_u8(&r);
    board->refused = get_u8(&r);
    if (r.bad || board->instance == 0 || board->term == 0 || board->sequence == 0)
        return malformed(what, "board: no instance, term or sequence");
    if (board->lines > BOARD_MAX || board->ended > JOBS_MAX || board->refused > JOBS_MAX)
        return malformed(what, "board: too many entries");
    for (int i = 0; i < board->lines; i++)
        if (!get_line(&r, &board->line[i]))
            return malformed(what, "board: malformed line");
    for (int i = 0; i < board->ended; i++)
        if (!get_end(&r, &board->end[i]))
            return malformed(what, "board: malformed end");
    for (int i = 0; i < board->refused; i++)
        if (!get_refusal(&r, &board->refusal[i]))
            return malformed(what, "board: malformed refusal");
    if (reader_left(&r) > 0)
        return malformed(what, "board: trailing bytes");
    return HEARTH_OK;
}
