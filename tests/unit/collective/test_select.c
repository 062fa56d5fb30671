/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an algorithm: its rules, and how good it is, measured against dry runs. */
#include <math.h>

#include "collective/dryrun.h"
#include "collective/select.h"
#include "core/hash.h"
#include "support/suite.h"

#define MEMBERS_MAX 64

static struct heap heap;
static uint64_t digest; /* of all prices: the same on every machine, or members would choose differently */

/* Homes, labs and data centres. `per_host`: members that share one; negative: the number of hosts. */
static const struct net {
    const char *name;
    struct link_cost inside, across;
    int per_host;
} nets[] = {
    {"1 Gbit/s", {100e-6, 125e6, 1e-10, 5e-6}, {100e-6, 125e6, 1e-10, 5e-6}, 0},
    {"10 Gbit/s", {30e-6, 1.25e9, 1e-10, 3e-6}, {30e-6, 1.25e9, 1e-10, 3e-6}, 0},
    {"100 Mbit/s far away", {20e-3, 12.5e6, 1e-10, 10e-6}, {20e-3, 12.5e6, 1e-10, 10e-6}, 0},
    {"shared memory", {1e-6, 5e9, 1e-10, 0.5e-6}, {1e-6, 5e9, 1e-10, 0.5e-6}, 0},
    {"four to a host", {1e-6, 5e9, 1e-10, 0.5e-6}, {100e-6, 125e6, 1e-10, 5e-6}, 4},
    {"three hosts far apart", {1e-6, 5e9, 1e-10, 0.5e-6}, {20e-3, 12.5e6, 1e-10, 10e-6}, -3},
};
#define NET_COUNT (sizeof nets / sizeof nets[0])

static struct group_view view_of(const struct net *net, int size, int host[])
{
    for (int r = 0; r < size; r++)
        host[r] = net->per_host > 0 ? r / net->per_host : net->per_host < 0 ? -r * net->per_host / size : 0;
    return (struct group_view){.size = size, .host = host, .inside = net->inside, .across = net->across};
}

static struct plan_call call_of(enum plan_kind kind, int size, size_t bytes, const int host[])
{
    struct plan_call call = {.kind = kind,
                             .size = size,
                             .count = bytes / 4,
                             .raw_len = 4,
                             .acc_len = 4,
                             .host = host,
                             .chunk_bytes = 262144,
                             .window_bytes = 4194304};
    if (kind == PLAN_REDUCE_SCATTER || kind == PLAN_ALL_GATHER)
        call.count = (bytes / 4 + (size_t)size - 1) / (size_t)size;
    if (kind == PLAN_BARRIER)
        call.count = 0;
    return call;
}

/* ---- against dry runs ---- */

