/* SPDX-License-Identifier: Apache-2.0 */
/* A sync goes on with the next group. Before it moves, the members decide together what becomes of a step
 * that the old group has left prepared (sync_decide.h); in the first step there, members that are new or
 * behind take over at which step each tensor is. */
#include <assert.h>
#include <string.h>

#include "gradient/compressor.h"
#include "gradient/sync.h"

/* ---- moving ---- */

static void luggage_drop(hearth_sync *sync, hearth_node *node)
{
    hearth_mem_free(node, sync->luggage.memory);
    heap_free(sync->luggage.registrations);
    heap_free(sync->luggage.ballots);
    sync->luggage = (struct sync_luggage){0};
}

static int luggage_pack(hearth_sync *sync, hearth_group *to, struct error *error)
{
    struct sync_luggage *l = &sync->luggage;
    size_t size = (size_t)hearth_group_size(to), len = sync_memory_len(sync);
    l->registrations = heap_alloc(sync->heap, size, sizeof *l->registrations);
    l->ballots = heap_alloc(sync->heap, size, sizeof *l->ballots);
    l->memory = len > 0 ? hearth_mem_alloc(to->node, len) : NULL;
    if (l->registrations && l->ballots && (l->memory || len == 0))
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
    hearth_mem_free(from, sync->memory);
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
    if (sync->frozen)
        unpack(sync, from);
    node_attach(to->node, &sync->attachment);
}

int sync_move(struct attachment *attachment, const struct group_move *move, struct error *error)
{
    hearth_sync *sync = container_of(attachment, hearth_sync, attachment);
    if (sync->group != move->from)
        return HEARTH_OK;
    if (move->phase == MOVE_PREPARE) {
        sync_forget(sync);
        sync_ground(sync);
        return sync->frozen ? luggage_pack(sync, move->to, error) : HEARTH_OK;
    }
    if (move->phase == MOVE_CANCEL)
        luggage_drop(sync, move->to->node);
    else
        go(sync, move->to);
    return HEARTH_OK;
}

/* ---- what becomes of a step ---- */

static const hearth_group *group_of(struct attachment *attachment)
{
    return container_of(attachment, hearth_sync, attachment)->group;
}

static struct sync_record standing_of(const hearth_sync *sync)
{
    return (struct sync_record){
        .flags = SYNC_PRESENT | (sync->joined ? SYNC_JOINED : 0u) |
                 (sync->stage != STAGE_OPEN ? SYNC_PREPARED : 0u),
        .steps = sync->steps,
        .lineage = sync->lineage,
        .attempt = sync->attempt,
        .round = sync->round,
    };
}

static uint64_t promised(struct attachment *attachment)
{
    return container_of(attachment, hearth_sync, attachment)->promised;
}

static void record(struct attachment *attachment, uint64_t round, struct attachment_record *out)
{
    hearth_sync *sync = container_of(attachment, hearth_sync, attachment);
    struct sync_record own = standing_of(sync);
    sync->promised = round;
    static_assert(sizeof own == sizeof *out, "a record is as long as what it carries");
    memcpy(out, &own, sizeof own);
}

/* The model comes from others, and with it goes what was left behind of gradients. */
static void fall_behind(hearth_sync *sync)
{
    for (uint32_t i = 0; i < sync->bucket_count; i++)
        if (!sync->buckets[i].plan.fused)
            compressor_forget(sync->compressor, sync->tensors[sync->buckets[i].plan.first].name);
    sync->joined = false;
    sync->stage = STAGE_OPEN;
    sync_reopen(sync, TENSOR_IDLE);
}

static bool decide(struct attachment *attachment, const struct attachment_record *said, int size)
{
    hearth_sync *sync = container_of(attachment, hearth_sync, attachment);
    const struct sync_record own = standing_of(sync), *records = (const struct sync_record *)said;
    struct sync_decision decision = sync_decide(records, size);
    enum sync_verdict verdict = sync_verdict(&decision, &own);
    sync->round = sync->promised;
    sync->taken = verdict == SYNC_COMMIT_TAKEN;
    sync->joined = true;
    if (verdict == SYNC_BEHIND)
        fall_behind(sync);
    else if (verdict == SYNC_CONTINUE && sync->stage != STAGE_OPEN)
        sync_abort(sync);
    return verdict == SYNC_BEHIND;
}

static void confirm(struct attachment *attachment)
{
    hearth_sync *sync = container_of(attachment, hearth_sync, attachment);
    if (sync->stage == STAGE_DOUBT)
        sync->stage = STAGE_COMMITTED;
}

const struct reconciler sync_reconciler = {
    .group = group_of, .promised = promised, .record = record, .decide = decide, .confirm = confirm};

