/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out moves. The only file that computes on user memory; links read and write it where this file,
 * flow.c and dispatch.c point them.
 *
 * A lane goes through the moves one by one; a move has three stages. What a lane waits for wakes it:
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
    if (op->average && weight != 1.0)
        op->group->engine->kernels->multiply(op->acc_dtype, acc, count, weight);
}

/* acc = raw elements, widened and weighed. */
static void load(const struct op *op, void *acc, const void *raw, size_t count, double weight)
{
    if (op->acc_dtype == op->dtype)
        memmove(acc, raw, count * dtype_size(op->dtype));
    else
        op->group->engine->kernels->widen(op->dtype, acc, raw, count);
    weigh(op, acc, count, weight);
}

/* target = acc op other sums. */
static void reduce(const struct op *op, void *target, const void *acc, const void *other, size_t count)
{
    op->group->engine->kernels->reduce(op->acc_dtype, op->kernel_op, target, acc, other, count);
}

/* Whether raw elements of this weight can be added to sums as they are. */
static bool is_plain(const struct op *op, double weight)
{
    return op->acc_dtype == op->dtype && (!op->average || weight == 1.0);
}

/* target = acc op raw elements; the target is the accumulator unless they are plain. */
static void combine_raw(const struct op *op, uint8_t *target, const uint8_t *acc, const uint8_t *raw,
                        size_t count, double weight)
{
    if (is_plain(op, weight)) {
        reduce(op, target, acc, raw, count);
        return;
    }
    double block[BLOCK_COUNT];
    size_t raw_len = dtype_size(op->dtype), acc_len = dtype_size(op->acc_dtype);
    for (size_t done = 0; done < count; done += BLOCK_COUNT) {
        size_t n = count - done < BLOCK_COUNT ? count - done : BLOCK_COUNT;
        load(op, block, raw + done * raw_len, n, weight);
        reduce(op, target + done * acc_len, acc + done * acc_len, block, n);
    }
}

/* target = accumulator, averaged and rounded. */
static void finish(const struct op *op, void *target, void *acc, size_t count, double weight)
{
    const struct kernels *k = op->group->engine->kernels;
    if (op->average) /* a sum of all weights becomes one, where it stands */
        k->divide(op->acc_dtype, acc, count, weight);
    bool half = op->dtype == HEARTH_F16 || op->dtype == HEARTH_BF16, integer = op->dtype >= HEARTH_I8;
    if (op->acc_dtype != op->dtype || (!half && !integer)) {
        k->narrow(op->dtype, target, acc, count);
        return;
    }
    if (half) /* min and max: with itself, for the canonical NaN */
        k->reduce(op->dtype, op->kernel_op, acc, acc, acc, count);
    memcpy(target, acc, count * dtype_size(op->dtype));
}

/* ---- stages ---- */

static uint8_t *acc_at(const struct op *op, const struct lane *lane, struct range range)
{
    assert(lane->acc && range.offset >= lane->acc_offset);
    return (uint8_t *)lane->acc->data + (range.offset - lane->acc_offset) * dtype_size(op->acc_dtype);
}

static bool acc_new(struct op *op, struct lane *lane)
{
    assert(!lane->acc);
    lane->acc = slot_get(&op->group->engine->slots, op->program->plan.acc_count * dtype_size(op->acc_dtype));
    return lane->acc;
}

/* The accumulator begins anew with this move. */
static void acc_begin(struct lane *lane, struct range range)
{
    slot_put(lane->acc);
    slot_put(lane->borrowed);
    lane->acc = lane->borrowed = NULL;
    lane->acc_offset = range.offset;
    lane->weight = 0;
}

/* What a slot held has been read. */
static void slot_used(struct op *op, struct slot *slot)
{
    if (slot && !loan_good(&slot->loan))
        op->spoiled = true;
    slot_put(slot);
}

/* What is lent becomes an accumulator of our own. */
static bool acc_settle(struct op *op, struct lane *lane)
{
    if (!lane->borrowed)
        return true;
    if (!acc_new(op, lane))
        return false;
    memcpy(lane->acc->data, slot_payload(lane->borrowed),
           lane->borrowed_range.count * dtype_size(op->acc_dtype));
    slot_used(op, lane->borrowed);
    lane->borrowed = NULL;
    return true;
}

/* The move at work: what it combines, and where the last of it may go. */
struct work {
    const struct move *move;
    struct range in, out;
    bool last;   /* nothing more is combined in this move */
    bool stored; /* the sum stands in the target already */
};

/* One more operand into the sum: elements of the accumulator's type, or raw ones with a weight. A sum that is
 * lent is read where it stands, and one that ends here is written where it belongs: nothing is copied. */
