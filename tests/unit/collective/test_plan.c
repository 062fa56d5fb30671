/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting buffers, ranges, names, hashes, and calls that are refused. */
#include "core/prng.h"
#include "oracle.h"
#include "support/suite.h"

static struct heap heap;

/* In chunks of 16 elements, four to a window. */
static struct plan_call small_call(enum plan_kind kind, enum hearth_algo algo, int size, size_t count)
{
    struct plan_call call = call_of(kind, algo, size, count);
    call.chunk_bytes = 64;
    call.window_bytes = 256;
    return call;
}

static void refused(const struct plan_call *call, int status, const char *words)
{
    struct plan plan;
    struct error error;

    assert_int_equal(plan_write(call, &heap, &plan, &error), status);
    assert_int_equal(error.status, status);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_int_equal(heap.blocks, 0);
}

/* ---- ranges ---- */

/* Lanes one after the other, parts one after the other: without a gap, to the end. */
static void check_cover(const struct plan *plan)
{
    size_t at = 0, largest = 0, smallest = SIZE_MAX;

    for (uint64_t lane = 0; lane < plan->lanes; lane++) {
        struct range all = plan_range(plan, SIDE_IN, lane, 0, plan->parts);
        assert_int_equal(all.offset, at);
        for (uint32_t p = 0; p < plan->parts; p++) {
            struct range range = plan_range(plan, SIDE_OUT, lane, p, 1);
            assert_int_equal(range.offset, at);
            at += range.count;
        }
        assert_int_equal(all.offset + all.count, at);
        largest = all.count > largest ? all.count : largest;
        smallest = all.count < smallest ? all.count : smallest;
    }
    assert_int_equal(at, plan->count);
    assert_true(plan->lanes == 0 || largest - smallest <= 1);
}

TEST(test_even_covers)
{
    for (int size = 1; size <= 17; size++)
        for (size_t count = 0; count < 600; count += count < 40 ? 1 : 37) {
            struct plan plan;
            struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, size, count);
            call.rank = size - 1;
            call.chunk_bytes = 1 + count % 50;
            write_ok(&call, &heap, &plan);
            check_cover(&plan);
            assert_true(plan.frame_bytes <= call.chunk_bytes || plan.frame_bytes <= 4);
            plan_fini(&plan);
        }
}

/* Counts up to 2^61 bytes: first and last lanes, and some between, meet their neighbours. */
TEST(test_even_huge)
{
    static const size_t counts[] = {(size_t)1 << 31,       ((size_t)1 << 31) + 1, ((size_t)1 << 32) - 1,
                                    (size_t)1 << 32,       ((size_t)1 << 32) + 7, (size_t)1 << 40,
                                    ((size_t)1 << 40) - 3, ((size_t)1 << 59) + 5};
    struct prng prng;

    prng_init(&prng, 1);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int size = 1; size <= 64; size += 9) {
            struct plan plan;
            struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_DIRECT, size, counts[i]);
            call.chunk_bytes = i % 2 == 0 ? 4 : 262144;
            write_ok(&call, &heap, &plan);
            assert_int_equal(plan_range(&plan, SIDE_IN, 0, 0, 1).offset, 0);
            struct range last = plan_range(&plan, SIDE_IN, plan.lanes - 1, plan.parts - 1, 1);
            assert_int_equal(last.offset + last.count, counts[i]);
            for (int again = 0; again < 200; again++) {
                uint64_t lane = again < 100 ? prng_below(&prng, plan.lanes) : plan.lanes - 1;
                struct range whole = plan_range(&plan, SIDE_IN, lane, 0, plan.parts);
                size_t at = whole.offset;
                for (uint32_t p = 0; p < plan.parts; p++) {
                    struct range range = plan_range(&plan, SIDE_IN, lane, p, 1);
                    assert_int_equal(range.offset, at);
                    at += range.count;
                    assert_true(range.count * 4 <= call.chunk_bytes);
                }
                assert_int_equal(at, whole.offset + whole.count);
                if (lane + 1 < plan.lanes)
                    assert_int_equal(plan_range(&plan, SIDE_IN, lane + 1, 0, 1).offset, at);
            }
            plan_fini(&plan);
        }
}

