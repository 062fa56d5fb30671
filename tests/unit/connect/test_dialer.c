/* SPDX-License-Identifier: Apache-2.0 */
/* The dialer on virtual time: several addresses, pauses, the window, deadlines, what is dropped for what. */
#include "connect/dialer.h"
#include "support/suite.h"

#define MS      NS_PER_MS
#define START   (1000 * NS_PER_S)
#define TARGETS 300

static struct dialer dialer;
static struct dial_target targets[TARGETS];
static struct dial_order order;
static uint64_t now_ns;

static const struct dialer_setup usual = {
    .attempts_max = 8,
    .pause_ns = 20 * MS,
    .pause_miss_ns = 100 * MS,
    .pause_max_ns = NS_PER_S,
    .pause_known_ns = NS_PER_S / 2,
    .misses_max = UINT32_MAX,
    .connect_ns = 2 * NS_PER_S,
    .handshake_ns = 5 * NS_PER_S,
    .slow_connect_ns = 100 * MS,
    .slow_handshake_ns = 400 * MS,
    .seed = 7,
};

static void begin(const struct dialer_setup *setup)
{
    now_ns = START;
    dialer_init(&dialer, setup, now_ns);
    for (uint32_t i = 0; i < TARGETS; i++)
        dial_target_init(&targets[i], i);
}

static void want(int first, int count)
{
    for (int i = first; i < first + count; i++)
        dialer_want(&dialer, &targets[i], now_ns);
}

static bool output(void)
{
    dialer_tick(&dialer, now_ns);
    return dialer_output(&dialer, &order);
}

static void assert_order(enum dial_why why, int target)
{
    assert_true(dialer_deadline(&dialer) <= now_ns);
    assert_true(output());
    assert_int_equal(order.why, why);
    assert_ptr_equal(order.target, &targets[target]);
}

static void assert_nothing(void)
{
    assert_false(output());
    assert_true(dialer_deadline(&dialer) > now_ns);
}

/* How many are started now. */
static int started(void)
{
    int count = 0;

    for (; output(); count++)
        assert_int_equal(order.why, DIAL_START);
    return count;
}

static void open_one(int target)
{
    dialer_connected(&dialer, &targets[target], now_ns);
}

static void hold(int target)
{
    open_one(target);
    dialer_secured(&dialer, &targets[target], now_ns);
}

/* ---- several addresses -------------------------------------------------------------------------------- */

TEST(addresses_are_dialled_side_by_side_with_head_starts)
{
    begin(&usual);
    dialer_want(&dialer, &targets[1], now_ns + 50 * MS);
    dialer_want(&dialer, &targets[0], now_ns);
    assert_order(DIAL_START, 0);
    assert_nothing();
    assert_int_equal(dialer_deadline(&dialer), now_ns + 50 * MS);
    now_ns += 50 * MS;
    assert_order(DIAL_START, 1); /* the first one does not answer, and still has time */
    assert_nothing();
    hold(1);
    dialer_kept(&dialer, &targets[1], MS, now_ns);
    assert_false(dial_target_wanted(&targets[1]));
    assert_true(dial_target_busy(&targets[0]));
}

TEST(the_first_connection_ends_the_other_attempts)
{
    struct dialer_setup setup = usual;

    setup.first_wins = true;
    begin(&setup);
    want(0, 3);
    assert_int_equal(started(), 3);
    dialer_failed(&dialer, &targets[2], DIAL_UNREACHABLE, now_ns); /* nobody is there */
    open_one(1);
    assert_false(dial_target_busy(&targets[0]));
    now_ns += NS_PER_S;
    assert_nothing(); /* while it lasts */
    dialer_secured(&dialer, &targets[1], now_ns);
    assert_nothing();
    dialer_failed(&dialer, &targets[1], DIAL_CLOSED, now_ns);
    assert_order(DIAL_START, 0); /* nobody blamed it */
    assert_order(DIAL_START, 2);
    assert_nothing();
    assert_int_equal(targets[0].tries, 0);
    now_ns = dialer_deadline(&dialer);
    assert_order(DIAL_START, 1);
}