/* Seconds; HUGE_VAL without a run if a port alone would need more than `enough`. */
static double dry_time(struct plan_call call, enum hearth_algo algo, const struct group_view *view,
                       double enough)
{
    static struct plan plans[MEMBERS_MAX];
    struct dry_net net = {.inside = view->inside, .across = view->across, .host = call.host, .slots = 16};
    struct dry_result result = {.time_s = HUGE_VAL};
    struct error error;
    double most = 0;

    call.algo = algo;
    for (int r = 0; r < call.size; r++) {
        call.rank = r;
        assert_int_equal(plan_write(&call, &heap, &plans[r], &error), HEARTH_OK);
        double bytes = 0;
        for (uint32_t i = 0; i < plans[r].move_count && plans[r].lanes > 0; i++)
            bytes += (double)plan_send_bytes(&plans[r], 0, &plans[r].moves[i]) * (double)plans[r].lanes;
        most = bytes > most ? bytes : most;
    }
    double fastest = fmax(view->inside.bytes_per_s, view->across.bytes_per_s);
    if (most / fastest <= enough && dryrun(plans, call.size, &net, &heap, &result, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    for (int r = 0; r < call.size; r++)
        plan_fini(&plans[r]);
    return result.time_s;
}

struct score {
    int cells, good;
    double worst;
};

static void score_cell(struct score *score, const struct net *net, enum plan_kind kind, int size,
                       size_t bytes)
{
    int host[MEMBERS_MAX];
    struct group_view view = view_of(net, size, host);
    struct plan_call call = call_of(kind, size, bytes, host);
    enum hearth_algo chosen;
    struct error error;

    assert_int_equal(select_algo(&call, &view, &chosen, &error), HEARTH_OK);
    double taken = dry_time(call, chosen, &view, HUGE_VAL), best = taken;
    for (int algo = 1; algo < ALGO_COUNT; algo++) {
        double price = select_price(&call, (enum hearth_algo)algo, &view);
        digest = hash64(digest, &price, sizeof price);
        if (price == HUGE_VAL || algo == (int)chosen)
            continue;
        best = fmin(best, dry_time(call, (enum hearth_algo)algo, &view, best));
    }
    double ratio = best > 0 ? taken / best : 1;
    score->cells++;
    score->good += ratio <= 1.25;
    if (ratio > 2)
        fail_msg("%s, %s of %zu bytes, %d members: %s takes %.2f times as long as the best", net->name,
                 plan_kind_name(kind), bytes, size, hearth_algo_name(chosen), ratio);
    score->worst = fmax(score->worst, ratio);
}

/* Within 25 % of the best in nine of ten cells, never worse than twice as long. */
static void score_kind(enum plan_kind kind, const int sizes[], const size_t bytes[])
{
    struct score score = {0, 0, 1};

    for (size_t n = 0; n < NET_COUNT; n++)
        for (int i = 0; sizes[i] > 0; i++)
            for (int b = 0; bytes[b] > 0; b++)
                score_cell(&score, &nets[n], kind, sizes[i], bytes[b]);
    print_message("%s: %d of %d cells within 25 %% of the best, at worst %.2f times as long\n",
                  plan_kind_name(kind), score.good, score.cells, score.worst);
    assert_true(score.good * 10 >= score.cells * 9);
}

TEST(test_all_reduce_is_chosen_well)
{
    const int sizes[] = {2, 3, 4, 5, 8, 13, 16, 32, 64, 0};
    const size_t bytes[] = {4, 256, 4096, 65536, 1000000, 8000000, 100000000, 0};
    score_kind(PLAN_ALL_REDUCE, sizes, bytes);
}

TEST(test_others_are_chosen_well)
{
    const int sizes[] = {2, 3, 5, 8, 13, 32, 64, 0};
    const size_t bytes[] = {4, 4096, 65536, 1000000, 20000000, 0}, one[] = {4, 0};
    const enum plan_kind kinds[] = {PLAN_REDUCE_SCATTER, PLAN_ALL_GATHER, PLAN_BROADCAST,
                                    PLAN_REDUCE,         PLAN_SCAN,       PLAN_EXCLUSIVE_SCAN};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        score_kind(kinds[i], sizes, bytes);
    score_kind(PLAN_BARRIER, sizes, one);
}

/* ---- rules ---- */

/* What everyone would expect of a home network. */
TEST(test_expected_choices)
{
    static const struct {
        int size;
        size_t bytes;
        enum hearth_algo algo;
    } table[] = {
        {2, 4, HEARTH_ALGO_EXCHANGE},
        {4, 64, HEARTH_ALGO_EXCHANGE},
        {8, 1000000, HEARTH_ALGO_DIRECT},
        {8, 100000000, HEARTH_ALGO_RING},
    };
    int host[MEMBERS_MAX];
    struct error error;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct group_view view = view_of(&nets[0], table[i].size, host);
        struct plan_call call = call_of(PLAN_ALL_REDUCE, table[i].size, table[i].bytes, host);
        enum hearth_algo algo;
        assert_int_equal(select_algo(&call, &view, &algo, &error), HEARTH_OK);
        assert_int_equal(algo, table[i].algo);
    }
}

TEST(test_rules)
{
    int host[MEMBERS_MAX];
    struct group_view view = view_of(&nets[0], 8, host);
    struct plan_call call = call_of(PLAN_ALL_REDUCE, 8, 1000, host);
    struct error error;
    enum hearth_algo algo, open;

    assert_int_equal(select_algo(&call, &view, &open, &error), HEARTH_OK);
    view.algo = HEARTH_ALGO_TREE; /* a options */
    assert_int_equal(select_algo(&call, &view, &algo, &error), HEARTH_OK);
    assert_int_equal(algo, HEARTH_ALGO_TREE);
    call.algo = HEARTH_ALGO_STAR; /* an order */
    assert_int_equal(select_algo(&call, &view, &algo, &error), HEARTH_OK);
    assert_int_equal(algo, HEARTH_ALGO_STAR);
    call.algo = HEARTH_ALGO_AUTO;
    call.rank_order = true; /* the options cannot be granted: the model decides among those that can */
    assert_int_equal(select_algo(&call, &view, &algo, &error), HEARTH_OK);
    assert_true(algo == HEARTH_ALGO_DIRECT || algo == HEARTH_ALGO_STAR || algo == HEARTH_ALGO_EXCHANGE);
    call.algo = HEARTH_ALGO_RING;
    algo = HEARTH_ALGO_AUTO;
    assert_int_equal(select_algo(&call, &view, &algo, &error), HEARTH_UNSUPPORTED);
    assert_int_equal(algo, HEARTH_ALGO_AUTO);
    assert_non_null(strstr(error.text, "it goes by direct, star, exchange"));
    call.algo = (enum hearth_algo)42;
    assert_int_equal(select_algo(&call, &view, &algo, &error), HEARTH_INVALID);
}

TEST(test_price_of_what_cannot)
{
    int host[MEMBERS_MAX];
    struct group_view view = view_of(&nets[0], 8, host);
    struct plan_call call = call_of(PLAN_BROADCAST, 8, 1000, host);

    assert_true(select_price(&call, HEARTH_ALGO_EXCHANGE, &view) == HUGE_VAL);
    assert_true(select_price(&call, HEARTH_ALGO_AUTO, &view) == HUGE_VAL);
    assert_true(select_price(&call, (enum hearth_algo)9, &view) == HUGE_VAL);
    assert_true(select_price(&call, HEARTH_ALGO_TREE, &view) < 1);
}

/* Whoever asks gets the same answer. */
TEST(test_members_agree)
{
    int host[MEMBERS_MAX];
    const size_t counts[] = {10, 0, 3000, 5, 1, 1, 1, 800};

    for (size_t n = 0; n < NET_COUNT; n++)
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++)
            for (int algo = 1; algo < ALGO_COUNT; algo++) {
                struct group_view view = view_of(&nets[n], 8, host);
                struct plan_call call = call_of((enum plan_kind)kind, 8, 65536, host);
                call.in_counts = kind == PLAN_REDUCE_SCATTER ? counts : NULL;
                call.out_counts = kind == PLAN_ALL_GATHER ? counts : NULL;
                double first = select_price(&call, (enum hearth_algo)algo, &view);
                assert_true(first >= 0);
                for (call.rank = 1; call.rank < 8; call.rank++)
                    assert_true(select_price(&call, (enum hearth_algo)algo, &view) == first);
            }
}

/* Equal prices: the lower number. Alone all prices are zero. */
TEST(test_tie)
{
    int host[MEMBERS_MAX];
    struct group_view view = view_of(&nets[0], 1, host);
    struct error error;

    for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
        struct plan_call call = call_of((enum plan_kind)kind, 1, 1000, host);
        enum hearth_algo algo, lowest = HEARTH_ALGO_AUTO;
        for (int i = ALGO_COUNT - 1; i > 0; i--) {
            double price = select_price(&call, (enum hearth_algo)i, &view);
            assert_true(price == 0 || price == HUGE_VAL);
            lowest = price == 0 ? (enum hearth_algo)i : lowest;
        }
        assert_int_equal(select_algo(&call, &view, &algo, &error), HEARTH_OK);
        assert_int_equal(algo, lowest);
    }
}

int main(void)
{
    heap_init(&heap, 0);
    int failed = suite_run();
    printf("hash prices %016llx\n", (unsigned long long)digest);
    return failed;
}
