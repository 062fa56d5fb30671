/* SPDX-License-Identifier: Apache-2.0 */
/* Thousands of small operations: memory does not grow, nothing is allocated once everything has been used.
 *
 * HEARTH_TEST_REPEAT says how many; the full number is 100,000, HEARTH_TEST_SOAK asks for it too. */
#include <inttypes.h>

#include "conform/reference.h"
#include "support/watchdog.h"

enum { MEMBERS = 4, USUAL = 10000, FULL = 100000 };

static int operations(void)
{
    unsigned long usual = getenv("HEARTH_TEST_SOAK") ? FULL : USUAL;
    return (int)repeat_count(usual);
}

/* One of a handful of calls, by its number: all kinds, small sizes, checked. */
static void one(struct fixture *c, int rank, int number)
{
    hearth_group *g = c->world[rank];
    int n = c->size, root = number % n;
    int64_t x[MEMBERS * 8], y[MEMBERS * 8];
    size_t count = 1 + (size_t)(number % 3) * 3;
    for (size_t i = 0; i < MEMBERS * 8; i++)
        x[i] = number + rank;
    int64_t sum = (int64_t)n * number + n * (n - 1) / 2, got = 0, wanted = 0;
    switch (number % 8) {
    case 0:
    case 1:
        check_ok(hearth_all_reduce(g, x, y, count, HEARTH_I64, HEARTH_OP_SUM, NULL));
        got = y[count - 1];
        wanted = sum;
        break;
    case 2:
        check_ok(hearth_barrier(g, NULL));
        break;
    case 3:
        check_ok(hearth_broadcast(g, x, count, HEARTH_I64, root, NULL));
        got = x[count - 1];
        wanted = number + root;
        break;
    case 4:
        check_ok(hearth_all_gather(g, x, y, count, HEARTH_I64, NULL));
        got = y[(size_t)(n - 1) * count];
        wanted = number + n - 1;
        break;
    case 5:
        check_ok(hearth_reduce_scatter(g, x, y, count, HEARTH_I64, HEARTH_OP_SUM, NULL));
        got = y[0];
        wanted = sum;
        break;
    case 6:
        check_ok(hearth_all_to_all(g, x, y, count, HEARTH_I64, NULL));
        got = y[0];
        wanted = number;
        break;
    default:
        check_ok(hearth_scan(g, x, y, count, HEARTH_I64, HEARTH_OP_MAX, NULL));
        got = y[0];
        wanted = number + rank;
    }
    check(got == wanted, "rank %d, operation %d: %" PRId64 ", not %" PRId64, rank, number, got, wanted);
}

struct stretch {
    int first, count;
};

static void stretch_member(struct fixture *c, int rank, void *arg)
{
    const struct stretch *s = arg;
    for (int i = s->first; i < s->first + s->count && !checks_failed(); i++)
        one(c, rank, i);
}

static uint64_t allocations(const struct fixture *c)
{
    uint64_t sum = 0;
    for (int i = 0; i < c->size; i++)
        sum += metric(c->nodes[i], "hearth_allocations_total");
    return sum;
}

/* Runs stretches until memory has stood still for a whole one. How far members run ahead of each other is up
 * to the machine, and the deepest may come late: a few more slots are allowed, but not one per operation. */
static void check_steady(struct fixture *c, member_fn *fn, int share)
{
    enum { STRETCHES = 10, SLOTS = 64 };
    struct stretch s = {0, 3000};
    fixture_run(c, fn, &s);
    uint64_t bytes = cluster_memory(c), calls = allocations(c), before = calls, after = 0;
    for (int i = 0; i < STRETCHES && after != before; i++) {
        before = allocations(c);
        s = (struct stretch){s.first + s.count, operations() / share};
        fixture_run(c, fn, &s);
        after = allocations(c);
        print_message("%d operations on %d nodes: %" PRIu64 " allocations, then %" PRIu64 "\n", s.count,
                      c->size, before, after);
    }
    assert_true(after == before);
    assert_true(after - calls <= SLOTS);
    assert_true(cluster_memory(c) <= bytes + (64u << 10));
}

TEST(test_small_operations_allocate_nothing)
{
    struct fixture c;
    fixture_open(&c, MEMBERS, NULL);
    check_steady(&c, stretch_member, 1);
    fixture_close(&c);
}

