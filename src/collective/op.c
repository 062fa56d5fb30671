/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an operation, from the call to its end on this member. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "collective/state.h"
#include "core/hash.h"

#define FAR_BYTES (16u << 20) /* half of what a large cache holds */

struct op_name op_name(const struct op *op)
{
    struct op_name name;
    char part_text[40] = "";
    uint64_t sequence = op->sequence;
    if (op->group->outer) {
        struct part part = part_of_sequence(sequence);
        snprintf(part_text, sizeof part_text, "%u.%u of ", part.track, part.index);
        sequence = part.call;
    }
    snprintf(name.s, sizeof name.s, "%s %s#%llu%s on rank %d of %d", plan_kind_name(op->program->plan.kind),
             part_text, (unsigned long long)sequence, tag_text(op->tag).s, op->group->rank,
             op->group->view.size);
    return name;
}

/* The lane that began first and has not ended: the others wait for it sooner or later. */
static const struct lane *oldest_lane(const struct op *op)
{
    const struct lane *oldest = NULL;
    for (uint64_t i = 0; op->program->plan.lanes > 0 && i < op->program->plan.window; i++) {
        const struct lane *lane = &op->lanes[i];
        if (!lane->idle && (!oldest || lane->number < oldest->number))
            oldest = lane;
    }
    return oldest;
}

bool op_awaits_input(const struct op *op)
{
    const struct lane *lane = oldest_lane(op);
    return lane && lane->held;
}

int op_waits_for(const struct op *op)
{
    const struct plan *plan = &op->program->plan;
    const struct lane *lane = oldest_lane(op);
    const struct move *move = lane && lane->move < plan->move_count ? &plan->moves[lane->move] : NULL;
    if (op_awaits_input(op))
        return RANK_NONE;
    if (move && lane->stage == LANE_RECV && (move->bits & MOVE_RECV))
        return move->from;
    if (move && lane->stage == LANE_SEND && (move->bits & MOVE_SEND))
        return move->to;
    for (uint32_t i = 0; i < op->program->out_count; i++)
        if (op->out[i].unsent > 0 || (op->vector && !op->out[i].granted))
            return op->program->out[i].peer;
    return RANK_NONE;
}

/* Something of the operation has come from that rank: so it takes part, and waits for others itself. */
static bool has_begun(const struct op *op, int rank)
{
    int32_t in = op->program->in_of[rank], out = op->program->out_of[rank];
    return (in >= 0 && op->in[in].heard) || (out >= 0 && op->out[out].granted);
}

int op_lacks(const struct op *op)
{
    int rank = op_waits_for(op);
    if (op_awaits_input(op))
        return op->group->rank;
    if (rank != RANK_NONE && !has_begun(op, rank))
        return rank;
    for (rank = 0; rank < op->group->view.size; rank++)
        if (rank != op->group->rank && op_expects(op, rank) && !has_begun(op, rank))
            return rank;
    return RANK_NONE;
}

int engine_waits_for(const struct completion *completion)
{
    const struct op *op = completion->op;
    if (completion->transfer)
        return transfer_waits_for(completion->transfer);
    int rank = op ? op_waits_for(op) : RANK_NONE;
    return rank == RANK_NONE ? RANK_NONE : op->group->members[rank];
}

/* ---- memory ---- */

static void op_free(struct op *op)
{
    heap_free(op->lanes);
    heap_free(op->ready);
    heap_free(op->in);
    heap_free(op->out);
    heap_free(op);
}

void op_free_idle(struct list *item)
{
    op_free(container_of(item, struct op, item));
}

static struct op *op_alloc(struct heap *heap, const struct program *program)
{
    struct op *op = heap_alloc(heap, 1, sizeof *op);
    if (!op)
        return NULL;
    list_init(&op->item);
    list_init(&op->bucket);
    size_t window = (size_t)program->window_room;
    op->lanes = heap_alloc(heap, window, sizeof *op->lanes);
    op->ready = heap_alloc(heap, window, sizeof *op->ready);
    op->in = heap_alloc(heap, program->in_count, sizeof *op->in);
    op->out = heap_alloc(heap, program->out_count, sizeof *op->out);
    if (op->lanes && op->ready && op->in && op->out)
        return op;
    op_free(op);
    return NULL;
}

