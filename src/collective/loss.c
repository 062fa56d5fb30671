/* SPDX-License-Identifier: Apache-2.0 */
/* Members that go: lost, left after their part, gone from the view; and how we go ourselves. */
#include <stdio.h>
#include <string.h>

#include "collective/state.h"

bool status_is_loss(int status)
{
    return status == HEARTH_PEER_LOST || status == HEARTH_GROUP_BROKEN || status == HEARTH_VIEW_CHANGED;
}

/* Whether frames of the flow have yet to come. */
static bool inflow_lacks(const struct op *op, uint32_t flow)
{
    const struct plan *plan = &op->program->plan;
    const struct flow_table *table = &op->program->in[flow];
    struct flow_cursor at = op->in[flow].floor;
    for (uint64_t come = op->in[flow].come; flow_more(table, &at); come >>= 1) {
        bool empty =
            !plan->sync && plan_recv_bytes(plan, flow_lane(plan, &at), flow_move(plan, table, &at)) == 0;
        if (!empty && !(come & 1))
            return true;
        flow_next(plan, table, &at);
    }
    return false;
}

/* Whether frames of the flow have yet to leave, or its receiver to say that it expects them. */
static bool outflow_lacks(const struct op *op, uint32_t flow)
{
    const struct plan *plan = &op->program->plan;
    const struct flow_table *table = &op->program->out[flow];
    struct flow_cursor at = op->out[flow].next;
    if (op->out[flow].unsent > 0 || (op->vector && !op->out[flow].granted))
        return true;
    for (; flow_more(table, &at); flow_next(plan, table, &at))
        if (plan->sync || plan_send_bytes(plan, flow_lane(plan, &at), flow_move(plan, table, &at)) > 0)
            return true;
    return false;
}

bool op_expects(const struct op *op, int rank)
{
    int32_t in = op->program->in_of[rank];
    return in >= 0 && inflow_lacks(op, (uint32_t)in);
}

/* Whether the operation still needs something of the member, or owes it something. */
static bool op_needs(const struct op *op, int rank)
{
    int32_t out = op->program->out_of[rank];
    return op_expects(op, rank) || (out >= 0 && outflow_lacks(op, (uint32_t)out));
}

/* Whether a frame of the operation was coming in when the connection ended. */
static bool op_torn(const struct op *op, const struct peer *peer)
{
    for (int i = 0; i < LINK_PIPES_MAX; i++)
        if (peer->incoming[i].op == op)
            return true;
    return false;
}

/* The operation cannot end well: `blamed` is the member that is gone, or whose loss made that one go. */
static void op_bereave(struct op *op, int blamed, enum hearth_reason reason, const char *how)
{
    char name[160];
    struct error ours, theirs;
    op_describe(op, name, sizeof name);
    error_because(&ours, reason, op->group->engine->loss, blamed, "%s: rank %d %s", name, blamed, how);
    theirs = ours;
    if (reason == HEARTH_REASON_PEER_LEFT) /* for them it may have done what they are at */
        theirs.status = HEARTH_CLOSED;
    op_abort(op, &ours, &theirs);
}

/* ---- lost ---- */

static void group_lost(struct group *group, const struct peer *peer, int blamed, const struct error *why)
{
    struct engine *engine = group->engine;
    struct list *item, *after;
    int rank = group->rank_of[peer->link.rank];
    char how[ERROR_TEXT_MAX];
    snprintf(how, sizeof how, "is lost: %.300s", why->text);
    if (group->broken.status == HEARTH_OK)
        error_because(&group->broken, why->reason, engine->loss, blamed, "rank %d %s", blamed, how);
    disputes_lost(group, rank);
    LIST_EACH (item, after, &engine->active) {
        struct op *op = container_of(item, struct op, item);
        /* What is disputed cannot end well, and its verdict may have been lost. */
        if (op->group != group ||
            (!op_torn(op, peer) && !op->disputed && !op->spoiled && !op_needs(op, rank)))
            continue;
        op_bereave(op, blamed, why->reason, how);
        after = engine->active.next; /* the end of one may have ended others */
    }
}

void engine_first_lost(struct engine *engine, int world_rank, enum hearth_reason reason)
{
    if (engine->first_lost != RANK_NONE)
        return;
    engine->first_lost = world_rank;
    engine->first_lost_reason = reason;
}

static void drop_early(struct peer *peer)
{
    while (!list_empty(&peer->early))
        slot_put(container_of(peer->early.next, struct slot, item));
    peer->early_bytes = 0;
}

