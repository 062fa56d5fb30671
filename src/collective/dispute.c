/* SPDX-License-Identifier: Apache-2.0 */
/* Members called different things. Rank 0 of the group is the arbiter; the finder tells it:
 *
 *   finder  --DISPUTE-->  arbiter  --ASK-->  all  --ANSWER-->  arbiter  --VERDICT-->  all
 *
 * The answers hold what each member called; the verdict names the member that differs from the majority, and
 * ends the operation with the same text everywhere. A finder that knows everything already (two lengths that
 * differ) sends the verdict along. One verdict per operation: later disputes over it are ignored. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collective/state.h"

/* ---- the verdict ---- */

static void call_text(const struct call_record *r, char *text, size_t size)
{
    if (r->flags & CALL_OPENING) {
        snprintf(text, size, "all_reduce_compressed");
        return;
    }
    const char *kind = r->kind < PLAN_KIND_COUNT ? plan_kind_name((enum plan_kind)r->kind) : "?";
    const char *dtype = hearth_dtype_name((enum hearth_dtype)r->dtype);
    int n = r->flags & CALL_LISTED ? snprintf(text, size, "%sv of %s with its counts", kind, dtype)
                                   : snprintf(text, size, "%s of %" PRIu64 " %s", kind, r->count, dtype);
    if (plan_kind_reduces((enum plan_kind)r->kind) && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " %s", hearth_op_name((enum hearth_op)r->op));
    if (r->root != RANK_NONE && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, " root %d", r->root);
    if (n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " by %s%s", hearth_algo_name((enum hearth_algo)r->algo),
                 r->flags & HEARTH_FLAG_RANK_ORDER ? " in rank order" : "");
}

static bool called(const struct call_record *r)
{
    return r->state == CALL_POSTED || r->state == CALL_ENDED;
}

/* How many called the same as member i. */
static int votes(const struct dispute *d, int i)
{
    int count = 0;
    for (int k = 0; k < d->group->view.size; k++)
        count += called(&d->answers[k]) && d->answers[k].fingerprint == d->answers[i].fingerprint;
    return count;
}

/* What most called: the lowest rank that holds it, and whether nobody else has as many votes. */
static int majority(const struct dispute *d, bool *clear)
{
    int best = RANK_NONE;
    *clear = true;
    for (int i = 0; i < d->group->view.size; i++) {
        if (!called(&d->answers[i]))
            continue;
        if (best == RANK_NONE || votes(d, i) > votes(d, best)) {
            best = i;
            *clear = true;
        } else if (votes(d, i) == votes(d, best) &&
                   d->answers[i].fingerprint != d->answers[best].fingerprint) {
            *clear = false;
        }
    }
    return best;
}

static bool differs(const struct dispute *d, int i, int most)
{
    if (d->answers[i].state == CALL_PASSED)
        return true;
    return called(&d->answers[i]) && d->answers[i].fingerprint != d->answers[most].fingerprint;
}

static void judge(const struct dispute *d, struct error *verdict)
{
    bool clear;
    int most = majority(d, &clear), first = RANK_NONE, others = 0;
    for (int i = 0; most != RANK_NONE && i < d->group->view.size; i++) {
        if (!differs(d, i, most))
            continue;
        first = first == RANK_NONE ? i : first;
        others++;
    }
    if (first == RANK_NONE) {
        error_set(verdict, HEARTH_MISMATCH, RANK_NONE, "operation #%" PRIu64 "%s: members disagree",
                  d->sequence, tag_text(d->tag).s);
        return;
    }
    char its[96], theirs[96], more[32] = "";
    call_text(&d->answers[most], theirs, sizeof theirs);
    if (d->answers[first].state == CALL_PASSED)
        snprintf(its, sizeof its, "something else long ago");
    else
        call_text(&d->answers[first], its, sizeof its);
    if (others > 1)
        snprintf(more, sizeof more, " (and %d more)", others - 1);
    error_set(verdict, HEARTH_MISMATCH, first,
              "operation #%" PRIu64 "%s: rank %d%s called %s, but %srank %d%s called %s%s", d->sequence,
              tag_text(d->tag).s, first, more, its, clear ? "most, like " : "", most, clear ? "," : "",
              theirs, strcmp(its, theirs) == 0 ? ": other counts, or another config" : "");
}