/* An operation that fits the program, clean. */
static struct op *op_take(struct heap *heap, struct program *program)
{
    struct list *idle = program->idle.prev;
    struct op *op = idle == &program->idle ? op_alloc(heap, program) : container_of(idle, struct op, item);
    if (!op)
        return NULL;
    list_remove(&op->item);
    *op = (struct op){.lanes = op->lanes, .ready = op->ready, .in = op->in, .out = op->out};
    list_init(&op->item);
    list_init(&op->bucket);
    memset(op->lanes, 0, (size_t)program->plan.window * sizeof *op->lanes);
    memset(op->out, 0, program->out_count * sizeof *op->out);
    memset(op->in, 0, program->in_count * sizeof *op->in);
    for (uint32_t i = 0; i < program->in_count; i++)
        list_init(&op->in[i].early);
    op->program = program;
    op->lanes_left = program->plan.lanes;
    program->users++;
    return op;
}

static void op_give_back(struct op *op)
{
    op->program->users--;
    list_push(&op->program->idle, &op->item);
}

/* ---- the end ---- */

/* Nobody may touch the user's buffers any more, and nothing may point at the operation. */
static void let_go(struct op *op, bool failed)
{
    struct engine *engine = op->group->engine;
    for (int i = 0; failed && i < engine->size; i++) {
        struct peer *peer = &engine->peers[i];
        if (!peer->joined)
            continue;
        link_forget(&peer->link, op);
        for (int p = 0; p < LINK_PIPES_MAX; p++) {
            struct incoming_frame *incoming = &peer->incoming[p];
            if (incoming->op != op)
                continue;
            if (incoming->eager)
                link_eager_release(&peer->link, incoming->eager_len);
            link_drop_incoming(&peer->link, incoming);
            *incoming = (struct incoming_frame){0};
        }
    }
    for (uint32_t i = 0; i < op->program->in_count; i++) {
        struct link *link = &engine->peers[op->group->members[op->program->in[i].peer]].link;
        while (!list_empty(&op->in[i].early)) {
            struct slot *slot = container_of(op->in[i].early.next, struct slot, item);
            slot_credit(link, slot);
            slot_put(slot);
        }
    }
    for (uint64_t i = 0; i < op->program->plan.window && op->program->plan.lanes > 0; i++) {
        slot_put(op->lanes[i].frame);
        slot_put(op->lanes[i].acc);
        slot_put(op->lanes[i].borrowed);
    }
    if (failed && op->restore && op->shadow)
        memcpy(op->target, op->shadow, op->shadow_len);
    heap_free(op->shadow);
    op->shadow = NULL;
}

static void measure(const struct op *op, bool failed)
{
    struct engine *engine = op->group->engine;
    struct metrics *m = engine->metrics;
    int kind = (int)op->program->plan.kind;
    uint64_t bytes = op->program->call.count * (uint64_t)dtype_size(op->dtype);
    atomic_fetch_add_explicit(&m->kind[kind].operations, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->kind[kind].bytes, bytes, memory_order_relaxed);
    if (failed)
        atomic_fetch_add_explicit(&m->kind[kind].failures, 1, memory_order_relaxed);
    histogram_add(&m->kind[kind].duration_us, (clock_now(engine->clock) - op->posted_ns) / NS_PER_US);
}

void op_end(struct op *op, const struct error *why)
{
    struct engine *engine = op->group->engine;
    struct completion *completion = op->completion;
    assert(op->state == OP_READY || why);
    op->state = why ? OP_ABORTED : OP_COMMITTED;
    let_go(op, why);
    measure(op, why);
    group_remember(op->group, op);
    list_remove(&op->item);
    list_remove(&op->bucket);
    engine->ops_count--;
    if (why) {
        completion->error = *why;
        log_write(&engine->log, HEARTH_LOG_INFO, "HEARTH-OP-FAILED", "%s", why->text);
    }
    completion->ended = true;
    completion->op = NULL;
    list_push(&engine->finished, &completion->item);
    op_give_back(op);
}