void engine_peer_lost(struct engine *engine, int world_rank, int blamed, const struct error *why)
{
    struct list *item, *after;
    struct peer *peer = &engine->peers[world_rank];
    log_write(&engine->log, HEARTH_LOG_INFO, "HEARTH-PEER-LOST", "rank %d of the cluster is lost: %s",
              world_rank, why->text);
    peer->lost = true;
    engine_first_lost(engine, blamed, why->reason);
    drop_early(peer);
    while (!list_empty(&peer->notes)) {
        struct list *note = peer->notes.next;
        list_remove(note);
        list_push(&engine->free_notes, note);
    }
    peer->note_count = 0;
    LIST_EACH (item, after, &engine->groups) {
        struct group *group = container_of(item, struct group, item);
        int rank = group->rank_of[world_rank], cause = group->rank_of[blamed];
        if (rank != RANK_NONE)
            group_lost(group, peer, cause != RANK_NONE ? cause : rank, why);
    }
    memset(peer->incoming, 0, sizeof peer->incoming);
}

/* ---- left: all that a member did before it left counts ---- */

static const char *const has_left = "has left: it was closed";

/* It says no more: neither what it has not sent nor a verdict will come, nor why it took back what it had
 * lent: it has closed in the middle of the operation. */
static bool op_misses(const struct op *op, int rank)
{
    return op_needs(op, rank) || (op->disputed && rank == ARBITER) || op->spoiled || !op_loans_good(op, rank);
}

static void group_left(struct group *group, int rank, int blamed)
{
    struct engine *engine = group->engine;
    struct list *item, *after;
    disputes_lost(group, rank);
    LIST_EACH (item, after, &engine->active) {
        struct op *op = container_of(item, struct op, item);
        if (op->group != group || !op_misses(op, rank))
            continue;
        op_bereave(op, blamed, HEARTH_REASON_PEER_LEFT, has_left);
        after = engine->active.next;
    }
}

void engine_peer_left(struct engine *engine, int world_rank, int blamed)
{
    struct list *item, *after;
    log_write(&engine->log, HEARTH_LOG_INFO, "HEARTH-PEER-LEFT", "rank %d of the cluster %s", world_rank,
              has_left);
    if (engine->first_left == RANK_NONE)
        engine->first_left = blamed;
    LIST_EACH (item, after, &engine->groups) {
        struct group *group = container_of(item, struct group, item);
        int rank = group->rank_of[world_rank], cause = group->rank_of[blamed];
        if (rank != RANK_NONE)
            group_left(group, rank, cause != RANK_NONE ? cause : rank);
    }
}

void group_left_at(struct group *group, int rank, uint64_t begun)
{
    if (rank < 0 || rank >= group->view.size || rank == group->rank || begun >= group->left_at)
        return;
    group->left_at = begun;
    group->left_rank = rank;
}

void op_check_left(struct op *op)
{
    struct group *group = op->group;
    for (int i = 0; group->engine->first_left != RANK_NONE && i < group->view.size; i++) {
        const struct peer *peer = &group->engine->peers[group->members[i]];
        if (i == group->rank || !peer->left || !op_misses(op, i))
            continue;
        op_bereave(op, i, HEARTH_REASON_PEER_LEFT, has_left);
        return;
    }
}

/* ---- the view ---- */

static void end_changed(struct op *op, const char *why)
{
    char name[160];
    struct error error;
    op_describe(op, name, sizeof name);
    error_set(&error, HEARTH_VIEW_CHANGED, RANK_NONE, "%s: %s", name, why);
    op_abort(op, &error, &error);
}

/* The first reason counts. `blamed`: rank in the cluster, or RANK_NONE. */
static void view_over(struct engine *engine, enum hearth_reason reason, int blamed, const char *why)
{
    if (engine->changed.status == HEARTH_OK)
        error_because(&engine->changed, reason, HEARTH_VIEW_CHANGED, blamed, "%s", why);
}

void engine_view_changed(struct engine *engine, const char *why)
{
    view_over(engine, HEARTH_REASON_NONE, RANK_NONE, why);
    engine->over = true;
    while (!list_empty(&engine->active))
        end_changed(container_of(engine->active.next, struct op, item), why);
}

static void doubt(struct engine *engine, struct peer *peer)
{
    if (!peer->joined || peer->doubt_ns != 0)
        return;
    peer->doubt_ns = clock_now(engine->clock) + 1; /* never 0 */
    engine->doubts = true;
    engine->ping_ns = 0; /* it is looked at in the next round */
}

