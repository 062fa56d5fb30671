/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the consensus, one by one; all of them together under faults: tests/sim/test_consensus.c. */
#include "circle.h"
#include "support/suite.h"

static const struct view *view_of(const struct circle *c, int who)
{
    return consensus_view(c->who[who]);
}

/* All that live are in one view of so many, as members. */
static void assert_one(const struct circle *c, int size)
{
    const struct view *first = NULL;
    for (int i = 0; i < c->size; i++) {
        if (!c->who[i])
            continue;
        const struct view *own = view_of(c, i);
        first = first ? first : own;
        assert_int_equal(own->size, size);
        assert_int_equal(own->instance, first->instance);
        assert_int_equal(own->epoch, first->epoch);
        assert_int_equal(consensus_state(c->who[i]), CONSENSUS_MEMBER);
    }
    assert_true(circle_leader(c) >= 0);
}

static void assert_apart(const struct circle *c)
{
    for (int i = 0; i < c->size; i++)
        assert_int_equal(view_of(c, i)->size, 1);
}

static void open_linked(struct circle *c, int size)
{
    circle_open(c, size);
    circle_start(c);
    circle_link_all(c);
    circle_run(c, NS_PER_S);
    assert_one(c, size);
}

TEST(who_is_alone_leads_itself)
{
    struct circle c;
    struct hearth_event e;
    char why[128];
    struct identity stranger = person(9).id;
    circle_open(&c, 1);
    circle_start(&c);
    assert_one(&c, 1);
    assert_int_equal(view_of(&c, 0)->epoch, 1);
    assert_true(circle_next_event(&c, 0, &e) && e.kind == HEARTH_EVENT_JOINED);
    assert_string_equal(e.name, "node-0");
    assert_true(circle_next_event(&c, 0, &e) && e.kind == HEARTH_EVENT_LEADER);
    assert_true(circle_next_event(&c, 0, &e) && e.kind == HEARTH_EVENT_VIEW);
    assert_false(circle_next_event(&c, 0, &e));
    assert_int_equal(consensus_deadline(c.who[0]), NEVER_NS);
    assert_null(consensus_health(c.who[0], &stranger));
    consensus_why_not(c.who[0], &stranger, why, sizeof why);
    assert_string_equal(why, "there is no connection to it");
    consensus_why_not(c.who[0], &c.info[0].id, why, sizeof why);
    assert_string_equal(why, "");
    circle_close(&c);
}

TEST(those_who_meet_are_one_and_know_each_other)
{
    struct circle c;
    struct consensus_counts counts;
    open_linked(&c, 4);
    int leader = circle_leader(&c);
    assert_int_equal(view_of(&c, 0)->leader, 0); /* who founded is the most senior */
    assert_true(identity_equal(&view_of(&c, 0)->members[0].id, &c.info[leader].id));
    for (int i = 2; i < 4; i++) /* who came together: by id */
        assert_true(identity_compare(&view_of(&c, 0)->members[i - 1].id, &view_of(&c, 0)->members[i].id) < 0);
    circle_run(&c, 5 * NS_PER_S);
    consensus_count(c.who[leader], &counts);
    assert_int_equal(counts.healthy, 3);
    assert_true(counts.leading_ns > 4 * NS_PER_S);
    const struct health *h = consensus_health(c.who[leader], &c.info[(leader + 1) % 4].id);
    assert_true(h->answered >= 3 && h->failed == 0);
    assert_one(&c, 4);
    circle_close(&c);
}

TEST(two_busy_ones_stay_apart_and_say_so)
{
    struct circle c;
    struct hearth_event e;
    char why[128];
    circle_open(&c, 2);
    circle_start(&c);
    consensus_set_busy(c.who[0], true);
    consensus_set_busy(c.who[1], true);
    circle_link_all(&c);
    circle_run(&c, 10 * NS_PER_S);
    assert_apart(&c);
    for (int i = 0; i < 2; i++) {
        consensus_why_not(c.who[i], &c.info[1 - i].id, why, sizeof why);
        assert_non_null(strstr(why, "jobs run in both"));
        assert_true(circle_event(&c, i, HEARTH_EVENT_TROUBLE, &e));
        assert_non_null(strstr(e.text, c.info[1 - i].name));
        assert_false(circle_event(&c, i, HEARTH_EVENT_TROUBLE, &e)); /* once */
    }
    consensus_set_busy(c.who[0], false);
    circle_run(&c, NS_PER_S);
    assert_one(&c, 2);
    assert_int_equal(circle_leader(&c), 1); /* the busy one goes on */
    circle_close(&c);
}

