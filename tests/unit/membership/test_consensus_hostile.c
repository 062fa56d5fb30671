/* SPDX-License-Identifier: Apache-2.0 */
/* A member that lies, one lie after the other; all together under faults: tests/sim/test_consensus.c. */
#include "circle.h"
#include "membership/consensus_state.h"
#include "support/suite.h"

static const struct view *view_of(const struct circle *c, int who)
{
    return consensus_view(c->who[who]);
}

static void open_linked(struct circle *c, int size)
{
    circle_open(c, size);
    circle_start(c);
    circle_link_all(c);
    circle_run(c, NS_PER_S);
    for (int i = 0; i < size; i++)
        assert_int_equal(view_of(c, i)->size, size);
}

static void assert_agreed(const struct circle *c, int size, uint64_t instance)
{
    assert_true(circle_leader(c) >= 0);
    for (int i = 0; i < c->size; i++) {
        if (!c->who[i])
            continue;
        assert_int_equal(view_of(c, i)->size, size);
        assert_int_equal(view_of(c, i)->instance, instance);
        assert_int_equal(view_of(c, i)->epoch, view_of(c, circle_leader(c))->epoch);
    }
}

static uint8_t bytes[VIEW_LEN_MAX + 128];

/* What `from` says to `to`, though its consensus did not. Well-formed messages are never refused. */
static void lie(struct circle *c, int from, int to, uint8_t kind, const struct writer *w)
{
    const char *what;
    assert_false(w->bad);
    assert_int_equal(
        consensus_input(c->who[to],
                        &(struct received){&c->info[from].id, kind, bytes, (size_t)(w->at - bytes)},
                        c->now_ns, &what),
        HEARTH_OK);
}

/* The largest term there can be, in every message that has one. */
static void lie_about_terms(struct circle *c, int from, int to)
{
    const struct view *own = view_of(c, to);
    struct vote_request call = {own->instance, own->epoch, TERM_MAX, TRIES_MIN};
    struct answer no = {
        .instance = own->instance, .epoch = own->epoch, .term = TERM_MAX, .promised = TERM_MAX};
    struct view next = *own;
    struct writer w = writer_of(bytes, sizeof bytes);
    call_put(&w, &call);
    lie(c, from, to, MESSAGE_CALL, &w);
    w = writer_of(bytes, sizeof bytes);
    answer_put(&w, &no, NULL);
    lie(c, from, to, MESSAGE_VOTE, &w);
    lie(c, from, to, MESSAGE_ACCEPT, &w);
    next.epoch++;
    next.term = TERM_MAX;
    next.leader = view_find(&next, &c->info[from].id);
    w = writer_of(bytes, sizeof bytes);
    put_u64(&w, TERM_MAX);
    view_put(&w, &next);
    lie(c, from, to, MESSAGE_PROPOSE, &w);
}

TEST(no_message_uses_up_the_terms)
{
    for (int role = 0; role < 2; role++) {
        struct circle c;
        open_linked(&c, 4);
        uint64_t instance = view_of(&c, 0)->instance;
        int leader = circle_leader(&c), liar = role == 0 ? leader : (leader + 1) % 4;
        for (int i = 0; i < 100; i++)
            for (int to = 0; to < 4; to++)
                if (to != liar)
                    lie_about_terms(&c, liar, to);
        circle_run(&c, NS_PER_S);
        circle_die(&c, liar, PARTING_BROKE); /* it was put out */
        circle_run(&c, 5 * NS_PER_S);
        assert_agreed(&c, 3, instance);
        circle_die(&c, circle_leader(&c), PARTING_BROKE);
        circle_run(&c, 5 * NS_PER_S);
        assert_agreed(&c, 2, instance);
        assert_true(view_of(&c, circle_leader(&c))->term < UINT64_C(1) << 32);
        circle_close(&c);
    }
}

