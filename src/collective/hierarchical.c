/* SPDX-License-Identifier: Apache-2.0 */
/* Hierarchical: inside each host first, so that every byte crosses between hosts once for the whole host.
 *
 *   Each host has a leader, its lowest rank. Members of a host reach it by a binomial tree (tree.c); only
 *   leaders speak to other hosts. Two ways, by the size of the buffer:
 *
 *   large: a ring over the leaders (ring.c) on as many parts as there are hosts. Before a leader sends a
 *   part on it lets its own host board; when a finished part comes by, its host gets it too.
 *
 *        host A                host B                host C
 *        0 <- 1, 2             3 <- 4                5 <- 6, 7        part by part, up the trees
 *        |                     |                     |
 *        +-------------------->+-------------------->+----> (to A)    partial sums, then finished parts
 *        |                     |                     |
 *        0 -> 1, 2             3 -> 4                5 -> 6, 7        down the trees
 *
 *   small: the leaders exchange their sums of everything with partners 1, 2, 4 ... places away (recursive
 *   doubling); those beyond the largest power of two first add theirs to a partner's and get the result
 *   from it. Both partners combine the same two sums, so all leaders end with the same bits. log2(hosts)
 *   hops instead of 2*(hosts-1). Two hosts always do it this way: it is as few bytes as a ring.
 *
 *   Where "large" begins is a crossover of the two formulas with some 10 to 60 KB for alpha times rate,
 *   which is what home and lab networks have: a quarter of a chunk, where leaders must be folded a
 *   sixteenth.
 *
 *   Bytes (n elements, r = raw_len, a = acc_len, H hosts), hops (d = depth of the deepest tree):
 *     inside a host of m       up and down as in tree.c with N = m
 *     leaders, large, each     n/H * ((H-1)*a + (H-1)*r)                        2(H-1) + 2d
 *     leaders, small, each     n*a*log2(P), P = largest power of two <= H;      log2(P) + 2d, folded 2 more
 *                              folded: partner n*r more, the other n*a alone
 *
 *   In place: as in tree.c and ring.c; leaders send sums only, never their bare input. */
#include "collective/planners.h"

#include <assert.h>

/* ---- who is where ---- */

static int host_of(const struct plan_call *call, int rank)
{
    return call->host ? call->host[rank] : 0;
}

static bool is_leader(const struct plan_call *call, int rank)
{
    for (int r = rank - 1; r >= 0; r--)
        if (host_of(call, r) == host_of(call, rank))
            return false;
    return true;
}

struct layout {
    int hosts;
    int depth; /* of the deepest tree */
};

static struct layout layout_of(const struct plan_call *call)
{
    struct layout layout = {0, 0};

    for (int leader = 0; leader < call->size; leader++) {
        int members = 0;
        if (!is_leader(call, leader))
            continue;
        for (int r = leader; r < call->size; r++)
            members += host_of(call, r) == host_of(call, leader);
        if (log2_ceil(members) > layout.depth)
            layout.depth = log2_ceil(members);
        layout.hosts++;
    }
    return layout;
}

static bool is_large(const struct plan_call *call, int hosts)
{
    double bytes = (double)call->count * call->acc_len, chunk = (double)call->chunk_bytes;
    return hosts > 2 && bytes > chunk / (is_power_of_two(hosts) ? 4 : 16);
}

static void shape(const struct plan_call *call, struct plan_shape *shape)
{
    int hosts = layout_of(call).hosts;

    if (is_large(call, hosts))
        shape->parts = (uint32_t)hosts;
    shape->sums_travel = call->size > 2 || hosts > 1;
}

/* The members of our host, and the leaders of all; `ranks` has room for both. */
static void teams_find(const struct plan_call *call, int *ranks, struct team *host, struct team *leaders)
{
    int hosts = 0, mates = 0, *ours = ranks + call->size;

    *host = (struct team){.ranks = ours};
    *leaders = (struct team){.ranks = ranks};
    for (int r = 0; r < call->size; r++) {
        bool mate = host_of(call, r) == host_of(call, call->rank);
        if (is_leader(call, r)) {
            if (mate)
                leaders->place = hosts;
            ranks[hosts++] = r;
        }
        if (r == call->rank)
            host->place = mates;
        if (mate)
            ours[mates++] = r;
    }
    host->size = mates;
    leaders->size = hosts;
}

/* ---- large: a ring over the leaders ---- */

static void board(struct plan_writer *writer, const struct team *host, const struct team *leaders, int depth)
{
    int hosts = leaders->size, own = leaders->place;
    uint32_t stride = (uint32_t)depth + 1;

    for (int i = 0; i < hosts; i++) {
        uint32_t step = (uint32_t)i * stride;
        struct move begin = {.bits = MOVE_LOAD | MOVE_OWN,
                             .part = (uint32_t)((own - 1 - i + 2 * hosts) % hosts)};
        struct move end = {.bits = i < hosts - 1 ? MOVE_SEND_ACC : MOVE_STORE | MOVE_SEND_OUT,
                           .to = team_rank(leaders, (own + 1) % hosts),
                           .to_step = step + (uint32_t)depth};
        if (i > 0) {
            begin.bits |= MOVE_RECV_ACC;
            begin.from = team_rank(leaders, (own + hosts - 1) % hosts);
            begin.from_step = step - 1;
        }
        tree_up(writer, host, begin, end, step, depth);
    }
}