/* ---- every member ---- */

static const struct call_record never_called = {.state = CALL_UNKNOWN, .root = RANK_NONE};

/* The operation is over, wherever we are in it. */
static void accept_verdict(struct group *group, uint64_t tag, uint64_t sequence, const struct error *verdict)
{
    struct op *op = engine_op(group->engine, group->view.group, tag, sequence);
    struct ended *e = group_ended(group, tag, sequence);
    if (op) {
        op->judged = true;
        op_end(op, verdict);
    } else if (!group_passed(group, tag, sequence)) {
        group_retire(group, tag, sequence, verdict);
    } else if (!group->outer && (!e || !e->judged)) { /* of a part its call hears otherwise */
        if (e)
            e->judged = true;
        group->pending = *verdict;
    }
}

static struct call_record own_record(struct group *group, uint64_t tag, uint64_t sequence)
{
    struct op *op = engine_op(group->engine, group->view.group, tag, sequence);
    if (op)
        return op->record;
    if (!group_passed(group, tag, sequence))
        return never_called;
    struct ended *e = group_ended(group, tag, sequence);
    return e ? e->record : (struct call_record){.state = CALL_PASSED, .root = RANK_NONE};
}

/* ---- the arbiter ---- */

static struct dispute *dispute_find(struct group *group, uint64_t tag, uint64_t sequence)
{
    struct list *item, *after;
    LIST_EACH (item, after, &group->engine->disputes) {
        struct dispute *d = container_of(item, struct dispute, item);
        if (d->group == group && d->tag == tag && d->sequence == sequence)
            return d;
    }
    return NULL;
}

static void dispute_free(struct dispute *d)
{
    list_remove(&d->item);
    d->group->engine->dispute_count--;
    heap_free(d->answers);
    heap_free(d->answered);
    heap_free(d);
}

void disputes_drop(struct group *group)
{
    struct list *item, *after;
    LIST_EACH (item, after, &group->engine->disputes) {
        struct dispute *d = container_of(item, struct dispute, item);
        if (d->group == group)
            dispute_free(d);
    }
}

static void announce(struct group *group, uint64_t tag, uint64_t sequence, const struct error *verdict)
{
    group_tell(group, FRAME_VERDICT, tag, sequence, verdict);
    accept_verdict(group, tag, sequence, verdict);
}

static struct dispute *dispute_open(struct group *group, uint64_t tag, uint64_t sequence)
{
    struct engine *engine = group->engine;
    size_t size = (size_t)group->view.size;
    if (engine->dispute_count == DISPUTES_MAX)
        return NULL;
    struct dispute *d = heap_alloc(engine->heap, 1, sizeof *d);
    if (!d)
        return NULL;
    d->group = group;
    d->tag = tag;
    d->sequence = sequence;
    d->missing = group->view.size;
    d->answers = heap_alloc(engine->heap, size, sizeof *d->answers);
    d->answered = heap_alloc(engine->heap, size, sizeof *d->answered);
    list_init(&d->item);
    list_push(&engine->disputes, &d->item);
    engine->dispute_count++;
    if (d->answers && d->answered)
        return d;
    dispute_free(d);
    return NULL;
}

static void answer_came(struct dispute *d, int rank, const struct call_record *record)
{
    if (d->answered[rank])
        return;
    d->answered[rank] = true;
    d->answers[rank] = *record;
    if (--d->missing > 0)
        return;
    struct error verdict;
    struct group *group = d->group;
    uint64_t tag = d->tag, sequence = d->sequence;
    judge(d, &verdict);
    dispute_free(d);
    announce(group, tag, sequence, &verdict);
}

