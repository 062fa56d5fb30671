/* SPDX-License-Identifier: Apache-2.0 */
/* A plan made ready to run: who sends us what in which order, and the other way round. Depends on the call
 * alone, so programs are kept and equal calls share one. */
#pragma once

#include "collective/plan.h"
#include "core/list.h"

#define PROGRAM_CACHE_MAX  256 /* programs kept per group */
#define PROGRAM_COUNTS_MAX 8   /* of them, that differ in the counts of an all_to_allv alone */
#define FLOW_WINDOW_MAX    64  /* frames of a flow that may be under way: bits of a mask */

/* All frames from or to one peer, in canonical order. Index i of a flow counts empty pieces too, so that it
 * follows from (lane, step) by arithmetic. */
struct flow_table {
    int peer;
    uint32_t count;  /* moves per lane */
    uint32_t *moves; /* [count]: numbers of moves, by rising step */
    uint64_t frames; /* count * lanes */
    uint64_t bytes;  /* payload of all frames */
    bool prompt;     /* incoming: the first of them waits for nobody but its sender */
};

struct program {
    struct list item;      /* in the group's cache, the most recently used last */
    struct plan_call call; /* the key, algorithm as it was wished; counts are our own copies */
    struct plan plan;
    uint32_t in_count, out_count;
    uint32_t prompt_count; /* of the incoming ones */
    struct flow_table *in, *out;
    int32_t *in_of, *out_of; /* [size]: which flow has this peer, -1: none */
    bool *sum_ends;          /* [move_count]: nothing uses the accumulator after the move's STORE */
    uint32_t depth;          /* frames a peer may be ahead of us */
    uint32_t users;          /* operations that run it */
    uint64_t window_room;    /* lanes that each of the idle ones has room for */
    struct list idle;        /* operations that fit it, kept for the next */
};

struct program_cache {
    struct heap *heap;
    void (*op_free)(struct list *item); /* for what is in the idle lists of programs that go */
    struct list programs;
    uint32_t count;
};

void program_cache_init(struct program_cache *cache, struct heap *heap, void (*op_free)(struct list *item));
void program_cache_fini(struct program_cache *cache); /* no program may be in use */

/* The program of a call, from the cache or new (then the view chooses the algorithm); not counted as used
 * yet. */
int MUST_CHECK program_get(struct program_cache *cache, const struct plan_call *call,
                           const struct group_view *view, struct program **out, struct error *error);

/* Walks a flow in canonical order. */
struct flow_cursor {
    uint64_t index, block, lane; /* lane: within the block */
    uint32_t turn;               /* which of the flow's moves */
};
bool flow_more(const struct flow_table *flow, const struct flow_cursor *at);
uint64_t flow_lane(const struct plan *plan, const struct flow_cursor *at);
const struct move *flow_move(const struct plan *plan, const struct flow_table *flow,
                             const struct flow_cursor *at);
void flow_next(const struct plan *plan, const struct flow_table *flow, struct flow_cursor *at);

/* Index of the frame that a move takes or sends in a lane; `turn` is the move's place in the flow. */
uint64_t flow_index(const struct plan *plan, const struct flow_table *flow, uint32_t turn, uint64_t lane);
/* Place in the incoming flow of the move with this step; false: there is none. */
bool flow_turn(const struct plan *plan, const struct flow_table *flow, uint32_t step, uint32_t *turn);
