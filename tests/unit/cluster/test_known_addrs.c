/* SPDX-License-Identifier: Apache-2.0 */
/* Who is dialled next, how long pauses are, and what a flood of forged addresses may and may not do. */
#include "cluster/known_addrs.h"
#include "support/suite.h"

static struct heap heap;
static struct known_addrs c;
static struct dialer dialer;
static uint64_t now_ns;

static int begin(void **state)
{
    heap_init(&heap, 0);
    now_ns = 1000 * NS_PER_S;
    struct identity nobody = {.instance = 0}; /* smaller than all */
    struct dialer_setup setup = known_addrs_dialing(3600 * NS_PER_S, 5);
    setup.handshake_ns = NEVER_NS;
    setup.drops_slow = false; /* what is dialled stays so until the test says otherwise */
    dialer_init(&dialer, &setup, now_ns);
    known_addrs_init(&c, &heap, &nobody, &dialer, now_ns);
    return 0;
}

static int end(void **state)
{
    known_addrs_fini(&c);
    return heap.blocks == 0 ? 0 : -1;
}

static struct sock_addr addr_of(int number)
{
    char text[64];
    struct sock_addr addr;

    snprintf(text, sizeof text, "10.%d.%d.%d:52416", number >> 16 & 255, number >> 8 & 255, number & 255);
    assert_int_equal(sock_addr_parse(text, 0, &addr), HEARTH_OK);
    return addr;
}

static struct identity id_of(int number)
{
    struct identity id = {.instance = (uint64_t)number + 1};

    store_u32(id.node.bytes, (uint32_t)number);
    return id;
}

/* `who` -1: a seed. */
static void tell(int addr_number, int who, bool trusted, bool linked)
{
    struct sock_addr addr = addr_of(addr_number);
    struct identity id = id_of(who);
    struct known_addr_tip tip = {
        .addr = &addr, .claim = who >= 0 ? &id : NULL, .trusted = trusted, .linked = linked};

    known_addrs_tell(&c, &tip, now_ns);
}

static struct known_addr *at(int addr_number)
{
    struct sock_addr addr = addr_of(addr_number);

    for (int i = 0; i < c.room; i++)
        if (c.list[i].used && sock_addr_equal(&c.list[i].addr, &addr))
            return &c.list[i];
    return NULL;
}

static int index_of(int addr_number)
{
    return (int)(at(addr_number) - c.list);
}

/* Who is dialled now; -1: nobody. */
static int dial(void)
{
    struct dial_order order;

    dialer_tick(&dialer, now_ns);
    if (!dialer_output(&dialer, &order))
        return -1;
    assert_int_equal(order.why, DIAL_START);
    assert_ptr_equal(order.target, &c.list[order.target->key].target);
    return (int)order.target->key;
}

static void assert_next(int addr_number)
{
    assert_true(dialer_deadline(&dialer) <= now_ns);
    assert_int_equal(dial(), index_of(addr_number));
}

static void assert_nobody(void)
{
    assert_int_equal(dial(), -1);
    assert_true(dialer_deadline(&dialer) > now_ns);
}

/* When somebody is dialled again, attempts aside. */
static uint64_t due(void)
{
    uint64_t due_ns = NEVER_NS;

    for (int i = 0; i < c.room; i++) {
        const struct dial_target *t = &c.list[i].target;
        if (c.list[i].used && dial_target_wanted(t) && !dial_target_busy(t) && t->next_ns < due_ns)
            due_ns = t->next_ns;
    }
    return due_ns;
}

/* The attempt led to this one. */
static void prove(int addr_number, const struct identity *who, bool linked)
{
    known_addrs_proven(&c, index_of(addr_number), who, linked, 900, now_ns);
    known_addrs_released(&c, index_of(addr_number));
}

TEST_WITH(told_twice_is_one, begin, end)
{
    assert_nobody();
    assert_int_equal(due(), NEVER_NS);
    tell(1, 1, false, false);
    tell(1, 1, false, false);
    assert_int_equal(c.count, 1);
    assert_next(1);
    assert_nobody();
}

TEST_WITH(members_words_and_seeds_come_first, begin, end)
{
    tell(1, 1, false, false);
    tell(2, 2, true, false);
    tell(3, -1, false, false);
    assert_next(2);
    assert_next(3);
    assert_next(1);
}

