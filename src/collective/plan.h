/* SPDX-License-Identifier: Apache-2.0 */
/* A plan says what one member does in one collective: pure data, written by a planner, run by step.c, by the
 * dry run and by tests.
 *
 *   buffer -> lanes -> moves.  A lane is a slice of the buffer with a straight list of moves; all lanes of a
 *   plan have the same list. Lanes run side by side, `window` of them at a time (a block), which is how the
 *   pipeline arises and how memory is bounded.
 *
 *   parts. Moves speak of parts of the lane's slice: in a ring, part p is what member p owns. Ranges of
 *   parts are neighbours in memory.
 *
 *   order. Between two members a and b the frames of an operation have one canonical order, known to both:
 *   by (block, step, lane). `step` is a number of the algorithm, the same at sender and receiver; from a to b
 *   no two moves have the same one. The sender sends in this order, the receiver takes in this order.
 *
 *   memory. A lane has one accumulator. A LOAD lays the move's range down in it; until the next LOAD all
 *   moves stay inside that range, and every move that combines stays inside the range of the one before (so
 *   one sum of weights holds for all that is still of use). A SEND_ACC lends its range until the frame has
 *   left: a later move that changes it waits (LOAD changes all). A frame that comes before its lane is ready
 *   waits in a slot of the link; a plan must not deadlock with one slot per directed link (the tests do so).
 *
 *   empty pieces are not sent, except where the plan says `sync`. */
#pragma once

#include "core/error.h"
#include "core/heap.h"
#include "core/types.h"

#define PLAN_LANES_MAX UINT32_MAX /* frames name their lane in 32 bits */

enum plan_kind {
    PLAN_ALL_REDUCE,
    PLAN_REDUCE_SCATTER,
    PLAN_ALL_GATHER,
    PLAN_BROADCAST,
    PLAN_REDUCE,
    PLAN_GATHER,
    PLAN_SCATTER,
    PLAN_ALL_TO_ALL,
    PLAN_SCAN,
    PLAN_EXCLUSIVE_SCAN,
    PLAN_BARRIER,
    PLAN_KIND_COUNT
};

/* What a move does, in this order. The common combinations have the names NCCL gave them (move_name). */
enum move_bits {
    MOVE_RECV_ACC = 1u << 0,  /* frame from `from` -> accumulator: loaded with MOVE_LOAD, else combined */
    MOVE_RECV_OUT = 1u << 1,  /* frame from `from` -> target, as it is */
    MOVE_LOAD = 1u << 2,      /* the first of RECV_ACC, OWN in this move replaces the accumulator */
    MOVE_RAW = 1u << 3,       /* with RECV_ACC: the frame holds untouched elements of the buffer's type */
    MOVE_OWN = 1u << 4,       /* own input -> accumulator */
    MOVE_FENCE = 1u << 5,     /* before the target is written: wait until this lane's SEND_INs have left */
    MOVE_STORE = 1u << 6,     /* accumulator -> target, finished (averaged, rounded); it may still be sent */
    MOVE_COPY = 1u << 7,      /* own input -> target, as it is (nothing to do when in place) */
    MOVE_IDENTITY = 1u << 8,  /* the operation's identity -> target */
    MOVE_SEND_IN = 1u << 9,   /* own input -> `to`, untouched elements of the buffer's type */
    MOVE_SEND_ACC = 1u << 10, /* accumulator -> `to`, in the accumulator's type */
    MOVE_SEND_OUT = 1u << 11, /* target -> `to` */

    MOVE_RECV = MOVE_RECV_ACC | MOVE_RECV_OUT,
    MOVE_SEND = MOVE_SEND_IN | MOVE_SEND_ACC | MOVE_SEND_OUT
};

struct move {
    uint32_t bits;               /* enum move_bits */
    int32_t from, to;            /* ranks; RANK_NONE without RECV / SEND */
    uint32_t from_step, to_step; /* canonical order */
    uint32_t part, parts;        /* the range of parts it works on, parts >= 1 */
};

/* What the caller wants. `count`: all_reduce, broadcast, reduce, scan: elements of the buffer;
 * reduce_scatter, all_gather, gather, scatter, all_to_all: elements of each part; barrier: 0.
 * v-variants: `in_counts` / `out_counts` [size] instead: reduce_scatterv: in; all_gatherv: out;
 * gatherv: out at the root, elsewhere NULL with `count` = own; scatterv: in at the root, likewise;
 * all_to_allv: both. */
