/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, drives and closes an engine: peers, deadlines. */
#include "collective/engine.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "collective/state.h"
#include "core/hash.h"

/* ---- look-ups ---- */

struct group *engine_group(struct engine *engine, uint64_t id)
{
    struct list *item, *after;
    LIST_EACH (item, after, &engine->groups) {
        struct group *group = container_of(item, struct group, item);
        if (group->view.group == id)
            return group;
    }
    return NULL;
}

bool engine_group_closed(const struct engine *engine, uint64_t id)
{
    for (uint32_t i = 0; i < CLOSED_KEPT; i++)
        if (engine->closed[i] == id)
            return true;
    return false;
}

static struct list *bucket_of(struct engine *engine, uint64_t group, uint64_t tag, uint64_t sequence)
{
    return &engine->buckets[hash_mix(hash_mix(group, tag), sequence) % OP_BUCKETS];
}

void engine_index(struct engine *engine, struct op *op)
{
    list_push(bucket_of(engine, op->group->view.group, op->tag, op->sequence), &op->bucket);
}

struct op *engine_op(struct engine *engine, uint64_t group, uint64_t tag, uint64_t sequence)
{
    struct list *item, *after;
    LIST_EACH (item, after, bucket_of(engine, group, tag, sequence)) {
        struct op *op = container_of(item, struct op, bucket);
        if (op->group->view.group == group && op->tag == tag && op->sequence == sequence)
            return op;
    }
    return NULL;
}

struct link *engine_link(struct group *group, int rank)
{
    struct peer *peer = &group->engine->peers[group->members[rank]];
    return peer->joined && link_up(&peer->link) ? &peer->link : NULL;
}

/* ---- control frames ---- */

struct frame group_frame(const struct group *group, uint8_t kind, uint64_t tag, uint64_t sequence)
{
    return (struct frame){.kind = kind,
                          .group = group->view.group,
                          .epoch = group->view.epoch,
                          .tag = tag,
                          .sequence = sequence};
}

void group_send(struct group *group, int rank, const struct frame *frame, const void *payload)
{
    struct link *link = engine_link(group, rank);
    if (link)
        link_send_control(link, frame, payload);
}

bool engine_heard(const struct engine *engine, const struct frame *frame, const uint8_t *payload,
                  struct error *why)
{
    return error_decode(why, payload, frame->length) == HEARTH_OK && why->origin < engine->size;
}

/* ---- time ---- */

/* The rank that an expired operation names is one that has not begun it, as far as is known here: one
 * that has waits for another itself. */
static void op_expired(struct op *op)
{
    char whom[64] = "";
    struct error ours, theirs;
    int rank = op_waits_for(op), lacking = op_lacks(op);
    unsigned long long ms = (op->deadline_ns - op->posted_ns) / NS_PER_MS;
    if (op_awaits_input(op))
        snprintf(whom, sizeof whom, ", waiting for its input to be copied from the device");
    else if (rank != RANK_NONE)
        snprintf(whom, sizeof whom, ", waiting for rank %d%s", rank,
                 lacking == RANK_NONE ? ", which has begun it" : "");
    error_set(&ours, HEARTH_TIMEOUT, lacking, "%s: timed out: not done within the timeout of %llu ms%s",
              op_name(op).s, ms, whom);
    error_because(&theirs, HEARTH_REASON_TIMED_OUT, HEARTH_ABORTED, op->group->rank,
                  "%s: timed out there: its timeout of %llu ms passed%s", op_name(op).s, ms, whom);
    op_abort(op, &ours, &theirs);
}

static void op_nag(struct op *op, uint64_t now)
{
    char whom[32] = "its input";
    op->nagged_ns = now;
    if (!op_awaits_input(op))
        snprintf(whom, sizeof whom, "rank %d", op_waits_for(op));
    log_write(&op->group->engine->log, HEARTH_LOG_WARN, "HEARTH-OP-LATE", "%s: waiting for %s since %llu s",
              op_name(op).s, whom, (unsigned long long)((now - op->posted_ns) / NS_PER_S));
}

