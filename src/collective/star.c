/* SPDX-License-Identifier: Apache-2.0 */
/* Star: everything through one member ("centralized").
 *
 *          1   2                       1   2
 *           \ /                         ^ ^
 *        5 - 0 - 3     all to 0,         0 ....     0 to all
 *            |         who combines      v
 *            4         in rank order     4
 *
 *   all_reduce through member 0, reduce to the root, broadcast from the root. Two hops (one), rank order;
 *   but one port carries everything: for very small buffers, and as a measure for the others.
 *
 *   Bytes (n elements, r = raw_len), and hops:
 *     reduce      n*r from each but the root     1
 *     broadcast   n*r*(N-1) from the root        1
 *     all_reduce  both, with root 0              2
 *
 *   In place: what comes back to a member was made of what it sent. */
#include "collective/planners.h"

static bool can(const struct plan_call *call)
{
    return call->kind == PLAN_ALL_REDUCE || call->kind == PLAN_REDUCE || call->kind == PLAN_BROADCAST;
}

static void shape(const struct plan_call *call, struct plan_shape *shape)
{
    shape->acc_parts = plan_kind_reduces(call->kind);
}

static int write(const struct plan_call *call, struct plan *plan, struct heap *heap, struct error *error)
{
    struct plan_writer writer = {.plan = plan, .heap = heap, .error = error};
    bool reduces = plan_kind_reduces(call->kind), spreads = call->kind != PLAN_REDUCE;
    int root = plan_kind_rooted(call->kind) ? call->root : 0;
    uint32_t step = reduces ? 1 : 0; /* of the way back */

    if (call->rank != root) {
        if (reduces)
            plan_writer_add(&writer, (struct move){.bits = MOVE_SEND_IN, .to = root});
        if (spreads)
            plan_writer_add(&writer, (struct move){.bits = MOVE_RECV_OUT, .from = root, .from_step = step});
        return writer.status;
    }
    if (reduces)
        plan_writer_combine_in_order(&writer, (struct move){.bits = MOVE_STORE});
    else if (call->size == 1)
        plan_writer_add(&writer, (struct move){.bits = MOVE_COPY});
    for (int i = 1; spreads && i < call->size; i++)
        plan_writer_add(&writer, (struct move){.bits = reduces  ? MOVE_SEND_OUT
                                                       : i == 1 ? MOVE_COPY | MOVE_SEND_IN
                                                                : MOVE_SEND_IN,
                                               .to = (root + i) % call->size,
                                               .to_step = step});
    return writer.status;
}

static double price(const struct plan_call *call, const struct link_cost *inside,
                    const struct link_cost *across)
{
    struct fares fares = fares_of(call, inside, across);
    const struct link_cost *pace = fare_pace(&fares);
    int root = plan_kind_rooted(call->kind) ? call->root : 0;
    struct plan_shape cut;

    plan_shape_of(call, &planner_star, &cut);
    if (call->size == 1)
        return 0;
    double raw = (double)cut.lane_count * call->raw_len, chain = 0, turn = 0, ports = 0, overheads = 0;
    double combine = pace->gamma_s * (double)cut.lane_count * call->acc_len,
           work = combine * (call->size - 1);
    for (int r = 0; r < call->size; r++) {
        const struct link_cost *cost = fare_between(&fares, r, root);
        ports += r != root ? price_port(cost, raw) : 0;
        overheads += r != root ? cost->overhead_s : 0;
    }
    if (plan_kind_reduces(call->kind)) {
        double taken = ports - overheads; /* those are the senders' */
        turn = taken > work ? taken : work;
        chain = pace->alpha_s + pace->overhead_s + turn + (taken > work ? combine : raw / pace->bytes_per_s);
    }
    if (call->kind != PLAN_REDUCE) {
        chain += pace->alpha_s + ports;
        turn = ports > turn ? ports : turn;
    }
    return price_lanes(&cut, chain, turn, call->kind == PLAN_ALL_REDUCE ? chain : turn);
}

const struct planner planner_star = {
    .algo = HEARTH_ALGO_STAR,
    .about = "everything through one member, combined in rank order",
    .can = can,
    .shape = shape,
    .write = write,
    .price = price,
};
