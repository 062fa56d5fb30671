/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a group: as good as any other for small groups, near a planted one for large ones. */
#include "core/prng.h"
#include "membership/ring_search.h"
#include "membership/topology.h"
#include "support/suite.h"

#define CASES     640
#define BRUTE_MAX 8
#define GBIT      10000u /* tenths of Mbit/s */
#define FAST      UINT32_MAX

static struct topology table;
static int members[VIEW_MEMBERS_MAX];
static uint64_t hosts[VIEW_MEMBERS_MAX];
static struct ring_order got;
static struct prng draws;

static uint32_t drawn(uint32_t from, uint32_t to)
{
    return from + (uint32_t)prng_below(&draws, to - from + 1);
}

static uint32_t noisy(uint32_t speed, uint32_t percent)
{
    return drawn(speed - speed * percent / 100, speed + speed * percent / 100);
}

/* Members are not the first of the table, and each is its own host. */
static void begin(int count, uint64_t seed)
{
    prng_init(&draws, seed);
    memset(&table, 0, sizeof table);
    table.instance = table.epoch = 1;
    table.size = VIEW_MEMBERS_MAX;
    for (int i = 0; i < count; i++) {
        members[i] = (VIEW_MEMBERS_MAX - count) / 2 + i;
        hosts[i] = 1000 - (uint64_t)i;
    }
}

static uint32_t *speed_of(int from, int to)
{
    return &topology_path(&table, members[from], members[to])->mbit_x10;
}

static void arrange(int count)
{
    bool seen[VIEW_MEMBERS_MAX] = {false};

    topology_arrange(&table, members, hosts, count, &got);
    assert_int_equal(got.size, count);
    for (int i = 0; i < count; i++) {
        assert_in_range(got.order[i], 0, count - 1);
        assert_false(seen[got.order[i]]);
        seen[got.order[i]] = true;
    }
}

/* ---- What must be so of every order ---- */

static int changes(const int *order, int count, const uint64_t *of)
{
    int sum = 0;

    for (int i = 0; i < count; i++)
        sum += of[order[i]] != of[order[(i + 1) % count]];
    return sum;
}

static int kinds(int count, const uint64_t *of)
{
    int sum = 0;

    for (int i = 0; i < count; i++) {
        bool again = false;
        for (int j = 0; j < i; j++)
            again |= of[i] == of[j];
        sum += !again;
    }
    return sum > 1 ? sum : 0; /* one block has no end in a circle */
}

static uint64_t site_by_member[VIEW_MEMBERS_MAX];

/* Sites hold whole hosts; hosts and sites stand together, also from rank 0 on. */
static void check_blocks(int count)
{
    int last = -1;

    for (int i = 0; i < count; i++)
        site_by_member[got.order[i]] = (uint64_t)got.site[i];
    for (int i = 0; i < count; i++) {
        assert_true(got.site[i] == last || got.site[i] == last + 1);
        last = got.site[i];
        for (int j = 0; j < count; j++)
            assert_true(hosts[i] != hosts[j] || site_by_member[i] == site_by_member[j]);
    }
    assert_int_equal(got.sites, last + 1);
    assert_int_equal(changes(got.order, count, hosts), kinds(count, hosts));
    assert_int_equal(changes(got.order, count, site_by_member), kinds(count, site_by_member));
}

static uint32_t speeds[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX];

static uint32_t measured(int from, int to)
{
    return *speed_of(from, to) > 0 ? *speed_of(from, to) : *speed_of(to, from);
}

static void know_speeds(int count)
{
    uint32_t known[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX], median = GBIT;
    int n = 0;

    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            if (hosts[i] != hosts[j] && measured(i, j) > 0) {
                int at = n++;
                for (; at > 0 && known[at - 1] > measured(i, j); at--)
                    known[at] = known[at - 1];
                known[at] = measured(i, j);
            }
    if (n > 0)
        median = known[(n - 1) / 2];
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            speeds[i][j] = hosts[i] == hosts[j] ? FAST : measured(i, j) > 0 ? measured(i, j) : median;
}

struct worth {
    uint32_t bottleneck;
    double time;
};

static struct worth worth_of(const int *order, int count)
{
    struct worth worth = {FAST, 0};

