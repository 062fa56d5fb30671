/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of jobs, one at a time, on a network that keeps what it promises. */
#include "jobs_fixture.h"
#include "people.h"
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

static void assert_group(unsigned bits)
{
    jobs_fixture_assert_group(&fixture, bits);
}

static const char *why_not(int control, const char *job)
{
    return jobs_fixture_why_not(&fixture, control, job);
}

/* ---- Forming ---- */

TEST_WITH(all_form_at_once, open_four, close_jobs_fixture)
{
    for (int i = 0; i < 4; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0xf);
    assert_string_equal(why_not(1, "train"), "");
    assert_true(jobs_running(members[0].jobs) && jobs_running(members[1].jobs));
    assert_false(jobs_busy(members[0].jobs, fixture.now_ns)); /* it has just begun */
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    assert_true(jobs_busy(members[0].jobs, fixture.now_ns));
    assert_false(jobs_busy(members[1].jobs, fixture.now_ns)); /* the leader says so */
}

TEST_WITH(some_form_when_nobody_else_comes, open_four, close_jobs_fixture)
{
    request(1, "train", 2);
    jobs_fixture_run(&fixture, 2 * SETTLE);
    assert_group(0);
    assert_string_equal(why_not(1, "train"), "1 of 2 are there: node-1");
    request(2, "train", 2);
    jobs_fixture_run(&fixture, SETTLE - SOON);
    assert_group(0);
    assert_string_equal(why_not(2, "train"), "2 are there: it forms as soon as no other node joins");
    request(3, "train", 1);
    jobs_fixture_run(&fixture, SETTLE - SOON); /* the wait began anew */
    assert_group(0);
    jobs_fixture_run(&fixture, 2 * SOON);
    assert_group(0xe);
}

TEST_WITH(the_largest_min_counts, open_four, close_jobs_fixture)
{
    request(0, "train", 1);
    request(1, "train", 3);
    jobs_fixture_run(&fixture, 2 * SETTLE);
    assert_group(0);
    assert_string_equal(why_not(0, "train"), "2 of 3 are there: node-0, node-1");
    request(2, "train", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_group(0x7);
}

TEST_WITH(guests_are_not_waited_for, open_four, close_jobs_fixture)
{
    struct view view = fixture.view;

    view.epoch++;
    view.members[3].features |= PEER_GUEST;
    fixture.view = view;
    for (int i = 0; i < 4; i++)
        jobs_view(members[i].jobs, &view, i == 0, true, fixture.now_ns);
    for (int i = 0; i < 3; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0x7);
}

TEST_WITH(guests_alone_wait_for_others, open_four, close_jobs_fixture)
{
    struct view view = fixture.view;

    view.epoch++;
    view.size = 1;
    view.members[0].features |= PEER_GUEST;
    jobs_view(members[0].jobs, &view, true, true, fixture.now_ns);
    request(0, "train", 1);
    jobs_fixture_run(&fixture, SETTLE - SOON);
    assert_group(0);
    jobs_fixture_run(&fixture, 2 * SOON);
    assert_group(0x1);
}

TEST_WITH(nothing_forms_without_quorum, open_four, close_jobs_fixture)
{
    for (int i = 0; i < 4; i++)
        jobs_view(members[i].jobs, &fixture.view, false, false, fixture.now_ns);
    for (int i = 0; i < 4; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, 4 * SETTLE);
    assert_group(0);
    assert_string_equal(why_not(1, "train"),
                        "too few members of the cluster are heard; nothing is formed until they are");
    jobs_view(members[1].jobs, &fixture.view, false, true, fixture.now_ns);
    assert_string_equal(why_not(1, "train"),
                        "the leader hears too few members of the cluster; nothing is formed until it does");
    jobs_view(members[0].jobs, &fixture.view, true, true, fixture.now_ns);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0xf);
}

