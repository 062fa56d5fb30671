/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and events of links: which operation, which lane, where to.
 *
 * A data frame belongs to an operation that is running here (then its payload goes straight into the user's
 * target or into a slot), that is not posted yet (then it waits in a slot, as far as the eager budget goes),
 * or that is over (then it is dropped, after a look whether it was the same call). */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "collective/state.h"

static const char *const not_member = "a frame for a group it is not in";
static const char *const bad_frame = "a data frame that does not fit its operation";

static int group_rank_of(const struct peer *peer, const struct group *group)
{
    return group->rank_of[peer->link.rank];
}

static bool same_op(const struct frame *a, const struct frame *b)
{
    return a->group == b->group && a->tag == b->tag && a->sequence == b->sequence;
}

static void credit_back(struct link *link, const struct frame *frame)
{
    if (frame->flags & FRAME_EAGER)
        link_eager_release(link, frame->length);
}

/* ---- checks ---- */

/* Two lengths that do not fit: known to the two of them only, so the verdict goes along. */
static void dispute_length(struct op *op, int sender, int receiver, uint64_t sent, uint64_t expected)
{
    struct error verdict;
    error_set(&verdict, HEARTH_MISMATCH, sender,
              "%s #%" PRIu64 "%s: rank %d sends %" PRIu64 " bytes to rank %d, which expects %" PRIu64,
              plan_kind_name(op->program->plan.kind), op->sequence, tag_text(op->tag).s, sender, sent,
              receiver, expected);
    dispute_raise(op->group, op->tag, op->sequence, &verdict);
}

/* True: the frame fits, and *index is its place in the flow. False: dropped, and the operation is disputed
 * or the link fails. */
static bool frame_fits(struct op *op, struct peer *peer, const struct frame *frame, uint64_t *index)
{
    const struct plan *plan = &op->program->plan;
    int from = group_rank_of(peer, op->group);
    if (frame->fingerprint != op->record.fingerprint) {
        dispute_raise(op->group, op->tag, op->sequence, NULL);
        return false;
    }
    int32_t flow = op->program->in_of[from];
    uint64_t expected = flow >= 0 ? op->program->in[flow].bytes : 0;
    if (frame->total != expected) {
        dispute_length(op, from, op->group->rank, frame->total, expected);
        return false;
    }
    uint32_t turn;
    if (flow < 0 || frame->lane >= plan->lanes ||
        !flow_turn(plan, &op->program->in[flow], frame->step, &turn)) {
        link_fail(&peer->link, HEARTH_PROTOCOL, bad_frame);
        return false;
    }
    const struct flow_table *table = &op->program->in[flow];
    const struct inflow *in = &op->in[flow];
    *index = flow_index(plan, table, turn, frame->lane);
    uint64_t ahead = *index - in->floor.index;
    if (*index < in->floor.index || ahead >= FLOW_WINDOW_MAX || (in->come >> ahead & 1) ||
        frame->length != plan_recv_bytes(plan, frame->lane, &plan->moves[table->moves[turn]])) {
        link_fail(&peer->link, HEARTH_PROTOCOL, bad_frame);
        return false;
    }
    return true;
}

static void mark_come(struct op *op, struct peer *peer, uint64_t index)
{
    struct inflow *in = &op->in[op->program->in_of[group_rank_of(peer, op->group)]];
    in->come |= UINT64_C(1) << (index - in->floor.index);
    in->heard = true;
}

/* ---- data ---- */

/* The lane that waits for exactly this frame, to be written straight into the target; NULL: use a slot. */
static struct lane *direct_lane(struct op *op, const struct frame *frame, int from)
{
    const struct plan *plan = &op->program->plan;
    struct lane *lane = &op->lanes[frame->lane % plan->window];
    if (lane->number != frame->lane || lane->idle || lane->stage != LANE_RECV ||
        lane->move >= plan->move_count)
        return NULL;
    const struct move *move = &plan->moves[lane->move];
    return (move->bits & MOVE_RECV_OUT) && move->from == from && move->from_step == frame->step ? lane : NULL;
}

