/* SPDX-License-Identifier: Apache-2.0 */
/* A step: tensors fill buckets, full buckets fly, the wait brings them home. */
#include <assert.h>
#include <string.h>

#include "core/hash.h"
#include "gradient/compressor.h"
#include "gradient/sync.h"
#include "node/call.h"

#define TAG_FIRST 16u /* of the buckets; sync_agree.c has those below */

static size_t bucket_len(const struct bucket *bucket)
{
    return bucket->count * dtype_size(bucket->dtype);
}

static struct hearth_tensor tensor_of(const struct sync_tensor *t)
{
    return (struct hearth_tensor){.size = sizeof(struct hearth_tensor),
                                  .name = t->name,
                                  .data = t->data,
                                  .dtype = t->form.dtype,
                                  .ndim = t->form.ndim,
                                  .dims = t->form.dims};
}

int64_t sync_remaining_ms(const hearth_sync *sync, uint64_t deadline_ns)
{
    uint64_t now = node_now(sync->node);
    if (now >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now - 1) / NS_PER_MS + 1;
    return ms < INT64_MAX ? (int64_t)ms : INT64_MAX;
}

/* ---- buckets ---- */

/* How the tensor goes when warm-up and ramp are over, as the compressor's rules stand now. */
static void codecs_of(hearth_compressor *compressor, const struct sync_tensor *t, struct codec_list *list)
{
    struct policy_question question = {
        .name = t->name, .ndim = t->form.ndim, .count = t->form.count, .step = 2 * POLICY_STEPS_MAX};
    struct policy_answer answer;
    mutex_lock(&compressor->lock);
    policy_ask(&compressor->policy, &question, &answer);
    mutex_unlock(&compressor->lock);
    *list = answer.list;
}

static uint32_t plan_make(hearth_sync *sync, struct bucket_item *items, struct bucket *plan)
{
    for (uint32_t i = 0; i < sync->tensor_count; i++) {
        struct sync_tensor *t = &sync->tensors[i];
        struct codec_list list;
        char text[CODEC_TEXT_MAX];
        codecs_of(sync->compressor, t, &list);
        codec_list_text(&list, text, sizeof text);
        t->codec_hash = hash64(0, text, strlen(text));
        items[i] = t->item;
        items[i].fused = list.count == 1 && list.codec[0].kind == CODEC_NONE &&
                         t->item.count * dtype_size(t->item.dtype) <= BUCKET_FUSED;
    }
    return bucket_plan(items, sync->tensor_count, BUCKET_LEN, plan);
}

static size_t stretch(const struct bucket *bucket)
{
    return bucket->fused ? (bucket_len(bucket) + HEAP_ALIGN - 1) / HEAP_ALIGN * HEAP_ALIGN : 0;
}

size_t sync_memory_len(const hearth_sync *sync)
{
    size_t len = 0;
    for (uint32_t b = 0; b < sync->bucket_count; b++)
        len += stretch(&sync->buckets[b].plan);
    return len;
}

void sync_spread(hearth_sync *sync)
{
    uint8_t *at = sync->memory;
    for (uint32_t b = 0; at && b < sync->bucket_count; b++) {
        if (!sync->buckets[b].plan.fused)
            continue;
        sync->buckets[b].memory = at;
        at += stretch(&sync->buckets[b].plan);
    }
}

/* One stretch of memory for all fused buckets. */
static bool memory_make(hearth_sync *sync)
{
    size_t len = sync_memory_len(sync);
    if (len == 0)
        return true;
    sync->memory = hearth_mem_alloc(sync->node, len);
    sync_spread(sync);
    return sync->memory;
}

/* In formed groups, for the others. */
static bool results_make(hearth_sync *sync)
{
    for (uint32_t i = 0; sync->formed && i < sync->bucket_count; i++) {
        struct sync_bucket *b = &sync->buckets[i];
        if (!b->plan.fused && !(b->memory = heap_alloc_raw(sync->heap, 1, bucket_len(&b->plan))))
            return false;
    }
    return true;
}

/* Nothing is ready, but what is done stays so, and what was not ready cannot be sent again. */
static void bucket_reopen(hearth_sync *sync, struct sync_bucket *b, enum tensor_progress progress)
{
    for (uint32_t i = b->plan.first; i != BUCKET_NOBODY; i = sync->tensors[i].item.next)
        if (progress != TENSOR_AGAIN || sync->tensors[i].progress != TENSOR_IDLE)
            sync->tensors[i].progress = progress;
    if (progress == TENSOR_DONE)
        return;
    b->progress = BUCKET_OPEN;
    b->missing = b->plan.items;
    b->next_full = BUCKET_NOBODY;
    b->unwritten = false;
}