TEST(one_alone_is_no_evidence_of_a_view)
{
    const uint64_t later[] = {1, 2, 1000, EPOCH_STEP + 1, TERM_MAX - 1000};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        for (int without = 0; without < 2; without++) {
            struct circle c;
            open_linked(&c, 4);
            int liar = (circle_leader(&c) + 1) % 4, to = (liar + 1) % 4;
            struct view forged = *view_of(&c, to);
            uint64_t instance = forged.instance, epoch = forged.epoch;
            forged.epoch += later[i];
            forged.leader = view_find(&forged, &c.info[liar].id);
            if (without) { /* "you are out" */
                int out = view_find(&forged, &c.info[to].id);
                forged.members[out] = forged.members[forged.size - 1];
                forged.size--;
                forged.leader = view_find(&forged, &c.info[liar].id);
            }
            struct writer w = writer_of(bytes, sizeof bytes);
            view_put(&w, &forged);
            lie(&c, liar, to, MESSAGE_VIEW, &w);
            circle_run(&c, 100 * NS_PER_MS);
            assert_int_equal(view_of(&c, to)->epoch, epoch);
            assert_int_equal(view_of(&c, to)->instance, instance);
            circle_die(&c, liar, PARTING_BROKE);
            circle_run(&c, 2 * NS_PER_S);
            assert_agreed(&c, 3, instance);
            assert_int_equal(view_of(&c, to)->epoch, epoch + 1);
            circle_close(&c);
        }
    }
}

static void propose(struct circle *c, int from, int to, uint64_t term, uint32_t process)
{
    struct view next = *view_of(c, to);
    struct writer w = writer_of(bytes, sizeof bytes);
    next.epoch++;
    next.term = term;
    next.leader = view_find(&next, &c->info[from].id);
    next.members[next.leader].process = process; /* so that no two are the same */
    put_u64(&w, term);
    view_put(&w, &next);
    lie(c, from, to, MESSAGE_PROPOSE, &w);
}

/* The answer that `who` gave last; others are dropped. */
static bool accepted(struct circle *c, int who)
{
    struct outbox_message *message;
    struct answer answer = {.yes = false};
    while ((message = outbox_take(&c->outbox[who]))) {
        struct reader r = reader_of(message->payload, message->len);
        if (message->kind == MESSAGE_ACCEPT)
            assert_true(answer_get(&r, &answer, NULL));
        heap_free(message);
    }
    return answer.yes;
}

TEST(only_who_was_elected_proposes_and_once)
{
    struct circle c;
    open_linked(&c, 5); /* two of five decide nothing */
    int leader = circle_leader(&c), other = (leader + 1) % 5, to = (leader + 2) % 5;
    uint64_t term = view_of(&c, to)->term;
    (void)accepted(&c, to);
    propose(&c, other, to, term, 1);
    assert_false(accepted(&c, to));
    propose(&c, other, to, term + 1, 1);
    assert_false(accepted(&c, to));
    propose(&c, leader, to, term, 1);
    assert_true(accepted(&c, to));
    propose(&c, leader, to, term, 1); /* it was lost */
    assert_true(accepted(&c, to));
    propose(&c, leader, to, term, 2);
    assert_false(accepted(&c, to));
    circle_close(&c);
}

/* A vote that is handed over comes with promises, which may be lies. */
TEST(no_heir_is_made_useless)
{
    struct circle c;
    open_linked(&c, 4);
    int leader = circle_leader(&c), liar = (leader + 1) % 4;
    uint64_t instance = view_of(&c, 0)->instance;
    struct answer last = {
        .instance = instance, .epoch = view_of(&c, 0)->epoch, .promised = TERM_MAX, .yes = true};
    struct writer w = writer_of(bytes, sizeof bytes);
    answer_put(&w, &last, NULL);
    lie(&c, liar, leader, MESSAGE_LEAVE, &w);
    circle_die(&c, liar, PARTING_LEFT);
    circle_run(&c, 2 * NS_PER_S);
    assert_agreed(&c, 3, instance);
    circle_die(&c, leader, PARTING_BROKE);
    circle_run(&c, 2 * NS_PER_S);
    assert_agreed(&c, 2, instance);
    circle_close(&c);
}

/* It asks to be taken in after an epoch that never comes: that changes no view again and again. */
TEST(a_request_out_of_reach_is_not_granted)
{
    struct circle c;
    open_linked(&c, 3);
    int leader = circle_leader(&c), liar = (leader + 1) % 3;
    uint64_t epoch = view_of(&c, leader)->epoch;
    struct beat b = {.stamp_ns = 1,
                     .instance = 99,
                     .epoch = 1,
                     .request = view_of(&c, leader)->instance,
                     .request_after = UINT64_C(1) << 40,
                     .size = 1,
                     .every_ms = 1000};
    c.mute[liar] = true;
    for (int i = 0; i < 10; i++) {
        struct writer w = writer_of(bytes, sizeof bytes);
        beat_put(&w, &b);
        lie(&c, liar, leader, MESSAGE_BEAT, &w);
        circle_run(&c, 100 * NS_PER_MS);
    }
    assert_true(view_of(&c, leader)->epoch <= epoch + 1); /* it is out */
    circle_close(&c);
}
