/* SPDX-License-Identifier: Apache-2.0 */
/* Every algorithm of every collective, for many numbers of members, on real numbers: see oracle.c. */
#include "core/prng.h"
#include "oracle.h"
#include "support/suite.h"

#define MEMBERS_MAX 1000
#define SIZE_SMALL  24 /* up to here there is time for all combinations */

static const struct link_cost nets[] = {
    {.alpha_s = 1e-4, .bytes_per_s = 1e6, .gamma_s = 1e-7, .overhead_s = 1e-6},
    {.alpha_s = 1e-6, .bytes_per_s = 1e5, .gamma_s = 2e-5, .overhead_s = 0},
    {.alpha_s = 1e-2, .bytes_per_s = 1e9, .gamma_s = 0, .overhead_s = 1e-3},
    {.alpha_s = 0, .bytes_per_s = 1e3, .gamma_s = 0, .overhead_s = 0},
};
#define NET_COUNT (sizeof nets / sizeof nets[0])

static bool can(const struct trial *t)
{
    size_t *column = calloc((size_t)t->call.size, sizeof *column);
    struct plan_call call = trial_call(t, t->call.root, column);
    bool can = planner_can(planner_of(t->call.algo), &call);
    free(column);
    return can;
}

static bool is_given(enum plan_kind kind)
{
    return split_of(kind) == SPLIT_GIVEN;
}

/* ---- what the headers of the planners promise ---- */

/* The deepest place of a binomial tree: the one with the most 1 bits. */
static uint32_t tree_depth(uint64_t size)
{
    int most = 0;
    for (unsigned v = 0; v < size; v++)
        most = __builtin_popcount(v) > most ? __builtin_popcount(v) : most;
    return (uint32_t)most;
}

struct promise {
    uint64_t raw, acc; /* elements sent as each, all members together; times n, except where given */
    uint32_t hops;
};

static struct promise tree_way_up(uint64_t size)
{
    uint64_t leaves = size > 1 ? (size + 1) / 2 : 0;
    return (struct promise){leaves, size - 1 - leaves, tree_depth(size)};
}

static struct promise hierarchical_promise(const struct plan_call *call)
{
    struct promise p = {0, 0, 0};
    int hosts = 0, depth = 0;

    for (int leader = 0; leader < call->size; leader++) {
        int members = 0, before = 0;
        for (int r = 0; r < call->size; r++) {
            bool mate = !call->host || call->host[r] == call->host[leader];
            members += mate;
            before += mate && r < leader;
        }
        if (before > 0)
            continue;
        struct promise up = tree_way_up((uint64_t)members);
        p.raw += up.raw + (uint64_t)members - 1;
        p.acc += up.acc;
        depth = (int)up.hops > depth ? (int)up.hops : depth;
        hosts++;
    }
    uint64_t h = (uint64_t)hosts, core = UINT64_C(1) << log2_floor(hosts), folded = h - core;
    size_t bytes = call->count * call->acc_len;
    p.hops = 2 * (uint32_t)depth;
    if (hosts > 2 && bytes * (folded > 0 ? 16 : 4) > call->chunk_bytes) {
        p.raw += h - 1;
        p.acc += h - 1;
        p.hops += 2 * (uint32_t)(hosts - 1);
    } else {
        p.acc += core * (uint64_t)log2_floor(hosts) + folded;
        p.raw += folded;
        p.hops += (uint32_t)log2_floor(hosts) + (folded > 0 ? 2 : 0);
    }
    return p;
}

static struct promise all_reduce_promise(const struct plan_call *call)
{
    uint64_t n = (uint64_t)call->size, core = UINT64_C(1) << log2_floor(call->size), folded = n - core;
    struct promise p = {0, 0, 0};

