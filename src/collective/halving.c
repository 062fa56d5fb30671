/* SPDX-License-Identifier: Apache-2.0 */
/* Halving: in each round half of what one still has goes to a partner twice as near; then back, doubling.
 *
 *   all_reduce of N = 4 on parts 0..3 (Rabenseifner's algorithm). What a member keeps after each round:
 *
 *     member       0          1          2          3
 *     start      0 1 2 3    0 1 2 3    0 1 2 3    0 1 2 3      bare input
 *     round 0    0 1 . .    0 1 . .    . . 2 3    . . 2 3      partners 2 apart: the other half goes to them
 *     round 1    0 . . .    . 1 . .    . . 2 .    . . . 3      partners 1 apart: complete
 *     round 2    0 1 . .    0 1 . .    . . 2 3    . . 2 3      back the same way, finished parts
 *     round 3    0 1 2 3    0 1 2 3    0 1 2 3    0 1 2 3
 *
 *   As few bytes as a ring in 2*log2(N) hops. Each part is finished by one member, so all end with the same
 *   bits.
 *
 *   Any N: with P the largest power of two up to N, member P+i first gives all it has to member i, which
 *   works for both, and gets the whole result from it at the end. That doubles the bytes of those pairs,
 *   and adds two hops.
 *
 *   Bytes a member sends (n elements, r = raw_len, a = acc_len):
 *     all_reduce      N = P:            n/2*r + n*(1/2 - 1/P)*a + n*(1 - 1/P)*r
 *                     member i, folded: n*(1 - 1/P)*a + n*(1 - 1/P)*r + n*r;  member P+i: n*r
 *     reduce_scatter  n/2*r + n*(1/2 - 1/N)*a            n = all parts together
 *     all_gather      n*(1 - 1/N)*r
 *
 *   reduce_scatter (the first half) and all_gather (the second) speak of ranges of given parts, which are
 *   neighbours in memory only if they are not cut into pieces: so the larger half must fit into one frame.
 *   And N must be a power of two: folding would send parts that their owner only has to send again. For all
 *   else there are ring and direct.
 *
 *   In place: a range of our input is overwritten by a RECV_OUT only, from the partner (or one that it
 *   told) who made it of what we sent; or by the STORE of our own part, which was never sent.
 *
 *   barrier: dissemination. In round k everyone tells the member 2^k places on; after ceil(log2 N) rounds
 *   each has heard, directly or not, of all. Any N. */
#include "collective/planners.h"

static int core_size(int size)
{
    return 1 << log2_floor(size);
}

/* The larger half of the parts, in bytes as they travel, is not more than a frame may hold. */
static bool half_fits(const struct plan_call *call)
{
    size_t len = call->raw_len, sum[2] = {0, 0};
    const size_t *counts = call->kind == PLAN_ALL_GATHER ? call->out_counts : call->in_counts;

    if (call->kind == PLAN_REDUCE_SCATTER && call->acc_len > len)
        len = call->acc_len;
    if (len == 0)
        return false;
    for (int p = 0; p < call->size; p++) {
        size_t *half = &sum[p >= call->size / 2], count = counts ? counts[p] : call->count;
        if (__builtin_add_overflow(*half, count, half) || *half > call->chunk_bytes / len)
            return false;
    }
    return true;
}

static bool fits(const struct plan_call *call)
{
    return split_of(call->kind) == SPLIT_EVEN || (is_power_of_two(call->size) && half_fits(call));
}

static void shape(const struct plan_call *call, struct plan_shape *shape)
{
    int core = core_size(call->size);
    bool folds = core < call->size;

    shape->parts = (uint32_t)core;
    if (call->kind == PLAN_ALL_REDUCE) {
        shape->acc_parts = (uint32_t)(folds || core == 1 ? core : core / 2);
        shape->frame_parts = shape->acc_parts;
        shape->sums_travel = call->size > 2;
    }
}

/* ---- moves ---- */

/* Where the parts of a round stand: those that differ from `place` in the bits below 2*distance. */
static struct move range_of(int place, int distance)
{
    return (struct move){.part = (uint32_t)(place & ~(distance - 1)), .parts = (uint32_t)distance};
}

/* What a member and its partner do in a round: the one range goes, the other comes. */
static void exchange(struct plan_writer *writer, int partner, uint32_t step, struct move give,
                     struct move get)
{
    give.to = get.from = partner;
    give.to_step = get.from_step = step;
    plan_writer_add(writer, give);
    plan_writer_add(writer, get);
}

/* From all of `core` parts down to our own, complete and stored. Members below `folded` have begun: their
 * accumulator holds all parts. The others send bare input in the first round. */
static void halve(struct plan_writer *writer, int core, int folded, uint32_t step)
{
    int rank = writer->plan->rank;

    for (int distance = core / 2; distance > 0; distance /= 2, step++) {
        int partner = rank ^ distance;
        bool first = distance == core / 2, fresh = first && rank >= folded, raw = first && partner >= folded;
        struct move give = range_of(partner, distance), keep = range_of(rank, distance);

        give.bits = fresh ? MOVE_SEND_IN : MOVE_SEND_ACC;
        keep.bits = MOVE_RECV_ACC | (raw ? MOVE_RAW : 0) | (fresh ? MOVE_LOAD | MOVE_OWN : 0) |
                    (distance == 1 ? MOVE_STORE : 0);
        exchange(writer, partner, step, give, keep);
    }
}

