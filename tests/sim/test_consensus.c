/* SPDX-License-Identifier: Apache-2.0 */
/* Assemblies under seeded storms: whatever happens, one view for each epoch and one leader for each term;
 * and after the last fault everybody who lives is in one view soon. Also with a member that lies.
 * HEARTH_TEST_SEED and HEARTH_TEST_REPEAT choose seeds, HEARTH_TEST_TRACE=1 tells what happens. */
#include "sim_cluster.h"
#include "storm.h"
#include "support/suite.h"
#include "support/watchdog.h"

static FILE *trace_file(void)
{
    return getenv("HEARTH_TEST_TRACE") ? stdout : NULL;
}

static struct sim_cluster *open_cluster(int size, uint64_t seed)
{
    struct sim_cluster *t = test_malloc(sizeof *t);
    sim_cluster_open(t, &(struct sim_cluster_setup){.size = size, .seed = seed, .trace = trace_file()});
    return t;
}

static void close_cluster(struct sim_cluster *t)
{
    sim_cluster_close(t);
    test_free(t);
}

/* Steps until all agree; gives how long that took. */
static uint64_t until_agreed(struct sim_cluster *t, uint64_t limit_ns)
{
    char why[160] = "";
    uint64_t begin = t->now_ns;
    while (!sim_cluster_agrees(t, why, sizeof why)) {
        if (!sim_cluster_run(t, t->now_ns + 10 * NS_PER_MS))
            fail_msg("%s", t->failure);
        if (t->now_ns > begin + limit_ns)
            fail_msg("no agreement after %.1f s: %s", (double)limit_ns / 1e9, why);
    }
    return t->now_ns - begin;
}

TEST(eight_that_meet_at_once_are_one_within_a_second)
{
    uint64_t longest = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct sim_cluster *t = open_cluster(8, seed);
        sim_cluster_link_all(t, 0);
        uint64_t took = until_agreed(t, NS_PER_S);
        longest = took > longest ? took : longest;
        close_cluster(t);
    }
    printf("at most %.2f s\n", (double)longest / 1e9);
}

TEST(who_meets_one_by_one_is_one_soon_after_the_last)
{
    uint64_t longest = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct sim_cluster *t = open_cluster(2 + (int)(seed % 9), seed);
        sim_cluster_link_all(t, 1500 * NS_PER_MS);
        assert_true(sim_cluster_run(t, t->now_ns + 1500 * NS_PER_MS));
        uint64_t took = until_agreed(t, NS_PER_S);
        longest = took > longest ? took : longest;
        close_cluster(t);
    }
    printf("at most %.2f s after the last connection\n", (double)longest / 1e9);
}

TEST(a_lost_leader_has_a_successor_within_two_seconds)
{
    uint64_t longest = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct sim_cluster *t = open_cluster(3 + (int)(seed % 5), seed);
        sim_cluster_link_all(t, 0);
        until_agreed(t, 2 * NS_PER_S);
        bool frozen = seed % 2;
        int leader = sim_cluster_leader(t), next = -1;
        if (frozen)
            sim_cluster_freeze(t, leader);
        else
            sim_cluster_crash(t, leader, false);
        uint64_t seen = t->now_ns + (frozen ? t->preset->dead_ns : t->preset->reconnect_ns);
        assert_true(sim_cluster_run(t, seen));
        for (; next < 0; next = sim_cluster_leader(t))
            assert_true(sim_cluster_run(t, t->now_ns + 10 * NS_PER_MS) && t->now_ns < seen + 2 * NS_PER_S);
        assert_int_not_equal(next, leader);
        longest = t->now_ns - seen > longest ? t->now_ns - seen : longest;
        if (frozen)
            sim_cluster_thaw(t, leader);
        until_agreed(t, 5 * NS_PER_S);
        close_cluster(t);
    }
    printf("at most %.2f s after the loss was seen\n", (double)longest / 1e9);
}

TEST(of_two_either_may_leave_and_come_back)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim_cluster *t = open_cluster(2, seed);
        sim_cluster_link_all(t, 0);
        until_agreed(t, NS_PER_S);
        int who = seed % 2 ? sim_cluster_leader(t) : 1 - sim_cluster_leader(t);
        sim_cluster_leave(t, who);
        until_agreed(t, NS_PER_S);
        sim_cluster_start(t, who);
        sim_cluster_link_all(t, 0);
        until_agreed(t, 2 * NS_PER_S);
        close_cluster(t);
    }
}

/* Two that cannot reach each other, ever, while all others reach both. */
TEST(a_road_that_stays_broken_disturbs_nobody_else)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sim_cluster *t = open_cluster(5, seed);
        sim_cluster_link_all(t, 0);
        until_agreed(t, NS_PER_S);
        bool at_leader = seed % 2;
        int leader = sim_cluster_leader(t), a = at_leader ? leader : (leader + 1) % 5, b = (leader + 2) % 5;
        uint64_t epoch = t->nodes[leader].epoch;
        sim_cluster_unlink(t, a, b);
        assert_true(sim_cluster_run(t, t->now_ns + 30 * NS_PER_S));
        for (int i = 0; i < 5; i++) {
            const struct view *c = consensus_view(t->nodes[i].consensus);
            bool out = at_leader && i == b;
            assert_int_equal(consensus_state(t->nodes[i].consensus), CONSENSUS_MEMBER);
            assert_int_equal(c->size, out ? 1 : at_leader ? 4 : 5);
            assert_true(out || c->epoch == epoch + at_leader); /* one change, not one after the other */
        }
        sim_cluster_link(t, a, b);
        until_agreed(t, 2 * NS_PER_S);
        close_cluster(t);
    }
}

static void storms(enum hostility hostile)
{
    unsigned long usual = getenv("HEARTH_TEST_SOAK") ? 10000 : 1000;
    unsigned long count = repeat_count(usual), first = first_seed();
    unsigned long longest_seed = 0;
    uint64_t longest = 0;
    for (unsigned long seed = first; seed < first + count; seed++) {
        struct storm_result result = storm_run(seed, hostile, trace_file());
        if (!result.fine)
            fail_msg("seed %lu: %s\nreplay it: HEARTH_TEST_SEED=%lu HEARTH_TEST_REPEAT=1 HEARTH_TEST_TRACE=1 "
                     "build/tests/sim/test_consensus",
                     seed, result.failure, seed);
        if (result.dead_ns == 3 * NS_PER_S && result.settled_ns > longest) {
            longest = result.settled_ns;
            longest_seed = seed;
        }
    }
    printf("%lu seeds; with the default preset all agreed at most %.2f s after the last fault (seed %lu)\n",
           count, (double)longest / 1e9, longest_seed);
}

TEST(whatever_happens_all_agree)
{
    storms(HOSTILE_NONE);
}

TEST(one_that_lies_divides_nobody)
{
    storms(HOSTILE_BUT_TRUE_VOTES);
}

TEST(the_others_agree_when_one_that_lied_at_will_is_gone)
{
    storms(HOSTILE_AT_WILL);
}