void sync_reopen(hearth_sync *sync, enum tensor_progress progress)
{
    for (uint32_t i = 0; i < sync->bucket_count; i++)
        bucket_reopen(sync, &sync->buckets[i], progress);
}

void sync_tag(hearth_sync *sync)
{
    for (uint32_t b = 0; b < sync->bucket_count; b++)
        sync->buckets[b].tag = sync_tag_of(sync, TAG_FIRST + b);
}

static int buckets_make(hearth_sync *sync, struct bucket_item *items, struct bucket *plan)
{
    uint32_t count = plan_make(sync, items, plan), ops_max = sync->node->tuning.ops_max;
    if (count > ops_max)
        return error_set(error_last(), HEARTH_LIMIT, RANK_NONE,
                         "sync: %u tensors make %u buckets, but only %u operations may be in flight: raise "
                         "ops_max in the configuration",
                         sync->tensor_count, count, ops_max);
    size_t size = (size_t)hearth_group_size(sync->group);
    sync->buckets = heap_alloc(sync->heap, count, sizeof *sync->buckets);
    sync->registrations = heap_alloc(sync->heap, size, sizeof *sync->registrations);
    sync->ballots = heap_alloc(sync->heap, size, sizeof *sync->ballots);
    sync->bucket_count = sync->buckets ? count : 0;
    for (uint32_t b = 0; b < sync->bucket_count; b++)
        sync->buckets[b] = (struct sync_bucket){.plan = plan[b], .sync = sync};
    sync_tag(sync);
    if (!sync->buckets || !sync->registrations || !sync->ballots || !results_make(sync) ||
        !memory_make(sync)) {
        sync_melt(sync);
        return error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "sync: no memory for %u buckets", count);
    }
    return HEARTH_OK;
}

int sync_freeze(hearth_sync *sync)
{
    struct bucket_item *items = heap_alloc(sync->heap, sync->tensor_count, sizeof *items);
    struct bucket *plan = heap_alloc(sync->heap, sync->tensor_count, sizeof *plan);
    int status = items && plan
                     ? buckets_make(sync, items, plan)
                     : error_set(error_last(), HEARTH_NO_MEMORY, RANK_NONE, "sync: no memory for buckets");
    if (status == HEARTH_OK) {
        for (uint32_t i = 0; i < sync->tensor_count; i++)
            sync->tensors[i].item = items[i];
        for (uint32_t b = 0; b < sync->bucket_count; b++)
            bucket_reopen(sync, &sync->buckets[b], TENSOR_IDLE);
        sync->frozen = true;
        sync_register(sync);
    }
    heap_free(plan);
    heap_free(items);
    return status;
}

void sync_melt(hearth_sync *sync)
{
    hearth_mem_free(sync->node, sync->memory);
    for (uint32_t b = 0; b < sync->bucket_count; b++)
        if (!sync->buckets[b].plan.fused)
            heap_free(sync->buckets[b].memory);
    heap_free(sync->ballots);
    sync->ballots = NULL;
    heap_free(sync->registrations);
    heap_free(sync->buckets);
    sync->memory = NULL;
    sync->registrations = NULL;
    sync->buckets = NULL;
    sync->bucket_count = 0;
    sync->frozen = false;
}

/* ---- failures ---- */

void sync_failure(hearth_sync *sync, const struct sync_bucket *b, const struct error *why)
{
    const struct sync_tensor *first = b ? &sync->tensors[b->plan.first] : NULL;
    if (sync->failure.status != HEARTH_OK &&
        hearth_status_scope(why->status) <= hearth_status_scope(sync->failure.status))
        return;
    if (!b)
        error_wrap(&sync->failure, why, "sync: %s", why->text);
    else if (b->plan.items > 1)
        error_wrap(&sync->failure, why, "sync: \"%s\" (with %u more in its bucket): %s", first->name,
                   b->plan.items - 1, why->text);
    else
        error_wrap(&sync->failure, why, "sync: \"%s\": %s", first->name, why->text);
}

/* ---- starting ---- */