/* Persons 0 to 2 are one instance, 3 is another, until they meet. */
static void open_three_and_one(struct circle *c)
{
    circle_open(c, 4);
    circle_start(c);
    for (int a = 0; a < 3; a++)
        for (int b = a + 1; b < 3; b++)
            circle_link(c, a, b);
    circle_run(c, NS_PER_S);
    assert_int_equal(view_of(c, 0)->size, 3);
}

static void meet_three_and_one(struct circle *c, uint64_t winner)
{
    for (int i = 0; i < 3; i++)
        circle_link(c, i, 3);
    circle_run(c, NS_PER_S);
    assert_one(c, 4);
    assert_int_equal(view_of(c, 0)->instance, winner);
    circle_close(c);
}

/* A job that has just begun is not disturbed for others that do nothing, but keeps nobody away who works. */
TEST(who_has_begun_wins_over_the_larger_one_but_not_over_the_busy_one)
{
    struct circle c;
    open_three_and_one(&c);
    consensus_set_begun(c.who[3], true);
    meet_three_and_one(&c, view_of(&c, 3)->instance);
    open_three_and_one(&c);
    for (int i = 0; i < 3; i++)
        consensus_set_begun(c.who[i], true);
    consensus_set_busy(c.who[3], true);
    meet_three_and_one(&c, view_of(&c, 3)->instance);
}

TEST(the_busy_one_wins_over_the_larger_one)
{
    struct circle c;
    open_three_and_one(&c);
    consensus_set_busy(c.who[3], true);
    meet_three_and_one(&c, view_of(&c, 3)->instance);
}

TEST(a_copied_key_is_named_and_kept_out)
{
    struct circle c;
    struct hearth_event e;
    char why[128];
    circle_open(&c, 3);
    c.info[1].id.node = c.info[0].id.node;
    circle_start(&c);
    circle_link_all(&c);
    circle_run(&c, 10 * NS_PER_S);
    int out = view_of(&c, 0)->size == 1 ? 0 : 1;
    assert_int_equal(view_of(&c, out)->size, 1);
    assert_int_equal(view_of(&c, 1 - out)->size, 2);
    assert_int_equal(view_of(&c, 2)->size, 2);
    for (int i = 0; i < 3; i++) {
        assert_true(circle_event(&c, i, HEARTH_EVENT_TROUBLE, &e));
        assert_non_null(strstr(e.text, "node-0"));
        assert_non_null(strstr(e.text, "node-1"));
    }
    consensus_why_not(c.who[1 - out], &c.info[out].id, why, sizeof why);
    assert_non_null(strstr(why, "two machines"));
    circle_die(&c, 1 - out, PARTING_LEFT); /* then there is room for the other */
    circle_run(&c, 3 * NS_PER_S);
    assert_one(&c, 2);
    circle_close(&c);
}

TEST(two_processes_of_one_machine_share_a_key)
{
    struct circle c;
    struct hearth_event e;
    circle_open(&c, 2);
    c.info[1].id.node = c.info[0].id.node;
    c.info[1].machine = c.info[0].machine;
    circle_start(&c);
    circle_link_all(&c);
    circle_run(&c, NS_PER_S);
    assert_one(&c, 2);
    assert_false(circle_event(&c, 0, HEARTH_EVENT_TROUBLE, &e));
    circle_close(&c);
}

TEST(a_new_address_is_in_the_next_view)
{
    struct circle c;
    open_linked(&c, 3);
    for (int who = 0; who < 3; who++) {
        uint64_t epoch = view_of(&c, 0)->epoch;
        c.info[who].addrs[0].bytes[3] = 99;
        consensus_describe(c.who[who], &c.info[who], c.now_ns);
        for (int i = 0; i < 3; i++)
            if (i != who)
                consensus_linked(c.who[i], &c.info[who], c.now_ns);
        circle_run(&c, NS_PER_S);
        assert_one(&c, 3);
        assert_int_equal(view_of(&c, 0)->epoch, epoch + 1);
        int index = view_find(view_of(&c, 0), &c.info[who].id);
        assert_int_equal(view_of(&c, 0)->members[index].addrs[0].bytes[3], 99);
    }
    circle_close(&c);
}