static bool check_time(struct engine *engine)
{
    struct list *item, *after;
    if (list_empty(&engine->active) && !engine_watches_peers(engine) && !engine->stuck &&
        !messages_busy(engine->messages))
        return false;
    uint64_t now = clock_now(engine->clock);
    traffic_look(engine, now);
    bool moved = engine_check_peers(engine, now);
    moved = messages_check_time(engine->messages, now) || moved;
    LIST_EACH (item, after, &engine->active) {
        struct op *op = container_of(item, struct op, item);
        if (now >= op->deadline_ns) {
            op_expired(op);
            moved = true;
            after = engine->active.next;
        } else if (now >= op->ask_ns) {
            op->ask_ns = NEVER_NS;
            flows_ask(op);
            moved = true; /* what is queued must leave */
        } else if (now - op->nagged_ns >= NAG_NS) {
            op_nag(op, now);
        }
    }
    return moved;
}

uint64_t engine_deadline(const struct engine *engine)
{
    uint64_t soonest = engine_watches_peers(engine) && engine->size > 1 ? engine->ping_ns : NEVER_NS;
    soonest = engine->throttle.due_ns < soonest ? engine->throttle.due_ns : soonest;
    uint64_t message = messages_deadline(engine->messages);
    soonest = message < soonest ? message : soonest;
    for (int i = 0; i < engine->size; i++) {
        uint64_t due = engine->peers[i].joined ? link_due(&engine->peers[i].link) : NEVER_NS;
        soonest = due < soonest ? due : soonest;
    }
    for (const struct list *item = engine->active.next; item != &engine->active; item = item->next) {
        const struct op *op = container_of(item, struct op, item);
        uint64_t nag = op->nagged_ns + NAG_NS;
        uint64_t next = nag < op->deadline_ns ? nag : op->deadline_ns;
        next = op->ask_ns < next ? op->ask_ns : next;
        soonest = next < soonest ? next : soonest;
    }
    return soonest;
}

/* ---- driving ---- */

/* Then the caller has a look whether what it waits for has ended. One round there is always: what has ended
 * without links (a cancelled operation) left words for the other members in their queues. */
#define ROUNDS_MAX 64

static bool pump_all(struct engine *engine)
{
    bool moved = false, limited = engine->throttle.rate > 0;
    bool first = messages_begin_expected(engine->messages);
    bool data = !first || !list_empty(&engine->active) || messages_pieces_expected(engine->messages);
    throttle_ask_again(&engine->throttle);
    for (int i = 0; i < engine->size; i++) {
        if (!engine->peers[i].joined)
            continue;
        if (limited)
            throttle_tick(&engine->throttle, clock_now(engine->clock));
        engine->peers[i].link.expects_first = first;
        engine->peers[i].link.expects_data = data;
        moved = link_pump(&engine->peers[i].link) || moved;
    }
    return moved;
}

bool engine_progress(struct engine *engine)
{
    bool any = false, moved = true;
    uint64_t mode = fpmode_enter();
    for (int round = 0; round == 0 || (moved && round < ROUNDS_MAX && list_empty(&engine->finished));
         round++) {
        moved = pump_all(engine);
        any = any || moved;
    }
    any = check_time(engine) || any;
    fpmode_leave(mode);
    return any;
}

size_t engine_waits(const struct engine *engine, struct sock_wait *items, size_t max)
{
    size_t count = 0;
    for (int i = 0; i < engine->size; i++)
        if (engine->peers[i].joined)
            count += link_waits(&engine->peers[i].link, items + count, max - count);
    return count;
}

void engine_attend(struct engine *engine, const struct sock_wait *items, size_t count)
{
    for (int i = 0; i < engine->size && count > 0; i++) {
        struct link *link = &engine->peers[i].link;
        if (!engine->peers[i].joined || !link_up(link))
            continue;
        size_t pipes = (size_t)link->pipe_count < count ? (size_t)link->pipe_count : count;
        link_attend(link, items, pipes);
        items += pipes;
        count -= pipes;
    }
}

void engine_doze(struct engine *engine, bool asleep)
{
    for (int i = 0; i < engine->size; i++)
        if (engine->peers[i].joined)
            link_doze(&engine->peers[i].link, asleep);
}

bool engine_stuck(const struct engine *engine)
{
    for (int i = 0; i < engine->size; i++)
        if (engine->peers[i].joined && link_stuck(&engine->peers[i].link))
            return true;
    return false;
}

bool engine_busy(const struct engine *engine)
{
    return !list_empty(&engine->active) || messages_busy(engine->messages);
}

