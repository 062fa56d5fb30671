/* SPDX-License-Identifier: Apache-2.0 */
/* What the planners share: the list of them, the writer of moves, teams, prices. */
#include "collective/planners.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define MOVES_MIN 16u /* room for moves that a plan begins with */

static const struct planner *const planners[ALGO_COUNT] = {
    [HEARTH_ALGO_RING] = &planner_ring,         [HEARTH_ALGO_DIRECT] = &planner_direct,
    [HEARTH_ALGO_HALVING] = &planner_halving,   [HEARTH_ALGO_TREE] = &planner_tree,
    [HEARTH_ALGO_STAR] = &planner_star,         [HEARTH_ALGO_HIERARCHICAL] = &planner_hierarchical,
    [HEARTH_ALGO_EXCHANGE] = &planner_exchange,
};

const struct planner *planner_of(enum hearth_algo algo)
{
    return (unsigned)algo < ALGO_COUNT ? planners[(unsigned)algo] : NULL;
}

bool planner_can(const struct planner *planner, const struct plan_call *call)
{
    uint32_t bit = KIND_BIT(call->kind);

    if (!planner || !((planner->kinds | planner->any_order) & bit))
        return false;
    if (call->size == 1)
        return true;
    return !(call->rank_order && (planner->any_order & bit)) && planner->fits(call);
}

bool fits_always(const struct plan_call *call)
{
    (void)call;
    return true;
}

void shape_whole(const struct plan_call *call, struct plan_shape *shape)
{
    (void)call, (void)shape;
}

/* ---- numbers ---- */

int log2_floor(int n)
{
    assert(n >= 1);
    return 31 - __builtin_clz((unsigned)n);
}

int log2_ceil(int n)
{
    return n == 1 ? 0 : log2_floor(n - 1) + 1;
}

bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

double longer(double a, double b)
{
    return a > b ? a : b;
}

/* ---- calls ---- */

int root_of(const struct plan_call *call)
{
    return plan_kind_rooted(call->kind) ? call->root : 0;
}

static size_t given(const struct plan_call *call, const size_t *counts, int rank)
{
    return counts ? counts[rank] : call->count;
}

size_t part_count(const struct plan_call *call, enum plan_side side, int rank)
{
    bool own = rank == call->rank, root = call->rank == call->root, in = side == SIDE_IN;
    const size_t *counts = in ? call->in_counts : call->out_counts;

    switch (call->kind) {
    case PLAN_REDUCE_SCATTER:
        return in || own ? given(call, call->in_counts, rank) : 0;
    case PLAN_ALL_GATHER:
        return !in || own ? given(call, call->out_counts, rank) : 0;
    case PLAN_GATHER: /* one part at each, all parts in the root's target */
        return root ? (!in || own ? given(call, call->out_counts, rank) : 0) : (in && own ? call->count : 0);
    case PLAN_SCATTER:
        return root ? (in || own ? given(call, call->in_counts, rank) : 0) : (!in && own ? call->count : 0);
    default:
        assert(call->kind == PLAN_ALL_TO_ALL);
        return given(call, counts, rank);
    }
}

int call_refuse(const struct plan_call *call, enum hearth_algo algo, struct error *error)
{
    char list[96] = "";
    size_t len = 0;

    for (int i = 0; i < ALGO_COUNT; i++) {
        if (!planner_can(planners[i], call))
            continue;
        int wrote = snprintf(list + len, sizeof list - len, "%s%s", len > 0 ? ", " : "",
                             hearth_algo_name((enum hearth_algo)i));
        assert(wrote > 0 && (size_t)wrote < sizeof list - len);
        len += (size_t)wrote;
    }
    return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE,
                     "%s of %d members%s does not go by %s; it goes by %s", plan_kind_name(call->kind),
                     call->size, call->rank_order ? " in rank order" : "", hearth_algo_name(algo),
                     len > 0 ? list : "nothing");
}

/* ---- the writer ---- */

