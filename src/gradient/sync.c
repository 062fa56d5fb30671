/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of a sync: what the caller says is checked here. */
#include "gradient/sync.h"

#include <stdio.h>
#include <string.h>

#include "core/derived_id.h"
#include "core/hash.h"
#include "gradient/compressor.h"
#include "node/call.h"
#include "node/copier.h"

#define TENSORS_FIRST 64u
#define WEIGHT_MAX    1e30 /* as everywhere: sums of weights must stay finite */
#define NAMED_MAX     3    /* tensors in a text */
#define NAMED_LEN     60   /* characters of each */

static int sync_check(const hearth_sync *sync, const char *name)
{
    return sync ? node_check(name, sync->node) : error_call(name, HEARTH_INVALID, "sync is NULL");
}

/* ---- opening and closing ---- */

uint64_t sync_next_id(hearth_group *group)
{
    mutex_lock(&group->node->baton);
    uint64_t number = group->syncs++;
    mutex_unlock(&group->node->baton);
    return derived_id(ID_SYNC, group_view(group->group)->group, number, 0);
}

uint64_t sync_tag_of(const hearth_sync *sync, uint64_t what)
{
    return derived_id(ID_SYNC_TAG, sync->id, what, 0);
}

struct hearth_opts sync_opts(hearth_sync *sync, uint64_t what, hearth_done_fn *done)
{
    struct hearth_opts opts;
    hearth_opts_init(&opts);
    opts.tag = sync_tag_of(sync, what);
    opts.memory = &memory_host;
    opts.done = done;
    opts.done_arg = sync;
    return opts;
}

void request_drop(hearth_request **request)
{
    hearth_request_close(*request);
    *request = NULL;
}

static void sync_free(hearth_sync *sync)
{
    sync_melt(sync);
    for (uint32_t i = 0; i < sync->tensor_count; i++)
        heap_free(sync->tensors[i].name);
    heap_free(sync->tensors);
    mutex_fini(&sync->lock);
    heap_free(sync);
}

/* The node closes: no operation is left, requests are freed by the node, and so is our compressor. */
static void sync_drop(struct attachment *attachment)
{
    sync_free(container_of(attachment, hearth_sync, attachment));
}

int hearth_sync_open_with(hearth_compressor *compressor, enum hearth_op op, hearth_sync **out)
{
    if (!compressor || !out)
        return error_call("sync_open", HEARTH_INVALID, "compressor or out is NULL");
    if (op != HEARTH_OP_SUM && op != HEARTH_OP_AVG)
        return error_call("sync_open", HEARTH_UNSUPPORTED, "op is %s; gradients meet by sum or avg",
                          hearth_op_name(op));
    hearth_group *group = compressor->group;
    int status = node_check("sync_open", group->node);
    if (status != HEARTH_OK)
        return status;
    hearth_sync *sync = heap_alloc(group->node->heap, 1, sizeof *sync);
    if (!sync)
        return error_call("sync_open", HEARTH_NO_MEMORY, "no memory");
    sync->node = group->node;
    sync->group = group;
    sync->heap = group->node->heap;
    sync->compressor = compressor;
    sync->op = op;
    sync->weight = 1;
    sync->first_full = BUCKET_NOBODY;
    status = mutex_init(&sync->lock);
    if (status != HEARTH_OK) {
        heap_free(sync);
        return error_call("sync_open", status, "the system gives no lock");
    }
    sync->id = sync_next_id(group);
    sync->formed = group->node->loss == HEARTH_VIEW_CHANGED;
    sync->attachment.drop = sync_drop;
    sync->attachment.move = sync_move;
    sync->attachment.reconciler = &sync_reconciler;
    list_init(&sync->attachment.item);
    node_attach(group->node, &sync->attachment);
    *out = sync;
    return HEARTH_OK;
}

int hearth_sync_open(hearth_group *group, const char *codec, enum hearth_op op, hearth_sync **out)
{
    struct hearth_compressor_config config;
    hearth_compressor *compressor;
    hearth_compressor_config_init(&config);
    config.codec = codec;
    int status = hearth_compressor_open(group, &config, &compressor);
    if (status != HEARTH_OK)
        return status;
    status = hearth_sync_open_with(compressor, op, out);
    if (status != HEARTH_OK)
        hearth_compressor_close(compressor);
    else
        (*out)->owner = true;
    return status;
}

void hearth_sync_close(hearth_sync *sync)
{
    if (!sync || node_forked(sync->node))
        return; /* a forked child gives its memory back as a whole, by hearth_node_close */
    hearth_compressor *compressor = sync->owner ? sync->compressor : NULL;
    sync_abandon(sync, true);
    sync_forget(sync);
    node_detach(sync->node, &sync->attachment);
    sync_free(sync);
    hearth_compressor_close(compressor);
}

hearth_compressor *hearth_sync_compressor(hearth_sync *sync)
{
    return sync ? sync->compressor : NULL;
}

/* ---- registering ---- */

