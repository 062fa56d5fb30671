/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster as a table and as lines of events, and questions about it. */
#include "cli/cluster/cluster_open.h"
#include "printed.h"
#include "support/suite.h"

#define ID_A "0101010101010101010101010101010101010101010101010101010101010101"
#define ID_B "0202020202020202020202020202020202020202020202020202020202020202"

static struct cluster_status status; /* large */

/* anna is this machine, ben leads. */
static void fill(void)
{
    status = (struct cluster_status){.epoch = 7,
                                     .term = 3,
                                     .state = "member",
                                     .count = 2,
                                     .members = {{.id = ID_A,
                                                  .short_id = "aaaa-bbbb-cccc",
                                                  .name = "anna",
                                                  .state = "self",
                                                  .latency_us = -1,
                                                  .self = true,
                                                  .roles = HEARTH_ROLE_BENCH | HEARTH_ROLE_GUEST},
                                                 {.id = ID_B,
                                                  .short_id = "dddd-eeee-ffff",
                                                  .name = "be\an",
                                                  .state = "degraded",
                                                  .latency_us = 1500,
                                                  .leads = true,
                                                  .roles = HEARTH_ROLE_BENCH | HEARTH_ROLE_DEMO}},
                                     .job_count = 2,
                                     .jobs = {{"hearth-bench", 3, 1, 0}, {"train", 2, 0, 2}}};
    status.rate[0][1] = 100e6;
    status.inside[1][0] = true;
}

TEST(test_questions)
{
    fill();
    assert_int_equal(cluster_status_count(&status, HEARTH_ROLE_BENCH), 1); /* without this one */
    assert_int_equal(cluster_status_count(&status, HEARTH_ROLE_DEMO), 1);
    assert_int_equal(cluster_status_count(&status, HEARTH_ROLE_GUEST), 0);
    assert_true(cluster_status_measured(&status, HEARTH_ROLE_BENCH));
    status.inside[1][0] = false;
    assert_false(cluster_status_measured(&status, HEARTH_ROLE_BENCH));
    assert_true(cluster_status_measured(&status, HEARTH_ROLE_GUEST)); /* none but this one */
    assert_true(cluster_status_wanted(&status, "hearth-bench"));
    assert_false(cluster_status_wanted(&status, "train"));
    assert_false(cluster_status_wanted(&status, "other"));
}

/* A machine with two members has one set of ways. */
TEST(test_paths)
{
    fill();
    assert_true(cluster_status_path(&status, ID_A, ID_B) == 100e6);
    assert_true(cluster_status_path(&status, ID_B, ID_A) < 0);
    assert_true(cluster_status_path(&status, ID_A, ID_A) < 0);
    assert_true(cluster_status_path(&status, ID_A, "x") == 0);
    status.members[2] = status.members[0];
    status.count = 3;
    status.rate[0][1] = 0;
    status.rate[2][1] = 5;
    assert_true(cluster_status_path(&status, ID_A, ID_B) == 5);
    assert_true(cluster_status_measured(&status, HEARTH_ROLE_BENCH));
}

TEST(test_table)
{
    struct printed out;
    fill();
    int lines = cluster_table_draw(printed_open(&out), &status, "joined ben"), newlines = 0;
    const char *text = printed_text(&out);
    for (const char *c = text; *c; c++) {
        newlines += *c == '\n';
        assert_true(*c == '\n' || (*c >= ' ' && *c < 127)); /* a name cannot ring the terminal's bell */
    }
    assert_int_equal(lines, newlines);
    assert_has(text, "2 members, epoch 7, term 3, member\n");
    assert_has(text, "   anna  aaaa-bbbb-cccc  self");
    assert_has(text, "*  be?n  dddd-eeee-ffff  degraded  1.50 ms  leads, allows");
    assert_has(text, "job hearth-bench: 1 waits, 3 are needed\n");
    assert_has(text, "job train: runs with 2\n");
    assert_has(text, "joined ben\n");
    printed_free(&out);
}

/* What was so before a member died is not shown as if it were so now. */
TEST(test_dead_member)
{
    struct printed out;
    fill();
    snprintf(status.members[1].state, sizeof status.members[1].state, "dead");
    cluster_table_draw(printed_open(&out), &status, NULL);
    assert_has(printed_text(&out), "   be?n  dddd-eeee-ffff  dead          -  allows the demo\n");
    printed_free(&out);
}

TEST(test_events)
{
    static const struct {
        struct hearth_event event;
        const char *text;
    } cases[] = {
        {{.kind = HEARTH_EVENT_LEFT, .name = "ben", .text = "it is silent"}, "left ben: it is silent"},
        {{.kind = HEARTH_EVENT_HEALTH, .name = "ben", .health = "degraded"}, "degraded ben"},
        {{.kind = HEARTH_EVENT_VIEW, .epoch = 9, .members = 1}, "view 9: 1 member"},
        {{.kind = HEARTH_EVENT_JOB_WANTED, .text = "train"}, "job wanted: train"},
    };
    char text[512];
    struct hearth_event event = {
        .size = sizeof event, .kind = HEARTH_EVENT_JOINED, .id = ID_A, .name = "an\033na"};
    cluster_event_text(&event, text, sizeof text);
    assert_int_equal(strncmp(text, "joined an?na ", 13), 0);
    assert_int_equal(strlen(text), 13 + 14); /* and the short form of its id */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cluster_event_text(&cases[i].event, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

TEST(test_lines)
{
    struct printed out;
    struct hearth_event event = {.kind = HEARTH_EVENT_LEADER, .name = "ben"};
    char line[64];
    cluster_event_text(&event, line, sizeof line);
    cluster_line(printed_open(&out), line, 1000000);
    cluster_line(out.file, "a\tb", 1000000);
    const char *text = printed_text(&out);
    assert_int_equal(text[2], ':');
    assert_int_equal(strncmp(text + 8, " leads ben\n", 11), 0);
    assert_has(text, " a?b\n");
    printed_free(&out);
}