/* The completion callback, in formed groups. */
static void bucket_ended(void *arg, int status)
{
    struct sync_bucket *b = arg;
    sync_landed(b->sync, status);
}

static bool on_device(const hearth_sync *sync)
{
    return memory_is_device(&sync->group->memory);
}

/* The tensors of a bucket and their places in its memory, in their order; NULL: no memory. */
static struct copy_range *bucket_ranges(hearth_sync *sync, const struct sync_bucket *b)
{
    struct copy_range *ranges = heap_alloc(sync->heap, b->plan.items, sizeof *ranges);
    uint32_t count = 0;
    for (uint32_t i = b->plan.first; ranges && i != BUCKET_NOBODY; i = sync->tensors[i].item.next) {
        const struct sync_tensor *t = &sync->tensors[i];
        size_t element = dtype_size(t->item.dtype);
        ranges[count++] = (struct copy_range){.device = t->data,
                                              .host = (uint8_t *)b->memory + t->item.offset * element,
                                              .len = t->item.count * element};
    }
    return ranges;
}

static int fused_start(hearth_sync *sync, struct sync_bucket *b, const struct hearth_opts *opts,
                       hearth_request **request)
{
    struct call call = {.kind = PLAN_ALL_REDUCE,
                        .source = b->memory,
                        .target = b->memory,
                        .count = b->plan.count,
                        .dtype = b->plan.dtype,
                        .op = sync->op};
    if (!on_device(sync))
        return call_start(sync->group, &call, opts, request);
    struct copy_range *ranges = bucket_ranges(sync, b);
    if (!ranges) {
        error_call("sync", HEARTH_NO_MEMORY, "no memory to copy %u tensors", b->plan.items);
        node_refuse(sync->group, opts->tag, error_last());
        return HEARTH_NO_MEMORY;
    }
    struct staged_ranges staged = {.memory = &sync->group->memory, .ranges = ranges, .count = b->plan.items};
    int status = call_start_staged(sync->group, &call, opts, &staged, request);
    heap_free(ranges);
    return status;
}

static int bucket_start(hearth_sync *sync, struct sync_bucket *b, hearth_request **request)
{
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.tag = b->tag;
    opts.weight = sync->weight;
    opts.done = sync->formed ? bucket_ended : NULL;
    opts.done_arg = b;
    if (b->plan.fused)
        return fused_start(sync, b, &opts, request);
    struct hearth_tensor tensor = tensor_of(&sync->tensors[b->plan.first]);
    if (on_device(sync))
        return compressor_start(sync->compressor, &tensor, sync->op, &opts, b->memory, request);
    if (b->memory)
        tensor.data = b->memory;
    else
        opts.flags = HEARTH_FLAG_RESTORE; /* a step that failed is to be made again */
    return hearth_compressor_all_reduce_nb(sync->compressor, &tensor, sync->op, &opts, request);
}

/* The next one that may start is the caller's then. */
static struct sync_bucket *full_take(hearth_sync *sync)
{
    mutex_lock(&sync->lock);
    struct sync_bucket *b = NULL;
    if (sync->agreement == AGREE_SAME && sync->first_full != BUCKET_NOBODY) {
        b = &sync->buckets[sync->first_full];
        assert(b->progress == BUCKET_FULL);
        sync->first_full = b->next_full;
        b->progress = BUCKET_STARTING;
    }
    mutex_unlock(&sync->lock);
    return b;
}

void sync_start_full(hearth_sync *sync)
{
    struct sync_bucket *b;
    while ((b = full_take(sync))) {
        hearth_request *request = NULL;
        int status = bucket_start(sync, b, &request);
        mutex_lock(&sync->lock);
        b->request = request;
        b->progress = status == HEARTH_OK ? BUCKET_FLYING : BUCKET_FAILED;
        if (status != HEARTH_OK)
            sync_failure(sync, b, error_last());
        mutex_unlock(&sync->lock);
        if (status != HEARTH_OK && sync->formed)
            sync_landed(sync, status);
    }
}

static void tensor_copy(const struct sync_bucket *b, const struct sync_tensor *t, bool home)
{
    size_t element = dtype_size(t->item.dtype), len = t->item.count * element;
    uint8_t *place = (uint8_t *)b->memory + t->item.offset * element;
    if (len > 0)
        memcpy(home ? t->data : place, home ? place : t->data, len);
}