struct plan_call {
    enum plan_kind kind;
    enum hearth_algo algo; /* plan_write: not HEARTH_ALGO_AUTO */
    int size, rank, root;
    size_t count;
    const size_t *in_counts, *out_counts;
    uint32_t raw_len, acc_len; /* bytes of an element in the buffer and in the accumulator */
    bool rank_order;           /* combine in rank order */
    const int *host;           /* as in struct group_view; NULL = all on one */
    const int *order;          /* likewise: each rank once; NULL = by rank */
    size_t chunk_bytes, window_bytes;
};

enum plan_split {
    SPLIT_EVEN, /* one buffer cut into lanes, each lane into `parts`: source and target look the same */
    SPLIT_GIVEN /* parts given by counts, each cut into pieces of chunk_count, piece l in lane l */
};

struct plan {
    enum plan_kind kind;
    enum hearth_algo algo;
    int size, rank, root;
    enum plan_split split;
    uint32_t parts;     /* of a lane (EVEN), of the buffer (GIVEN: = size) */
    uint64_t lanes;     /* 0: nothing to do */
    uint64_t window;    /* lanes in a block: 1..lanes, and 1 if there are none */
    bool sync;          /* empty pieces are sent too (barrier) */
    size_t count;       /* EVEN: elements */
    size_t chunk_count; /* GIVEN: elements of a piece */
    /* GIVEN: [size] each. Elements of part p in source and target and where it stands there. Parts that are
     * not here have count 0. */
    size_t *in_count, *in_offset, *out_count, *out_offset;
    uint32_t raw_len, acc_len;
    size_t acc_count;   /* elements the accumulator of a lane must hold; 0: none needed */
    size_t frame_bytes; /* largest payload this member sends or gets */
    uint32_t move_count;
    struct move *moves;
};

/* Whether a call's numbers make sense, whatever the algorithm: HEARTH_OK or HEARTH_INVALID with a text. */
int MUST_CHECK plan_check(const struct plan_call *call, struct error *error);
/* Writes the plan of one member. HEARTH_INVALID / HEARTH_UNSUPPORTED with a text (nothing to free then),
 * HEARTH_NO_MEMORY. */
int MUST_CHECK plan_write(const struct plan_call *call, struct heap *heap, struct plan *plan,
                          struct error *error);
/* The plan of an all_to_all becomes that of one with other counts, which are checked: moves stay the same.
 * False: that has too many lanes; nothing has changed. */
bool plan_recount(const struct plan_call *call, struct plan *plan);
void plan_fini(struct plan *plan);

/* Where the elements of a range of parts of one lane stand. IN: source; OUT: target (the same when EVEN).
 * Exact for every count below 2^63 bytes; never rounds, never overlaps, covers everything. */
struct range {
    size_t offset, count; /* elements */
};
enum plan_side { SIDE_IN, SIDE_OUT };
struct range plan_range(const struct plan *plan, enum plan_side side, uint64_t lane, uint32_t part,
                        uint32_t parts);
/* The range a move works on: SIDE_OUT if it touches only the target (RECV_OUT, SEND_OUT), else SIDE_IN.
 * A STORE writes the target's range of the same part. */
struct range plan_move_range(const struct plan *plan, uint64_t lane, const struct move *move);
/* Bytes of the frame a move takes or sends in a lane; 0 and !plan->sync: there is no such frame. */
size_t plan_recv_bytes(const struct plan *plan, uint64_t lane, const struct move *move);
size_t plan_send_bytes(const struct plan *plan, uint64_t lane, const struct move *move);

/* Of the choices that all members must share: algorithm, chunking, order, hosts. */
uint64_t plan_hash(const struct plan_call *call);
const char *plan_kind_name(enum plan_kind kind); /* "all_reduce" */
int MUST_CHECK plan_kind_parse(const char *name, enum plan_kind *kind);
bool plan_kind_rooted(enum plan_kind kind);  /* it has a root */
bool plan_kind_reduces(enum plan_kind kind); /* it combines: it has an operation */
/* "recv_reduce_copy_send" and so on, into `text`. */
void move_name(const struct move *move, char *text, size_t size);
