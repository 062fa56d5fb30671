/* SPDX-License-Identifier: Apache-2.0 */
/* What the leader lets be measured, and when: on a clock that the test moves. */
#include "cluster/probe_schedule.h"
#include "core/prng.h"
#include "support/suite.h"

#define SHARE      0.05
#define REFRESH_NS (600 * NS_PER_S)
#define CONFIRM_NS (30 * NS_PER_S)
#define TOOK_NS    (250 * NS_PER_MS)

static struct schedule s;
static struct topology table;
static struct view view;
static uint64_t now_ns;

static struct peer_info person(int number)
{
    struct peer_info f = {.host_id = 1000u + (uint64_t)number, .addr_count = 1};

    memset(f.id.node.bytes, number + 1, sizeof f.id.node.bytes);
    f.id.instance = 1;
    for (int i = 0; i < PEER_ADDRS_MAX; i++) {
        f.addrs[i].family = 4;
        f.addrs[i].bytes[3] = (uint8_t)(10 * i + number);
    }
    return f;
}

static void tell_view(void)
{
    view.epoch++;
    table.size = view.size; /* as topology_follow would, for members who keep their places */
    schedule_view(&s, &view);
}

static void begin(int size)
{
    memset(&view, 0, sizeof view);
    memset(&table, 0, sizeof table);
    view.instance = 1;
    view.size = size;
    for (int i = 0; i < size; i++)
        view.members[i] = person(i);
    now_ns = 1000 * NS_PER_S;
    schedule_init(&s, SHARE, REFRESH_NS, 0);
    tell_view();
}

static struct measured_path path_to(int to, uint32_t mbit_x10, enum measured_how how)
{
    return (struct measured_path){.to = view.members[to].id, .mbit_x10 = mbit_x10, .how = (uint8_t)how};
}

/* Carries out what is ordered now; false: nothing is. */
static bool carry_out(struct schedule_order *order, enum probe_outcome outcome, uint32_t mbit_x10)
{
    if (!schedule_next(&s, &table, now_ns, order))
        return false;
    now_ns += TOOK_NS;
    if (outcome == PROBE_DONE) {
        struct measured_path path = path_to(order->to, mbit_x10, MEASURED_PROBE);
        assert_true(schedule_result(&s, &table, order->from, &path, now_ns));
    }
    assert_true(schedule_end(&s, &table, order->number, order->from, outcome, now_ns));
    return true;
}

static int first_round(uint32_t mbit_x10)
{
    struct schedule_order order;
    int count = 0;

    while (carry_out(&order, PROBE_DONE, mbit_x10))
        count++;
    return count;
}

/* First results are looked at twice: until nothing is due for long. */
static void confirm_all(uint32_t mbit_x10)
{
    struct schedule_order order;

    while (schedule_deadline(&s, &table, now_ns) < now_ns + REFRESH_NS / 2) {
        now_ns = schedule_deadline(&s, &table, now_ns);
        assert_true(carry_out(&order, PROBE_DONE, mbit_x10));
    }
}

/* ---- the first round ---- */

TEST(every_path_once)
{
    for (int size = 1; size <= 9; size++) {
        bool seen[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX] = {0};
        struct schedule_order order;
        int count = 0;
        begin(size);
        while (carry_out(&order, PROBE_DONE, 1000)) {
            assert_false(seen[order.from][order.to]);
            assert_true(order.from != order.to && !order.other && order.addr == 0);
            seen[order.from][order.to] = true;
            assert_int_equal(schedule_settled(&s), ++count == size * (size - 1));
            if (count == size) /* all are alike: that is seen by one way to each, and one between these */
                assert_true(schedule_sketched(&s, &table));
        }
        assert_int_equal(count, size * (size - 1));
        assert_true(schedule_settled(&s));
    }
}

/* Two or three LANs: which member is in which. */
struct lans {
    int size;
    const char *of; /* a message for each member */
    int most;       /* ways after which it must be known who is near to whom */
};

static uint32_t speed_of(const struct lans *lans, int from, int to)
{
    return lans->of[from] == lans->of[to] ? 10000 : 1000;
}