int sync_write(hearth_sync *sync, const struct sync_bucket *b, struct error *error)
{
    if (on_device(sync)) {
        struct error why;
        struct copy_range *ranges = bucket_ranges(sync, b);
        int status = ranges ? copy_now(&sync->group->memory, true, ranges, b->plan.items, &why)
                            : error_set(&why, HEARTH_NO_MEMORY, RANK_NONE, "no memory to copy %u tensors",
                                        b->plan.items);
        heap_free(ranges);
        return status == HEARTH_OK
                   ? status
                   : error_wrap(error, &why, "the step is done, but its result is not on the device: %s",
                                why.text);
    }
    for (uint32_t i = b->plan.first; i != BUCKET_NOBODY; i = sync->tensors[i].item.next)
        tensor_copy(b, &sync->tensors[i], true);
    return HEARTH_OK;
}

void sync_take(hearth_sync *sync, struct sync_tensor *tensor)
{
    struct sync_bucket *b = &sync->buckets[tensor->item.bucket];
    if (b->memory && !on_device(sync)) /* else when the bucket starts */
        tensor_copy(b, tensor, false);
    mutex_lock(&sync->lock);
    if (--b->missing == 0) {
        b->progress = BUCKET_FULL;
        b->next_full = sync->first_full;
        sync->first_full = tensor->item.bucket;
    }
    mutex_unlock(&sync->lock);
    sync_ask(sync);
    sync_start_full(sync);
    /* Last: who waits and finds all tensors ready finds no bucket half started. */
    mutex_lock(&sync->lock);
    tensor->progress = TENSOR_READY;
    mutex_unlock(&sync->lock);
}

void sync_resend(hearth_sync *sync)
{
    for (uint32_t i = 0; i < sync->tensor_count; i++) {
        struct sync_tensor *t = &sync->tensors[i];
        mutex_lock(&sync->lock);
        bool again = t->progress == TENSOR_AGAIN;
        if (again)
            t->progress = TENSOR_COMING;
        sync->begun = sync->begun || again;
        mutex_unlock(&sync->lock);
        if (again)
            sync_take(sync, t);
    }
}

/* ---- the end of a step ---- */

/* Of a launched group. What could not be written is tried again by the next wait. */
static void bucket_write(hearth_sync *sync, struct sync_bucket *b)
{
    struct error why;
    b->unwritten = sync_write(sync, b, &why) != HEARTH_OK;
    mutex_lock(&sync->lock);
    if (b->unwritten)
        sync_failure(sync, b, &why);
    mutex_unlock(&sync->lock);
}

static void bucket_finish(hearth_sync *sync, struct sync_bucket *b, uint64_t deadline_ns)
{
    struct error why;
    int status = hearth_request_wait(b->request, sync_remaining_ms(sync, deadline_ns));
    if (status == HEARTH_PENDING)
        error_set(&why, HEARTH_TIMEOUT, RANK_NONE,
                  "timed out: not all members had it ready, or it took too long");
    else if (status != HEARTH_OK)
        why = *error_last();
    request_drop(&b->request); /* takes it back if it has not ended */
    b->progress = status == HEARTH_OK ? BUCKET_DONE : BUCKET_FAILED;
    b->unwritten = status == HEARTH_OK && b->plan.fused && !sync->formed;
    mutex_lock(&sync->lock);
    if (status != HEARTH_OK)
        sync_failure(sync, b, &why);
    mutex_unlock(&sync->lock);
    if (b->unwritten)
        bucket_write(sync, b);
}

/* With the lock. In a launched group what has ended well stays so. */
static void launched_end(hearth_sync *sync, bool well)
{
    for (uint32_t i = 0; i < sync->bucket_count; i++) {
        struct sync_bucket *b = &sync->buckets[i];
        bucket_reopen(sync, b, !well && b->progress == BUCKET_DONE ? TENSOR_DONE : TENSOR_IDLE);
    }
    sync->steps += well;
}

/* With the lock. */
static void formed_end(hearth_sync *sync, bool well)
{
    struct error why;
    if (well && sync_commit_write(sync, &why) != HEARTH_OK)
        sync_failure(sync, NULL, &why);
    else if (!well && sync->stage == STAGE_OPEN)
        sync_abort(sync);
}

/* With the lock: the next attempt begins anew. */
static void attempt_end(hearth_sync *sync)
{
    sync->begun = sync->voted = sync->spoiled = false;
    sync->landed = 0;
    error_clear(&sync->failure);
}