/* A frame that has just begun to come. */
struct arrival {
    struct peer *peer;
    const struct frame *frame;
    struct incoming_frame *incoming;
    bool lends;
};

static struct slot *slot_for(const struct arrival *a)
{
    struct slot_pool *pool = &a->peer->engine->slots;
    return a->lends ? slot_get_bare(pool) : slot_get(pool, a->frame->length);
}

static void *to_running(struct op *op, const struct arrival *a, void **cookie)
{
    struct peer *peer = a->peer;
    const struct frame *frame = a->frame;
    uint64_t index;
    if (!frame_fits(op, peer, frame, &index)) {
        credit_back(&peer->link, frame);
        return NULL;
    }
    skew_note(op, (uint32_t)op->program->in_of[group_rank_of(peer, op->group)], index, false);
    struct incoming_frame *incoming = a->incoming;
    *incoming = (struct incoming_frame){.op = op, .lane = frame->lane};
    *cookie = incoming;
    struct lane *lane = a->lends ? NULL : direct_lane(op, frame, group_rank_of(peer, op->group));
    if (lane) {
        incoming->eager = frame->flags & FRAME_EAGER;
        incoming->eager_len = frame->length;
        mark_come(op, peer, index);
        const struct move *move = &op->program->plan.moves[lane->move];
        struct range out = plan_range(&op->program->plan, SIDE_OUT, lane->number, move->part, move->parts);
        return frame->length > 0 ? op->target + out.offset * dtype_size(op->dtype) : NULL;
    }
    struct slot *slot = slot_for(a);
    if (!slot) {
        *incoming = (struct incoming_frame){0};
        *cookie = NULL;
        credit_back(&peer->link, frame);
        op_out_of_memory(op);
        return NULL;
    }
    mark_come(op, peer, index);
    slot->frame = *frame;
    slot_credit(&peer->link, slot);
    incoming->slot = slot;
    list_push(&op->in[op->program->in_of[group_rank_of(peer, op->group)]].early, &slot->item);
    return a->lends ? LINK_LEND : slot->data;
}

/* Somebody has filled half of its budget with operations that we have not posted: it may starve those that
 * we have. Grants do not need budget. */
static void relieve(struct peer *peer)
{
    struct engine *engine = peer->engine;
    struct list *item, *after;
    if (peer->early_bytes < engine->eager_bytes / 2)
        return;
    LIST_EACH (item, after, &engine->active) {
        struct op *op = container_of(item, struct op, item);
        int rank = op->group->rank_of[peer->link.rank];
        int32_t flow = rank != RANK_NONE ? op->program->in_of[rank] : -1;
        if (flow >= 0 && op->in[flow].told == 0 && flow_more(&op->program->in[flow], &op->in[flow].floor))
            inflow_tell(op, (uint32_t)flow);
    }
}

static void *to_waiting(const struct arrival *a, void **cookie)
{
    struct peer *peer = a->peer;
    const struct frame *frame = a->frame;
    struct engine *engine = peer->engine;
    uint32_t cost = link_eager_cost(frame->length);
    if (!(frame->flags & FRAME_EAGER) || peer->early_bytes + cost > engine->eager_bytes) {
        link_fail(&peer->link, HEARTH_PROTOCOL, "more data than its eager budget allows");
        return NULL;
    }
    struct slot *slot = slot_for(a);
    if (!slot) {
        link_fail(&peer->link, HEARTH_NO_MEMORY, "no memory for data of an operation to come");
        return NULL;
    }
    slot->frame = *frame;
    list_push(&peer->early, &slot->item);
    peer->early_bytes += cost;
    *a->incoming = (struct incoming_frame){.slot = slot, .lane = frame->lane};
    *cookie = a->incoming;
    atomic_fetch_add_explicit(&engine->metrics->frames_early, 1, memory_order_relaxed);
    relieve(peer);
    return a->lends ? LINK_LEND : slot->data;
}

/* Whether the operation of the frame, which does not run here, is over; else it is not posted yet. */
static bool is_over(const struct engine *engine, struct group *group, const struct frame *frame)
{
    if (!group)
        return engine_group_closed(engine, frame->group);
    return group_passed(group, frame->tag, frame->sequence) ||
           group_retired(group, frame->tag, frame->sequence);
}

