/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of jobs that are old, doubled, from the wrong one or of another time: each is seen for what it is.
 */
#include "jobs_fixture.h"
#include "membership/jobs_messages.h"
#include "people.h"
#include "support/suite.h"

#define START  (100 * NS_PER_S)
#define SETTLE (300 * NS_PER_MS)
#define SOON   (60 * NS_PER_MS)

/* ---- One machine: person 1 of three, and the test writes its messages ---- */

static struct heap heap;
static struct outbox box;
static struct jobs *jobs;
static struct view view;
static struct job_news news;
static uint8_t bytes[MESSAGE_PAYLOAD_MAX];
static struct report report;
static struct form form;
static struct board board;

static void open_machine(int leader)
{
    heap_init(&heap, 0);
    outbox_init(&box, &heap);
    struct jobs_setup setup = {
        .heap = &heap, .outbox = &box, .self = person(1).id, .seed = 9, .now_ns = START};
    assert_int_equal(jobs_open(&setup, &jobs), HEARTH_OK);
    view = people(3, leader); /* instance 77, epoch 5, term 3 */
    jobs_view(jobs, &view, leader == 1, true, START);
}

static int open_follower(void **state)
{
    open_machine(0);
    return 0;
}

static int open_leader(void **state)
{
    open_machine(1);
    return 0;
}

static int close_machine(void **state)
{
    jobs_close(jobs);
    outbox_fini(&box);
    return heap.blocks == 0 ? 0 : -1;
}

static void request_with(const char *job, int min)
{
    struct job_request request = {.min = min, .place_len = 1, .place = "p"};
    struct error error;

    snprintf(request.job, sizeof request.job, "%s", job);
    assert_int_equal(jobs_request(jobs, &request, 0, START, &error), HEARTH_OK);
}

static void request(const char *job)
{
    request_with(job, 1);
}

static int input(int from, uint8_t kind, size_t len, uint64_t now_ns)
{
    struct identity id = person(from).id;
    const char *what = NULL;

    return jobs_input(jobs, &(struct received){&id, kind, bytes, len}, now_ns, &what);
}

/* A formation of persons 0 and 1 in site 0 for the request with this serial. */
static void write_form(uint64_t serial)
{
    memset(&form, 0, sizeof form);
    form.spec = (struct group_spec){.id = 9, .job = "red", .size = 2, .sites = 1, .instance = 77, .epoch = 5};
    form.spec.term = 3;
    for (int i = 0; i < 2; i++) {
        form.spec.members[i] = person(i).id;
        form.serial[i] = serial;
    }
}

static bool form_is_taken(int from)
{
    size_t len = form_encode(&form, bytes, sizeof bytes);

    assert_int_equal(input(from, MESSAGE_FORM, len, START), HEARTH_OK);
    return jobs_news(jobs, &news) && news.kind == JOB_FORMED;
}

TEST_WITH(forms_must_fit_request_and_view, open_follower, close_machine)
{
    request("red"); /* serial 1 */
    jobs_withdraw(jobs, "red", START);
    request("red"); /* serial 2 */
    write_form(1);
    assert_false(form_is_taken(0));
    write_form(2);
    assert_false(form_is_taken(2)); /* does not lead */
    assert_false(form_is_taken(7)); /* a stranger */
    form.spec.term = 2;
    assert_false(form_is_taken(0));
    write_form(2);
    form.spec.instance = 78;
    assert_false(form_is_taken(0));
    write_form(2);
    form.spec.members[0] = person(8).id; /* not in the view */
    assert_false(form_is_taken(0));
    write_form(2);
    form.spec.members[1] = person(2).id; /* we are not in it */
    assert_false(form_is_taken(0));
    write_form(2);
    memcpy(form.spec.job, "tan", 4);
    assert_false(form_is_taken(0));
    write_form(2);
    assert_true(form_is_taken(0));
    assert_int_equal(news.spec->rank, 1);
    assert_false(form_is_taken(0)); /* once more: not news */
    jobs_end(jobs, 9, START);
    assert_false(form_is_taken(0)); /* once more, but it was ended */
}

TEST_WITH(a_leader_cannot_make_a_group_smaller, open_follower, close_machine)
{
    request_with("red", 3);
    write_form(1); /* of two */
    assert_false(form_is_taken(0));
    jobs_withdraw(jobs, "red", START);
    request_with("red", 2);
    write_form(2);
    assert_true(form_is_taken(0));
}

