/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sightings: one row for each address of a node, and room for true ones when it is full. */
#include "discovery/sightings.h"
#include "support/suite.h"

static struct heap heap;
static struct sightings table;

static int open_table(void **state)
{
    heap_init(&heap, 0);
    return sightings_init(&table, &heap);
}

static int close_table(void **state)
{
    sightings_fini(&table);
    return heap.blocks == 0 ? 0 : -1;
}

static struct sighting make(const char *key, uint8_t space, uint64_t instance, const char *addr)
{
    struct sighting s = {.version = 1, .id = {.instance = instance}};

    snprintf(s.key, sizeof s.key, "%s", key);
    snprintf(s.interface, sizeof s.interface, "eth0");
    memset(s.space, space, sizeof s.space);
    memset(s.id.node.bytes, 5, sizeof s.id.node.bytes);
    assert_int_equal(sock_addr_parse(addr, 1, &s.addr), HEARTH_OK);
    return s;
}

static void found(const char *key, uint8_t space, uint64_t instance, const char *addr)
{
    struct sighting s = make(key, space, instance, addr);
    sightings_found(&table, &s);
}

static bool holds(uint64_t instance)
{
    for (int i = 0; i < table.count; i++)
        if (table.list[i].id.instance == instance)
            return true;
    return false;
}

static struct sighting us(uint64_t instance)
{
    struct sighting self = {.id = {.instance = instance}, .port = 1};

    memset(self.space, 1, sizeof self.space);
    memset(self.id.node.bytes, 5, sizeof self.id.node.bytes);
    return self;
}

TEST_WITH(an_address_is_one_row_whoever_tells, open_table, close_table)
{
    found("a", 1, 7, "10.0.0.1");
    found("b", 1, 7, "10.0.0.1");
    found("c", 1, 7, "10.0.0.2");
    assert_int_equal(table.count, 2);
    sightings_lost(&table, "a");
    assert_int_equal(table.count, 2);
    sightings_lost(&table, "unknown");
    sightings_lost(&table, "b");
    assert_int_equal(table.count, 1);
    sightings_lost(&table, "c");
    assert_int_equal(table.count, 0);
}

TEST_WITH(a_key_that_moves_takes_its_row_along, open_table, close_table)
{
    found("a", 1, 7, "10.0.0.1");
    found("b", 1, 8, "10.0.0.8");
    found("a", 1, 7, "10.0.0.2");
    assert_int_equal(table.count, 2);
    found("a", 1, 8, "10.0.0.8");
    assert_int_equal(table.count, 1);
    sightings_lost(&table, "a");
    assert_int_equal(table.count, 1);
    sightings_lost(&table, "b");
    assert_int_equal(table.count, 0);
}

TEST_WITH(changes_are_counted, open_table, close_table)
{
    struct sighting s = make("a", 1, 7, "10.0.0.1");

    sightings_found(&table, &s);
    uint64_t before = table.changed;
    sightings_found(&table, &s);
    assert_true(table.changed == before);
    s.flags = 1;
    sightings_found(&table, &s);
    assert_true(table.changed != before);
    assert_int_equal(table.list[0].flags, 1);
}

TEST_WITH(more_keys_than_places_do_no_harm, open_table, close_table)
{
    char key[16];

    for (int i = 0; i < 3 * SIGHTING_KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        found(key, 1, 7, "10.0.0.1");
    }
    assert_int_equal(table.count, 1);
    for (int i = 0; i < 3 * SIGHTING_KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        sightings_lost(&table, key);
    }
    assert_int_equal(table.count, 0);
}

TEST_WITH(we_are_left_out, open_table, close_table)
{
    struct sighting self = us(7);

    found("a", 1, 7, "10.0.0.1");
    found("b", 1, 8, "10.0.0.1");
    sightings_self(&table, &self);
    assert_int_equal(table.count, 1);
    found("c", 1, 7, "10.0.0.3");
    assert_int_equal(table.count, 1);
    found("b", 1, 7, "10.0.0.1"); /* the other's key becomes ours */
    assert_int_equal(table.count, 0);
    sightings_self(&table, NULL);
    found("c", 1, 7, "10.0.0.3");
    assert_int_equal(table.count, 1);
}

TEST_WITH(old_ones_go_unless_they_are_seen_again, open_table, close_table)
{
    found("a", 1, 7, "10.0.0.1");
    found("b", 1, 8, "10.0.0.2");
    assert_true(sightings_oldest(&table) == NEVER_NS);
    sightings_age(&table, 1000);
    sightings_age(&table, 2000);
    assert_true(sightings_oldest(&table) == 1000);
    sightings_lost(&table, "a"); /* keys of a helper that is gone mean nothing */
    assert_int_equal(table.count, 2);
    found("x", 1, 8, "10.0.0.2");
    sightings_expire(&table, 1000);
    assert_int_equal(table.count, 2);
    sightings_expire(&table, 1001);
    assert_int_equal(table.count, 1);
    assert_true(holds(8));
}

/* A thousand names at one address push out each other. */
TEST_WITH(whoever_has_most_gives_way, open_table, close_table)
{
    char key[16], addr[24];

    for (unsigned i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "true%u", i);
        snprintf(addr, sizeof addr, "10.0.0.%u", i + 1);
        found(key, 1, 1 + i, addr);
    }
    for (unsigned i = 0; i < 3 * SIGHTINGS_MAX; i++) {
        snprintf(key, sizeof key, "k%u", i);
        snprintf(addr, sizeof addr, "10.9.9.9:%u", i + 1);
        found(key, 1, 1000 + i, addr);
    }
    assert_int_equal(table.count, SIGHTINGS_MAX);
    for (unsigned i = 0; i < 8; i++)
        assert_true(holds(1 + i));
    assert_true(holds(1000 + 3 * SIGHTINGS_MAX - 1));
    assert_false(holds(1000));
}

/* However many addresses strangers claim, those of our own cluster stay. */
TEST_WITH(strangers_give_way_first, open_table, close_table)
{
    struct sighting self = us(999999);
    char key[16], addr[24];

    sightings_self(&table, &self);
    for (unsigned i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "true%u", i);
        found(key, 1, 1 + i, "10.0.0.1");
    }
    for (unsigned i = 0; i < 3 * SIGHTINGS_MAX; i++) {
        snprintf(key, sizeof key, "k%u", i);
        snprintf(addr, sizeof addr, "10.1.%u.%u", i / 256, i % 256);
        found(key, 2, 1000 + i, addr);
    }
    assert_int_equal(table.count, SIGHTINGS_MAX);
    for (unsigned i = 0; i < 200; i++)
        assert_true(holds(1 + i));
}

/* Of a table full of our own namespace somebody goes, but not everybody. */
TEST_WITH(a_full_table_takes_newcomers, open_table, close_table)
{
    struct sighting self = us(999999);
    char key[16], addr[24];

    sightings_self(&table, &self);
    for (unsigned i = 0; i < SIGHTINGS_MAX; i++) {
        snprintf(key, sizeof key, "k%u", i);
        snprintf(addr, sizeof addr, "10.1.%u.%u", i / 256, i % 256);
        found(key, 1, 1000 + i, addr);
    }
    found("new", 1, 1, "10.0.0.1");
    assert_true(holds(1));
    assert_int_equal(table.count, SIGHTINGS_MAX);
}

TEST_WITH(memory_may_be_short, open_table, close_table)
{
    struct sightings other;

    for (int64_t n = 0; n < 2; n++) {
        heap.fail_after = n;
        assert_int_equal(sightings_init(&other, &heap), HEARTH_NO_MEMORY);
    }
    heap.fail_after = -1;
}