void engine_finish(struct engine *engine, struct completion *completion, const struct error *error)
{
    completion->error = *error;
    completion->ended = true;
    list_push(&engine->finished, &completion->item);
}

struct completion *engine_finished(struct engine *engine)
{
    struct list *item = list_pop(&engine->finished);
    return item ? container_of(item, struct completion, item) : NULL;
}

/* ---- messages ---- */

static struct link *message_link(void *arg, int rank)
{
    struct engine *engine = arg;
    struct peer *peer = &engine->peers[rank];
    return peer->joined && link_up(&peer->link) ? &peer->link : NULL;
}

static const struct message_group *message_group_of(void *arg, uint64_t id)
{
    struct group *group = engine_group(arg, id);
    return group ? &group->messages : NULL;
}

static bool message_group_closed(void *arg, uint64_t id)
{
    return engine_group_closed(arg, id);
}

struct group *group_of_messages(const struct message_group *group)
{
    return container_of(group, struct group, messages);
}

void engine_set_sink(struct engine *engine, enum message_channel channel, const struct message_sink *sink)
{
    messages_set_sink(engine->messages, channel, sink);
}

/* Whether messages to or from the member can still travel; `rank` HEARTH_ANY_RANK: of any other member. */
static bool message_gone(const struct group *group, int rank, struct error *why)
{
    struct engine *engine = group->engine;
    bool any = rank == HEARTH_ANY_RANK;
    if (rank == group->rank || group->view.size == 1)
        return false; /* a member may send to itself */
    for (int i = any ? 0 : rank; i <= (any ? group->view.size - 1 : rank); i++)
        if (message_link(engine, group->members[i]) && !engine->peers[group->members[i]].left)
            return false;
    if (any)
        error_because(why, HEARTH_REASON_PEER_LEFT, engine->loss, RANK_NONE, "all other members have left");
    else
        error_because(why, HEARTH_REASON_PEER_LEFT, engine->loss, rank, "rank %d has left: it was closed",
                      rank);
    return true;
}

bool group_reaches(const struct group *group, int rank)
{
    return rank == group->rank || message_link(group->engine, group->members[rank]);
}

static int message_check(const struct group *group, const char *what, struct error *error)
{
    struct error why;
    if (!group_lost(group, &why)) {
        if (group->messages.over.status == HEARTH_OK)
            return HEARTH_OK;
        why = group->messages.over;
    }
    bool changed = why.status == HEARTH_VIEW_CHANGED;
    why.status = changed ? HEARTH_VIEW_CHANGED : HEARTH_GROUP_BROKEN;
    return error_wrap(error, &why, "%s: the group %s: %s", what, changed ? "has changed" : "is broken",
                      why.text);
}

int group_message_send(struct group *group, const struct message_send *send, struct completion *completion,
                       struct error *error)
{
    struct error why;
    int status = message_check(group, "send", error);
    if (status == HEARTH_OK && message_gone(group, send->to, &why))
        status = error_wrap(error, &why, "send: %s", why.text);
    if (status == HEARTH_OK)
        status = message_send(group->engine->messages, &group->messages, send, completion, error);
    if (status != HEARTH_OK) {
        error->fate = HEARTH_FATE_NOT_DELIVERED;
        return status;
    }
    struct link *link = engine_link(group, send->to);
    if (link && !(completion && completion->ended) && link->failure.status == HEARTH_OK)
        link_pump_out(link); /* at once: a short one has ended then */
    return HEARTH_OK;
}

int group_message_recv(struct group *group, const struct message_recv *recv, struct completion *completion,
                       struct error *error)
{
    struct error why;
    int status = message_check(group, "receive", error);
    if (status != HEARTH_OK)
        return status;
    struct message_recv full = *recv;
    full.gone = message_gone(group, recv->from, &why) ? &why : NULL;
    status = message_recv(group->engine->messages, &group->messages, &full, completion, error);
    for (int i = 0; status == HEARTH_OK && completion->ended && i < group->view.size; i++) {
        struct link *link = engine_link(group, i);
        if (link && link->control_count > 0 && link->failure.status == HEARTH_OK)
            link_pump_out(link); /* its sender may wait for the answer, and no thread drives after this */
    }
    return status;
}

/* ---- opening and closing ---- */

