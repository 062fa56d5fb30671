/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that can be formed anew, on virtual time: whatever a member's going ends, it ends with one code on
 * every survivor, and so does all that comes later. */
#include "mix.h"
#include "support/suite.h"
#include "support/watchdog.h"

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static const char advice[] = "; hearth_group_reform gives the next group";

enum going { CLOSES, IS_CUT_OFF, IS_GIVEN_UP, LOSES_ONE, IS_TOLD, GOINGS };

/* Whoever notices tells the others, and all know the same; some of a closed one's goodbyes do not arrive. */
static bool reason_fits(enum going how, enum hearth_reason reason)
{
    switch (how) {
    case CLOSES:
        return reason == HEARTH_REASON_PEER_LEFT || reason == HEARTH_REASON_PEER_CLOSED;
    case IS_GIVEN_UP:
        return reason == HEARTH_REASON_PEER_REMOVED;
    case IS_TOLD:
        return reason == HEARTH_REASON_NONE;
    default:
        return reason == HEARTH_REASON_PEER_CLOSED;
    }
}

static void give_up(struct sim *sim, int who)
{
    for (int r = 0; r < sim->size; r++)
        if (r != who)
            node_members_lost(sim->nodes[r], UINT64_C(1) << who, "it is not a member any more");
}

static void go(struct sim *sim, struct mix *mix, int who, enum going how)
{
    switch (how) {
    case CLOSES:
        mix_close_node(mix, sim, who);
        return;
    case IS_CUT_OFF:
        sim_cut_off(sim, who);
        return;
    case IS_GIVEN_UP:
        give_up(sim, who);
        return;
    case LOSES_ONE:
        mem_net_cut(sim->net, who, (who + 1) % sim->size);
        return;
    default:
        for (int r = 0; r < sim->size; r++) {
            node_view_changed(sim->nodes[r], "the cluster has another view");
            node_view_changed(sim->nodes[r], "and one more");
        }
    }
}

/* Who has called before somebody went and who calls afterwards: all hear the same. */
static void check_codes(const struct mix *mix, const struct sim *sim, int who, enum going how)
{
    for (int i = 0; i < mix->count; i++) {
        for (int r = 0; r < sim->size; r++) {
            const struct job_member *m = &mix->jobs[i].member[r];
            if (!sim->nodes[r] || ((how == IS_CUT_OFF || how == IS_GIVEN_UP) && r == who) ||
                m->status == HEARTH_OK)
                continue;
            if (m->status != HEARTH_VIEW_CHANGED || !reason_fits(how, m->error.reason))
                fail_msg("%s: rank %d: %s, %s: %s", job_name(&mix->jobs[i]), r, hearth_status_name(m->status),
                         hearth_reason_name(m->error.reason), m->error.text);
            if ((how == IS_CUT_OFF || how == IS_GIVEN_UP) && m->error.rank != who)
                fail_msg("%s: rank %d names rank %d, not %d: %s", job_name(&mix->jobs[i]), r, m->error.rank,
                         who, m->error.text);
        }
    }
}

static void check_later(struct sim *sim, int who, enum going how)
{
    for (int r = 0; r < sim->size; r++) {
        hearth_request *request = NULL;
        if (!sim->nodes[r] || (how == LOSES_ONE && r != who))
            continue;
        assert_int_equal(hearth_barrier_nb(sim_world(sim, r), NULL, &request), HEARTH_VIEW_CHANGED);
        assert_true(ends_with(hearth_error_text(), advice));
        if (how == IS_TOLD)
            assert_non_null(strstr(hearth_error_text(), "the cluster has another view"));
    }
}

/* How many calls ended badly: that there are some at all. */
static uint64_t failures(const struct mix *mix, int size)
{
    uint64_t count = 0;
    for (int i = 0; i < mix->count; i++)
        for (int r = 0; r < size; r++)
            count += mix->jobs[i].member[r].status == HEARTH_VIEW_CHANGED;
    return count;
}

