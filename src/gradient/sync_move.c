/* SPDX-License-Identifier: Apache-2.0 */
/* A sync goes on with the next group. Its members say how far they had come; what not all of them have done
 * is taken back and made again, and who is new goes on from where the others are. */
#include <string.h>

#include "core/hash.h"
#include "gradient/compressor.h"
#include "gradient/sync.h"

/* ---- moving ---- */

static void luggage_drop(hearth_sync *sync, hearth_node *node)
{
    hearth_free(node, sync->luggage.memory);
    heap_free(sync->luggage.registrations);
    heap_free(sync->luggage.ballots);
    sync->luggage = (struct sync_luggage){0};
}

static int luggage_pack(hearth_sync *sync, hearth_group *to, struct error *error)
{
    struct sync_luggage *l = &sync->luggage;
    size_t size = (size_t)hearth_size(to), len = sync_memory_len(sync);
    l->registrations = heap_alloc(sync->heap, size, sizeof *l->registrations);
    l->ballots = heap_alloc(sync->heap, size, sizeof *l->ballots);
    l->memory = len > 0 ? hearth_alloc(to->node, len) : NULL;
    if (l->registrations != NULL && l->ballots != NULL && (l->memory != NULL || len == 0))
        return HEARTH_OK;
    luggage_drop(sync, to->node);
    return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "sync: no memory for its buckets in the next group");
}

static void unpack(hearth_sync *sync, hearth_node *from)
{
    struct sync_luggage l = sync->luggage;
    size_t len = sync_memory_len(sync);
    if (len > 0)
        memcpy(l.memory, sync->memory, len);
    hearth_free(from, sync->memory);
    heap_free(sync->registrations);
    heap_free(sync->ballots);
    sync->memory = l.memory;
    sync->registrations = l.registrations;
    sync->ballots = l.ballots;
    sync->luggage = (struct sync_luggage){0};
    sync_spread(sync);
    sync_tag(sync);
}

static void go(hearth_sync *sync, hearth_group *to)
{
    hearth_node *from = sync->node;
    node_detach(from, &sync->attachment);
    sync->group = to;
    sync->node = to->node;
    sync->formed = to->node->loss == HEARTH_VIEW_CHANGED;
    sync->id = sync_next_id(to);
    sync->agreement = AGREE_UNKNOWN;
    sync->moved = true;
    sync->over = false;
    if (sync->frozen)
        unpack(sync, from);
    node_attach(to->node, &sync->attachment);
}

int sync_move(struct attachment *attachment, const struct passage *way, struct error *error)
{
    hearth_sync *sync = container_of(attachment, hearth_sync, attachment);
    if (sync->group != way->from)
        return HEARTH_OK;
    if (way->phase == MOVE_PREPARE) {
        sync_forget(sync);
        sync_ground(sync);
        return sync->frozen ? luggage_pack(sync, way->to, error) : HEARTH_OK;
    }
    if (way->phase == MOVE_CANCEL)
        luggage_drop(sync, way->to->node);
    else
        go(sync, way->to);
    return HEARTH_OK;
}

/* ---- who has done what ---- */

#define MOVED_LAGS 2 /* of registration.moved, found here: in the step that others have ended already */

static const struct standing *standing_of(const hearth_sync *sync, int rank, uint32_t bucket)
{
    return &sync->standings[(size_t)rank * sync->bucket_count + bucket];
}

/* It has all buckets of the step that others have ended. */
static bool lags(const hearth_sync *sync, int rank, uint64_t steps)
{
    const struct registration *r = &sync->registrations[rank];
    bool all = r->moved != 0 && r->steps + 1 == steps;
    for (uint32_t i = 0; all && i < sync->bucket_count; i++)
        all = standing_of(sync, rank, i)->held != 0;
    return all;
}

/* The member has done the bucket of the step that all are in. */
static bool holds(const hearth_sync *sync, int rank, uint32_t bucket)
{
    return standing_of(sync, rank, bucket)->held != 0 && sync->registrations[rank].moved != MOVED_LAGS;
}

/* The step of the bucket's tensor that the member goes on from. */
static uint64_t step_of(const hearth_sync *sync, int rank, uint32_t bucket)
{
    const struct tensor_place *place = &standing_of(sync, rank, bucket)->place;
    return holds(sync, rank, bucket) ? place->before : place->after;
}

static int bucket_differs(hearth_sync *sync, const struct sync_bucket *b, int rank, const uint64_t step[2])
{
    return error_set(
        &sync->objection, HEARTH_MISMATCH, rank,
        "sync: \"%s\" was reduced in %llu steps by rank %d and in %llu by others: a step was given "
        "up, reset or loaded by some; bring model and compressors to one state, and open a new "
        "sync",
        sync->tensors[b->plan.first].name, (unsigned long long)step[0], rank, (unsigned long long)step[1]);
}

/* Whether the bucket is made again, and from which step. All members find the same. */
static int bucket_resolve(hearth_sync *sync, uint32_t at)
{
    struct sync_bucket *b = &sync->buckets[at];
    int size = hearth_size(sync->group), own = hearth_rank(sync->group);
    uint64_t last = 0;
    bool all = true, fresh = false;
    for (int i = 0; i < size; i++) {
        uint64_t step = step_of(sync, i, at);
        last = step > last ? step : last;
        all = all && holds(sync, i, at);
    }
    for (int i = 0; i < size; i++) {
        uint64_t step = step_of(sync, i, at);
        if (step != last && step != 0)
            return bucket_differs(sync, b, i, (const uint64_t[]){step, last});
        fresh = fresh || step != last;
    }
    b->redo = !all && holds(sync, own, at);
    b->adopt = fresh;
    b->step = last;
    return HEARTH_OK;
}