void disputes_lost(struct group *group, int rank)
{
    struct list *item, *after;
    LIST_EACH (item, after, &group->engine->disputes) {
        struct dispute *d = container_of(item, struct dispute, item);
        if (d->group == group)
            answer_came(d, rank, &never_called);
    }
}

static bool was_judged(struct group *group, uint64_t tag, uint64_t sequence)
{
    struct ended *e = group_ended(group, tag, sequence);
    return (e && e->judged) || group_retired(group, tag, sequence);
}

static void open_case(struct group *group, uint64_t tag, uint64_t sequence, const struct error *verdict)
{
    if (dispute_find(group, tag, sequence) || was_judged(group, tag, sequence))
        return;
    struct dispute *d = !verdict ? dispute_open(group, tag, sequence) : NULL;
    if (!d) {
        struct error plain;
        error_set(&plain, HEARTH_MISMATCH, RANK_NONE, "operation #%" PRIu64 "%s: members disagree", sequence,
                  tag_text(tag).s);
        announce(group, tag, sequence, verdict ? verdict : &plain);
        return;
    }
    for (int i = 0; i < group->view.size; i++) {
        struct frame ask = group_frame(group, FRAME_ASK, tag, sequence);
        if (i == group->rank)
            continue;
        if (!engine_link(group, i) || group->engine->peers[group->members[i]].left)
            answer_came(d, i, &never_called);
        else
            group_send(group, i, &ask, NULL);
    }
    struct call_record own = own_record(group, tag, sequence);
    answer_came(d, group->rank, &own);
}

/* ---- entry points ---- */

void dispute_raise(struct group *group, uint64_t tag, uint64_t sequence, const struct error *verdict)
{
    struct op *op = engine_op(group->engine, group->view.group, tag, sequence);
    if (op && op->disputed)
        return;
    if (op)
        op->disputed = true;
    if (group->rank == ARBITER) {
        open_case(group, tag, sequence, verdict);
        return;
    }
    uint8_t payload[FRAME_CONTROL_MAX];
    struct frame frame = group_frame(group, FRAME_DISPUTE, tag, sequence);
    frame.length = verdict ? (uint32_t)error_encode(verdict, payload, sizeof payload) : 0;
    group_send(group, ARBITER, &frame, payload);
}

static void bad_payload(struct group *group, int from)
{
    struct link *link = engine_link(group, from);
    if (link)
        link_fail(link, HEARTH_PROTOCOL, "a control frame with a bad payload");
}

void dispute_frame(struct group *group, int from, const struct frame *frame, const uint8_t *payload)
{
    struct error verdict;
    struct call_record record;
    uint8_t answer[FRAME_CONTROL_MAX];
    uint64_t tag = frame->tag, sequence = frame->sequence;
    switch (frame->kind) {
    case FRAME_DISPUTE:
        if (group->rank != ARBITER ||
            (frame->length > 0 && !engine_heard(group->engine, frame, payload, &verdict)))
            bad_payload(group, from);
        else
            open_case(group, tag, sequence, frame->length > 0 ? &verdict : NULL);
        return;
    case FRAME_ASK:
        record = own_record(group, tag, sequence);
        struct frame reply = group_frame(group, FRAME_ANSWER, tag, sequence);
        reply.length = (uint32_t)call_encode(&record, answer, sizeof answer);
        group_send(group, from, &reply, answer);
        return;
    case FRAME_ANSWER:
        if (call_decode(&record, payload, frame->length)) {
            bad_payload(group, from);
            return;
        }
        struct dispute *d = dispute_find(group, tag, sequence);
        if (d)
            answer_came(d, from, &record);
        return;
    default: /* FRAME_VERDICT */
        if (from != ARBITER || !engine_heard(group->engine, frame, payload, &verdict))
            bad_payload(group, from);
        else
            accept_verdict(group, tag, sequence, &verdict);
    }
}
