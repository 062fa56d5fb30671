/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of all members against each other on virtual time: an event simulation of sizes.
 *
 *   A member has one port out, one port in and one processor, each busy with one thing after the other:
 *
 *      sender    |overhead|== bytes/rate ==|                     accepted frames queue for the port
 *      wire               |---- alpha ---->|
 *      receiver                            |== bytes/rate ==|    cut-through; later if the port is busy
 *      processor                                            |= gamma * bytes combined =|
 *
 *   A lane runs its moves one after the other until it has to wait:
 *     RECV  for its frame to have come, and for what the move changes in the accumulator to have left
 *     WORK  for the processor, and for the FENCE
 *     SEND  for its turn in the link's canonical order, and for a free slot
 *   What happens to a link puts the one lane that may have waited for it into the ready queue. Time passes
 *   only in the agenda. A link exists for each pair (from, to) that some move speaks of, so memory goes with
 *   moves, not with N*N. */
#include "collective/dryrun.h"

#include "collective/drystate.h"
#include "os/clock.h"

#define PROGRESS_EVENTS 4096u                       /* between two looks at the clock */
#define PROGRESS_NS     (UINT64_C(100) * NS_PER_MS) /* between two calls of progress */

enum event_kind {
    EVENT_ARRIVE, /* the next frame of a link stands before the receiver's port */
    EVENT_LAND,   /* it has come whole */
    EVENT_WAKE    /* a lane has waited long enough */
};

static const struct link_cost *cost_of(const struct dry_run *run, const struct dry_link *link)
{
    const int *host = run->net->host;
    return !host || host[link->from] == host[link->to] ? &run->net->inside : &run->net->across;
}

static void later(struct dry_run *run, double time, enum event_kind kind, uint32_t id)
{
    if (agenda_add(&run->agenda, time, kind, id) != HEARTH_OK)
        run->status = dry_no_memory(run);
}

/* ---- waking lanes ---- */

static void lane_ready(struct dry_run *run, struct dry_lane *lane)
{
    if (lane->queued || lane->over)
        return;
    lane->queued = true;
    run->ready[(run->ready_head + run->ready_count++) % run->lane_count] = (uint32_t)(lane - run->lanes);
}

static struct dry_lane *lane_find(const struct dry_run *run, int rank, uint64_t number)
{
    const struct dry_member *member = &run->members[rank];
    struct dry_lane *lane = &run->lanes[member->lanes + number % member->plan->window];
    return number < member->plan->lanes && lane->number == number && !lane->over ? lane : NULL;
}

/* The lane whose turn it is may be waiting for it, or for the slot. */
static void link_offer_turn(struct dry_run *run, const struct dry_link *link)
{
    const struct plan *plan = run->members[link->from].plan;
    if (!flow_more(&link->flow, &link->at))
        return;
    struct dry_lane *lane = lane_find(run, link->from, flow_lane(plan, &link->at));
    if (lane && lane->stage == STAGE_SEND && lane->move == link->flow.moves[link->at.turn])
        lane_ready(run, lane);
}

/* The lane to which the oldest frame belongs may be waiting for it. */
static void link_offer_frame(struct dry_run *run, const struct dry_link *link)
{
    if (link->taken == link->landed)
        return;
    struct dry_lane *lane =
        lane_find(run, link->to, run->frames[link->frames + link->taken % link->slots].lane);
    if (lane && lane->stage == STAGE_RECV)
        lane_ready(run, lane);
}

/* ---- moves ---- */

static int misfit(struct dry_run *run, const struct dry_lane *lane, const char *what, int peer,
                  const char *unit, uint64_t number)
{
    char name[64];
    const struct plan *plan = run->members[lane->rank].plan;

    move_name(&plan->moves[lane->move], name, sizeof name);
    run->status = error_set(run->error, HEARTH_PROTOCOL, lane->rank,
                            "rank %d, lane %llu, move %u (%s) %s rank %d, %s %llu", lane->rank,
                            (unsigned long long)lane->number, lane->move, name, what, peer, unit,
                            (unsigned long long)number);
    return run->status;
}