/* The operation is over: whether we had called something else in it. */
static void compare_ended(struct group *group, const struct frame *frame)
{
    struct ended *ended = group_ended(group, frame->tag, frame->sequence);
    if (ended && !ended->judged && ended->record.fingerprint != frame->fingerprint)
        dispute_raise(group, frame->tag, frame->sequence, NULL);
}

static void *on_data(void *arg, struct link *link, int pipe, const struct frame *frame, bool lends,
                     void **cookie)
{
    struct peer *peer = arg;
    struct arrival arrival = {peer, frame, &peer->incoming[pipe], lends};
    struct engine *engine = peer->engine;
    if (frame->kind != FRAME_DATA)
        return messages_data(engine->messages, link->rank, pipe, frame, lends, cookie);
    struct group *group = engine_group(engine, frame->group);
    if (group && group_rank_of(peer, group) == RANK_NONE) {
        link_fail(link, HEARTH_PROTOCOL, not_member);
        return NULL;
    }
    struct op *op = engine_op(engine, frame->group, frame->tag, frame->sequence);
    if (op)
        return to_running(op, &arrival, cookie);
    if (!is_over(engine, group, frame))
        return to_waiting(&arrival, cookie);
    if (group)
        compare_ended(group, frame);
    credit_back(link, frame);
    atomic_fetch_add_explicit(&engine->metrics->frames_late, 1, memory_order_relaxed);
    return NULL;
}

static void on_payload(void *arg, struct link *link, const struct frame *frame, void *cookie,
                       struct loan *loan)
{
    struct peer *peer = arg;
    if (frame->kind != FRAME_DATA) {
        messages_payload(peer->engine->messages, link->rank, frame, cookie, loan);
        return;
    }
    struct incoming_frame incoming = *(struct incoming_frame *)cookie;
    *(struct incoming_frame *)cookie = (struct incoming_frame){0};
    if (incoming.slot) {
        incoming.slot->whole = true;
        incoming.slot->loan = *loan;
    }
    struct op *op = incoming.op;
    if (!op)
        return;
    struct lane *lane = &op->lanes[incoming.lane % op->program->plan.window];
    if (!incoming.slot) { /* it went straight into the target: the move's work is done */
        credit_back(link, frame);
        inflow_took(op, lane);
        lane->stage = LANE_WORK;
    }
    lane_wake(op, lane);
    op_run(op);
}

static void early_drop(struct peer *peer, struct slot *slot)
{
    peer->early_bytes -= link_eager_cost(slot->frame.length);
    for (int i = 0; i < LINK_PIPES_MAX; i++) {
        if (peer->incoming[i].slot != slot)
            continue;
        link_drop_incoming(&peer->link, &peer->incoming[i]);
        peer->incoming[i] = (struct incoming_frame){0};
    }
    slot_credit(&peer->link, slot);
    slot_put(slot);
}

void engine_adopt(struct op *op, int rank, struct slot *slot)
{
    struct peer *peer = &op->group->engine->peers[op->group->members[rank]];
    uint64_t index;
    if (!frame_fits(op, peer, &slot->frame, &index)) {
        early_drop(peer, slot);
        return;
    }
    peer->early_bytes -= link_eager_cost(slot->frame.length);
    list_remove(&slot->item);
    list_push(&op->in[op->program->in_of[rank]].early, &slot->item);
    slot_credit(&peer->link, slot);
    mark_come(op, peer, index);
    skew_note(op, (uint32_t)op->program->in_of[rank], index, true);
    for (int i = 0; i < LINK_PIPES_MAX; i++)
        if (peer->incoming[i].slot == slot)
            peer->incoming[i].op = op;
}

static void note_drop(struct peer *peer, struct note *note)
{
    list_remove(&note->item);
    list_push(&peer->engine->free_notes, &note->item);
    peer->note_count--;
}