    for (int i = 0; i < count; i++) {
        uint32_t speed = speeds[order[i]][order[(i + 1) % count]];
        if (speed < worth.bottleneck)
            worth.bottleneck = speed;
        worth.time += speed == FAST ? 0 : 1.0 / speed;
    }
    return worth;
}

/* ---- Against all orders ---- */

static struct worth best;
static int host_changes, site_changes; /* what an order must have */

static void try_all(int *order, int at, int count)
{
    if (at == count) {
        struct worth worth = worth_of(order, count);
        if (changes(order, count, hosts) != host_changes ||
            changes(order, count, site_by_member) != site_changes)
            return;
        if (worth.bottleneck > best.bottleneck ||
            (worth.bottleneck == best.bottleneck && worth.time < best.time))
            best = worth;
        return;
    }
    for (int i = at; i < count; i++) {
        int kept = order[at];
        order[at] = order[i];
        order[i] = kept;
        try_all(order, at + 1, count);
        order[i] = order[at];
        order[at] = kept;
    }
}

static void fill(int count, int kind)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            uint32_t speed = drawn(100, GBIT);
            if (kind % 4 == 1) /* clustered */
                speed = noisy(i % 3 == j % 3 ? GBIT : 1000, 15);
            if (kind % 4 == 2) /* few different ones, the same in both directions */
                speed = j < i ? *speed_of(j, i) : drawn(1, 4) * 1000;
            if (kind % 4 == 3 && drawn(0, 2) == 0) /* not measured */
                speed = 0;
            *speed_of(i, j) = speed;
        }
    if (kind % 8 >= 4) /* several processes on some hosts */
        for (int i = 0; i < count; i++)
            hosts[i] = drawn(1, (uint32_t)count - 1);
}

TEST(as_good_as_all_orders)
{
    for (int i = 0; i < CASES; i++) {
        int count = 1 + i / 8 % BRUTE_MAX, order[BRUTE_MAX];
        begin(count, (uint64_t)i);
        if (count > 1)
            fill(count, i);
        arrange(count);
        check_blocks(count);
        know_speeds(count);
        for (int k = 0; k < count; k++)
            order[k] = k;
        best = (struct worth){0, 0};
        host_changes = kinds(count, hosts);
        site_changes = kinds(count, site_by_member);
        try_all(order, 1, count);
        struct worth mine = worth_of(got.order, count);
        if (mine.bottleneck != best.bottleneck || mine.time > best.time * 1.00001)
            fail_msg("case %d of %d: %u, %g instead of %u, %g", i, count, mine.bottleneck, mine.time,
                     best.bottleneck, best.time);
    }
}

/* ---- Large groups ---- */

/* A hidden order has fast ways, in one direction or both; all others are drawn. */
static uint32_t plant(int count, uint32_t others_to, bool both)
{
    int order[VIEW_MEMBERS_MAX];

    for (int i = 0; i < count; i++) {
        int at = (int)prng_below(&draws, (uint64_t)i + 1);
        order[i] = order[at];
        order[at] = i;
        for (int j = 0; j < count; j++)
            *speed_of(i, j) = drawn(1000, others_to);
    }
    for (int i = 0; i < count; i++) {
        int from = order[i], to = order[(i + 1) % count];
        *speed_of(from, to) = drawn(8000, GBIT);
        if (both)
            *speed_of(to, from) = drawn(8000, GBIT);
    }
    know_speeds(count);
    return worth_of(order, count).bottleneck;
}

TEST(near_a_planted_order)
{
    static const int sizes[] = {11, 20, 50, 64};
    int found = 0, cases = 0;
    double worst = 10;

    for (int i = 0; i < 24; i++) {
        int count = sizes[i % 4];
        begin(count, 7000 + (uint64_t)i);
        uint32_t planted = plant(count, i % 3 == 0 ? 4000 : GBIT, i % 2 == 0);
        arrange(count);
        check_blocks(count);
        double part = worth_of(got.order, count).bottleneck / (double)planted;
        if (got.sites == 1) {
            cases++;
            found += part >= 1;
            worst = part < worst ? part : worst;
        }
    }
    assert_true(cases >= 20);
    assert_true(worst >= 0.8);
    assert_true(found * 10 >= cases * 9);
}