TEST(test_given_covers)
{
    const size_t counts[] = {0, 17, 1, 0, 64, 16, 5, 0};
    struct plan plan;
    struct plan_call call = small_call(PLAN_REDUCE_SCATTER, HEARTH_ALGO_RING, 8, 0);

    call.in_counts = counts;
    call.rank = 4;
    write_ok(&call, &heap, &plan);
    assert_int_equal(plan.chunk_count, 16);
    assert_int_equal(plan.lanes, 4);
    size_t at = 0;
    for (uint32_t p = 0; p < 8; p++)
        for (uint64_t lane = 0; lane < plan.lanes; lane++) {
            struct range range = plan_range(&plan, SIDE_IN, lane, p, 1);
            assert_int_equal(range.offset, at);
            assert_true(range.count <= 16);
            at += range.count;
        }
    assert_int_equal(at, 17 + 1 + 64 + 16 + 5);
    assert_int_equal(plan_range(&plan, SIDE_OUT, 1, 4, 1).offset, 16); /* our own part is the whole target */
    assert_int_equal(plan_range(&plan, SIDE_OUT, 0, 1, 1).count, 0);   /* others are not there */
    assert_int_equal(plan.acc_count, 16);
    plan_fini(&plan);
}

TEST(test_given_huge)
{
    const size_t big = ((size_t)1 << 40) + 3, counts[] = {big, 0, big - 1, 7};
    struct plan plan;
    struct plan_call call = small_call(PLAN_ALL_GATHER, HEARTH_ALGO_DIRECT, 4, 0);

    call.out_counts = counts;
    write_ok(&call, &heap, &plan);
    assert_int_equal(plan.lanes, (big + 15) / 16);
    struct range last = plan_range(&plan, SIDE_OUT, plan.lanes - 1, 0, 1);
    assert_int_equal(last.offset + last.count, big);
    last = plan_range(&plan, SIDE_OUT, plan.lanes - 1, 2, 1);
    assert_int_equal(last.offset + last.count, big + big - 1);
    assert_int_equal(plan_range(&plan, SIDE_OUT, plan.lanes - 1, 3, 1).count, 0);
    assert_int_equal(plan_range(&plan, SIDE_OUT, 0, 3, 1).offset, big + big - 1);
    plan_fini(&plan);
}

/* ---- chunking ---- */

TEST(test_lanes)
{
    static const struct {
        enum hearth_algo algo;
        int size;
        size_t count;
        uint64_t lanes, window; /* chunk 64 bytes: 16 elements; window 256 */
    } table[] = {
        {HEARTH_ALGO_RING, 4, 64, 1, 1},    {HEARTH_ALGO_RING, 4, 65, 2, 2},
        {HEARTH_ALGO_RING, 4, 640, 10, 4},  {HEARTH_ALGO_TREE, 4, 16, 1, 1},
        {HEARTH_ALGO_TREE, 4, 17, 2, 2},    {HEARTH_ALGO_TREE, 4, 160, 10, 4},
        {HEARTH_ALGO_HALVING, 4, 32, 1, 1},                                     /* half of a lane travels */
        {HEARTH_ALGO_HALVING, 4, 33, 2, 2}, {HEARTH_ALGO_HALVING, 5, 16, 1, 1}, /* folded: all of it */
        {HEARTH_ALGO_HALVING, 5, 17, 2, 2}, {HEARTH_ALGO_EXCHANGE, 3, 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int rank = 0; rank < table[i].size; rank++) {
            struct plan plan;
            struct plan_call call = small_call(PLAN_ALL_REDUCE, table[i].algo, table[i].size, table[i].count);
            call.rank = rank;
            write_ok(&call, &heap, &plan);
            assert_int_equal(plan.lanes, table[i].lanes);
            assert_int_equal(plan.window, table[i].window);
            plan_fini(&plan);
        }
}

/* 16-bit elements: a frame of sums counts 4 bytes an element, one of elements 2. */
TEST(test_lanes_half)
{
    static const struct {
        enum hearth_algo algo;
        size_t count;
        uint64_t lanes;
    } table[] = {{HEARTH_ALGO_TREE, 32, 2}, {HEARTH_ALGO_STAR, 32, 1}, {HEARTH_ALGO_RING, 64, 1}};

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct plan plan;
        struct plan_call call = small_call(PLAN_ALL_REDUCE, table[i].algo, 4, table[i].count);
        call.raw_len = 2;
        write_ok(&call, &heap, &plan);
        assert_int_equal(plan.lanes, table[i].lanes);
        assert_int_equal(plan.frame_bytes, 64);
        plan_fini(&plan);
    }
}

