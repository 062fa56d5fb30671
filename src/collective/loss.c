/* SPDX-License-Identifier: Apache-2.0 */
/* Members that go: lost, left after their part, gone from the view; and how we go ourselves. */
#include <stdio.h>
#include <string.h>

#include "collective/state.h"

#define PING_NS  (1 * NS_PER_S)    /* how often a peer is asked whether it lives */
#define DOUBT_NS (500 * NS_PER_MS) /* of silence from a peer that others know to be gone */

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

/* A peer that has ended: lost, or left after its part. */
struct departure {
    const struct peer *peer;
    int blamed; /* rank in the cluster: the peer, or the one whose loss made it go */
    bool left;
    enum hearth_reason reason;
    const char *how;
};

/* Whether frames of the operation were coming in when the connection ended. */
static bool op_torn(const struct op *op, const struct peer *peer)
{
    for (int i = 0; i < LINK_PIPES_MAX; i++)
        if (peer->incoming[i].op == op)
            return true;
    return false;
}

/* A member that has left says no more: neither what it has not sent nor a verdict will come, nor why it took
 * back what it had lent: it has closed in the middle of the operation. */
static bool op_misses(const struct op *op, int rank)
{
    return op_needs(op, rank) || (op->disputed && rank == ARBITER) || op->spoiled || !op_loans_good(op, rank);
}

/* Of a lost one: what is disputed cannot end well, and its verdict may have been lost. */
static bool op_fails(const struct op *op, const struct departure *d, int rank)
{
    if (d->left)
        return op_misses(op, rank);
    return op_torn(op, d->peer) || op->disputed || op->spoiled || op_needs(op, rank);
}

/* The operation cannot end well: `blamed` is the member that is gone, or whose loss made that one go. */
static void op_bereave(struct op *op, int blamed, enum hearth_reason reason, const char *how)
{
    struct error ours, theirs;
    error_because(&ours, reason, op->group->engine->loss, blamed, "%s: rank %d %s", op_name(op).s, blamed,
                  how);
    theirs = ours;
    if (reason == HEARTH_REASON_PEER_LEFT) /* for them it may have done what they are at */
        theirs.status = HEARTH_CLOSED;
    op_abort(op, &ours, &theirs);
}

static void group_departed(struct group *group, const struct departure *d)
{
    struct engine *engine = group->engine;
    struct list *item, *after;
    int rank = group->rank_of[d->peer->link.rank], cause = group->rank_of[d->blamed];
    if (rank == RANK_NONE)
        return;
    cause = cause != RANK_NONE ? cause : rank;
    if (!d->left && group->broken.status == HEARTH_OK) {
        error_because(&group->broken, d->reason, engine->loss, cause, "rank %d %s", cause, d->how);
        messages_group_over(engine->messages, &group->messages, &group->broken);
        if (!group->outer)
            messages_tell_over(engine->messages, &group->messages);
    }
    disputes_lost(group, rank);
    LIST_EACH (item, after, &engine->active) {
        struct op *op = container_of(item, struct op, item);
        if (op->group != group || !op_fails(op, d, rank))
            continue;
        op_bereave(op, cause, d->reason, d->how);
        after = engine->active.next; /* the end of one may have ended others */
    }
}

static void groups_departed(struct engine *engine, const struct departure *d)
{
    struct list *item, *after;
    messages_departed(engine->messages, &(struct message_loss){.peer = d->peer->link.rank,
                                                               .left = d->left,
                                                               .status = engine->loss,
                                                               .reason = d->reason,
                                                               .how = d->how});
    LIST_EACH (item, after, &engine->groups)
        group_departed(container_of(item, struct group, item), d);
}

/* ---- lost ---- */

static void first_lost(struct engine *engine, int world_rank, enum hearth_reason reason)
{
    if (engine->first_lost != RANK_NONE)
        return;
    engine->first_lost = world_rank;
    engine->first_lost_reason = reason;
}

void group_lost_elsewhere(struct group *group, const struct error *why)
{
    if (group->broken.status == HEARTH_OK)
        group->broken = *why;
    messages_group_over(group->engine->messages, &group->messages, &group->broken);
    if (why->rank >= 0 && why->rank < group->view.size)
        first_lost(group->engine, group->members[why->rank], why->reason);
}

/* A member has lost another, which may be there for us: it neither sends nor receives in the group now. */
void group_messages_over(struct peer *peer, struct group *group, const struct frame *frame,
                         const uint8_t *payload)
{
    struct error why;
    if (!engine_heard(peer->engine, frame, payload, &why)) {
        link_fail(&peer->link, HEARTH_PROTOCOL, "an end of messages with a bad payload");
        return;
    }
    why.status = peer->engine->loss; /* each engine has its own name for it */
    if (group)
        messages_group_over(peer->engine->messages, &group->messages, &why);
}

