/* SPDX-License-Identifier: Apache-2.0 */
/* Exchange: everyone sends all it has to everyone, and each combines for itself, in rank order.
 *
 *        0 <----> 1
 *        ^ \    / ^       one hop; N-1 times the buffer through every port
 *        |  \  /  |
 *        |   \/   |       0:  x0+x1+x2+x3
 *        |   /\   |       1:  x0+x1+x2+x3
 *        |  /  \  |       2:  x0+x1+x2+x3      the same order everywhere, so the same bits
 *        v /    \ v       3:  x0+x1+x2+x3
 *        2 <----> 3
 *
 *   The fastest there is for a few members and small buffers, where the hop is all that counts.
 *   Each member sends n*r*(N-1) bytes (n elements, r = raw_len).
 *
 *   In place: others may still be reading our input when our result is complete, so the STORE waits for it
 *   (FENCE).
 *
 *   barrier: the same with empty frames. */
#include "collective/planners.h"

static bool can(const struct plan_call *call)
{
    return call->kind == PLAN_ALL_REDUCE || call->kind == PLAN_BARRIER;
}

static void shape(const struct plan_call *call, struct plan_shape *shape)
{
    shape->acc_parts = plan_kind_reduces(call->kind);
}

static int write(const struct plan_call *call, struct plan *plan, struct heap *heap, struct error *error)
{
    struct plan_writer writer = {.plan = plan, .heap = heap, .error = error};

    for (int i = 1; i < call->size; i++)
        plan_writer_add(&writer, (struct move){.bits = MOVE_SEND_IN, .to = (call->rank + i) % call->size});
    if (call->kind == PLAN_ALL_REDUCE)
        plan_writer_combine_in_order(
            &writer, (struct move){.bits = (uint16_t)(MOVE_STORE | (call->size > 1 ? MOVE_FENCE : 0))});
    for (int i = 1; call->kind == PLAN_BARRIER && i < call->size; i++)
        plan_writer_add(&writer, (struct move){.bits = MOVE_RECV_OUT,
                                               .from = (call->rank - i + call->size) % call->size});
    return writer.status;
}

static double price(const struct plan_call *call, const struct link_cost *inside,
                    const struct link_cost *across)
{
    struct fares fares = fares_of(call, inside, across);
    const struct link_cost *pace = fare_pace(&fares);
    struct plan_shape cut;

    plan_shape_of(call, &planner_exchange, &cut);
    if (call->size == 1)
        return 0;
    double ports = fare_to_all(&fares, (double)cut.lane_count * call->raw_len);
    double work = (call->size - 1) * pace->gamma_s * (double)cut.lane_count * call->acc_len;
    double chain = pace->alpha_s + ports + work;
    return price_lanes(&cut, chain, ports > work ? ports : work, chain);
}

const struct planner planner_exchange = {
    .algo = HEARTH_ALGO_EXCHANGE,
    .about = "everyone to everyone, combined by each in rank order: one hop",
    .can = can,
    .shape = shape,
    .write = write,
    .price = price,
};