static void observe(const struct dry_run *run, const struct dry_lane *lane, const struct move *move,
                    unsigned bits)
{
    struct move seen = *move;

    seen.bits &= bits;
    if (!run->net->observer || seen.bits == 0)
        return;
    if ((seen.bits & MOVE_RECV) == 0)
        seen.from = RANK_NONE;
    if ((seen.bits & MOVE_SEND) == 0)
        seen.to = RANK_NONE;
    run->net->observer(run->net->observer_arg, lane->rank, lane->number, &seen);
}

static void lane_wait(struct dry_run *run, struct dry_lane *lane, double until)
{
    lane->until = until;
    later(run, until, EVENT_WAKE, (uint32_t)(lane - run->lanes));
}

/* When the move may change the accumulator. */
static double acc_free_at(const struct dry_lane *lane, const struct move *move)
{
    if ((move->bits & (MOVE_RECV_ACC | MOVE_OWN)) == 0)
        return 0;
    bool apart = move->part >= lane->lent + lane->lent_parts || lane->lent >= move->part + move->parts;
    return apart && (move->bits & MOVE_LOAD) == 0 ? 0 : lane->acc_free;
}

static double work_of(const struct dry_run *run, const struct dry_lane *lane, const struct move *move,
                      const struct dry_link *from)
{
    int operands = !!(move->bits & MOVE_RECV_ACC) + !!(move->bits & MOVE_OWN) - !!(move->bits & MOVE_LOAD);
    const struct plan *plan = run->members[lane->rank].plan;
    double gamma = from ? cost_of(run, from)->gamma_s : run->net->inside.gamma_s;

    if (operands <= 0 || gamma <= 0)
        return 0;
    return gamma * operands * plan->acc_len * (double)plan_move_range(plan, lane->number, move).count;
}

/* False: the lane waits, or the run has failed. */
static bool lane_recv(struct dry_run *run, struct dry_lane *lane, const struct move *move)
{
    struct dry_member *member = &run->members[lane->rank];
    size_t bytes = plan_recv_bytes(member->plan, lane->number, move);
    struct dry_link *link = NULL;

    if (acc_free_at(lane, move) > run->now) {
        lane_wait(run, lane, acc_free_at(lane, move));
        return false;
    }
    if ((move->bits & MOVE_RECV) && (bytes > 0 || member->plan->sync)) {
        uint32_t id = run->recv_link[member->moves + lane->move];
        if (id == NO_LINK) {
            misfit(run, lane, "waits for a frame that is never sent: from", move->from, "step",
                   move->from_step);
            return false;
        }
        link = &run->links[id];
        struct dry_frame *frame = &run->frames[link->frames + link->taken % link->slots];
        if (link->taken == link->landed || frame->lane != lane->number)
            return false;
        if (frame->step != move->from_step) {
            misfit(run, lane, "gets the frame of another step: from", move->from, "step", frame->step);
            return false;
        }
        if (frame->bytes != bytes) {
            misfit(run, lane, "gets a frame of another length: from", move->from, "bytes", frame->bytes);
            return false;
        }
        lane->hops = frame->hops > lane->hops ? frame->hops : lane->hops;
        link->taken++;
        link_offer_turn(run, link);
        link_offer_frame(run, link);
    }
    observe(run, lane, move, MOVE_RECV | MOVE_LOAD | MOVE_RAW | MOVE_OWN);
    lane->stage = STAGE_WORK;
    double work = work_of(run, lane, move, link);
    if (work <= 0)
        return true;
    member->work_busy = (member->work_busy > run->now ? member->work_busy : run->now) + work;
    lane_wait(run, lane, member->work_busy);
    return false;
}