    switch (call->algo) {
    case HEARTH_ALGO_RING:
        return n == 1 ? p : (struct promise){n, n - 2, 2 * (uint32_t)(n - 1)};
    case HEARTH_ALGO_DIRECT:
        return (struct promise){2 * (n - 1), 0, n > 1 ? 2 : 0};
    case HEARTH_ALGO_HALVING: /* halves are taken as equal; with raw_len == acc_len that does not matter */
        if (n == 1)
            return p;
        p.raw = (core - folded) * core / 2 / core + core - 1 + 2 * folded;
        p.acc = core - 1 - (core - folded) * core / 2 / core;
        p.hops = 2 * (uint32_t)log2_floor(call->size) + (folded > 0 ? 2 : 0);
        return p;
    case HEARTH_ALGO_TREE:
        p = tree_way_up(n);
        p.raw += n - 1;
        p.hops *= 2;
        return p;
    case HEARTH_ALGO_STAR:
        return (struct promise){2 * (n - 1), 0, n > 1 ? 2 : 0};
    case HEARTH_ALGO_EXCHANGE:
        return (struct promise){n * (n - 1), 0, n > 1};
    default:
        return hierarchical_promise(call);
    }
}

static struct promise scan_promise(const struct plan_call *call)
{
    bool exclusive = call->kind == PLAN_EXCLUSIVE_SCAN, chain = call->algo == HEARTH_ALGO_RING;
    uint64_t n = (uint64_t)call->size, m = exclusive ? n - 1 : n;
    struct promise p = {0, 0, 0};

    for (uint64_t d = 1; d < m && !chain; d *= 2) {
        p.raw += d == 1 ? m - 1 : 1;
        p.acc += d == 1 ? 0 : m - d - 1;
        p.hops++;
    }
    if (m > 1 && chain)
        p = (struct promise){1, m - 2, (uint32_t)m - 1};
    if (exclusive && n > 1) {
        p.raw += 1;
        p.acc += n - 2;
        p.hops += 1;
    }
    return p;
}

/* In units of n elements; n = all parts together where parts are given. */
static struct promise promise_of(const struct plan_call *call)
{
    uint64_t n = (uint64_t)call->size;
    uint32_t depth = call->algo == HEARTH_ALGO_TREE ? tree_depth(n) : (uint32_t)log2_ceil(call->size),
             one = n > 1;
    struct promise nothing = {0, 0, 0};

    switch (call->kind) {
    case PLAN_ALL_REDUCE:
        return all_reduce_promise(call);
    case PLAN_REDUCE_SCATTER:
        if (call->algo == HEARTH_ALGO_DIRECT || n == 1)
            return (struct promise){n - 1, 0, one};
        if (call->algo == HEARTH_ALGO_RING)
            return (struct promise){1, n - 2, (uint32_t)n - 1};
        return (struct promise){n / 2, n / 2 - 1, depth};
    case PLAN_ALL_GATHER:
        return (struct promise){n - 1, 0,
                                call->algo == HEARTH_ALGO_DIRECT ? one
                                : call->algo == HEARTH_ALGO_RING ? (uint32_t)n - 1
                                                                 : depth};
    case PLAN_BROADCAST:
        return (struct promise){n - 1, 0,
                                call->algo == HEARTH_ALGO_STAR   ? one
                                : call->algo == HEARTH_ALGO_RING ? (uint32_t)n - 1
                                                                 : depth};
    case PLAN_REDUCE:
        if (call->algo == HEARTH_ALGO_TREE)
            return tree_way_up(n);
        if (call->algo == HEARTH_ALGO_STAR || n == 1)
            return (struct promise){n - 1, 0, one};
        return (struct promise){1, n - 2, (uint32_t)n - 1};
    case PLAN_SCAN:
    case PLAN_EXCLUSIVE_SCAN:
        return scan_promise(call);
    default:
        return nothing;
    }
}

static uint64_t elements_of(const struct trial *t)
{
    uint64_t sum = 0;
    int size = t->call.size;

    if (!is_given(t->call.kind))
        return t->call.count;
    if (!t->counts)
        return t->call.count * (uint64_t)size;
    for (int p = 0; p < size; p++)
        sum += t->counts[p];
    return sum;
}

/* What goes once over one link: gather, scatter, all_to_all. */
static uint64_t direct_elements(const struct trial *t)
{
    int size = t->call.size, root = t->call.root;
    uint64_t sum = 0;

    if (t->call.kind != PLAN_ALL_TO_ALL)
        return elements_of(t) - (!!t->counts ? t->counts[root] : t->call.count);
    for (int i = 0; i < size * size; i++)
        if (i / size != i % size)
            sum += !!t->counts ? t->counts[i] : t->call.count;
    return sum;
}