TEST(a_few_paths_show_who_is_near)
{
    static const struct lans trials[] = {{6, "aaabbb", 8},   {6, "ababab", 8},        {6, "abbbbb", 8},
                                         {6, "aaaaab", 8},   {9, "abcabcabc", 18},    {4, "abab", 6},
                                         {8, "aaaaaaaa", 9}, {12, "aaaaaabbbbbb", 17}};
    struct schedule_order order;

    for (size_t k = 0; k < sizeof trials / sizeof trials[0]; k++) {
        const struct lans *lans = &trials[k];
        struct ring_order best;
        int count = 0, members[VIEW_MEMBERS_MAX];
        uint64_t hosts[VIEW_MEMBERS_MAX];
        begin(lans->size);
        for (; !schedule_sketched(&s, &table); count++) {
            assert_true(schedule_next(&s, &table, now_ns, &order));
            struct measured_path path =
                path_to(order.to, speed_of(lans, order.from, order.to), MEASURED_PROBE);
            assert_true(schedule_result(&s, &table, order.from, &path, now_ns));
            assert_true(schedule_end(&s, &table, order.number, order.from, PROBE_DONE, now_ns));
        }
        assert_in_range(count, lans->size - 1, lans->most);
        for (int i = 0; i < lans->size; i++) {
            members[i] = i;
            hosts[i] = s.members[i].host_id;
        }
        topology_arrange(&table, members, hosts, lans->size, &best);
        for (int i = 1; i < lans->size; i++) {
            bool near = lans->of[best.order[i]] == lans->of[best.order[i - 1]];
            assert_int_equal(best.site[i] == best.site[i - 1], near);
        }
        assert_int_equal(best.across_mbit_x10, strchr(lans->of, 'b') ? 1000 : 0);
        assert_int_equal(best.inside_mbit_x10, 10000);
    }
}

TEST(one_at_a_time)
{
    struct schedule_order order, more;

    begin(3);
    assert_true(schedule_deadline(&s, &table, now_ns) == now_ns);
    assert_true(schedule_next(&s, &table, now_ns, &order));
    assert_false(schedule_next(&s, &table, now_ns, &more));
    assert_true(schedule_deadline(&s, &table, now_ns) == now_ns + SCHEDULE_ORDER_NS);
    assert_false(schedule_end(&s, &table, order.number + 1, order.from, PROBE_DONE, now_ns));
    assert_false(schedule_end(&s, &table, order.number, order.to, PROBE_DONE, now_ns));
    assert_true(schedule_end(&s, &table, order.number, order.from, PROBE_DONE, now_ns));
    assert_false(schedule_end(&s, &table, order.number, order.from, PROBE_DONE, now_ns));
    assert_true(schedule_next(&s, &table, now_ns, &more)); /* no pause in the first round */
    now_ns += SCHEDULE_ORDER_NS;                           /* nobody answers: the next */
    assert_true(schedule_next(&s, &table, now_ns, &order));
    assert_true(order.number != more.number && (order.from != more.from || order.to != more.to));
}

TEST(hosts_and_guests_are_left_out)
{
    struct schedule_order order;
    int count = 0;

    begin(4);
    view.members[1].host_id = view.members[0].host_id;
    view.members[3].features = PEER_GUEST;
    tell_view();
    while (carry_out(&order, PROBE_DONE, 1000)) {
        assert_true(order.from == 2 || order.to == 2);
        assert_true(order.from != 3 && order.to != 3);
        count++;
    }
    assert_int_equal(count, 4);
    view.members[3].features |= PEER_BENCH; /* it came to measure */
    tell_view();
    for (count = 0; carry_out(&order, PROBE_DONE, 1000); count++)
        assert_true(order.from == 3 || order.to == 3);
    assert_int_equal(count, 6);
    schedule_hosts(&s, &table);
    assert_int_equal(topology_path(&table, 0, 1)->kind, PATH_SAME_HOST);
    assert_int_equal(topology_path(&table, 0, 2)->kind, PATH_UNKNOWN);
    assert_int_equal(topology_path(&table, 0, 0)->kind, PATH_UNKNOWN);
}