/* ---- pauses ------------------------------------------------------------------------------------------- */

static void check_pauses(enum dial_fault fault, uint64_t pause_ns, uint64_t max_ns)
{
    uint64_t least_ns = NEVER_NS, most_ns = 0;

    for (int i = 0; i < 40; i++) {
        assert_order(DIAL_START, 0);
        dialer_failed(&dialer, &targets[0], fault, now_ns);
        assert_nothing();
        uint64_t due_ns = dialer_deadline(&dialer), took_ns = due_ns - now_ns;
        assert_in_range(took_ns, pause_ns / 2, pause_ns);
        if (pause_ns == max_ns) {
            least_ns = took_ns < least_ns ? took_ns : least_ns;
            most_ns = took_ns > most_ns ? took_ns : most_ns;
        }
        now_ns = due_ns - 1;
        assert_nothing();
        now_ns = due_ns;
        pause_ns = 2 * pause_ns < max_ns ? 2 * pause_ns : max_ns;
    }
    assert_true(most_ns - least_ns > max_ns / 4); /* left to chance */
}

TEST(pauses_double_up_to_a_limit)
{
    begin(&usual);
    want(0, 1);
    check_pauses(DIAL_CLOSED, usual.pause_ns, usual.pause_max_ns);
    dialer_want_anew(&dialer, &targets[0], now_ns);
    check_pauses(DIAL_UNREACHABLE, usual.pause_miss_ns, usual.pause_max_ns);
    dialer_want_anew(&dialer, &targets[0], now_ns);
    targets[0].known = true;
    check_pauses(DIAL_WRONG_PEER, usual.pause_miss_ns, usual.pause_known_ns);
}

TEST(after_too_many_misses_it_is_not_wanted)
{
    struct dialer_setup setup = usual;

    setup.misses_max = 3;
    begin(&setup);
    want(0, 1);
    for (int i = 0; i < 20; i++) { /* there, but it did not take us: as often as need be */
        now_ns = dialer_deadline(&dialer);
        assert_order(DIAL_START, 0);
        dialer_failed(&dialer, &targets[0], DIAL_CLOSED, now_ns);
        assert_nothing();
    }
    for (int i = 0; i <= 3; i++) {
        now_ns = dialer_deadline(&dialer);
        assert_order(DIAL_START, 0);
        dialer_failed(&dialer, &targets[0], i % 2 ? DIAL_WRONG_PEER : DIAL_UNREACHABLE, now_ns);
        assert_nothing();
    }
    assert_false(dial_target_wanted(&targets[0]));
    assert_int_equal(dialer_deadline(&dialer), NEVER_NS);
}

/* ---- deadlines and ends ------------------------------------------------------------------------------- */

TEST(every_step_has_its_time)
{
    begin(&usual);
    want(0, 3);
    assert_int_equal(started(), 3);
    assert_int_equal(dialer_deadline(&dialer), now_ns + usual.connect_ns);
    now_ns += NS_PER_S;
    open_one(1);
    hold(2);
    now_ns = START + usual.connect_ns - 1;
    assert_nothing();
    now_ns++;
    assert_order(DIAL_LATE_CONNECT, 0);
    assert_int_equal(targets[0].misses, 1);
    dialer_unwant(&dialer, &targets[0]);
    assert_nothing();
    assert_int_equal(dialer_deadline(&dialer), START + NS_PER_S + usual.handshake_ns);
    now_ns = dialer_deadline(&dialer);
    assert_order(DIAL_LATE_HANDSHAKE, 1);
    assert_int_equal(targets[1].misses, 0);
    dialer_unwant(&dialer, &targets[1]);
    assert_nothing();
    assert_int_equal(dialer_deadline(&dialer), NEVER_NS); /* the owner has the third one */
    assert_true(dial_target_busy(&targets[2]));
}