static bool combine(struct op *op, struct lane *lane, struct work *w, const void *operand, bool raw,
                    double weight)
{
    bool plain = !raw || is_plain(op, weight);
    bool whole = lane->borrowed && lane->borrowed_range.offset == w->in.offset &&
                 lane->borrowed_range.count == w->in.count;
    if (!(plain && whole) && !acc_settle(op, lane))
        return false;
    bool ends = w->last && plain && op->acc_dtype == op->dtype &&
                op->program->sum_ends[w->move - op->program->plan.moves] && w->out.count == w->in.count;
    const uint8_t *sum = lane->borrowed ? slot_payload(lane->borrowed) : acc_at(op, lane, w->in);
    uint8_t *target;
    if (ends) {
        target = op->target + w->out.offset * dtype_size(op->dtype);
        w->stored = true;
    } else if (lane->borrowed) {
        if (!acc_new(op, lane))
            return false;
        target = lane->acc->data;
    } else {
        target = acc_at(op, lane, w->in);
    }
    if (raw)
        combine_raw(op, target, sum, operand, w->in.count, weight);
    else
        reduce(op, target, sum, operand, w->in.count);
    if (ends && op->average)
        op->group->engine->kernels->divide(op->acc_dtype, target, w->in.count, lane->weight);
    slot_used(op, lane->borrowed);
    lane->borrowed = NULL;
    return true;
}

static bool take_frame(struct op *op, struct lane *lane, struct work *w)
{
    struct slot *frame = lane->frame;
    bool raw = w->move->bits & MOVE_RAW, ok = true;
    double weight = frame->frame.weight;
    lane->weight += weight;
    w->last = !(w->move->bits & MOVE_OWN);
    if (!(w->move->bits & MOVE_LOAD)) {
        ok = combine(op, lane, w, slot_payload(frame), raw, weight);
    } else if (frame->loan.data && (!raw || is_plain(op, weight))) {
        lane->borrowed = frame;
        lane->borrowed_range = w->in;
        lane->frame = NULL;
        return true;
    } else if (!frame->loan.data && (!raw || op->acc_dtype == op->dtype)) {
        lane->acc = frame; /* a frame becomes the accumulator: nothing is copied */
        lane->frame = NULL;
        if (raw)
            weigh(op, frame->data, w->in.count, weight);
        return true;
    } else {
        ok = acc_new(op, lane);
        if (ok)
            load(op, lane->acc->data, slot_payload(frame), w->in.count, weight);
    }
    slot_used(op, frame);
    lane->frame = NULL;
    return ok;
}

static bool take_own(struct op *op, struct lane *lane, bool first, struct work *w)
{
    const uint8_t *own = op->source + w->in.offset * dtype_size(op->dtype);
    lane->weight += op->weight;
    w->last = true;
    if (!first)
        return combine(op, lane, w, own, true, op->weight);
    if (!acc_new(op, lane))
        return false;
    load(op, lane->acc->data, own, w->in.count, op->weight);
    return true;
}

static void write_target(struct op *op, struct lane *lane, const struct work *w)
{
    size_t len = dtype_size(op->dtype);
    uint8_t *target = op->target + w->out.offset * len;
    if (w->out.count == 0 || w->stored)
        return;
    if (w->move->bits & MOVE_STORE)
        finish(op, target, acc_at(op, lane, w->in), w->out.count, lane->weight);
    else if ((w->move->bits & MOVE_COPY) && op->source + w->in.offset * len != target)
        memcpy(target, op->source + w->in.offset * len, w->out.count * len);
    else if (w->move->bits & MOVE_IDENTITY)
        kernel_identity(op->dtype, op->kernel_op, target, w->out.count);
}

static void copy_result(const struct op *op, void *target, const void *source, size_t len)
{
    if (op->far)
        op->group->engine->kernels->copy_far(target, source, len);
    else
        memcpy(target, source, len);
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
    if (!slot)
        return false;
    if (move->bits & MOVE_RECV_ACC) {
        lane->frame = slot;
    } else {
        struct range out = plan_range(plan, SIDE_OUT, lane->number, move->part, move->parts);
        size_t len = dtype_size(op->dtype);
        if (out.count > 0)
            copy_result(op, op->target + out.offset * len, slot_payload(slot), out.count * len);
        slot_used(op, slot);
    }
    inflow_took(op, lane);
    return true;
}

static bool keep_copy(struct op *op, struct slot *slot)
{
    bool good = true;
    if (slot && !slot_own(slot, &good))
        return false;
    op->spoiled = op->spoiled || !good;
    return true;
}

static bool holds_up(const struct slot *slot, const struct link *link)
{
    return slot && slot->loan.conn == link->pipes[0].conn && loan_holds_up(&slot->loan);
}

