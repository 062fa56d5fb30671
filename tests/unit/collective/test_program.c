/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: the canonical order of frames, the same at both ends, and the cache. */
#include "collective/program.h"
#include "core/prng.h"
#include "support/suite.h"

#define SIZE_MEMBERS_MAX 9

static const struct group_view no_view; /* the calls name their algorithm */
static struct heap heap;
static struct program_cache cache;

static void no_idle_op(struct list *item)
{
    fail_msg("there is no idle operation");
}

static int setup(void **state)
{
    heap_init(&heap, 0);
    program_cache_init(&cache, &heap, no_idle_op);
    return 0;
}

static int teardown(void **state)
{
    program_cache_fini(&cache);
    assert_int_equal(heap.blocks, 0);
    return 0;
}

static struct program *get_call(const struct plan_call *call)
{
    struct program *p = NULL;
    struct error error;
    assert_int_equal(program_get(&cache, call, &no_view, &p, &error), HEARTH_OK);
    return p;
}

static struct plan_call call_of(enum plan_kind kind, enum hearth_algo algo, int size, size_t count)
{
    return (struct plan_call){
        .kind = kind,
        .algo = algo,
        .size = size,
        .count = kind == PLAN_BARRIER ? 0 : count,
        .raw_len = 4,
        .acc_len = 4,
        .chunk_bytes = 64,
        .window_bytes = 64 * 5,
    };
}

/* ---- one flow ---- */

/* Walks the whole flow and checks all that is said about canonical order. */
static void check_flow(const struct plan *plan, const struct flow_table *flow, bool incoming)
{
    struct flow_cursor at = {0};
    uint64_t bytes = 0, index = 0, block = 0, lane = 0;
    uint32_t step = 0;
    assert_int_equal(flow->frames, flow->count * plan->lanes);
    for (; flow_more(flow, &at); flow_next(plan, flow, &at)) {
        const struct move *move = flow_move(plan, flow, &at);
        uint64_t lane_now = flow_lane(plan, &at), block_now = lane_now / plan->window;
        uint32_t step_now = incoming ? move->from_step : move->to_step, turn;
        assert_true(lane_now < plan->lanes);
        assert_int_equal(at.index, index);
        assert_int_equal(at.block, block_now);
        assert_int_equal(flow_index(plan, flow, at.turn, lane_now), index);
        bool later = block_now > block ||
                     (block_now == block && (step_now > step || (step_now == step && lane_now > lane)));
        assert_true(index == 0 || later);
        assert_int_equal(incoming ? move->from : move->to, flow->peer);
        if (incoming) {
            assert_true(flow_turn(plan, flow, step_now, &turn));
            assert_int_equal(turn, at.turn);
        }
        bytes += incoming ? plan_recv_bytes(plan, lane_now, move) : plan_send_bytes(plan, lane_now, move);
        block = block_now;
        step = step_now;
        lane = lane_now;
        index++;
    }
    assert_int_equal(index, flow->frames);
    assert_int_equal(bytes, flow->bytes);
}

/* No step but those of the flow's moves is found. */
static void check_turns(const struct plan *plan, const struct flow_table *flow)
{
    uint32_t found = 0, last = 0, turn;
    for (uint32_t i = 0; i < flow->count; i++) {
        uint32_t step = plan->moves[flow->moves[i]].from_step;
        last = step > last ? step : last;
    }
    for (uint32_t step = 0; step <= last + 2; step++)
        found += flow_turn(plan, flow, step, &turn);
    assert_int_equal(found, flow->count);
    assert_false(flow_turn(plan, flow, UINT32_MAX, &turn));
}

/* What one sends to the other, frame by frame, is what the other expects of the one. */
static void check_pair(const struct program *from, const struct program *to, int sender, int receiver)
{
    int32_t out = from->out_of[receiver], in = to->in_of[sender];
    uint64_t frames_out = out >= 0 ? from->out[out].frames : 0;
    uint64_t frames_in = in >= 0 ? to->in[in].frames : 0;
    assert_int_equal(frames_out, frames_in);
    if (frames_out == 0)
        return;
    const struct flow_table *a = &from->out[out], *b = &to->in[in];
    struct flow_cursor at_a = {0}, at_b = {0};
    assert_int_equal(a->bytes, b->bytes);
    while (flow_more(a, &at_a)) {
        const struct move *send = flow_move(&from->plan, a, &at_a), *recv = flow_move(&to->plan, b, &at_b);
        uint64_t lane = flow_lane(&from->plan, &at_a);
        assert_int_equal(lane, flow_lane(&to->plan, &at_b));
        assert_int_equal(send->to_step, recv->from_step);
        assert_int_equal(plan_send_bytes(&from->plan, lane, send), plan_recv_bytes(&to->plan, lane, recv));
        flow_next(&from->plan, a, &at_a);
        flow_next(&to->plan, b, &at_b);
    }
    assert_false(flow_more(b, &at_b));
}