/* Two of four work, and hear nobody else: the other two could form the same job. */
TEST_WITH(a_side_without_quorum_stops, open_four, close_jobs_fixture)
{
    request(2, "red", 2);
    request(3, "red", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_group(0xc);
    for (int i = 2; i < 4; i++) {
        fixture.cut[i] = true;
        jobs_view(members[i].jobs, &fixture.view, false, false, fixture.now_ns);
        jobs_stranded(members[i].jobs, fixture.now_ns);
    }
    jobs_fixture_run(&fixture, SOON);
    for (int i = 2; i < 4; i++) {
        assert_true(members[i].ended);
        assert_non_null(strstr(members[i].ended_text, "too few members"));
        assert_false(jobs_takes_part(members[i].jobs, members[i].group.id));
        assert_int_equal(jobs_lost(members[i].jobs, members[i].group.id), 0); /* each other they still hear */
        fixture.cut[i] = false;
        jobs_view(members[i].jobs, &fixture.view, false, true, fixture.now_ns);
        request(i, "red", 2);
    }
    jobs_fixture_run(&fixture, 2 * SETTLE);
    assert_group(0xc);
    assert_int_equal(members[2].formed_count, 2);
}

TEST_WITH(jobs_do_not_mix, open_four, close_jobs_fixture)
{
    request(0, "red", 2);
    request(1, "blue", 2);
    request(2, "red", 2);
    request(3, "blue", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_string_equal(members[0].group.job, "red");
    assert_string_equal(members[1].group.job, "blue");
    assert_int_equal(members[0].group.id, members[2].group.id);
    assert_int_equal(members[1].group.id, members[3].group.id);
    assert_int_not_equal(members[0].group.id, members[1].group.id);
    assert_int_equal(members[0].group.size, 2);
    assert_int_equal(members[1].group.size, 2);
}

TEST_WITH(order_follows_the_links, open_four, close_jobs_fixture)
{
    static struct topology links;

    topology_reset(&links, &fixture.view);
    for (int i = 0; i < 4; i++) /* 0 and 2 are near each other, so are 1 and 3 */
        for (int j = 0; j < 4; j++)
            topology_path(&links, i, j)->mbit_x10 = i % 2 == j % 2 ? 10000 : 500;
    jobs_links(members[0].jobs, &links);
    jobs_fixture_view(&fixture, 0xf, 0, ALL, true); /* measures of those who stay are kept */
    for (int i = 0; i < 4; i++)
        request(i, "train", 4);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0xf);
    assert_int_equal(members[0].group.sites, 2);
    assert_int_equal(members[0].group.inside_mbit_x10, 10000);
    assert_int_equal(members[0].group.across_mbit_x10, 500);
    int second = jobs_fixture_of(&members[0].group.members[1]);
    assert_int_equal(second, 2);
    assert_int_equal(members[0].group.site[1], 0);
    assert_int_equal(members[0].group.site[2], 1);
    links.epoch = 4711; /* of another view: not taken */
    jobs_links(members[0].jobs, &links);
}

/* ---- Ending ---- */

static int taking_part(int control)
{
    struct identity part[VIEW_MEMBERS_MAX];

    return jobs_taking_part(members[control].jobs, part);
}

/* Who is near to whom is worth a moment, but not more; and nothing where there is no order to choose. */
TEST_WITH(a_map_is_waited_for_but_not_long, open_four, close_jobs_fixture)
{
    jobs_measuring(members[0].jobs, true);
    request(0, "pair", 2);
    request(1, "pair", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_string_equal(members[0].group.job, "pair");
    for (int i = 0; i < 4; i++)
        request(i, "train", 4);
    jobs_fixture_run(&fixture, NS_PER_S);
    assert_string_equal(
        why_not(2, "train"),
        "4 are there: it forms as soon as no other node joins and the paths between them are measured");
    jobs_measuring(members[0].jobs, false);
    jobs_fixture_run(&fixture, SOON);
    assert_string_equal(members[2].group.job, "train");
    jobs_measuring(members[0].jobs, true);
    for (int i = 0; i < 4; i++)
        request(i, "again", 4);
    jobs_fixture_run(&fixture, NS_PER_S);
    assert_string_equal(members[2].group.job, "train");
    jobs_fixture_run(&fixture, NS_PER_S + SOON);
    assert_string_equal(members[2].group.job, "again");
}

/* From the call on they are left alone: the leader knows of all, another one of itself. */
TEST_WITH(who_is_called_takes_part, open_four, close_jobs_fixture)
{
    assert_int_equal(taking_part(0), 0);
    for (int i = 0; i < 3; i++)
        request(i, "train", 3);
    for (uint64_t step_ns = NS_PER_MS; taking_part(0) == 0; jobs_fixture_run(&fixture, step_ns))
        assert_int_equal(taking_part(1), 0); /* the leader knows it first */
    assert_int_equal(taking_part(0), 3);
    jobs_fixture_run(&fixture, SOON);
    assert_int_equal(taking_part(0), 3);
    assert_int_equal(taking_part(1), 1);
    assert_int_equal(taking_part(3), 0);
}

static void form_all(void)
{
    for (int i = 0; i < 4; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0xf);
}

TEST_WITH(a_lost_member_ends_it, open_four, close_jobs_fixture)
{
    uint64_t before;

    form_all();
    before = members[0].group.id;
    jobs_fixture_crash(&fixture, 3);
    members[3].group.id = 0;
    jobs_fixture_view(&fixture, 0x7, 0, 0x7, true);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0);
    for (int i = 0; i < 3; i++)
        assert_string_equal(members[i].ended_text, "node-3 is not a member any more");
    request(0, "train", 2);
    request(1, "train", 2);
    jobs_fixture_run(&fixture, 2 * SETTLE);
    assert_group(0);
    assert_string_equal(why_not(0, "train"), "waiting for nodes that still hold the old group: node-2");
    request(2, "train", 2);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0x7);
    assert_int_not_equal(members[0].group.id, before);
}

