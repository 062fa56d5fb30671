/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of jobs: the largest fit, golden bytes, nothing malformed is taken. */
#include "membership/jobs_messages.h"
#include "people.h"
#include "support/suite.h"

static uint8_t bytes[MESSAGE_PAYLOAD_MAX], again[MESSAGE_PAYLOAD_MAX];
static struct report report, report_back;
static struct form form, form_back;
static struct board board, board_back;

static void long_text(char *text, size_t size, int number)
{
    memset(text, 'a' + number % 26, size - 1);
    text[0] = (char)('!' + number);
    text[size - 1] = '\0';
}

/* ---- The largest ---- */

TEST(the_largest_report_fits)
{
    static struct identity members[VIEW_MEMBERS_MAX];
    static uint8_t place[JOB_PLACE_MAX];
    static struct view ran;
    const char *what = NULL;

    ran = people(VIEW_MEMBERS_MAX, 0);
    for (int i = 0; i < VIEW_MEMBERS_MAX; i++)
        members[i] = person(i).id;
    for (int requests = 0; requests <= JOBS_MAX; requests++) {
        report = (struct report){.instance = 1, .term = 2, .sequence = 3, .requests = requests};
        report.parts = JOBS_MAX - requests;
        for (int i = 0; i < requests; i++) {
            report.request[i] =
                (struct report_request){.serial = 9, .min = 64, .place = place, .place_len = JOB_PLACE_MAX};
            report.request[i].ran = &ran;
            report.request[i].unreached = JOB_UNREACHED_MAX;
            memcpy(report.request[i].unreached_id, members, sizeof report.request[i].unreached_id);
            long_text(report.request[i].job, JOB_NAME_MAX, i);
            long_text(report.request[i].settings, JOB_SETTINGS_MAX, i);
        }
        for (int i = 0; i < report.parts; i++) {
            report.part[i] = (struct report_part){.spec = 9, .over = i % 2, .size = 64, .members = members};
            long_text(report.part[i].job, JOB_NAME_MAX, requests + i);
            long_text(report.part[i].settings, JOB_SETTINGS_MAX, i);
        }
        size_t len = report_encode(&report, bytes, sizeof bytes);
        assert_true(len > 0);
        assert_int_equal(report_decode(&report_back, bytes, len, &what), HEARTH_OK);
        assert_int_equal(report_encode(&report_back, again, sizeof again), len);
        assert_memory_equal(bytes, again, len);
        assert_int_equal(report_encode(&report, bytes, len - 1), 0);
    }
}

TEST(the_largest_form_fits)
{
    struct group_spec *f = &form.spec;
    const char *what = NULL;

    memset(&form, 0, sizeof form);
    f->instance = f->epoch = f->term = f->id = 5;
    f->size = f->sites = VIEW_MEMBERS_MAX;
    long_text(f->job, sizeof f->job, 1);
    for (int i = 0; i < f->size; i++) {
        f->members[i] = person(i).id;
        f->place_len[i] = JOB_PLACE_MAX;
        memset(f->place[i], i, JOB_PLACE_MAX);
        f->done[i] = form.serial[i] = 7 + (uint64_t)i;
        f->site[i] = (uint8_t)i;
    }
    size_t len = form_encode(&form, bytes, sizeof bytes);
    assert_int_equal(len, 28466); /* as docs/cluster_messages.md says */
    assert_int_equal(form_decode(&form_back, bytes, len, &what), HEARTH_OK);
    assert_memory_equal(&form, &form_back, sizeof form);
}

