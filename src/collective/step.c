/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out moves. The only file that computes on user memory; links read and write it where this file,
 * flow.c and dispatch.c point them.
 *
 * A lane goes through the moves of the plan one by one; a move has three stages. Whatever a lane waits for
 * (its frame, its turn to send, its last send to leave) wakes it, and it looks again:
 *
 *   RECV   the frame is here, the accumulator is free
 *   WORK   combine, store, copy: see enum move_bits
 *   SEND   the flow's turn, credit and queue allow it: flow.c sends and moves the lane on
 *
 * The frame that begins a sum becomes the accumulator, so that the user's source is read once and never
 * written, and what travels on is warm. */
#include <assert.h>
#include <string.h>

#include "collective/state.h"

#define BLOCK_COUNT 512u /* elements widened at a time: 4 KiB of f64 stay in the first cache */

/* ---- arithmetic ---- */

static void weigh(const struct op *op, void *acc, size_t count, double weight)
{
    const struct kernels *k = op->group->engine->kernels;
    if (!op->average || weight == 1.0)
        return;
    if (op->acc_dtype == HEARTH_F64)
        k->multiply_f64(acc, count, weight);
    else
        k->multiply_f32(acc, count, weight);
}

/* acc = raw elements, widened and weighed. */
static void load(const struct op *op, void *acc, const void *raw, size_t count, double weight)
{
    if (op->acc_dtype == op->dtype)
        memmove(acc, raw, count * dtype_size(op->dtype));
    else
        op->group->engine->kernels->widen[op->dtype](acc, raw, count);
    weigh(op, acc, count, weight);
}

/* acc = acc op raw elements. */
static void combine_raw(const struct op *op, uint8_t *acc, const uint8_t *raw, size_t count, double weight)
{
    reduce_fn *reduce = op->group->engine->kernels->reduce[op->acc_dtype][op->kernel_op];
    if (op->acc_dtype == op->dtype && (!op->average || weight == 1.0)) {
        reduce(acc, raw, count);
        return;
    }
    double block[BLOCK_COUNT];
    size_t raw_len = dtype_size(op->dtype), acc_len = dtype_size(op->acc_dtype);
    for (size_t done = 0; done < count; done += BLOCK_COUNT) {
        size_t n = count - done < BLOCK_COUNT ? count - done : BLOCK_COUNT;
        load(op, block, raw + done * raw_len, n, weight);
        reduce(acc + done * acc_len, block, n);
    }
}

/* target = accumulator, averaged and rounded. */
static void finish(const struct op *op, void *target, void *acc, size_t count, double weight)
{
    const struct kernels *k = op->group->engine->kernels;
    if (op->average && op->acc_dtype == HEARTH_F64)
        k->divide_f64(acc, count, weight);
    else if (op->average)
        k->divide_f32(acc, count, weight);
    bool half = op->dtype == HEARTH_F16 || op->dtype == HEARTH_BF16, integer = op->dtype >= HEARTH_I8;
    if (op->acc_dtype != op->dtype || (!half && !integer)) {
        k->narrow[op->dtype](target, acc, count);
        return;
    }
    if (half) /* min and max: with itself, for the canonical NaN */
        k->reduce[op->dtype][op->kernel_op](acc, acc, count);
    memcpy(target, acc, count * dtype_size(op->dtype));
}

/* ---- stages ---- */

static uint8_t *acc_at(const struct op *op, const struct lane *lane, struct range range)
{
    assert(lane->acc != NULL && range.offset >= lane->acc_offset);
    return (uint8_t *)lane->acc->data + (range.offset - lane->acc_offset) * dtype_size(op->acc_dtype);
}

static bool acc_new(struct op *op, struct lane *lane)
{
    assert(lane->acc == NULL);
    lane->acc = slot_get(&op->group->engine->slots, op->program->plan.acc_count * dtype_size(op->acc_dtype));
    return lane->acc != NULL;
}