static void check_program(const struct program *p)
{
    for (uint32_t i = 0; i < p->in_count; i++) {
        check_flow(&p->plan, &p->in[i], true);
        check_turns(&p->plan, &p->in[i]);
        assert_int_equal(p->in_of[p->in[i].peer], i);
    }
    for (uint32_t i = 0; i < p->out_count; i++) {
        check_flow(&p->plan, &p->out[i], false);
        assert_int_equal(p->out_of[p->out[i].peer], i);
    }
    assert_in_range(p->depth, 1, FLOW_WINDOW_MAX);
    assert_true(p->depth == 1 ||
                p->depth * p->plan.frame_bytes * (p->in_count > 0 ? p->in_count : 1) <= p->call.window_bytes);
}

/* All members' programs of one call; false: this algorithm does not do it. */
static bool check_call(struct plan_call *call)
{
    struct program_cache caches[SIZE_MEMBERS_MAX];
    struct program *programs[SIZE_MEMBERS_MAX];
    struct error error;
    heap_init(&heap, 0);
    int status = HEARTH_OK, made = 0;
    for (; made < call->size && status == HEARTH_OK; made++) {
        program_cache_init(&caches[made], &heap, no_idle_op);
        call->rank = made;
        status = program_get(&caches[made], call, &no_view, &programs[made], &error);
        assert_true(status == HEARTH_OK || status == HEARTH_UNSUPPORTED);
    }
    for (int i = 0; status == HEARTH_OK && i < call->size; i++) {
        check_program(programs[i]);
        for (int k = 0; k < call->size; k++)
            check_pair(programs[i], programs[k], i, k);
    }
    for (int i = 0; i < made; i++)
        program_cache_fini(&caches[i]);
    assert_int_equal(heap.blocks, 0);
    return status == HEARTH_OK;
}

/* ---- all plans ---- */

TEST(order_is_canonical_for_all_plans)
{
    static const size_t counts[] = {0, 1, 2, 3, 15, 16, 17, 100, 333, 1000, 2049};
    unsigned checked = 0;
    for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
        for (int algo = HEARTH_ALGO_RING; algo <= HEARTH_ALGO_EXCHANGE; algo++) {
            for (int size = 1; size <= SIZE_MEMBERS_MAX; size++) {
                for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                    struct plan_call call =
                        call_of((enum plan_kind)kind, (enum hearth_algo)algo, size, counts[i]);
                    call.root = (int)counts[i] % size;
                    checked += check_call(&call);
                }
            }
        }
    }
    print_message("%u calls\n", checked);
    assert_true(checked > 2000);
}

/* Chunks and windows of odd sizes: blocks whose last lanes are missing, one lane, one element a frame. */
TEST(order_is_canonical_for_odd_cuts)
{
    struct prng prng;
    unsigned checked = 0;
    prng_init(&prng, 1);
    for (int round = 0; round < 2000; round++) {
        int size = 1 + (int)prng_below(&prng, SIZE_MEMBERS_MAX);
        struct plan_call call =
            call_of((enum plan_kind)prng_below(&prng, PLAN_KIND_COUNT),
                    (enum hearth_algo)(1 + prng_below(&prng, 7)), size, prng_below(&prng, 3000));
        call.root = (int)prng_below(&prng, (uint64_t)size);
        call.chunk_bytes = 8 + prng_below(&prng, 500);
        call.window_bytes = 8 + prng_below(&prng, 5000);
        call.acc_len = prng_below(&prng, 2) ? 4 : 8;
        call.rank_order = prng_below(&prng, 2);
        checked += check_call(&call);
    }
    assert_true(checked > 500);
}