static void check_promise(const struct trial *t, const struct dry_result *got)
{
    const struct plan_call *call = &t->call;
    struct promise p = promise_of(call);
    uint64_t n = elements_of(t), bytes = n * (p.raw * call->raw_len + p.acc * call->acc_len);
    bool rooted = call->kind == PLAN_GATHER || call->kind == PLAN_SCATTER || call->kind == PLAN_ALL_TO_ALL;

    if (rooted)
        bytes = direct_elements(t) * call->raw_len;
    if (call->kind == PLAN_BARRIER)
        bytes = 0;
    bool halves =
        call->algo == HEARTH_ALGO_HALVING && call->raw_len != call->acc_len; /* unequal halves: see below */
    if (!halves && got->bytes_sent != bytes)
        fail_msg("%s: %llu bytes, not %llu", trial_name(t), (unsigned long long)got->bytes_sent,
                 (unsigned long long)bytes);
    /* Empty pieces are not sent, so the longest chain may be shorter than promised; the deepest host is not
     * always at the end of the longest way between hosts; and a scan's last round may bring bare input. */
    bool scan = call->kind == PLAN_SCAN || call->kind == PLAN_EXCLUSIVE_SCAN,
         tree = call->algo == HEARTH_ALGO_TREE;
    bool exact = call->count >= 2 * (size_t)call->size && !t->counts &&
                 call->algo != HEARTH_ALGO_HIERARCHICAL && !(scan && tree);
    if (!rooted && call->kind != PLAN_BARRIER && (got->hops > p.hops || (exact && got->hops < p.hops)))
        fail_msg("%s: %u hops, not %u", trial_name(t), got->hops, p.hops);
    if (rooted && got->hops > 1)
        fail_msg("%s: %u hops", trial_name(t), got->hops);
    if (tree && !scan)
        assert_true(got->hops <= 2 * (uint32_t)log2_ceil(call->size));
}

/* ---- trials ---- */

static int hosts[MEMBERS_MAX];

/* Uneven hosts, not in order. */
static const int *hosts_draw(struct prng *prng, int size)
{
    int count = 1 + (int)prng_below(prng, size < 12 ? (uint64_t)size : 12);
    for (int r = 0; r < size; r++)
        hosts[r] = 10 - (int)prng_below(prng, (uint64_t)count);
    return prng_below(prng, 4) == 0 ? NULL : hosts;
}

static bool is_square(const struct trial *t)
{
    return t->call.algo == HEARTH_ALGO_EXCHANGE || t->call.algo == HEARTH_ALGO_DIRECT;
}

/* A few lanes, a few blocks. */
static void chunking_draw(struct prng *prng, struct trial *t)
{
    size_t count = t->call.count, pieces = 1 + (size_t)prng_below(prng, 6);
    enum hearth_algo algo = t->call.algo;

    if (t->call.kind == PLAN_ALL_REDUCE && (algo == HEARTH_ALGO_RING || algo == HEARTH_ALGO_DIRECT))
        count /= (size_t)t->call.size;
    if (algo == HEARTH_ALGO_HIERARCHICAL)
        count /= 4;
    if (t->call.size > SIZE_SMALL && is_square(t)) /* N*N frames a lane are enough */
        pieces = 1 + pieces % 2;
    t->call.chunk_bytes = (count / pieces + 1) * t->call.acc_len + (size_t)prng_below(prng, 3);
    t->call.window_bytes = (size_t)prng_below(prng, 4) * t->call.chunk_bytes;
    if (prng_below(prng, 4) == 0)
        t->call.chunk_bytes = 1 << 18;
}

static void trial_draw(struct prng *prng, struct trial *t, enum plan_kind kind, enum hearth_algo algo,
                       int size, size_t count)
{
    bool half = prng_below(prng, 2) == 0;

    *t = (struct trial){.call = {.kind = kind, .algo = algo, .size = size, .count = count}};
    t->call.root = (int)prng_below(prng, (uint64_t)size);
    t->call.raw_len = half ? 2 : 4;
    t->call.acc_len = 4;
    t->call.host = hosts_draw(prng, size);
    t->slots = prng_below(prng, 4) == 0 ? 3 : 1;
    t->inside = nets[prng_below(prng, NET_COUNT)];
    t->across = nets[prng_below(prng, NET_COUNT)];
    chunking_draw(prng, t);
}