/* Lanes and window are the same on all members, whatever each of them does. */
TEST(test_members_agree)
{
    const size_t counts[] = {3, 0, 900, 1, 70};
    const int host[] = {2, 2, 7, 2, 7};
    for (int kind = 0; kind < PLAN_KIND_COUNT; kind++)
        for (int algo = 1; algo < ALGO_COUNT; algo++) {
            struct plan plan, first = {.lanes = 0};
            for (int rank = 0; rank < 5; rank++) {
                struct plan_call call = small_call((enum plan_kind)kind, (enum hearth_algo)algo, 5, 1001);
                call.rank = rank;
                call.host = host;
                call.in_counts = kind == PLAN_REDUCE_SCATTER ? counts : NULL;
                call.out_counts = kind == PLAN_ALL_GATHER ? counts : NULL;
                if (!planner_can(planner_of(call.algo), &call))
                    break;
                write_ok(&call, &heap, &plan);
                if (rank == 0)
                    first = plan;
                assert_int_equal(plan.lanes, first.lanes);
                assert_int_equal(plan.window, first.window);
                assert_true(plan.window >= 1 && (plan.lanes == 0 || plan.window <= plan.lanes));
                plan_fini(&plan);
            }
        }
}

/* gatherv: members know different counts; the order on a link is the same all the same. */
TEST(test_gatherv_members_differ)
{
    const size_t counts[] = {400, 10, 90};
    struct plan root, other;
    struct plan_call call = small_call(PLAN_GATHER, HEARTH_ALGO_DIRECT, 3, 0);

    call.out_counts = counts;
    write_ok(&call, &heap, &root);
    call.out_counts = NULL;
    call.rank = 2;
    call.count = 90;
    write_ok(&call, &heap, &other);
    assert_int_equal(root.lanes, 25);
    assert_int_equal(other.lanes, 6);
    for (uint64_t lane = 0; lane < root.lanes; lane++) {
        struct range there = plan_range(&root, SIDE_OUT, lane, 2, 1);
        if (lane < other.lanes) {
            assert_int_equal(there.count, plan_range(&other, SIDE_IN, lane, 2, 1).count);
            assert_int_equal(lane / root.window, lane / other.window);
        } else {
            assert_int_equal(there.count, 0);
        }
    }
    plan_fini(&root);
    plan_fini(&other);
}

/* ---- names ---- */