TEST(other_addresses_come_after)
{
    static const uint32_t rates[] = {1000, 9000, 300};
    struct schedule_order order;

    begin(2);
    view.members[1].addr_count = 3;
    tell_view();
    assert_true(carry_out(&order, PROBE_DONE, rates[0]));
    assert_true(carry_out(&order, PROBE_DONE, 5000)); /* the way back: each way before any other address */
    assert_true(order.from == 1 && schedule_settled(&s));
    for (int addr = 1; addr < 3; addr++) {
        assert_true(carry_out(&order, PROBE_DONE, rates[addr]));
        assert_true(order.from == 0 && order.to == 1 && order.addr == addr && order.other);
    }
    assert_false(schedule_next(&s, &table, now_ns, &order));
    assert_int_equal(topology_path(&table, 0, 1)->mbit_x10, 9000); /* the best of them, not a mixture */
    now_ns += REFRESH_NS;
    assert_true(carry_out(&order, PROBE_DONE, 9000));
    assert_int_equal(order.addr, -1); /* by the best one */
    assert_false(carry_out(&order, PROBE_DONE, 5000));
    now_ns += 20 * TOOK_NS; /* its share */
    assert_true(carry_out(&order, PROBE_DONE, 5000));

    view.members[1].addrs[1].bytes[3] = 99; /* it has moved */
    tell_view();
    for (int addr = 0; addr < 3; addr++) {
        assert_true(carry_out(&order, addr == 0 ? PROBE_FAILED : PROBE_DONE, addr == 1 ? 2000 : 700));
        assert_true(order.to == 1 && order.addr == addr);
    }
    assert_false(schedule_next(&s, &table, now_ns, &order));
    assert_int_equal(topology_path(&table, 0, 1)->mbit_x10, 2000); /* what it had before is over */
}

/* ---- again ---- */

TEST(again_after_a_while_within_the_share)
{
    struct schedule_order order;
    uint64_t begun_ns, busy_ns = 0;

    begin(4);
    assert_int_equal(first_round(1000), 12);
    assert_false(schedule_next(&s, &table, now_ns, &order));
    uint64_t due_ns = schedule_deadline(&s, &table, now_ns);
    assert_true(due_ns == 1000 * NS_PER_S + TOOK_NS + CONFIRM_NS);
    begun_ns = now_ns = due_ns;
    for (int i = 0; i < 1000; i++) {
        while (!carry_out(&order, PROBE_DONE, 1000)) {
            uint64_t next_ns = schedule_deadline(&s, &table, now_ns);
            assert_true(next_ns > now_ns && next_ns < now_ns + REFRESH_NS);
            now_ns = next_ns;
        }
        busy_ns += TOOK_NS;
    }
    assert_true((double)busy_ns <= SHARE * (double)(now_ns - begun_ns) + (double)TOOK_NS);
}

TEST(low_results_are_confirmed)
{
    struct schedule_order order;
    const struct path_measure *path = topology_path(&table, 0, 1);

    begin(2);
    assert_true(carry_out(&order, PROBE_DONE, 400));
    assert_true(carry_out(&order, PROBE_FAILED, 0));
    for (int i = 0; i < 20; i++) { /* the way back fails and fails */
        now_ns = schedule_deadline(&s, &table, now_ns);
        assert_true(schedule_next(&s, &table, now_ns, &order));
        if (order.from == 0)
            break;
        assert_true(schedule_end(&s, &table, order.number, 1, PROBE_FAILED, now_ns));
    }
    assert_true(order.from == 0);
    struct measured_path seen = path_to(1, 1000, MEASURED_PROBE);
    assert_true(schedule_result(&s, &table, 0, &seen, now_ns));
    assert_int_equal(path->mbit_x10, 1000); /* higher: that is what it can do */
    seen.mbit_x10 = 300;
    assert_true(schedule_result(&s, &table, 0, &seen, now_ns));
    assert_in_range(path->mbit_x10, 800, 900); /* for once */
    assert_true(schedule_end(&s, &table, order.number, 0, PROBE_DONE, now_ns));
    assert_true(s.pairs[1].confirm);
    assert_true(schedule_result(&s, &table, 0, &seen, now_ns));
    assert_in_range(path->mbit_x10, 300, 500); /* twice: it is so */
    assert_false(s.pairs[1].confirm);
}