TEST_WITH(the_owner_may_be_late, open_follower, close_machine)
{
    struct identity gone = person(0).id;
    size_t len;

    request("red");
    write_form(1);
    len = form_encode(&form, bytes, sizeof bytes);
    assert_int_equal(input(0, MESSAGE_FORM, len, START), HEARTH_OK);
    jobs_withdraw(jobs, "red", START); /* before it looked: that ends it */
    assert_false(jobs_news(jobs, &news));
    request("red");
    write_form(2);
    assert_true(form_is_taken(0));
    jobs_withdraw(jobs, "red", START); /* it is no request any more */
    view.size = 2;                     /* persons 0 and 1 are left */
    view.epoch++;
    jobs_view(jobs, &view, false, true, START);
    assert_false(jobs_news(jobs, &news));
    view.members[0] = person(5);
    view.epoch++;
    jobs_view(jobs, &view, false, true, START);
    assert_true(jobs_news(jobs, &news));
    assert_int_equal(news.kind, JOB_ENDED);
    assert_int_equal(news.id, 9);
    assert_string_equal(news.text, "node-0 is not a member any more");
    assert_true(identity_equal(&news.who, &gone));
    request("red"); /* lets go of the old one */
}

static void give_board(uint64_t term, uint64_t sequence, const char *job)
{
    memset(&board, 0, sizeof board);
    board = (struct board){.instance = 77, .term = term, .sequence = sequence, .heard = 1, .lines = 1};
    snprintf(board.line[0].line.job, JOB_NAME_MAX, "%s", job);
    board.line[0].line.waiting = 1;
    size_t len = board_encode(&board, bytes, sizeof bytes);
    assert_int_equal(input(0, MESSAGE_BOARD, len, START), HEARTH_OK);
}

TEST_WITH(boards_must_be_newer, open_follower, close_machine)
{
    struct job_line lines[BOARD_MAX];

    give_board(3, 5, "red");
    give_board(3, 4, "blue");
    give_board(3, 5, "blue");
    give_board(2, 9, "blue");
    assert_int_equal(jobs_board(jobs, lines), 1);
    assert_string_equal(lines[0].job, "red");
    give_board(3, 6, "green");
    assert_int_equal(jobs_board(jobs, lines), 1);
    assert_string_equal(lines[0].job, "green");
    view.leader = 2;
    view.term = view.epoch = 9;
    jobs_view(jobs, &view, false, true, START);
    assert_int_equal(jobs_board(jobs, lines), 0);
    give_board(9, 1, "tan"); /* of the leader before */
    assert_int_equal(jobs_board(jobs, lines), 0);
}

TEST_WITH(ends_and_refusals_count_once, open_follower, close_machine)
{
    request("red");
    write_form(1);
    assert_true(form_is_taken(0));
    request("blue"); /* serial 2 */
    memset(&board, 0, sizeof board);
    board = (struct board){.instance = 77, .term = 3, .sequence = 1, .ended = 2, .refused = 2};
    board.end[0] = (struct board_end){8, person(2).id, "not ours"};
    board.end[1] = (struct board_end){9, person(0).id, "node-0 has left the group"};
    board.refusal[0] = (struct board_refusal){1, HEARTH_REASON_BUSY, "not this one"};
    board.refusal[1] = (struct board_refusal){2, HEARTH_REASON_SETTINGS_DIFFER, "v=2 here, v=1 there"};
    for (int i = 0; i < 2; i++) {
        size_t len = board_encode(&board, bytes, sizeof bytes);
        assert_int_equal(input(0, MESSAGE_BOARD, len, START), HEARTH_OK);
        int wanted = i == 0 ? 2 : 0;
        for (int k = 0; k < wanted; k++) {
            assert_true(jobs_news(jobs, &news));
            assert_string_equal(news.text,
                                news.kind == JOB_ENDED ? "node-0 has left the group" : "v=2 here, v=1 there");
            assert_true(news.kind == JOB_ENDED || news.reason == HEARTH_REASON_SETTINGS_DIFFER);
            assert_string_equal(news.job, news.kind == JOB_ENDED ? "red" : "blue");
        }
        assert_false(jobs_news(jobs, &news));
    }
}

/* ---- The leader ---- */

static int least = 2; /* members that reported requests ask for */

static void give_report(int from, uint64_t term, uint64_t sequence, uint64_t serial)
{
    report = (struct report){.instance = 77, .term = term, .sequence = sequence};
    if (serial > 0) {
        report.requests = 1;
        report.request[0] = (struct report_request){.serial = serial, .min = least, .job = "red"};
    }
    size_t len = report_encode(&report, bytes, sizeof bytes);
    assert_int_equal(input(from, MESSAGE_REPORT, len, START), HEARTH_OK);
}

