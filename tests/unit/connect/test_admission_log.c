/* SPDX-License-Identifier: Apache-2.0 */
/* Handshakes that are put off are counted and told, and strangers cannot fill the log. */
#include "connect/admission_log.h"
#include "support/persons.h"
#include "support/suite.h"

static struct admission_log admissions;
static struct notes notes;

TEST(what_is_put_off_is_counted_and_told_once_a_second)
{
    struct log log = notes_log(&notes, "HEARTH-BUSY");
    uint64_t now_ns = 1000 * NS_PER_S, admitted = 0;

    admission_log_init(&admissions, &log, 0);
    for (int i = 0; i < 100; i++) {
        admission_log_tick(&admissions, now_ns);
        for (int k = 0; k < 100; k++)
            admitted += admission_log_admit(&admissions, 1, false);
        now_ns += NS_PER_S / 50;
    }
    assert_in_range(notes.warnings, 1, 3);
    assert_non_null(strstr(notes.last, "handshakes were put off"));
    assert_in_range(admitted, ADMISSION_BURST, ADMISSION_BURST + 2 * ADMISSION_PER_S + 2);
    assert_int_equal(admissions.refused + admitted, 10000);
}

TEST(each_source_is_named_once)
{
    struct log log = notes_log(&notes, "HEARTH-STRANGER");
    struct sock_addr from;
    char text[64];

    admission_log_init(&admissions, &log, 0);
    for (int port = 1; port < 100; port++) {
        snprintf(text, sizeof text, "192.0.2.7:%d", port);
        assert_int_equal(sock_addr_parse(text, 0, &from), HEARTH_OK);
        admission_log_complain(&admissions, &from, "it has another secret");
    }
    assert_int_equal(notes.warnings, 1);
    assert_int_equal(notes.lines, 99); /* the rest for those who want to know all */
    assert_string_equal(notes.last, "192.0.2.7:1 is sent away: it has another secret");
    for (int i = 0; i < 1000; i++) { /* one machine, with as many addresses as it likes */
        snprintf(text, sizeof text, "[2001:db8::%x:%x]:9", i / 7 + 1, i);
        assert_int_equal(sock_addr_parse(text, 0, &from), HEARTH_OK);
        admission_log_complain(&admissions, &from, "it is plain");
    }
    assert_int_equal(notes.warnings, 2);
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "10.1.%d.%d:9", i / 250, i % 250);
        assert_int_equal(sock_addr_parse(text, 0, &from), HEARTH_OK);
        admission_log_complain(&admissions, &from, "it is plain");
    }
    assert_int_equal(notes.warnings, ADMISSION_LOG_SOURCES);
    assert_non_null(strstr(notes.last, "more strangers are not named"));
}