static int steps_check(hearth_sync *sync, uint64_t *steps)
{
    int size = hearth_size(sync->group), first = RANK_NONE;
    struct registration *r = sync->registrations;
    *steps = 0;
    for (int i = 0; i < size; i++) {
        if (r[i].moved == 0 || (first != RANK_NONE && r[i].steps <= *steps))
            continue;
        first = i;
        *steps = r[i].steps;
    }
    for (int i = 0; i < size; i++) {
        bool behind = lags(sync, i, *steps);
        if (r[i].moved != 0 && r[i].steps != *steps && !behind)
            return error_set(&sync->objection, HEARTH_MISMATCH, i,
                             "sync: rank %d has ended %llu steps and rank %d %llu: bring the model to one "
                             "state, and open a new sync",
                             i, (unsigned long long)r[i].steps, first, (unsigned long long)*steps);
        r[i].moved = behind ? MOVED_LAGS : r[i].moved != 0;
    }
    return HEARTH_OK;
}

static int resolve(hearth_sync *sync)
{
    uint64_t steps;
    int status = steps_check(sync, &steps);
    for (uint32_t i = 0; status == HEARTH_OK && i < sync->bucket_count; i++)
        status = bucket_resolve(sync, i);
    if (status != HEARTH_OK)
        return status;
    sync->over = sync->registrations[hearth_rank(sync->group)].moved == MOVED_LAGS;
    sync->steps = sync->moved ? sync->steps : steps;
    sync->moved = false;
    return HEARTH_OK;
}

/* The completion callback of the comparison. */
static void compared(void *arg, int status)
{
    hearth_sync *sync = arg;
    mutex_lock(&sync->lock);
    if (status != HEARTH_OK)
        sync->agreement = AGREE_FAILED;
    else
        sync->agreement = resolve(sync) == HEARTH_OK ? AGREE_SAME : AGREE_DIFFERS;
    heap_free(sync->standings);
    sync->standings = NULL;
    mutex_unlock(&sync->lock);
    sync_start_full(sync);
}

static void standing_fill(hearth_sync *sync)
{
    struct standing *own = &sync->standings[(size_t)hearth_rank(sync->group) * sync->bucket_count];
    for (uint32_t i = 0; i < sync->bucket_count; i++) {
        const struct sync_bucket *b = &sync->buckets[i];
        own[i] = (struct standing){.held = b->held};
        if (!b->plan.fused)
            own[i].place = compressor_place(sync->compressor, sync->tensors[b->plan.first].name);
    }
}

void sync_compare(hearth_sync *sync)
{
    struct hearth_opts opts;
    hearth_request *comparison = NULL;
    size_t size = (size_t)hearth_size(sync->group), count = sync->bucket_count;
    hearth_opts_init(&opts);
    opts.tag = hash_mix(sync->id, TAG_COMPARE);
    opts.done = compared;
    opts.done_arg = sync;
    sync->standings = heap_alloc(sync->heap, size * count, sizeof *sync->standings);
    int status;
    if (sync->standings == NULL) {
        status = error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "sync: no memory to compare steps");
        node_refuse(sync->group, opts.tag, error_last());
    } else {
        standing_fill(sync);
        status = hearth_all_gather_nb(sync->group, sync->standings + (size_t)hearth_rank(sync->group) * count,
                                      sync->standings, count * sizeof *sync->standings / sizeof(uint64_t),
                                      HEARTH_U64, &opts, &comparison);
    }
    mutex_lock(&sync->lock);
    sync->comparison = comparison;
    if (status != HEARTH_OK) {
        sync->objection = *error_last();
        sync->agreement = AGREE_FAILED;
        heap_free(sync->standings);
        sync->standings = NULL;
    }
    mutex_unlock(&sync->lock);
}

/* ---- going on ---- */

/* The gradient as it was before. */
static int take_back(hearth_sync *sync, const struct sync_bucket *b)
{
    const struct sync_tensor *t = &sync->tensors[b->plan.first];
    if (b->kept != NULL && t->item.count > 0)
        memcpy(t->data, b->kept, t->item.count * dtype_size(t->item.dtype));
    if (compressor_undo(sync->compressor, t->name))
        return HEARTH_OK;
    return error_set(
        error_last(), HEARTH_MISMATCH, hearth_rank(sync->group),
        "it must be reduced again, but its compressor was reset, loaded or used in the middle of "
        "the step");
}

int sync_resume(hearth_sync *sync, struct sync_bucket *b)
{
    const struct sync_tensor *t = &sync->tensors[b->plan.first];
    bool again = b->held && b->redo, stays = b->held && !b->redo;
    int status = HEARTH_OK;
    b->held = b->redo = false;
    if (stays)
        return HEARTH_PENDING;
    if (again && b->plan.fused)
        sync_copy(sync, b, false);
    else if (again)
        status = take_back(sync, b);
    if (status == HEARTH_OK && b->adopt)
        status = compressor_adopt(sync->compressor, t->name, &t->form, b->step);
    b->adopt = false;
    if (status != HEARTH_OK)
        node_refuse(sync->group, b->tag, error_last());
    return status;
}

void sync_undo(hearth_sync *sync, struct sync_bucket *b)
{
    bool done = b->held || b->progress == BUCKET_DONE;
    b->held = b->redo = false;
    if (sync->formed && done && !b->plan.fused)
        (void)compressor_undo(sync->compressor, sync->tensors[b->plan.first].name);
}
