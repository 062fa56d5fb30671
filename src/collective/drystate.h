/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run works on: members, links, lanes, frames. Made and freed here, moved in dryrun.c. */
#pragma once

#include "collective/dryrun.h"
#include "collective/program.h"

/* ---- what will happen when, on virtual time: a binary heap of events, earliest first ---- */

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

/* ---- a run ---- */

#define NO_LINK UINT32_MAX

struct dry_frame {
    uint64_t lane, bytes;
    uint32_t step, hops;
};

struct dry_link {
    int32_t from, to;
    struct flow_table flow; /* what the sender sends on it */
    struct flow_cursor at;  /* the next of that */
    uint32_t slots;
    uint64_t frames;                     /* its first slot */
    uint64_t sent, begun, landed, taken; /* frames so far; number f stands in slot f % slots */
};

enum stage { STAGE_RECV, STAGE_WORK, STAGE_SEND };

struct dry_lane {
    uint64_t number; /* of the plan; lane n stands at place n % window */
    int32_t rank;
    uint32_t move, hops;
    uint8_t stage;
    bool queued, over;
    double until;              /* nothing happens to it before */
    double in_free, acc_free;  /* when its bare input and its last sum have left */
    uint32_t lent, lent_parts; /* the parts of that sum */
};

struct dry_member {
    const struct plan *plan;
    uint64_t moves;             /* its first in recv_link, send_link */
    uint32_t lanes;             /* its first lane; `window` of them */
    uint32_t links, link_count; /* its first link out, and how many */
    double out_busy, in_busy, work_busy;
    uint64_t bytes_sent;
};

struct dry_run {
    const struct plan *plans;
    int size;
    const struct dry_net *net;
    struct heap *heap;
    struct error *error;
    struct dry_result *result;

    struct dry_member *members;
    uint32_t *recv_link, *send_link; /* [moves of all]: NO_LINK where there is none */
    uint32_t *sends;                 /* numbers of moves, by link: the tables of their flows */
    struct dry_link *links;
    uint32_t link_count;
    struct dry_frame *frames;
    struct dry_lane *lanes;
    uint32_t lane_count;

    uint32_t *ready; /* ring of lanes, each in it at most once */
    uint32_t ready_head, ready_count;
    struct agenda agenda;
    double now;
    uint64_t moves_done;
    double moves_all;
    uint64_t reported_ns;
    int status;
};

/* Lays everything out for run->plans, run->size, run->net, run->heap, run->error (the rest is zero). Fails as
 * dryrun does; to be closed in any case. */
int MUST_CHECK dry_open(struct dry_run *run);
void dry_close(struct dry_run *run);
int dry_no_memory(struct dry_run *run); /* sets the error and returns it */
/* Moves a link's cursor on to the next frame that is really sent. */
void dry_cursor_settle(const struct dry_run *run, struct dry_link *link);