TEST(what_is_cancelled_leaves_its_place_and_no_trace)
{
    struct dialer_setup setup = usual;

    setup.attempts_max = 1;
    begin(&setup);
    want(0, 2);
    assert_order(DIAL_START, 0);
    assert_nothing();
    dialer_unwant(&dialer, &targets[0]);
    dialer_cancelled(&dialer, &targets[0]);
    dialer_cancelled(&dialer, &targets[0]); /* harmless */
    assert_false(dial_target_busy(&targets[0]));
    assert_int_equal(targets[0].tries, 0);
    assert_order(DIAL_START, 1);
    dialer_unwant(&dialer, &targets[1]); /* goes on */
    assert_true(dial_target_busy(&targets[1]));
    hold(1);
    dialer_kept(&dialer, &targets[1], MS, now_ns);
    assert_nothing();
    assert_int_equal(dialer_deadline(&dialer), NEVER_NS);
}

TEST(a_table_that_moves_keeps_its_targets)
{
    static struct dial_target copy[4];

    begin(&usual);
    want(0, 3);
    targets[3].tries = 9;
    targets[1].next_ns = targets[2].next_ns = now_ns + MS;
    assert_order(DIAL_START, 0);
    for (int i = 0; i < 4; i++) {
        dialer_move(&dialer, &copy[i], &targets[i]);
        dial_target_init(&targets[i], 99);
    }
    dialer_failed(&dialer, &copy[0], DIAL_CLOSED, now_ns);
    assert_false(dial_target_wanted(&copy[3]));
    now_ns += NS_PER_S;
    int seen = 0;
    for (; output(); seen += 1 << order.target->key)
        assert_in_range(order.target - copy, 0, 2);
    assert_int_equal(seen, 7);
}

/* ---- the window --------------------------------------------------------------------------------------- */

static struct dialer_setup adapting(void)
{
    struct dialer_setup setup = usual;

    setup.attempts_max = 100;
    setup.adapts = true;
    return setup;
}

TEST(it_grows_while_attempts_go_well)
{
    struct dialer_setup setup = adapting();

    begin(&setup);
    want(0, TARGETS);
    assert_int_equal(started(), DIAL_WINDOW_FIRST);
    for (int i = 0; i < DIAL_WINDOW_FIRST; i++)
        dialer_kept(&dialer, &targets[i], MS, now_ns);
    assert_int_equal(started(), 2 * DIAL_WINDOW_FIRST);
    for (int i = DIAL_WINDOW_FIRST; i < 3 * DIAL_WINDOW_FIRST; i++)
        dialer_kept(&dialer, &targets[i], MS, now_ns);
    for (int i = 3 * DIAL_WINDOW_FIRST; started() > 0; i++)
        dialer_kept(&dialer, &targets[i], MS, now_ns);
    assert_int_equal(dialer.window, setup.attempts_max);
    setup.attempts_max = 3;
    begin(&setup);
    want(0, 10);
    assert_int_equal(started(), 3);
}

TEST(one_rush_shrinks_it_once)
{
    struct dialer_setup setup = adapting();

    begin(&setup);
    want(0, TARGETS);
    assert_int_equal(started(), DIAL_WINDOW_FIRST);
    now_ns += MS;
    for (int i = 0; i < DIAL_WINDOW_FIRST; i++)
        dialer_failed(&dialer, &targets[i], DIAL_CUT, now_ns);
    assert_int_equal(started(), DIAL_WINDOW_FIRST / 2);
    now_ns += MS;
    for (int i = 0; i < DIAL_WINDOW_FIRST / 2; i++) /* those are the next */
        dialer_failed(&dialer, &targets[DIAL_WINDOW_FIRST + i], DIAL_CUT, now_ns);
    assert_int_equal(dialer.window, DIAL_WINDOW_FIRST / 4);
    for (int i = 0; i < 10; i++) {
        now_ns += MS;
        assert_true(started() > 0);
        now_ns += MS;
        for (int k = 0; k < TARGETS; k++)
            if (dial_target_busy(&targets[k]))
                dialer_failed(&dialer, &targets[k], DIAL_CUT, now_ns);
    }
    assert_int_equal(dialer.window, DIAL_WINDOW_MIN);

    /* After that it grows by one when all of it went well. */
    now_ns += 2 * NS_PER_S;
    assert_int_equal(started(), DIAL_WINDOW_MIN);
    for (int k = 0, kept = 0; k < TARGETS; k++) {
        if (!dial_target_busy(&targets[k]))
            continue;
        assert_int_equal(dialer.window, DIAL_WINDOW_MIN);
        dialer_kept(&dialer, &targets[k], MS, now_ns);
        if (++kept == DIAL_WINDOW_MIN)
            break;
    }
    assert_int_equal(dialer.window, DIAL_WINDOW_MIN + 1);
}