TEST(a_guest_never_leads)
{
    for (int guest = 0; guest < 3; guest++) {
        struct circle c;
        circle_open(&c, 3);
        c.info[guest].features = PEER_GUEST;
        circle_start(&c);
        assert_false(consensus_leads(c.who[guest]));
        circle_link(&c, guest, (guest + 1) % 3);
        circle_run(&c, 2 * NS_PER_S);
        assert_false(consensus_leads(c.who[guest]));
        circle_link(&c, guest, (guest + 2) % 3);
        circle_link(&c, (guest + 1) % 3, (guest + 2) % 3);
        circle_run(&c, 2 * NS_PER_S);
        assert_one(&c, 3);
        assert_int_not_equal(circle_leader(&c), guest);
        circle_close(&c);
    }
}

/* A guest and the leader are lost at once: the two voters that are left are a majority of three. */
TEST(a_guest_is_not_missed)
{
    struct circle c;
    circle_open(&c, 4);
    c.info[2].features = PEER_GUEST;
    circle_start(&c);
    circle_link_all(&c);
    circle_run(&c, NS_PER_S);
    assert_one(&c, 4);
    int leader = circle_leader(&c);
    consensus_set_begun(c.who[leader], true); /* so that nobody begins anew */
    circle_run(&c, NS_PER_S);
    circle_die(&c, leader, PARTING_BROKE);
    circle_die(&c, 2, PARTING_BROKE);
    circle_run(&c, 2 * NS_PER_S);
    assert_one(&c, 2);
    circle_close(&c);
}

/* The only voter goes on whatever becomes of its guests, and is not kept alive by them. */
TEST(guests_decide_nothing)
{
    struct circle c;
    struct hearth_event e;
    circle_open(&c, 3);
    c.info[0].features = c.info[1].features = PEER_GUEST;
    circle_start(&c);
    circle_link_all(&c);
    circle_run(&c, NS_PER_S);
    assert_one(&c, 3);
    assert_int_equal(circle_leader(&c), 2);
    circle_die(&c, 0, PARTING_BROKE);
    circle_run(&c, NS_PER_S);
    assert_one(&c, 2);
    consensus_set_begun(c.who[2], true);
    circle_die(&c, 2, PARTING_BROKE);
    circle_run(&c, NS_PER_S);
    assert_int_equal(consensus_state(c.who[1]), CONSENSUS_STRANDED);
    assert_true(circle_event(&c, 1, HEARTH_EVENT_QUORUM_LOST, &e));
    assert_non_null(strstr(e.text, "1 of 1 members are missing (node-2)"));
    circle_close(&c);
}

TEST(guests_alone_wait_for_a_machine_that_stays)
{
    struct circle c;
    char why[CONSENSUS_TEXT_MAX];
    circle_open(&c, 3);
    c.info[0].features = c.info[1].features = PEER_GUEST;
    circle_start(&c);
    circle_link(&c, 0, 1);
    circle_run(&c, 20 * NS_PER_S);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(consensus_state(c.who[i]), CONSENSUS_STRANDED);
        assert_int_equal(view_of(&c, i)->size, 1);
        consensus_why_stranded(c.who[i], why, sizeof why);
        assert_non_null(strstr(why, "run hearth up"));
        consensus_why_not(c.who[i], &c.info[1 - i].id, why, sizeof why);
        assert_non_null(strstr(why, "a guest"));
    }
    circle_link_all(&c);
    circle_run(&c, NS_PER_S);
    assert_one(&c, 3);
    circle_close(&c);
}

/* What becomes of guests is no alarm. */
TEST(a_guest_comes_and_goes_quietly)
{
    struct circle c;
    struct hearth_event e;
    circle_open(&c, 2);
    c.info[1].features = PEER_GUEST;
    circle_start(&c);
    circle_link_all(&c);
    circle_run(&c, NS_PER_S);
    circle_die(&c, 1, PARTING_BROKE);
    circle_run(&c, NS_PER_S);
    bool joined = false, left = false;
    while (circle_next_event(&c, 0, &e)) {
        assert_int_not_equal(e.kind, HEARTH_EVENT_HEALTH);
        joined = joined || (e.kind == HEARTH_EVENT_JOINED && strcmp(e.text, "as a guest") == 0);
        left = left || (e.kind == HEARTH_EVENT_LEFT && strcmp(e.text, "its visit as a guest is over") == 0);
    }
    assert_true(joined && left);
    circle_close(&c);
}

