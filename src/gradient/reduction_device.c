/* SPDX-License-Identifier: Apache-2.0 */
/* A compressed all-reduce of device memory: the node's copier brings buffer and residual into host memory
 * while the opening is under way, and takes them back after the vote. Codecs that code part by part begin
 * with the first parts. */
#include "gradient/codec_pool.h"

enum { COPY_NONE, COPY_WANTED, COPY_RUNS, COPY_ENDED };

static size_t buffer_len(const struct reduction_call *call)
{
    return call->count * dtype_size(call->dtype);
}

static bool has_residual(const struct reduction_call *call)
{
    return call->feedback && call->residual;
}

size_t device_memory(const struct reduction_call *call)
{
    if (!memory_is_device(&call->memory))
        return 0;
    return (call->staged ? 0 : buffer_len(call)) +
           (has_residual(call) ? call->count * residual_size(call->dtype) : 0);
}

/* The residual comes first: then the buffer's first elements are enough to begin. */
int device_open(struct reduction *r)
{
    struct device_copy *d = &r->device;
    size_t len = buffer_len(&r->call), residual_len = r->call.count * residual_size(r->call.dtype);
    if (!memory_is_device(&r->call.memory))
        return HEARTH_OK;
    d->copier = copier_of(r->call.group->node);
    void *host = r->call.staged ? r->call.staged : reduction_take(r, len);
    void *residual = has_residual(&r->call) ? reduction_take(r, residual_len) : NULL;
    if (!d->copier || !host || (has_residual(&r->call) && !residual))
        return error_set(&r->error, HEARTH_NO_MEMORY, r->rank, "no host memory for device buffers");
    if (residual) {
        d->ranges[d->count++] = (struct copy_range){r->call.residual, residual, residual_len};
        r->call.residual = residual;
        d->before = residual_len;
    }
    d->ranges[d->count++] = (struct copy_range){r->call.buffer, host, len};
    r->call.buffer = host;
    d->job.memory = r->call.memory;
    r->call.memory = memory_host; /* of what it is made of */
    d->pool = r->pool;
    atomic_store(&d->state, COPY_WANTED);
    return HEARTH_OK;
}

static void copy_moved(struct copy_job *job, size_t len)
{
    struct device_copy *d = container_of(job, struct device_copy, job);
    atomic_store(&d->passed, len);
    codec_pool_ring(d->pool);
}

static void copy_done(struct copy_job *job, const struct error *error)
{
    struct device_copy *d = container_of(job, struct device_copy, job);
    struct codec_pool *pool = d->pool; /* the reduction may be gone once it has seen the state */
    d->error = *error;
    atomic_store(&d->state, COPY_ENDED);
    codec_pool_ring(pool);
}

static void copy_start(struct device_copy *d, bool out)
{
    d->job.out = out;
    d->job.ranges = d->ranges;
    d->job.count = d->count;
    d->job.moved = out ? NULL : copy_moved;
    d->job.done = copy_done;
    atomic_store(&d->job.stop, false);
    atomic_store(&d->state, COPY_RUNS);
    copier_submit(d->copier, &d->job);
}

/* Has ended: STEP_DONE or STEP_FAILED. */
static enum step copy_end(struct reduction *r)
{
    struct device_copy *d = &r->device;
    atomic_store(&d->state, COPY_NONE);
    if (d->error.status == HEARTH_OK)
        return STEP_DONE;
    error_set(&r->error, d->error.status, r->rank, "%s", d->error.text);
    return STEP_FAILED;
}

enum step device_in(struct reduction *r)
{
    struct device_copy *d = &r->device;
    bool parts = r->method == &method_block;
    switch (atomic_load(&d->state)) {
    case COPY_NONE:
        return STEP_DONE;
    case COPY_WANTED:
        if (parts)
            rounds_offer(r->work, 0);
        copy_start(d, false);
        break;
    case COPY_ENDED:
        if (parts)
            rounds_offer(r->work, r->call.count);
        return copy_end(r);
    default:
        break;
    }
    size_t passed = atomic_load(&d->passed);
    if (!parts)
        return STEP_WAIT;
    if (passed > d->before)
        rounds_offer(r->work, (passed - d->before) / dtype_size(r->call.dtype));
    return STEP_DONE;
}

void device_out(struct reduction *r)
{
    struct device_copy *d = &r->device;
    if (r->call.staged) /* its owner wants it there */
        d->count--;
    if (d->copier && d->count > 0)
        copy_start(d, true);
}

enum step device_out_await(struct reduction *r)
{
    int state = atomic_load(&r->device.state);
    if (state == COPY_NONE)
        return STEP_DONE;
    return state == COPY_ENDED ? copy_end(r) : STEP_WAIT;
}

bool device_rests(struct reduction *r)
{
    struct device_copy *d = &r->device;
    if (atomic_load(&d->state) != COPY_RUNS)
        return true;
    atomic_store(&d->job.stop, true);
    return false;
}
