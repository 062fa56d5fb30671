/* SPDX-License-Identifier: Apache-2.0 */
/* Tree: contributions climb a binomial tree to its root, and the result comes down to all.
 *
 *   Places 0..7, the root at 0. The parent of a place is the place without its lowest 1 bit; its depth is the
 *   number of 1 bits. So subtrees halve in size, and depth is at most ceil(log2 N).
 *
 *                       0                          up     4,2,1 -> 0    6,5 -> 4   3 -> 2   7 -> 6
 *               +-------+---+---+                         deepest first; a leaf sends its bare input,
 *               4       2   1                             the others their partial sum
 *           +---+---+   |                          down   the same links the other way round, largest
 *           6   5       3                                 subtree first, since it has the longest way
 *           |                                             still to go
 *           7
 *
 *   all_reduce is up and down, reduce is up, broadcast is down (the root's rank takes place 0), barrier is
 *   up and down with empty frames. O(log N) hops, so it is for small buffers and many members; every hop
 *   carries the whole buffer, and the root's port has to take and send it ceil(log2 N) times. Lanes make it
 *   a pipeline.
 *
 *   Bytes of all members together (n elements, r = raw_len, a = acc_len), and hops (d <= ceil(log2 N)):
 *     up     n*(ceil(N/2)*r + (N - 1 - ceil(N/2))*a)   d    of the N-1 that send, ceil(N/2) are leaves
 *     down   n*(N - 1)*r                               d
 *
 *   In place: what comes down was made of what we sent up, so nothing of that is still under way.
 *   Scans: see scan.c. */
#include "collective/planners.h"

static void shape(const struct plan_call *call, struct plan_shape *shape)
{
    shape->sums_travel = plan_kind_reduces(call->kind) && call->size > 2;
}

/* ---- moves ---- */

static uint32_t depth_of(int place)
{
    return (uint32_t)__builtin_popcount((unsigned)place);
}

/* Children stand at place + 1, + 2, + 4 ... below this distance. */
static int reach_of(const struct team *team)
{
    return team->place == 0 ? team->size : team->place & -team->place;
}

static bool is_leaf(const struct team *team, int place)
{
    return (place & 1) || place + 1 >= team->size;
}

static int parent_rank(const struct team *team)
{
    return team_rank(team, team->place & (team->place - 1));
}

void tree_up(struct plan_writer *writer, const struct team *team, struct move begin, struct move end,
             uint32_t step, int depth)
{
    int place = team->place, reach = reach_of(team);
    uint32_t sent_at = step + (uint32_t)depth - depth_of(place);
    struct move held = begin; /* the last move so far: more may join it */

    if (place > 0) {
        bool leaf = is_leaf(team, place);
        held.bits = leaf ? 0 : MOVE_LOAD | MOVE_OWN;
        end.bits = leaf ? MOVE_SEND_IN : MOVE_SEND_ACC;
        end.to = parent_rank(team);
        end.to_step = sent_at;
    }
    for (int distance = 1; distance < reach && place + distance < team->size; distance *= 2) {
        if (held.bits & MOVE_RECV) {
            plan_writer_add(writer, held);
            held.bits = 0;
        }
        held.bits |= MOVE_RECV_ACC | (is_leaf(team, place + distance) ? MOVE_RAW : 0);
        held.from = team_rank(team, place + distance);
        held.from_step = sent_at - 1;
    }
    held.bits |= end.bits;
    held.to = end.to;
    held.to_step = end.to_step;
    plan_writer_add(writer, held);
}

void tree_down(struct plan_writer *writer, const struct team *team, struct move range, uint32_t step)
{
    int place = team->place, reach = reach_of(team), distance = 1;
    uint32_t send = place == 0 ? range.bits & MOVE_SEND : MOVE_SEND_OUT;
    struct move held = range;

    held.bits &= MOVE_COPY;
    if (place > 0) {
        held.bits = MOVE_RECV_OUT;
        held.from = parent_rank(team);
        held.from_step = step + depth_of(place) - 1;
    }
    while (distance * 2 < reach && place + distance * 2 < team->size)
        distance *= 2;
    for (; distance > 0 && distance < reach; distance /= 2) {
        if (place + distance >= team->size)
            continue;
        if (held.bits & MOVE_SEND) {
            plan_writer_add(writer, held);
            held.bits = 0;
        }
        held.bits |= send;
        held.to = team_rank(team, place + distance);
        held.to_step = step + depth_of(place);
    }
    if (held.bits)
        plan_writer_add(writer, held);
}