/* ---- the steps of tensors ---- */

static uint64_t place_of(const hearth_sync *sync, int rank, uint32_t bucket)
{
    return sync->places[(size_t)rank * sync->bucket_count + bucket];
}

/* Who has joined is at the same step; the others begin there. All members find the same. */
static int bucket_resolve(hearth_sync *sync, uint32_t at)
{
    struct sync_bucket *b = &sync->buckets[at];
    int first = RANK_NONE;
    b->adopt = false;
    for (int i = 0; i < hearth_group_size(sync->group); i++) {
        if (sync->registrations[i].joined == 0) {
            b->adopt = true;
            continue;
        }
        first = first == RANK_NONE ? i : first;
        uint64_t step = place_of(sync, i, at) / 2, usual = place_of(sync, first, at) / 2;
        if (step != usual)
            return error_set(&sync->objection, HEARTH_MISMATCH, i,
                             "sync: \"%s\" was reduced in %llu steps by rank %d and in %llu by rank %d: its "
                             "compressor was reset, loaded or used by one of them; bring model and "
                             "compressors to one state, and open a new sync",
                             sync->tensors[b->plan.first].name, (unsigned long long)step, i,
                             (unsigned long long)usual, first);
        b->adopt = b->adopt || place_of(sync, i, at) != place_of(sync, first, at);
    }
    b->step = place_of(sync, first, at) / 2;
    return HEARTH_OK;
}

static int resolve(hearth_sync *sync)
{
    int status = HEARTH_OK;
    for (uint32_t i = 0; status == HEARTH_OK && i < sync->bucket_count; i++)
        status = bucket_resolve(sync, i);
    return status;
}

static int adopt(hearth_sync *sync)
{
    int status = HEARTH_OK;
    for (uint32_t i = 0; status == HEARTH_OK && i < sync->bucket_count; i++) {
        const struct sync_bucket *b = &sync->buckets[i];
        const struct sync_tensor *t = &sync->tensors[b->plan.first];
        if (b->adopt && !b->plan.fused)
            status = compressor_adopt(sync->compressor, t->name, &t->form, b->step);
    }
    if (status != HEARTH_OK)
        sync->objection = *error_last();
    return status;
}

/* With the lock. */
static enum agreement compare(hearth_sync *sync)
{
    if (resolve(sync) != HEARTH_OK)
        return AGREE_DIFFERS;
    if (adopt(sync) != HEARTH_OK)
        return AGREE_FAILED;
    sync_join(sync);
    return AGREE_SAME;
}

/* The completion callback of the comparison. */
static void compared(void *arg, int status)
{
    hearth_sync *sync = arg;
    mutex_lock(&sync->lock);
    sync->agreement = status == HEARTH_OK ? compare(sync) : AGREE_FAILED;
    bool refuse = status == HEARTH_OK && sync->agreement == AGREE_FAILED; /* the others begin */
    heap_free(sync->places);
    sync->places = NULL;
    mutex_unlock(&sync->lock);
    for (uint32_t i = 0; refuse && i < sync->bucket_count; i++)
        node_refuse(sync->group, sync->buckets[i].tag, &sync->objection);
    if (refuse)
        node_refuse(sync->group, sync_tag_of(sync, TAG_VOTE), &sync->objection);
    sync_start_full(sync);
}

static void places_fill(hearth_sync *sync)
{
    uint64_t *own = &sync->places[(size_t)hearth_group_rank(sync->group) * sync->bucket_count];
    for (uint32_t i = 0; i < sync->bucket_count; i++)
        if (!sync->buckets[i].plan.fused)
            own[i] = compressor_place(sync->compressor, sync->tensors[sync->buckets[i].plan.first].name);
}

void sync_compare(hearth_sync *sync)
{
    struct hearth_opts opts = sync_opts(sync, TAG_COMPARE, compared);
    hearth_request *comparison = NULL;
    size_t size = (size_t)hearth_group_size(sync->group), count = sync->bucket_count;
    sync->places = heap_alloc(sync->heap, size * count, sizeof *sync->places);
    int status;
    if (!sync->places) {
        status = error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "sync: no memory to compare steps");
        node_refuse(sync->group, opts.tag, error_last());
    } else {
        places_fill(sync);
        status =
            hearth_all_gather_nb(sync->group, sync->places + (size_t)hearth_group_rank(sync->group) * count,
                                 sync->places, count, HEARTH_U64, &opts, &comparison);
    }
    mutex_lock(&sync->lock);
    sync->comparison = comparison;
    if (status != HEARTH_OK) {
        sync->objection = *error_last();
        sync->agreement = AGREE_FAILED;
        heap_free(sync->places);
        sync->places = NULL;
    }
    mutex_unlock(&sync->lock);
}