void group_tell(struct group *group, uint8_t kind, uint64_t tag, uint64_t sequence, const struct error *error)
{
    uint8_t payload[FRAME_CONTROL_MAX];
    struct error told = *error;
    if (told.origin == RANK_NONE && !group->view.inner)
        told.origin = group->engine->rank;
    struct frame frame = group_frame(group, kind, tag, sequence);
    frame.total = error->status == HEARTH_CLOSED ? group->left_at : 0;
    frame.length = (uint32_t)error_encode(&told, payload, sizeof payload);
    for (int i = 0; i < group->view.size; i++)
        if (i != group->rank)
            group_send(group, i, &frame, payload);
}

void op_abort(struct op *op, const struct error *ours, const struct error *theirs)
{
    struct group *group = op->group;
    uint64_t tag = op->tag, sequence = op->sequence;
    op_end(op, ours);
    group_tell(group, FRAME_ABORT, tag, sequence, theirs);
}

void op_out_of_memory(struct op *op)
{
    struct error ours, theirs;
    error_set(&ours, HEARTH_NO_MEMORY, op->group->rank, "%s: no memory for a frame or an accumulator",
              op_name(op).s);
    error_because(&theirs, HEARTH_REASON_NO_MEMORY, HEARTH_ABORTED, op->group->rank,
                  "%s: it ran out of memory", op_name(op).s);
    op_abort(op, &ours, &theirs);
}

void completion_abort(struct completion *completion, const struct error *why)
{
    struct op *op = completion->op;
    if (!completion->ended && completion->transfer)
        transfer_cancel(completion->transfer);
    if (completion->ended || !op)
        return;
    struct error ours;
    error_set(&ours, HEARTH_CANCELLED, op->group->rank, "%s: cancelled", op_name(op).s);
    op_abort(op, &ours, why);
}

void completion_offer(struct completion *completion, size_t len)
{
    struct op *op = completion->op;
    if (completion->ended || !op)
        return;
    uint64_t mode = fpmode_enter();
    op->offered = len;
    lanes_release(op);
    op_run(op);
    fpmode_leave(mode);
}

void completion_cancel(struct completion *completion)
{
    struct op *op = completion->op;
    if (!completion->ended && completion->transfer)
        transfer_cancel(completion->transfer);
    if (completion->ended || !op)
        return;
    struct error theirs;
    error_because(&theirs, HEARTH_REASON_CANCELLED, HEARTH_ABORTED, op->group->rank, "%s: cancelled there",
                  op_name(op).s);
    completion_abort(completion, &theirs);
}

/* ---- the beginning ---- */

static enum hearth_dtype acc_dtype_of(enum hearth_dtype dtype, enum hearth_op op)
{
    bool half = dtype == HEARTH_F16 || dtype == HEARTH_BF16;
    if (half)
        return op == HEARTH_OP_MIN || op == HEARTH_OP_MAX ? dtype : HEARTH_F32;
    if (op == HEARTH_OP_AVG && dtype >= HEARTH_I8)
        return HEARTH_F64;
    return dtype;
}

static int kernel_op_of(enum hearth_op op)
{
    static const int of[OP_COUNT] = {
        [HEARTH_OP_SUM] = KERNEL_SUM, [HEARTH_OP_AVG] = KERNEL_SUM, [HEARTH_OP_PROD] = KERNEL_PROD,
        [HEARTH_OP_MIN] = KERNEL_MIN, [HEARTH_OP_MAX] = KERNEL_MAX, [HEARTH_OP_BAND] = KERNEL_AND,
        [HEARTH_OP_BOR] = KERNEL_OR,  [HEARTH_OP_BXOR] = KERNEL_XOR};
    return of[op];
}