TEST(the_largest_board_fits)
{
    const char *what = NULL;

    memset(&board, 0, sizeof board);
    board.instance = board.term = board.sequence = board.heard = 8;
    board.lines = BOARD_MAX;
    board.ended = board.refused = JOBS_MAX;
    for (int i = 0; i < BOARD_MAX; i++) {
        board.line[i].line = (struct job_line){.min = 64, .waiting = 64, .running = 64};
        long_text(board.line[i].line.job, JOB_NAME_MAX, i);
        long_text(board.line[i].why, JOB_TEXT_MAX, i);
    }
    for (int i = 0; i < JOBS_MAX; i++) {
        board.end[i].spec = board.refusal[i].serial = 4;
        board.refusal[i].reason = HEARTH_REASON_SETTINGS_DIFFER;
        board.end[i].who = person(i).id;
        long_text(board.end[i].why, JOB_TEXT_MAX, i);
        long_text(board.refusal[i].why, JOB_TEXT_MAX, i);
    }
    size_t len = board_encode(&board, bytes, sizeof bytes);
    assert_true(len > 0);
    memset(&board_back, 0, sizeof board_back);
    assert_int_equal(board_decode(&board_back, bytes, len, &what), HEARTH_OK);
    assert_memory_equal(&board, &board_back, sizeof board);
}

/* ---- Golden, cut, changed ---- */

enum kind { REPORT, FORM, BOARD };

static int decode(enum kind kind, size_t len, const char **what)
{
    *what = NULL;
    if (kind == REPORT)
        return report_decode(&report_back, bytes, len, what);
    return kind == FORM ? form_decode(&form_back, bytes, len, what)
                        : board_decode(&board_back, bytes, len, what);
}

static void refuse(enum kind kind, size_t len, size_t at, uint8_t with)
{
    uint8_t kept = bytes[at];
    const char *what;

    assert_int_not_equal(kept, with);
    bytes[at] = with;
    assert_int_equal(decode(kind, len, &what), HEARTH_PROTOCOL);
    assert_non_null(what);
    bytes[at] = kept;
    assert_int_equal(decode(kind, len, &what), HEARTH_OK);
}

/* An identity without instance. */
static void refuse_nobody(enum kind kind, size_t len, size_t at)
{
    uint8_t kept[8];
    const char *what;

    memcpy(kept, bytes + at + NODE_ID_LEN, sizeof kept);
    memset(bytes + at + NODE_ID_LEN, 0, sizeof kept);
    assert_int_equal(decode(kind, len, &what), HEARTH_PROTOCOL);
    memcpy(bytes + at + NODE_ID_LEN, kept, sizeof kept);
    assert_int_equal(decode(kind, len, &what), HEARTH_OK);
}

static void check_ends(enum kind kind, const uint8_t *golden, size_t len)
{
    const char *what;

    assert_memory_equal(bytes, golden, len);
    assert_int_equal(decode(kind, len, &what), HEARTH_OK);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(decode(kind, cut, &what), HEARTH_PROTOCOL);
    bytes[len] = 0;
    assert_int_equal(decode(kind, len + 1, &what), HEARTH_PROTOCOL);
}

#define ID(n)                                                                                                \
    n, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, \
        0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, n, 0x10, 0, 0,   \
        0, 0, 0, 0
#define U64(n) n, 0, 0, 0, 0, 0, 0, 0

