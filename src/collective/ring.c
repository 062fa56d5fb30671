/* SPDX-License-Identifier: Apache-2.0 */
/* Ring: every member hears only the one before it and speaks only to the one after it.
 *
 *   all_reduce of N = 4. Part p is what member p owns; it sets out from member p+1 as that one's bare
 *   input, and each station adds its own, so that it is complete when it comes to p. Then it goes round
 *   once more, finished.
 *
 *              member 0           member 1           member 2           member 3
 *     step 0   3 ---------------> 0 ---------------> 1 ---------------> 2 ----------> (0)   bare input
 *     step 1   2+2 -------------> 3+3 -------------> 0+0 -------------> 1+1 --------> (0)   partial sums
 *     step 2   1+1+1 -----------> 2+2+2 -----------> 3+3+3 -----------> 0+0+0 ------> (0)
 *     step 3   0 is complete ---> 1 is complete ---> 2 is complete ---> 3 is complete (0)   results
 *     step 4   3 ---------------> 0 ---------------> 1 ---------------> 2 ----------> (0)
 *     step 5   2 ---------------> 3 ---------------> 0 ---------------> 1 ----------> (0)
 *
 *   In the words of NCCL: send; recv_reduce_send N-2 times; recv_reduce_copy_send; recv_copy_send N-2 times;
 *   recv. The second half hands on the bytes that the owner made, so all members end with the same bits.
 *   reduce_scatter is the first half, all_gather the second.
 *
 *   Bytes each member sends, of n elements (r = raw_len, a = acc_len), and hops:
 *     all_reduce      n/N * (r + (N-2)*a + (N-1)*r)   2(N-1)
 *     reduce_scatter  n/N * (r + (N-2)*a)             N-1      n = all parts together
 *     all_gather      n/N * (N-1)*r                   N-1
 *   As few bytes as can be, and every port is busy all the time; but the hops grow with N.
 *
 *   Where the view has an order of its own (it was measured which way round is fastest), the neighbours above
 *   are those of that order; part p still is what rank p owns. Scans go by rank.
 *
 *   In place: a part of the own input is overwritten by a RECV_OUT only, and what comes then contains what
 *   was sent of it; or by the STORE of the very move that has read it.
 *
 *   broadcast and reduce are chains: from the root on round the ring, and from the root's neighbour round
 *   to the root. With many lanes all links of a chain are busy at once, so a large buffer takes hardly
 *   longer than over one link. Each member sends n*r (broadcast: all but the last) or n*a (reduce: all but
 *   the root, the first one n*r) in N-1 hops. Scans: see scan.c. */
#include "collective/planners.h"

static bool can(const struct plan_call *call)
{
    switch (call->kind) {
    case PLAN_ALL_REDUCE:
    case PLAN_REDUCE_SCATTER:
    case PLAN_REDUCE:
        return !call->rank_order || call->size == 1;
    case PLAN_ALL_GATHER:
    case PLAN_BROADCAST:
    case PLAN_SCAN:
    case PLAN_EXCLUSIVE_SCAN:
        return true;
    default:
        return false;
    }
}

static void shape(const struct plan_call *call, struct plan_shape *shape)
{
    bool chain = call->kind != PLAN_ALL_REDUCE && call->kind != PLAN_REDUCE_SCATTER;

    if (call->kind == PLAN_ALL_REDUCE)
        shape->parts = (uint32_t)call->size;
    if (plan_kind_reduces(call->kind)) {
        shape->acc_parts = 1;
        shape->sums_travel = call->size > (chain ? 1 : 2);
    }
}

/* ---- moves ---- */

/* The member `back` places before us. */
static int member_before(const struct team *ring, int back)
{
    return team_rank(ring, (ring->place - back + ring->size) % ring->size);
}

static int member_after(const struct team *ring)
{
    return team_rank(ring, (ring->place + 1) % ring->size);
}

/* The part that belongs to it. */
static uint32_t part_of(const struct team *ring, int back)
{
    return (uint32_t)member_before(ring, back);
}

/* Leaves our own part complete; the last move also does `end`, and sends at step size-1 if that has a
 * SEND. */
