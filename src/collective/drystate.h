/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run works on: members, links, lanes, frames. Made and freed here, moved in dryrun.c. */
#pragma once

#include "collective/agenda.h"
#include "collective/dryrun.h"

#define NO_LINK UINT32_MAX

struct dry_frame {
    uint64_t lane, bytes;
    uint32_t step, hops;
};

struct dry_link {
    int32_t from, to;
    uint32_t first, moves; /* the sender's moves on it: sends[first] and so on, this many per lane */
    uint64_t lane;         /* cursor: the next frame is that of sends[first + turn] in this lane; all were */
    uint32_t turn;         /* sent when the lane is not one of the sender's */
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
    uint64_t moves; /* its first in recv_link, send_link */
    uint32_t lanes; /* its first lane; `window` of them */
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
    uint32_t *sends;                 /* numbers of moves, by link */
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
/* A link's cursor: one frame on in canonical order; and then on to the next that is really sent. */
void dry_cursor_step(const struct dry_run *run, struct dry_link *link);
void dry_cursor_settle(const struct dry_run *run, struct dry_link *link);