static void alight(struct plan_writer *writer, const struct team *host, const struct team *leaders, int depth)
{
    int hosts = leaders->size, own = leaders->place;
    uint32_t stride = (uint32_t)depth + 1,
             step = (uint32_t)hosts * stride - 1; /* our own part was sent then */

    for (int i = 0; i < hosts; i++, step += stride) {
        struct move move = {.bits = MOVE_SEND_OUT, .part = (uint32_t)((own - i + hosts) % hosts)};
        if (i > 0 && host->place == 0) {
            struct move on = move;
            on.bits = MOVE_RECV_OUT | (i < hosts - 1 ? MOVE_SEND_OUT : 0);
            on.from = team_rank(leaders, (own + hosts - 1) % hosts);
            on.from_step = step - stride;
            on.to = team_rank(leaders, (own + 1) % hosts);
            on.to_step = step;
            plan_writer_add(writer, on);
        }
        tree_down(writer, host, move, step);
    }
}

/* ---- small: recursive doubling among the leaders ---- */

static void swap_sums(struct plan_writer *writer, const struct team *leaders, uint32_t step)
{
    int own = leaders->place, core = 1 << log2_floor(leaders->size), folded = leaders->size - core;
    uint32_t end = step + 1 + (uint32_t)log2_floor(leaders->size);

    if (own >= core) {
        int partner = team_rank(leaders, own - core);
        plan_writer_send(writer, MOVE_SEND_ACC, partner, step, 0);
        plan_writer_recv(writer, MOVE_RECV_OUT, partner, end, 0);
        return;
    }
    if (own < folded)
        plan_writer_recv(writer, MOVE_RECV_ACC, team_rank(leaders, own + core), step, 0);
    for (int distance = 1; distance < core; distance *= 2) {
        int partner = team_rank(leaders, own ^ distance);
        uint32_t store = distance * 2 == core ? MOVE_STORE : 0;
        step++;
        plan_writer_send(writer, MOVE_SEND_ACC, partner, step, 0);
        plan_writer_recv(writer, MOVE_RECV_ACC | store, partner, step, 0);
    }
    if (own < folded)
        plan_writer_send(writer, MOVE_SEND_OUT, team_rank(leaders, own + core), end, 0);
}

static void write(const struct plan_call *call, struct plan_writer *writer)
{
    struct layout layout = layout_of(call);
    struct team host, leaders;
    int *ranks = heap_alloc_raw(writer->heap, 2 * (size_t)call->size, sizeof *ranks);

    if (!ranks) {
        writer->status = error_set(writer->error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a plan");
        return;
    }
    teams_find(call, ranks, &host, &leaders);
    assert(leaders.size == layout.hosts);
    if (is_large(call, leaders.size)) {
        board(writer, &host, &leaders, layout.depth);
        alight(writer, &host, &leaders, layout.depth);
    } else {
        struct move own = {.bits = MOVE_LOAD | MOVE_OWN}, end = {.bits = leaders.size == 1 ? MOVE_STORE : 0};
        uint32_t step = (uint32_t)layout.depth;
        tree_up(writer, &host, own, end, 0, layout.depth);
        if (host.place == 0 && leaders.size > 1)
            swap_sums(writer, &leaders, step);
        tree_down(writer, &host, (struct move){.bits = MOVE_SEND_OUT},
                  step + 2 + (uint32_t)log2_floor(leaders.size));
    }
    heap_free(ranks);
}

/* ---- price ---- */

static double price(const struct fares *fares, const struct plan_shape *shape)
{
    const struct plan_call *call = fares->call;
    const struct link_cost *inside = fares->inside, *across = fares->across;
    struct layout layout = layout_of(call);
    double hosts = layout.hosts, depth = layout.depth, lanes = (double)shape->lanes;
    double count = (double)shape->lane_count / shape->parts, raw = count * call->raw_len,
           acc = count * call->acc_len;
    double work = inside->gamma_s * acc, down = depth * price_port(inside, raw);
    double chain = depth * (price_hop(inside, acc) + work + price_hop(inside, raw));

    if (shape->lanes == 0)
        return 0;
    if (is_large(call, layout.hosts)) {
        double block = (double)shape->window;
        double sum = longer(block * longer(price_port(across, acc), (1 + depth) * work),
                            price_hop(across, acc) + (1 + depth) * work);
        double part = longer(block * (price_port(across, raw) + down), price_hop(across, raw));
        return chain + lanes / block * (hosts - 1) * (sum + part);
    }
    int rounds = log2_floor(layout.hosts);
    bool folds = !is_power_of_two(layout.hosts);
    chain += (rounds + folds) * (price_hop(across, acc) + work) + folds * price_hop(across, raw);
    double turn = down + (rounds + folds) * price_port(across, acc);
    return price_lanes(shape, chain, longer(turn, (depth + rounds + folds) * work), chain);
}

const struct planner planner_hierarchical = {
    .any_order = KIND_BIT(PLAN_ALL_REDUCE),
    .fits = fits_always,
    .shape = shape,
    .write = write,
    .price = price,
};