/* A long way is no overload; waiting for much longer is. */
TEST(what_takes_long_shrinks_it)
{
    struct dialer_setup setup = adapting();

    begin(&setup);
    want(0, 2);
    assert_int_equal(started(), 2);
    now_ns += DIAL_SLOW_NS + 800 * MS;
    dialer_kept(&dialer, &targets[0], 100 * MS, now_ns);
    assert_int_equal(dialer.window, DIAL_WINDOW_FIRST + 1);
    dialer_kept(&dialer, &targets[1], 99 * MS, now_ns);
    assert_int_equal(dialer.window, (DIAL_WINDOW_FIRST + 1) / 2);
}

TEST(what_is_slow_does_not_count)
{
    struct dialer_setup setup = adapting();

    begin(&setup);
    want(0, TARGETS);
    assert_int_equal(started(), DIAL_WINDOW_FIRST);
    assert_nothing();
    assert_int_equal(dialer_deadline(&dialer), now_ns + setup.slow_connect_ns);
    now_ns += setup.slow_connect_ns;
    open_one(3);
    assert_int_equal(started(), DIAL_WINDOW_FIRST - 1);
    now_ns += setup.slow_handshake_ns;
    for (int i = 0; i < DIAL_WINDOW_FIRST; i++)
        assert_true(dial_target_busy(&targets[i])); /* all of them go on */
}

/* ---- who goes first, who makes room ------------------------------------------------------------------- */

TEST(tiers_networks_tries)
{
    begin(&usual);
    want(0, 4);
    for (int i = 0; i < 4; i++)
        targets[i].tier = i != 3;
    targets[0].network = targets[1].network = 1;
    targets[2].network = 2;
    targets[2].tries = 5;
    assert_order(DIAL_START, 3);
    assert_order(DIAL_START, 0);
    assert_order(DIAL_START, 2); /* nothing is under way there */
    assert_order(DIAL_START, 1);
    assert_nothing();
}

TEST(slow_ones_make_room_if_others_wait)
{
    struct dialer_setup setup = usual;

    setup.attempts_max = 4;
    setup.tier_max = 3;
    setup.drops_slow = true;
    setup.slow_shift = 6;
    setup.connect_ns = NEVER_NS;
    begin(&setup);
    for (int i = 0; i < 6; i++)
        targets[i].tier = 1;
    want(0, 6);
    assert_int_equal(started(), 3); /* the fourth place is for the other tier */
    hold(0);
    now_ns += 50 * MS;
    open_one(1);
    assert_nothing();
    assert_int_equal(dialer_deadline(&dialer), START + setup.slow_connect_ns);
    now_ns = START + setup.slow_connect_ns;
    assert_order(DIAL_MAKES_ROOM, 2);
    assert_order(DIAL_START, 3);
    assert_nothing();
    want(6, 2); /* of tier 0 */
    assert_order(DIAL_START, 6);
    assert_nothing();
    now_ns += setup.slow_connect_ns;
    assert_order(DIAL_MAKES_ROOM, 3); /* the slowest of those that come behind it or beside it */
    assert_order(DIAL_START, 7);
    hold(6);
    hold(7);
    now_ns = START + 50 * MS + setup.slow_handshake_ns;
    assert_order(DIAL_MAKES_ROOM, 1);
    assert_true(output());
    assert_int_equal(order.why, DIAL_START);
    now_ns += 3600 * NS_PER_S;
    assert_true(output()); /* it waits no longer than others */
    assert_int_equal(order.why, DIAL_MAKES_ROOM);
    for (int i = 0; i < 8; i += i == 0 ? 6 : 1)
        assert_true(dial_target_busy(&targets[i])); /* who is held stays */
}

