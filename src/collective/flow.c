/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of an operation between us and one peer, in canonical order.
 *
 * Out: the flow's next frame goes when its lane has reached the send, the link has room, and either the peer
 * has granted it or the eager budget holds it. In: frames that come before their lane is ready wait in slots;
 * at most FLOW_WINDOW_MAX are ahead of the floor: a mask of 64 bits says which have come and been taken. */
#include <assert.h>
#include <string.h>

#include "collective/state.h"

/* ---- out ---- */

static void skip_empty(const struct op *op, uint32_t flow)
{
    const struct plan *plan = &op->program->plan;
    struct flow_cursor *at = &op->out[flow].next;
    const struct flow_table *table = &op->program->out[flow];
    while (!plan->sync && flow_more(table, at) &&
           plan_send_bytes(plan, flow_lane(plan, at), flow_move(plan, table, at)) == 0)
        flow_next(plan, table, at);
}

/* Whether the peer lets the next frame come, and as what. */
static bool may_send(const struct op *op, uint32_t flow, const struct link *link, size_t len, uint16_t *flags)
{
    const struct outflow *out = &op->out[flow];
    *flags = 0;
    if (out->granted)
        return out->next.index < out->limit;
    *flags = FRAME_EAGER;
    return out->next.index < FLOW_WINDOW_MAX && link_eager_fits(link, len);
}

static const void *payload_of(const struct op *op, struct lane *lane, const struct move *move)
{
    struct range range = plan_move_range(&op->program->plan, lane->number, move);
    if (range.count == 0)
        return NULL;
    if (move->bits & MOVE_SEND_IN)
        return op->source + range.offset * dtype_size(op->dtype);
    if (move->bits & MOVE_SEND_OUT) {
        range = plan_range(&op->program->plan, SIDE_OUT, lane->number, move->part, move->parts);
        return op->target + range.offset * dtype_size(op->dtype);
    }
    return (const uint8_t *)lane->acc->data + (range.offset - lane->acc_offset) * dtype_size(op->acc_dtype);
}

static void send_one(struct op *op, uint32_t flow, struct lane *lane, struct link *link, uint16_t flags)
{
    const struct plan *plan = &op->program->plan;
    const struct move *move = &plan->moves[lane->move];
    struct frame frame = {
        .kind = FRAME_DATA,
        .flags = flags,
        .length = (uint32_t)plan_send_bytes(plan, lane->number, move),
        .group = op->group->view.group,
        .epoch = op->group->view.epoch,
        .tag = op->tag,
        .sequence = op->sequence,
        .fingerprint = op->record.fingerprint,
        .lane = (uint32_t)lane->number,
        .step = move->to_step,
        .total = op->program->out[flow].bytes,
        .weight = move->bits & MOVE_SEND_ACC ? lane->weight : op->weight,
    };
    /* The cookie is the lane; its lowest bit says that the accumulator is on its way. */
    uintptr_t cookie = (uintptr_t)lane;
    if (move->bits & MOVE_SEND_ACC) {
        lane_lend(lane, plan_move_range(plan, lane->number, move));
        cookie |= 1;
    } else if (move->bits & MOVE_SEND_IN) {
        lane->unsent_in++;
        cookie |= 2;
    }
    op->unsent++;
    op->out[flow].unsent++;
    link_send_data(link, &(struct link_data){.frame = frame,
                                             .payload = payload_of(op, lane, move),
                                             .owner = op,
                                             .cookie = (void *)cookie,
                                             .class = LINK_NORMAL});
}

void outflow_pump(struct op *op, uint32_t flow)
{
    const struct plan *plan = &op->program->plan;
    const struct flow_table *table = &op->program->out[flow];
    struct flow_cursor *at = &op->out[flow].next;
    struct link *link = engine_link(op->group, table->peer);
    while (link && !op->spoiled) {
        skip_empty(op, flow);
        if (!flow_more(table, at) || !link_room(link, LINK_NORMAL))
            return;
        uint64_t number = flow_lane(plan, at);
        struct lane *lane = &op->lanes[number % plan->window];
        if (lane->number != number || lane->idle || lane->stage != LANE_SEND ||
            lane->move != table->moves[at->turn])
            return;
        uint16_t flags;
        const struct move *move = &plan->moves[lane->move];
        if (!may_send(op, flow, link, plan_send_bytes(plan, number, move), &flags))
            return;
        send_one(op, flow, lane, link, flags);
        flow_next(plan, table, at);
        lane->move++;
        lane->stage = LANE_RECV;
        lane_wake(op, lane);
    }
}

bool outflows_compared(const struct op *op)
{
    for (uint32_t i = 0; op->vector && i < op->program->out_count; i++)
        if (!op->out[i].granted)
            return false;
    return true;
}

void outflow_grant(struct op *op, uint32_t flow, uint64_t limit)
{
    struct outflow *out = &op->out[flow];
    out->granted = true;
    out->limit = limit > out->limit ? limit : out->limit;
    outflow_pump(op, flow);
}

/* ---- in ---- */

static struct peer *peer_of(const struct op *op, uint32_t flow)
{
    struct group *group = op->group;
    return &group->engine->peers[group->members[op->program->in[flow].peer]];
}