void op_return_loans(struct op *op, int rank, const struct link *link)
{
    int32_t flow = op->program->in_of[rank];
    struct list *item, *after;
    bool ok = true;
    if (flow < 0)
        return;
    LIST_EACH (item, after, &op->in[flow].early) {
        struct slot *slot = container_of(item, struct slot, item);
        ok = ok && (!holds_up(slot, link) || keep_copy(op, slot));
    }
    for (uint64_t i = 0; i < op->program->plan.window && ok; i++) {
        struct lane *lane = &op->lanes[i];
        ok = (!holds_up(lane->frame, link) || keep_copy(op, lane->frame)) &&
             (!holds_up(lane->borrowed, link) || keep_copy(op, lane->borrowed));
    }
    if (!ok)
        op_out_of_memory(op);
}

bool op_loans_good(const struct op *op, int rank)
{
    const struct link *link = &op->group->engine->peers[op->group->members[rank]].link;
    int32_t flow = op->program->in_of[rank];
    bool good = true;
    if (flow < 0)
        return true;
    for (const struct list *item = op->in[flow].early.next; item != &op->in[flow].early; item = item->next)
        good = good && loan_good(&container_of(item, struct slot, item)->loan);
    for (uint64_t i = 0; i < op->program->plan.window; i++) {
        const struct slot *held[] = {op->lanes[i].frame, op->lanes[i].borrowed};
        for (int k = 0; k < 2; k++)
            good =
                good && (!held[k] || held[k]->loan.conn != link->pipes[0].conn || loan_good(&held[k]->loan));
    }
    return good;
}

static bool stage_work(struct op *op, struct lane *lane, const struct move *move)
{
    const struct plan *plan = &op->program->plan;
    if ((move->bits & MOVE_FENCE) && op->in_place && lane->unsent_in > 0) {
        /* Who waits until others have read its input must not keep them waiting for theirs. */
        if (!keep_copy(op, lane->frame) || !keep_copy(op, lane->borrowed))
            op_out_of_memory(op);
        return false;
    }
    struct work w = {.move = move, .in = plan_move_range(plan, lane->number, move)};
    bool first = move->bits & MOVE_LOAD, ok = true;
    if (first)
        acc_begin(lane, w.in);
    if (w.in.count > 0 || plan->sync) {
        w.out = plan_range(plan, SIDE_OUT, lane->number, move->part, move->parts);
        if (lane->frame) {
            ok = take_frame(op, lane, &w);
            first = false;
        }
        if (ok && (move->bits & MOVE_OWN))
            ok = take_own(op, lane, first, &w);
        if (ok && !w.stored && (move->bits & (MOVE_STORE | MOVE_SEND_ACC)))
            ok = acc_settle(op, lane);
        if (ok && (move->bits & (MOVE_STORE | MOVE_COPY | MOVE_IDENTITY)))
            write_target(op, lane, &w);
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

/* Bytes of the source before the end of the lane's input. */
static size_t lane_input_end(const struct op *op, uint64_t number)
{
    const struct plan *plan = &op->program->plan;
    if (op->offered == SIZE_MAX)
        return 0;
    bool even = plan->split == SPLIT_EVEN;
    size_t end = 0;
    for (uint32_t part = 0; part < (even ? 1 : plan->parts); part++) {
        struct range range = plan_range(plan, SIDE_IN, number, part, even ? plan->parts : 1);
        if (range.count > 0 && range.offset + range.count > end)
            end = range.offset + range.count;
    }
    return end * dtype_size(op->dtype);
}

static void lane_begin(struct op *op, struct lane *lane, uint64_t number)
{
    lane->number = number;
    lane->move = 0;
    lane->stage = LANE_RECV;
    lane->idle = number >= op->program->plan.lanes;
    lane->held = !lane->idle && op->offered < lane_input_end(op, number);
    if (!lane->idle)
        lane_wake(op, lane);
}

void lanes_release(struct op *op)
{
    for (uint64_t i = 0; op->program->plan.lanes > 0 && i < op->program->plan.window; i++) {
        struct lane *lane = &op->lanes[i];
        if (!lane->held || op->offered < lane_input_end(op, lane->number))
            continue;
        lane->held = false;
        lane_wake(op, lane);
    }
}

void lanes_start(struct op *op)
{
    for (uint64_t i = 0; i < op->program->plan.window; i++)
        lane_begin(op, &op->lanes[i], i);
}

void lane_wake(struct op *op, struct lane *lane)
{
    if (lane->queued || lane->idle || lane->held)
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
        if (op->spoiled)
            return; /* nothing made of it may go further; why, whoever took it back has told all */
        if (!stage_send(op, lane, move))
            return;
        lane->move++;
        lane->stage = LANE_RECV;
    }
    if (lane->unsent_acc > 0)
        return;
    slot_put(lane->acc);
    slot_put(lane->borrowed);
    lane->acc = lane->borrowed = NULL;
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
    if (op->state == OP_RUNNING && op->lanes_left == 0 && op->unsent == 0 && !op->spoiled &&
        outflows_compared(op)) {
        op->state = OP_READY;
        op_end(op, NULL);
    }
}
