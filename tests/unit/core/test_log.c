/* SPDX-License-Identifier: Apache-2.0 */
/* A line is one call of the sink, filtered by level and bounded in length. */
#include "core/log.h"
#include "support/suite.h"

struct seen {
    int calls;
    enum hearth_log_level level;
    char id[64], text[8192];
};

static void sink(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    struct seen *seen = arg;

    seen->calls++;
    seen->level = level;
    memcpy(seen->id, id, strlen(id) + 1);
    assert_true(strlen(text) < sizeof seen->text);
    memcpy(seen->text, text, strlen(text) + 1);
}

TEST(a_line_arrives_whole)
{
    struct seen seen = {0};
    struct log log = {sink, &seen, HEARTH_LOG_INFO};

    log_write(&log, HEARTH_LOG_WARN, "HEARTH-TEST", "rank %d of %s", 3, "four");
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.level, HEARTH_LOG_WARN);
    assert_string_equal(seen.id, "HEARTH-TEST");
    assert_string_equal(seen.text, "rank 3 of four");
}

TEST(levels_filter)
{
    for (int level = HEARTH_LOG_ERROR; level <= HEARTH_LOG_DEBUG; level++) {
        struct seen seen = {0};
        struct log log = {sink, &seen, (enum hearth_log_level)level};
        for (int line = HEARTH_LOG_ERROR; line <= HEARTH_LOG_DEBUG; line++)
            log_write(&log, (enum hearth_log_level)line, "HEARTH-TEST", "x");
        assert_int_equal(seen.calls, level);
    }
}

TEST(without_a_sink_it_is_silent)
{
    struct log log = {NULL, NULL, HEARTH_LOG_DEBUG};

    log_write(&log, HEARTH_LOG_ERROR, "HEARTH-TEST", "nobody hears %s", "this");
}

TEST(long_lines_are_cut_with_dots)
{
    struct seen seen = {0};
    struct log log = {sink, &seen, HEARTH_LOG_INFO};
    char text[4000];

    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    log_write(&log, HEARTH_LOG_INFO, "HEARTH-TEST", "%s", text);
    assert_int_equal(seen.calls, 1);
    assert_true(strlen(seen.text) < strlen(text));
    assert_string_equal(seen.text + strlen(seen.text) - 4, "x...");
}