int engine_open(const struct engine_setup *setup, struct engine **out)
{
    struct engine *engine = heap_alloc(setup->heap, 1, sizeof *engine);
    if (!engine)
        return HEARTH_NO_MEMORY;
    engine->heap = setup->heap;
    engine->metrics = setup->metrics;
    engine->log = setup->log;
    engine->clock = setup->clock;
    engine->kernels = kernels_best();
    engine->rank = setup->rank;
    engine->size = setup->size;
    engine->ops_max = setup->ops_max;
    engine->eager_bytes = setup->eager_bytes;
    engine->instance = setup->instance;
    engine->peer_timeout_ns = setup->peer_timeout_ns;
    engine->opening_ns = setup->opening_ns;
    engine->first_lost = engine->first_left = RANK_NONE;
    engine->loss = setup->loss != 0 ? setup->loss : HEARTH_PEER_LOST;
    throttle_init(&engine->throttle, setup->rate);
    throttle_tick(&engine->throttle, clock_now(setup->clock));
    slot_pool_init(&engine->slots, setup->heap);
    list_init(&engine->groups);
    list_init(&engine->active);
    list_init(&engine->finished);
    list_init(&engine->disputes);
    list_init(&engine->orphans);
    list_init(&engine->free_notes);
    static_assert(METRICS_KINDS == PLAN_KIND_COUNT, "metrics count what plans do");
    for (uint32_t i = 0; i < OP_BUCKETS; i++)
        list_init(&engine->buckets[i]);
    struct messages_setup messages = {.heap = setup->heap,
                                      .rank = setup->rank,
                                      .size = setup->size,
                                      .eager_bytes = setup->eager_bytes,
                                      .chunk_bytes = setup->chunk_bytes,
                                      .finished = &engine->finished,
                                      .arg = engine,
                                      .link = message_link,
                                      .group = message_group_of,
                                      .closed = message_group_closed};
    engine->peers = heap_alloc(setup->heap, (size_t)setup->size, sizeof *engine->peers);
    if (!engine->peers || messages_open(&messages, &engine->messages) != HEARTH_OK) {
        heap_free(engine->peers);
        heap_free(engine);
        return HEARTH_NO_MEMORY;
    }
    for (int i = 0; i < setup->size; i++) {
        engine->peers[i].engine = engine;
        list_init(&engine->peers[i].early);
        list_init(&engine->peers[i].notes);
    }
    *out = engine;
    return HEARTH_OK;
}

int engine_join(struct engine *engine, int rank, struct conn *const *conns, int count)
{
    struct peer *peer = &engine->peers[rank];
    struct link_setup setup = {
        .conns = conns,
        .count = count,
        .events = &dispatch_events,
        .events_arg = peer,
        .heap = engine->heap,
        .metrics = engine->metrics,
        .throttle = &engine->throttle,
        .rank = rank,
        .eager_budget = engine->eager_bytes,
    };
    link_init(&peer->link, &setup);
    peer->joined = true;
    struct hello_record hello = {
        .version_min = FRAME_VERSION,
        .version_max = FRAME_VERSION,
        .features = FEATURE_MESSAGES,
        .rank = (uint32_t)engine->rank,
        .size = (uint32_t)engine->size,
        .instance = engine->instance,
    };
    uint8_t payload[FRAME_CONTROL_MAX];
    size_t len = hello_encode(&hello, payload, sizeof payload);
    link_send_hello(&peer->link, payload, len);
    peer_watch(peer);
    return peer->link.failure.status;
}

static void notes_free(struct list *notes)
{
    struct list *item;
    while ((item = list_pop(notes)))
        heap_free(container_of(item, struct note, item));
}

static void engine_free(struct engine *engine)
{
    while (!list_empty(&engine->groups))
        group_close(container_of(engine->groups.next, struct group, item));
    for (int i = 0; i < engine->size; i++) {
        while (!list_empty(&engine->peers[i].early))
            slot_put(container_of(engine->peers[i].early.next, struct slot, item));
        notes_free(&engine->peers[i].notes);
    }
    notes_free(&engine->free_notes);
    retired_free(&engine->orphans);
    slot_pool_fini(&engine->slots);
    messages_close(engine->messages);
    heap_free(engine->peers);
    heap_free(engine);
}

void engine_close(struct engine *engine)
{
    engine_part(engine);
    pump_all(engine);
    for (int i = 0; i < engine->size; i++)
        if (engine->peers[i].joined)
            link_fini(&engine->peers[i].link);
    engine_free(engine);
}