/* What larger groups get, where it can be compared: the search without its shakes. */
TEST(searched_orders_are_near_the_best)
{
    static struct ring_search_costs costs;
    uint64_t all = 0, all_best = 0;

    for (int i = 0; i < 400; i++) {
        int order[RING_SEARCH_EXACT_MAX], exact[RING_SEARCH_EXACT_MAX];
        prng_init(&draws, (uint64_t)i);
        costs.size = 3 + i % (RING_SEARCH_EXACT_MAX - 2);
        for (int a = 0; a < costs.size; a++) {
            order[a] = exact[a] = a;
            for (int b = 0; b < costs.size; b++)
                costs.cost[a][b] = i % 2 && b < a ? costs.cost[b][a] : drawn(100, 1000);
        }
        ring_search_better(&costs, order);
        ring_search_exact(&costs, exact);
        assert_true(ring_search_length(&costs, exact) <= ring_search_length(&costs, order));
        assert_true(ring_search_length(&costs, order) <= ring_search_length(&costs, exact) * 2);
        all += ring_search_length(&costs, order);
        all_best += ring_search_length(&costs, exact);
    }
    assert_true(all * 100 <= all_best * 105);
}

TEST(shaken_orders_keep_everybody)
{
    prng_init(&draws, 5);
    for (int i = 0; i < 2000; i++) {
        int size = 4 + i % (RING_SEARCH_MAX - 3), order[RING_SEARCH_MAX];
        bool seen[RING_SEARCH_MAX] = {false};
        for (int k = 0; k < size; k++)
            order[k] = k;
        ring_search_shake(order, size, prng_u64(&draws));
        for (int k = 0; k < size; k++)
            seen[order[k]] = true;
        for (int k = 0; k < size; k++)
            assert_true(seen[k]);
        assert_int_equal(order[0], 0);
        assert_int_not_equal(order[size - 1], size - 1); /* the last stretch does not stay where it was */
    }
}

/* ---- Sites ---- */

static int by_thirds(int member)
{
    return member / 3;
}

static int all_one(int member)
{
    return 0;
}

static int last_alone(int member)
{
    return member == 5;
}

static int in_turn(int member)
{
    return member % 3;
}

struct trial {
    const char *name;
    int (*site)(int member);
    int count, sites;
    uint32_t inside, across;
};

static const struct trial trials[] = {
    {"two networks and a trunk", by_thirds, 6, 2, GBIT, 1000},
    {"one network", all_one, 6, 1, GBIT, 1000},
    {"one network of many", all_one, 40, 1, GBIT, 1000},
    {"three networks", in_turn, 9, 3, GBIT, 1000},
    {"three networks of many", in_turn, 48, 3, GBIT, 1000},
    {"a laptop", last_alone, 6, 2, GBIT, 2000},
    {"a trunk that is half as fast", by_thirds, 6, 1, GBIT, 7000},
};

static void play(const struct trial *trial, uint64_t seed, bool one_way)
{
    begin(trial->count, seed);
    for (int i = 0; i < trial->count; i++)
        for (int j = 0; j < trial->count; j++) {
            bool inside = trial->site(i) == trial->site(j);
            struct path_measure *path = topology_path(&table, members[i], members[j]);
            path->mbit_x10 = one_way && i > j ? 0 : noisy(inside ? trial->inside : trial->across, 15);
            path->round_trip_us = inside ? 300 : 9000;
        }
    arrange(trial->count);
    check_blocks(trial->count);
    if (got.sites != trial->sites)
        fail_msg("%s, seed %d: %d sites", trial->name, (int)seed, got.sites);
}

TEST(sites_are_found)
{
    for (size_t s = 0; s < sizeof trials / sizeof trials[0]; s++)
        for (uint64_t seed = 0; seed < (trials[s].count > 10 ? 4 : 20); seed++) {
            const struct trial *trial = &trials[s];
            int crossed = 0;
            play(trial, seed, seed % 2);
            for (int i = 0; i < trial->count; i++)
                crossed += trial->site(got.order[i]) != trial->site(got.order[(i + 1) % trial->count]);
            if (trial->sites == 1)
                continue;
            assert_int_equal(crossed, trial->sites);
            assert_in_range(got.inside_mbit_x10, trial->inside * 85 / 100, trial->inside * 115 / 100);
            assert_in_range(got.across_mbit_x10, trial->across * 85 / 100, trial->across * 115 / 100);
            assert_int_equal(got.inside_us, 300);
            assert_int_equal(got.across_us, 9000);
        }
}