int sync_finish(hearth_sync *sync, uint64_t deadline_ns)
{
    sync_start_full(sync);
    for (uint32_t i = 0; i < sync->bucket_count; i++)
        if (sync->buckets[i].progress == BUCKET_FLYING)
            bucket_finish(sync, &sync->buckets[i], deadline_ns);
        else if (sync->buckets[i].unwritten)
            bucket_write(sync, &sync->buckets[i]);
    if (sync->formed)
        sync_vote_finish(sync, deadline_ns);
    mutex_lock(&sync->lock);
    int status = sync->failure.status;
    if (sync->formed)
        formed_end(sync, status == HEARTH_OK);
    else
        launched_end(sync, status == HEARTH_OK);
    status = sync->failure.status;
    if (status != HEARTH_OK)
        *error_last() = sync->failure;
    attempt_end(sync);
    mutex_unlock(&sync->lock);
    return status;
}

/* Members that have started a bucket of this step wait for us in it. What we never started we refuse, so that
 * they hear of it, and so that our next one is not taken for this one. */
static void bucket_abandon(hearth_sync *sync, struct sync_bucket *b)
{
    struct error why;
    error_set(&why, HEARTH_ABORTED, hearth_group_rank(sync->group), "sync: the step was given up");
    if (b->progress == BUCKET_OPEN || b->progress == BUCKET_FULL)
        node_refuse(sync->group, b->tag, &why);
    if (b->request && sync->formed && hearth_request_cancel(b->request) == HEARTH_OK &&
        hearth_request_test(b->request) == HEARTH_OK)
        b->progress = BUCKET_DONE;
    request_drop(&b->request);
}

/* The answer to our question may come just now, and then its callback is starting buckets. */
static void starts_end(hearth_sync *sync)
{
    for (uint32_t i = 0; i < sync->bucket_count;) {
        mutex_lock(&sync->lock);
        bool starting = sync->buckets[i].progress == BUCKET_STARTING;
        mutex_unlock(&sync->lock);
        i += !starting;
        if (starting)
            thread_yield();
    }
}

/* With the lock. Whether other members may have started buckets of this step. Those that have the answer to
 * the question start them, also where ours has not come, and never will if the sync closes. */
static bool others_fly(const hearth_sync *sync, bool closing)
{
    enum agreement a = sync->agreement;
    bool asked = a == AGREE_SAME || a == AGREE_ASKING || a == AGREE_COMPARING;
    return sync->begun && a != AGREE_DIFFERS && (asked || closing);
}

void sync_abandon(hearth_sync *sync, bool closing)
{
    mutex_lock(&sync->lock);
    bool flying = others_fly(sync, closing), cast = sync->voted;
    sync->voted = true; /* what lands now begins no vote */
    sync->first_full = BUCKET_NOBODY;
    if (sync->stage == STAGE_COMMITTED)
        sync_give_up(sync);
    mutex_unlock(&sync->lock);
    starts_end(sync);
    for (uint32_t i = 0; i < sync->bucket_count; i++)
        if (cast && sync->buckets[i].progress == BUCKET_FLYING)
            bucket_finish(sync, &sync->buckets[i], NEVER_NS); /* all have ended */
        else if (flying && !cast)
            bucket_abandon(sync, &sync->buckets[i]);
    sync_vote_drop(sync, flying && !cast);
    mutex_lock(&sync->lock);
    if (sync->stage == STAGE_OPEN) {
        if (sync->formed)
            sync_abort(sync);
        sync_reopen(sync, TENSOR_IDLE);
    }
    attempt_end(sync);
    mutex_unlock(&sync->lock);
}

void sync_ground(hearth_sync *sync)
{
    mutex_lock(&sync->lock);
    sync->first_full = BUCKET_NOBODY;
    mutex_unlock(&sync->lock);
    starts_end(sync);
    for (uint32_t i = 0; i < sync->bucket_count; i++)
        if (sync->buckets[i].progress == BUCKET_FLYING)
            bucket_finish(sync, &sync->buckets[i], NEVER_NS);
    request_drop(&sync->vote);
    mutex_lock(&sync->lock);
    if (sync->stage == STAGE_OPEN)
        sync_abort(sync);
    else
        sync->stage = STAGE_DOUBT;
    attempt_end(sync);
    mutex_unlock(&sync->lock);
}