/* Drops data and grants that wait for operations which will not be posted: those whose frame `over` names. */
static void drop_waiting(struct engine *engine, bool (*over)(const struct frame *frame, const void *arg),
                         const void *arg)
{
    for (int i = 0; i < engine->size; i++) {
        struct peer *peer = &engine->peers[i];
        struct list *item, *after;
        LIST_EACH (item, after, &peer->early) {
            struct slot *slot = container_of(item, struct slot, item);
            if (over(&slot->frame, arg))
                early_drop(peer, slot);
        }
        LIST_EACH (item, after, &peer->notes) {
            struct note *note = container_of(item, struct note, item);
            if (over(&note->frame, arg))
                note_drop(peer, note);
        }
    }
}

static bool is_of_group(const struct frame *frame, const void *id)
{
    return frame->group == *(const uint64_t *)id;
}

void engine_drop_group(struct engine *engine, uint64_t id)
{
    drop_waiting(engine, is_of_group, &id);
}

static bool is_passed(const struct frame *frame, const void *arg)
{
    const struct group *group = arg;
    return frame->group == group->view.group && group_passed(group, frame->tag, frame->sequence);
}

void engine_drop_passed(struct group *group)
{
    drop_waiting(group->engine, is_passed, group);
}

static bool is_of_op(const struct frame *frame, const void *op)
{
    return same_op(frame, op);
}

void engine_drop_waiting(struct group *group, uint64_t tag, uint64_t sequence)
{
    struct frame op = {.group = group->view.group, .tag = tag, .sequence = sequence};
    drop_waiting(group->engine, is_of_op, &op);
}

/* A call of an outer group. */
struct outer_call {
    const struct group *outer;
    uint64_t tag, sequence;
};

static bool is_part(const struct frame *frame, const void *arg)
{
    const struct outer_call *call = arg;
    if (frame->tag != call->tag || part_of_sequence(frame->sequence).call != call->sequence)
        return false;
    const struct group *group = engine_group(call->outer->engine, frame->group);
    return group && group->outer == call->outer;
}

void engine_drop_parts(struct group *outer, uint64_t tag, uint64_t sequence)
{
    struct list *item, *after;
    drop_waiting(outer->engine, is_part, &(struct outer_call){outer, tag, sequence});
    LIST_EACH (item, after, &outer->engine->groups) {
        struct group *group = container_of(item, struct group, item);
        if (group->outer == outer)
            group_unretire_parts(group, tag, sequence);
    }
}

/* ---- out ---- */

static void on_sent(void *arg, struct link *link, const struct link_item *item)
{
    (void)arg;
    if (item->frame.kind != FRAME_DATA) {
        messages_sent(item->owner, item->frame.kind);
        return;
    }
    struct op *op = item->owner;
    uintptr_t bits = (uintptr_t)item->cookie;
    struct lane *lane = (struct lane *)(bits & ~(uintptr_t)3);
    op->unsent--;
    op->out[op->program->out_of[op->group->rank_of[link->rank]]].unsent--;
    if (bits & 1)
        lane->unsent_acc--;
    else if (bits & 2)
        lane->unsent_in--;
    lane_wake(op, lane);
    op_run(op);
}

static void on_room(void *arg, struct link *link)
{
    struct peer *peer = arg;
    struct engine *engine = peer->engine;
    struct list *item, *after;
    LIST_EACH (item, after, &engine->active) {
        struct op *op = container_of(item, struct op, item);
        int rank = op->group->rank_of[link->rank];
        int32_t flow = rank != RANK_NONE ? op->program->out_of[rank] : -1;
        if (flow < 0)
            continue;
        outflow_pump(op, (uint32_t)flow);
        op_run(op);
    }
    /* The first in the list had the first choice; the next time another has it. */
    if (!list_empty(&engine->active)) {
        item = engine->active.next;
        list_remove(item);
        list_push(&engine->active, item);
    }
    messages_room(engine->messages, link->rank);
}

static void on_held_up(void *arg, struct link *link)
{
    struct peer *peer = arg;
    struct engine *engine = peer->engine;
    struct list *item, *after;
    bool good = true; /* and stays so: what stands in a stream is not taken back */
    LIST_EACH (item, after, &peer->early) {
        struct slot *slot = container_of(item, struct slot, item);
        if (loan_holds_up(&slot->loan) && !slot_own(slot, &good))
            link_fail(link, HEARTH_NO_MEMORY, "no memory for data of an operation to come");
    }
    LIST_EACH (item, after, &engine->active) {
        struct op *op = container_of(item, struct op, item);
        int rank = op->group->rank_of[link->rank];
        if (rank != RANK_NONE)
            op_return_loans(op, rank, link);
    }
}