TEST(test_names)
{
    static const struct {
        unsigned bits;
        const char *name;
    } table[] = {
        {MOVE_SEND_IN, "send"},
        {MOVE_RECV_ACC | MOVE_LOAD | MOVE_OWN | MOVE_RAW | MOVE_SEND_ACC, "recv_reduce_send"},
        {MOVE_RECV_ACC | MOVE_LOAD | MOVE_OWN | MOVE_STORE | MOVE_SEND_OUT, "recv_reduce_copy_send"},
        {MOVE_RECV_OUT | MOVE_SEND_OUT, "recv_copy_send"},
        {MOVE_RECV_OUT, "recv"},
        {MOVE_RECV_ACC, "recv_reduce"},
        {MOVE_RECV_ACC | MOVE_FENCE | MOVE_STORE, "recv_reduce_fence_copy"},
        {MOVE_RECV_ACC | MOVE_LOAD | MOVE_STORE, "recv_load_copy"},
        {MOVE_OWN | MOVE_LOAD | MOVE_STORE, "load_copy"},
        {MOVE_COPY | MOVE_SEND_IN, "copy_send"},
        {MOVE_FENCE | MOVE_IDENTITY, "fence_identity"},
    };
    char text[64], tiny[6];
    enum plan_kind kind;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct move move = {.bits = table[i].bits};
        move_name(&move, text, sizeof text);
        assert_string_equal(text, table[i].name);
        move_name(&move, tiny, sizeof tiny);
        assert_true(strlen(tiny) < sizeof tiny);
    }
    for (int i = 0; i < PLAN_KIND_COUNT; i++) {
        assert_int_equal(plan_kind_parse(plan_kind_name((enum plan_kind)i), &kind), HEARTH_OK);
        assert_int_equal(kind, i);
    }
    assert_string_equal(plan_kind_name(PLAN_EXCLUSIVE_SCAN), "exclusive_scan");
    assert_string_equal(plan_kind_name((enum plan_kind)99), "?");
    assert_int_equal(plan_kind_parse("allreduce", &kind), HEARTH_INVALID);
    assert_int_equal(plan_kind_parse(NULL, &kind), HEARTH_INVALID);
}

/* The ring in the words of NCCL. */
TEST(test_ring_words)
{
    static const char *const words[] = {"send",
                                        "recv_reduce_send",
                                        "recv_reduce_send",
                                        "recv_reduce_copy_send",
                                        "recv_copy_send",
                                        "recv_copy_send",
                                        "recv"};
    struct plan plan;
    struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, 4, 100);
    char text[64];

    write_ok(&call, &heap, &plan);
    assert_int_equal(plan.move_count, 7);
    for (uint32_t i = 0; i < 7; i++) {
        move_name(&plan.moves[i], text, sizeof text);
        assert_string_equal(text, words[i]);
    }
    plan_fini(&plan);
}

/* ---- hash ---- */

TEST(test_hash)
{
    const int host[] = {0, 0, 1, 1}, other[] = {0, 1, 0, 1};
    struct plan_call call = small_call(PLAN_ALL_REDUCE, HEARTH_ALGO_RING, 4, 100), changed[6];
    uint64_t hash = plan_hash(&call);

    for (int i = 0; i < 6; i++)
        changed[i] = call;
    changed[0].algo = HEARTH_ALGO_TREE;
    changed[1].chunk_bytes = 128;
    changed[2].window_bytes = 128;
    changed[3].rank_order = true;
    changed[4].host = host;
    changed[5].host = other;
    for (int i = 0; i < 6; i++) {
        assert_true(plan_hash(&changed[i]) != hash);
        for (int j = 0; j < i; j++)
            assert_true(plan_hash(&changed[i]) != plan_hash(&changed[j]));
    }
    changed[0] = call;
    changed[0].rank = 3; /* not a choice that members share */
    assert_int_equal(plan_hash(&changed[0]), hash);
}

/* ---- refusals ---- */