TEST_WITH(a_lost_leader_ends_it, open_four, close_jobs_fixture)
{
    form_all();
    jobs_fixture_crash(&fixture, 0);
    members[0].group.id = 0;
    jobs_fixture_view(&fixture, 0xe, 2, 0xe, true);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0);
    for (int i = 1; i < 4; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0xe);
}

TEST_WITH(who_ends_it_ends_it_for_all, open_four, close_jobs_fixture)
{
    form_all();
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    assert_true(jobs_busy(members[0].jobs, fixture.now_ns));
    jobs_end(members[1].jobs, members[1].group.id, fixture.now_ns);
    jobs_fixture_run(&fixture, SOON);
    assert_int_equal(members[1].ended_count, 0); /* it knows */
    members[1].group.id = 0;
    assert_group(0);
    assert_string_equal(members[2].ended_text, "node-1 has left the group");
    for (int i = 0; i < 4; i++)
        assert_false(jobs_running(members[i].jobs)); /* they hold it, but it does not run any more */
    for (int i = 0; i < 4; i++)
        jobs_end(members[i].jobs, members[i].group.id, fixture.now_ns);
    jobs_fixture_run(&fixture, SOON);
    assert_false(jobs_busy(members[0].jobs, fixture.now_ns));
}

/* It was taken out while the job ran, and begins anew, alone. */
TEST_WITH(who_comes_back_is_not_busy, open_four, close_jobs_fixture)
{
    form_all();
    fixture.view.instance++;
    jobs_fixture_view(&fixture, 0x8, 3, 0x8, true);
    for (int i = 0; i < 5; i++) {
        assert_false(jobs_running(members[3].jobs));
        jobs_fixture_run(&fixture, NS_PER_S);
    }
    assert_true(members[3].ended);
}