/* ---- control ---- */

/* A grant of a member; the operation may fail over it. */
static void granted(struct op *op, int rank, const struct frame *grant)
{
    int32_t flow = op->program->out_of[rank];
    uint64_t bytes = flow >= 0 ? op->program->out[flow].bytes : 0;
    if (grant->fingerprint != op->record.fingerprint)
        dispute_raise(op->group, op->tag, op->sequence, NULL);
    else if (grant->total != bytes)
        dispute_length(op, op->group->rank, rank, bytes, grant->total);
    else if (flow >= 0)
        outflow_grant(op, (uint32_t)flow, (uint64_t)grant->lane << 32 | grant->step);
}

/* The grant of the peer that waits for the operation; NULL: there is none. */
static struct note *note_find(struct peer *peer, const struct frame *of)
{
    struct list *item, *after;
    LIST_EACH (item, after, &peer->notes) {
        struct note *note = container_of(item, struct note, item);
        if (same_op(&note->frame, of))
            return note;
    }
    return NULL;
}

void engine_adopt_notes(struct op *op, int rank)
{
    struct group *group = op->group;
    struct peer *peer = &group->engine->peers[group->members[rank]];
    struct frame of = {.group = group->view.group, .tag = op->tag, .sequence = op->sequence};
    struct note *note = note_find(peer, &of);
    if (!note)
        return;
    struct frame grant = note->frame;
    note_drop(peer, note);
    granted(op, rank, &grant);
}

static void keep_note(struct peer *peer, const struct frame *grant)
{
    struct engine *engine = peer->engine;
    struct note *note = note_find(peer, grant);
    if (note) {
        note->frame.lane = grant->lane;
        note->frame.step = grant->step;
        return;
    }
    if (peer->note_count == NOTES_MAX) {
        link_fail(&peer->link, HEARTH_PROTOCOL, "more grants than operations are allowed");
        return;
    }
    struct list *item = list_pop(&engine->free_notes);
    note = item ? container_of(item, struct note, item) : heap_alloc(engine->heap, 1, sizeof *note);
    if (!note) {
        link_fail(&peer->link, HEARTH_NO_MEMORY, "no memory for a grant");
        return;
    }
    note->frame = *grant;
    list_push(&peer->notes, &note->item);
    peer->note_count++;
}

static void grant_came(struct peer *peer, const struct frame *frame, struct group *group)
{
    struct op *op = engine_op(peer->engine, frame->group, frame->tag, frame->sequence);
    if (op) {
        granted(op, group_rank_of(peer, op->group), frame);
        if (op->state == OP_RUNNING)
            op_run(op);
    } else if (!is_over(peer->engine, group, frame)) {
        keep_note(peer, frame);
    } else if (group) {
        compare_ended(group, frame);
    }
}

static void abort_came(struct peer *peer, const struct frame *frame, const uint8_t *payload)
{
    struct error why;
    if (!engine_heard(peer->engine, frame, payload, &why)) {
        link_fail(&peer->link, HEARTH_PROTOCOL, "an abort with a bad payload");
        return;
    }
    bool lost = status_is_loss(why.status);
    bool left = why.status == HEARTH_CLOSED;
    if (lost || left) /* each engine has its own name for it */
        why.status = peer->engine->loss;
    struct op *op = engine_op(peer->engine, frame->group, frame->tag, frame->sequence);
    struct group *group = engine_group(peer->engine, frame->group);
    if (left && group)
        group_left_at(group, why.rank, frame->total);
    if (op)
        op_end(op, &why);
    else if (!group && !engine_group_closed(peer->engine, frame->group))
        engine_retire(peer->engine, frame, &why);
    else if (group && !group_passed(group, frame->tag, frame->sequence))
        group_retire(group, frame->tag, frame->sequence, &why);
    else
        return;
    if (lost && group)
        group_lost_elsewhere(group, &why);
    /* A member that is lost to the sender may be there for us, and would not hear of it. */
    if (group && why.rank >= 0 && why.rank < group->view.size && why.rank != group->rank &&
        why.rank != group_rank_of(peer, group))
        group_send(group, why.rank, frame, payload);
}

