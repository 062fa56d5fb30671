/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ways: follows the members, takes samples in, comes back from its bytes. */
#include "core/prng.h"
#include "membership/outbox.h"
#include "membership/topology.h"
#include "people.h"
#include "support/suite.h"

static struct topology table, other;
static uint8_t message[MESSAGE_PAYLOAD_MAX];

static void fill(struct topology *t, uint64_t seed, int known_of_8)
{
    struct prng p;

    prng_init(&p, seed);
    for (int i = 0; i < t->size; i++)
        for (int j = 0; j < t->size; j++)
            if (i != j && prng_below(&p, 8) < (uint64_t)known_of_8)
                *topology_path(t, i, j) = (struct path_measure){
                    .mbit_x10 = (uint32_t)prng_u64(&p),
                    .round_trip_us = (uint32_t)prng_u64(&p),
                    .loss_ppm = (uint32_t)prng_below(&p, 1000001),
                    .kind = (uint8_t)prng_below(&p, PATH_OTHER + 1),
                    .quality = (uint8_t)(1 + prng_below(&p, 255)),
                    .age_s = (uint16_t)prng_u64(&p),
                };
}

TEST(bytes_bring_it_back)
{
    for (int size = 1; size <= VIEW_MEMBERS_MAX; size++) {
        struct view view = people(size, 0);
        topology_reset(&table, &view);
        fill(&table, (uint64_t)size, size % 9);
        if (size == VIEW_MEMBERS_MAX) /* all of the largest fit into a message */
            fill(&table, 1, 8);
        size_t len = topology_encode(&table, message, sizeof message);
        assert_true(len > 0);
        assert_int_equal(topology_decode(&other, message, len), HEARTH_OK);
        assert_memory_equal(&other, &table, sizeof table);
        assert_int_equal(topology_encode(&table, message, len - 1), 0);
    }
}

TEST(golden_bytes)
{
    static const uint8_t golden[] = {
        77,   0,    0, 0, 0,    0, 0, 0, 5, 0, 0, 0, 0, 0, 0,  0, 2, 0, 0, 0, 0x02, /* 0 -> 1 */
        0x10, 0x27, 0, 0, 0x2c, 1, 0, 0, 7, 0, 0, 0, 2, 3, 60, 0,
    };
    struct view view = people(2, 0);

    topology_reset(&table, &view);
    *topology_path(&table, 0, 1) = (struct path_measure){10000, 300, 7, PATH_WIRE, 3, 60};
    assert_int_equal(topology_encode(&table, message, sizeof message), sizeof golden);
    assert_memory_equal(message, golden, sizeof golden);
}

static void refuse(size_t len, size_t at, uint8_t with)
{
    uint8_t kept = message[at];

    assert_int_not_equal(kept, with);
    message[at] = with;
    assert_int_equal(topology_decode(&other, message, len), HEARTH_PROTOCOL);
    message[at] = kept;
    assert_int_equal(topology_decode(&other, message, len), HEARTH_OK);
}

TEST(malformed_bytes_are_refused)
{
    struct view view = people(3, 0);

    topology_reset(&table, &view);
    *topology_path(&table, 0, 1) = (struct path_measure){.round_trip_us = 9};
    size_t len = topology_encode(&table, message, sizeof message);
    assert_int_equal(len, 20 + 2 + 16);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(topology_decode(&other, message, cut), HEARTH_PROTOCOL);
    assert_int_equal(topology_decode(&other, message, len + 1), HEARTH_PROTOCOL);
    refuse(len, 0, 0);       /* no instance */
    refuse(len, 8, 0);       /* no epoch */
    refuse(len, 16, 0);      /* nobody */
    refuse(len, 16, 65);     /* too many */
    refuse(len, 17, 1);      /* far too many */
    refuse(len, 20, 0x01);   /* a way to oneself */
    refuse(len, 20, 0x06);   /* more than there are */
    refuse(len, 21, 0x02);   /* beyond the last pair */
    refuse(len, 22 + 4, 0);  /* a way without anything known */
    refuse(len, 22 + 11, 1); /* loses more than all */
    refuse(len, 22 + 12, 6); /* an unknown kind */
}

TEST(measures_follow_their_members)
{
    struct view old = people(6, 0), view = people(0, 0);
    static const int numbers[] = {4, 9, 1, 5, 0};

    topology_reset(&table, &old);
    fill(&table, 4, 8);
    other = table;
    view.epoch = 6;
    view.size = 5;
    for (int i = 0; i < 5; i++)
        view.members[i] = person(numbers[i]);
    topology_follow(&table, &old, &view);
    assert_int_equal(table.size, 5);
    assert_int_equal(table.epoch, 6);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            struct path_measure none = {0}, *was = &none;
            if (numbers[i] < 6 && numbers[j] < 6)
                was = topology_path(&other, numbers[i], numbers[j]);
            assert_memory_equal(topology_path(&table, i, j), was, sizeof *was);
        }
    assert_int_equal(topology_path(&table, 4, 5)->mbit_x10, 0);
}