/* The accumulator begins anew with this move. */
static void acc_begin(struct lane *lane, struct range range)
{
    slot_put(lane->acc);
    lane->acc = NULL;
    lane->acc_offset = range.offset;
    lane->weight = 0;
}

static bool take_frame(struct op *op, struct lane *lane, const struct move *move, struct range range)
{
    struct slot *frame = lane->frame;
    bool raw = move->bits & MOVE_RAW;
    double weight = frame->frame.weight;
    lane->weight += weight;
    if (!(move->bits & MOVE_LOAD)) {
        uint8_t *acc = acc_at(op, lane, range);
        if (raw)
            combine_raw(op, acc, frame->data, range.count, weight);
        else
            op->group->engine->kernels->reduce[op->acc_dtype][op->kernel_op](acc, frame->data, range.count);
    } else if (!raw || op->acc_dtype == op->dtype) {
        lane->acc = frame; /* a frame becomes the accumulator: nothing is copied */
        lane->frame = NULL;
        if (raw)
            weigh(op, frame->data, range.count, weight);
        return true;
    } else {
        if (!acc_new(op, lane))
            return false;
        load(op, lane->acc->data, frame->data, range.count, weight);
    }
    slot_put(frame);
    lane->frame = NULL;
    return true;
}

static bool take_own(struct op *op, struct lane *lane, bool first, struct range range)
{
    const uint8_t *own = op->source + range.offset * dtype_size(op->dtype);
    lane->weight += op->weight;
    if (!first) {
        combine_raw(op, acc_at(op, lane, range), own, range.count, op->weight);
        return true;
    }
    if (!acc_new(op, lane))
        return false;
    load(op, lane->acc->data, own, range.count, op->weight);
    return true;
}

static void write_target(struct op *op, struct lane *lane, const struct move *move, struct range in)
{
    const struct plan *plan = &op->program->plan;
    struct range out = plan_range(plan, SIDE_OUT, lane->number, move->part, move->parts);
    size_t len = dtype_size(op->dtype);
    uint8_t *target = op->target + out.offset * len;
    if (out.count == 0)
        return;
    if (move->bits & MOVE_STORE)
        finish(op, target, acc_at(op, lane, in), out.count, lane->weight);
    else if ((move->bits & MOVE_COPY) && op->source + in.offset * len != target)
        memcpy(target, op->source + in.offset * len, out.count * len);
    else if (move->bits & MOVE_IDENTITY)
        kernel_identity(op->dtype, op->kernel_op, target, out.count);
}

static bool is_empty(const struct plan *plan, size_t bytes)
{
    return bytes == 0 && !plan->sync;
}

void lane_lend(struct lane *lane, struct range range)
{
    size_t end = range.offset + range.count;
    bool first = lane->unsent_acc++ == 0;
    lane->lent_from = first || range.offset < lane->lent_from ? range.offset : lane->lent_from;
    lane->lent_to = first || end > lane->lent_to ? end : lane->lent_to;
}

/* Whether the move would write what is still on its way out of the accumulator. */
static bool changes_lent(const struct op *op, const struct lane *lane, const struct move *move)
{
    if (lane->unsent_acc == 0 || !(move->bits & (MOVE_RECV_ACC | MOVE_OWN)))
        return false;
    struct range range = plan_move_range(&op->program->plan, lane->number, move);
    return (move->bits & MOVE_LOAD) ||
           (range.offset < lane->lent_to && lane->lent_from < range.offset + range.count);
}

/* True: go on. False: the lane waits, or the operation has failed. */
static bool stage_recv(struct op *op, struct lane *lane, const struct move *move)
{
    const struct plan *plan = &op->program->plan;
    if (changes_lent(op, lane, move))
        return false;
    if (!(move->bits & MOVE_RECV) || is_empty(plan, plan_recv_bytes(plan, lane->number, move)))
        return true;
    struct slot *slot = inflow_find(op, lane);
    if (slot == NULL)
        return false;
    if (move->bits & MOVE_RECV_ACC) {
        lane->frame = slot;
    } else {
        struct range out = plan_range(plan, SIDE_OUT, lane->number, move->part, move->parts);
        size_t len = dtype_size(op->dtype);
        if (out.count > 0)
            memcpy(op->target + out.offset * len, slot->data, out.count * len);
        slot_put(slot);
    }
    inflow_took(op, lane);
    return true;
}

