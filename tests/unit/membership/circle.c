/* SPDX-License-Identifier: Apache-2.0 */
/* A few assemblies that hear each other at once. */
#include "circle.h"

#include <stdlib.h>
#include <string.h>

#define STEP_NS (10 * NS_PER_MS)

void circle_open(struct circle *c, int size)
{
    memset(c, 0, sizeof *c);
    heap_init(&c->heap, 0);
    c->size = size;
    c->now_ns = NS_PER_S;
    for (int i = 0; i < size; i++)
        c->info[i] = person(i);
}

void circle_start(struct circle *c)
{
    for (int i = 0; i < c->size; i++) {
        outbox_init(&c->outbox[i], &c->heap);
        struct consensus_setup setup = {.heap = &c->heap,
                                        .outbox = &c->outbox[i],
                                        .events = &c->events[i],
                                        .self = c->info[i],
                                        .health = health_preset_find("default"),
                                        .seed = 100 + (uint64_t)i,
                                        .now_ns = c->now_ns};
        if (consensus_open(&setup, &c->who[i]) != HEARTH_OK)
            abort();
    }
}

void circle_close(struct circle *c)
{
    for (int i = 0; i < c->size; i++) {
        consensus_close(c->who[i]);
        outbox_fini(&c->outbox[i]);
    }
    if (c->heap.blocks != 0)
        abort(); /* a leak */
}

static int number_of(const struct circle *c, const struct identity *id)
{
    for (int i = 0; i < c->size; i++)
        if (identity_equal(&c->info[i].id, id))
            return i;
    return -1;
}

static bool deliver(struct circle *c, int from)
{
    struct outbox_message *message = outbox_take(&c->outbox[from]);
    const char *what;
    if (!message)
        return false;
    int to = number_of(c, &message->to);
    if (to >= 0 && c->who[to] && c->linked[from][to] && !c->mute[from] &&
        consensus_input(c->who[to],
                        &(struct received){&c->info[from].id, message->kind, message->payload, message->len},
                        c->now_ns, &what) != HEARTH_OK)
        abort();
    heap_free(message);
    return true;
}

static void pump(struct circle *c)
{
    bool more = true;
    while (more) {
        more = false;
        for (int i = 0; i < c->size; i++)
            more = deliver(c, i) || more;
    }
}

void circle_link(struct circle *c, int a, int b)
{
    c->linked[a][b] = c->linked[b][a] = true;
    consensus_linked(c->who[a], &c->info[b], c->now_ns);
    consensus_linked(c->who[b], &c->info[a], c->now_ns);
    pump(c);
}

void circle_link_all(struct circle *c)
{
    for (int a = 0; a < c->size; a++)
        for (int b = a + 1; b < c->size; b++)
            circle_link(c, a, b);
}

void circle_run(struct circle *c, uint64_t ns)
{
    for (uint64_t end = c->now_ns + ns; c->now_ns < end;) {
        c->now_ns += STEP_NS;
        for (int i = 0; i < c->size; i++)
            if (c->who[i] && c->now_ns >= consensus_deadline(c->who[i]))
                consensus_tick(c->who[i], c->now_ns);
        pump(c);
    }
}

void circle_die(struct circle *c, int who, enum parting how)
{
    pump(c);
    consensus_close(c->who[who]);
    c->who[who] = NULL;
    for (int i = 0; i < c->size; i++) {
        if (i != who && c->linked[i][who])
            consensus_unlinked(c->who[i], &c->info[who].id, how, c->now_ns);
        c->linked[i][who] = c->linked[who][i] = false;
    }
    pump(c);
}

int circle_leader(const struct circle *c)
{
    int leader = -1;
    for (int i = 0; i < c->size; i++)
        if (c->who[i] && consensus_leads(c->who[i]))
            leader = leader == -1 ? i : -2;
    return leader;
}

bool circle_next_event(struct circle *c, int who, struct hearth_event *event)
{
    return event_log_next(&c->events[who], &c->events_seen[who], event);
}

bool circle_event(struct circle *c, int who, enum hearth_event_kind kind, struct hearth_event *event)
{
    while (circle_next_event(c, who, event))
        if (event->kind == kind)
            return true;
    return false;
}