static void call_plan(const struct group *group, const struct call *call, struct plan_call *plan)
{
    enum hearth_dtype acc = plan_kind_reduces(call->kind) ? acc_dtype_of(call->dtype, call->op) : call->dtype;
    *plan = (struct plan_call){
        .kind = call->kind,
        .algo = call->opts->algo,
        .size = group->view.size,
        .rank = group->rank,
        .root = plan_kind_rooted(call->kind) ? call->root : 0,
        .count = call->count,
        .in_counts = call->in_counts,
        .out_counts = call->out_counts,
        .raw_len = (uint32_t)dtype_size(call->dtype),
        .acc_len = (uint32_t)dtype_size(acc),
        .rank_order = call->opts->flags & HEARTH_FLAG_RANK_ORDER,
        .host = group->view.host,
        .order = group->view.order,
        .chunk_bytes = group->view.chunk_bytes,
        .window_bytes = group->view.window_bytes,
    };
}

/* Counts that every member knows must agree; what only pairs know is compared by them (frame.total). */
static uint64_t shared_count(const struct call *call, int size)
{
    if (call->vector)
        return 0;
    const size_t *counts = call->in_counts ? call->in_counts : call->out_counts;
    if (!counts)
        return call->count;
    uint64_t hash = 0;
    for (int i = 0; i < size; i++)
        hash = hash_mix(hash, counts[i]);
    return hash;
}

static bool is_listed(const struct call *call)
{
    return call->vector || call->in_counts || call->out_counts;
}

static struct call_record record_of(const struct group *group, const struct call *call,
                                    const struct plan_call *plan)
{
    struct call_record r = {
        .state = CALL_POSTED,
        .kind = (uint8_t)call->kind,
        .dtype = (uint8_t)call->dtype,
        .op = plan_kind_reduces(call->kind) ? (uint8_t)call->op : 0,
        .algo = (uint8_t)plan->algo,
        .flags = (call->opts->flags & HEARTH_FLAG_RANK_ORDER) | (is_listed(call) ? CALL_LISTED : 0) |
                 (call->opens ? CALL_OPENING : 0),
        .root = plan_kind_rooted(call->kind) ? call->root : RANK_NONE,
        .count = shared_count(call, plan->size),
        .plan = hash_mix(plan_hash(plan), group->view.eager_bytes),
    };
    uint64_t h = hash_mix(0, (uint64_t)r.kind << 32 | (uint64_t)r.dtype << 16 | (uint64_t)r.op << 8 | r.algo);
    h = hash_mix(h, (uint64_t)(uint32_t)r.root << 32 | r.flags);
    h = hash_mix(h, r.count);
    r.fingerprint = hash_mix(h, r.plan);
    return r;
}

static int shadow_make(struct op *op, const struct call *call, size_t len)
{
    bool exchange = call->kind == PLAN_ALL_TO_ALL && call->in_place;
    bool restore = call->in_place && (call->opts->flags & HEARTH_FLAG_RESTORE);
    if (len == 0 || (!exchange && !restore))
        return HEARTH_OK;
    op->shadow = heap_alloc_raw(op->group->engine->heap, 1, len);
    if (!op->shadow)
        return HEARTH_NO_MEMORY;
    memcpy(op->shadow, op->target, len);
    op->shadow_len = len;
    op->restore = restore;
    if (exchange) { /* what is to be sent must not be overwritten by what comes */
        op->source = op->shadow;
        op->in_place = false;
    }
    return HEARTH_OK;
}

static void op_fill(struct op *op, struct group *group, const struct call *call)
{
    bool reduce = plan_kind_reduces(call->kind);
    op->group = group;
    op->source = call->source;
    op->offered = call->held ? 0 : SIZE_MAX;
    op->target = call->target;
    op->in_place = call->in_place;
    op->dtype = call->dtype;
    op->acc_dtype = reduce ? acc_dtype_of(call->dtype, call->op) : call->dtype;
    op->kernel_op = reduce ? kernel_op_of(call->op) : KERNEL_SUM;
    op->average = reduce && call->op == HEARTH_OP_AVG;
    op->vector = call->vector;
    op->far = call->count > FAR_BYTES / dtype_size(call->dtype);
    op->weight = op->average ? call->opts->weight : 1.0;
    op->tag = call->part_of ? call->part_of->tag : call->opts->tag;
    op->sequence = call->part_of ? part_sequence(call->part_of, group->kind, call->track)
                                 : group_sequence(group, op->tag);
    op->posted_ns = clock_now(group->engine->clock);
    op->nagged_ns = op->posted_ns;
    op->ask_ns = op->posted_ns + QUIET_NS;
    op->deadline_ns = op->posted_ns + (uint64_t)call->opts->timeout_ms * NS_PER_MS;
}