static uint64_t run_going(uint64_t seed)
{
    static struct mix mix;
    struct sim sim;
    struct prng prng;
    prng_init(&prng, seed);
    int size = 2 + (int)prng_below(&prng, 4);
    sim_draw(&sim, size, seed);
    sim.loss = HEARTH_VIEW_CHANGED;
    sim_start(&sim);
    mix_draw(&mix, &sim, seed, 65536);
    int who = (int)prng_below(&prng, (uint64_t)size);
    enum going how = (enum going)prng_below(&prng, GOINGS);
    for (uint64_t steps = prng_below(&prng, 300); steps > 0 && mix_step(&mix, &sim, NEVER_NS); steps--)
        continue;
    go(&sim, &mix, who, how);
    uint64_t until = sim.now_ns + 1000 * NS_PER_S;
    while (mix_step(&mix, &sim, until))
        continue;
    check_codes(&mix, &sim, who, how);
    mix_check(&mix); /* inputs as promised */
    sim_run_until(&sim, sim.now_ns + 10 * NS_PER_S);
    check_later(&sim, who, how);
    uint64_t failed = failures(&mix, size);
    mix_free(&mix);
    sim_stop(&sim);
    return failed;
}

TEST_WITH(one_code_for_every_survivor, NULL, say_seed)
{
    assert_true(run_seeds(300, 0, run_going) > repeat_count(300));
}

/* One is told that the view is another; the others hear it from what it had in flight. */
TEST(whoever_is_told_first_tells_the_others)
{
    struct sim sim;
    static struct job first, second;
    sim_init(&sim, 3, 1);
    sim.loss = HEARTH_VIEW_CHANGED;
    sim_start(&sim);
    job_plain(&first, 3, 100);
    job_plain(&second, 3, 100);
    job_post_all(&first, &sim, 2);
    sim_run_until(&sim, sim.now_ns + NS_PER_MS);
    node_view_changed(sim.nodes[0], "another view");
    sim_run_until(&sim, sim.now_ns + NS_PER_MS);
    assert_true(job_collect(&first, sim.now_ns));
    for (int r = 0; r < 2; r++)
        assert_int_equal(first.member[r].status, HEARTH_VIEW_CHANGED);
    job_check_all(&first);
    for (int r = 0; r < 3; r++) /* rank 2 too: it heard of what it had not called yet */
        assert_int_equal(job_post(&second, sim_world(&sim, r), r), HEARTH_VIEW_CHANGED);
    hearth_group *child = NULL;
    assert_int_equal(hearth_group_split(sim_world(&sim, 0), 1, 0, NULL, &child), HEARTH_VIEW_CHANGED);
    assert_int_equal(hearth_group_same(sim_world(&sim, 1), "x", 1, NULL, NULL), HEARTH_VIEW_CHANGED);
    job_free(&first);
    job_free(&second);
    sim_stop(&sim);
}

static int one_that_is_done(const struct job *job)
{
    for (int r = 0; r < job->size; r++)
        if (job->member[r].status != HEARTH_PENDING)
            return r;
    return RANK_NONE;
}

static int still_at_it(const struct job *job)
{
    int count = 0;
    for (int r = 0; r < job->size; r++)
        count += job->member[r].status == HEARTH_PENDING;
    return count;
}

/* Whoever is done first closes, and the others hear at once that it has left: they finish what it has given
 * all that they need for. */
TEST(the_last_operation_outlives_who_closes)
{
    int unfinished = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sim sim;
        static struct job last;
        sim_draw(&sim, 4, seed);
        sim.loss = HEARTH_VIEW_CHANGED;
        sim_start(&sim);
        job_plain(&last, 4, 20000);
        job_post_all(&last, &sim, RANK_NONE);
        for (bool more = true; more && one_that_is_done(&last) == RANK_NONE; job_collect(&last, sim.now_ns))
            more = sim_step(&sim, NEVER_NS);
        int first = one_that_is_done(&last);
        unfinished += still_at_it(&last);
        sim_close_node(&sim, first);
        last.member[first].request = NULL;
        give_up(&sim, first);
        sim_run_until(&sim, sim.now_ns + 100 * NS_PER_S);
        assert_true(job_collect(&last, sim.now_ns));
        for (int r = 0; r < 4; r++)
            assert_ok(last.member[r].status);
        job_check_all(&last);
        job_free(&last);
        sim_stop(&sim);
    }
    assert_true(unfinished > 40);
}
