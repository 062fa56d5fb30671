/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs that code part by part: rounds over the tensor itself. */
#include "gradient/rounds.h"
#include "gradient/workshop.h"

struct partwise {
    struct rounds *rounds;
    uint8_t *undo; /* what the buffer held, as far as it has been overwritten */
};

static size_t undo_len(const struct reduction_call *call)
{
    return call->count * dtype_size(call->dtype);
}

static int partwise_open(struct reduction *r)
{
    struct partwise *p = reduction_take(r, sizeof *p);
    if (p == NULL)
        return r->error.status;
    *p = (struct partwise){.undo = reduction_take(r, undo_len(&r->call))};
    r->work = p;
    struct array array = {
        .codec = r->call.codec,
        .way = r->call.way,
        .feed = reduction_feed(r),
        .count = r->call.count,
        .out = {.out = r->call.buffer, .dtype = r->call.dtype},
        .undo = p->undo,
        .is_tensor = true,
    };
    array.feed.key = 0;
    int status = p->undo != NULL ? rounds_open(r, &array, &p->rounds) : r->error.status;
    if (status != HEARTH_OK) {
        workshop_give(r->workshop, p->undo);
        workshop_give(r->workshop, p);
        r->work = NULL;
    }
    return status;
}

static enum step partwise_step(struct reduction *r)
{
    struct partwise *p = r->work;
    return rounds_step(p->rounds, r);
}

static void partwise_publish(struct reduction *r)
{
    (void)r; /* the result stands in the buffer already */
}

static void partwise_close(struct reduction *r, bool failed)
{
    struct partwise *p = r->work;
    if (p == NULL)
        return;
    rounds_close(p->rounds, r, failed);
    workshop_give(r->workshop, p->undo);
    workshop_give(r->workshop, p);
    r->work = NULL;
}

static size_t partwise_memory(const struct reduction_call *call, int size)
{
    return undo_len(call) + rounds_memory(&call->codec, call->way, call->count, size);
}

const struct method method_partwise = {
    .open = partwise_open,
    .step = partwise_step,
    .publish = partwise_publish,
    .close = partwise_close,
    .memory = partwise_memory,
};