/* In place and out of place; with many members one of the two. */
static void trial_both(struct prng *prng, struct trial *t)
{
    struct dry_result result;
    int one = t->call.size > SIZE_SMALL ? (int)prng_below(prng, 2) : -1;

    if (!can(t))
        return;
    for (int in_place = 0; in_place < 2; in_place++) {
        if (in_place == one)
            continue;
        t->in_place = in_place && t->call.kind != PLAN_ALL_TO_ALL;
        trial_run(t, &result, NULL);
        check_promise(t, &result);
    }
}

static void trials_even(struct prng *prng, enum plan_kind kind, enum hearth_algo algo, int size)
{
    bool square = size > SIZE_SMALL && algo == HEARTH_ALGO_EXCHANGE;
    size_t n = (size_t)size, counts[] = {0, 1, n - 1, n, n + 1, square ? 257 : 1009};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct trial t;
        trial_draw(prng, &t, kind, algo, size, kind == PLAN_BARRIER ? 0 : counts[i]);
        trial_both(prng, &t);
        if (kind == PLAN_BARRIER)
            return;
    }
}

static void trials_given(struct prng *prng, enum plan_kind kind, enum hearth_algo algo, int size)
{
    size_t n = (size_t)size, counts[] = {0, 1, 2, 7, size <= 8 ? 1009 : 13};
    size_t *drawn = calloc(n * n, sizeof *drawn);
    struct trial t;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        trial_draw(prng, &t, kind, algo, size, counts[i]);
        trial_both(prng, &t);
    }
    for (int again = 0; again < 3; again++) { /* v: some parts are empty, or all of them, or all but one */
        for (size_t i = 0; i < n * n; i++)
            drawn[i] = again == 0 ? 0 : prng_below(prng, 3) == 0 ? 0 : (size_t)prng_below(prng, 23);
        if (again == 1)
            memset(drawn + 1, 0, (n * n - 1) * sizeof *drawn);
        trial_draw(prng, &t, kind, algo, size, 23);
        t.counts = drawn;
        trial_both(prng, &t);
    }
    free(drawn);
}

/* Set where a processor is emulated, which takes minutes. */
static void skip_if_brief(void)
{
    if (getenv("HEARTH_TEST_BRIEF")) {
        print_message("skipped: takes minutes on an emulated processor\n");
        skip();
    }
}

static void trials_of_size(int size, uint64_t seed)
{
    struct prng prng;

    prng_init(&prng, seed + (uint64_t)size);
    for (int kind = 0; kind < PLAN_KIND_COUNT; kind++)
        for (int algo = 1; algo < ALGO_COUNT; algo++) {
            if (is_given((enum plan_kind)kind))
                trials_given(&prng, (enum plan_kind)kind, (enum hearth_algo)algo, size);
            else
                trials_even(&prng, (enum plan_kind)kind, (enum hearth_algo)algo, size);
        }
}

TEST(test_sizes_1_to_24)
{
    for (int size = 1; size <= 24; size++)
        for (uint64_t seed = 0; seed < 2; seed++)
            trials_of_size(size, seed * 1000);
}

TEST(test_sizes_25_to_64)
{
    skip_if_brief();
    for (int size = 25; size <= 64; size++)
        trials_of_size(size, 5000);
}

TEST(test_sizes_100_127_128)
{
    skip_if_brief();
    trials_of_size(100, 0);
    trials_of_size(127, 0);
    trials_of_size(128, 0);
}

/* A thousand members: one trial of each, and buffers that do not need a million frames more than once: a
 * few whole elements, or given parts of which most are empty. */