TEST(samples_are_taken_in)
{
    struct path_measure path = {0};
    const struct path_measure fast = {.mbit_x10 = 9000, .quality = 1}, slow = {.mbit_x10 = 3000, .age_s = 4};
    const struct path_measure trip = {.round_trip_us = 500, .loss_ppm = 1000, .kind = PATH_WIRELESS};
    const struct path_measure longer = {.round_trip_us = 1000};

    path_merge(&path, &fast);
    assert_int_equal(path.mbit_x10, 9000);
    assert_int_equal(path.quality, 1);
    path_merge(&path, &slow); /* the newer one weighs more, and a probe is a probe */
    assert_int_equal(path.mbit_x10, 5000);
    assert_int_equal(path.quality, 2);
    assert_int_equal(path.age_s, 4);
    assert_int_equal(path.kind, PATH_UNKNOWN);
    path_merge(&path, &trip);
    assert_int_equal(path.mbit_x10, 5000);
    assert_int_equal(path.round_trip_us, 500);
    assert_int_equal(path.loss_ppm, 1000);
    path_merge(&path, &longer);
    assert_int_equal(path.round_trip_us, 600);
    assert_int_equal(path.loss_ppm, 800);
    assert_int_equal(path.kind, PATH_WIRELESS);
    path.quality = 254;
    path_merge(&path, &fast);
    path_merge(&path, &fast);
    assert_int_equal(path.quality, 255);
}

/* All ways carry 1 Gbit/s, but those out of (up) or into (down) a member. */
static void shape(int size, int slow, uint32_t up, uint32_t down)
{
    struct view view = people(size, 0);

    topology_reset(&table, &view);
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++)
            topology_path(&table, i, j)->mbit_x10 = i == j ? 0 : i == slow ? up : j == slow ? down : 10000;
}

TEST(a_slow_line_is_found)
{
    static const int members[] = {0, 1, 2, 3};
    uint64_t hosts[] = {10, 11, 12, 13};

    for (int slow = 0; slow < 3; slow++) {
        shape(4, slow, 200, 10000);
        struct slow_line line = topology_slow_line(&table, members, hosts, 3);
        assert_int_equal(line.place, slow);
        assert_int_equal(line.mbit_x10, 200);
        assert_int_equal(line.next_mbit_x10, 10000);
        shape(4, slow, 10000, 200);
        assert_int_equal(topology_slow_line(&table, members, hosts, 4).place, slow);
    }
    shape(4, 1, 200, 10000);
    topology_path(&table, 2, 3)->mbit_x10 = 0; /* not every way was measured, but those of the slow one */
    assert_int_equal(topology_slow_line(&table, members, hosts, 4).place, 1);
    topology_path(&table, 0, 3)->mbit_x10 = 0; /* 3 was reached from the slow one only: is it 3? */
    assert_int_equal(topology_slow_line(&table, members, hosts, 4).place, -1);
    hosts[3] = hosts[0]; /* it has the line of another that was reached */
    assert_int_equal(topology_slow_line(&table, members, hosts, 4).place, 1);
    hosts[3] = 13;
    shape(4, 1, 200, 10000);
    assert_int_equal(topology_slow_line(&table, members + 2, hosts + 2, 2).place, -1); /* it is not in */
    assert_int_equal(topology_slow_line(&table, members, hosts, 2).place, -1);         /* up or down? */
    hosts[2] = hosts[1]; /* two members of a machine have one line */
    shape(4, 1, 200, 10000);
    for (int j = 0; j < 4; j++)
        topology_path(&table, 2, j)->mbit_x10 = 200;
    assert_int_equal(topology_slow_line(&table, members, hosts, 4).place, 1);
    shape(4, 1, 5100, 10000);
    assert_int_equal(topology_slow_line(&table, members, hosts, 4).place, -1); /* half as fast is not slow */
    shape(4, -1, 0, 0);
    assert_int_equal(topology_slow_line(&table, members, hosts, 4).place, -1);
    memset(table.paths, 0, sizeof table.paths);
    assert_int_equal(topology_slow_line(&table, members, hosts, 4).place, -1);
    assert_int_equal(topology_slow_line(&table, members, hosts, 0).place, -1);
}

TEST(kinds_have_names)
{
    assert_string_equal(path_kind_name(PATH_WIRELESS), "wireless");
    assert_string_equal(path_kind_name((enum path_kind)99), "unknown");
}