TEST(test_refused)
{
    const size_t counts[] = {SIZE_MAX / 2, SIZE_MAX / 2, 1, 1}, fine[] = {1, 2, 3, 4}, other[] = {2, 2, 3, 4};
    struct plan_call call = small_call(PLAN_BROADCAST, HEARTH_ALGO_TREE, 4, 10), bad = call;

    bad.root = 4;
    refused(&bad, HEARTH_INVALID, "root 4 is not in a group of 4");
    bad.root = -1;
    refused(&bad, HEARTH_INVALID, "root -1");
    bad = call;
    bad.rank = 4;
    refused(&bad, HEARTH_INVALID, "rank 4 is not in a group of 4");
    bad = call;
    bad.size = 0;
    refused(&bad, HEARTH_INVALID, "group of 0");
    bad = call;
    bad.kind = PLAN_KIND_COUNT;
    refused(&bad, HEARTH_INVALID, "no collective number 11");
    bad = call;
    bad.algo = HEARTH_ALGO_AUTO;
    refused(&bad, HEARTH_INVALID, "no algorithm");
    bad.algo = (enum hearth_algo)77;
    refused(&bad, HEARTH_INVALID, "no algorithm");
    bad = call;
    bad.raw_len = 0;
    refused(&bad, HEARTH_INVALID, "no bytes");
    bad = call;
    bad.count = SIZE_MAX / 4;
    refused(&bad, HEARTH_INVALID, "2^63");
    bad = small_call(PLAN_ALL_GATHER, HEARTH_ALGO_RING, 4, SIZE_MAX / 8);
    refused(&bad, HEARTH_INVALID, "2^63");
    bad = small_call(PLAN_REDUCE_SCATTER, HEARTH_ALGO_RING, 4, 0);
    bad.in_counts = counts;
    refused(&bad, HEARTH_INVALID, "2^63");
    bad = small_call(PLAN_ALL_TO_ALL, HEARTH_ALGO_DIRECT, 4, 0);
    bad.in_counts = fine;
    refused(&bad, HEARTH_INVALID, "one side only");
    bad.out_counts = other;
    refused(&bad, HEARTH_INVALID, "gives itself");
    bad = small_call(PLAN_BARRIER, HEARTH_ALGO_TREE, 4, 3);
    bad.count = 3;
    refused(&bad, HEARTH_INVALID, "barrier");
}

TEST(test_unsupported)
{
    struct plan_call call = small_call(PLAN_BROADCAST, HEARTH_ALGO_EXCHANGE, 4, 10);

    refused(&call, HEARTH_UNSUPPORTED,
            "broadcast of 4 members does not go by exchange; it goes by ring, tree, star");
    call.kind = PLAN_ALL_TO_ALL;
    call.algo = HEARTH_ALGO_RING;
    refused(&call, HEARTH_UNSUPPORTED, "does not go by ring; it goes by direct");
    call.kind = PLAN_ALL_REDUCE;
    call.rank_order = true;
    refused(&call, HEARTH_UNSUPPORTED,
            "in rank order does not go by ring; it goes by direct, star, exchange");
    call = small_call(PLAN_ALL_GATHER, HEARTH_ALGO_HALVING, 6, 1);
    refused(&call, HEARTH_UNSUPPORTED,
            "all_gather of 6 members does not go by halving; it goes by ring, direct");
    call = small_call(PLAN_ALL_GATHER, HEARTH_ALGO_HALVING, 8, 5); /* 4 * 5 * 4 bytes are more than a chunk */
    refused(&call, HEARTH_UNSUPPORTED, "does not go by halving");
}

/* Memory runs out at every allocation in turn; nothing is left behind. */
TEST(test_no_memory)
{
    const int host[] = {0, 1, 1, 2, 2, 2, 0, 1, 2, 2};
    for (int algo = 1; algo < ALGO_COUNT; algo++)
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            struct plan_call call = small_call((enum plan_kind)kind, (enum hearth_algo)algo, 10, 99);
            struct plan plan;
            struct error error;
            int status = HEARTH_NO_MEMORY;
            call.host = host;
            if (!planner_can(planner_of(call.algo), &call))
                continue;
            for (int64_t n = 0; status != HEARTH_OK; n++) {
                heap.fail_after = n;
                status = plan_write(&call, &heap, &plan, &error);
                assert_true(status == HEARTH_OK || status == HEARTH_NO_MEMORY);
                if (status != HEARTH_OK)
                    assert_int_equal(heap.blocks, 0);
            }
            heap.fail_after = -1;
            plan_fini(&plan);
            assert_int_equal(heap.blocks, 0);
        }
}

int main(void)
{
    heap_init(&heap, 0);
    return suite_run();
}
