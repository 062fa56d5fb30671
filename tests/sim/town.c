/* SPDX-License-Identifier: Apache-2.0 */
/* The town: its clock, its post, its roads. */
#include "town.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "town_facts.h"

enum town_event_kind { TOWN_LETTER, TOWN_TICK, TOWN_LINKED, TOWN_UNLINKED };

struct town_event {
    uint64_t at_ns, order;
    enum town_event_kind kind;
    int to, from;
    uint32_t generation;
    struct identity who, other;   /* whom it is for, and about: not their successors in the same houses */
    struct outbox_letter *letter; /* or NULL */
};

/* ---- what comes when ---- */

static bool earlier(const struct town_event *a, const struct town_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void event_push(struct town *t, struct town_event event)
{
    if (t->event_count == t->event_room) {
        t->event_room = t->event_room > 0 ? 2 * t->event_room : 256;
        t->events = realloc(t->events, t->event_room * sizeof(t->events[0]));
    }
    event.order = t->order++;
    size_t at = t->event_count++;
    while (at > 0 && earlier(&event, &t->events[(at - 1) / 2])) {
        t->events[at] = t->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    t->events[at] = event;
}

static struct town_event event_pop(struct town *t)
{
    struct town_event first = t->events[0], last = t->events[--t->event_count];
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

void town_trace(struct town *t, const char *format, ...)
{
    if (t->trace == NULL)
        return;
    va_list args;
    fprintf(t->trace, "%9.3f  ", (double)t->now_ns / 1e9);
    va_start(args, format);
    vfprintf(t->trace, format, args);
    va_end(args);
    fputc('\n', t->trace);
}

/* ---- the post ---- */

static const char *letter_name(uint8_t kind)
{
    static const char *const names[] = {"",     "",        "beat",   "census", "call",
                                        "vote", "propose", "accept", "leave",  "dissolve"};
    return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

static bool chance(struct town *t, uint32_t of_1000)
{
    return of_1000 > 0 && prng_below(&t->prng, 1000) < of_1000;
}

static uint64_t travel_ns(struct town *t)
{
    return t->latency_ns + prng_below(&t->prng, t->jitter_ns + 1);
}

static void post(struct town *t, int from, int to, struct outbox_letter *letter)
{
    struct road *road = &t->roads[from][to];
    uint64_t at = t->now_ns + travel_ns(t);
    if (!chance(t, t->mix))
        at = at > road->free_ns ? at : road->free_ns;
    road->free_ns = at > road->free_ns ? at : road->free_ns;
    event_push(t, (struct town_event){.at_ns = at,
                                      .kind = TOWN_LETTER,
                                      .to = to,
                                      .from = from,
                                      .generation = road->generation,
                                      .who = letter->to,
                                      .letter = letter});
}

static struct outbox_letter *letter_copy(struct town *t, const struct outbox_letter *letter)
{
    size_t len = sizeof(*letter) + letter->len;
    struct outbox_letter *copy = heap_alloc_raw(&t->heap, 1, len);
    memcpy(copy, letter, len);
    return copy;
}

void town_send(struct town *t, int from, int to, uint8_t kind, const void *payload, size_t len)
{
    struct outbox_letter *letter = heap_alloc_raw(&t->heap, 1, sizeof(*letter) + len);
    letter->to = t->houses[to].fellow.id;
    letter->kind = kind;
    letter->len = len;
    memcpy(letter->payload, payload, len);
    if (t->trace != NULL)
        town_trace(t, "%2d  LIES to %d: %s", from, to, letter_name(kind));
    post(t, from, to, letter);
}

static int house_of(const struct town *t, const struct identity *id)
{
    for (int i = 0; i < t->size; i++)
        if (identity_equal(&t->houses[i].fellow.id, id))
            return i;
    return -1;
}

static void empty_outbox(struct town *t, int from)
{
    struct outbox_letter *letter;
    while ((letter = outbox_take(&t->houses[from].outbox)) != NULL) {
        int to = house_of(t, &letter->to);
        t->letters++;
        facts_letter(t, from, letter->kind);
        if (to < 0 || !t->roads[from][to].linked || t->roads[from][to].dark || chance(t, t->lose)) {
            heap_free(letter);
            continue;
        }
        if (chance(t, t->twice))
            post(t, from, to, letter_copy(t, letter));
        post(t, from, to, letter);
    }
}

/* ---- after everything that an assembly did ---- */

uint64_t town_clock(const struct town *t, int house)
{
    return t->now_ns + t->houses[house].ahead_ns;
}

static uint64_t deadline_of(const struct town *t, int house)
{
    uint64_t deadline = assembly_deadline(t->houses[house].assembly);
    uint64_t other = t->tenant != NULL ? t->tenant->deadline(t, house) : NEVER_NS;
    return deadline < other ? deadline : other;
}

static void schedule(struct town *t, int house)
{
    struct house *h = &t->houses[house];
    uint64_t deadline = deadline_of(t, house);
    if (deadline == NEVER_NS)
        return;
    uint64_t at = deadline > town_clock(t, house) ? deadline - h->ahead_ns : t->now_ns;
    at += prng_below(&t->prng, NS_PER_MS); /* a real loop is never quite in time */
    if (h->tick_ns != 0 && h->tick_ns <= at)
        return;
    h->tick_ns = at;
    event_push(t, (struct town_event){.at_ns = at, .kind = TOWN_TICK, .to = house, .who = h->fellow.id});
}

static void tell_events(struct town *t, int house)
{
    static const char *const names[] = {"joined", "left",   "leader",   "view",      "health",
                                        "stuck",  "quorum", "conflict", "copied key"};
    struct assembly_event e;
    while (assembly_event(t->houses[house].assembly, &e))
        if (t->trace != NULL)
            town_trace(t, "%2d  %-10s %s %s %s [%" PRIx64 " epoch %" PRIu64 " term %" PRIu64 "]", house,
                       names[e.kind], e.name, e.kind == ASSEMBLY_HEALTH ? health_state_name(e.health) : "",
                       e.text, e.instance, e.epoch, e.term);
}

static void looked_after(struct town *t, int house)
{
    if (t->tenant != NULL)
        t->tenant->look(t, house);
    empty_outbox(t, house);
    tell_events(t, house);
    facts_check(t, house);
    schedule(t, house);
    t->steps++;
}

/* ---- processes ---- */

static void notice(struct town *t, int house, int of, enum town_event_kind kind, uint64_t delay_ns)
{
    event_push(t, (struct town_event){.at_ns = t->now_ns + delay_ns,
                                      .kind = kind,
                                      .to = house,
                                      .from = of,
                                      .generation = t->roads[house][of].generation,
                                      .who = t->houses[house].fellow.id,
                                      .other = t->houses[of].fellow.id});
}

/* Connections to a process whose machine went dark end when the machine speaks again. */
static void forget_predecessor(struct town *t, int house)
{
    for (int i = 0; i < t->size; i++) {
        if (i == house || !t->roads[i][house].linked)
            continue;
        notice(t, i, house, TOWN_UNLINKED, prng_below(&t->prng, 100 * NS_PER_MS));
        t->roads[i][house].linked = false;
    }
}

void town_start(struct town *t, int house)
{
    struct house *h = &t->houses[house];
    struct assembly_setup setup = {.heap = &t->heap, .outbox = &h->outbox, .health = t->preset};
    static const char *const presets[] = {"default", "low-latency", "high-latency"};
    if (setup.health == NULL)
        setup.health = health_preset_find(presets[prng_below(&t->prng, 3)]);
    forget_predecessor(t, house);
    memset(&h->fellow, 0, sizeof(h->fellow));
    h->fellow.id.node.bytes[0] = (uint8_t)(7 * house);
    h->fellow.id.node.bytes[1] = (uint8_t)house;
    h->fellow.id.instance = prng_u64(&t->prng) | 1;
    h->fellow.machine = 1000 + (uint64_t)house;
    h->fellow.flags = t->tenant == NULL && chance(t, t->guests) ? FELLOW_GUEST : 0;
    snprintf(h->fellow.name, sizeof(h->fellow.name), "n%d", house);
    setup.self = h->fellow;
    setup.seed = prng_u64(&t->prng);
    outbox_init(&h->outbox, &t->heap);
    h->ahead_ns = 0;
    h->tick_ns = 0;
    h->instance = h->epoch = 0;
    h->busy = false;
    setup.now_ns = t->now_ns;
    if (assembly_open(&setup, &h->assembly) != HEARTH_OK)
        abort();
    h->state = HOUSE_LIVES;
    if (t->tenant != NULL)
        t->tenant->start(t, house);
    town_trace(t, "%2d  START%s", house, h->fellow.flags & FELLOW_GUEST ? " (guest)" : "");
    looked_after(t, house);
}

static void house_clear(struct town *t, int house)
{
    struct house *h = &t->houses[house];
    for (size_t i = 0; i < h->parked_count; i++)
        heap_free(h->parked[i].letter);
    free(h->parked);
    h->parked = NULL;
    h->parked_count = h->parked_room = 0;
    if (t->tenant != NULL)
        t->tenant->end(t, house);
    outbox_fini(&h->outbox);
    assembly_close(h->assembly);
    h->assembly = NULL;
    h->state = HOUSE_EMPTY;
}

void town_unlink(struct town *t, int a, int b)
{
    if (t->roads[a][b].dark)
        return;
    t->roads[a][b].generation++;
    t->roads[b][a].generation++;
    notice(t, a, b, TOWN_UNLINKED, prng_below(&t->prng, 20 * NS_PER_MS));
    notice(t, b, a, TOWN_UNLINKED, prng_below(&t->prng, 20 * NS_PER_MS));
}

void town_link_at(struct town *t, int a, int b, uint64_t delay_ns)
{
    t->roads[a][b].generation++;
    t->roads[b][a].generation++;
    notice(t, a, b, TOWN_LINKED, delay_ns);
    notice(t, b, a, TOWN_LINKED, delay_ns + prng_below(&t->prng, t->jitter_ns + 1));
}

void town_link(struct town *t, int a, int b)
{
    town_link_at(t, a, b, 0);
}

void town_link_all(struct town *t, uint64_t span_ns)
{
    for (int a = 0; a < t->size; a++)
        for (int b = a + 1; b < t->size; b++)
            if (t->houses[a].state != HOUSE_EMPTY && t->houses[b].state != HOUSE_EMPTY &&
                !(t->roads[a][b].linked && t->roads[b][a].linked))
                town_link_at(t, a, b, prng_below(&t->prng, span_ns + 1));
}

void town_crash(struct town *t, int house, bool power_cut)
{
    town_trace(t, "%2d  %s", house, power_cut ? "POWER CUT" : "CRASH");
    for (int i = 0; i < t->size; i++) {
        t->roads[house][i].linked = false;
        if (i != house && !power_cut)
            town_unlink(t, house, i);
    }
    house_clear(t, house);
}

void town_leave(struct town *t, int house)
{
    town_trace(t, "%2d  LEAVE", house);
    assembly_leave(t->houses[house].assembly, town_clock(t, house));
    empty_outbox(t, house);
    tell_events(t, house);
    for (int i = 0; i < t->size; i++) {
        t->roads[house][i].linked = false;
        if (i != house) /* what it said still arrives: the connection ends behind it */
            notice(t, i, house, TOWN_UNLINKED,
                   t->latency_ns + t->jitter_ns + prng_below(&t->prng, 20 * NS_PER_MS));
    }
    house_clear(t, house);
}

void town_freeze(struct town *t, int house)
{
    town_trace(t, "%2d  FREEZE", house);
    t->houses[house].state = HOUSE_FROZEN;
}

void town_thaw(struct town *t, int house)
{
    struct house *h = &t->houses[house];
    town_trace(t, "%2d  THAW", house);
    h->state = HOUSE_LIVES;
    h->tick_ns = 0;
    schedule(t, house);
    for (size_t i = 0; i < h->parked_count; i++) {
        h->parked[i].at_ns = t->now_ns;
        event_push(t, h->parked[i]);
    }
    h->parked_count = 0;
}

void town_sleep(struct town *t, int house, uint64_t ns)
{
    struct house *h = &t->houses[house];
    town_trace(t, "%2d  SLEEP %.1f s", house, (double)ns / 1e9);
    h->ahead_ns += ns;
    h->tick_ns = 0;
    if (h->state == HOUSE_LIVES)
        schedule(t, house);
}

void town_busy(struct town *t, int house, bool busy)
{
    struct house *h = &t->houses[house];
    if (h->busy == busy)
        return;
    town_trace(t, "%2d  %s", house, busy ? "BUSY" : "NOT BUSY");
    h->busy = busy;
    assembly_set_busy(h->assembly, busy);
    looked_after(t, house);
}

void town_describe(struct town *t, int house)
{
    struct house *h = &t->houses[house];
    town_trace(t, "%2d  NEW ADDRESS", house);
    h->fellow.addr_count = 1;
    h->fellow.addr_lens[0] = 7;
    h->fellow.addrs[0][0] = 4;
    h->fellow.addrs[0][6]++;
    assembly_describe(h->assembly, &h->fellow, town_clock(t, house));
    looked_after(t, house);
    for (int i = 0; i < t->size; i++)
        if (i != house && t->roads[i][house].linked)
            notice(t, i, house, TOWN_LINKED, travel_ns(t)); /* said again on the connection that stands */
}

/* ---- what happens ---- */

static void happen_letter(struct town *t, const struct town_event *e)
{
    const struct road *back = &t->roads[e->to][e->from];
    const char *what = "";
    if (!back->linked || t->roads[e->from][e->to].dark ||
        t->roads[e->from][e->to].generation != e->generation)
        return;
    if (e->letter->kind != LETTER_BEAT)
        town_trace(t, "%2d  <- %d %s", e->to, e->from, letter_name(e->letter->kind));
    const struct identity *from = &t->houses[e->from].fellow.id;
    bool ours = e->letter->kind <= LETTER_DISSOLVE;
    int status = ours ? assembly_input(t->houses[e->to].assembly, from, e->letter->kind, e->letter->payload,
                                       e->letter->len, town_clock(t, e->to), &what)
                      : t->tenant->letter(t, e->to, from, e->letter, &what);
    if (status != HEARTH_OK && e->from == t->hostile)
        town_unlink(t, e->to, e->from);
    else if (status != HEARTH_OK)
        facts_fail(t, "node %d refused a letter of node %d, kind %d: %s", e->to, e->from, e->letter->kind,
                   what);
    looked_after(t, e->to);
}

static void happen_link(struct town *t, const struct town_event *e)
{
    struct road *road = &t->roads[e->to][e->from];
    const struct house *other = &t->houses[e->from];
    bool same = identity_equal(&other->fellow.id, &e->other);
    if (same && road->generation != e->generation)
        return; /* something else has happened to it since */
    if (e->kind == TOWN_LINKED && same && other->state != HOUSE_EMPTY) {
        road->linked = true;
        assembly_linked(t->houses[e->to].assembly, &other->fellow, town_clock(t, e->to));
    } else if (e->kind == TOWN_UNLINKED) {
        road->linked = road->linked && !same;
        assembly_unlinked(t->houses[e->to].assembly, &e->other, PARTING_BROKE, town_clock(t, e->to));
    }
    looked_after(t, e->to);
}

static void happen_tick(struct town *t, const struct town_event *e)
{
    struct house *h = &t->houses[e->to];
    if (h->tick_ns != e->at_ns)
        return; /* an earlier one took its place */
    h->tick_ns = 0;
    if (town_clock(t, e->to) >= deadline_of(t, e->to)) {
        assembly_tick(h->assembly, town_clock(t, e->to));
        looked_after(t, e->to);
    } else {
        schedule(t, e->to);
    }
}

/* It waits in the socket. */
static void park(struct house *h, const struct town_event *e)
{
    if (h->parked_count == h->parked_room) {
        h->parked_room = h->parked_room > 0 ? 2 * h->parked_room : 64;
        h->parked = realloc(h->parked, h->parked_room * sizeof(h->parked[0]));
    }
    h->parked[h->parked_count++] = *e;
}

static void happen(struct town *t, struct town_event *e)
{
    struct house *h = &t->houses[e->to];
    bool there = h->state != HOUSE_EMPTY && identity_equal(&h->fellow.id, &e->who);
    if (there && h->state == HOUSE_FROZEN && e->kind != TOWN_TICK) {
        park(h, e);
        return;
    }
    if (there && h->state == HOUSE_LIVES) {
        if (e->kind == TOWN_LETTER)
            happen_letter(t, e);
        else if (e->kind == TOWN_TICK)
            happen_tick(t, e);
        else
            happen_link(t, e);
    }
    heap_free(e->letter);
}

bool town_run(struct town *t, uint64_t until_ns)
{
    while (t->event_count > 0 && t->events[0].at_ns <= until_ns && t->failure[0] == '\0') {
        struct town_event e = event_pop(t);
        t->now_ns = e.at_ns;
        happen(t, &e);
    }
    t->now_ns = until_ns;
    return t->failure[0] == '\0';
}

void town_open(struct town *t, const struct town_setup *setup)
{
    memset(t, 0, sizeof(*t));
    heap_init(&t->heap, 0);
    prng_init(&t->prng, setup->seed);
    t->seed = setup->seed;
    t->size = setup->size;
    t->now_ns = NS_PER_S;
    t->preset = health_preset_find(setup->preset != NULL ? setup->preset : "default");
    t->latency_ns = 200 * NS_PER_US;
    t->jitter_ns = 200 * NS_PER_US;
    t->guests = setup->guests;
    t->hostile = -1;
    t->trace = setup->trace;
    for (int i = 0; i < t->size; i++)
        town_start(t, i);
}

void town_close(struct town *t)
{
    while (t->event_count > 0) {
        struct town_event e = event_pop(t);
        heap_free(e.letter);
    }
    for (int i = 0; i < t->size; i++)
        if (t->houses[i].state != HOUSE_EMPTY)
            house_clear(t, i);
    free(t->events);
    facts_free(t);
    if (t->heap.blocks != 0)
        abort(); /* a leak */
}