TEST(malformed_reports_are_refused)
{
    static const uint8_t golden[] = {
        U64(77), U64(3), U64(9), 1, 1,                                                /* 0 */
        U64(4),  U64(5), 2,      3, 'r', 'e', 'd',   3,     'v', '=', '1', 1, 0, 'p', /* 26 */
        0,       0,                                                                   /* 54 */
        U64(6),  1,      2,      1, 'b', 0,   ID(1), ID(2),                           /* 56 */
    };
    struct identity full[2] = {person(1).id, person(2).id};

    report = (struct report){.instance = 77, .term = 3, .sequence = 9, .requests = 1, .parts = 1};
    report.request[0] = (struct report_request){
        .serial = 4, .done = 5, .min = 2, .job = "red", .settings = "v=1", .place_len = 1};
    report.request[0].place = (const uint8_t *)"p";
    report.part[0] = (struct report_part){6, true, 2, "b", "", full};
    size_t len = report_encode(&report, bytes, sizeof bytes);
    assert_int_equal(len, sizeof golden);
    check_ends(REPORT, golden, len);
    refuse(REPORT, len, 0, 0);     /* no instance */
    refuse(REPORT, len, 8, 0);     /* no term */
    refuse(REPORT, len, 16, 0);    /* no sequence */
    refuse(REPORT, len, 24, 16);   /* too many */
    refuse(REPORT, len, 24, 0);    /* miscounted */
    refuse(REPORT, len, 26, 0);    /* no serial */
    refuse(REPORT, len, 42, 0);    /* nobody */
    refuse(REPORT, len, 42, 65);   /* too many members */
    refuse(REPORT, len, 43, 0);    /* no name */
    refuse(REPORT, len, 43, 64);   /* a long one */
    refuse(REPORT, len, 44, 0x7f); /* not a message */
    refuse(REPORT, len, 45, 0);    /* nor is this */
    refuse(REPORT, len, 48, '\n'); /* nor is this */
    refuse(REPORT, len, 52, 2);    /* a place beyond 384 bytes */
    refuse(REPORT, len, 54, 2);    /* neither a record nor none */
    refuse(REPORT, len, 55, 9);    /* too many that were not reached */
    refuse(REPORT, len, 56, 0);    /* no formation */
    refuse(REPORT, len, 64, 2);    /* neither over nor not */
    refuse(REPORT, len, 65, 0);    /* nobody in it */
    refuse(REPORT, len, 65, 65);   /* too many */
    refuse_nobody(REPORT, len, 69);
    memcpy(bytes + 69 + 40, bytes + 69, 40);
    const char *what = NULL;
    assert_int_equal(decode(REPORT, len, &what), HEARTH_PROTOCOL); /* a member twice */
    memcpy(report.part[0].job, "red", 4);
    len = report_encode(&report, bytes, sizeof bytes);
    assert_int_equal(decode(REPORT, len, &what), HEARTH_PROTOCOL); /* a job twice */
    assert_string_equal(what, "report: a job appears twice");
}

TEST(malformed_records_are_refused)
{
    static const uint8_t golden[] = {
        U64(77), U64(3), U64(9), 1, 0,            /* 0 */
        U64(4),  U64(5), 2,      1, 'r', 0, 0, 0, /* 26 */
        1,       U64(7), U64(8), 1, 2,            /* 48 */
        ID(1),   0,      ID(2),  1,               /* 67 */
        2,       ID(3),  ID(4),                   /* 149 */
    };
    const char *what = NULL;
    struct view ran = people(3, 1);

    ran.instance = 7;
    ran.epoch = 8;
    ran.size = 2;
    ran.members[0] = person(1);
    ran.members[1] = person(2);
    ran.members[1].features = PEER_GUEST | PEER_DEMO;
    report = (struct report){.instance = 77, .term = 3, .sequence = 9, .requests = 1};
    report.request[0] =
        (struct report_request){.serial = 4, .done = 5, .min = 2, .job = "r", .ran = &ran, .unreached = 2};
    report.request[0].unreached_id[0] = person(3).id;
    report.request[0].unreached_id[1] = person(4).id;
    size_t len = report_encode(&report, bytes, sizeof bytes);
    assert_int_equal(len, sizeof golden);
    check_ends(REPORT, golden, len);
    refuse(REPORT, len, 49, 0);  /* no instance */
    refuse(REPORT, len, 57, 0);  /* no epoch */
    refuse(REPORT, len, 65, 2);  /* a leader that is not in it */
    refuse(REPORT, len, 66, 0);  /* nobody */
    refuse(REPORT, len, 66, 65); /* too many */
    refuse_nobody(REPORT, len, 67);
    refuse(REPORT, len, 107, 8); /* an unknown flag */
    refuse(REPORT, len, 107, 4); /* the first of those who took part, and took no part */
    refuse_nobody(REPORT, len, 150);
    memcpy(bytes + 190, bytes + 150, 40);
    assert_int_equal(decode(REPORT, len, &what), HEARTH_PROTOCOL); /* not reached twice */
    memcpy(bytes, golden, len);
    memcpy(bytes + 108, bytes + 67, 40);
    assert_int_equal(decode(REPORT, len, &what), HEARTH_PROTOCOL); /* a member twice */
}