static void drop_incoming(struct peer *peer)
{
    while (!list_empty(&peer->early))
        slot_put(container_of(peer->early.next, struct slot, item));
    peer->early_bytes = 0;
    memset(peer->incoming, 0, sizeof peer->incoming);
}

/* Its groups are broken, operations that need it fail. */
static void peer_lost(struct peer *peer, int blamed, const struct error *why)
{
    struct engine *engine = peer->engine;
    struct list *note;
    char how[ERROR_TEXT_MAX];
    snprintf(how, sizeof how, "is lost: %.300s", why->text);
    log_write(&engine->log, HEARTH_LOG_INFO, "HEARTH-PEER-LOST", "rank %d of the cluster is lost: %s",
              peer->link.rank, why->text);
    peer->lost = true;
    first_lost(engine, blamed, why->reason);
    while ((note = list_pop(&peer->notes)))
        list_push(&engine->free_notes, note);
    peer->note_count = 0;
    groups_departed(engine, &(struct departure){peer, blamed, false, why->reason, how});
    drop_incoming(peer);
}

void peer_down(void *arg, struct link *link, const struct error *why)
{
    struct peer *peer = arg;
    if (peer->left)
        return;
    atomic_fetch_add_explicit(&peer->engine->metrics->connection_errors, 1, memory_order_relaxed);
    peer_lost(peer, link->rank, why);
}

/* ---- left: all that a member did before it left counts ---- */

static const char *const has_left = "has left: it was closed";

static void peer_left(struct peer *peer, int blamed)
{
    struct engine *engine = peer->engine;
    log_write(&engine->log, HEARTH_LOG_INFO, "HEARTH-PEER-LEFT", "rank %d of the cluster %s", peer->link.rank,
              has_left);
    if (engine->first_left == RANK_NONE)
        engine->first_left = blamed;
    groups_departed(engine, &(struct departure){peer, blamed, true, HEARTH_REASON_PEER_LEFT, has_left});
}

/* A peer that closes after another was lost or left says so: failures that follow are blamed on that one. If
 * that one is us, we were expelled, and must not blame the sender. */
