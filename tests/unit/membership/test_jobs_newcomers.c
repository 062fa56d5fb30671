/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks for a job that runs already, or has ended. */
#include "jobs_fixture.h"
#include "support/suite.h"

#define ALL    0xfffu
#define SETTLE (300 * NS_PER_MS)
#define SOON   (60 * NS_PER_MS) /* a few ways there and back */

static struct jobs_fixture fixture;
static struct control_socket *const members = fixture.members;

static int open_four(void **state)
{
    jobs_fixture_open(&fixture, 4, 1);
    jobs_fixture_view(&fixture, 0xf, 0, ALL, true);
    jobs_fixture_run(&fixture, SOON);
    return 0;
}

static int close_jobs_fixture(void **state)
{
    jobs_fixture_close(&fixture);
    return 0;
}

static void request(int control, const char *job, int min)
{
    assert_int_equal(jobs_fixture_request(&fixture, control, job, min, "v=1"), HEARTH_OK);
}

/* So that a program can take them in where it likes. */
TEST_WITH(members_are_told_of_newcomers_once, open_four, close_jobs_fixture)
{
    for (int i = 0; i < 3; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    for (int i = 0; i < 3; i++)
        assert_int_equal(members[i].wanted_count, 0);
    request(3, "train", 2);
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    assert_int_equal(members[3].wanted_count, 1); /* before it asked itself */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(members[i].wanted_count, 1);
        assert_string_equal(members[i].wanted, "train");
    }
    jobs_end(members[1].jobs, members[1].group.id, fixture.now_ns); /* one of them forms it again */
    request(1, "train", 2);
    jobs_fixture_run(&fixture, SOON);
    for (int i = 0; i < 3; i += 2) {
        assert_true(members[i].ended);
        request(i, "train", 2);
    }
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    jobs_fixture_assert_group(&fixture, 0xf);
    for (int i = 0; i < 4; i++)
        assert_int_equal(members[i].wanted_count, 1);
}

TEST_WITH(who_comes_too_late_hears_that_it_has_ended, open_four, close_jobs_fixture)
{
    for (int i = 0; i < 3; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    for (int i = 0; i < 3; i++)
        jobs_end(members[i].jobs, members[i].group.id, fixture.now_ns);
    jobs_fixture_run(&fixture, 60 * NS_PER_S);
    request(3, "train", 2);
    jobs_fixture_run(&fixture, SOON);
    assert_string_equal(jobs_fixture_why_not(&fixture, 3, "train"),
                        "it ran with 3 members and has ended; to begin it again, "
                        "1 of 2 are there: node-3");
    request(1, "train", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    for (int i = 0; i < 4; i += 2)
        members[i].group.id = 0;
    jobs_end(members[1].jobs, members[1].group.id, fixture.now_ns);
    jobs_fixture_run(&fixture, SOON);
    request(2, "train", 3); /* the other one holds it still */
    jobs_fixture_run(&fixture, SOON);
    assert_string_equal(jobs_fixture_why_not(&fixture, 2, "train"),
                        "waiting for nodes that still hold the old group: node-3");
}