TEST(test_size_1000)
{
    skip_if_brief();
    const int size = 1000;
    size_t *counts = calloc((size_t)size * (size_t)size, sizeof *counts);
    struct prng prng;
    struct dry_result result;

    for (int i = 0; i < size * size; i += 37)
        counts[i] = 1 + (size_t)i % 5;
    prng_init(&prng, 1000);
    for (int kind = 0; kind < PLAN_KIND_COUNT; kind++)
        for (int algo = 1; algo < ALGO_COUNT; algo++) {
            struct trial t;
            size_t count = algo == HEARTH_ALGO_EXCHANGE ? 1 : algo == HEARTH_ALGO_DIRECT ? 41 : 1001;
            trial_draw(&prng, &t, (enum plan_kind)kind, (enum hearth_algo)algo, size,
                       kind == PLAN_BARRIER ? 0 : count);
            if (is_given((enum plan_kind)kind))
                t.counts = counts;
            if (!can(&t) || (kind == PLAN_BARRIER && algo == HEARTH_ALGO_EXCHANGE))
                continue;
            t.in_place = t.call.kind != PLAN_ALL_TO_ALL;
            trial_run(&t, &result, NULL);
            check_promise(&t, &result);
        }
    free(counts);
}

/* ---- moves alone: order, accumulators, and whether anything lent may be overwritten ---- */

TEST(test_moves)
{
    struct prng prng;

    prng_init(&prng, 7);
    for (int size = 1; size <= 33; size++)
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++)
            for (int algo = 1; algo < ALGO_COUNT; algo++)
                for (int large = 0; large < 2; large++) {
                    struct trial t;
                    size_t count = kind == PLAN_BARRIER             ? 0
                                   : is_given((enum plan_kind)kind) ? 2
                                                                    : 4 * (size_t)size;
                    trial_draw(&prng, &t, (enum plan_kind)kind, (enum hearth_algo)algo, size, count);
                    /* hierarchical has two ways; the large one begins at a quarter or a sixteenth of a
                     * chunk */
                    t.call.chunk_bytes = large ? count * 4 + 4 : 1 << 20;
                    t.in_place = true;
                    t.slots = 1;
                    if (can(&t))
                        trial_check_moves(&t);
                }
}

/* ---- bytes of each member, where parts are equal ---- */

static uint64_t halving_bytes(const struct plan_call *call, int rank)
{
    uint64_t n = call->count, r = call->raw_len, a = call->acc_len,
             core = UINT64_C(1) << log2_floor(call->size);
    uint64_t folded = (uint64_t)call->size - core, part = n / core;

    if ((uint64_t)rank >= core)
        return n * r;
    if ((uint64_t)rank < folded)
        return (n - part) * a + (n - part) * r + n * r;
    return n / 2 * r + (n / 2 - part) * a + (n - part) * r;
}

static uint64_t bytes_of(const struct plan_call *call, int rank)
{
    uint64_t n = call->count, r = call->raw_len, a = call->acc_len, size = (uint64_t)call->size;

    switch (call->algo) {
    case HEARTH_ALGO_RING:
        return n / size * (r + (size - 2) * a + (size - 1) * r);
    case HEARTH_ALGO_DIRECT:
        return 2 * (size - 1) * (n / size) * r;
    case HEARTH_ALGO_HALVING:
        return halving_bytes(call, rank);
    case HEARTH_ALGO_STAR:
        return rank == 0 ? (size - 1) * n * r : n * r;
    default:
        return (size - 1) * n * r; /* exchange */
    }
}

TEST(test_bytes_of_each_member)
{
    const enum hearth_algo algos[] = {HEARTH_ALGO_RING, HEARTH_ALGO_DIRECT, HEARTH_ALGO_HALVING,
                                      HEARTH_ALGO_STAR, HEARTH_ALGO_EXCHANGE};

    for (int size = 2; size <= 64; size++)
        for (size_t i = 0; i < sizeof algos / sizeof algos[0]; i++) {
            uint64_t sent[64];
            struct dry_result result;
            size_t parts = algos[i] == HEARTH_ALGO_HALVING ? (size_t)1 << log2_floor(size) : (size_t)size;
            struct trial t = {
                .call = call_of(PLAN_ALL_REDUCE, algos[i], size, 6 * parts), .slots = 1, .inside = nets[0]};
            t.call.raw_len = 2;
            trial_run(&t, &result, sent);
            for (int r = 0; r < size; r++)
                if (sent[r] != bytes_of(&t.call, r))
                    fail_msg("%s: rank %d sends %llu bytes, not %llu", trial_name(&t), r,
                             (unsigned long long)sent[r], (unsigned long long)bytes_of(&t.call, r));
        }
}