static void ring_reduce(struct plan_writer *writer, const struct team *ring, unsigned end)
{
    int size = ring->size, next = member_after(ring), prev = member_before(ring, 1);
    const unsigned add = MOVE_RECV_ACC | MOVE_LOAD | MOVE_OWN;

    plan_writer_add(writer, (struct move){.bits = MOVE_SEND_IN, .to = next, .part = part_of(ring, 1)});
    for (int i = 2; i < size; i++)
        plan_writer_add(writer,
                        (struct move){.bits = (uint16_t)(add | MOVE_SEND_ACC | (i == 2 ? MOVE_RAW : 0)),
                                      .from = prev,
                                      .from_step = (uint32_t)i - 2,
                                      .to = next,
                                      .to_step = (uint32_t)i - 1,
                                      .part = part_of(ring, i)});
    plan_writer_add(writer, (struct move){.bits = (uint16_t)(add | end | (size == 2 ? MOVE_RAW : 0)),
                                          .from = prev,
                                          .from_step = (uint32_t)size - 2,
                                          .to = next,
                                          .to_step = (uint32_t)size - 1,
                                          .part = part_of(ring, 0)});
}

/* All other parts, finished, as they come round. Our own was sent at `step`. */
static void ring_gather(struct plan_writer *writer, const struct team *ring, uint32_t step)
{
    int size = ring->size, next = member_after(ring), prev = member_before(ring, 1);

    for (int i = 1; i < size; i++)
        plan_writer_add(writer,
                        (struct move){.bits = (uint16_t)(MOVE_RECV_OUT | (i < size - 1 ? MOVE_SEND_OUT : 0)),
                                      .from = prev,
                                      .from_step = step + (uint32_t)i - 1,
                                      .to = next,
                                      .to_step = step + (uint32_t)i,
                                      .part = part_of(ring, i)});
}

/* The ring that ends at the root. */
static struct team ring_to(const struct plan_call *call)
{
    struct team ring = team_ring(call, call->root);
    return team_ring(call, team_rank(&ring, 1 % ring.size));
}

static void write_broadcast(struct plan_writer *writer, const struct plan_call *call)
{
    struct team team = team_ring(call, call->root);
    int place = team.place;
    unsigned send = place < team.size - 1 ? (place == 0 ? MOVE_SEND_IN : MOVE_SEND_OUT) : 0;
    struct move move = {.bits = (uint16_t)((place == 0 ? MOVE_COPY : MOVE_RECV_OUT) | send)};

    if (place > 0) {
        move.from = team_rank(&team, place - 1);
        move.from_step = (uint32_t)place - 1;
    }
    if (send) {
        move.to = team_rank(&team, place + 1);
        move.to_step = (uint32_t)place;
    }
    plan_writer_add(writer, move);
}

static void write_reduce(struct plan_writer *writer, const struct plan_call *call)
{
    struct team team = ring_to(call);
    int place = team.place, last = team.size - 1;
    struct move move = {.bits = MOVE_SEND_IN};

    if (place > 0 || last == 0)
        move.bits = (uint16_t)(MOVE_LOAD | MOVE_OWN | (place < last ? MOVE_SEND_ACC : MOVE_STORE));
    if (place > 0) {
        move.bits |= (uint16_t)(MOVE_RECV_ACC | (place == 1 ? MOVE_RAW : 0));
        move.from = team_rank(&team, place - 1);
        move.from_step = (uint32_t)place - 1;
    }
    if (place < last) {
        move.to = team_rank(&team, place + 1);
        move.to_step = (uint32_t)place;
    }
    plan_writer_add(writer, move);
}