/* Requests, their descriptors aside, come from a store as well. */
static void nonblocking_member(struct fixture *c, int rank, void *arg)
{
    const struct stretch *s = arg;
    enum { AHEAD = 4 };
    hearth_request *requests[AHEAD] = {NULL};
    int64_t x[AHEAD];
    for (int i = s->first; i < s->first + s->count; i++) {
        int at = i % AHEAD;
        hearth_request_close(requests[at]); /* ended: AHEAD operations ago is waited for below */
        x[at] = i + rank;
        check_ok(hearth_all_reduce_nb(c->world[rank], &x[at], &x[at], 1, HEARTH_I64, HEARTH_OP_SUM, NULL,
                                      &requests[at]));
        int oldest = (i + 1) % AHEAD;
        if (requests[oldest])
            check_ok(hearth_request_wait(requests[oldest], -1));
    }
    check_ok(hearth_request_wait_all(requests, AHEAD, -1));
    for (int i = 0; i < AHEAD; i++)
        hearth_request_close(requests[i]);
}

TEST(test_nonblocking_operations_allocate_nothing)
{
    struct fixture c;
    fixture_open(&c, MEMBERS, NULL);
    check_steady(&c, nonblocking_member, 1);
    fixture_close(&c);
}

/* Every codec by every algorithm that can be fixed, on numbers that differ in every call: topk over a tensor
 * by owners sends lists whose lengths depend on them. */
static void compressed_member(struct fixture *c, int rank, void *arg)
{
    static const struct {
        const char *codec;
        enum hearth_algo algo;
        bool residual;
    } calls[] = {{"fp16", HEARTH_ALGO_AUTO, true},          {"bf16", HEARTH_ALGO_DIRECT, true},
                 {"int8", HEARTH_ALGO_DIRECT, true},        {"int8", HEARTH_ALGO_EXCHANGE, false},
                 {"onebit", HEARTH_ALGO_EXCHANGE, true},    {"topk:0.05", HEARTH_ALGO_DIRECT, true},
                 {"topk:0.05", HEARTH_ALGO_EXCHANGE, true}, {"topk:0.05,chunk=256", HEARTH_ALGO_AUTO, true},
                 {"randomk:0.1", HEARTH_ALGO_AUTO, true},   {"powersgd:2,rows=20", HEARTH_ALGO_AUTO, true},
                 {"none", HEARTH_ALGO_AUTO, true}};
    enum { CALLS = sizeof calls / sizeof calls[0], COUNT = 500 };
    static _Thread_local float x[COUNT], e[COUNT];
    const struct stretch *s = arg;
    hearth_request *request = NULL;
    struct hearth_opts opts = opts_default();
    for (int i = s->first; i < s->first + s->count && !checks_failed(); i++) {
        bool residual = calls[i % CALLS].residual;
        opts.algo = calls[i % CALLS].algo;
        for (int k = 0; k < COUNT; k++)
            x[k] = (float)((k * 37 + rank * 11 + i * i % 997) % 101) - 50;
        check_ok(hearth_all_reduce_compressed_nb(c->world[rank], x, COUNT, HEARTH_F32, HEARTH_OP_SUM,
                                                 calls[i % CALLS].codec, residual ? e : NULL, &opts,
                                                 &request));
        check_ok(hearth_request_wait(request, -1));
        hearth_request_close(request);
    }
}

TEST(test_compressed_operations_allocate_nothing)
{
    struct fixture c;
    fixture_open(&c, MEMBERS, NULL);
    check_steady(&c, compressed_member, 4);
    fixture_close(&c);
}

/* Many different calls: what is remembered of each has its limit. */
static void various_member(struct fixture *c, int rank, void *arg)
{
    const struct stretch *s = arg;
    int32_t x[600] = {0};
    for (int i = s->first; i < s->first + s->count; i++)
        check_ok(hearth_all_reduce(c->world[rank], x, x, 1 + (size_t)(i * 37 % 600), HEARTH_I32,
                                   HEARTH_OP_MAX, NULL));
}

TEST(test_memory_for_different_calls_is_bounded)
{
    struct fixture c;
    struct stretch warm = {0, 2400}, rest = {2400, operations() / 4};
    fixture_open(&c, MEMBERS, NULL);
    fixture_run(&c, various_member, &warm);
    uint64_t bytes = cluster_memory(&c);
    fixture_run(&c, various_member, &rest);
    uint64_t after = cluster_memory(&c);
    print_message("%d different operations: %" PRIu64 " bytes, then %" PRIu64 "\n", rest.count, bytes, after);
    assert_true(after <= bytes + (64u << 10));
    fixture_close(&c);
}

/* Opening and closing leaves nothing behind: a sanitizer or the system would see it. */
TEST(test_clusters_come_and_go)
{
    for (int i = 0; i < operations() / 100; i++) {
        struct fixture c;
        fixture_open(&c, 1 + i % MEMBERS, NULL);
        if (i % 5 == 0)
            fixture_works(&c);
        fixture_close(&c);
    }
}
