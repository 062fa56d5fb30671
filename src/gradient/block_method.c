/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs that code part by part: rounds over the tensor itself. */
#include "gradient/codec_pool.h"
#include "gradient/rounds.h"

struct block_method {
    struct rounds *rounds;
    uint8_t *undo; /* what the buffer held, as far as it has been overwritten */
};

static size_t undo_len(const struct reduction_call *call)
{
    return call->count * dtype_size(call->dtype);
}

static int block_method_open(struct reduction *r)
{
    struct block_method *p = reduction_take(r, sizeof *p);
    if (!p)
        return r->error.status;
    *p = (struct block_method){.undo = reduction_take(r, undo_len(&r->call))};
    r->work = p;
    struct array array = {
        .codec = r->call.codec,
        .algo = r->call.algo,
        .feed = reduction_feed(r),
        .count = r->call.count,
        .out = {.out = r->call.buffer, .dtype = r->call.dtype},
        .undo = p->undo,
        .is_tensor = true,
    };
    array.feed.key = 0;
    int status = p->undo ? rounds_open(r, &array, &p->rounds) : r->error.status;
    if (status != HEARTH_OK) {
        codec_pool_give(r->pool, p->undo);
        codec_pool_give(r->pool, p);
        r->work = NULL;
    }
    return status;
}

static enum step block_method_step(struct reduction *r)
{
    struct block_method *p = r->work;
    return rounds_step(p->rounds, r);
}

static void block_method_publish(struct reduction *r)
{
    (void)r; /* the result stands in the buffer already */
}

static void block_method_close(struct reduction *r, bool failed)
{
    struct block_method *p = r->work;
    if (!p)
        return;
    rounds_close(p->rounds, r, failed);
    codec_pool_give(r->pool, p->undo);
    codec_pool_give(r->pool, p);
    r->work = NULL;
}

static size_t block_method_memory(const struct reduction_call *call, int size)
{
    return undo_len(call) + rounds_memory(&call->codec, call->algo, call->count, size);
}

const struct method method_block = {
    .open = block_method_open,
    .step = block_method_step,
    .publish = block_method_publish,
    .close = block_method_close,
    .memory = block_method_memory,
};
