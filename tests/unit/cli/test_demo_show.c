/* SPDX-License-Identifier: Apache-2.0 */
/* The demo on a terminal: the bar is gone before a line is printed, in whatever order ranks tell news. */
#define _GNU_SOURCE /* posix_openpt */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "cli/demo/demo.h"
#include "support/suite.h"

#define BAR_MS 350 /* before that no bar is shown */

static int terminal = -1, kept[2];

/* Standard output and standard error are a terminal from now on. */
static void take_terminal(void)
{
    fflush(NULL);
    terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int inside = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    assert_true(inside >= 0);
    for (int i = 0; i < 2; i++) {
        kept[i] = dup(i + 1);
        assert_true(kept[i] >= 0 && dup2(inside, i + 1) == i + 1);
    }
    close(inside);
    setenv("TERM", "xterm", 1);
}

static void give_terminal_back(void)
{
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(kept[i], i + 1);
        close(kept[i]);
    }
}

/* The second lane begins before the last rank has told that the first has ended. */
static bool run(struct race *race, void *arg)
{
    race->lane_begins(race->arg, &race->lanes[0]);
    (void)poll(NULL, 0, BAR_MS);
    race->point_seen(race->arg, &race->lanes[0]);
    race->lane_begins(race->arg, &race->lanes[1]);
    race->lane_ended(race->arg, &race->lanes[0]);
    return false;
}

TEST(the_bar_is_gone)
{
    static struct race race;
    static char text[65536];
    char report[] = "/tmp/hearth-show-XXXXXX";
    struct demo demo = {.data = "nowhere", .target = 80, .steps_max = 10, .report = report};
    close(mkstemp(report));
    race_init(&race);
    take_terminal();
    int code = demo_show(&demo, &race, run, NULL);
    give_terminal_back();
    unlink(report);
    assert_int_not_equal(code, 0);
    struct pollfd wait = {.fd = terminal, .events = POLLIN};
    for (size_t at = 0; poll(&wait, 1, 0) > 0 && (wait.revents & POLLIN);) {
        ssize_t len = read(terminal, text + at, sizeof text - 1 - at);
        at += len > 0 ? (size_t)len : 0;
    }
    const char *bar = strstr(text, "[....");
    assert_non_null(bar);
    const char *wiped = strstr(bar, "\r\033[K"), *row = strstr(bar, "plain ");
    assert_true(wiped && row && wiped < row);
    close(terminal);
}