static bool stage_work(struct op *op, struct lane *lane, const struct move *move)
{
    const struct plan *plan = &op->program->plan;
    if ((move->bits & MOVE_FENCE) && op->in_place && lane->unsent_in > 0)
        return false;
    struct range in = plan_move_range(plan, lane->number, move);
    bool first = move->bits & MOVE_LOAD, ok = true;
    if (first)
        acc_begin(lane, in);
    if (in.count > 0 || plan->sync) {
        if (lane->frame != NULL) {
            ok = take_frame(op, lane, move, in);
            first = false;
        }
        if (ok && (move->bits & MOVE_OWN))
            ok = take_own(op, lane, first, in);
        if (ok && (move->bits & (MOVE_STORE | MOVE_COPY | MOVE_IDENTITY)))
            write_target(op, lane, move, in);
    }
    if (!ok)
        op_out_of_memory(op);
    return ok;
}

static bool stage_send(struct op *op, struct lane *lane, const struct move *move)
{
    const struct plan *plan = &op->program->plan;
    if (!(move->bits & MOVE_SEND) || is_empty(plan, plan_send_bytes(plan, lane->number, move)))
        return true;
    uint32_t flow = (uint32_t)op->program->out_of[move->to];
    outflow_pump(op, flow); /* moves this lane on, and others, when it is their turn */
    return false;
}

/* ---- lanes ---- */

static void lane_begin(struct op *op, struct lane *lane, uint64_t number)
{
    lane->number = number;
    lane->move = 0;
    lane->stage = LANE_RECV;
    lane->idle = number >= op->program->plan.lanes;
    if (!lane->idle)
        lane_wake(op, lane);
}

void lanes_start(struct op *op)
{
    for (uint64_t i = 0; i < op->program->plan.window; i++)
        lane_begin(op, &op->lanes[i], i);
}

void lane_wake(struct op *op, struct lane *lane)
{
    if (lane->queued || lane->idle)
        return;
    uint32_t window = (uint32_t)op->program->plan.window;
    lane->queued = true;
    op->ready[(op->ready_head + op->ready_count++) % window] = (uint32_t)(lane - op->lanes);
}

/* Until it waits, ends, or the operation fails. */
static void lane_run(struct op *op, struct lane *lane)
{
    const struct plan *plan = &op->program->plan;
    while (lane->move < plan->move_count) {
        const struct move *move = &plan->moves[lane->move];
        if (lane->stage == LANE_RECV) {
            if (!stage_recv(op, lane, move))
                return;
            lane->stage = LANE_WORK;
        }
        if (lane->stage == LANE_WORK) {
            if (!stage_work(op, lane, move))
                return;
            lane->stage = LANE_SEND;
        }
        if (!stage_send(op, lane, move))
            return;
        lane->move++;
        lane->stage = LANE_RECV;
    }
    if (lane->unsent_acc > 0)
        return;
    slot_put(lane->acc);
    lane->acc = NULL;
    op->lanes_left--;
    lane_begin(op, lane, lane->number + plan->window);
}

void op_run(struct op *op)
{
    if (op->running)
        return; /* an event from inside: the loop below sees what it woke */
    op->running = true;
    while (op->state == OP_RUNNING && op->ready_count > 0) {
        struct lane *lane = &op->lanes[op->ready[op->ready_head]];
        op->ready_head = (op->ready_head + 1) % (uint32_t)op->program->plan.window;
        op->ready_count--;
        lane->queued = false;
        lane_run(op, lane);
    }
    op->running = false;
    if (op->state == OP_RUNNING && op->lanes_left == 0 && op->unsent == 0 && outflows_compared(op)) {
        op->state = OP_READY;
        op_end(op, NULL);
    }
}