TEST(malformed_messages_change_nothing)
{
    struct circle c;
    uint8_t bytes[64];
    const char *what;
    open_linked(&c, 2);
    struct view before = *view_of(&c, 0);
    for (int kind = MESSAGE_BEAT; kind <= MESSAGE_DISSOLVE; kind++) {
        for (size_t len = 0; len < sizeof bytes; len += 7) {
            memset(bytes, len % 2 && kind != MESSAGE_DISSOLVE ? 0xff : 0, sizeof bytes);
            assert_int_equal(consensus_input(c.who[0],
                                             &(struct received){&c.info[1].id, (uint8_t)kind, bytes, len},
                                             c.now_ns, &what),
                             HEARTH_PROTOCOL);
            assert_true(strlen(what) > 10);
        }
    }
    assert_int_equal(consensus_input(c.who[0], &(struct received){&c.info[1].id, MESSAGE_REPORT, bytes, 1},
                                     c.now_ns, &what),
                     HEARTH_PROTOCOL);
    assert_int_equal(view_of(&c, 0)->epoch, before.epoch);
    circle_run(&c, NS_PER_S);
    assert_one(&c, 2);
    circle_close(&c);
}

/* Two machines, and the one that leads dies: the other cannot know whether it is cut off. */
static void lose_the_leader_of_two(struct circle *c, bool worked)
{
    struct hearth_event e;
    open_linked(c, 2);
    int leader = circle_leader(c), other = 1 - leader;
    consensus_set_busy(c->who[leader], worked);
    circle_run(c, NS_PER_S);
    circle_die(c, leader, PARTING_BROKE);
    circle_run(c, NS_PER_S);
    assert_int_equal(consensus_state(c->who[other]), CONSENSUS_STRANDED);
    assert_int_equal(circle_leader(c), -1);
    assert_true(circle_event(c, other, HEARTH_EVENT_QUORUM_LOST, &e));
    assert_non_null(strstr(e.text, c->info[leader].name));
}

TEST(a_stranded_one_that_never_worked_begins_anew)
{
    struct circle c;
    struct hearth_event e;
    lose_the_leader_of_two(&c, false);
    int other = c.who[0] ? 0 : 1;
    circle_run(&c, 4 * NS_PER_S);
    assert_int_equal(consensus_state(c.who[other]), CONSENSUS_STRANDED);
    circle_run(&c, 3 * NS_PER_S);
    assert_one(&c, 1);
    assert_true(circle_event(&c, other, HEARTH_EVENT_QUORUM_BACK, &e));
    circle_close(&c);
}

TEST(a_stranded_one_that_worked_waits)
{
    struct circle c;
    lose_the_leader_of_two(&c, true);
    int other = c.who[0] ? 0 : 1;
    circle_run(&c, 100 * NS_PER_S);
    assert_int_equal(consensus_state(c.who[other]), CONSENSUS_STRANDED);
    circle_close(&c);
}

/* Also if it has only just begun to: then nobody is busy yet. */
TEST(a_stranded_one_that_has_begun_to_work_waits)
{
    struct circle c;
    open_linked(&c, 2);
    int leader = circle_leader(&c);
    consensus_set_begun(c.who[leader], true);
    circle_run(&c, 100 * NS_PER_MS);
    circle_die(&c, leader, PARTING_BROKE);
    circle_run(&c, 100 * NS_PER_S);
    assert_int_equal(consensus_state(c.who[1 - leader]), CONSENSUS_STRANDED);
    circle_close(&c);
}

TEST(the_leader_of_two_goes_on_alone)
{
    struct circle c;
    struct hearth_event e;
    open_linked(&c, 2);
    int leader = circle_leader(&c);
    circle_die(&c, 1 - leader, PARTING_BROKE);
    circle_run(&c, 400 * NS_PER_MS);
    assert_int_equal(view_of(&c, leader)->size, 2); /* it may come back */
    circle_run(&c, 300 * NS_PER_MS);
    assert_one(&c, 1);
    assert_true(circle_event(&c, leader, HEARTH_EVENT_LEFT, &e));
    assert_non_null(strstr(e.text, "connection"));
    circle_close(&c);
}