/* ---- barriers ---- */

TEST(test_barrier_messages)
{
    for (int size = 1; size <= 64; size++)
        for (int algo = 1; algo < ALGO_COUNT; algo++) {
            struct dry_result result;
            struct trial t = {.call = {.kind = PLAN_BARRIER, .algo = (enum hearth_algo)algo, .size = size},
                              .slots = 1,
                              .inside = nets[0]};
            uint64_t n = (uint64_t)size, depth = (uint64_t)log2_ceil(size);
            if (!can(&t))
                continue;
            trial_run(&t, &result, NULL);
            uint64_t messages = algo == HEARTH_ALGO_TREE      ? 2 * (n - 1)
                                : algo == HEARTH_ALGO_HALVING ? n * depth
                                                              : n * (n - 1);
            uint64_t hops = algo == HEARTH_ALGO_TREE      ? 2 * tree_depth(n)
                            : algo == HEARTH_ALGO_HALVING ? depth
                                                          : n > 1;
            assert_int_equal(result.messages, messages);
            assert_int_equal(result.hops, hops);
        }
}

/* ---- who can do what ---- */

TEST(test_can)
{
    static const struct {
        enum plan_kind kind;
        const char *algos, *ordered;
    } table[] = {
        {PLAN_ALL_REDUCE, "ring direct halving tree star hierarchical exchange", "direct star exchange"},
        {PLAN_REDUCE_SCATTER, "ring direct halving", "direct"},
        {PLAN_ALL_GATHER, "ring direct halving", "ring direct halving"},
        {PLAN_BROADCAST, "ring tree star", "ring tree star"},
        {PLAN_REDUCE, "ring tree star", "star"},
        {PLAN_GATHER, "direct", "direct"},
        {PLAN_SCATTER, "direct", "direct"},
        {PLAN_ALL_TO_ALL, "direct", "direct"},
        {PLAN_SCAN, "ring tree", "ring"},
        {PLAN_EXCLUSIVE_SCAN, "ring tree", "ring"},
        {PLAN_BARRIER, "halving tree exchange", "halving tree exchange"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int ordered = 0; ordered < 2; ordered++) {
            char found[128] = "";
            for (int algo = 1; algo < ALGO_COUNT; algo++) {
                struct trial t = {.call = call_of(table[i].kind, (enum hearth_algo)algo, 8, 1)};
                size_t len = strlen(found);
                t.call.rank_order = ordered;
                if (can(&t))
                    snprintf(found + len, sizeof found - len, "%s%s", len > 0 ? " " : "",
                             hearth_algo_name((enum hearth_algo)algo));
            }
            assert_string_equal(found, ordered ? table[i].ordered : table[i].algos);
        }
}

/* With one member all of them can, whatever the order, and nothing is sent. */
TEST(test_alone)
{
    for (int kind = 0; kind < PLAN_KIND_COUNT; kind++)
        for (int algo = 1; algo < ALGO_COUNT; algo++)
            for (int ordered = 0; ordered < 2; ordered++) {
                struct dry_result result;
                struct trial t = {.call = call_of((enum plan_kind)kind, (enum hearth_algo)algo, 1, 11),
                                  .slots = 1,
                                  .inside = nets[0]};
                struct trial many = {.call = call_of((enum plan_kind)kind, (enum hearth_algo)algo, 8, 0)};
                t.call.rank_order = ordered;
                t.call.chunk_bytes = 16;
                t.call.window_bytes = 32;
                assert_int_equal(can(&t), can(&many));
                if (!can(&t))
                    continue;
                trial_run(&t, &result, NULL);
                assert_int_equal(result.messages, 0);
            }
}

int main(void)
{
    int failed = suite_run();
    printf("hash trials %016llx\n", (unsigned long long)trial_digest());
    return failed;
}