static bool lane_work(struct dry_run *run, struct dry_lane *lane, const struct move *move)
{
    if ((move->bits & MOVE_FENCE) && lane->in_free > run->now) {
        lane_wait(run, lane, lane->in_free);
        return false;
    }
    observe(run, lane, move, MOVE_FENCE | MOVE_STORE | MOVE_COPY | MOVE_IDENTITY);
    lane->stage = STAGE_SEND;
    return true;
}

static void frame_send(struct dry_run *run, struct dry_lane *lane, const struct move *move,
                       struct dry_link *link, size_t bytes)
{
    struct dry_member *member = &run->members[lane->rank];
    const struct link_cost *cost = cost_of(run, link);
    double start = (member->out_busy > run->now ? member->out_busy : run->now) + cost->overhead_s;
    double end = start + (double)bytes / cost->bytes_per_s;

    run->frames[link->frames + link->sent % link->slots] = (struct dry_frame){
        .lane = lane->number, .bytes = bytes, .step = move->to_step, .hops = lane->hops + 1};
    link->sent++;
    flow_next(member->plan, &link->flow, &link->at);
    dry_cursor_settle(run, link);
    member->out_busy = end;
    if (move->bits & MOVE_SEND_IN)
        lane->in_free = end;
    if (move->bits & MOVE_SEND_ACC) {
        lane->acc_free = end;
        lane->lent = move->part;
        lane->lent_parts = move->parts;
    }
    member->bytes_sent += bytes;
    run->result->messages++;
    run->result->bytes_sent += bytes;
    if (lane->hops + 1 > run->result->hops)
        run->result->hops = lane->hops + 1;
    later(run, start + cost->alpha_s, EVENT_ARRIVE, (uint32_t)(link - run->links));
}

static bool lane_send(struct dry_run *run, struct dry_lane *lane, const struct move *move)
{
    const struct dry_member *member = &run->members[lane->rank];
    size_t bytes = plan_send_bytes(member->plan, lane->number, move);

    if ((move->bits & MOVE_SEND) && (bytes > 0 || member->plan->sync)) {
        struct dry_link *link = &run->links[run->send_link[member->moves + lane->move]];
        bool turn = flow_more(&link->flow, &link->at) && flow_lane(member->plan, &link->at) == lane->number &&
                    link->flow.moves[link->at.turn] == lane->move;
        if (!turn || link->sent - link->taken == link->slots)
            return false;
        frame_send(run, lane, move, link, bytes);
        observe(run, lane, move, MOVE_SEND);
        link_offer_turn(run, link);
    } else {
        observe(run, lane, move, MOVE_SEND);
    }
    lane->stage = STAGE_RECV;
    lane->move++;
    run->moves_done++;
    return run->status == HEARTH_OK;
}

/* The lane is through; its place is free for the one a window later. */
static bool lane_next(struct dry_run *run, struct dry_lane *lane)
{
    const struct plan *plan = run->members[lane->rank].plan;

    if (run->now > run->result->time_s)
        run->result->time_s = run->now;
    lane->over = plan->lanes - lane->number <= plan->window;
    if (lane->over)
        return false;
    *lane =
        (struct dry_lane){.number = lane->number + plan->window, .rank = lane->rank, .queued = lane->queued};
    return true;
}

static void lane_run(struct dry_run *run, struct dry_lane *lane)
{
    const struct plan *plan = run->members[lane->rank].plan;
    bool on = !lane->over && run->now >= lane->until;

    while (on && run->status == HEARTH_OK) {
        if (lane->move == plan->move_count) {
            on = lane_next(run, lane);
            continue;
        }
        const struct move *move = &plan->moves[lane->move];
        if (lane->stage == STAGE_RECV)
            on = lane_recv(run, lane, move);
        else if (lane->stage == STAGE_WORK)
            on = lane_work(run, lane, move);
        else
            on = lane_send(run, lane, move);
    }
}

/* ---- time ---- */

static void ready_run(struct dry_run *run)
{
    while (run->ready_count > 0 && run->status == HEARTH_OK) {
        struct dry_lane *lane = &run->lanes[run->ready[run->ready_head]];
        run->ready_head = (run->ready_head + 1) % run->lane_count;
        run->ready_count--;
        lane->queued = false;
        lane_run(run, lane);
    }
}

