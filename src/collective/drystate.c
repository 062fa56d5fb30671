/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out a dry run: which links there are, whose moves go over them, and room for lanes and frames.
 *
 *   Moves of all members stand one after the other; for each there is the number of the link it sends to
 *   and the one it receives from. Links are numbered by sender, in the order in which its moves first speak
 *   of them. */
#include "collective/drystate.h"

int dry_no_memory(struct dry_run *run)
{
    return error_set(run->error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a dry run of %d members",
                     run->size);
}

/* ---- canonical order ---- */

void dry_cursor_step(const struct dry_run *run, struct dry_link *link)
{
    const struct plan *plan = run->members[link->from].plan;
    uint64_t first = link->lane - link->lane % plan->window, end = first + plan->window;

    link->lane++;
    if (link->lane < end && link->lane < plan->lanes)
        return;
    if (++link->turn < link->moves) {
        link->lane = first;
        return;
    }
    link->turn = 0;
}

void dry_cursor_settle(const struct dry_run *run, struct dry_link *link)
{
    const struct plan *plan = run->members[link->from].plan;

    while (!plan->sync && link->lane < plan->lanes &&
           plan_send_bytes(plan, link->lane, &plan->moves[run->sends[link->first + link->turn]]) == 0)
        dry_cursor_step(run, link);
}

/* ---- links ---- */

/* Marks by peer, for one member at a time: valid where mark[peer] == member + 1. */
struct scratch {
    uint32_t *mark, *link, *step;
};

static int bad_plan(struct dry_run *run, int rank, uint32_t move, const char *what)
{
    return error_set(run->error, HEARTH_PROTOCOL, rank, "rank %d, move %u: %s", rank, move, what);
}

/* Gives a member its links out, in the order in which its moves speak of them. */
static int links_out(struct dry_run *run, int rank, struct scratch *scratch, uint32_t *count)
{
    struct dry_member *member = &run->members[rank];

    for (uint32_t i = 0; i < member->plan->move_count; i++) {
        const struct move *move = &member->plan->moves[i];
        if (move->part >= member->plan->parts || move->parts < 1 ||
            move->parts > member->plan->parts - move->part)
            return bad_plan(run, rank, i, "its parts are not there");
        if ((move->bits & MOVE_SEND) == 0)
            continue;
        if (move->to < 0 || move->to >= run->size || move->to == rank)
            return bad_plan(run, rank, i, "it sends to nobody");
        if (scratch->mark[move->to] != (uint32_t)rank + 1) {
            scratch->mark[move->to] = (uint32_t)rank + 1;
            scratch->link[move->to] = *count;
            run->links[(*count)++] = (struct dry_link){.from = rank, .to = move->to};
        } else if (move->to_step <= scratch->step[move->to]) {
            return bad_plan(run, rank, i, "its step is not after the one before on the same link");
        }
        scratch->step[move->to] = move->to_step;
        run->links[scratch->link[move->to]].moves++;
        run->send_link[member->moves + i] = scratch->link[move->to];
    }
    return HEARTH_OK;
}

/* Writes the numbers of the moves of each link out into `sends`, from `first` on. */
static uint32_t sends_fill(struct dry_run *run, int rank, uint32_t first)
{
    const struct dry_member *member = &run->members[rank];

    for (uint32_t i = 0; i < member->plan->move_count; i++) {
        uint32_t id = run->send_link[member->moves + i];
        if (id == NO_LINK)
            continue;
        struct dry_link *link = &run->links[id];
        if (link->turn == 0) { /* counts its moves until the run begins */
            link->first = first;
            first += link->moves;
        }
        run->sends[link->first + link->turn++] = i;
    }
    return first;
}

