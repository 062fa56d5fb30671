/* SPDX-License-Identifier: Apache-2.0 */
/* What the planners share: the list of them, a writer of moves, teams, prices.
 *
 *   Why no plan can deadlock. In every member's list the steps never fall, and of moves with the same step
 *   those that send come before those that receive (a move that does both has from_step < to_step). Take
 *   the first frame, in the order (block, step, lane), that has not been taken. All that its sender's lane
 *   does before it is done, the one before it on its link has left the slot, and all that its receiver's
 *   lane does before it is done: so it moves. One slot per directed link is enough. A test holds all plans
 *   to this rule. */
#pragma once

#include "collective/plan.h"

/* How a buffer is cut. It follows from facts that all members share. The planner sets the first four (it
 * finds one part, and an accumulator for it where the call reduces), plan.c the rest. */
struct plan_shape {
    uint32_t parts;       /* of a lane (EVEN); GIVEN: always the number of members */
    uint32_t frame_parts; /* the largest range that any member sends in one frame */
    uint32_t acc_parts;   /* the largest range that any member's accumulator holds; 0: none has one */
    bool sums_travel;     /* some frames hold accumulators */
    uint64_t lanes, window;
    size_t lane_count; /* elements: of the largest lane (EVEN), of the largest part's first piece (GIVEN) */
};

/* The links of a call, for its price. */
struct fares {
    const struct plan_call *call;
    const struct link_cost *inside, *across;
    bool mixed; /* there is more than one host */
};

/* Writes moves into a plan; after a failure it writes no more: look at status once, at the end. */
struct plan_writer {
    struct plan *plan;
    struct heap *heap;
    struct error *error;
    int status;
};

/* One algorithm. */
struct planner {
    uint32_t kinds;     /* KIND_BIT: what it does, in rank order where it combines */
    uint32_t any_order; /* the same, but not in rank order */
    /* Whether it can do a call of such a kind with more than one member. */
    bool (*fits)(const struct plan_call *call);
    void (*shape)(const struct plan_call *call, struct plan_shape *shape);
    /* plan.c has filled in all the rest that does not depend on the moves. */
    void (*write)(const struct plan_call *call, struct plan_writer *writer);
    /* Seconds, by closed form, with more than one member; see select.h. */
    double (*price)(const struct fares *fares, const struct plan_shape *shape);
};

#define KIND_BIT(kind) (1u << (kind))

extern const struct planner planner_ring, planner_direct, planner_halving, planner_tree, planner_star,
    planner_hierarchical, planner_exchange;

const struct planner *planner_of(enum hearth_algo algo); /* NULL: HEARTH_ALGO_AUTO or unknown */
bool planner_can(const struct planner *planner, const struct plan_call *call); /* NULL cannot */
/* How this planner would cut the call's buffer. */
struct plan_shape planner_shape(const struct planner *planner, const struct plan_call *call);
/* For planners that fit always, and that do not cut lanes. */
bool fits_always(const struct plan_call *call);
void shape_whole(const struct plan_call *call, struct plan_shape *shape);

/* ---- numbers ---- */

int log2_floor(int n); /* n >= 1 */
int log2_ceil(int n);  /* n >= 1 */
bool is_power_of_two(int n);
double longer(double a, double b);

/* ---- calls ---- */

enum plan_split split_of(enum plan_kind kind);
int root_of(const struct plan_call *call); /* 0 where the call has none */
/* Elements of the part that belongs to `rank`, as far as this member knows; SPLIT_GIVEN kinds only. */
size_t part_count(const struct plan_call *call, enum plan_side side, int rank);
/* Sets HEARTH_UNSUPPORTED with a text that lists the algorithms that can do the call; returns the status. */
int call_refuse(const struct plan_call *call, enum hearth_algo algo, struct error *error);

/* ---- the writer ---- */

/* Fills in what need not be said: no peer without RECV or SEND, parts = 1. */
void plan_writer_add(struct plan_writer *writer, struct move move);
/* A move of one part that only sends, or only receives. */
void plan_writer_send(struct plan_writer *writer, uint32_t bits, int to, uint32_t step, uint32_t part);
void plan_writer_recv(struct plan_writer *writer, uint32_t bits, int from, uint32_t step, uint32_t part);
/* Takes part `part` from all others, in rank order with the own input at its place, and ends with the bits
 * `end`. Any two contributions may change places without changing a bit, so the own input of rank 0 is joined
 * to the frame of rank 1. */
void plan_writer_combine_in_order(struct plan_writer *writer, uint32_t end, uint32_t part);

/* ---- teams ---- */

/* Some members in an order of their own: the group seen from its root, a host, the leaders of all hosts. */
struct team {
    const int *ranks; /* [size], beginning with number `first` and going round; NULL: all ranks */
    int size, first;
    int place; /* our own */
};

struct team team_from(const struct plan_call *call, int first); /* the whole group, `first` at place 0 */
/* The same in the order of the call's ring. */
struct team team_ring(const struct plan_call *call, int first);
int team_rank(const struct team *team, int place);

/* ---- tree.c ---- */

/* Binomial trees on a team. Up: all contributions into the accumulator of place 0, in `depth` steps from
 * `step` on (depth >= log2_ceil(team->size)). `begin` says which parts, and how place 0 begins: MOVE_LOAD |
 * MOVE_OWN, with or without a frame; the bits of `end` join its last move. Down: from place 0 to all
 * targets, in as many steps; the bits of `range` are those of place 0's sends. */
void tree_up(struct plan_writer *writer, const struct team *team, struct move begin, struct move end,
             uint32_t step, int depth);
void tree_down(struct plan_writer *writer, const struct team *team, struct move range, uint32_t step);

/* ---- prices ---- */

struct fares fares_of(const struct plan_call *call, const struct link_cost *inside,
                      const struct link_cost *across);
const struct link_cost *fare_between(const struct fares *fares, int a, int b);
/* The slowest that is used when all members take part. */
const struct link_cost *fare_pace(const struct fares *fares);
/* Of `steps` links from place 0 of the team to the next and so on, how many lead to another host. */
int fare_crossings(const struct fares *fares, const struct team *team, int steps);
/* What the port of a member needs to send `bytes` to each of the others: one that has as few of them at
 * home as any. */
double fare_to_all(const struct fares *fares, double bytes);

double price_port(const struct link_cost *cost, double bytes); /* one frame at a port */
double price_hop(const struct link_cost *cost, double bytes);  /* one frame from send to arrival */
/* Lanes in a pipeline: the first takes `chain` seconds, each further one `turn` seconds of the busiest
 * member. A lane stays at a member for `stay` seconds, and no more than a window of them is there at a
 * time. */
double price_lanes(const struct plan_shape *shape, double chain, double turn, double stay);

/* ---- scan.c: both scans, as a chain and by doubling ---- */

#define SCAN_KINDS (KIND_BIT(PLAN_SCAN) | KIND_BIT(PLAN_EXCLUSIVE_SCAN))

void scan_chain(struct plan_writer *writer, const struct plan_call *call);
void scan_doubling(struct plan_writer *writer, const struct plan_call *call);
double scan_price(const struct fares *fares, const struct plan_shape *shape, bool chain);