/* Room doubles. */
static bool make_room(struct plan_writer *writer)
{
    struct plan *plan = writer->plan;
    uint32_t count = plan->move_count;

    if (writer->status != HEARTH_OK)
        return false;
    if (count > 0 && (count < MOVES_MIN || (count & (count - 1)) != 0))
        return true;
    struct move *moves =
        heap_alloc_raw(writer->heap, count == 0 ? MOVES_MIN : (size_t)count * 2, sizeof *moves);
    if (!moves) {
        writer->status = error_set(writer->error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a plan");
        return false;
    }
    if (count > 0)
        memcpy(moves, plan->moves, count * sizeof *moves);
    heap_free(plan->moves);
    plan->moves = moves;
    return true;
}

void plan_writer_add(struct plan_writer *writer, struct move move)
{
    if (!make_room(writer))
        return;
    if ((move.bits & MOVE_RECV) == 0) {
        move.from = RANK_NONE;
        move.from_step = 0;
    }
    if ((move.bits & MOVE_SEND) == 0) {
        move.to = RANK_NONE;
        move.to_step = 0;
    }
    if (move.parts == 0)
        move.parts = 1;
    writer->plan->moves[writer->plan->move_count++] = move;
}

void plan_writer_send(struct plan_writer *writer, uint32_t bits, int to, uint32_t step, uint32_t part)
{
    plan_writer_add(writer, (struct move){.bits = bits, .to = to, .to_step = step, .part = part});
}

void plan_writer_recv(struct plan_writer *writer, uint32_t bits, int from, uint32_t step, uint32_t part)
{
    plan_writer_add(writer, (struct move){.bits = bits, .from = from, .from_step = step, .part = part});
}

void plan_writer_combine_in_order(struct plan_writer *writer, uint32_t end, uint32_t part)
{
    int rank = writer->plan->rank, size = writer->plan->size;
    int beside = rank == 0 ? 1 : rank - 1, last = rank == size - 1 ? size - 2 : size - 1;
    uint32_t load = MOVE_LOAD;

    if (size == 1)
        plan_writer_add(writer, (struct move){.bits = MOVE_LOAD | MOVE_OWN | end, .part = part});
    for (int q = 0; q < size; q++) {
        if (q == rank)
            continue;
        uint32_t own = q == beside ? MOVE_OWN : 0, last_bits = q == last ? end : 0;
        plan_writer_recv(writer, MOVE_RECV_ACC | MOVE_RAW | load | own | last_bits, q, 0, part);
        load = 0;
    }
}

/* ---- teams ---- */

struct team team_from(const struct plan_call *call, int first)
{
    struct team team = {.size = call->size, .first = first};
    team.place = (call->rank - first + call->size) % call->size;
    return team;
}

static int place_in(const int *order, int size, int rank)
{
    int place = 0;
    while (place < size - 1 && order[place] != rank)
        place++;
    return place;
}

struct team team_ring(const struct plan_call *call, int first)
{
    if (!call->order)
        return team_from(call, first);
    struct team team = {.ranks = call->order, .size = call->size};
    team.first = place_in(call->order, call->size, first);
    team.place = (place_in(call->order, call->size, call->rank) - team.first + call->size) % call->size;
    return team;
}

int team_rank(const struct team *team, int place)
{
    int at = (team->first + place) % team->size;
    assert(place >= 0 && place < team->size);
    return team->ranks ? team->ranks[at] : at;
}

/* ---- prices ---- */

struct fares fares_of(const struct plan_call *call, const struct link_cost *inside,
                      const struct link_cost *across)
{
    struct fares fares = {.call = call, .inside = inside, .across = across};

    for (int r = 1; call->host && r < call->size && !fares.mixed; r++)
        fares.mixed = call->host[r] != call->host[0];
    return fares;
}

const struct link_cost *fare_between(const struct fares *fares, int a, int b)
{
    const int *host = fares->call->host;
    return fares->mixed && host[a] != host[b] ? fares->across : fares->inside;
}

const struct link_cost *fare_pace(const struct fares *fares)
{
    return fares->mixed ? fares->across : fares->inside;
}

int fare_crossings(const struct fares *fares, const struct team *team, int steps)
{
    int count = 0;

    for (int i = 0; fares->mixed && i < steps; i++)
        count +=
            fare_between(fares, team_rank(team, i), team_rank(team, (i + 1) % team->size)) == fares->across;
    return count;
}

double fare_to_all(const struct fares *fares, double bytes)
{
    int size = fares->call->size, fewest = size;
    const int *host = fares->call->host;

    for (int r = 0; fares->mixed && r < size; r++) {
        int mates = 0;
        if (r > 0 && host[r] == host[r - 1])
            continue; /* counted a moment ago */
        for (int q = 0; q < size && mates < fewest; q++)
            mates += host[q] == host[r];
        fewest = mates < fewest ? mates : fewest;
    }
    return (fewest - 1) * price_port(fares->inside, bytes) +
           (size - fewest) * price_port(fares->across, bytes);
}

double price_port(const struct link_cost *cost, double bytes)
{
    return cost->overhead_s + bytes / cost->bytes_per_s;
}

double price_hop(const struct link_cost *cost, double bytes)
{
    return cost->alpha_s + price_port(cost, bytes);
}

double price_lanes(const struct plan_shape *shape, double chain, double turn, double stay)
{
    double lanes = (double)shape->lanes, blocks = lanes / (double)shape->window;
    double port = (lanes - 1) * turn, latency = (blocks - 1) * stay;

    if (shape->lanes == 0)
        return 0;
    return chain + (port > latency ? port : latency);
}