static int write(const struct plan_call *call, struct plan *plan, struct heap *heap, struct error *error)
{
    struct plan_writer writer = {.plan = plan, .heap = heap, .error = error};
    struct team ring = team_ring(call, 0);
    bool alone = call->size == 1;

    switch (call->kind) {
    case PLAN_ALL_REDUCE:
    case PLAN_REDUCE_SCATTER:
        if (alone) {
            plan_writer_add(&writer, (struct move){.bits = MOVE_LOAD | MOVE_OWN | MOVE_STORE});
            break;
        }
        ring_reduce(&writer, &ring, MOVE_STORE | (call->kind == PLAN_ALL_REDUCE ? MOVE_SEND_OUT : 0u));
        if (call->kind == PLAN_ALL_REDUCE)
            ring_gather(&writer, &ring, (uint32_t)call->size - 1);
        break;
    case PLAN_ALL_GATHER:
        plan_writer_add(&writer, (struct move){.bits = (uint16_t)(MOVE_COPY | (alone ? 0 : MOVE_SEND_IN)),
                                               .to = member_after(&ring),
                                               .part = (uint32_t)call->rank});
        ring_gather(&writer, &ring, 0);
        break;
    case PLAN_BROADCAST:
        write_broadcast(&writer, call);
        break;
    case PLAN_REDUCE:
        write_reduce(&writer, call);
        break;
    default:
        scan_chain(&writer, call);
    }
    return writer.status;
}

/* ---- price ---- */

/* One step of a block: every port sends `lanes` frames, and a frame must have come before it can go on.
 * Between two hosts it takes longer; over a whole round the hops add up. */
static double step_price(const struct fares *fares, double bytes, double combined, double lanes)
{
    const struct link_cost *pace = fare_pace(fares);
    struct team ring = team_ring(fares->call, 0);
    double crossed = fare_crossings(fares, &ring, ring.size) / (double)ring.size;
    double port = lanes * price_port(pace, bytes);
    double hop = crossed * price_hop(fares->across, bytes) + (1 - crossed) * price_hop(fares->inside, bytes) +
                 pace->gamma_s * combined;
    return port > hop ? port : hop;
}

static double ring_price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    double parts = call->kind == PLAN_ALL_REDUCE ? (double)call->size : 1;
    double count = (double)shape->lane_count / parts, raw = count * call->raw_len,
           acc = count * call->acc_len;
    double total = 0, left = (double)shape->lanes, steps = call->size - 1;

    if (call->size == 1)
        return 0;
    while (left > 0) { /* two kinds of blocks: full ones and perhaps a last */
        double lanes = left < (double)shape->window ? left : (double)shape->window;
        double blocks = left < (double)shape->window ? 1 : (double)(uint64_t)(left / lanes), block = 0;
        if (call->kind != PLAN_ALL_GATHER)
            block += step_price(fares, raw, acc, lanes) + (steps - 1) * step_price(fares, acc, acc, lanes);
        if (call->kind != PLAN_REDUCE_SCATTER)
            block += steps * step_price(fares, raw, 0, lanes);
        total += blocks * block;
        left -= blocks * lanes;
    }
    return total;
}

static double chain_price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    const struct link_cost *pace = fare_pace(fares);
    bool reduces = call->kind == PLAN_REDUCE;
    double count = (double)shape->lane_count, steps = call->size - 1;
    double bytes = count * (reduces && call->size > 2 ? call->acc_len : call->raw_len);
    double work = reduces ? pace->gamma_s * count * call->acc_len : 0, port = price_port(pace, bytes);
    struct team chain = reduces ? ring_to(call) : team_ring(call, call->root);
    double crossed = fare_crossings(fares, &chain, call->size - 1);

    if (call->size == 1)
        return 0;
    return price_lanes(shape,
                       crossed * price_hop(fares->across, bytes) +
                           (steps - crossed) * price_hop(fares->inside, bytes) + steps * work,
                       port > work ? port : work, port);
}

static double price(const struct plan_call *call, const struct link_cost *inside,
                    const struct link_cost *across)
{
    struct fares fares = fares_of(call, inside, across);
    struct plan_shape cut;

    if (call->kind == PLAN_SCAN || call->kind == PLAN_EXCLUSIVE_SCAN)
        return scan_price(&fares, &planner_ring);
    plan_shape_of(call, &planner_ring, &cut);
    if (call->kind == PLAN_BROADCAST || call->kind == PLAN_REDUCE)
        return chain_price(&fares, &cut);
    return ring_price(&fares, &cut);
}

const struct planner planner_ring = {
    .algo = HEARTH_ALGO_RING,
    .about = "from neighbour to neighbour: fewest bytes, most hops",
    .can = can,
    .shape = shape,
    .write = write,
    .price = price,
};