/* A dispute in a group that we have not made yet: we have not called, and the verdict waits for us. */
static void dispute_elsewhere(struct peer *peer, const struct frame *frame, const uint8_t *payload)
{
    struct error why;
    uint8_t answer[FRAME_CONTROL_MAX];
    if (frame->kind == FRAME_ASK) {
        struct frame reply = *frame;
        reply.kind = FRAME_ANSWER;
        reply.length = (uint32_t)call_encode(&(struct call_record){.root = RANK_NONE}, answer, sizeof answer);
        link_send_control(&peer->link, &reply, answer);
    } else if (frame->kind == FRAME_VERDICT && !engine_heard(peer->engine, frame, payload, &why)) {
        link_fail(&peer->link, HEARTH_PROTOCOL, "a verdict with a bad payload");
    } else if (frame->kind == FRAME_VERDICT && !engine_group_closed(peer->engine, frame->group)) {
        engine_retire(peer->engine, frame, &why);
    }
}

static void hello_came(struct peer *peer, const struct frame *frame, const uint8_t *payload)
{
    struct hello_record hello;
    struct engine *engine = peer->engine;
    if (hello_decode(&hello, payload, frame->length) != HEARTH_OK)
        link_fail(&peer->link, HEARTH_PROTOCOL, "a hello with a bad payload");
    else if (hello.version_min > FRAME_VERSION || hello.version_max < FRAME_VERSION)
        link_fail(&peer->link, HEARTH_PROTOCOL, "it speaks no protocol version that we speak");
    else if ((int)hello.rank != peer->link.rank || (int)hello.size != engine->size)
        link_fail(&peer->link, HEARTH_PROTOCOL, "it claims another rank or size than agreed");
    else
        messages_hello(engine->messages, peer->link.rank, hello.features & FEATURE_MESSAGES);
}

static void on_control(void *arg, struct link *link, const struct frame *frame, const uint8_t *payload)
{
    struct peer *peer = arg;
    struct engine *engine = peer->engine;
    bool over = frame->kind == FRAME_WITHDRAW && frame->sequence == 0;
    if (frame_is_message(frame->kind) && !over) {
        messages_control(engine->messages, link->rank, frame, payload);
        return;
    }
    struct group *group = engine_group(engine, frame->group);
    if (group && group_rank_of(peer, group) == RANK_NONE) {
        link_fail(link, HEARTH_PROTOCOL, not_member);
        return;
    }
    switch (frame->kind) {
    case FRAME_WITHDRAW:
        group_messages_over(peer, group, frame, payload);
        return;
    case FRAME_HELLO:
        hello_came(peer, frame, payload);
        return;
    case FRAME_GRANT:
        grant_came(peer, frame, group);
        return;
    case FRAME_ABORT:
        abort_came(peer, frame, payload);
        return;
    case FRAME_DISPUTE:
    case FRAME_ASK:
    case FRAME_ANSWER:
    case FRAME_VERDICT:
        if (group)
            dispute_frame(group, group_rank_of(peer, group), frame, payload);
        else
            dispute_elsewhere(peer, frame, payload);
        return;
    case FRAME_PING:
        link_send_control(link, &(struct frame){.kind = FRAME_PONG}, NULL);
        return;
    case FRAME_LEAVE:
        if (group && frame->lane < (uint32_t)group->view.size)
            group_left_at(group, (int)frame->lane, frame->sequence);
        return;
    case FRAME_BYE:
        peer_bye(peer, frame, payload);
        return;
    default: /* CREDIT, PONG: the header says it all */
        return;
    }
}

const struct link_events dispatch_events = {
    .on_data = on_data,
    .on_payload = on_payload,
    .on_control = on_control,
    .on_sent = on_sent,
    .on_room = on_room,
    .on_held_up = on_held_up,
    .on_down = peer_down,
};