static bool tensors_grow(hearth_sync *sync)
{
    if (sync->tensor_count < sync->tensor_capacity)
        return true;
    uint32_t capacity = sync->tensor_capacity > 0 ? 2 * sync->tensor_capacity : TENSORS_FIRST;
    struct sync_tensor *tensors = heap_alloc(sync->heap, capacity, sizeof *tensors);
    if (!tensors)
        return false;
    if (sync->tensor_count > 0)
        memcpy(tensors, sync->tensors, sync->tensor_count * sizeof *tensors);
    heap_free(sync->tensors);
    sync->tensors = tensors;
    sync->tensor_capacity = capacity;
    return true;
}

/* With the lock. */
static int tensor_add(hearth_sync *sync, const struct hearth_tensor *tensor, const struct tensor_form *form)
{
    uint64_t hash = hash64(0, tensor->name, strlen(tensor->name));
    if (sync->frozen)
        return error_call("sync_add", HEARTH_INVALID, "\"%s\" comes too late: the first step has begun",
                          tensor->name);
    if (sync->tensor_count == SYNC_TENSORS_MAX)
        return error_call("sync_add", HEARTH_LIMIT, "there are %u tensors, no more are allowed",
                          SYNC_TENSORS_MAX);
    for (uint32_t i = 0; i < sync->tensor_count; i++)
        if (sync->tensors[i].name_hash == hash && strcmp(sync->tensors[i].name, tensor->name) == 0)
            return error_call("sync_add", HEARTH_INVALID, "\"%s\" is registered already, as %u", tensor->name,
                              i);
    char *name = tensors_grow(sync) ? heap_strdup(sync->heap, tensor->name) : NULL;
    if (!name)
        return error_call("sync_add", HEARTH_NO_MEMORY, "no memory for \"%s\"", tensor->name);
    struct sync_tensor *t = &sync->tensors[sync->tensor_count];
    *t = (struct sync_tensor){.name = name,
                              .name_hash = hash,
                              .data = tensor->data,
                              .form = *form,
                              .item = {.count = form->count, .dtype = form->dtype}};
    return (int)sync->tensor_count++;
}

int hearth_sync_add(hearth_sync *sync, const struct hearth_tensor *given)
{
    struct hearth_tensor tensor;
    struct tensor_form form;
    struct error why;
    int status = sync_check(sync, "sync_add");
    if (status != HEARTH_OK)
        return status;
    if (tensor_read(given, &tensor, &form, &why) != HEARTH_OK)
        return error_call_because("sync_add", &why);
    mutex_lock(&sync->lock);
    status = tensor_add(sync, &tensor, &form);
    mutex_unlock(&sync->lock);
    return status;
}

static int index_check(const hearth_sync *sync, const char *name, int index)
{
    if (index < 0 || (uint32_t)index >= sync->tensor_count)
        return error_call(name, HEARTH_INVALID, "index is %d; %u tensors are registered", index,
                          sync->tensor_count);
    return HEARTH_OK;
}

int hearth_sync_set_data(hearth_sync *sync, int index, void *data)
{
    int status = sync_check(sync, "sync_set_data");
    if (status != HEARTH_OK)
        return status;
    mutex_lock(&sync->lock);
    status = index_check(sync, "sync_set_data", index);
    struct sync_tensor *t = status == HEARTH_OK ? &sync->tensors[index] : NULL;
    bool resting = sync->stage == STAGE_DOUBT || sync->stage == STAGE_COMMITTED;
    if (t && !resting && (t->progress == TENSOR_COMING || t->progress == TENSOR_READY))
        status = error_call("sync_set_data", HEARTH_INVALID, "\"%s\" is in flight", t->name);
    else if (t)
        t->data = data;
    mutex_unlock(&sync->lock);
    return status;
}

int hearth_sync_set_weight(hearth_sync *sync, double weight)
{
    int status = sync_check(sync, "sync_set_weight");
    if (status != HEARTH_OK)
        return status;
    if (!(weight >= 0 && weight <= WEIGHT_MAX))
        return error_call("sync_set_weight", HEARTH_INVALID, "weight is %g; it must be from 0 to %g", weight,
                          WEIGHT_MAX);
    mutex_lock(&sync->lock);
    if (sync->begun)
        status = error_call("sync_set_weight", HEARTH_INVALID, "the step has begun");
    else
        sync->weight = weight;
    mutex_unlock(&sync->lock);
    return status;
}

/* ---- a step ---- */

/* With the lock. The first call of a step's kind fixes what is registered. */
static int step_check(hearth_sync *sync)
{
    if (sync->broken.status != HEARTH_OK) {
        *error_last() = sync->broken;
        return sync->broken.status;
    }
    return sync->frozen ? HEARTH_OK : sync_freeze(sync);
}

/* This step may have been committed or not: the next group decides. */
static int doubt(const hearth_sync *sync, const char *name)
{
    return error_call(name, HEARTH_VIEW_CHANGED,
                      "step %llu may have been committed by others: hearth_group_reform settles it",
                      (unsigned long long)sync->steps);
}