static void write_barrier(struct plan_writer *writer, const struct plan_call *call)
{
    struct team team = team_from(call, 0);
    uint32_t depth = (uint32_t)log2_ceil(call->size), sent_at = depth - depth_of(team.place);

    for (int distance = 1; distance < reach_of(&team) && team.place + distance < team.size; distance *= 2)
        plan_writer_recv(writer, MOVE_RECV_OUT, team.place + distance, sent_at - 1, 0);
    if (team.place > 0)
        plan_writer_send(writer, MOVE_SEND_IN, parent_rank(&team), sent_at, 0);
    tree_down(writer, &team, (struct move){.bits = MOVE_SEND_IN}, depth);
}

static void write(const struct plan_call *call, struct plan_writer *writer)
{
    struct team team = team_from(call, root_of(call));
    struct move own = {.bits = MOVE_LOAD | MOVE_OWN}, store = {.bits = MOVE_STORE};
    int depth = log2_ceil(call->size);

    switch (call->kind) {
    case PLAN_ALL_REDUCE:
        tree_up(writer, &team, own, store, 0, depth);
        tree_down(writer, &team, (struct move){.bits = MOVE_SEND_OUT}, (uint32_t)depth);
        break;
    case PLAN_REDUCE:
        tree_up(writer, &team, own, store, 0, depth);
        break;
    case PLAN_BROADCAST:
        tree_down(writer, &team, (struct move){.bits = MOVE_COPY | MOVE_SEND_IN}, 0);
        break;
    case PLAN_BARRIER:
        write_barrier(writer, call);
        break;
    default:
        scan_doubling(writer, call);
    }
}

/* ---- price ---- */

/* The longest way between the root and a place, each hop with `work` seconds of combining. */
static double longest_path(const struct fares *fares, const struct team *team, double bytes, double work)
{
    double longest = 0, hop = price_hop(fares->inside, bytes) + work;

    if (!fares->mixed)
        return log2_ceil(team->size) * hop;
    for (int place = 1; place < team->size; place++) {
        double sum = 0;
        for (int p = place; p > 0; p &= p - 1)
            sum += price_hop(fare_between(fares, team_rank(team, p), team_rank(team, p & (p - 1))), bytes) +
                   work;
        longest = longer(sum, longest);
    }
    return longest;
}

/* What the busiest port needs for one lane: a frame for each child, and where sums go up while results come
 * down (`both`) one for the parent. */
static double busiest_port(const struct fares *fares, const struct team *team, double bytes, bool both)
{
    double most = 0;

    for (int place = 0; place < team->size; place++) {
        int reach = place == 0 ? team->size : place & -place, rank = team_rank(team, place);
        double sum = 0;
        for (int distance = 1; distance < reach && place + distance < team->size; distance *= 2)
            sum += price_port(fare_between(fares, rank, team_rank(team, place + distance)), bytes);
        if (both && place > 0)
            sum += price_port(fare_between(fares, rank, team_rank(team, place & (place - 1))), bytes);
        most = longer(sum, most);
    }
    return most;
}

static double price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    struct team team = team_from(call, root_of(call));
    bool both = call->kind == PLAN_ALL_REDUCE;

    if (KIND_BIT(call->kind) & SCAN_KINDS)
        return scan_price(fares, shape, false);
    double count = (double)shape->lane_count, raw = count * call->raw_len, acc = count * call->acc_len;
    double sum = call->size > 2 ? acc : raw, work = fare_pace(fares)->gamma_s * acc, chain = 0, turn = 0;
    if (call->kind != PLAN_BROADCAST) {
        chain = longest_path(fares, &team, sum, work);
        turn = longer(busiest_port(fares, &team, sum, both), work * log2_ceil(call->size));
    }
    if (call->kind != PLAN_REDUCE) {
        chain += longest_path(fares, &team, raw, 0);
        turn = longer(busiest_port(fares, &team, raw, both), turn);
    }
    /* A leaf's lane has to wait for the result only in an all_reduce. */
    return price_lanes(shape, chain, turn, both ? chain : turn);
}

const struct planner planner_tree = {
    .kinds = KIND_BIT(PLAN_BROADCAST) | KIND_BIT(PLAN_BARRIER),
    .any_order = KIND_BIT(PLAN_ALL_REDUCE) | KIND_BIT(PLAN_REDUCE) | SCAN_KINDS,
    .fits = fits_always,
    .shape = shape,
    .write = write,
    .price = price,
};