static void op_start(struct op *op)
{
    struct retired *retired = group_retired(op->group, op->tag, op->sequence);
    op->state = OP_RUNNING;
    if (retired) {
        struct error why = retired->why;
        group_unretire(op->group, retired);
        op->judged = why.status == HEARTH_MISMATCH;
        op_end(op, &why);
        return;
    }
    lanes_start(op);
    flows_start(op);
    if (op->state == OP_RUNNING)
        op_check_left(op);
    else /* over what had come before: the rest of that goes too */
        engine_drop_waiting(op->group, op->tag, op->sequence);
    if (op->state == OP_RUNNING)
        op_run(op);
}

/* How much of the input an in-place call overwrites. The others leave their own part as it is. */
static size_t overwritten_len(const struct plan_call *plan)
{
    size_t count = plan->count;
    switch (plan->kind) {
    case PLAN_ALL_REDUCE:
    case PLAN_REDUCE:
    case PLAN_SCAN:
    case PLAN_EXCLUSIVE_SCAN:
        break;
    case PLAN_REDUCE_SCATTER:
        count = plan->in_counts ? plan->in_counts[plan->rank] : plan->count;
        break;
    case PLAN_ALL_TO_ALL:
        count *= (size_t)plan->size;
        for (int i = 0; plan->out_counts && i < plan->size; i++)
            count += plan->out_counts[i];
        break;
    default:
        return 0;
    }
    return count * plan->raw_len;
}

static int start_checks(struct group *group, struct error *error)
{
    struct engine *engine = group->engine;
    struct error why;
    if (group_over(group, &why)) {
        bool changed = why.status == HEARTH_VIEW_CHANGED;
        why.status = changed ? HEARTH_VIEW_CHANGED : HEARTH_GROUP_BROKEN;
        return error_wrap(error, &why, "the group %s: %s", changed ? "has changed" : "is broken", why.text);
    }
    if (group->pending.status != HEARTH_OK) {
        *error = group->pending;
        error_clear(&group->pending);
        return error->status;
    }
    if (engine->ops_count >= engine->ops_max)
        return error_set(error, HEARTH_LIMIT, group->rank,
                         "%u operations are in flight, no more are allowed "
                         "(ops_max, HEARTH_OPS_MAX)",
                         engine->ops_count);
    return HEARTH_OK;
}

/* What the other members hear of an operation that does not start here. A failure whose origin is known has
 * been put into words for them, here or at another member: it is passed on as it is. */
static struct error refusal(const struct group *group, uint64_t tag, uint64_t sequence,
                            const struct error *why)
{
    const struct engine *engine = group->engine;
    struct error theirs = *why;
    bool lost = status_is_loss(why->status); /* then for them too, whether they know it or not */
    int origin = why->origin != RANK_NONE ? group->rank_of[why->origin] : RANK_NONE;
    uint64_t number = group->outer ? part_of_sequence(sequence).call : sequence;
    if (why->origin == RANK_NONE)
        error_wrap(&theirs, why, "operation #%llu%s: rank %d could not start it: %s",
                   (unsigned long long)number, tag_text(tag).s, group->rank, why->text);
    if (theirs.reason == HEARTH_REASON_NONE)
        theirs.reason = status_reason(why->status);
    if (!lost)
        theirs.rank = origin != RANK_NONE ? origin : group->rank;
    theirs.status = !lost ? HEARTH_ABORTED : group_only_left(group) ? HEARTH_CLOSED : engine->loss;
    return theirs;
}

