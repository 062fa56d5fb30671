/* SPDX-License-Identifier: Apache-2.0 */
/* Scans: member k gets the combination of members 0..k (exclusive: 0..k-1), lower ranks always on the left.
 *
 *   chain (algorithm ring). Each member waits for all that is left of it, adds its own, stores it, passes
 *   it on. Strictly in rank order; N-1 hops; with many lanes all members work at once.
 *
 *       x0 --> x0+x1 --> (x0+x1)+x2 --> ((x0+x1)+x2)+x3
 *
 *   doubling (algorithm tree). Before round k a member holds the sum of its own and the 2^k - 1 to its left.
 *   It gives that to the member 2^k places on, for which it is just what comes next. ceil(log2 N) rounds.
 *
 *       start     x0     x1     x2     x3     x4
 *       round 0   0      0-1    1-2    2-3    3-4       from 1 place to the left
 *       round 1   0      0-1    0-2    0-3    1-4       from 2 places
 *       round 2   0      0-1    0-2    0-3    0-4       from 4 places
 *
 *   exclusive. The same among members 0..N-2, and then everyone gets the sum of its left-hand neighbour in
 *   one more hop. It cannot just keep what came before it added its own: there is one accumulator, and in
 *   place the result goes where the input stands. So in a chain each sum travels twice between neighbours:
 *   once to go on, once to stay. Member 0 gets the identity.
 *
 *   In place: a result is stored over the input only after the input has left (FENCE), where it was sent as
 *   it is. Member 0 of an inclusive scan stores first and sends what it has stored: the same elements.
 *
 *   Bytes member k sends (n elements, r = raw_len, a = acc_len; M = N, exclusive: N-1):
 *     chain     n*r from member 0, n*a from the others, if k+1 < M;  exclusive: the same again if k+1 < N
 *     doubling  n*r for the round to k+1 < M, n*a (member 0: n*r) for each further one to k+2^i < M;
 *               exclusive: n*a (member 0: n*r) more if k+1 < N */
#include "collective/planners.h"

/* Members that take part in the sums: the last one's contribution to an exclusive scan is nobody's. */
static int summed_size(const struct plan_call *call)
{
    return call->kind == PLAN_EXCLUSIVE_SCAN ? call->size - 1 : call->size;
}

/* The last hop of an exclusive scan: our sum to the right, our result from the left. `lent`: our bare input
 * may still be under way. */
static void shift(struct plan_writer *writer, const struct plan_call *call, uint32_t step, bool lent)
{
    int rank = call->rank;
    bool first = rank == 0, sends = rank + 1 < call->size;

    uint32_t bits = MOVE_RECV_ACC | MOVE_LOAD | MOVE_STORE | (rank == 1 ? MOVE_RAW : 0);

    if (sends)
        plan_writer_send(writer, first ? MOVE_SEND_IN : MOVE_SEND_ACC, rank + 1, step, 0);
    if (first)
        plan_writer_add(writer, (struct move){.bits = MOVE_IDENTITY | (sends ? MOVE_FENCE : 0)});
    else
        plan_writer_recv(writer, bits | (lent ? MOVE_FENCE : 0), rank - 1, step, 0);
}

/* Member 0 of an inclusive scan: its result is its input. */
static void start(struct plan_writer *writer, int last)
{
    uint32_t send = last > 0 ? MOVE_SEND_OUT : 0;
    plan_writer_send(writer, MOVE_LOAD | MOVE_OWN | MOVE_STORE | send, 1, 0, 0);
}