void peer_bye(struct peer *peer, const struct frame *frame, const uint8_t *payload)
{
    struct error why;
    if (!engine_heard(peer->engine, frame, payload, &why)) {
        link_fail(&peer->link, HEARTH_PROTOCOL, "a goodbye with a bad payload");
        return;
    }
    int blamed = why.rank >= 0 && why.rank < peer->engine->size ? why.rank : peer->link.rank;
    peer->left = true;
    if (why.status == HEARTH_PEER_LOST)
        peer_lost(peer, blamed, &why);
    else
        peer_left(peer, blamed);
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

/* ---- silent ---- */

static uint64_t ping_interval(const struct engine *engine)
{
    uint64_t quarter = engine->peer_timeout_ns / 4;
    return quarter > 0 && quarter < PING_NS ? quarter : PING_NS;
}

bool engine_watches_peers(const struct engine *engine)
{
    return engine->peer_timeout_ns > 0 || engine->doubts;
}

void peer_watch(struct peer *peer)
{
    struct engine *engine = peer->engine;
    peer->heard_ns = engine->looked_ns = clock_now(engine->clock);
    engine->ping_ns = engine->looked_ns + ping_interval(engine);
}

static void peer_silent(struct peer *peer, uint64_t now)
{
    char what[80];
    snprintf(what, sizeof what, "it has said nothing for %llu ms",
             (unsigned long long)((now - peer->heard_ns) / NS_PER_MS));
    if (peer->doubt_ns != 0)
        link_lost(&peer->link, HEARTH_REASON_PEER_REMOVED, "it is gone from the group");
    else
        link_lost(&peer->link, HEARTH_REASON_PEER_SILENT, what);
}

/* When it is lost if no more is heard of it. A peer that has never spoken may still be joining others, which
 * takes long where there are many; if it died, its connections tell. */
static uint64_t silence_ends(const struct engine *engine, const struct peer *peer)
{
    uint64_t timeout = engine->peer_timeout_ns, end = timeout > 0 ? peer->heard_ns + timeout : NEVER_NS;
    if (peer->doubt_ns == 0)
        return peer->heard == 0 && end < engine->opening_ns ? engine->opening_ns : end;
    uint64_t soon = peer->heard_ns + DOUBT_NS, last = timeout > 0 ? peer->doubt_ns + timeout : NEVER_NS;
    end = soon < end ? soon : end;
    return last < end ? last : end;
}

/* Any byte from a peer shows that it lives. Every second each is asked; a peer that is silent for
 * peer_timeout is lost. If it was us who slept (a stopped process, a laptop), no peer is to blame. */
bool engine_check_peers(struct engine *engine, uint64_t now)
{
    uint64_t interval = ping_interval(engine);
    if (!engine_watches_peers(engine))
        return false;
    bool pings = engine->peer_timeout_ns > 0;
    bool frozen = now - engine->looked_ns > interval + engine->peer_timeout_ns / 2;
    engine->looked_ns = now;
    if (now < engine->ping_ns && !frozen)
        return false;
    engine->ping_ns = now + interval;
    for (int i = 0; i < engine->size; i++) {
        struct peer *peer = &engine->peers[i];
        if (!peer->joined || !link_up(&peer->link))
            continue;
        uint64_t heard = link_heard(&peer->link);
        if (frozen || heard != peer->heard)
            peer->heard_ns = now;
        peer->heard = heard;
        uint64_t end = silence_ends(engine, peer);
        if (now >= end)
            peer_silent(peer, now);
        else if (pings && peer->doubt_ns == 0) /* of one in doubt, answers mean nothing */
            link_send_control(&peer->link, &(struct frame){.kind = FRAME_PING}, NULL);
        if (end > now && end < engine->ping_ns)
            engine->ping_ns = end;
    }
    return true;
}

/* ---- the view ---- */

static void end_changed(struct op *op, const char *why)
{
    struct error error;
    error_set(&error, HEARTH_VIEW_CHANGED, RANK_NONE, "%s: %s", op_name(op).s, why);
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
    struct error error;
    error_set(&error, HEARTH_VIEW_CHANGED, RANK_NONE, "%s", why);
    messages_end(engine->messages, NULL, &error);
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

/* Whether the members of the group have changed, and those that are gone have not all left in peace. */
static bool view_lost(const struct group *group, bool done, struct error *why)
{
    const struct engine *engine = group->engine;
    if (engine->changed.status == HEARTH_OK || (!done && all_left(engine)))
        return false;
    *why = engine->changed;
    why->rank = why->rank != RANK_NONE ? group->rank_of[why->rank] : RANK_NONE;
    return true;
}

bool group_lost(const struct group *group, struct error *why)
{
    if (group->broken.status == HEARTH_OK)
        return view_lost(group, false, why);
    *why = group->broken;
    return true;
}

bool group_over(const struct group *group, struct error *why)
{
    const struct engine *engine = group->engine;
    bool done = group->begun >= group->left_at;
    if (group->broken.status != HEARTH_OK) {
        *why = group->broken;
    } else if (view_lost(group, done, why)) {
        return true;
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

/* The others learn it from our goodbye: members that need us tell those that do not. */
static void end_ops(struct engine *engine)
{
    while (!list_empty(&engine->active)) {
        struct op *op = container_of(engine->active.next, struct op, item);
        struct error why;
        error_set(&why, HEARTH_CLOSED, op->group->rank, "%s: the node was closed", op_name(op).s);
        if (!op->group->outer)
            op->group->begun--; /* we take no part in it */
        op_end(op, &why);
    }
}

static void end_all(struct engine *engine)
{
    struct error why;
    end_ops(engine);
    error_set(&why, HEARTH_CLOSED, RANK_NONE, "the node was closed");
    messages_end(engine->messages, NULL, &why);
}

void engine_end_waits(struct engine *engine)
{
    struct error why;
    end_ops(engine);
    error_set(&why, HEARTH_CLOSED, RANK_NONE, "the node was closed");
    messages_end_waits(engine->messages, &why);
}

/* Tells how far we have come, or another that left before us, so that nobody waits for us in later
 * operations. A peer with a long queue is not told: it finds out by what it misses. */
static void group_leave(struct group *group)
{
    bool other = group->left_at < group->begun;
    struct frame frame = group_frame(group, FRAME_LEAVE, 0, other ? group->left_at : group->begun);
    frame.lane = (uint32_t)(other ? group->left_rank : group->rank);
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
        if (!group->outer) /* parts are not counted: a member that needs one of ours misses it */
            group_leave(group);
    }
    for (int i = 0; i < engine->size; i++) {
        struct peer *peer = &engine->peers[i];
        if (!peer->joined)
            continue;
        link_part(&peer->link, &bye);
        drop_incoming(peer);
    }
}

bool engine_parted(const struct engine *engine)
{
    for (int i = 0; i < engine->size; i++)
        if (engine->peers[i].joined && link_up(&engine->peers[i].link))
            return false;
    return true;
}