TEST_WITH(pauses_double_up_to_a_limit, begin, end)
{
    uint64_t pause_ns = KNOWN_ADDR_PAUSE_MIN;

    tell(1, 1, false, false);
    for (int i = 0; i < 12; i++) {
        assert_next(1);
        known_addrs_failed(&c, index_of(1), "a reason", now_ns);
        assert_string_equal(at(1)->why, "a reason");
        assert_nobody();
        uint64_t due_ns = due();
        assert_in_range(due_ns - now_ns, pause_ns / 2, pause_ns * 3 / 2);
        now_ns = due_ns;
        pause_ns = 2 * pause_ns < KNOWN_ADDR_PAUSE_MAX ? 2 * pause_ns : KNOWN_ADDR_PAUSE_MAX;
    }
    known_addrs_hurry(&c, now_ns);
    assert_next(1);
}

TEST_WITH(who_was_there_once_is_tried_more_often, begin, end)
{
    struct identity who = id_of(1);

    tell(1, 1, false, false);
    prove(1, &who, false);
    for (int i = 0; i < 12; i++) {
        now_ns = due();
        assert_next(1);
        known_addrs_failed(&c, index_of(1), "a reason", now_ns);
    }
    assert_in_range(due() - now_ns, KNOWN_ADDR_PAUSE_KNOWN / 2, KNOWN_ADDR_PAUSE_KNOWN * 3 / 2);
}

TEST_WITH(addresses_of_a_node_have_head_starts, begin, end)
{
    tell(1, 7, false, false);
    tell(2, 7, false, false);
    tell(3, 8, false, false);
    assert_next(1);
    assert_next(3);
    assert_nobody();
    assert_int_equal(due(), now_ns + KNOWN_ADDR_HEAD_START);
    now_ns += KNOWN_ADDR_HEAD_START;
    assert_next(2);
}

TEST_WITH(the_larger_one_waits_for_the_smaller, begin, end)
{
    struct identity three = id_of(3);

    c.self = id_of(5);
    tell(1, 3, false, false);
    tell(2, 7, false, false);
    assert_next(2);
    assert_nobody();
    assert_int_equal(due(), now_ns + KNOWN_ADDR_COURTESY);
    now_ns += KNOWN_ADDR_COURTESY;
    assert_next(1);
    prove(1, &three, true);
    known_addrs_lost(&c, &three, true, now_ns);
    assert_nobody();
    now_ns += KNOWN_ADDR_COURTESY;
    assert_next(1);
}

TEST_WITH(who_is_joined_is_not_dialled_until_lost, begin, end)
{
    struct identity seven = id_of(7);

    tell(1, 7, false, false);
    tell(2, 7, false, false);
    now_ns += NS_PER_S;
    assert_next(1);
    prove(1, &seven, true);
    known_addrs_linked(&c, &seven);
    assert_int_equal(due(), NEVER_NS);
    tell(3, 7, true, true);
    assert_int_equal(due(), NEVER_NS);
    assert_int_equal(known_addrs_best(&c, &seven), index_of(1));
    known_addrs_lost(&c, &seven, true, now_ns);
    assert_next(1); /* proven before: the best */
    assert_nobody();
    now_ns += KNOWN_ADDR_HEAD_START * 2;
    known_addrs_failed(&c, index_of(1), "", now_ns);
    assert_next(3); /* a member said so */
    assert_next(2);
}

TEST_WITH(a_short_life_is_followed_by_a_pause, begin, end)
{
    struct identity seven = id_of(7);

    tell(1, 7, false, false);
    assert_next(1);
    for (int i = 0; i < 8; i++) {
        prove(1, &seven, true);
        known_addrs_lost(&c, &seven, false, now_ns);
        assert_nobody();
        now_ns = due();
        assert_next(1);
    }
    assert_int_equal(at(1)->target.tries, 8);
}

/* An address that proved to be one node is said to be another's: looked at now and then, more and more
 * rarely. */
TEST_WITH(a_contested_address_is_looked_at_rarely, begin, end)
{
    struct identity seven = id_of(7);
    uint64_t began_ns = now_ns;
    int looks = 0;

    tell(1, 7, false, false);
    assert_next(1);
    prove(1, &seven, true);
    for (; now_ns < began_ns + 600 * NS_PER_S; now_ns += 100 * NS_PER_MS) {
        for (int who = 8; who < 12; who++)
            tell(1, who, false, false);
        if (dial() < 0)
            continue;
        looks++;
        prove(1, &seven, true);
    }
    assert_int_equal(c.count, 1);
    assert_in_range(looks, 3, 8);
    known_addrs_lost(&c, &seven, true, now_ns);
    assert_next(1);
    struct identity eight = id_of(8);
    prove(1, &eight, true);
    assert_true(identity_equal(&at(1)->who, &eight));
}

/* A claim of somebody we are joined to does not hide who is there. */
TEST_WITH(a_false_claim_hides_nobody, begin, end)
{
    tell(1, 7, false, true);
    assert_nobody();
    tell(1, 8, false, false);
    assert_next(1);
    tell(2, 7, false, true);
    tell(2, -1, false, false);
    assert_next(2);
}