TEST(malformed_forms_are_refused)
{
    static const uint8_t golden[] = {
        U64(77), U64(5), U64(3), U64(9), 1, 0, 0,   0, 2, 0, 0, 0,
        3,       0,      0,      0,      4, 0, 0,   0, 2, 2, 1, 'r', /* 0 */
        ID(1),   U64(6), U64(7), 0,      1, 0, 'p',                  /* 52 */
        ID(2),   U64(8), U64(0), 1,      0, 0,                       /* 112 */
    };
    struct group_spec *f = &form.spec;

    memset(&form, 0, sizeof form);
    *f = (struct group_spec){
        .id = 9, .job = "r", .size = 2, .sites = 2, .instance = 77, .epoch = 5, .term = 3};
    f->inside_mbit_x10 = 1;
    f->across_mbit_x10 = 2;
    f->inside_us = 3;
    f->across_us = 4;
    f->members[0] = person(1).id;
    f->members[1] = person(2).id;
    form.serial[0] = 6;
    form.serial[1] = 8;
    f->done[0] = 7;
    f->site[1] = 1;
    f->place_len[0] = 1;
    f->place[0][0] = 'p';
    size_t len = form_encode(&form, bytes, sizeof bytes);
    assert_int_equal(len, sizeof golden);
    check_ends(FORM, golden, len);
    refuse(FORM, len, 0, 0);     /* no instance */
    refuse(FORM, len, 8, 0);     /* no epoch */
    refuse(FORM, len, 16, 0);    /* no term */
    refuse(FORM, len, 24, 0);    /* no number */
    refuse(FORM, len, 48, 0);    /* nobody */
    refuse(FORM, len, 48, 65);   /* too many */
    refuse(FORM, len, 49, 1);    /* miscounted sites */
    refuse(FORM, len, 50, 0);    /* no job */
    refuse(FORM, len, 51, 0x80); /* not a message */
    refuse_nobody(FORM, len, 52);
    refuse(FORM, len, 52 + 40, 0);  /* no serial */
    refuse(FORM, len, 52 + 56, 1);  /* the first site must be 0 */
    refuse(FORM, len, 52 + 58, 2);  /* a place beyond 384 bytes */
    refuse(FORM, len, 112 + 56, 2); /* a site left out */
    memcpy(bytes + 112, bytes + 52, 40);
    const char *what = NULL;
    assert_int_equal(decode(FORM, len, &what), HEARTH_PROTOCOL); /* a member twice */
}

TEST(malformed_boards_are_refused)
{
    static const uint8_t golden[] = {
        U64(77), U64(3), U64(9), U64(0), 1,   1, 1,        /* 0 */
        2,       1,      3,      1,      'r', 2, 'n', 'o', /* 35 */
        U64(4),  ID(1),  1,      'x',                      /* 43 */
        U64(5),  15,     1,      'y',                      /* 93 */
    };

    memset(&board, 0, sizeof board);
    board = (struct board){.instance = 77, .term = 3, .sequence = 9, .lines = 1, .ended = 1, .refused = 1};
    board.line[0] = (struct board_line){{"r", 2, 1, 3}, "no"};
    board.end[0] = (struct board_end){4, person(1).id, "x"};
    board.refusal[0] = (struct board_refusal){5, HEARTH_REASON_BUSY, "y"};
    size_t len = board_encode(&board, bytes, sizeof bytes);
    assert_int_equal(len, sizeof golden);
    check_ends(BOARD, golden, len);
    refuse(BOARD, len, 0, 0);     /* no instance */
    refuse(BOARD, len, 8, 0);     /* no term */
    refuse(BOARD, len, 16, 0);    /* no sequence */
    refuse(BOARD, len, 32, 65);   /* too many lines */
    refuse(BOARD, len, 33, 17);   /* too many ends */
    refuse(BOARD, len, 34, 17);   /* too many refusals */
    refuse(BOARD, len, 35, 65);   /* too many members */
    refuse(BOARD, len, 36, 65);   /* likewise */
    refuse(BOARD, len, 37, 65);   /* likewise */
    refuse(BOARD, len, 38, 0);    /* no job */
    refuse(BOARD, len, 41, 0x1f); /* not a message */
    refuse(BOARD, len, 43, 0);    /* no formation */
    refuse_nobody(BOARD, len, 51);
    refuse(BOARD, len, 93, 0);   /* no serial */
    refuse(BOARD, len, 101, 0);  /* no reason */
    refuse(BOARD, len, 101, 16); /* one that there is not */
}