/* With the lock. *take: the tensor is the calling thread's now; else there is nothing to do. */
static int tensor_claim(hearth_sync *sync, int index, struct sync_tensor **take)
{
    int status = index_check(sync, "sync_ready", index);
    if (status == HEARTH_OK)
        status = step_check(sync);
    if (status != HEARTH_OK)
        return status;
    struct sync_tensor *t = &sync->tensors[index];
    if (sync->stage == STAGE_COMMITTED)
        sync_give_up(sync);
    if (sync->stage == STAGE_DOUBT)
        return doubt(sync, "sync_ready");
    if (t->progress == TENSOR_DONE)
        return HEARTH_OK;
    if (t->progress != TENSOR_IDLE && t->progress != TENSOR_AGAIN)
        return error_call("sync_ready", HEARTH_INVALID, "\"%s\" is ready already in this step", t->name);
    if (!t->data && t->item.count > 0)
        return error_call("sync_ready", HEARTH_INVALID, "\"%s\" has no data: call hearth_sync_set_data",
                          t->name);
    t->progress = TENSOR_COMING;
    sync->begun = true;
    *take = t;
    return HEARTH_OK;
}

int hearth_sync_ready(hearth_sync *sync, int index)
{
    struct sync_tensor *take = NULL;
    int status = sync_check(sync, "sync_ready");
    if (status != HEARTH_OK)
        return status;
    mutex_lock(&sync->lock);
    status = tensor_claim(sync, index, &take);
    mutex_unlock(&sync->lock);
    if (take)
        sync_take(sync, take);
    return status;
}

/* With the lock. HEARTH_INVALID: names some of the tensors that are not ready. */
static int missing_check(const hearth_sync *sync)
{
    char text[NAMED_MAX * (NAMED_LEN + 8)] = "";
    uint32_t missing = 0;
    size_t len = 0;
    for (uint32_t i = 0; i < sync->tensor_count; i++) {
        const struct sync_tensor *t = &sync->tensors[i];
        if (t->progress != TENSOR_IDLE && t->progress != TENSOR_COMING)
            continue;
        if (missing++ < NAMED_MAX)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s\"%.*s\"", len > 0 ? ", " : "",
                                    NAMED_LEN, t->name);
    }
    if (missing == 0)
        return HEARTH_OK;
    return error_call("sync_wait", HEARTH_INVALID, "%u of %u tensors were not made ready: %s%s", missing,
                      sync->tensor_count, text, missing > NAMED_MAX ? ", ..." : "");
}

static int deadline_of(const hearth_sync *sync, const struct hearth_opts *given, uint64_t *deadline_ns)
{
    struct hearth_opts opts;
    int status = call_opts_read("sync_wait", given, &opts);
    if (status != HEARTH_OK)
        return status;
    int64_t timeout_ms = opts.timeout_ms >= 0 ? opts.timeout_ms : sync->node->config.op_timeout_ms;
    uint64_t now = node_now(sync->node);
    bool ever = (uint64_t)timeout_ms < (NEVER_NS - now) / NS_PER_MS;
    *deadline_ns = ever ? now + (uint64_t)timeout_ms * NS_PER_MS : NEVER_NS;
    return HEARTH_OK;
}

/* With the lock. */
static int wait_begin(hearth_sync *sync)
{
    if (sync->waiting)
        return error_call("sync_wait", HEARTH_INVALID, "another thread waits already");
    int status = step_check(sync);
    if (status == HEARTH_OK && sync->stage == STAGE_DOUBT)
        status = doubt(sync, "sync_wait");
    if (status == HEARTH_OK && sync->stage != STAGE_COMMITTED)
        status = missing_check(sync);
    return status;
}

int hearth_sync_wait(hearth_sync *sync, const struct hearth_opts *opts)
{
    uint64_t deadline_ns = 0;
    int status = sync_check(sync, "sync_wait");
    if (status == HEARTH_OK)
        status = deadline_of(sync, opts, &deadline_ns);
    if (status != HEARTH_OK)
        return status;
    mutex_lock(&sync->lock);
    status = wait_begin(sync);
    bool committed = status == HEARTH_OK && sync->stage == STAGE_COMMITTED;
    if (committed)
        status = sync_commit_write(sync, error_last());
    sync->waiting = status == HEARTH_OK && !committed;
    mutex_unlock(&sync->lock);
    if (status != HEARTH_OK || committed)
        return status;
    sync_resend(sync);
    status = sync_agree(sync, deadline_ns);
    if (status == HEARTH_OK)
        status = sync_finish(sync, deadline_ns);
    mutex_lock(&sync->lock);
    sync->waiting = false;
    mutex_unlock(&sync->lock);
    return status;
}

uint64_t hearth_sync_steps(hearth_sync *sync)
{
    if (!sync)
        return 0;
    mutex_lock(&sync->lock);
    uint64_t steps = sync->steps + (sync->stage == STAGE_COMMITTED);
    mutex_unlock(&sync->lock);
    return steps;
}

void hearth_sync_drop(hearth_sync *sync)
{
    if (sync && !node_forked(sync->node))
        sync_abandon(sync, false);
}
