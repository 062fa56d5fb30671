/* SPDX-License-Identifier: Apache-2.0 */
/* What will happen when, on virtual time: a binary heap of events, earliest first. */
#pragma once

#include "core/heap.h"
#include "core/types.h"

struct agenda_event {
    double time;
    uint64_t number; /* events of the same time come in the order in which they were added */
    uint32_t kind, id;
};

struct agenda {
    struct heap *heap;
    struct agenda_event *events;
    size_t count, room;
    uint64_t number;
};

int MUST_CHECK agenda_init(struct agenda *agenda, struct heap *heap); /* HEARTH_OK or HEARTH_NO_MEMORY */
void agenda_fini(struct agenda *agenda);                              /* harmless on zeroed memory */
int MUST_CHECK agenda_add(struct agenda *agenda, double time, uint32_t kind, uint32_t id);
struct agenda_event agenda_take(struct agenda *agenda); /* the earliest; there must be one */
