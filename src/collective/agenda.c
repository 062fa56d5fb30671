/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap that grows by doubling. */
#include "collective/agenda.h"

#include <assert.h>
#include <string.h>

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
