/* SPDX-License-Identifier: Apache-2.0 */
/* Uncompressed, with what earlier steps have left behind: input + residual are summed, the residual becomes
 * zero. */
#include <string.h>

#include "compress/load.h"
#include "gradient/codec_pool.h"

struct plain {
    void *sum; /* in the residual's type */
    struct sub sub;
    size_t loaded; /* elements */
    bool summed;
};

static int plain_open(struct reduction *r)
{
    struct plain *p = reduction_take(r, sizeof *p);
    void *sum = reduction_take(r, r->call.count * residual_size(r->call.dtype));
    if (!p || !sum)
        return r->error.status;
    *p = (struct plain){.sum = sum};
    r->work = p;
    return HEARTH_OK;
}

static int sum_start(struct reduction *r, struct plain *p)
{
    struct call call = {.kind = PLAN_ALL_REDUCE,
                        .source = p->sum,
                        .target = p->sum,
                        .count = r->call.count,
                        .dtype = r->call.dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32,
                        .op = HEARTH_OP_SUM,
                        .in_place = true};
    r->sent_bytes += 2 * (uint64_t)(r->size - 1) * call.count * dtype_size(call.dtype) / (uint64_t)r->size;
    return sub_start(r, r->hidden, &p->sub, &call, SUB_FIRST);
}

static enum step plain_step(struct reduction *r)
{
    struct plain *p = r->work;
    if (p->loaded < r->call.count) {
        p->loaded = reduction_load(r, r->e_old, p->sum, p->loaded);
        if (p->loaded < r->call.count)
            return STEP_MORE;
        return step_of(sum_start(r, p));
    }
    if (p->summed)
        return STEP_DONE;
    enum step step = sub_await(r, &p->sub);
    p->summed = step == STEP_DONE;
    return step;
}

static void plain_publish(struct reduction *r)
{
    struct plain *p = r->work;
    size_t count = r->call.count;
    enum hearth_dtype wide = r->call.dtype == HEARTH_F64 ? HEARTH_F64 : HEARTH_F32;
    if (r->divisor != 1.0f)
        r->kernels->divide(wide, p->sum, count, (double)r->divisor);
    r->kernels->narrow(r->call.dtype, r->call.buffer, p->sum, count);
    if (r->e_new)
        memset(r->e_new, 0, count * residual_size(r->call.dtype));
}

static void plain_close(struct reduction *r, bool failed)
{
    struct plain *p = r->work;
    (void)failed; /* the buffer is written by publish only */
    sub_cancel(r, &p->sub);
}

static size_t plain_memory(const struct reduction_call *call, int size)
{
    (void)size;
    return call->count * residual_size(call->dtype);
}

const struct method method_plain = {
    .open = plain_open,
    .step = plain_step,
    .publish = plain_publish,
    .close = plain_close,
    .memory = plain_memory,
};
