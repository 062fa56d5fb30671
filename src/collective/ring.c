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

static void shape(const struct plan_call *call, struct plan_shape *shape)
{
    bool chain = call->kind != PLAN_ALL_REDUCE && call->kind != PLAN_REDUCE_SCATTER;

    if (call->kind == PLAN_ALL_REDUCE)
        shape->parts = (uint32_t)call->size;
    shape->sums_travel = plan_kind_reduces(call->kind) && call->size > (chain ? 1 : 2);
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

/* From the neighbour before us to the one after us; `step` is that of the send. */
static void pass_on(struct plan_writer *writer, const struct team *ring, uint32_t bits, uint32_t step,
                    uint32_t part)
{
    plan_writer_add(writer, (struct move){.bits = bits,
                                          .from = member_before(ring, 1),
                                          .from_step = step - 1,
                                          .to = member_after(ring),
                                          .to_step = step,
                                          .part = part});
}

/* Leaves our own part complete; the last move also does `end`, and sends at step size-1 if that has a
 * SEND. */
static void ring_reduce(struct plan_writer *writer, const struct team *ring, uint32_t end)
{
    const uint32_t add = MOVE_RECV_ACC | MOVE_LOAD | MOVE_OWN;

    plan_writer_send(writer, MOVE_SEND_IN, member_after(ring), 0, part_of(ring, 1));
    for (int i = 2; i <= ring->size; i++) {
        uint32_t raw = i == 2 ? MOVE_RAW : 0, out = i < ring->size ? MOVE_SEND_ACC : end;
        pass_on(writer, ring, add | raw | out, (uint32_t)i - 1, part_of(ring, i % ring->size));
    }
}

/* All other parts, finished, as they come round. Our own was sent at `step`. */
static void ring_gather(struct plan_writer *writer, const struct team *ring, uint32_t step)
{
    for (int i = 1; i < ring->size; i++) {
        uint32_t out = i < ring->size - 1 ? MOVE_SEND_OUT : 0;
        pass_on(writer, ring, MOVE_RECV_OUT | out, step + (uint32_t)i, part_of(ring, i));
    }
}

/* The ring that ends at the root. */
static struct team ring_to(const struct plan_call *call)
{
    struct team ring = team_ring(call, call->root);
    return team_ring(call, team_rank(&ring, 1 % ring.size));
}

/* A member's only move in a chain: from the place before to the place after it. */
static void chain_add(struct plan_writer *writer, const struct team *chain, uint32_t bits)
{
    int place = chain->place, last = chain->size - 1;
    struct move move = {.bits = bits, .from_step = (uint32_t)place - 1, .to_step = (uint32_t)place};

    if (place > 0)
        move.from = team_rank(chain, place - 1);
    if (place < last)
        move.to = team_rank(chain, place + 1);
    plan_writer_add(writer, move);
}

static void write_broadcast(const struct plan_call *call, struct plan_writer *writer)
{
    struct team team = team_ring(call, call->root);
    bool first = team.place == 0, last = team.place == team.size - 1;
    uint32_t send = last ? 0 : first ? MOVE_SEND_IN : MOVE_SEND_OUT;

    chain_add(writer, &team, (first ? MOVE_COPY : MOVE_RECV_OUT) | send);
}

static void write_reduce(const struct plan_call *call, struct plan_writer *writer)
{
    struct team team = ring_to(call);
    int place = team.place, last = team.size - 1;
    uint32_t bits = MOVE_SEND_IN;

    if (place > 0 || last == 0)
        bits = MOVE_LOAD | MOVE_OWN | (place < last ? MOVE_SEND_ACC : MOVE_STORE);
    if (place > 0)
        bits |= MOVE_RECV_ACC | (place == 1 ? MOVE_RAW : 0);
    chain_add(writer, &team, bits);
}

static void write(const struct plan_call *call, struct plan_writer *writer)
{
    struct team ring = team_ring(call, 0);
    bool alone = call->size == 1;

    switch (call->kind) {
    case PLAN_ALL_REDUCE:
    case PLAN_REDUCE_SCATTER:
        if (alone) {
            plan_writer_add(writer, (struct move){.bits = MOVE_LOAD | MOVE_OWN | MOVE_STORE});
            break;
        }
        ring_reduce(writer, &ring, MOVE_STORE | (call->kind == PLAN_ALL_REDUCE ? MOVE_SEND_OUT : 0));
        if (call->kind == PLAN_ALL_REDUCE)
            ring_gather(writer, &ring, (uint32_t)call->size - 1);
        break;
    case PLAN_ALL_GATHER:
        plan_writer_send(writer, MOVE_COPY | (alone ? 0 : MOVE_SEND_IN), member_after(&ring), 0,
                         (uint32_t)call->rank);
        ring_gather(writer, &ring, 0);
        break;
    case PLAN_BROADCAST:
        write_broadcast(call, writer);
        break;
    case PLAN_REDUCE:
        write_reduce(call, writer);
        break;
    default:
        scan_chain(writer, call);
    }
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
    return longer(port, hop);
}

static double ring_price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    double parts = call->kind == PLAN_ALL_REDUCE ? (double)call->size : 1;
    double count = (double)shape->lane_count / parts, raw = count * call->raw_len,
           acc = count * call->acc_len;
    double total = 0, left = (double)shape->lanes, steps = call->size - 1;

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

    double hops = crossed * price_hop(fares->across, bytes) +
                  (steps - crossed) * price_hop(fares->inside, bytes) + steps * work;
    return price_lanes(shape, hops, longer(port, work), port);
}

static double price(const struct fares *fares, const struct plan_shape *shape)
{
    enum plan_kind kind = fares->call->kind;

    if (KIND_BIT(kind) & SCAN_KINDS)
        return scan_price(fares, shape, true);
    return kind == PLAN_BROADCAST || kind == PLAN_REDUCE ? chain_price(fares, shape)
                                                         : ring_price(fares, shape);
}

const struct planner planner_ring = {
    .kinds = KIND_BIT(PLAN_ALL_GATHER) | KIND_BIT(PLAN_BROADCAST) | SCAN_KINDS,
    .any_order = KIND_BIT(PLAN_ALL_REDUCE) | KIND_BIT(PLAN_REDUCE_SCATTER) | KIND_BIT(PLAN_REDUCE),
    .fits = fits_always,
    .shape = shape,
    .write = write,
    .price = price,
};