TEST(who_leaves_gives_its_vote_to_another)
{
    struct circle c;
    struct hearth_event e;
    open_linked(&c, 2);
    int leader = circle_leader(&c);
    consensus_leave(c.who[leader], c.now_ns);
    assert_int_equal(consensus_state(c.who[leader]), CONSENSUS_GONE);
    assert_int_equal(consensus_deadline(c.who[leader]), NEVER_NS);
    circle_die(&c, leader, PARTING_LEFT);
    circle_run(&c, 100 * NS_PER_MS);
    assert_one(&c, 1);
    assert_int_equal(circle_leader(&c), 1 - leader);
    assert_true(circle_event(&c, 1 - leader, HEARTH_EVENT_LEFT, &e));
    assert_string_equal(e.text, "it left");
    circle_close(&c);
}

/* The connection ends before the next view is agreed on. */
TEST(a_goodbye_is_no_illness)
{
    struct circle c;
    struct hearth_event e;
    open_linked(&c, 3);
    int leader = circle_leader(&c), out = (leader + 1) % 3;
    for (int i = 0; i < c.size; i++)
        c.mute[i] = i != out;
    while (circle_next_event(&c, leader, &e))
        continue;
    consensus_leave(c.who[out], c.now_ns);
    circle_die(&c, out, PARTING_BROKE);
    assert_false(circle_event(&c, leader, HEARTH_EVENT_HEALTH, &e));
    circle_close(&c);
}

TEST(silence_is_death_but_traffic_is_life)
{
    struct circle c;
    open_linked(&c, 2);
    int leader = circle_leader(&c), quiet = 1 - leader;
    c.mute[quiet] = true;
    for (int i = 0; i < 10; i++) { /* beats are lost, pieces of gradients come */
        circle_run(&c, NS_PER_S);
        consensus_heard(c.who[leader], &c.info[quiet].id, c.now_ns);
        assert_int_equal(view_of(&c, leader)->size, 2);
    }
    circle_run(&c, 3500 * NS_PER_MS);
    assert_int_equal(view_of(&c, leader)->size, 1);
    c.mute[quiet] = false;
    circle_run(&c, 2 * NS_PER_S);
    assert_one(&c, 2);
    circle_close(&c);
}

TEST(nobody_dies_while_we_sleep)
{
    struct circle c;
    struct hearth_event e;
    open_linked(&c, 3);
    uint64_t epoch = view_of(&c, 0)->epoch;
    c.now_ns += 100 * NS_PER_S; /* for all of them: a host that stopped */
    circle_run(&c, 2 * NS_PER_S);
    assert_one(&c, 3);
    assert_int_equal(view_of(&c, 0)->epoch, epoch);
    while (circle_next_event(&c, 0, &e))
        assert_false(e.kind == HEARTH_EVENT_HEALTH && strcmp(e.health, "dead") == 0);
    circle_close(&c);
}

TEST(without_memory_it_says_so_or_does_less)
{
    struct circle c;
    struct consensus *a;
    circle_open(&c, 2);
    circle_start(&c);
    struct consensus_setup setup = {
        .heap = &c.heap, .outbox = &c.outbox[0], .self = person(5), .health = health_preset_find("default")};
    c.heap.fail_after = 0;
    assert_int_equal(consensus_open(&setup, &a), HEARTH_NO_MEMORY);
    assert_null(a);
    circle_link_all(&c); /* not even room to remember each other */
    circle_run(&c, NS_PER_S);
    assert_apart(&c);
    c.heap.fail_after = -1;
    circle_link_all(&c);
    circle_run(&c, NS_PER_S);
    assert_one(&c, 2);
    circle_close(&c);
}

TEST(old_events_go_first)
{
    struct circle c;
    struct hearth_event e;
    int count = 0;
    open_linked(&c, 2);
    int leader = circle_leader(&c);
    for (int i = 0; i < 300; i++) {
        c.info[leader].process++;
        consensus_describe(c.who[leader], &c.info[leader], c.now_ns);
        circle_run(&c, 100 * NS_PER_MS);
    }
    uint64_t last = view_of(&c, leader)->epoch;
    assert_true(last > 300);
    while (circle_next_event(&c, leader, &e))
        count++;
    assert_int_equal(count, 256);
    assert_int_equal(e.epoch, last);
    circle_close(&c);
}