TEST(changed_round_trip)
{
    struct schedule_order order;
    struct measured_path path;

    begin(2);
    for (int i = 0; i < 2; i++) {
        path = path_to(1 - i, 0, MEASURED_NOT);
        path.round_trip_us = 4000;
        path.kind = PATH_WIRE;
        assert_true(schedule_result(&s, &table, i, &path, now_ns));
        assert_false(schedule_result(&s, &table, i, &path, now_ns));
    }
    assert_int_equal(first_round(1000), 2);
    confirm_all(1000);
    path = path_to(1, 0, MEASURED_NOT);
    path.round_trip_us = 9000; /* not quite */
    assert_true(schedule_result(&s, &table, 0, &path, now_ns));
    assert_true(schedule_deadline(&s, &table, now_ns) > now_ns + REFRESH_NS / 2);
    path.round_trip_us = 10500;
    assert_true(schedule_result(&s, &table, 0, &path, now_ns));
    assert_true(schedule_deadline(&s, &table, now_ns) < now_ns + REFRESH_NS / 5);
    now_ns = schedule_deadline(&s, &table, now_ns);
    assert_true(carry_out(&order, PROBE_DONE, 900));
    assert_true(order.from == 0 && order.to == 1);
    assert_true(schedule_deadline(&s, &table, now_ns) >
                now_ns + REFRESH_NS / 2); /* it is the usual one now */
    assert_int_equal(topology_path(&table, 0, 1)->kind, PATH_WIRE);
}

TEST(failures_wait_longer_each_time)
{
    struct schedule_order order;
    uint64_t longest_ns = 0;

    begin(2);
    view.members[1].host_id = 7;
    view.members[0].addr_count = 0; /* nowhere to dial but where it is joined */
    tell_view();
    assert_true(carry_out(&order, PROBE_FAILED, 0));
    assert_true(carry_out(&order, PROBE_FAILED, 0));
    assert_int_equal(order.addr, -1);
    assert_true(schedule_settled(&s)); /* tried they were */
    for (int i = 0; i < 40; i++) {
        uint64_t wait_ns = schedule_deadline(&s, &table, now_ns) - now_ns;
        assert_true(wait_ns > 0 && wait_ns <= REFRESH_NS);
        now_ns += wait_ns;
        assert_true(carry_out(&order, i % 5 == 4 ? PROBE_NOT_NOW : PROBE_FAILED, 0));
        longest_ns = wait_ns > longest_ns ? wait_ns : longest_ns;
    }
    assert_true(longest_ns > REFRESH_NS - 20 * NS_PER_S); /* the two take turns */
    assert_int_equal(topology_path(&table, 0, 1)->mbit_x10, 0);
    now_ns += REFRESH_NS;
    assert_true(carry_out(&order, PROBE_DONE, 700));
    assert_int_equal(topology_path(&table, order.from, order.to)->mbit_x10, 700);
}

/* ---- jobs, members who come and go, leaders ---- */

TEST(jobs_are_left_alone)
{
    struct schedule_order order;
    struct identity busy[2];

    begin(4);
    busy[0] = view.members[0].id;
    busy[1] = view.members[2].id;
    schedule_spare(&s, busy, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(carry_out(&order, PROBE_DONE, 1000));
        assert_true(order.from % 2 == 1 && order.to % 2 == 1);
    }
    assert_true(schedule_settled(&s)); /* nothing else can be */
    now_ns += 2 * REFRESH_NS;
    assert_false(schedule_next(&s, &table, now_ns, &order));
    assert_true(schedule_deadline(&s, &table, now_ns) == NEVER_NS);
    tell_view(); /* still so in the next one */
    assert_false(schedule_next(&s, &table, now_ns, &order));
    schedule_spare(&s, NULL, 0);
    assert_false(schedule_settled(&s));
    assert_int_equal(first_round(1000), 10);
}

TEST(members_come_and_go)
{
    struct schedule_order order;
    int count = 0;

    begin(4);
    assert_int_equal(first_round(1000), 12);
    view.size = 5; /* one comes: only its ways */
    view.members[4] = person(4);
    tell_view();
    assert_false(schedule_settled(&s));
    while (carry_out(&order, PROBE_DONE, 1000)) {
        assert_true(order.from == 4 || order.to == 4);
        count++;
    }
    assert_int_equal(count, 8);

    now_ns = schedule_deadline(&s, &table, now_ns); /* one goes in the middle of its order */
    assert_true(schedule_next(&s, &table, now_ns, &order));
    struct identity from = view.members[order.from].id;
    view.members[order.to] = view.members[4];
    view.size = 4;
    tell_view();
    assert_false(schedule_end(&s, &table, order.number, view_find(&view, &from), PROBE_DONE, now_ns));
    assert_true(schedule_settled(&s));

    now_ns += REFRESH_NS; /* all others change places in the middle of one */
    assert_true(schedule_next(&s, &table, now_ns, &order));
    from = view.members[order.from].id;
    for (int i = 0; i < 2; i++) {
        struct peer_info f = view.members[i];
        view.members[i] = view.members[3 - i];
        view.members[3 - i] = f;
    }
    tell_view();
    assert_true(schedule_end(&s, &table, order.number, view_find(&view, &from), PROBE_DONE, now_ns));
    assert_true(schedule_settled(&s));
}

