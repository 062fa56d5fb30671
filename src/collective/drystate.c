/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out a dry run: which links there are, whose moves go over them, and room for lanes and frames.
 *
 *   Moves of all members stand one after the other; for each there is the number of the link it sends to
 *   and the one it receives from. Links are sorted by sender, then by receiver. */
#include "collective/drystate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- the agenda ---- */

#define EVENTS_MIN 256u

int agenda_init(struct agenda *agenda, struct heap *heap)
{
    *agenda = (struct agenda){.heap = heap, .room = EVENTS_MIN};
    agenda->events = heap_alloc_raw(heap, agenda->room, sizeof *agenda->events);
    return agenda->events ? HEARTH_OK : HEARTH_NO_MEMORY;
}

void agenda_fini(struct agenda *agenda)
{
    heap_free(agenda->events);
    agenda->events = NULL;
}

static bool earlier(const struct agenda_event *a, const struct agenda_event *b)
{
    return a->time < b->time || (a->time == b->time && a->number < b->number);
}

static int agenda_grow(struct agenda *agenda)
{
    struct agenda_event *events = heap_alloc_raw(agenda->heap, agenda->room * 2, sizeof *events);

    if (!events)
        return HEARTH_NO_MEMORY;
    memcpy(events, agenda->events, agenda->count * sizeof *events);
    heap_free(agenda->events);
    agenda->events = events;
    agenda->room *= 2;
    return HEARTH_OK;
}

