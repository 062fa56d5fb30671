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

static void write(const struct plan_call *call, struct plan_writer *writer)
{
    bool reduces = plan_kind_reduces(call->kind), spreads = call->kind != PLAN_REDUCE;
    int root = root_of(call);
    uint32_t step = reduces ? 1 : 0; /* of the way back */

    if (call->rank != root) {
        if (reduces)
            plan_writer_send(writer, MOVE_SEND_IN, root, 0, 0);
        if (spreads)
            plan_writer_recv(writer, MOVE_RECV_OUT, root, step, 0);
        return;
    }
    if (reduces)
        plan_writer_combine_in_order(writer, MOVE_STORE, 0);
    else if (call->size == 1)
        plan_writer_add(writer, (struct move){.bits = MOVE_COPY});
    for (int i = 1; spreads && i < call->size; i++) {
        uint32_t bits = reduces ? MOVE_SEND_OUT : i == 1 ? MOVE_COPY | MOVE_SEND_IN : MOVE_SEND_IN;
        plan_writer_send(writer, bits, (root + i) % call->size, step, 0);
    }
}

static double price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    const struct link_cost *pace = fare_pace(fares);
    int root = root_of(call);
    double raw = (double)shape->lane_count * call->raw_len, chain = 0, turn = 0, ports = 0, overheads = 0;
    double combine = pace->gamma_s * (double)shape->lane_count * call->acc_len,
           work = combine * (call->size - 1);

    for (int r = 0; r < call->size; r++) {
        const struct link_cost *cost = fare_between(fares, r, root);
        ports += r != root ? price_port(cost, raw) : 0;
        overheads += r != root ? cost->overhead_s : 0;
    }
    if (plan_kind_reduces(call->kind)) {
        double taken = ports - overheads; /* those are the senders' */
        turn = longer(taken, work);
        chain = pace->alpha_s + pace->overhead_s + turn + (taken > work ? combine : raw / pace->bytes_per_s);
    }
    if (call->kind != PLAN_REDUCE) {
        chain += pace->alpha_s + ports;
        turn = longer(ports, turn);
    }
    return price_lanes(shape, chain, turn, call->kind == PLAN_ALL_REDUCE ? chain : turn);
}

const struct planner planner_star = {
    .kinds = KIND_BIT(PLAN_ALL_REDUCE) | KIND_BIT(PLAN_REDUCE) | KIND_BIT(PLAN_BROADCAST),
    .fits = fits_always,
    .shape = shape_whole,
    .write = write,
    .price = price,
};
