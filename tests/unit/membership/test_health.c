/* SPDX-License-Identifier: Apache-2.0 */
/* Health of a peer: silence, broken connections, our own pauses, latency. */
#include "membership/health.h"
#include "support/suite.h"

#define MS NS_PER_MS

static struct health begin(uint64_t now_ns)
{
    struct health h;
    health_init(&h, health_preset_find("default"), now_ns);
    return h;
}

/* Ticks when it wants to be ticked; gives the number of beats. */
static int run(struct health *h, uint64_t from_ns, uint64_t until_ns)
{
    int beats = 0;
    for (uint64_t now = from_ns; now < until_ns;) {
        beats += health_tick(h, now);
        uint64_t next = health_deadline(h);
        assert_true(next > now);
        now = next;
    }
    health_tick(h, until_ns);
    return beats;
}

TEST(presets_are_known_by_name)
{
    const char *const names[] = {"default", "low-latency", "high-latency"};
    for (int i = 0; i < 3; i++) {
        const struct health_preset *p = health_preset_find(names[i]);
        assert_non_null(p);
        assert_string_equal(p->name, names[i]);
        assert_true(p->beat_ns * (uint64_t)p->unhealthy_after < p->dead_ns);
        assert_true(p->reconnect_ns < p->dead_ns);
    }
    assert_null(health_preset_find("hasty"));
    assert_int_equal(health_preset_find("default")->dead_ns, 3 * NS_PER_S);
    assert_int_equal(health_preset_find("default")->reconnect_ns, 500 * MS);
    assert_string_equal(health_state_name(HEALTH_UNHEALTHY), "unhealthy");
    assert_string_equal(health_state_name(HEALTH_DEAD), "dead");
}

TEST(silence_is_suspicious_then_death)
{
    struct health h = begin(0);
    assert_int_equal(h.state, HEALTH_UNKNOWN);
    health_linked(&h, 0);
    assert_int_equal(h.state, HEALTH_HEALTHY);
    assert_true(run(&h, 0, 10) == 1); /* a beat at once */
    run(&h, 10, 2300 * MS);
    assert_true(h.state == HEALTH_DEGRADED || h.state == HEALTH_UNHEALTHY);
    run(&h, 2300 * MS, 2999 * MS);
    assert_int_not_equal(h.state, HEALTH_DEAD);
    health_tick(&h, 3000 * MS);
    assert_int_equal(h.state, HEALTH_DEAD);
    struct health cut = h; /* the owner closes the connection: it died of silence all the same */
    health_unlinked(&cut, 3100 * MS);
    assert_true(cut.silent);
    health_heard(&h, 3500 * MS);
    assert_int_equal(h.state, HEALTH_HEALTHY);
}

TEST(misses_make_it_unhealthy)
{
    struct health h = begin(0);
    health_linked(&h, 0);
    assert_true(health_tick(&h, 0));
    assert_false(health_tick(&h, 1));
    assert_true(health_tick(&h, 1300 * MS));
    assert_int_equal(h.state, HEALTH_DEGRADED);
    assert_true(health_tick(&h, 2600 * MS));
    assert_int_equal(h.state, HEALTH_UNHEALTHY);
    health_heard(&h, 2700 * MS);
    assert_int_equal(h.state, HEALTH_HEALTHY);
    assert_int_equal(h.failed, 2);
}

TEST(who_is_heard_lives_for_ever)
{
    struct health h = begin(5);
    int beats = 0;
    health_linked(&h, 5);
    for (uint64_t s = 0; s < 100; s++) {
        beats += run(&h, 5 + s * NS_PER_S, 5 + (s + 1) * NS_PER_S);
        health_answer(&h, 2 * MS, 5 + (s + 1) * NS_PER_S);
        assert_int_equal(h.state, HEALTH_HEALTHY);
    }
    assert_in_range(beats, 90, 112);
    assert_int_equal(h.answered, 100);
    assert_true(health_uptime(&h) == 1.0);
}

TEST(a_broken_connection_has_half_a_second)
{
    struct health h = begin(0);
    health_linked(&h, 0);
    health_heard(&h, 21 * NS_PER_S);
    health_unlinked(&h, 21 * NS_PER_S);
    assert_int_equal(h.state, HEALTH_UNHEALTHY);
    assert_int_equal(health_deadline(&h), 21500 * MS);
    assert_false(health_tick(&h, 21499 * MS)); /* no beat without a connection */
    assert_int_equal(h.state, HEALTH_UNHEALTHY);
    health_heard(&h, 21499 * MS); /* a late message is no connection */
    health_tick(&h, 21500 * MS);
    assert_int_equal(h.state, HEALTH_DEAD);
    assert_false(h.silent);
    assert_int_equal(health_deadline(&h), NEVER_NS);
    health_linked(&h, 30 * NS_PER_S);
    assert_int_equal(h.state, HEALTH_HEALTHY);
    assert_true(health_tick(&h, 30 * NS_PER_S));
}

TEST(who_never_was_joined_is_dead_after_a_while)
{
    struct health h = begin(0);
    health_tick(&h, 2999 * MS);
    assert_int_equal(h.state, HEALTH_UNKNOWN);
    health_tick(&h, 3000 * MS);
    assert_int_equal(h.state, HEALTH_DEAD);
}

TEST(our_own_pause_is_not_its_silence)
{
    struct health h = begin(0);
    health_linked(&h, 0);
    health_tick(&h, 0);
    health_paused(&h, 100 * NS_PER_S); /* we were asleep */
    health_tick(&h, 100 * NS_PER_S);
    assert_int_equal(h.state, HEALTH_HEALTHY);
    run(&h, 100 * NS_PER_S, 102900 * MS);
    assert_int_not_equal(h.state, HEALTH_DEAD);
    health_tick(&h, 103 * NS_PER_S);
    assert_int_equal(h.state, HEALTH_DEAD); /* it is silent now, too */
}

TEST(latency_is_an_average_with_a_fifth_for_the_new_one)
{
    struct health h = begin(0);
    health_linked(&h, 0);
    health_answer(&h, 10 * MS, 1);
    assert_int_equal(h.latency_ns, 10 * MS);
    health_answer(&h, 20 * MS, 2);
    assert_int_equal(h.latency_ns, 12 * MS);
    health_answer(&h, 200 * MS, 3); /* 4 times the average and long: seen at once */
    assert_int_equal(h.state, HEALTH_DEGRADED);
    assert_int_equal(h.last_latency_ns, 200 * MS);
    health_answer(&h, 10 * MS, 4);
    assert_int_equal(h.state, HEALTH_HEALTHY);
    h.failed = 4;
    assert_true(health_uptime(&h) == 0.5);
}

TEST(a_full_line_does_not_make_the_way_longer)
{
    struct health h = begin(0);
    health_linked(&h, 0);
    health_answer(&h, 10 * MS, 1);
    health_answer(&h, MS, 2);
    assert_int_equal(h.least_latency_ns, MS);
    for (uint64_t i = 0; i < 5; i++)
        health_answer(&h, 40 * MS, 3 + i);
    assert_in_range(h.least_latency_ns, MS, 2 * MS);
    for (uint64_t i = 0; i < 100; i++)
        health_answer(&h, 40 * MS, 10 + i);
    assert_int_equal(h.least_latency_ns, 40 * MS); /* it is longer, after all */
}