TEST(new_leaders_go_on)
{
    struct schedule_order order;

    begin(3);
    assert_int_equal(first_round(1000), 6);
    now_ns += 100 * NS_PER_S;
    schedule_ages(&s, &table, now_ns);
    assert_in_range(topology_path(&table, 0, 1)->age_s, 100, 102);
    *topology_path(&table, 2, 1) = (struct path_measure){0}; /* never told */
    uint64_t other_ns = 5 * NS_PER_S;                        /* the next leader's clock is another one */
    schedule_init(&s, SHARE, REFRESH_NS, 0);
    tell_view();
    schedule_take_over(&s, &table, other_ns);
    now_ns = other_ns;
    assert_true(carry_out(&order, PROBE_DONE, 1000));
    assert_true(order.from == 2 && order.to == 1);
    assert_false(schedule_next(&s, &table, now_ns, &order));
    assert_true(schedule_deadline(&s, &table, now_ns) < now_ns + REFRESH_NS);
}

TEST(traffic_weighs_less)
{
    struct measured_path path;

    begin(2);
    path = path_to(1, 800, MEASURED_TRAFFIC);
    assert_true(schedule_result(&s, &table, 0, &path, now_ns));
    assert_int_equal(topology_path(&table, 0, 1)->mbit_x10, 800); /* better than nothing */
    path = path_to(1, 1600, MEASURED_PROBE);
    assert_true(schedule_result(&s, &table, 0, &path, now_ns));
    uint32_t probed = topology_path(&table, 0, 1)->mbit_x10;
    assert_true(probed > 1200);
    path = path_to(1, 100, MEASURED_TRAFFIC);
    assert_true(schedule_result(&s, &table, 0, &path, now_ns));
    assert_in_range(topology_path(&table, 0, 1)->mbit_x10, probed * 4 / 5, probed - 1);
    path.to = view.members[0].id; /* of itself, of nobody */
    assert_false(schedule_result(&s, &table, 0, &path, now_ns));
    path.to.instance = 99;
    assert_false(schedule_result(&s, &table, 0, &path, now_ns));
}

/* Whatever happens in whatever order: one order at a time, between members, never forgotten. */
TEST(anything_goes)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct schedule_order order = {0};
        struct identity busy[VIEW_MEMBERS_MAX];
        struct prng prng;
        prng_init(&prng, seed);
        begin(1 + (int)prng_below(&prng, 6));
        for (int step = 0; step < 300; step++) {
            int count = (int)prng_below(&prng, 3), target = (int)prng_below(&prng, (uint64_t)view.size);
            switch (prng_below(&prng, 6)) {
            case 0:
                view.members[target].id.instance = (uint64_t)step + 2; /* another process in its place */
                tell_view();
                break;
            case 1:
                for (int i = 0; i < count; i++)
                    busy[i] = view.members[prng_below(&prng, (uint64_t)view.size)].id;
                schedule_spare(&s, busy, count);
                break;
            case 2:
                (void)schedule_end(&s, &table, order.number, order.from, (enum probe_outcome)count, now_ns);
                break;
            default:
                if (schedule_next(&s, &table, now_ns, &order))
                    assert_true(order.from < s.size && order.to < s.size && order.from != order.to);
                break;
            }
            now_ns += prng_below(&prng, 20 * NS_PER_S);
        }
        schedule_spare(&s, NULL, 0);
        for (int i = 0; i < 200 && !schedule_settled(&s); i++) {
            (void)schedule_next(&s, &table, now_ns, &order);
            now_ns += SCHEDULE_ORDER_NS;
        }
        assert_true(schedule_settled(&s));
    }
}