/* `own`: the bits with which our own part is sent in the first round. */
static void redouble(struct plan_writer *writer, int core, uint32_t own, uint32_t step)
{
    int rank = writer->plan->rank;

    for (int distance = 1; distance < core; distance *= 2, step++) {
        int partner = rank ^ distance;
        struct move give = range_of(rank, distance), get = range_of(partner, distance);

        give.bits = distance == 1 ? own : MOVE_SEND_OUT;
        get.bits = MOVE_RECV_OUT;
        exchange(writer, partner, step, give, get);
    }
}

static void write_all_reduce(const struct plan_call *call, struct plan_writer *writer)
{
    int core = core_size(call->size), folded = call->size - core, rank = call->rank;
    uint32_t rounds = (uint32_t)log2_floor(call->size), end = 1 + 2 * rounds;
    int partner = rank >= core ? rank - core : rank + core;
    struct move all = {.parts = (uint32_t)core, .from = partner, .to = partner};

    if (rank >= core) {
        all.bits = MOVE_SEND_IN;
        plan_writer_add(writer, all);
        all.bits = MOVE_RECV_OUT;
        all.from_step = end;
        plan_writer_add(writer, all);
        return;
    }
    if (rank < folded) {
        all.bits = MOVE_RECV_ACC | MOVE_RAW | MOVE_LOAD | MOVE_OWN;
        plan_writer_add(writer, all);
    }
    halve(writer, core, folded, 1);
    redouble(writer, core, MOVE_SEND_OUT, 1 + rounds);
    if (rank < folded) {
        all.bits = MOVE_SEND_OUT;
        all.to_step = end;
        plan_writer_add(writer, all);
    }
}

static void write_barrier(const struct plan_call *call, struct plan_writer *writer)
{
    int rank = call->rank, size = call->size;
    uint32_t step = 0;

    for (int distance = 1; distance < size; distance *= 2, step++) {
        plan_writer_send(writer, MOVE_SEND_IN, (rank + distance) % size, step, 0);
        plan_writer_recv(writer, MOVE_RECV_OUT, (rank - distance + size) % size, step, 0);
    }
}

static void write(const struct plan_call *call, struct plan_writer *writer)
{
    bool alone = call->size == 1;

    switch (call->kind) {
    case PLAN_ALL_REDUCE:
    case PLAN_REDUCE_SCATTER:
        if (alone)
            plan_writer_add(writer, (struct move){.bits = MOVE_LOAD | MOVE_OWN | MOVE_STORE});
        else if (call->kind == PLAN_ALL_REDUCE)
            write_all_reduce(call, writer);
        else
            halve(writer, call->size, 0, 0);
        break;
    case PLAN_ALL_GATHER:
        if (alone)
            plan_writer_add(writer, (struct move){.bits = MOVE_COPY});
        redouble(writer, call->size, MOVE_COPY | MOVE_SEND_IN, 0);
        break;
    default:
        write_barrier(call, writer);
    }
}

/* ---- price ---- */

/* Between partners `distance` apart: across, if any pair of them is on two hosts. */
static const struct link_cost *round_fare(const struct fares *fares, int core, int distance)
{
    for (int r = 0; fares->mixed && r < core; r++)
        if ((r ^ distance) < fares->call->size && fare_between(fares, r, r ^ distance) == fares->across)
            return fares->across;
    return fares->inside;
}

struct bill {
    double chain, turn, work;
};

static void bill_round(struct bill *bill, const struct link_cost *cost, double bytes, double combined)
{
    bill->chain += price_hop(cost, bytes) + cost->gamma_s * combined;
    bill->turn += price_port(cost, bytes);
    bill->work += cost->gamma_s * combined;
}

static double price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    struct bill bill = {0, 0, 0};
    int core = core_size(call->size);

    if (call->kind == PLAN_BARRIER)
        return log2_ceil(call->size) * price_hop(fare_pace(fares), 0);
    double count = (double)shape->lane_count * (call->kind == PLAN_ALL_REDUCE ? 1 : (double)call->size);
    double raw = count * call->raw_len, acc = count * call->acc_len, folded_turn = 0;
    if (core < call->size) {
        const struct link_cost *cost = round_fare(fares, core, core);
        bill_round(&bill, cost, raw, acc);
        bill_round(&bill, cost, raw, 0);
        folded_turn = price_port(cost, raw); /* a port takes one of the two and sends the other */
    }
    for (int distance = core / 2; distance > 0; distance /= 2) {
        const struct link_cost *cost = round_fare(fares, core, distance);
        double share = (double)distance / core;
        bool bare = distance == core / 2 && core == call->size;
        if (call->kind != PLAN_ALL_GATHER)
            bill_round(&bill, cost, share * (bare ? raw : acc), share * acc);
        if (call->kind != PLAN_REDUCE_SCATTER)
            bill_round(&bill, cost, share * raw, 0);
    }
    return price_lanes(shape, bill.chain, longer(bill.turn - folded_turn, bill.work), bill.chain);
}

const struct planner planner_halving = {
    .kinds = KIND_BIT(PLAN_ALL_GATHER) | KIND_BIT(PLAN_BARRIER),
    .any_order = KIND_BIT(PLAN_ALL_REDUCE) | KIND_BIT(PLAN_REDUCE_SCATTER),
    .fits = fits,
    .shape = shape,
    .write = write,
    .price = price,
};
