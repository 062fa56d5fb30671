/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that ran in another instance of the cluster: formed again only when nobody can run them there. */
#include "jobs_fixture.h"
#include "people.h"
#include "support/suite.h"

#define ALL    0xfffu
#define SETTLE (300 * NS_PER_MS)
#define SOON   (60 * NS_PER_MS) /* a few ways there and back */

static struct jobs_fixture fixture;
static struct control_socket *const members = fixture.members;
static struct view ran; /* of five machines, in instance 66; processes of before */

static int open_five(void **state)
{
    jobs_fixture_open(&fixture, 5, 1);
    ran = people(5, 0);
    ran.instance = 66;
    for (int i = 0; i < 5; i++)
        ran.members[i].id.instance += 0x100;
    return 0;
}

static int close_jobs_fixture(void **state)
{
    jobs_fixture_close(&fixture);
    return 0;
}

static void here(unsigned bits)
{
    jobs_fixture_view(&fixture, bits, __builtin_ctz(bits), ALL, true);
}

static void request(int control, const struct view *remembered)
{
    assert_int_equal(jobs_fixture_request(&fixture, control, "train", 2, "v=1"), HEARTH_OK);
    assert_int_equal(jobs_remember(members[control].jobs, "train", remembered, fixture.now_ns), HEARTH_OK);
}

TEST_WITH(two_that_restart_do_not_begin_it_beside_three, open_five, close_jobs_fixture)
{
    here(0x6);
    request(1, &ran);
    request(2, &ran);
    jobs_fixture_run(&fixture, 60 * NS_PER_S);
    jobs_fixture_assert_group(&fixture, 0);
    assert_string_equal(jobs_fixture_why_not(&fixture, 1, "train"),
                        "it ran with 5 members, and may run without this side: waiting for node-0, node-3, "
                        "node-4 (to start it again: hearth job forget train)");
    here(0x16); /* a third one has restarted: the other two decide nothing any more */
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    jobs_fixture_assert_group(&fixture, 0x6); /* it need not ask for the job: it does not run it */
}

/* No restart at all: who is cut off may join machines that have never run it. */
TEST_WITH(nor_do_two_that_were_cut_off, open_five, close_jobs_fixture)
{
    ran = people(5, 0);
    ran.instance = 66;
    here(0x7);
    request(0, NULL);
    request(1, &ran);
    request(2, &ran);
    jobs_fixture_run(&fixture, 10 * NS_PER_S);
    jobs_fixture_assert_group(&fixture, 0x7); /* 0, 1 and 2 are three of the five */
    for (int i = 0; i < 3; i++)
        jobs_end(members[i].jobs, members[i].group.id, fixture.now_ns);
    for (int i = 0; i < 3; i++)
        members[i].group.id = 0;
    ran.members[0].id.node.bytes[5] = 1; /* somebody else had been there instead of 0 */
    fixture.view.instance = 99;
    fixture.view.size = 0;
    here(0x7);
    request(0, NULL);
    request(1, &ran);
    request(2, &ran);
    jobs_fixture_run(&fixture, 60 * NS_PER_S);
    jobs_fixture_assert_group(&fixture, 0);
}

TEST_WITH(after_a_power_cut_they_begin_at_once, open_five, close_jobs_fixture)
{
    here(0x1f);
    jobs_fixture_run(&fixture, SOON);
    for (int i = 0; i < 5; i++)
        request(i, &ran);
    jobs_fixture_run(&fixture, SOON);
    jobs_fixture_assert_group(&fixture, 0x1f);
}

TEST_WITH(a_person_may_say_that_it_runs_nowhere, open_five, close_jobs_fixture)
{
    here(0x6);
    request(1, &ran);
    request(2, &ran);
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    assert_int_equal(jobs_remember(members[1].jobs, "train", NULL, fixture.now_ns), HEARTH_OK);
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    jobs_fixture_assert_group(&fixture, 0); /* the other one remembers it still */
    assert_int_equal(jobs_remember(members[2].jobs, "train", NULL, fixture.now_ns), HEARTH_OK);
    jobs_fixture_run(&fixture, SOON);
    jobs_fixture_assert_group(&fixture, 0x6);
}

/* Of one instance only the last view counts: four of the five had gone from it before the fifth restarted. */
TEST_WITH(who_remembers_more_is_believed, open_five, close_jobs_fixture)
{
    struct view later = ran;

    later.epoch++;
    later.size = 1;
    later.members[0] = ran.members[2];
    here(0x6);
    request(1, &ran);
    jobs_fixture_run(&fixture, SOON);
    request(2, &later);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    jobs_fixture_assert_group(&fixture, 0x6);
}

/* Who has an old record joins what was rightly begun here. */
TEST_WITH(what_runs_here_was_begun_rightly, open_five, close_jobs_fixture)
{
    here(0x7);
    for (int i = 0; i < 2; i++)
        request(i, NULL);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    jobs_fixture_assert_group(&fixture, 0x3);
    request(2, &ran);
    jobs_fixture_run(&fixture, SOON);
    assert_string_equal(jobs_fixture_why_not(&fixture, 2, "train"),
                        "it runs with 2 members and takes new ones when it forms again");
    for (int i = 0; i < 2; i++)
        jobs_end(members[i].jobs, members[i].group.id, fixture.now_ns);
    for (int i = 0; i < 2; i++)
        request(i, &fixture.view);
    jobs_fixture_run(&fixture, SOON);
    jobs_fixture_assert_group(&fixture, 0x7);
}

/* ---- Who may forget it ---- */

static void form_three(void)
{
    here(0x7);
    for (int i = 0; i < 3; i++)
        request(i, NULL);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    jobs_fixture_assert_group(&fixture, 0x7);
    for (int i = 0; i < 3; i++)
        assert_true(jobs_whole(members[i].jobs, members[i].group.id));
}

TEST_WITH(a_group_that_all_leave_was_whole, open_five, close_jobs_fixture)
{
    struct identity first = person(0).id;

    form_three();
    jobs_end(members[2].jobs, members[2].group.id, fixture.now_ns); /* it closes its group */
    jobs_fixture_run(&fixture, SOON);
    assert_true(members[1].ended);
    assert_true(jobs_whole(members[1].jobs, members[1].group.id));
    jobs_left(members[1].jobs, &first); /* and this one the cluster */
    jobs_fixture_crash(&fixture, 0);
    here(0x6);
    assert_true(jobs_whole(members[1].jobs, members[1].group.id));
    assert_false(jobs_whole(members[2].jobs, members[2].group.id)); /* not held any more */
}

TEST_WITH(a_group_that_lost_somebody_was_not, open_five, close_jobs_fixture)
{
    form_three();
    jobs_fixture_crash(&fixture, 0);
    here(0x6);
    for (int i = 1; i < 3; i++)
        assert_false(jobs_whole(members[i].jobs, members[i].group.id));
    assert_true(jobs_runs(members[1].jobs, "train") == false);
}

TEST_WITH(nor_was_one_that_was_cut_off, open_five, close_jobs_fixture)
{
    form_three();
    jobs_stranded(members[1].jobs, fixture.now_ns);
    assert_false(jobs_whole(members[1].jobs, members[1].group.id));
}