static int forms_sent(uint64_t now_ns)
{
    struct outbox_message *message;
    int count = 0;

    jobs_tick(jobs, now_ns);
    while ((message = outbox_take(&box))) {
        count += message->kind == MESSAGE_FORM;
        heap_free(message);
    }
    return count;
}

TEST_WITH(reports_must_be_newer, open_leader, close_machine)
{
    give_report(0, 3, 5, 0);
    give_report(0, 3, 4, 1); /* overtaken by the one that took the request back */
    give_report(2, 3, 5, 1);
    assert_int_equal(forms_sent(START), 0);
    assert_int_equal(forms_sent(START + 2 * SETTLE), 0);
    give_report(0, 2, 6, 1); /* of another term */
    give_report(7, 3, 6, 1); /* a stranger */
    assert_int_equal(forms_sent(START + 4 * SETTLE), 0);
    give_report(0, 3, 6, 1);
    assert_int_equal(forms_sent(START + 6 * SETTLE), 2);
    assert_int_equal(forms_sent(START + 6 * SETTLE + 1), 0);
    assert_int_equal(forms_sent(START + 7 * SETTLE), 2); /* they have not answered */
}

TEST_WITH(reports_of_others_formations_are_refused, open_leader, close_machine)
{
    struct identity members[2] = {person(0).id, person(2).id};

    report = (struct report){.instance = 77, .term = 3, .sequence = 1, .parts = 1};
    report.part[0] = (struct report_part){.spec = 4, .size = 2, .job = "red", .members = members};
    size_t len = report_encode(&report, bytes, sizeof bytes);
    assert_int_equal(input(0, MESSAGE_REPORT, len, START), HEARTH_OK);
    assert_true(jobs_busy(jobs, START)); /* another leader formed it: nobody knows for how long it runs */
    members[0] = person(1).id;
    len = report_encode(&report, bytes, sizeof bytes);
    assert_int_equal(input(0, MESSAGE_REPORT, len, START), HEARTH_PROTOCOL);
    assert_int_equal(input(0, MESSAGE_BEAT, len, START), HEARTH_PROTOCOL);
}

TEST_WITH(another_term_begins_with_nothing, open_leader, close_machine)
{
    least = 1;
    give_report(0, 3, 5, 1);
    give_report(2, 3, 5, 1);
    view.term = view.epoch = 9;
    jobs_view(jobs, &view, true, true, START);
    assert_int_equal(forms_sent(START + NS_PER_S), 0);
    give_report(0, 9, 6, 1);
    assert_int_equal(forms_sent(START + NS_PER_S), 0); /* what does person 2 do? */
    give_report(2, 9, 6, 1);
    assert_int_equal(forms_sent(START + NS_PER_S), 2);
    least = 2;
}

/* ---- Between machines ---- */

static struct jobs_fixture fixture;

static int open_three(void **state)
{
    jobs_fixture_open(&fixture, 3, 1);
    jobs_fixture_view(&fixture, 7, 0, 7, true);
    jobs_fixture_run(&fixture, SOON);
    return 0;
}

static int close_jobs_fixture(void **state)
{
    jobs_fixture_close(&fixture);
    return 0;
}

static void all_request(void)
{
    for (int i = 0; i < 3; i++)
        assert_int_equal(jobs_fixture_request(&fixture, i, "red", 2, ""), HEARTH_OK);
}

/* Somebody that closes its group and then asks for the job anew is waited for. */
TEST_WITH(who_lets_go_may_come_again, open_three, close_jobs_fixture)
{
    all_request();
    jobs_fixture_run(&fixture, SOON);
    for (int i = 0; i < 2; i++)
        jobs_end(fixture.members[i].jobs, fixture.members[i].group.id, fixture.now_ns);
    for (int i = 0; i < 2; i++)
        assert_int_equal(jobs_fixture_request(&fixture, i, "red", 2, ""), HEARTH_OK);
    jobs_fixture_run(&fixture, NS_PER_S);
    jobs_end(fixture.members[2].jobs, fixture.members[2].group.id, fixture.now_ns);
    jobs_fixture_run(&fixture, SETTLE / 2);
    assert_int_equal(jobs_fixture_request(&fixture, 2, "red", 2, ""), HEARTH_OK);
    jobs_fixture_run(&fixture, SOON);
    assert_int_equal(fixture.members[0].group.size, 3);
    assert_int_equal(fixture.members[2].formed_count, 2);
}