static void event_run(struct dry_run *run, const struct agenda_event *event)
{
    run->now = event->time;
    if (event->kind == EVENT_WAKE) {
        lane_ready(run, &run->lanes[event->id]);
        return;
    }
    struct dry_link *link = &run->links[event->id];
    if (event->kind == EVENT_LAND) {
        link->landed++;
        link_offer_frame(run, link);
        return;
    }
    const struct dry_frame *frame = &run->frames[link->frames + link->begun++ % link->slots];
    struct dry_member *to = &run->members[link->to];
    to->in_busy = (to->in_busy > run->now ? to->in_busy : run->now) +
                  (double)frame->bytes / cost_of(run, link)->bytes_per_s;
    later(run, to->in_busy, EVENT_LAND, event->id);
}

static int progress(struct dry_run *run, uint64_t events)
{
    if (!run->net->progress || events % PROGRESS_EVENTS != 0)
        return HEARTH_OK;
    uint64_t now_ns = clock_real();
    if (now_ns - run->reported_ns < PROGRESS_NS)
        return HEARTH_OK;
    run->reported_ns = now_ns;
    if (run->net->progress(run->net->progress_arg, (double)run->moves_done / run->moves_all))
        return HEARTH_OK;
    return error_set(run->error, HEARTH_CANCELLED, RANK_NONE, "the dry run was stopped");
}

/* ---- the end ---- */

/* Names a lane that is stuck, or a frame that was left over. */
static int stuck(struct dry_run *run)
{
    for (uint32_t i = 0; i < run->lane_count; i++) {
        const struct dry_lane *lane = &run->lanes[i];
        if (lane->over)
            continue;
        const struct move *move = &run->members[lane->rank].plan->moves[lane->move];
        if (lane->stage == STAGE_RECV)
            return misfit(run, lane, "waits for ever: for", move->from, "step", move->from_step);
        return misfit(run, lane, "waits for ever: to send to", move->to, "step", move->to_step);
    }
    for (uint32_t i = 0; i < run->link_count; i++) {
        const struct dry_link *link = &run->links[i];
        if (link->sent == link->taken)
            continue;
        const struct dry_frame *frame = &run->frames[link->frames + link->taken % link->slots];
        return error_set(run->error, HEARTH_PROTOCOL, link->to,
                         "rank %d never takes the frame of lane %llu, step %u, from rank %d", link->to,
                         (unsigned long long)frame->lane, frame->step, link->from);
    }
    return HEARTH_OK;
}

static int simulate(struct dry_run *run)
{
    uint64_t events = 0;

    for (uint32_t i = 0; i < run->lane_count; i++)
        if (!run->lanes[i].over)
            lane_ready(run, &run->lanes[i]);
    ready_run(run);
    while (run->agenda.count > 0 && run->status == HEARTH_OK) {
        struct agenda_event event = agenda_take(&run->agenda);
        event_run(run, &event);
        ready_run(run);
        if (run->status == HEARTH_OK)
            run->status = progress(run, ++events);
    }
    if (run->status == HEARTH_OK)
        run->status = stuck(run);
    for (int r = 0; r < run->size; r++)
        if (run->members[r].bytes_sent > run->result->bytes_sent_max)
            run->result->bytes_sent_max = run->members[r].bytes_sent;
    return run->status;
}

int dryrun(const struct plan *plans, int size, const struct dry_net *net, struct heap *heap,
           struct dry_result *result, struct error *error)
{
    struct dry_result found = {.messages = 0};
    struct dry_run run = {
        .plans = plans, .size = size, .net = net, .heap = heap, .error = error, .result = &found};
    int status = dry_open(&run);

    if (status == HEARTH_OK)
        status = simulate(&run);
    if (status == HEARTH_OK)
        *result = found;
    dry_close(&run);
    return status;
}
