/* SPDX-License-Identifier: Apache-2.0 */
/* Another order for a group that has one: when it changes, and what members tell each other of it. */
#include "membership/topology.h"
#include "support/suite.h"

#define GBIT 10000u /* tenths of Mbit/s */

static struct topology table;
static const int members[] = {0, 1, 2, 3, 4, 5};
static const uint64_t hosts[] = {11, 12, 13, 14, 15, 16};
static const int by_rank[] = {0, 1, 2, 3, 4, 5};
static struct ring_order got;

/* Two LANs: even and odd members, with a slow trunk between them. */
static void two_lans(void)
{
    memset(&table, 0, sizeof table);
    table.instance = table.epoch = 1;
    table.size = 6;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            if (i != j) {
                topology_path(&table, i, j)->mbit_x10 = i % 2 == j % 2 ? GBIT : GBIT / 10;
                topology_path(&table, i, j)->round_trip_us = i % 2 == j % 2 ? 200 : 900;
            }
}

static int crossings(const int *order, int count)
{
    int sum = 0;

    for (int i = 0; i < count; i++)
        sum += order[i] % 2 != order[(i + 1) % count] % 2;
    return sum;
}

TEST(a_bad_order_is_left)
{
    two_lans();
    assert_true(topology_rearrange(&table, members, hosts, 6, by_rank, &got));
    assert_int_equal(crossings(got.order, 6), 2);
    assert_int_equal(got.sites, 2);
    assert_int_equal(got.inside_mbit_x10, GBIT);
    assert_int_equal(got.across_mbit_x10, GBIT / 10);
    assert_int_equal(got.across_us, 900);
}

TEST(a_good_order_is_kept)
{
    static const int good[] = {3, 1, 5, 2, 4, 0}; /* as good as any; begins in the middle of nothing */
    static const int turned[] = {4, 0, 3, 1, 5, 2};
    two_lans();
    topology_path(&table, 3, 1)->mbit_x10 = GBIT * 19 / 20; /* noise */
    assert_true(topology_rearrange(&table, members, hosts, 6, good, &got));
    for (int i = 0; i < 6; i++) { /* the same circle, cut where a site begins */
        int at = 0;
        while (good[at] != got.order[i])
            at++;
        assert_int_equal(got.order[(i + 1) % 6], good[(at + 1) % 6]);
        assert_int_equal(got.site[i], i / 3);
    }
    assert_int_equal(got.inside_mbit_x10, GBIT * 19 / 20);
    struct ring_order before = got;
    assert_true(topology_rearrange(&table, members, hosts, 6, turned, &got));
    assert_memory_equal(&before, &got, sizeof got);
    topology_path(&table, 3, 1)->mbit_x10 = GBIT * 6 / 10; /* no noise; the trunk still is the slowest */
    assert_true(topology_rearrange(&table, members, hosts, 6, good, &got));
    assert_int_equal(got.inside_mbit_x10, GBIT * 6 / 10);
    static const int one_lan[] = {0, 2, 4};
    static const int slow_path[] = {0, 1, 2};
    topology_path(&table, 0, 2)->mbit_x10 = GBIT / 2; /* within one LAN it is the slowest */
    assert_true(topology_rearrange(&table, one_lan, hosts, 3, slow_path, &got));
    assert_int_equal(got.order[1], 2); /* the other way round */
}

TEST(nothing_measured_changes_nothing)
{
    static const uint64_t one_host[] = {7, 7, 7, 7, 7, 7};
    memset(&got, 0x5a, sizeof got);
    struct ring_order before = got;
    two_lans();
    assert_false(topology_rearrange(&table, members, one_host, 6, by_rank, &got));
    memset(table.paths, 0, sizeof table.paths);
    assert_false(topology_rearrange(&table, members, hosts, 6, by_rank, &got));
    assert_memory_equal(&before, &got, sizeof got);
    assert_false(topology_rearrange(&table, members, hosts, 1, by_rank, &got));
}

/* ---- the record ---- */

TEST(golden_bytes)
{
    static const uint8_t head[] = {'H', 'D', 'A', 'P', 3,    2, 0, 0, 0x10, 0x27, 0, 0,
                                   232, 3,   0,   0,   0x2c, 1, 0, 0, 0x84, 3,    0, 0};
    uint8_t bytes[RING_ORDER_LEN], golden[RING_ORDER_LEN] = {0};
    struct ring_order a = {.size = 3,
                           .sites = 2,
                           .order = {2, 0, 1},
                           .site = {0, 0, 1},
                           .inside_mbit_x10 = GBIT,
                           .across_mbit_x10 = GBIT / 10,
                           .inside_us = 300,
                           .across_us = 900};
    memcpy(golden, head, sizeof head);
    golden[24] = 2;
    golden[26] = 1;
    golden[90] = 1;
    memset(bytes, 0xff, sizeof bytes);
    ring_order_encode(&a, bytes);
    assert_memory_equal(bytes, golden, sizeof golden);
    assert_int_equal(ring_order_decode(&got, bytes, 3), HEARTH_OK);
    assert_memory_equal(&a, &got, sizeof got);
    assert_int_equal(ring_order_decode(&got, bytes, 4), HEARTH_PROTOCOL);
    ring_order_encode(&(struct ring_order){.size = 0}, bytes);
    assert_int_equal(ring_order_decode(&got, bytes, 4), HEARTH_OK);
    assert_int_equal(got.size, 0);
}

TEST(what_is_wrong_is_refused)
{
    static const struct {
        int at;
        uint8_t value;
        const char *what;
    } table_of[] = {
        {0, 'h', "magic"},        {4, 2, "size"},          {4, 65, "size"},
        {5, 1, "sites"},          {5, 3, "sites"},         {6, 1, "reserved"},
        {24, 0, "rank twice"},    {24, 3, "no such rank"}, {24, 255, "no such rank"},
        {27, 1, "behind order"},  {88, 1, "first site"},   {89, 2, "site too far"},
        {90, 0, "sites counted"}, {91, 1, "behind sites"}, {151, 1, "the last byte"},
    };
    uint8_t good[RING_ORDER_LEN], bytes[RING_ORDER_LEN];
    ring_order_encode(&(struct ring_order){.size = 3, .sites = 2, .order = {2, 0, 1}, .site = {0, 0, 1}},
                      good);
    for (size_t i = 0; i < sizeof table_of / sizeof table_of[0]; i++) {
        memcpy(bytes, good, sizeof bytes);
        assert_int_equal(ring_order_decode(&got, bytes, 3), HEARTH_OK);
        bytes[table_of[i].at] = table_of[i].value;
        if (ring_order_decode(&got, bytes, 3) != HEARTH_PROTOCOL)
            fail_msg("%s is accepted", table_of[i].what);
    }
}
