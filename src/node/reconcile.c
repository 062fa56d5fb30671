/* SPDX-License-Identifier: Apache-2.0 */
/* Three small collectives on the new group:
 *
 *   round    the number of attachments with a record at each member, and the number of this round
 *   records  their records; each member decides for itself, and keeps the decision
 *   confirm  all have decided: only now a member may take irrevocable actions
 *
 * If one of them fails, nothing has moved, and the caller forms another group. */
#include "node/reconcile.h"

#include <string.h>

#include "core/derived_id.h"
#include "node/call.h"

#define TIMEOUT_MS 20000 /* a lost member ends it sooner */
#define COUNT_MAX  1024u /* of attachments with a record */

struct reconciliation {
    hearth_group *from, *to;
    const struct stop *stop;
    struct error *error;
    uint64_t most, round;
    struct attachment_record *records; /* [size][most] */
};

static int exchange(const struct reconciliation *r, const void *own, void *all, size_t words)
{
    struct hearth_opts opts;
    struct call call = {
        .kind = PLAN_ALL_GATHER, .source = own, .target = all, .count = words, .dtype = HEARTH_U64};
    hearth_opts_init(&opts);
    opts.tag = derived_id(ID_RECONCILE_TAG, group_view(r->to->group)->group, 0, 0);
    opts.timeout_ms = TIMEOUT_MS;
    int status = call_run_unless(r->to, &call, &opts, r->stop);
    if (status != HEARTH_OK)
        *r->error = *error_last();
    return status;
}

/* ---- attachments of the old group, in order of creation: the same on all members ---- */

static int move_all(const struct reconciliation *r, enum move_phase phase)
{
    struct group_move move = {.from = r->from, .to = r->to, .phase = phase};
    struct list *item, *after;
    int status = HEARTH_OK;
    if (!r->from)
        return HEARTH_OK;
    LIST_EACH (item, after, &r->from->node->attached) {
        struct attachment *attachment = container_of(item, struct attachment, item);
        if (attachment->move && status == HEARTH_OK)
            status = attachment->move(attachment, &move, r->error);
    }
    return status;
}

static struct attachment *next_with_record(const struct reconciliation *r, struct attachment *before)
{
    struct list *item, *after, *head = r->from ? &r->from->node->attached : NULL;
    bool passed = !before;
    if (!head)
        return NULL;
    LIST_EACH (item, after, head) {
        struct attachment *attachment = container_of(item, struct attachment, item);
        if (passed && attachment->reconciler && attachment->reconciler->group(attachment) == r->from)
            return attachment;
        passed = passed || attachment == before;
    }
    return NULL;
}

/* ---- the three collectives ---- */

/* A member's part in the first. */
struct offer {
    uint64_t count;    /* of its attachments with a record */
    uint64_t promised; /* the last round of any of them */
};

static int offers_check(struct reconciliation *r, const struct offer *offers)
{
    for (int i = 0; i < hearth_group_size(r->to); i++) {
        r->most = offers[i].count > r->most ? offers[i].count : r->most;
        r->round = offers[i].promised >= r->round ? offers[i].promised + 1 : r->round;
        if (offers[i].count > COUNT_MAX)
            return error_set(r->error, HEARTH_LIMIT, i, "reform: rank %d has %llu syncs, %u are allowed", i,
                             (unsigned long long)offers[i].count, COUNT_MAX);
    }
    return HEARTH_OK;
}

static int round_exchange(struct reconciliation *r)
{
    struct offer own = {0},
                 *offers = heap_alloc(r->to->node->heap, (size_t)hearth_group_size(r->to), sizeof own);
    if (!offers)
        return error_set(r->error, HEARTH_NO_MEMORY, RANK_NONE, "reform: no memory to compare steps");
    for (struct attachment *a = NULL; (a = next_with_record(r, a)); own.count++) {
        uint64_t promised = a->reconciler->promised(a);
        own.promised = promised > own.promised ? promised : own.promised;
    }
    int status = exchange(r, &own, offers, sizeof own / sizeof(uint64_t));
    if (status == HEARTH_OK)
        status = offers_check(r, offers);
    heap_free(offers);
    return status;
}

static int records_exchange(struct reconciliation *r)
{
    size_t most = (size_t)r->most, place = (size_t)hearth_group_rank(r->to) * most;
    struct attachment_record *own = r->records + place;
    size_t n = 0;
    for (struct attachment *a = NULL; (a = next_with_record(r, a));)
        a->reconciler->record(a, r->round, &own[n++]);
    return exchange(r, own, r->records, most * sizeof *own / sizeof(uint64_t));
}

/* HEARTH_OK or HEARTH_BEHIND. */
static int decide(const struct reconciliation *r, struct attachment_record *column)
{
    int size = hearth_group_size(r->to), status = HEARTH_OK;
    size_t n = 0;
    for (struct attachment *a = NULL; (a = next_with_record(r, a)); n++) {
        for (int i = 0; i < size; i++)
            column[i] = r->records[(size_t)i * (size_t)r->most + n];
        if (a->reconciler->decide(a, column, size))
            status = HEARTH_BEHIND;
    }
    return status;
}

static int agree(struct reconciliation *r, struct attachment_record *column)
{
    int status = records_exchange(r);
    if (status != HEARTH_OK)
        return status;
    int behind = decide(r, column);
    uint64_t own = 0;
    status = exchange(r, &own, column, 1); /* the content does not matter */
    if (status != HEARTH_OK)
        return status;
    for (struct attachment *a = NULL; (a = next_with_record(r, a));)
        a->reconciler->confirm(a);
    return behind;
}

static int reconcile(struct reconciliation *r)
{
    int status = round_exchange(r);
    if (status != HEARTH_OK || r->most == 0)
        return status;
    struct heap *heap = r->to->node->heap;
    size_t size = (size_t)hearth_group_size(r->to);
    r->records = heap_alloc(heap, size * (size_t)r->most, sizeof *r->records);
    struct attachment_record *column = heap_alloc(heap, size, sizeof *column);
    status = r->records && column
                 ? agree(r, column)
                 : error_set(r->error, HEARTH_NO_MEMORY, RANK_NONE, "reform: no memory to compare steps");
    heap_free(column);
    heap_free(r->records);
    return status;
}

int node_move_attachments(hearth_group *from, hearth_group *to, const struct stop *stop, struct error *error)
{
    struct error none; /* MOVE_CANCEL and MOVE_COMMIT cannot fail */
    struct reconciliation r = {.from = from, .to = to, .stop = stop, .error = error};
    if (from && from->node->heap != to->node->heap)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "reform: attachments cannot move to another heap");
    if (from)
        node_view_changed(from->node, "the group is formed again");
    int status = move_all(&r, MOVE_PREPARE);
    if (status == HEARTH_OK)
        status = reconcile(&r);
    r.error = &none;
    move_all(&r, status >= 0 ? MOVE_COMMIT : MOVE_CANCEL);
    return status;
}