/* A block that is not full has fewer lanes, and everything behind it moves up: by hand for one case. */
TEST(the_last_block_is_short)
{
    struct move moves[] = {{.from_step = 2}, {.from_step = 5}, {.from_step = 9}};
    uint32_t numbers[] = {0, 1, 2};
    struct plan plan = {.lanes = 7, .window = 3, .moves = moves, .move_count = 3};
    struct flow_table flow = {.count = 3, .moves = numbers, .frames = 21};
    static const uint64_t lanes[] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5, 6, 6, 6};
    static const uint32_t turns[] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1, 2};
    struct flow_cursor at = {0};
    for (uint64_t i = 0; i < 21; i++) {
        assert_true(flow_more(&flow, &at));
        assert_int_equal(flow_lane(&plan, &at), lanes[i]);
        assert_int_equal(at.turn, turns[i]);
        assert_int_equal(flow_index(&plan, &flow, turns[i], lanes[i]), i);
        flow_next(&plan, &flow, &at);
    }
    assert_false(flow_more(&flow, &at));
}

/* More than 2^31 elements, without walking them all. */
TEST(indices_hold_for_large_counts)
{
    struct move moves[] = {{.from_step = 1}, {.from_step = 2}};
    uint32_t numbers[] = {0, 1};
    struct plan plan = {.lanes = UINT64_C(1) << 40, .window = 1000, .moves = moves, .move_count = 2};
    struct flow_table flow = {.count = 2, .moves = numbers, .frames = UINT64_C(1) << 41};
    uint64_t last = (UINT64_C(1) << 40) - 1, first = last / 1000 * 1000;
    assert_int_equal(flow_index(&plan, &flow, 1, last), (UINT64_C(1) << 41) - 1);
    assert_int_equal(flow_index(&plan, &flow, 0, first), first * 2);
    assert_int_equal(flow_index(&plan, &flow, 0, last), first * 2 + (last - first));
    struct flow_cursor at = {
        .index = (UINT64_C(1) << 41) - 1, .block = last / 1000, .lane = last - first, .turn = 1};
    assert_true(flow_more(&flow, &at));
    assert_int_equal(flow_lane(&plan, &at), last);
    flow_next(&plan, &flow, &at);
    assert_false(flow_more(&flow, &at));
}

TEST_WITH(counts_of_parts_are_compared, setup, teardown)
{
    size_t counts[3] = {5, 0, 100};
    struct plan_call call = call_of(PLAN_ALL_GATHER, HEARTH_ALGO_RING, 3, 0);
    call.out_counts = counts;
    struct program *a = get_call(&call);
    assert_ptr_not_equal(a->call.out_counts, counts); /* its own copy */
    size_t same[3] = {5, 0, 100};
    call.out_counts = same;
    assert_ptr_equal(get_call(&call), a);
    same[2] = 101;
    assert_ptr_not_equal(get_call(&call), a);
}

/* Lists of chosen elements have other lengths in every call: programs are made over, nothing is allocated. */
TEST_WITH(changing_counts_of_an_all_to_all_allocate_nothing, setup, teardown)
{
    enum { MEMBERS = 4, ROUNDS = 100 };
    struct program_cache caches[MEMBERS];
    struct program *programs[MEMBERS];
    struct error error;
    uint64_t calls = 0;
    for (int i = 0; i < MEMBERS; i++)
        program_cache_init(&caches[i], &heap, no_idle_op);
    for (size_t round = 0; round < ROUNDS; round++) {
        if (round == PROGRAM_COUNTS_MAX)
            calls = heap.calls;
        for (size_t i = 0; i < MEMBERS; i++) {
            size_t in[MEMBERS], out[MEMBERS];
            for (size_t k = 0; k < MEMBERS; k++) {
                in[k] = (round * 7 + i * 31 + k * 17) % 200;
                out[k] = (round * 7 + k * 31 + i * 17) % 200;
            }
            struct plan_call call = call_of(PLAN_ALL_TO_ALL, HEARTH_ALGO_AUTO, MEMBERS, 0);
            call.rank = (int)i;
            call.in_counts = in;
            call.out_counts = out;
            assert_int_equal(program_get(&caches[i], &call, &no_view, &programs[i], &error), HEARTH_OK);
            check_program(programs[i]);
            assert_true(programs[i]->window_room >= programs[i]->plan.window);
        }
        for (int i = 0; i < MEMBERS; i++)
            for (int k = 0; k < MEMBERS; k++)
                if (i != k)
                    assert_int_equal(programs[i]->out[programs[i]->out_of[k]].bytes,
                                     programs[k]->in[programs[k]->in_of[i]].bytes);
    }
    assert_int_equal(heap.calls, calls);
    for (int i = 0; i < MEMBERS; i++)
        program_cache_fini(&caches[i]);
}