TEST_WITH(ourselves_are_left_alone, begin, end)
{
    tell(1, 7, false, false);
    assert_next(1);
    known_addrs_self(&c, index_of(1));
    tell(1, 7, true, false);
    tell(1, 8, true, false);
    assert_int_equal(due(), NEVER_NS);
    known_addrs_hurry(&c, now_ns); /* our address may be somebody else's by now */
    assert_next(1);
}

TEST_WITH(a_house_that_is_dialled_waits_behind_others, begin, end)
{
    struct sock_addr addr;
    struct identity id = id_of(3);
    struct known_addr_tip tip = {.addr = &addr, .claim = &id};

    tell(1, 1, false, false);
    tell(2, 2, false, false);
    assert_int_equal(sock_addr_parse("10.0.0.1:9", 0, &addr), HEARTH_OK); /* the same machine as the first */
    known_addrs_tell(&c, &tip, now_ns);
    at(2)->target.tries = 3;
    assert_next(1);
    assert_next(2);
    assert_true(sock_addr_equal(&c.list[dial()].addr, &addr));
}

/* Forged ones with more tries go before new ones; nobody who is worth more is pushed out. */
TEST_WITH(the_table_is_bounded, begin, end)
{
    struct identity seven = id_of(7);

    tell(100000, 7, false, false);
    assert_next(100000);
    prove(100000, &seven, false);
    tell(100001, 8, true, false);
    tell(100002, -1, false, false);
    for (int i = 0; i < 3 * KNOWN_ADDRS_MAX; i++)
        tell(i, 1000 + i, false, false);
    assert_int_equal(c.count, KNOWN_ADDRS_MAX);
    assert_int_equal(c.room, KNOWN_ADDRS_MAX);
    assert_non_null(at(100000));
    assert_non_null(at(100001));
    assert_non_null(at(100002));
    for (int i = 0; i < c.room; i++)
        if (known_addr_tier(&c.list[i]) == 1 && i % 2)
            c.list[i].target.tries = 1;
    for (int i = 0; i < KNOWN_ADDRS_MAX / 2 - 10; i++) {
        tell(200000 + i, 1000 + i, false, false);
        assert_non_null(at(200000 + i));
    }
    int untried = 0;
    for (int i = 0; i < c.room; i++)
        untried += c.list[i].target.tries == 0;
    assert_in_range(untried, KNOWN_ADDRS_MAX - 16, KNOWN_ADDRS_MAX);
    for (int i = 0; i < KNOWN_ADDRS_MAX; i++)
        tell(300000 + i, 1000 + i, true, false);
    assert_non_null(at(100000));
    assert_non_null(at(100002));
    tell(400000, 1, false, false); /* who is only sighted finds no place then */
    assert_null(at(400000));
}

TEST_WITH(who_is_not_told_of_is_forgotten, begin, end)
{
    tell(1, 1, false, false);
    tell(2, 2, false, false);
    tell(3, -1, false, false);
    for (int i = 0; i < 20; i++) {
        now_ns += 60 * NS_PER_S;
        tell(2, 2, false, false);
        known_addrs_sweep(&c, now_ns);
    }
    assert_null(at(1));
    assert_non_null(at(2));
    assert_non_null(at(3));
    tell(1, 1, false, false);
    assert_non_null(at(1));
}

TEST_WITH(a_peer_that_left_is_not_dialled, begin, end)
{
    struct identity gone = id_of(1);

    tell(1, 1, true, false);
    tell(2, 1, false, false);
    tell(3, -1, false, false); /* an address of the user's, where it was found */
    tell(4, 4, false, false);
    prove(3, &gone, true);
    known_addrs_left(&c, &gone);
    assert_null(at(1));
    assert_null(at(2));
    assert_non_null(at(3)); /* another process may listen there some day */
    assert_false(at(3)->claimed);
    tell(1, 1, true, false); /* gossip that is late */
    assert_null(at(1));
    tell(1, 5, true, false); /* the next process on that port */
    assert_non_null(at(1));
    for (int i = 100; i < 100 + KNOWN_ADDRS_LEFT_MAX; i++) { /* the list is bounded */
        struct identity other = id_of(i);
        assert_true(known_addrs_has_left(&c, &gone) || i == 100 + KNOWN_ADDRS_LEFT_MAX - 1);
        known_addrs_left(&c, &other);
    }
    assert_false(known_addrs_has_left(&c, &gone));
}

TEST_WITH(without_memory_nobody_is_kept, begin, end)
{
    heap.fail_after = 0;
    tell(1, 1, false, false);
    assert_int_equal(c.count, 0);
    heap.fail_after = -1;
    tell(1, 1, false, false);
    assert_next(1);
}