TEST_WITH(a_running_job_outlives_its_leader, open_four, close_jobs_fixture)
{
    for (int i = 1; i < 4; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_group(0xe);
    jobs_fixture_crash(&fixture, 0);
    jobs_fixture_view(&fixture, 0xe, 1, 0xe, true);
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    assert_group(0xe);
    assert_true(jobs_busy(members[1].jobs, fixture.now_ns));
    jobs_fixture_view(&fixture, 0xe, 3, 0xe, true);
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    assert_group(0xe);
    for (int i = 1; i < 4; i++)
        assert_int_equal(members[i].ended_count, 0);
    jobs_end(members[2].jobs, members[2].group.id, fixture.now_ns); /* the new leader knows who was in it */
    members[2].group.id = 0;
    jobs_fixture_run(&fixture, SOON);
    assert_group(0);
}

TEST_WITH(newcomers_wait_until_it_forms_again, open_four, close_jobs_fixture)
{
    for (int i = 0; i < 3; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_group(0x7);
    request(3, "train", 2);
    jobs_fixture_run(&fixture, 4 * SETTLE);
    assert_group(0x7);
    assert_string_equal(why_not(3, "train"), "it runs with 3 members and takes new ones when it forms again");
    jobs_fixture_run(&fixture, 4 * NS_PER_S); /* what is said to people does not change while nothing does */
    assert_string_equal(why_not(3, "train"), "it runs with 3 members and takes new ones when it forms again");
    jobs_fixture_view(&fixture, 0xb, 0, 0xb, true);
    jobs_fixture_run(&fixture, SOON);
    members[2].group.id = 0;
    assert_group(0);
    request(0, "train", 2);
    request(1, "train", 2);
    jobs_fixture_run(&fixture, SOON);
    assert_group(0xb);
}

TEST_WITH(a_request_taken_back_does_not_count, open_four, close_jobs_fixture)
{
    request(0, "train", 2);
    request(1, "train", 2);
    jobs_withdraw(members[1].jobs, "train", fixture.now_ns);
    jobs_withdraw(members[1].jobs, "other", fixture.now_ns);
    jobs_fixture_run(&fixture, 2 * SETTLE);
    assert_group(0);
}

/* Taken back while the formation is on its way: nobody stays in a group without it. */
TEST_WITH(a_request_taken_back_too_late_ends_it, open_four, close_jobs_fixture)
{
    for (int i = 0; i < 4; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, LATENCY_NS); /* all reports have come, and the forms are sent */
    jobs_withdraw(members[3].jobs, "train", fixture.now_ns);
    jobs_fixture_run(&fixture, SOON);
    assert_int_equal(members[3].formed_count, 0);
    assert_int_equal(members[1].formed_count, 1);
    assert_group(0);
}

/* ---- Who comes and looks ---- */

TEST_WITH(silent_members_are_waited_for_but_not_long, open_four, close_jobs_fixture)
{
    fixture.cut[3] = true;
    jobs_fixture_view(&fixture, 0x7, 0, ALL, true);
    jobs_fixture_view(&fixture, 0xf, 0, ALL, true);
    for (int i = 0; i < 3; i++)
        request(i, "train", 2);
    jobs_fixture_run(&fixture, NS_PER_S);
    assert_group(0);
    assert_string_equal(why_not(1, "train"), "waiting for the first report of: node-3");
    jobs_fixture_run(&fixture, NS_PER_S + SOON);
    assert_group(0x7);
}

TEST_WITH(wanted_jobs_are_told_once, open_four, close_jobs_fixture)
{
    struct job_line lines[BOARD_MAX];

    request(0, "demo", 3);
    request(1, "demo", 3);
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    assert_int_equal(members[0].wanted_count, 0);
    assert_int_equal(members[1].wanted_count, 0);
    assert_int_equal(members[2].wanted_count, 1);
    assert_string_equal(members[3].wanted, "demo");
    assert_int_equal(jobs_board(members[3].jobs, lines), 1);
    assert_string_equal(lines[0].job, "demo");
    assert_int_equal(lines[0].min, 3);
    assert_int_equal(lines[0].waiting, 2);
    assert_int_equal(lines[0].running, 0);
    request(2, "demo", 1);
    jobs_fixture_run(&fixture, 2 * SETTLE);
    assert_group(0x7);
    assert_int_equal(jobs_board(members[3].jobs, lines), 1);
    assert_int_equal(lines[0].waiting, 0);
    assert_int_equal(lines[0].running, 3);
    for (int i = 0; i < 3; i++)
        jobs_end(members[i].jobs, members[i].group.id, fixture.now_ns);
    jobs_fixture_run(&fixture, SOON);
    assert_int_equal(jobs_board(members[3].jobs, lines), 0);
    assert_int_equal(members[3].wanted_count, 1);
    request(0, "demo", 3); /* once more */
    jobs_fixture_run(&fixture, SOON);
    assert_int_equal(members[3].wanted_count, 2);
    assert_int_equal(members[2].wanted_count, 2);
}

/* ---- Refusals ---- */

TEST_WITH(other_settings_are_refused, open_four, close_jobs_fixture)
{
    assert_int_equal(jobs_fixture_request(&fixture, 0, "train", 2, "algo=ring dtype=f32 codec=none"),
                     HEARTH_OK);
    jobs_fixture_run(&fixture, SOON);
    assert_int_equal(jobs_fixture_request(&fixture, 1, "train", 2, "algo=ring dtype=f16 codec=topk"),
                     HEARTH_OK);
    assert_int_equal(jobs_fixture_request(&fixture, 2, "train", 2, "algo=ring dtype=f32 codec=none"),
                     HEARTH_OK);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_group(0x5);
    assert_int_equal(members[1].refused_count, 1);
    assert_int_equal(members[1].refused, HEARTH_REASON_SETTINGS_DIFFER);
    assert_string_equal(members[1].refused_text,
                        "others ask for job train with other settings: dtype=f16 here, dtype=f32 there");
    /* While it runs, too: not only when it forms again. */
    assert_int_equal(jobs_fixture_request(&fixture, 3, "train", 2, "algo=ring dtype=f32"), HEARTH_OK);
    assert_int_equal(jobs_fixture_request(&fixture, 1, "train", 2, "dtype=f32 algo=ring codec=none"),
                     HEARTH_OK);
    jobs_fixture_run(&fixture, SOON);
    assert_string_equal(members[3].refused_text,
                        "others ask for job train with other settings: nothing here, codec=none there");
    assert_string_equal(members[1].refused_text,
                        "others ask for job train with other settings: dtype=f32 here, algo=ring there");
    assert_string_equal(why_not(3, "train"), "this node does not ask for it");
}

TEST_WITH(settings_of_those_who_left_do_not_count, open_four, close_jobs_fixture)
{
    assert_int_equal(jobs_fixture_request(&fixture, 0, "train", 2, "v=1"), HEARTH_OK);
    jobs_fixture_run(&fixture, SOON);
    jobs_withdraw(members[0].jobs, "train", fixture.now_ns);
    assert_int_equal(jobs_fixture_request(&fixture, 1, "train", 2, "v=2"), HEARTH_OK);
    assert_int_equal(jobs_fixture_request(&fixture, 2, "train", 2, "v=2"), HEARTH_OK);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_group(0x6);
}

static int error_of(const struct job_request *request, const char *words)
{
    struct error error;
    int status = jobs_request(members[1].jobs, request, 0, fixture.now_ns, &error);

    if (!strstr(error.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, error.text);
    return status;
}

TEST_WITH(bad_requests_are_refused_at_once, open_four, close_jobs_fixture)
{
    const struct job_request good = {.job = "train", .min = 2, .settings = "v=1"};
    struct job_request bad = good;
    struct error error;

    bad.job[0] = '\0';
    assert_int_equal(error_of(&bad, "1 to 63 printable"), HEARTH_INVALID);
    memset(bad.job, 'x', sizeof bad.job);
    assert_int_equal(error_of(&bad, "1 to 63 printable"), HEARTH_INVALID);
    bad = good;
    bad.job[1] = '\n';
    assert_int_equal(error_of(&bad, "1 to 63 printable"), HEARTH_INVALID);
    bad = good;
    bad.min = 65;
    assert_int_equal(error_of(&bad, "1 to 64"), HEARTH_INVALID);
    bad.min = 0;
    assert_int_equal(error_of(&bad, "1 to 64"), HEARTH_INVALID);
    bad = good;
    bad.settings[0] = '\t';
    assert_int_equal(error_of(&bad, "settings"), HEARTH_INVALID);
    bad = good;
    bad.place_len = JOB_PLACE_MAX + 1;
    assert_int_equal(error_of(&bad, "at most 384"), HEARTH_INVALID);
    assert_int_equal(jobs_request(members[1].jobs, &good, 0, fixture.now_ns, &error), HEARTH_OK);
    assert_int_equal(error_of(&good, "asks for job train already"), HEARTH_INVALID);
    bad = good;
    for (int i = 1; i < JOBS_MAX; i++) {
        snprintf(bad.job, sizeof bad.job, "job %d", i);
        assert_int_equal(jobs_request(members[1].jobs, &bad, 0, fixture.now_ns, &error), HEARTH_OK);
    }
    bad.job[0] = 'x';
    assert_int_equal(error_of(&bad, "16 jobs"), HEARTH_LIMIT);
    request(2, "train", 2);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    assert_int_equal(error_of(&good, "takes part in job train already"), HEARTH_INVALID);
}

TEST_WITH(too_many_jobs_of_all_are_refused, open_four, close_jobs_fixture)
{
    char job[JOB_NAME_MAX];

    jobs_fixture_close(&fixture);
    jobs_fixture_open(&fixture, 5, 1);
    jobs_fixture_view(&fixture, 0x1f, 0, ALL, true);
    for (int i = 0; i < 65; i++) {
        snprintf(job, sizeof job, "job %d", i);
        request(i / JOBS_MAX, job, 2);
        jobs_fixture_run(&fixture, SOON);
    }
    assert_int_equal(members[4].refused_count, 1);
    assert_int_equal(members[4].refused, HEARTH_REASON_BUSY);
    assert_non_null(strstr(members[4].refused_text, "64 jobs"));
}

TEST_WITH(no_memory_is_no_harm, open_four, close_jobs_fixture)
{
    for (int i = 0; i < 4; i++)
        request(i, "train", 2);
    for (int i = 0; i < 200; i++) { /* messages are lost, too: they need memory */
        fixture.heap.fail_after = i % 7;
        fixture.double_percent = 0;
        jobs_fixture_run(&fixture, 20 * NS_PER_MS);
    }
    fixture.heap.fail_after = -1;
    jobs_fixture_run(&fixture, 2 * NS_PER_S);
    assert_group(0xf);
}
