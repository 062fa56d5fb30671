/* SPDX-License-Identifier: Apache-2.0 */
/* One operation: its states, its lanes, its flows. The face of the room is engine.h; this header is for the
 * files of the room that share the work on an operation:
 *
 *   op.c    life: posted -> running -> ready -> committed, or aborted
 *   step.c  lanes: carries out moves; the only file that touches user memory
 *   flow.c  frames of one peer: what may be sent, where what comes in goes, grants
 */
#pragma once

#include "collective/engine.h"
#include "collective/program.h"
#include "collective/slot.h"
#include "kernel/kernel.h"
#include "wire/record.h"

/*   posted --> running --> ready --> committed
 *      |          |
 *      +----------+------> aborted
 * ready: this member has all it needs and owes nobody anything. ready -> committed is a local step as long
 * as there is no agreement on crashes; the states are kept apart so that it can become one. */
enum op_state { OP_POSTED, OP_RUNNING, OP_READY, OP_COMMITTED, OP_ABORTED };

enum lane_stage { LANE_RECV, LANE_WORK, LANE_SEND };

struct lane {
    uint64_t number;       /* which lane of the plan; lane n stands at place n % window */
    uint32_t move;         /* at which move */
    enum lane_stage stage; /* and where in it */
    bool queued;           /* in the operation's ready queue */
    bool idle;             /* no lane of the plan is left for this place */
    uint32_t unsent_in;    /* frames under way out of the source */
    uint32_t unsent_acc;   /* and out of the accumulator */
    struct slot *frame;    /* taken, not yet worked on */
    struct slot *acc;
    struct slot *borrowed;       /* a lent frame that is all of the sum so far: read, never written */
    struct range borrowed_range; /* of the source: what it covers */
    size_t acc_offset;           /* element of the source at which the accumulator's range begins */
    size_t lent_from, lent_to;   /* elements of the source: what of the accumulator is under way */
    double weight;               /* sum of the weights in the accumulator */
};

struct inflow {
    struct flow_cursor floor; /* everything before it has been taken */
    uint64_t mask;            /* bit i: frame floor.index + i has been taken */
    uint64_t come;            /* bit i: frame floor.index + i has come or is coming in */
    uint64_t told;            /* index up to which the peer has our grant; 0: none was sent */
    bool heard;               /* a frame has come */
    struct list early;        /* slots whose lane is not ready for them */
};

struct outflow {
    struct flow_cursor next;
    uint64_t limit;  /* index up to which the peer granted */
    bool granted;    /* a grant has come: no eager sending any more */
    uint32_t unsent; /* frames in the link's queue */
};

struct op {
    struct list item;   /* engine: active; program: idle */
    struct list bucket; /* engine: by id */
    struct group *group;
    struct program *program;
    struct completion *completion;
    enum op_state state;

    uint64_t tag, sequence;
    struct call_record record;
    uint64_t posted_ns, deadline_ns;
    uint64_t nagged_ns;
    uint64_t first_ns; /* when the first peer's own piece came; 0: none has */
    uint64_t ask_ns;   /* when it asks those that have sent nothing; NEVER_NS: it has */
    bool disputed, judged;

    const uint8_t *source;
    uint8_t *target;
    bool in_place;
    void *shadow; /* heap: the input as it was */
    size_t shadow_len;
    bool restore;
    enum hearth_dtype dtype, acc_dtype;
    int kernel_op; /* KERNEL_SUM ... */
    bool average;
    bool far;    /* so large that results do not stay in the caches */
    bool vector; /* lengths known only to pairs: it ends when all of them have been compared */
    double weight;

    struct lane *lanes; /* [window] */
    uint32_t *ready;    /* ring of places, [window] */
    uint32_t ready_head, ready_count;
    uint64_t lanes_left;
    uint64_t unsent;
    struct inflow *in;   /* [program->in_count] */
    struct outflow *out; /* [program->out_count] */
    bool running;        /* inside op_run */
    bool spoiled; /* a member took back what we read: it has ended the operation, and we wait to hear why */
};

/* ---- op.c ---- */

/* Ends the operation here: with `why` (aborted) or without (committed). The memory may be reused at once. */
void op_end(struct op *op, const struct error *why);
/* Ends it here and tells all members, who end it with `theirs`. */
void op_abort(struct op *op, const struct error *ours, const struct error *theirs);
void op_out_of_memory(struct op *op); /* aborts it for want of memory here */
/* Tells all other members: FRAME_ABORT or FRAME_VERDICT. */
void group_tell(struct group *group, uint8_t kind, uint64_t tag, uint64_t sequence,
                const struct error *error);
/* "all_reduce #12 (tag 3) on rank 1 of 4" */
struct op_name {
    char s[160];
};
struct op_name op_name(const struct op *op);
/* A rank whose frames it waits for, or RANK_NONE. */
int op_waits_for(const struct op *op);
/* One that has not begun it as far as is known here, best the same one; RANK_NONE: all have. */
int op_lacks(const struct op *op);
bool op_expects(const struct op *op, int rank); /* frames of that rank have yet to come (loss.c) */
void op_free_idle(struct list *item);

/* ---- step.c ---- */

void lanes_start(struct op *op);
/* A range of its accumulator is on its way: it must not change until it has left. */
void lane_lend(struct lane *lane, struct range range);
void lane_wake(struct op *op, struct lane *lane); /* something it may have waited for has happened */
/* Copies what the operation has borrowed of a member and what holds up that member's link. May end it. */
void op_return_loans(struct op *op, int rank, const struct link *link);
/* Whether all that the member has lent for the operation is still what it meant. */
bool op_loans_good(const struct op *op, int rank);
/* Runs what is ready. May end the operation. */
void op_run(struct op *op);

/* ---- flow.c ---- */

void flows_start(struct op *op);
/* Sends what the flow's next frames are ready for. */
void outflow_pump(struct op *op, uint32_t flow);
void outflow_grant(struct op *op, uint32_t flow, uint64_t limit);
/* Whether every receiver has said that it expects what we send (asked only where it could not know). */
bool outflows_compared(const struct op *op);
/* The frame for the lane's move, if it has come whole; it is the caller's then. */
struct slot *inflow_find(struct op *op, const struct lane *lane);
/* The lane has taken (or need not take) the frame of its move: its place is free for the peer. */
void inflow_took(struct op *op, const struct lane *lane);
void inflow_tell(struct op *op, uint32_t flow); /* sends a grant now */
/* Sends a grant to all that have none and of whom we wait for something: members that wait for each other in
 * different calls find out by its fingerprint. */
void flows_ask(struct op *op);
/* Puts a slot's eager credit back and the slot away. */
void slot_release(struct engine *engine, int world_rank, struct slot *slot);
