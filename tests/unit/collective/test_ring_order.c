/* SPDX-License-Identifier: Apache-2.0 */
/* Rings that go round in an order of their own: right in any order, and cheaper in a better one. */
#include "collective/select.h"
#include "core/prng.h"
#include "oracle.h"
#include "support/suite.h"

#define SIZE_MAX_TRIED 12

static const struct link_cost fast = {
    .alpha_s = 1e-4, .bytes_per_s = 125e6, .gamma_s = 1e-10, .overhead_s = 1e-6};
static const struct link_cost slow = {
    .alpha_s = 1e-3, .bytes_per_s = 12.5e6, .gamma_s = 1e-10, .overhead_s = 1e-6};

static void shuffle(struct prng *prng, int *order, int size)
{
    for (int i = 0; i < size; i++) {
        int k = (int)prng_below(prng, (uint64_t)i + 1);
        order[i] = order[k];
        order[k] = i;
    }
}

static struct trial trial_of(struct prng *prng, enum plan_kind kind, int size, const int *order)
{
    bool half = prng_below(prng, 2) == 0;
    return (struct trial){
        .call = {.kind = kind,
                 .algo = HEARTH_ALGO_RING,
                 .size = size,
                 .root = (int)prng_below(prng, (uint64_t)size),
                 .count = 1 + (size_t)prng_below(prng, 300),
                 .raw_len = half ? 2 : 4,
                 .acc_len = 4,
                 .order = order,
                 .chunk_bytes = 16 + (size_t)prng_below(prng, 200),
                 .window_bytes = (size_t)prng_below(prng, 800)},
        .slots = 1,
        .inside = fast,
        .across = slow,
    };
}

/* Every collective that goes by ring, in place and not: what must come out does, and with one slot a link. */
TEST(test_right_in_any_order)
{
    struct prng prng;
    struct dry_result result;
    int order[SIZE_MAX_TRIED];
    prng_init(&prng, 11);
    for (int size = 2; size <= SIZE_MAX_TRIED; size++)
        for (int again = 0; again < 6; again++) {
            shuffle(&prng, order, size);
            for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
                struct trial t = trial_of(&prng, (enum plan_kind)kind, size, order);
                if (!planner_can(&planner_ring, &t.call))
                    continue;
                t.in_place = again % 2 != 0;
                trial_run(&t, &result, NULL);
                t.call.count = 4 * (size_t)size; /* no part is empty, and all in one lane */
                t.call.chunk_bytes = 1 << 20;
                trial_check_moves(&t);
            }
        }
}

static void move_count(void *arg, int rank, uint64_t lane, const struct move *move)
{
    int(*sent)[SIZE_MAX_TRIED] = arg;
    if (move->bits & MOVE_SEND)
        sent[rank][move->to]++;
}

/* All-reduce sends from each to the next of the order, and to nobody else. */
TEST(test_neighbours)
{
    static const int order[] = {2, 0, 3, 1};
    struct plan plans[4];
    struct heap *heap = heap_open(0);
    struct error error;
    struct dry_result result;
    int sent[SIZE_MAX_TRIED][SIZE_MAX_TRIED] = {{0}};
    struct plan_call call = call_of(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, 4, 400);
    call.order = order;
    for (call.rank = 0; call.rank < 4; call.rank++)
        write_ok(&call, heap, &plans[call.rank]);
    struct dry_net net = {
        .inside = fast, .across = fast, .slots = 1, .observer = move_count, .observer_arg = sent};
    assert_int_equal(dryrun(plans, 4, &net, heap, &result, &error), HEARTH_OK);
    for (int place = 0; place < 4; place++)
        for (int to = 0; to < 4; to++)
            assert_int_equal(sent[order[place]][to], to == order[(place + 1) % 4] ? 6 : 0);
    for (int rank = 0; rank < 4; rank++)
        plan_fini(&plans[rank]);
    heap_close(heap);
}

/* Two sites that alternate by rank: an order that goes round one and then the other crosses twice. */
TEST(test_price_follows_the_order)
{
    static const int host[] = {0, 1, 0, 1, 0, 1}, order[] = {4, 2, 0, 1, 5, 3};
    struct group_view view = {.size = 6,
                              .host = host,
                              .inside = fast,
                              .across = slow,
                              .port_sharers = 3,
                              .chunk_bytes = 1 << 18,
                              .window_bytes = 1 << 20};
    struct plan_call call = call_of(PLAN_ALL_REDUCE, HEARTH_ALGO_AUTO, 6, 1000000);
    call.host = host;
    call.chunk_bytes = 1 << 18;
    for (int kind = 0; kind < 3; kind++) {
        static const enum plan_kind kinds[] = {PLAN_ALL_REDUCE, PLAN_BROADCAST, PLAN_REDUCE};
        call.kind = kinds[kind];
        call.order = view.order = NULL;
        double by_rank = select_price(&call, HEARTH_ALGO_RING, &view);
        call.order = view.order = order;
        double by_site = select_price(&call, HEARTH_ALGO_RING, &view);
        assert_true(by_site < by_rank);
    }
}

TEST(test_in_the_hash)
{
    static const int order[] = {0, 1, 2}, other[] = {0, 2, 1};
    struct plan_call call = {.kind = PLAN_ALL_REDUCE, .algo = HEARTH_ALGO_RING, .size = 3, .count = 1};
    uint64_t by_rank = plan_hash(&call);
    call.order = order;
    uint64_t ordered = plan_hash(&call);
    call.order = other;
    assert_true(ordered != by_rank && ordered != plan_hash(&call));
    call.order = NULL;
    call.host = order;
    assert_true(plan_hash(&call) != ordered);
}