void engine_members_lost(struct engine *engine, uint64_t lost, const char *why)
{
    int first = lost != 0 ? __builtin_ctzll(lost) : RANK_NONE;
    view_over(engine, HEARTH_REASON_PEER_REMOVED, first < engine->size ? first : RANK_NONE, why);
    for (int i = 0; i < engine->size && i < 64; i++)
        if ((lost >> i & 1) != 0)
            doubt(engine, &engine->peers[i]);
}

/* Whether those who are gone from the view have done their part and said so. */
static bool all_left(const struct engine *engine)
{
    for (int i = 0; i < engine->size; i++)
        if (engine->peers[i].doubt_ns != 0 && (!engine->peers[i].left || engine->peers[i].lost))
            return false;
    return engine->doubts && !engine->over;
}

bool group_only_left(const struct group *group)
{
    return group->broken.status == HEARTH_OK &&
           (group->engine->changed.status == HEARTH_OK || all_left(group->engine));
}

bool group_over(const struct group *group, struct error *why)
{
    const struct engine *engine = group->engine;
    bool done = group->begun >= group->left_at;
    if (group->broken.status != HEARTH_OK) {
        *why = group->broken;
    } else if (engine->changed.status != HEARTH_OK && (done || !all_left(engine))) {
        *why = engine->changed;
        why->rank = why->rank != RANK_NONE ? group->rank_of[why->rank] : RANK_NONE;
    } else if (done) {
        error_because(why, HEARTH_REASON_PEER_LEFT, engine->loss, group->left_rank, "rank %d %s",
                      group->left_rank, has_left);
    } else {
        return false;
    }
    return true;
}

/* ---- we ---- */

bool engine_expel(struct engine *engine, int rank, const char *why)
{
    struct peer *peer = &engine->peers[rank];
    if (!peer->joined || !link_up(&peer->link))
        return false;
    struct error bye;
    error_because(&bye, HEARTH_REASON_PEER_REMOVED, HEARTH_PEER_LOST, rank, "%s", why);
    link_dismiss(&peer->link, &bye);
    return true;
}

/* The others find out by our goodbye, each for itself: who needs us tells those who do not. */
static void end_all(struct engine *engine)
{
    while (!list_empty(&engine->active)) {
        struct op *op = container_of(engine->active.next, struct op, item);
        char name[160];
        struct error why;
        op_describe(op, name, sizeof name);
        error_set(&why, HEARTH_CLOSED, op->group->rank, "%s: the node was closed", name);
        if (!op->group->outer)
            op->group->begun--; /* we take no part in it */
        op_end(op, &why);
    }
}

/* How far we have come, or another that left before us, so that nobody waits for us in what comes after it.
 * Who is not told, since so much else waits to be said, finds out by what it misses. */
static void group_leave(struct group *group)
{
    bool other = group->left_at < group->begun;
    struct frame frame = {.kind = FRAME_LEAVE,
                          .group = group->view.group,
                          .epoch = group->view.epoch,
                          .lane = (uint32_t)(other ? group->left_rank : group->rank),
                          .sequence = other ? group->left_at : group->begun};
    for (int i = 0; i < group->view.size; i++) {
        struct link *link = i != group->rank ? engine_link(group, i) : NULL;
        if (link && link->control_count < LINK_CONTROL_QUEUE / 2)
            link_send_control(link, &frame, NULL);
    }
}

void engine_part(struct engine *engine)
{
    struct list *item, *after;
    struct error bye;
    /* Others may hear of us before they hear of who went first. */
    if (engine->first_lost == RANK_NONE)
        error_because(&bye, HEARTH_REASON_PEER_LEFT, HEARTH_CLOSED,
                      engine->first_left != RANK_NONE ? engine->first_left : engine->rank, "it was closed");
    else
        error_because(&bye, engine->first_lost_reason, HEARTH_PEER_LOST, engine->first_lost,
                      "rank %d of the cluster was lost, then it was closed", engine->first_lost);
    end_all(engine);
    LIST_EACH (item, after, &engine->groups) {
        struct group *group = container_of(item, struct group, item);
        if (group->outer ==
            NULL) /* parts are not counted: who needs one of ours finds out by what it misses */
            group_leave(group);
    }
    for (int i = 0; i < engine->size; i++) {
        struct peer *peer = &engine->peers[i];
        if (!peer->joined)
            continue;
        link_part(&peer->link, &bye);
        drop_early(peer);
        memset(peer->incoming, 0, sizeof peer->incoming);
    }
}

bool engine_parted(const struct engine *engine)
{
    for (int i = 0; i < engine->size; i++)
        if (engine->peers[i].joined && link_up(&engine->peers[i].link))
            return false;
    return true;
}