/* A beat that waited in a full line says nothing of the way. */
TEST(round_trips_of_full_lines_do_not_count)
{
    play(&trials[0], 1, false);
    topology_path(&table, members[got.order[0]], members[got.order[1]])->round_trip_us = 5000;
    arrange(6);
    assert_int_equal(got.inside_us, 300); /* the way back says so */
    topology_path(&table, members[got.order[1]], members[got.order[0]])->round_trip_us = 5000;
    arrange(6);
    assert_int_equal(got.inside_us, 600); /* over the third of that network */
    for (int i = 0; i < 3; i++)
        for (int j = 3; j < 6; j++)
            topology_path(&table, members[i], members[j])->round_trip_us = i == 1 && j == 4 ? 400 : 90000;
    arrange(6);
    assert_int_equal(got.across_us, 400);
}

TEST(the_largest_site_comes_first)
{
    begin(5, 1);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            *speed_of(i, j) = (i < 2) == (j < 2) ? GBIT : 500;
    arrange(5);
    assert_int_equal(got.sites, 2);
    assert_in_range(got.order[0], 2, 4);
    assert_int_equal(got.site[2], 0);
    assert_int_equal(got.site[3], 1);
}

TEST(unknown_paths_leave_the_order)
{
    static const int expected[] = {0, 3, 6, 1, 4, 2, 5};

    begin(7, 1);
    for (int i = 0; i < 7; i++)
        hosts[i] = 90 - (uint64_t)(i % 3);
    arrange(7);
    assert_memory_equal(got.order, expected, sizeof expected);
    assert_int_equal(got.sites, 1);
    assert_int_equal(got.inside_mbit_x10, 0);
    assert_int_equal(got.across_mbit_x10, 0);
    begin(30, 1);
    arrange(30);
    for (int i = 0; i < 30; i++)
        assert_int_equal(got.order[i], i);
    assert_int_equal(got.sites, 1);
}

/* Somebody new that nobody has measured does not join two sites into one, and is not a site. */
TEST(newcomers_join_the_largest_site)
{
    begin(7, 3);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            *speed_of(i, j) = noisy(i / 3 == j / 3 ? GBIT : 1000, 15);
    arrange(7);
    check_blocks(7);
    assert_int_equal(got.sites, 2);
    assert_int_equal(site_by_member[6], site_by_member[0]);
}

TEST(processes_of_one_host_stand_together)
{
    begin(24, 9);
    for (int i = 0; i < 24; i++) {
        hosts[i] = 50 + (uint64_t)i % 6;
        for (int j = 0; j < 24; j++) /* hosts 0, 2, 4 and hosts 1, 3, 5 are near each other */
            *speed_of(i, j) = noisy(i % 2 == j % 2 ? GBIT : 900, 15);
    }
    arrange(24);
    check_blocks(24);
    assert_int_equal(got.sites, 2);
    begin(8, 9);
    for (int i = 0; i < 8; i++)
        hosts[i] = 7;
    arrange(8);
    check_blocks(8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(got.order[i], i);
    assert_int_equal(got.inside_mbit_x10, 0);
}

TEST(the_bottleneck_is_told)
{
    int order[] = {4, 2, 9};

    begin(1, 1);
    assert_int_equal(topology_bottleneck(&table, order, 3), FAST); /* nothing is measured */
    topology_path(&table, 4, 2)->mbit_x10 = 700;
    topology_path(&table, 2, 9)->mbit_x10 = 900;
    topology_path(&table, 2, 4)->mbit_x10 = 50;
    topology_path(&table, 3, 5)->mbit_x10 = 1;                    /* not theirs */
    assert_int_equal(topology_bottleneck(&table, order, 3), 700); /* 9 -> 4: as the median */
    topology_path(&table, 4, 9)->mbit_x10 = 600;
    assert_int_equal(topology_bottleneck(&table, order, 3), 600); /* as the way back */
    topology_path(&table, 9, 4)->mbit_x10 = 40;
    assert_int_equal(topology_bottleneck(&table, order, 3), 40);
    topology_path(&table, 9, 4)->kind = PATH_SAME_HOST;
    assert_int_equal(topology_bottleneck(&table, order, 3), 700);
    assert_int_equal(topology_bottleneck(&table, order, 1), FAST);
}
