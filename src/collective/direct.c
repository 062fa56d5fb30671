/* SPDX-License-Identifier: Apache-2.0 */
/* Direct: whoever has something for a member sends it there, in one hop.
 *
 *   all_reduce. Part p belongs to member p. Everyone sends its piece of part p to p; p combines all of them
 *   in rank order, its own at its place, and sends the finished part to everyone.
 *
 *        hop 1: parts to their owners          hop 2: results to all
 *
 *        member 0  [ 0 | 1 | 2 ]               0 ==> [0] --> 1, 2
 *        member 1  [ 0 | 1 | 2 ]               1 ==> [1] --> 2, 0
 *        member 2  [ 0 | 1 | 2 ]               2 ==> [2] --> 0, 1
 *                    |   |   |
 *                    v   v   v
 *             owner  0   1   2
 *
 *   Two hops, as few bytes as a ring, and the order of combination is that of the ranks, so the bits do not
 *   depend on the plan; no partial sum travels, so 16-bit elements stay 16 bits. What it costs is messages:
 *   N-1 small ones instead of one large one to a neighbour. reduce_scatter is the first hop, all_gather the
 *   second; gather, scatter and all_to_all are nothing else at all.
 *
 *   Everyone begins with its right-hand neighbour (send to rank+1, rank+2, ...), so at any time all ports
 *   receive from different members instead of all storming member 0.
 *
 *   Bytes each member sends (n elements, all parts together; r = raw_len), and hops:
 *     all_reduce       2 * (N-1)/N * n * r    2
 *     reduce_scatter   (N-1)/N * n * r        1        the same for all_gather and all_to_all
 *     gather, scatter  all but the root's own part, once, in 1 hop
 *
 *   In place: our input of part p is overwritten by the finished part, which its owner made of what we sent;
 *   our own part by the STORE after it was read. */
#include "collective/planners.h"

static void shape(const struct plan_call *call, struct plan_shape *shape)
{
    if (call->kind == PLAN_ALL_REDUCE)
        shape->parts = (uint32_t)call->size;
}

/* ---- moves ---- */

/* To all others, the right-hand neighbour first: `bits`, our own part or the receiver's. */
static void send_all(struct plan_writer *writer, uint32_t bits, uint32_t step, bool own)
{
    int size = writer->plan->size, rank = writer->plan->rank;

    for (int i = 1; i < size; i++) {
        int to = (rank + i) % size;
        plan_writer_send(writer, bits, to, step, (uint32_t)(own ? rank : to));
        bits &= ~(uint32_t)MOVE_COPY; /* once is enough */
    }
}

/* From all others, their own part, in the order in which they send to us. */
static void recv_all(struct plan_writer *writer, uint32_t step)
{
    int size = writer->plan->size, rank = writer->plan->rank;

    for (int i = 1; i < size; i++) {
        int from = (rank + size - i) % size;
        plan_writer_recv(writer, MOVE_RECV_OUT, from, step, (uint32_t)from);
    }
}

static void copy_own(struct plan_writer *writer)
{
    plan_writer_add(writer, (struct move){.bits = MOVE_COPY, .part = (uint32_t)writer->plan->rank});
}

static void write_rooted(const struct plan_call *call, struct plan_writer *writer)
{
    uint32_t own = (uint32_t)call->rank;
    bool gather = call->kind == PLAN_GATHER;

    if (call->rank == call->root) {
        copy_own(writer);
        if (gather)
            recv_all(writer, 0);
        else
            send_all(writer, MOVE_SEND_IN, 0, false);
    } else if (gather) {
        plan_writer_send(writer, MOVE_SEND_IN, call->root, 0, own);
    } else {
        plan_writer_recv(writer, MOVE_RECV_OUT, call->root, 0, own);
    }
}

static void write(const struct plan_call *call, struct plan_writer *writer)
{
    switch (call->kind) {
    case PLAN_ALL_REDUCE:
    case PLAN_REDUCE_SCATTER:
        send_all(writer, MOVE_SEND_IN, 0, false);
        plan_writer_combine_in_order(writer, MOVE_STORE, (uint32_t)call->rank);
        if (call->kind == PLAN_REDUCE_SCATTER)
            break;
        send_all(writer, MOVE_SEND_OUT, 1, true);
        recv_all(writer, 1);
        break;
    case PLAN_ALL_GATHER:
        if (call->size == 1)
            copy_own(writer);
        send_all(writer, MOVE_COPY | MOVE_SEND_IN, 0, true);
        recv_all(writer, 0);
        break;
    case PLAN_ALL_TO_ALL:
        copy_own(writer);
        send_all(writer, MOVE_SEND_IN, 0, false);
        recv_all(writer, 0);
        break;
    default:
        write_rooted(call, writer);
    }
}

/* ---- price ---- */

static double price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    const struct link_cost *pace = fare_pace(fares);
    bool both = call->kind == PLAN_ALL_REDUCE;
    double count = (double)shape->lane_count / (both ? (double)call->size : 1);
    double ports = fare_to_all(fares, count * call->raw_len);
    double work =
        plan_kind_reduces(call->kind) ? (call->size - 1) * pace->gamma_s * count * call->acc_len : 0;
    double chain = ports + pace->alpha_s + work;

    if (both) {
        chain += ports + pace->alpha_s;
        ports *= 2;
    }
    return price_lanes(shape, chain, longer(ports, work), chain);
}

const struct planner planner_direct = {
    .kinds = KIND_BIT(PLAN_ALL_REDUCE) | KIND_BIT(PLAN_REDUCE_SCATTER) | KIND_BIT(PLAN_ALL_GATHER) |
             KIND_BIT(PLAN_GATHER) | KIND_BIT(PLAN_SCATTER) | KIND_BIT(PLAN_ALL_TO_ALL),
    .fits = fits_always,
    .shape = shape,
    .write = write,
    .price = price,
};