void scan_chain(struct plan_writer *writer, const struct plan_call *call)
{
    int rank = call->rank, last = summed_size(call) - 1;
    bool exclusive = call->kind == PLAN_EXCLUSIVE_SCAN;

    if (rank == 0 && !exclusive)
        start(writer, last);
    else if (rank == 0 && last > 0)
        plan_writer_send(writer, MOVE_SEND_IN, 1, 0, 0);
    else if (rank > 0 && rank <= last)
        plan_writer_add(
            writer, (struct move){.bits = MOVE_RECV_ACC | MOVE_LOAD | MOVE_OWN | (rank == 1 ? MOVE_RAW : 0) |
                                          (exclusive ? 0 : MOVE_STORE) | (rank < last ? MOVE_SEND_ACC : 0),
                                  .from = rank - 1,
                                  .from_step = (uint32_t)rank - 1,
                                  .to = rank + 1,
                                  .to_step = (uint32_t)rank});
    if (exclusive)
        shift(writer, call, (uint32_t)call->size, false);
}

/* Rounds of a member other than 0. Sets *lent if its bare input was sent. */
static void rounds(struct plan_writer *writer, const struct plan_call *call, int size, bool *lent)
{
    int rank = call->rank;
    uint32_t step = 0;

    for (int distance = 1; distance < size; distance *= 2, step++) {
        bool first = distance == 1, ends = distance * 2 > rank;
        uint32_t bits =
            MOVE_RECV_ACC | (first ? MOVE_LOAD | MOVE_OWN : 0) | (first || distance == rank ? MOVE_RAW : 0);
        if (rank + distance < size) {
            plan_writer_send(writer, first ? MOVE_SEND_IN : MOVE_SEND_ACC, rank + distance, step, 0);
            *lent = *lent || first;
        }
        if (ends && call->kind == PLAN_SCAN)
            bits |= MOVE_STORE | (*lent ? MOVE_FENCE : 0);
        if (distance <= rank)
            plan_writer_recv(writer, bits, rank - distance, step, 0);
    }
}

void scan_doubling(struct plan_writer *writer, const struct plan_call *call)
{
    int size = summed_size(call);
    bool exclusive = call->kind == PLAN_EXCLUSIVE_SCAN, lent = false;
    uint32_t step = 0;

    if (call->rank == 0) {
        if (!exclusive)
            start(writer, size - 1);
        for (int distance = 1; distance < size; distance *= 2, step++)
            if (exclusive || distance > 1)
                plan_writer_send(writer, exclusive ? MOVE_SEND_IN : MOVE_SEND_OUT, distance, step, 0);
    } else if (call->rank < size) {
        rounds(writer, call, size, &lent);
    }
    if (exclusive)
        shift(writer, call, size > 1 ? (uint32_t)log2_ceil(size) : 0, lent);
}

/* Hops in a row of the slowest member. What comes from member 0 is never waited for, so one more member
 * than a power of two costs no hop more. */
static int hops_of(int size, bool chain)
{
    if (chain || size <= 2)
        return size - 1;
    return log2_ceil(size - 1);
}

double scan_price(const struct fares *fares, const struct plan_shape *shape, bool chain)
{
    const struct plan_call *call = fares->call;
    const struct link_cost *pace = fare_pace(fares);
    int size = summed_size(call);
    struct team by_rank = team_from(call, 0);
    int hops = hops_of(size, chain), crossed = fare_crossings(fares, &by_rank, size - 1),
        turns = chain ? size > 1 : log2_ceil(size);
    if (!chain && log2_ceil(crossed + 1) < hops) /* doubling goes from host to host too */
        crossed = log2_ceil(crossed + 1);
    crossed = crossed < hops ? crossed : hops;
    double bytes = (double)shape->lane_count * (call->size > 2 ? call->acc_len : call->raw_len);
    double work = pace->gamma_s * (double)shape->lane_count * call->acc_len,
           turn = turns * price_port(pace, bytes);
    double first =
        crossed * price_hop(fares->across, bytes) + (hops - crossed) * price_hop(fares->inside, bytes);
    first += hops * work;
    if (!chain && crossed > 0) /* a member beside the border hears from the other side in every round */
        first += (turns - crossed) * price_port(pace, bytes);
    if (call->kind == PLAN_EXCLUSIVE_SCAN) {
        first += price_hop(pace, bytes);
        turn += price_port(pace, bytes);
    }
    return price_lanes(shape, first, longer(turn, turns * work), chain ? turn : first);
}