/* Members that know sooner than the leader itself that it leads are asked again. */
TEST_WITH(reports_that_come_too_early_are_told_again, open_three, close_jobs_fixture)
{
    all_request();
    jobs_fixture_view(&fixture, 7, 1, 5, true);
    jobs_fixture_run(&fixture, SOON);
    jobs_view(fixture.members[1].jobs, &fixture.view, true, true, fixture.now_ns);
    jobs_fixture_run(&fixture, SOON);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fixture.members[i].formed_count, 1);
}

/* Two parts form the same job, each for itself: persons 0 and 1, then the others. */
static void form_twice(void)
{
    jobs_fixture_open(&fixture, 5, 1);
    fixture.view.instance = 1;
    jobs_fixture_view(&fixture, 0x03, 0, 0x03, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(jobs_fixture_request(&fixture, i, "red", 2, ""), HEARTH_OK);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    fixture.view.instance = 2;
    jobs_fixture_view(&fixture, 0x1c, 2, 0x1c, true);
    for (int i = 2; i < 5; i++)
        assert_int_equal(jobs_fixture_request(&fixture, i, "red", 2, ""), HEARTH_OK);
    jobs_fixture_run(&fixture, SETTLE + SOON);
    for (int i = 0; i < 5; i++)
        assert_int_equal(fixture.members[i].group.size, i < 2 ? 2 : 3);
}

TEST(groups_that_have_just_begun_become_one)
{
    form_twice();
    jobs_fixture_view(&fixture, 0x1f, 2, 0x1f, true);
    jobs_fixture_run(&fixture, SOON);
    for (int i = 0; i < 5; i++) {
        assert_true(fixture.members[i].ended);
        assert_non_null(strstr(fixture.members[i].ended_text, "two groups of this job"));
        uint64_t lost = jobs_lost(fixture.members[i].jobs, fixture.members[i].group.id);
        assert_int_equal(lost, fixture.members[i].group.rank == 0 ? 0 : 1); /* nobody goes on with rank 0 */
        assert_int_equal(jobs_fixture_request(&fixture, i, "red", 2, ""), HEARTH_OK);
    }
    jobs_fixture_run(&fixture, SETTLE + SOON);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture.members[i].group.size, 5);
        assert_false(fixture.members[i].ended);
    }
    jobs_fixture_close(&fixture);
}

/* Those who come wait until it forms again; who works is not disturbed. */
TEST(a_group_that_lasts_stays)
{
    form_twice();
    jobs_fixture_run(&fixture, 3 * NS_PER_S);
    jobs_fixture_view(&fixture, 0x1f, 2, 0x1f, true);
    jobs_fixture_run(&fixture, SOON);
    for (int i = 0; i < 5; i++)
        assert_int_equal(fixture.members[i].ended, i < 2);
    assert_string_equal(fixture.members[0].ended_text, "the job runs in another group already");
    for (int i = 0; i < 2; i++)
        assert_int_equal(jobs_fixture_request(&fixture, i, "red", 2, ""), HEARTH_OK);
    jobs_fixture_run(&fixture, NS_PER_S);
    for (int i = 0; i < 2; i++)
        assert_true(fixture.members[i].ended); /* nothing new was formed */
    jobs_fixture_close(&fixture);
}

TEST(a_machine_without_view_is_quiet)
{
    char text[JOB_TEXT_MAX];

    heap_init(&heap, 0);
    outbox_init(&box, &heap);
    struct jobs_setup setup = {.heap = &heap, .outbox = &box, .self = person(1).id, .now_ns = START};
    assert_int_equal(jobs_open(&setup, &jobs), HEARTH_OK);
    request("red");
    assert_true(jobs_deadline(jobs) == NEVER_NS);
    jobs_tick(jobs, START);
    assert_null(outbox_take(&box));
    jobs_why_not(jobs, "red", text, sizeof text);
    assert_non_null(strstr(text, "too few members"));
    view = people(3, 0);
    jobs_view(jobs, &view, false, true, START);
    assert_true(jobs_deadline(jobs) <= START);
    jobs_why_not(jobs, "red", text, sizeof text);
    assert_string_equal(text, "waiting for the leader, node-0, to hear of it");
    jobs_tick(jobs, START);
    assert_true(jobs_deadline(jobs) == START + NS_PER_S);
    jobs_close(jobs);
    outbox_fini(&box);
    assert_int_equal(heap.blocks, 0);
}