int agenda_add(struct agenda *agenda, double time, uint32_t kind, uint32_t id)
{
    struct agenda_event event = {.time = time, .number = agenda->number++, .kind = kind, .id = id};
    size_t at = agenda->count;

    if (at == agenda->room && agenda_grow(agenda) != HEARTH_OK)
        return HEARTH_NO_MEMORY;
    agenda->count++;
    while (at > 0 && earlier(&event, &agenda->events[(at - 1) / 2])) {
        agenda->events[at] = agenda->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    agenda->events[at] = event;
    return HEARTH_OK;
}

struct agenda_event agenda_take(struct agenda *agenda)
{
    assert(agenda->count > 0);
    struct agenda_event *events = agenda->events, first = events[0], last = events[--agenda->count];
    size_t at = 0;

    for (size_t child = 1; child < agenda->count; child = 2 * at + 1) {
        if (child + 1 < agenda->count && earlier(&events[child + 1], &events[child]))
            child++;
        if (!earlier(&events[child], &last))
            break;
        events[at] = events[child];
        at = child;
    }
    events[at] = last;
    return first;
}

/* ---- links ---- */

void dry_cursor_settle(const struct dry_run *run, struct dry_link *link)
{
    const struct plan *plan = run->members[link->from].plan;

    while (!plan->sync && flow_more(&link->flow, &link->at) &&
           plan_send_bytes(plan, flow_lane(plan, &link->at), flow_move(plan, &link->flow, &link->at)) == 0)
        flow_next(plan, &link->flow, &link->at);
}

static int bad_plan(struct dry_run *run, int rank, uint32_t move, const char *what)
{
    return error_set(run->error, HEARTH_PROTOCOL, rank, "rank %d, move %u: %s", rank, move, what);
}

static bool is_other(const struct dry_run *run, int rank, int peer)
{
    return peer >= 0 && peer < run->size && peer != rank;
}

static int moves_check(struct dry_run *run, int rank)
{
    const struct plan *plan = &run->plans[rank];

    for (uint32_t i = 0; i < plan->move_count; i++) {
        const struct move *move = &plan->moves[i];
        if (move->part >= plan->parts || move->parts < 1 || move->parts > plan->parts - move->part)
            return bad_plan(run, rank, i, "its parts are not there");
        if ((move->bits & MOVE_SEND) && !is_other(run, rank, move->to))
            return bad_plan(run, rank, i, "it sends to nobody");
        if ((move->bits & MOVE_RECV) && !is_other(run, rank, move->from))
            return bad_plan(run, rank, i, "it receives from nobody");
    }
    return HEARTH_OK;
}

/* One move that sends. */
struct dry_send {
    int32_t to;
    uint32_t move;
};

static int send_order(const void *left, const void *right)
{
    const struct dry_send *a = left, *b = right;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return a->move < b->move ? -1 : a->move > b->move;
}

static int link_order(const void *left, const void *right)
{
    const struct dry_link *a = left, *b = right;
    return a->to < b->to ? -1 : a->to > b->to;
}

static uint32_t link_find(const struct dry_run *run, int from, int to)
{
    const struct dry_member *member = &run->members[from];
    const struct dry_link *links = &run->links[member->links],
                          *found = bsearch(&(struct dry_link){.to = to}, links, member->link_count,
                                           sizeof *links, link_order);
    return found ? (uint32_t)(found - run->links) : NO_LINK;
}

/* A member's links out: its sends to one receiver make one. Their moves go to `table`. */
static int links_out(struct dry_run *run, int rank, struct dry_send *sends, uint32_t *table)
{
    const struct plan *plan = &run->plans[rank];
    struct dry_member *member = &run->members[rank];
    struct dry_link *link = NULL;
    size_t count = 0;

    for (uint32_t i = 0; i < plan->move_count; i++)
        if (plan->moves[i].bits & MOVE_SEND)
            sends[count++] = (struct dry_send){plan->moves[i].to, i};
    qsort(sends, count, sizeof *sends, send_order);
    member->links = run->link_count;
    for (size_t i = 0; i < count; i++) {
        const struct move *move = &plan->moves[sends[i].move];
        table[i] = sends[i].move;
        if (i == 0 || sends[i].to != sends[i - 1].to) {
            link = &run->links[run->link_count++];
            *link = (struct dry_link){.from = rank, .to = sends[i].to, .flow = {.moves = &table[i]}};
        } else if (move->to_step <= plan->moves[sends[i - 1].move].to_step) {
            return bad_plan(run, rank, sends[i].move,
                            "its step is not after the one before on the same link");
        }
        link->flow.count++;
        link->flow.frames += plan->lanes;
    }
    member->link_count = run->link_count - member->links;
    return HEARTH_OK;
}

/* Which link each move of a member uses. */
static void links_look_up(struct dry_run *run, int rank)
{
    const struct dry_member *member = &run->members[rank];

    for (uint32_t i = 0; i < member->plan->move_count; i++) {
        const struct move *move = &member->plan->moves[i];
        uint32_t *send = &run->send_link[member->moves + i], *recv = &run->recv_link[member->moves + i];
        *send = move->bits & MOVE_SEND ? link_find(run, rank, move->to) : NO_LINK;
        *recv = move->bits & MOVE_RECV ? link_find(run, move->from, rank) : NO_LINK;
    }
}

/* ---- room ---- */

int dry_no_memory(struct dry_run *run)
{
    return error_set(run->error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a dry run of %d members",
                     run->size);
}

/* How many moves, sends and lanes there are; and whether the plans belong together. */
static int members_count(struct dry_run *run, uint64_t *moves, uint64_t *sends, uint64_t *lanes)
{
    for (int r = 0; r < run->size; r++) {
        const struct plan *plan = &run->plans[r];
        if (plan->rank != r || plan->size != run->size)
            return error_set(run->error, HEARTH_PROTOCOL, r, "plan %d is that of rank %d of %d", r,
                             plan->rank, plan->size);
        run->members[r] = (struct dry_member){.plan = plan, .moves = *moves, .lanes = (uint32_t)*lanes};
        *moves += plan->move_count;
        for (uint32_t i = 0; i < plan->move_count; i++)
            *sends += (plan->moves[i].bits & MOVE_SEND) != 0;
        *lanes += plan->lanes > 0 ? plan->window : 0;
        run->moves_all += (double)plan->move_count * (double)plan->lanes;
        if (*lanes > UINT32_MAX || *sends >= NO_LINK)
            return dry_no_memory(run);
    }
    return HEARTH_OK;
}

static int links_make(struct dry_run *run, uint64_t moves, uint64_t count)
{
    struct dry_send *sends = heap_alloc_raw(run->heap, count, sizeof *sends);
    uint32_t *table = run->sends = heap_alloc_raw(run->heap, count, sizeof *run->sends);
    int status = HEARTH_OK;

    run->recv_link = heap_alloc_raw(run->heap, moves, sizeof *run->recv_link);
    run->send_link = heap_alloc_raw(run->heap, moves, sizeof *run->send_link);
    run->links = heap_alloc_raw(run->heap, count, sizeof *run->links);
    if (!sends || !run->recv_link || !run->send_link || !run->sends || !run->links)
        status = dry_no_memory(run);
    for (int r = 0; r < run->size && status == HEARTH_OK; r++) {
        status = moves_check(run, r);
        if (status == HEARTH_OK)
            status = links_out(run, r, sends, table);
        for (uint32_t i = run->members[r].links; i < run->link_count; i++)
            table += run->links[i].flow.count;
    }
    for (int r = 0; r < run->size && status == HEARTH_OK; r++)
        links_look_up(run, r);
    heap_free(sends);
    return status;
}

static int frames_make(struct dry_run *run)
{
    uint64_t frames = 0;

    for (uint32_t i = 0; i < run->link_count; i++) {
        struct dry_link *link = &run->links[i];
        uint64_t most = link->flow.frames;
        link->slots = run->net->slots;
        if (most < link->slots)
            link->slots = most > 0 ? (uint32_t)most : 1;
        link->frames = frames;
        frames += link->slots;
        dry_cursor_settle(run, link);
    }
    run->frames = heap_alloc_raw(run->heap, frames, sizeof *run->frames);
    return run->frames ? HEARTH_OK : dry_no_memory(run);
}

static int lanes_make(struct dry_run *run, uint64_t count)
{
    run->lanes = heap_alloc(run->heap, count, sizeof *run->lanes);
    run->ready = heap_alloc_raw(run->heap, count, sizeof *run->ready);
    if (!run->lanes || !run->ready)
        return dry_no_memory(run);
    for (int r = 0; r < run->size; r++) {
        const struct plan *plan = &run->plans[r];
        for (uint64_t i = 0; plan->lanes > 0 && i < plan->window; i++) {
            struct dry_lane *lane = &run->lanes[run->lane_count++];
            lane->number = i;
            lane->rank = r;
        }
    }
    return HEARTH_OK;
}

int dry_open(struct dry_run *run)
{
    uint64_t moves = 0, sends = 0, lanes = 0;

    if (run->size < 1 || run->net->slots < 1)
        return error_set(run->error, HEARTH_INVALID, RANK_NONE, "a dry run needs a member and a slot");
    run->members = heap_alloc(run->heap, (size_t)run->size, sizeof *run->members);
    if (!run->members || agenda_init(&run->agenda, run->heap) != HEARTH_OK)
        return dry_no_memory(run);
    int status = members_count(run, &moves, &sends, &lanes);
    if (status == HEARTH_OK)
        status = links_make(run, moves, sends);
    if (status == HEARTH_OK)
        status = frames_make(run);
    if (status == HEARTH_OK)
        status = lanes_make(run, lanes);
    return status;
}

void dry_close(struct dry_run *run)
{
    agenda_fini(&run->agenda);
    heap_free(run->members);
    heap_free(run->recv_link);
    heap_free(run->send_link);
    heap_free(run->sends);
    heap_free(run->links);
    heap_free(run->frames);
    heap_free(run->lanes);
    heap_free(run->ready);
}