/* A try that was dropped gets more time when it comes again, and so do all where handshakes take long. */
TEST(each_try_has_more_time)
{
    struct dialer_setup setup = usual;

    setup.attempts_max = 1;
    setup.drops_slow = true;
    setup.slow_shift = 2;
    begin(&setup);
    want(0, 2);
    for (int i = 0; i < 10; i++) {
        uint64_t slow_ns = setup.slow_connect_ns << (i / 2 < 2 ? i / 2 : 2);
        assert_true(output() && order.why == DIAL_START);
        assert_false(output());
        now_ns += slow_ns - 1;
        assert_false(output());
        now_ns++;
        assert_true(output() && order.why == DIAL_MAKES_ROOM);
        now_ns += 2 * NS_PER_S;
    }
    begin(&setup);
    want(0, 3);
    assert_order(DIAL_START, 0);
    open_one(0);
    now_ns += 300 * MS;
    dialer_secured(&dialer, &targets[0], now_ns);
    dialer_kept(&dialer, &targets[0], MS, now_ns);
    assert_order(DIAL_START, 1);
    open_one(1);
    now_ns += setup.slow_handshake_ns + 4 * 300 * MS - 1;
    assert_nothing();
    now_ns++;
    assert_order(DIAL_MAKES_ROOM, 1);
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

/* A network of addresses that are dead, refuse, are slow or lose connections: bounds hold at every
 * moment, and all that can be reached are, in time. */
TEST(all_that_answer_are_reached)
{
    static uint64_t event_ns[TARGETS];

    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct dialer_setup setup = usual;
        struct prng prng;
        int missing = 0;
        setup.seed = seed;
        setup.attempts_max = 6 + (int)(seed % 40);
        setup.tier_max = setup.attempts_max - 2; /* neither tier starves the other */
        setup.adapts = seed % 2;
        setup.drops_slow = seed % 3 == 0;
        setup.slow_shift = 6;
        begin(&setup);
        prng_init(&prng, seed);
        for (int i = 0; i < TARGETS; i++) {
            targets[i].network = 1 + (uint64_t)(setup.adapts ? i % 17 : i);
            targets[i].tier = !setup.adapts && i % 5 == 0;
            missing += i % 3 != 0; /* every third one is dead */
            event_ns[i] = NEVER_NS;
            dialer_want(&dialer, &targets[i], now_ns + prng_below(&prng, NS_PER_S));
        }
        while (missing > 0) {
            assert_true(now_ns < START + 600 * NS_PER_S);
            while (output())
                event_ns[order.target->key] = order.why == DIAL_START && order.target->key % 3
                                                  ? now_ns + 1 + prng_below(&prng, 90 * MS)
                                                  : NEVER_NS;
            int busy = 0, next = -1;
            for (int i = 0; i < TARGETS; i++) {
                busy += dial_target_busy(&targets[i]);
                if (event_ns[i] != NEVER_NS && (next < 0 || event_ns[i] < event_ns[next]))
                    next = i;
            }
            assert_in_range(busy, 0, setup.attempts_max);
            uint64_t due_ns = dialer_deadline(&dialer);
            assert_true(due_ns > now_ns);
            if (next < 0 || due_ns <= event_ns[next]) {
                now_ns = due_ns;
                continue;
            }
            now_ns = event_ns[next];
            event_ns[next] = NEVER_NS;
            if (prng_below(&prng, 4) == 0) {
                dialer_failed(&dialer, &targets[next], (enum dial_fault)prng_below(&prng, 6), now_ns);
                continue;
            }
            hold(next);
            dialer_kept(&dialer, &targets[next], MS, now_ns);
            missing--;
        }
    }
}