void slot_credit(struct link *link, struct slot *slot)
{
    if (slot->frame.flags & FRAME_EAGER)
        link_eager_release(link, slot->frame.length);
    slot->frame.flags = 0;
}

static void send_grant(struct op *op, int peer, uint64_t limit, uint64_t total)
{
    struct frame frame = group_frame(op->group, FRAME_GRANT, op->tag, op->sequence);
    frame.fingerprint = op->record.fingerprint;
    frame.lane = (uint32_t)(limit >> 32);
    frame.step = (uint32_t)limit;
    frame.total = total;
    group_send(op->group, peer, &frame, NULL);
}

void inflow_tell(struct op *op, uint32_t flow)
{
    const struct flow_table *table = &op->program->in[flow];
    struct inflow *in = &op->in[flow];
    in->told = in->floor.index + op->program->depth;
    send_grant(op, table->peer, in->told, table->bytes);
}

void flows_ask(struct op *op)
{
    for (uint32_t i = 0; i < op->program->in_count; i++)
        if (op->in[i].told == 0 && flow_more(&op->program->in[i], &op->in[i].floor))
            inflow_tell(op, i);
    /* A member that sends us nothing and has granted nothing may have ended another call: a grant of no
     * frames tells it what we called. */
    for (uint32_t i = 0; i < op->program->out_count; i++)
        if (!op->out[i].granted && op->program->in_of[op->program->out[i].peer] < 0)
            send_grant(op, op->program->out[i].peer, 0, 0);
}

struct slot *inflow_find(struct op *op, const struct lane *lane)
{
    const struct move *move = &op->program->plan.moves[lane->move];
    struct inflow *in = &op->in[op->program->in_of[move->from]];
    struct list *item, *after;
    LIST_EACH (item, after, &in->early) {
        struct slot *slot = container_of(item, struct slot, item);
        if (slot->frame.lane != (uint32_t)lane->number || slot->frame.step != move->from_step)
            continue;
        if (!slot->whole)
            return NULL;
        list_remove(item);
        slot_credit(&peer_of(op, (uint32_t)op->program->in_of[move->from])->link, slot);
        return slot;
    }
    return NULL;
}

static bool floor_passes(const struct op *op, const struct flow_table *table, const struct inflow *in)
{
    const struct plan *plan = &op->program->plan;
    if (in->mask & 1)
        return true;
    return !plan->sync &&
           plan_recv_bytes(plan, flow_lane(plan, &in->floor), flow_move(plan, table, &in->floor)) == 0;
}

void inflow_took(struct op *op, const struct lane *lane)
{
    const struct plan *plan = &op->program->plan;
    const struct move *move = &plan->moves[lane->move];
    uint32_t flow = (uint32_t)op->program->in_of[move->from], turn;
    const struct flow_table *table = &op->program->in[flow];
    struct inflow *in = &op->in[flow];
    bool found = flow_turn(plan, table, move->from_step, &turn);
    assert(found);
    (void)found;
    uint64_t ahead = flow_index(plan, table, turn, lane->number) - in->floor.index;
    assert(ahead < FLOW_WINDOW_MAX);
    in->mask |= UINT64_C(1) << ahead;
    while (flow_more(table, &in->floor) && floor_passes(op, table, in)) {
        flow_next(plan, table, &in->floor);
        in->mask >>= 1;
        in->come >>= 1;
    }
    uint64_t depth = op->program->depth;
    if (in->told > 0 && in->told < table->frames && in->floor.index + depth - in->told >= (depth + 1) / 2)
        inflow_tell(op, flow);
}

/* A peer needs a grant when eager sending may not carry the flow to its end. */
static bool needs_grant(const struct op *op, uint32_t flow)
{
    const struct flow_table *table = &op->program->in[flow];
    uint32_t budget = op->group->engine->eager_bytes;
    return table->bytes > budget / 4 || table->frames > FLOW_WINDOW_MAX ||
           peer_of(op, flow)->early_bytes >= budget / 2;
}

/* What came of a member for the operation before we posted it, expected or not. */
static void adopt_early(struct op *op, int rank)
{
    struct peer *peer = &op->group->engine->peers[op->group->members[rank]];
    struct list *item, *after;
    LIST_EACH (item, after, &peer->early) {
        struct slot *slot = container_of(item, struct slot, item);
        if (slot->frame.group != op->group->view.group || slot->frame.tag != op->tag ||
            slot->frame.sequence != op->sequence)
            continue;
        engine_adopt(op, rank, slot);
        if (op->state != OP_RUNNING)
            return;
    }
}

void flows_start(struct op *op)
{
    for (uint32_t i = 0; i < op->program->in_count && op->state == OP_RUNNING; i++) {
        struct inflow *in = &op->in[i];
        const struct flow_table *table = &op->program->in[i];
        while (flow_more(table, &in->floor) && floor_passes(op, table, in))
            flow_next(&op->program->plan, table, &in->floor);
        if (op->vector || (flow_more(table, &in->floor) && needs_grant(op, i)))
            inflow_tell(op, i);
    }
    for (int i = 0; i < op->group->view.size && op->state == OP_RUNNING; i++) {
        if (i == op->group->rank)
            continue;
        adopt_early(op, i);
        if (op->state == OP_RUNNING)
            engine_adopt_notes(op, i);
    }
}