/* Finds the link of each move that receives. `in`: the links into this member. */
static int links_in(struct dry_run *run, int rank, struct scratch *scratch, const uint32_t *in,
                    uint32_t in_count)
{
    struct dry_member *member = &run->members[rank];

    for (uint32_t i = 0; i < in_count; i++) {
        scratch->mark[run->links[in[i]].from] = (uint32_t)rank + 1;
        scratch->link[run->links[in[i]].from] = in[i];
    }
    for (uint32_t i = 0; i < member->plan->move_count; i++) {
        const struct move *move = &member->plan->moves[i];
        if ((move->bits & MOVE_RECV) == 0)
            continue;
        if (move->from < 0 || move->from >= run->size || move->from == rank)
            return bad_plan(run, rank, i, "it receives from nobody");
        if (scratch->mark[move->from] == (uint32_t)rank + 1)
            run->recv_link[member->moves + i] = scratch->link[move->from];
    }
    return HEARTH_OK;
}

/* Sorts the links by receiver: those into rank r are list[first[r]] up to list[first[r + 1]]. */
static void links_by_receiver(const struct dry_run *run, uint32_t *first, uint32_t *list)
{
    for (uint32_t i = 0; i < run->link_count; i++)
        first[run->links[i].to + 1]++;
    for (int r = 0; r < run->size; r++)
        first[r + 1] += first[r];
    for (uint32_t i = run->link_count; i-- > 0;) /* from the end of each receiver's stretch downwards */
        list[--first[run->links[i].to + 1]] = i;
    for (int r = 0; r < run->size; r++) /* first[r + 1] has become the beginning of r's stretch */
        first[r] = first[r + 1];
    first[run->size] = run->link_count;
}

static int links_join(struct dry_run *run, struct scratch *scratch, uint32_t *first, uint32_t *list)
{
    uint32_t sends = 0;
    int status = HEARTH_OK;

    for (int r = 0; r < run->size && status == HEARTH_OK; r++)
        status = links_out(run, r, scratch, &run->link_count);
    if (status != HEARTH_OK)
        return status;
    for (int r = 0; r < run->size; r++) {
        sends = sends_fill(run, r, sends);
        scratch->mark[r] = 0;
    }
    links_by_receiver(run, first, list);
    for (int r = 0; r < run->size && status == HEARTH_OK; r++)
        status = links_in(run, r, scratch, list + first[r], first[r + 1] - first[r]);
    return status;
}

/* ---- room ---- */

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

static int links_make(struct dry_run *run, uint64_t moves, uint64_t sends)
{
    size_t size = (size_t)run->size;
    struct scratch scratch = {heap_alloc(run->heap, size, sizeof(uint32_t)),
                              heap_alloc(run->heap, size, sizeof(uint32_t)),
                              heap_alloc(run->heap, size, sizeof(uint32_t))};
    uint32_t *first = heap_alloc(run->heap, size + 1, sizeof *first);
    uint32_t *list = heap_alloc(run->heap, sends, sizeof *list);
    int status = HEARTH_OK;

    run->recv_link = heap_alloc_raw(run->heap, moves, sizeof *run->recv_link);
    run->send_link = heap_alloc_raw(run->heap, moves, sizeof *run->send_link);
    run->sends = heap_alloc_raw(run->heap, sends, sizeof *run->sends);
    run->links = heap_alloc_raw(run->heap, sends, sizeof *run->links);
    if (!scratch.mark || !scratch.link || !scratch.step || !first || !list || !run->recv_link ||
        !run->send_link || !run->sends || !run->links) {
        status = dry_no_memory(run);
    } else {
        for (uint64_t i = 0; i < moves; i++)
            run->recv_link[i] = run->send_link[i] = NO_LINK;
        status = links_join(run, &scratch, first, list);
    }
    heap_free(scratch.mark);
    heap_free(scratch.link);
    heap_free(scratch.step);
    heap_free(first);
    heap_free(list);
    return status;
}

static int frames_make(struct dry_run *run)
{
    uint64_t frames = 0;

    for (uint32_t i = 0; i < run->link_count; i++) {
        struct dry_link *link = &run->links[i];
        uint64_t lanes = run->members[link->from].plan->lanes, most = link->moves * lanes;
        link->slots = run->net->slots;
        if (lanes <= UINT32_MAX && most < link->slots)
            link->slots = most > 0 ? (uint32_t)most : 1;
        link->frames = frames;
        frames += link->slots;
        link->turn = 0;
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
