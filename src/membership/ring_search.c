/* SPDX-License-Identifier: Apache-2.0 */
/* Ring search: exact by subsets (Held and Karp), by local search for larger rings. Integers only, so that
 * every machine finds the same order. */
#include "membership/ring_search.h"

#include <string.h>

#define SUBSETS (1 << (RING_SEARCH_EXACT_MAX - 1))
#define FAR     UINT64_MAX

uint64_t ring_search_length(const struct ring_search_costs *costs, const int *order)
{
    uint64_t sum = 0;

    for (int i = 0; i < costs->size; i++)
        sum += costs->cost[order[i]][order[(i + 1) % costs->size]];
    return sum;
}

/* ---- Exact ---- */

/* Stations are 1..size-1; the ring begins and ends at station 0. best[set][last]: the cost from 0 through all
 * of the set, ending at `last`. */
struct subsets {
    uint64_t best[SUBSETS][RING_SEARCH_EXACT_MAX - 1];
    uint8_t before[SUBSETS][RING_SEARCH_EXACT_MAX - 1];
};

static void grow(const struct ring_search_costs *costs, struct subsets *s, unsigned set, int last)
{
    uint64_t so_far = s->best[set][last];

    for (int next = 0; next < costs->size - 1; next++) {
        if (set >> next & 1)
            continue;
        unsigned larger = set | 1u << next;
        uint64_t sum = so_far + costs->cost[last + 1][next + 1];
        if (sum < s->best[larger][next]) {
            s->best[larger][next] = sum;
            s->before[larger][next] = (uint8_t)last;
        }
    }
}

void ring_search_exact(const struct ring_search_costs *costs, int *order)
{
    int stations = costs->size - 1;
    unsigned all = (1u << stations) - 1;
    struct subsets s;
    uint64_t best = FAR;
    int last = 0;

    if (stations < 2) /* only one order */
        return;
    memset(s.best, 0xff, sizeof s.best);
    for (int i = 0; i < stations; i++)
        s.best[1u << i][i] = costs->cost[0][i + 1];
    for (unsigned set = 1; set < all; set++)
        for (int i = 0; i < stations; i++)
            if (s.best[set][i] != FAR)
                grow(costs, &s, set, i);
    for (int i = 0; i < stations; i++) {
        uint64_t sum = s.best[all][i] + costs->cost[i + 1][0];
        if (sum < best) {
            best = sum;
            last = i;
        }
    }
    if (best >= ring_search_length(costs, order))
        return;
    order[0] = 0;
    for (int at = stations; at > 0; at--) {
        int before = s.before[all][last];
        order[at] = last + 1;
        all &= ~(1u << last);
        last = before;
    }
}

/* ---- Local search ---- */

static void reverse(int *order, int from, int to) /* [from, to) */
{
    for (to--; from < to; from++, to--) {
        int kept = order[from];
        order[from] = order[to];
        order[to] = kept;
    }
}

/* [i, j) and [j, k) change places. */
static void exchange(int *order, int i, int j, int k)
{
    reverse(order, i, j);
    reverse(order, j, k);
    reverse(order, i, k);
}

/* In the searches below place 0 is fixed, and repeated after the last place. */
static inline uint64_t between(const struct ring_search_costs *costs, const int *order, int from, int to)
{
    return costs->cost[order[from]][order[to]];
}

static bool better_by_exchange(const struct ring_search_costs *costs, int *order)
{
    int n = costs->size;
    bool any = false;

    for (int i = 1; i < n - 1; i++)
        for (int j = i + 1; j < n; j++)
            for (int k = j + 1; k <= n; k++) {
                uint64_t now = between(costs, order, i - 1, i) + between(costs, order, j - 1, j) +
                               between(costs, order, k - 1, k);
                uint64_t then = between(costs, order, i - 1, j) + between(costs, order, k - 1, i) +
                                between(costs, order, j - 1, k);
                if (then < now) {
                    exchange(order, i, j, k);
                    any = true;
                }
            }
    return any;
}

/* Costs from place 0 to each place, in both directions. */
static void sums(const struct ring_search_costs *costs, const int *order, uint64_t *forward, uint64_t *back)
{
    forward[0] = back[0] = 0;
    for (int i = 1; i < costs->size; i++) {
        forward[i] = forward[i - 1] + between(costs, order, i - 1, i);
        back[i] = back[i - 1] + between(costs, order, i, i - 1);
    }
}

static bool better_by_reversal(const struct ring_search_costs *costs, int *order)
{
    uint64_t forward[RING_SEARCH_MAX], back[RING_SEARCH_MAX];
    int n = costs->size;
    bool any = false;

    sums(costs, order, forward, back);
    for (int i = 1; i < n - 1; i++)
        for (int j = i + 2; j <= n; j++) { /* [i, j) */
            uint64_t now = between(costs, order, i - 1, i) + forward[j - 1] - forward[i] +
                           between(costs, order, j - 1, j);
            uint64_t then =
                between(costs, order, i - 1, j - 1) + back[j - 1] - back[i] + between(costs, order, i, j);
            if (then < now) {
                reverse(order, i, j);
                sums(costs, order, forward, back);
                any = true;
            }
        }
    return any;
}

void ring_search_better(const struct ring_search_costs *costs, int *order)
{
    int round[RING_SEARCH_MAX + 1];
    bool any = costs->size > 2;

    memcpy(round, order, (size_t)costs->size * sizeof *order);
    round[costs->size] = round[0];
    while (any) { /* ends: every move lowers the sum */
        any = better_by_exchange(costs, round);
        any |= better_by_reversal(costs, round);
    }
    memcpy(order, round, (size_t)costs->size * sizeof *order);
}

void ring_search_shake(int *order, int size, uint64_t draw)
{
    int cuts[3];

    /* Places 1 <= a < b < c < size, by drawing three gaps. */
    cuts[0] = 1 + (int)(draw % (uint64_t)(size - 3));
    draw /= RING_SEARCH_MAX;
    cuts[1] = cuts[0] + 1 + (int)(draw % (uint64_t)(size - 2 - cuts[0]));
    draw /= RING_SEARCH_MAX;
    cuts[2] = cuts[1] + 1 + (int)(draw % (uint64_t)(size - 1 - cuts[1]));
    exchange(order, cuts[0], cuts[1], size);
    exchange(order, cuts[0], cuts[0] + cuts[2] - cuts[1], cuts[0] + size - cuts[1]);
}
