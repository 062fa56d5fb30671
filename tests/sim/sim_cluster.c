/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster: its clock, its post, its roads. */
#include "sim_cluster.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "sim_cluster_facts.h"

enum sim_cluster_event_kind {
    SIM_CLUSTER_MESSAGE,
    SIM_CLUSTER_TICK,
    SIM_CLUSTER_LINKED,
    SIM_CLUSTER_UNLINKED
};

struct sim_cluster_event {
    uint64_t at_ns, order;
    enum sim_cluster_event_kind kind;
    int to, from;
    uint32_t generation;
    struct identity who, other;     /* whom it is for, and about: not their successors in the same nodes */
    struct outbox_message *message; /* or NULL */
};

/* ---- what comes when ---- */

static bool earlier(const struct sim_cluster_event *a, const struct sim_cluster_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void event_push(struct sim_cluster *t, struct sim_cluster_event event)
{
    if (t->event_count == t->event_room) {
        t->event_room = t->event_room > 0 ? 2 * t->event_room : 256;
        t->events = realloc(t->events, t->event_room * sizeof t->events[0]);
    }
    event.order = t->order++;
    size_t at = t->event_count++;
    while (at > 0 && earlier(&event, &t->events[(at - 1) / 2])) {
        t->events[at] = t->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    t->events[at] = event;
}

static struct sim_cluster_event event_pop(struct sim_cluster *t)
{
    struct sim_cluster_event first = t->events[0], last = t->events[--t->event_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= t->event_count)
            break;
        if (child + 1 < t->event_count && earlier(&t->events[child + 1], &t->events[child]))
            child++;
        if (!earlier(&t->events[child], &last))
            break;
        t->events[at] = t->events[child];
        at = child;
    }
    t->events[at] = last;
    return first;
}

void sim_cluster_trace(struct sim_cluster *t, const char *format, ...)
{
    if (!t->trace)
        return;
    va_list args;
    fprintf(t->trace, "%9.3f  ", (double)t->now_ns / 1e9);
    va_start(args, format);
    vfprintf(t->trace, format, args);
    va_end(args);
    fputc('\n', t->trace);
}

/* ---- the post ---- */

static const char *message_name(uint8_t kind)
{
    static const char *const names[] = {"",     "",        "beat",   "view",  "call",
                                        "vote", "propose", "accept", "leave", "dissolve"};
    return kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

static bool chance(struct sim_cluster *t, uint32_t of_1000)
{
    return of_1000 > 0 && prng_below(&t->prng, 1000) < of_1000;
}

static uint64_t travel_ns(struct sim_cluster *t)
{
    return t->latency_ns + prng_below(&t->prng, t->jitter_ns + 1);
}

static void post(struct sim_cluster *t, int from, int to, struct outbox_message *message)
{
    struct road *road = &t->roads[from][to];
    uint64_t at = t->now_ns + travel_ns(t);
    if (!chance(t, t->mix))
        at = at > road->free_ns ? at : road->free_ns;
    road->free_ns = at > road->free_ns ? at : road->free_ns;
    event_push(t, (struct sim_cluster_event){.at_ns = at,
                                             .kind = SIM_CLUSTER_MESSAGE,
                                             .to = to,
                                             .from = from,
                                             .generation = road->generation,
                                             .who = message->to,
                                             .message = message});
}

static struct outbox_message *message_copy(struct sim_cluster *t, const struct outbox_message *message)
{
    size_t len = sizeof *message + message->len;
    struct outbox_message *copy = heap_alloc_raw(&t->heap, 1, len);
    memcpy(copy, message, len);
    return copy;
}

void sim_cluster_send(struct sim_cluster *t, int from, int to, uint8_t kind, const void *payload, size_t len)
{
    struct outbox_message *message = heap_alloc_raw(&t->heap, 1, sizeof *message + len);
    message->to = t->nodes[to].info.id;
    message->kind = kind;
    message->len = len;
    memcpy(message->payload, payload, len);
    if (t->trace)
        sim_cluster_trace(t, "%2d  LIES to %d: %s", from, to, message_name(kind));
    post(t, from, to, message);
}

static int sim_node_of(const struct sim_cluster *t, const struct identity *id)
{
    for (int i = 0; i < t->size; i++)
        if (identity_equal(&t->nodes[i].info.id, id))
            return i;
    return -1;
}

static void empty_outbox(struct sim_cluster *t, int from)
{
    struct outbox_message *message;
    while ((message = outbox_take(&t->nodes[from].outbox))) {
        int to = sim_node_of(t, &message->to);
        t->messages++;
        facts_message(t, from, message->kind);
        if (to < 0 || !t->roads[from][to].linked || t->roads[from][to].dark || chance(t, t->lose)) {
            heap_free(message);
            continue;
        }
        if (chance(t, t->twice))
            post(t, from, to, message_copy(t, message));
        post(t, from, to, message);
    }
}

/* ---- after everything that an consensus did ---- */

uint64_t sim_cluster_clock(const struct sim_cluster *t, int node)
{
    return t->now_ns + t->nodes[node].ahead_ns;
}

static uint64_t deadline_of(const struct sim_cluster *t, int node)
{
    uint64_t deadline = consensus_deadline(t->nodes[node].consensus);
    uint64_t other = t->tenant ? t->tenant->deadline(t, node) : NEVER_NS;
    return deadline < other ? deadline : other;
}

static void schedule(struct sim_cluster *t, int node)
{
    struct sim_node *h = &t->nodes[node];
    uint64_t deadline = deadline_of(t, node);
    if (deadline == NEVER_NS)
        return;
    uint64_t at = deadline > sim_cluster_clock(t, node) ? deadline - h->ahead_ns : t->now_ns;
    at += prng_below(&t->prng, NS_PER_MS); /* a real loop is never quite in time */
    if (h->tick_ns != 0 && h->tick_ns <= at)
        return;
    h->tick_ns = at;
    event_push(
        t, (struct sim_cluster_event){.at_ns = at, .kind = SIM_CLUSTER_TICK, .to = node, .who = h->info.id});
}

static void trace_events(struct sim_cluster *t, int node)
{
    static const char *const names[] = {"",       "joined", "left",   "leader", "view",
                                        "health", "stuck",  "quorum", "wanted", "trouble"};
    struct hearth_event e;
    while (event_log_next(&t->happened, &t->happened_seen, &e))
        sim_cluster_trace(t, "%2d  %-10s %s %s %s [epoch %" PRIu64 " term %" PRIu64 "]", node, names[e.kind],
                          e.name, e.health, e.text, e.epoch, e.term);
}

static void looked_after(struct sim_cluster *t, int node)
{
    if (t->tenant)
        t->tenant->look(t, node);
    empty_outbox(t, node);
    trace_events(t, node);
    facts_check(t, node);
    schedule(t, node);
    t->steps++;
}

/* ---- processes ---- */

static void notice(struct sim_cluster *t, int node, int of, enum sim_cluster_event_kind kind,
                   uint64_t delay_ns)
{
    event_push(t, (struct sim_cluster_event){.at_ns = t->now_ns + delay_ns,
                                             .kind = kind,
                                             .to = node,
                                             .from = of,
                                             .generation = t->roads[node][of].generation,
                                             .who = t->nodes[node].info.id,
                                             .other = t->nodes[of].info.id});
}

/* Connections to a process whose machine went dark end when the machine speaks again. */
static void forget_predecessor(struct sim_cluster *t, int node)
{
    for (int i = 0; i < t->size; i++) {
        if (i == node || !t->roads[i][node].linked)
            continue;
        notice(t, i, node, SIM_CLUSTER_UNLINKED, prng_below(&t->prng, 100 * NS_PER_MS));
        t->roads[i][node].linked = false;
    }
}

void sim_cluster_start(struct sim_cluster *t, int node)
{
    struct sim_node *h = &t->nodes[node];
    struct consensus_setup setup = {.heap = &t->heap, .outbox = &h->outbox, .health = t->preset};
    static const char *const presets[] = {"default", "low-latency", "high-latency"};
    if (!setup.health)
        setup.health = health_preset_find(presets[prng_below(&t->prng, 3)]);
    forget_predecessor(t, node);
    memset(&h->info, 0, sizeof h->info);
    h->info.id.node.bytes[0] = (uint8_t)(7 * node);
    h->info.id.node.bytes[1] = (uint8_t)node;
    h->info.id.instance = prng_u64(&t->prng) | 1;
    h->info.machine = 1000 + (uint64_t)node;
    h->info.features = !t->tenant && chance(t, t->guests) ? PEER_GUEST : 0;
    snprintf(h->info.name, sizeof h->info.name, "n%d", node);
    setup.self = h->info;
    setup.seed = prng_u64(&t->prng);
    outbox_init(&h->outbox, &t->heap);
    h->ahead_ns = 0;
    h->tick_ns = 0;
    h->instance = h->epoch = 0;
    h->busy = false;
    setup.now_ns = t->now_ns;
    setup.events = &t->happened;
    if (consensus_open(&setup, &h->consensus) != HEARTH_OK)
        abort();
    h->state = SIM_NODE_LIVES;
    if (t->tenant)
        t->tenant->start(t, node);
    sim_cluster_trace(t, "%2d  START%s", node, h->info.features & PEER_GUEST ? " (guest)" : "");
    looked_after(t, node);
}

static void sim_node_clear(struct sim_cluster *t, int node)
{
    struct sim_node *h = &t->nodes[node];
    for (size_t i = 0; i < h->parked_count; i++)
        heap_free(h->parked[i].message);
    free(h->parked);
    h->parked = NULL;
    h->parked_count = h->parked_room = 0;
    if (t->tenant)
        t->tenant->end(t, node);
    outbox_fini(&h->outbox);
    consensus_close(h->consensus);
    h->consensus = NULL;
    h->state = SIM_NODE_EMPTY;
}

void sim_cluster_unlink(struct sim_cluster *t, int a, int b)
{
    if (t->roads[a][b].dark)
        return;
    t->roads[a][b].generation++;
    t->roads[b][a].generation++;
    notice(t, a, b, SIM_CLUSTER_UNLINKED, prng_below(&t->prng, 20 * NS_PER_MS));
    notice(t, b, a, SIM_CLUSTER_UNLINKED, prng_below(&t->prng, 20 * NS_PER_MS));
}

void sim_cluster_link_at(struct sim_cluster *t, int a, int b, uint64_t delay_ns)
{
    t->roads[a][b].generation++;
    t->roads[b][a].generation++;
    notice(t, a, b, SIM_CLUSTER_LINKED, delay_ns);
    notice(t, b, a, SIM_CLUSTER_LINKED, delay_ns + prng_below(&t->prng, t->jitter_ns + 1));
}

void sim_cluster_link(struct sim_cluster *t, int a, int b)
{
    sim_cluster_link_at(t, a, b, 0);
}

void sim_cluster_link_all(struct sim_cluster *t, uint64_t span_ns)
{
    for (int a = 0; a < t->size; a++)
        for (int b = a + 1; b < t->size; b++)
            if (t->nodes[a].state != SIM_NODE_EMPTY && t->nodes[b].state != SIM_NODE_EMPTY &&
                !(t->roads[a][b].linked && t->roads[b][a].linked))
                sim_cluster_link_at(t, a, b, prng_below(&t->prng, span_ns + 1));
}

void sim_cluster_crash(struct sim_cluster *t, int node, bool power_cut)
{
    sim_cluster_trace(t, "%2d  %s", node, power_cut ? "POWER CUT" : "CRASH");
    for (int i = 0; i < t->size; i++) {
        t->roads[node][i].linked = false;
        if (i != node && !power_cut)
            sim_cluster_unlink(t, node, i);
    }
    sim_node_clear(t, node);
}

void sim_cluster_leave(struct sim_cluster *t, int node)
{
    sim_cluster_trace(t, "%2d  LEAVE", node);
    consensus_leave(t->nodes[node].consensus, sim_cluster_clock(t, node));
    empty_outbox(t, node);
    trace_events(t, node);
    for (int i = 0; i < t->size; i++) {
        t->roads[node][i].linked = false;
        if (i != node) /* what it said still arrives: the connection ends behind it */
            notice(t, i, node, SIM_CLUSTER_UNLINKED,
                   t->latency_ns + t->jitter_ns + prng_below(&t->prng, 20 * NS_PER_MS));
    }
    sim_node_clear(t, node);
}

void sim_cluster_freeze(struct sim_cluster *t, int node)
{
    sim_cluster_trace(t, "%2d  FREEZE", node);
    t->nodes[node].state = SIM_NODE_FROZEN;
}

void sim_cluster_thaw(struct sim_cluster *t, int node)
{
    struct sim_node *h = &t->nodes[node];
    sim_cluster_trace(t, "%2d  THAW", node);
    h->state = SIM_NODE_LIVES;
    h->tick_ns = 0;
    schedule(t, node);
    for (size_t i = 0; i < h->parked_count; i++) {
        h->parked[i].at_ns = t->now_ns;
        event_push(t, h->parked[i]);
    }
    h->parked_count = 0;
}

void sim_cluster_sleep(struct sim_cluster *t, int node, uint64_t ns)
{
    struct sim_node *h = &t->nodes[node];
    sim_cluster_trace(t, "%2d  SLEEP %.1f s", node, (double)ns / 1e9);
    h->ahead_ns += ns;
    h->tick_ns = 0;
    if (h->state == SIM_NODE_LIVES)
        schedule(t, node);
}

void sim_cluster_busy(struct sim_cluster *t, int node, bool busy)
{
    struct sim_node *h = &t->nodes[node];
    if (h->busy == busy)
        return;
    sim_cluster_trace(t, "%2d  %s", node, busy ? "BUSY" : "NOT BUSY");
    h->busy = busy;
    consensus_set_busy(h->consensus, busy);
    looked_after(t, node);
}

void sim_cluster_describe(struct sim_cluster *t, int node)
{
    struct sim_node *h = &t->nodes[node];
    sim_cluster_trace(t, "%2d  NEW ADDRESS", node);
    h->info.addr_count = 1;
    h->info.addrs[0].family = 4;
    h->info.addrs[0].bytes[3]++;
    consensus_describe(h->consensus, &h->info, sim_cluster_clock(t, node));
    looked_after(t, node);
    for (int i = 0; i < t->size; i++)
        if (i != node && t->roads[i][node].linked)
            notice(t, i, node, SIM_CLUSTER_LINKED,
                   travel_ns(t)); /* said again on the connection that stands */
}

/* ---- what happens ---- */

static void happen_message(struct sim_cluster *t, const struct sim_cluster_event *e)
{
    const struct road *back = &t->roads[e->to][e->from];
    const char *what = "";
    if (!back->linked || t->roads[e->from][e->to].dark ||
        t->roads[e->from][e->to].generation != e->generation)
        return;
    if (e->message->kind != MESSAGE_BEAT)
        sim_cluster_trace(t, "%2d  <- %d %s", e->to, e->from, message_name(e->message->kind));
    const struct identity *from = &t->nodes[e->from].info.id;
    bool ours = e->message->kind <= MESSAGE_DISSOLVE;
    int status = ours ? consensus_input(
                            t->nodes[e->to].consensus,
                            &(struct received){from, e->message->kind, e->message->payload, e->message->len},
                            sim_cluster_clock(t, e->to), &what)
                      : t->tenant->message(t, e->to, from, e->message, &what);
    if (status != HEARTH_OK && e->from == t->hostile)
        sim_cluster_unlink(t, e->to, e->from);
    else if (status != HEARTH_OK)
        facts_fail(t, "node %d refused a message of node %d, kind %d: %s", e->to, e->from, e->message->kind,
                   what);
    looked_after(t, e->to);
}

static void happen_link(struct sim_cluster *t, const struct sim_cluster_event *e)
{
    struct road *road = &t->roads[e->to][e->from];
    const struct sim_node *other = &t->nodes[e->from];
    bool same = identity_equal(&other->info.id, &e->other);
    if (same && road->generation != e->generation)
        return; /* something else has happened to it since */
    if (e->kind == SIM_CLUSTER_LINKED && same && other->state != SIM_NODE_EMPTY) {
        road->linked = true;
        consensus_linked(t->nodes[e->to].consensus, &other->info, sim_cluster_clock(t, e->to));
    } else if (e->kind == SIM_CLUSTER_UNLINKED) {
        road->linked = road->linked && !same;
        consensus_unlinked(t->nodes[e->to].consensus, &e->other, PARTING_BROKE, sim_cluster_clock(t, e->to));
    }
    looked_after(t, e->to);
}

static void happen_tick(struct sim_cluster *t, const struct sim_cluster_event *e)
{
    struct sim_node *h = &t->nodes[e->to];
    if (h->tick_ns != e->at_ns)
        return; /* an earlier one took its place */
    h->tick_ns = 0;
    if (sim_cluster_clock(t, e->to) >= deadline_of(t, e->to)) {
        consensus_tick(h->consensus, sim_cluster_clock(t, e->to));
        looked_after(t, e->to);
    } else {
        schedule(t, e->to);
    }
}

/* It waits in the socket. */
static void park(struct sim_node *h, const struct sim_cluster_event *e)
{
    if (h->parked_count == h->parked_room) {
        h->parked_room = h->parked_room > 0 ? 2 * h->parked_room : 64;
        h->parked = realloc(h->parked, h->parked_room * sizeof h->parked[0]);
    }
    h->parked[h->parked_count++] = *e;
}

static void happen(struct sim_cluster *t, struct sim_cluster_event *e)
{
    struct sim_node *h = &t->nodes[e->to];
    bool there = h->state != SIM_NODE_EMPTY && identity_equal(&h->info.id, &e->who);
    if (there && h->state == SIM_NODE_FROZEN && e->kind != SIM_CLUSTER_TICK) {
        park(h, e);
        return;
    }
    if (there && h->state == SIM_NODE_LIVES) {
        if (e->kind == SIM_CLUSTER_MESSAGE)
            happen_message(t, e);
        else if (e->kind == SIM_CLUSTER_TICK)
            happen_tick(t, e);
        else
            happen_link(t, e);
    }
    heap_free(e->message);
}

bool sim_cluster_run(struct sim_cluster *t, uint64_t until_ns)
{
    while (t->event_count > 0 && t->events[0].at_ns <= until_ns && t->failure[0] == '\0') {
        struct sim_cluster_event e = event_pop(t);
        t->now_ns = e.at_ns;
        happen(t, &e);
    }
    t->now_ns = until_ns;
    return t->failure[0] == '\0';
}

void sim_cluster_open(struct sim_cluster *t, const struct sim_cluster_setup *setup)
{
    memset(t, 0, sizeof *t);
    heap_init(&t->heap, 0);
    prng_init(&t->prng, setup->seed);
    t->seed = setup->seed;
    t->size = setup->size;
    t->now_ns = NS_PER_S;
    t->preset = health_preset_find(setup->preset ? setup->preset : "default");
    t->latency_ns = 200 * NS_PER_US;
    t->jitter_ns = 200 * NS_PER_US;
    t->guests = setup->guests;
    t->hostile = -1;
    t->trace = setup->trace;
    for (int i = 0; i < t->size; i++)
        sim_cluster_start(t, i);
}

void sim_cluster_close(struct sim_cluster *t)
{
    while (t->event_count > 0) {
        struct sim_cluster_event e = event_pop(t);
        heap_free(e.message);
    }
    for (int i = 0; i < t->size; i++)
        if (t->nodes[i].state != SIM_NODE_EMPTY)
            sim_node_clear(t, i);
    free(t->events);
    facts_free(t);
    if (t->heap.blocks != 0)
        abort(); /* a leak */
}
