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

static void write(const struct plan_call *call, struct plan_writer *writer)
{
    int rank = call->rank, size = call->size;

    for (int i = 1; i < size; i++)
        plan_writer_send(writer, MOVE_SEND_IN, (rank + i) % size, 0, 0);
    if (call->kind == PLAN_ALL_REDUCE)
        plan_writer_combine_in_order(writer, MOVE_STORE | (size > 1 ? MOVE_FENCE : 0), 0);
    for (int i = 1; call->kind == PLAN_BARRIER && i < size; i++)
        plan_writer_recv(writer, MOVE_RECV_OUT, (rank - i + size) % size, 0, 0);
}

static double price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    const struct link_cost *pace = fare_pace(fares);
    double ports = fare_to_all(fares, (double)shape->lane_count * call->raw_len);
    double work = (call->size - 1) * pace->gamma_s * (double)shape->lane_count * call->acc_len;
    double chain = pace->alpha_s + ports + work;
    return price_lanes(shape, chain, longer(ports, work), chain);
}

const struct planner planner_exchange = {
    .kinds = KIND_BIT(PLAN_ALL_REDUCE) | KIND_BIT(PLAN_BARRIER),
    .fits = fits_always,
    .shape = shape_whole,
    .write = write,
    .price = price,
};