/* The others must not wait for us in that operation. */
static void tell_refused(struct group *group, uint64_t tag, uint64_t sequence, const struct error *why)
{
    struct error theirs = refusal(group, tag, sequence, why);
    group_tell(group, FRAME_ABORT, tag, sequence, &theirs);
    engine_drop_waiting(group, tag, sequence);
}

int group_refuse(struct group *group, uint64_t tag, const struct error *why)
{
    struct error ignored;
    uint64_t sequence = group_sequence(group, tag);
    if (group_advance(group, tag, &ignored) == HEARTH_OK || why->status == HEARTH_LIMIT) {
        tell_refused(group, tag, sequence, why);
        engine_drop_parts(group, tag, sequence);
    }
    return why->status;
}

void group_refuse_parts(struct group *inner, const struct compound *compound, const struct error *why)
{
    for (uint32_t track = 1; track < PART_TRACKS; track++)
        tell_refused(inner, compound->tag, part_sequence(compound, inner->kind, track), why);
}

/* The call cannot begin. A part is refused by its call, which fails over it. */
static int call_refuse(struct group *group, const struct call *call, const struct error *error)
{
    return call->part_of ? error->status : group_refuse(group, call->opts->tag, error);
}

static struct op *op_make(struct group *group, const struct call *call, const struct plan_call *plan,
                          struct program *program, struct error *error)
{
    struct op *op = op_take(group->engine->heap, program);
    if (!op) {
        error_set(error, HEARTH_NO_MEMORY, group->rank, "no memory for an operation");
        return NULL;
    }
    op_fill(op, group, call);
    op->record = record_of(group, call, plan);
    if (shadow_make(op, call, overwritten_len(plan)) == HEARTH_OK)
        return op;
    error_set(error, HEARTH_NO_MEMORY, group->rank, "no memory for a copy of the input");
    op_give_back(op);
    return NULL;
}

/* It takes its number. */
static int call_count(struct group *group, const struct call *call, struct error *error)
{
    struct compound *opens = call->opens;
    if (call->part_of) {
        call->part_of->next[group->kind][call->track]++;
        return HEARTH_OK;
    }
    uint64_t tag = call->opts->tag, sequence = group_sequence(group, tag);
    int status = group_advance(group, tag, error);
    if (status == HEARTH_OK && opens) {
        *opens = (struct compound){.tag = tag, .sequence = sequence};
        list_push(&group->compounds, &opens->item);
    }
    return status;
}

int group_start(struct group *group, const struct call *call, struct completion *completion,
                struct error *error)
{
    struct engine *engine = group->engine;
    struct plan_call plan;
    struct program *program = NULL;
    int status = start_checks(group, error);
    if (status == HEARTH_OK && call->part_of)
        status = compound_check(call->part_of, group->kind, call->track, error);
    if (status != HEARTH_OK)
        return status == HEARTH_LIMIT || status_is_loss(status) ? call_refuse(group, call, error) : status;
    call_plan(group, call, &plan);
    status = program_get(&group->programs, &plan, &group->view, &program, error);
    if (status == HEARTH_OK)
        plan.algo = program->plan.algo;
    if (status == HEARTH_OK && program->users == 0 && list_empty(&program->idle))
        log_write(&engine->log, HEARTH_LOG_DEBUG, "HEARTH-PLAN", "%s of %zu elements by %s",
                  plan_kind_name(call->kind), call->count, hearth_algo_name(plan.algo));
    struct op *op = status == HEARTH_OK ? op_make(group, call, &plan, program, error) : NULL;
    if (!op)
        return error->status == HEARTH_NO_MEMORY ? call_refuse(group, call, error) : error->status;
    status = call_count(group, call, error);
    if (status != HEARTH_OK) {
        heap_free(op->shadow);
        op->shadow = NULL;
        op_give_back(op);
        return call_refuse(group, call, error);
    }
    op->completion = completion;
    *completion = (struct completion){.op = op};
    list_init(&completion->item);
    error_clear(&completion->error);
    engine->ops_count++;
    list_push(&engine->active, &op->item);
    engine_index(engine, op);
    uint64_t mode = fpmode_enter();
    op_start(op);
    fpmode_leave(mode);
    return HEARTH_OK;
}