/* ---- the cache ---- */

struct idle_op {
    struct list item;
};
static int freed;

static void count_freed(struct list *item)
{
    free(container_of(item, struct idle_op, item));
    freed++;
}

static struct program *get(size_t count)
{
    struct plan_call call = call_of(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, 3, count);
    return get_call(&call);
}

static bool is_cached(size_t count)
{
    uint64_t calls = heap.calls;
    (void)get(count);
    return heap.calls == calls;
}

TEST_WITH(equal_calls_share_a_program, setup, teardown)
{
    struct program *first = get(100);
    get(101);
    uint64_t calls = heap.calls;
    assert_ptr_equal(get(100), first);
    assert_int_equal(heap.calls, calls);
    assert_int_equal(cache.count, 2);
    struct plan_call call = call_of(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, 3, 100);
    struct plan_call others[] = {call, call, call, call, call};
    others[0].kind = PLAN_SCAN;
    others[1].algo = HEARTH_ALGO_DIRECT;
    others[2].raw_len = 2;
    others[3].acc_len = 8;
    others[4].rank_order = true;
    others[4].algo = HEARTH_ALGO_DIRECT;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_ptr_not_equal(get_call(&others[i]), first);
    assert_int_equal(cache.count, 7);
}

TEST_WITH(the_cache_is_trimmed_by_last_use, setup, teardown)
{
    for (size_t i = 1; i <= PROGRAM_CACHE_MAX; i++)
        get(i);
    uint64_t full = heap.blocks;
    assert_int_equal(cache.count, PROGRAM_CACHE_MAX);
    assert_true(is_cached(1)); /* and so it is the youngest now */
    get(1000);
    assert_int_equal(cache.count, PROGRAM_CACHE_MAX);
    assert_true(is_cached(1));
    assert_true(is_cached(3));
    assert_false(is_cached(2)); /* the oldest went */
    for (size_t i = 2000; i < 3000; i++)
        get(i);
    assert_int_equal(cache.count, PROGRAM_CACHE_MAX);
    assert_true(heap.blocks <= full + 64); /* plans of a few more lanes */
}

TEST_WITH(programs_in_use_stay, setup, teardown)
{
    struct program *used[PROGRAM_CACHE_MAX + 10];
    for (size_t i = 0; i < PROGRAM_CACHE_MAX + 10; i++) {
        used[i] = get(i + 1);
        used[i]->users = 1;
    }
    for (size_t i = 0; i < PROGRAM_CACHE_MAX + 10; i++)
        assert_ptr_equal(get(i + 1), used[i]);
    for (size_t i = 0; i < PROGRAM_CACHE_MAX + 10; i++)
        used[i]->users = 0;
    get(1000); /* now they go */
    assert_int_equal(cache.count, PROGRAM_CACHE_MAX);
}

TEST_WITH(idle_operations_go_with_their_program, setup, teardown)
{
    cache.op_free = count_freed;
    freed = 0;
    for (size_t i = 1; i <= PROGRAM_CACHE_MAX + 5; i++) {
        struct program *p = get(i);
        for (int k = 0; k < 2; k++) {
            struct idle_op *op = malloc(sizeof *op);
            assert_non_null(op);
            list_init(&op->item);
            list_push(&p->idle, &op->item);
        }
    }
    assert_int_equal(freed, 10);
    program_cache_fini(&cache);
    assert_int_equal(freed, 2 * (PROGRAM_CACHE_MAX + 5));
}

TEST(no_memory_leaves_nothing_behind)
{
    size_t counts[4] = {3, 70, 0, 9};
    for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
        struct plan_call call = call_of((enum plan_kind)kind, HEARTH_ALGO_DIRECT, 4, 50);
        if (kind == PLAN_ALL_TO_ALL)
            call.in_counts = call.out_counts = counts;
        int64_t after = 0;
        for (int status = HEARTH_NO_MEMORY; status != HEARTH_OK; after++) {
            struct program *p;
            struct error error = {0};
            setup(NULL);
            atomic_store(&heap.fail_after, after);
            status = program_get(&cache, &call, &no_view, &p, &error);
            if (status == HEARTH_UNSUPPORTED)
                break;
            if (status != HEARTH_OK) {
                assert_int_equal(status, HEARTH_NO_MEMORY);
                assert_true(strlen(error.text) > 0);
                assert_int_equal(heap.blocks, 0);
                assert_int_equal(cache.count, 0);
            }
            teardown(NULL);
        }
    }
}
