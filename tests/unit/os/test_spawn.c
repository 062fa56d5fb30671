/* SPDX-License-Identifier: Apache-2.0 */
/* A child process and the line to it: it starts, talks, ends, is reaped, and nobody else is. */
#define _GNU_SOURCE 1 /* F_DUPFD_CLOEXEC */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "addrs.h"
#include "os/clock.h"
#include "os/spawn.h"
#include "support/suite.h"

static char folder[64], script[96], text[64];
static struct child child;

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/hearth-spawn-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(script, sizeof script, "%s/script", folder);
    return 0;
}

static int remove_folder(void **state)
{
    unlink(script);
    return rmdir(folder);
}

static void write_script(const char *lines, mode_t mode)
{
    unlink(script);
    FILE *file = fopen(script, "w");
    assert_non_null(file);
    fputs(lines, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(script, mode), 0);
}

static void start(const char *lines)
{
    struct error error;

    write_script(lines, 0700);
    assert_int_equal(child_start(&child, script, &error), HEARTH_OK);
    assert_true(child.pid > 0 && child.fd >= 0);
}

/* Says a word, and hears all that comes back until its output ends. */
static void talk(void)
{
    struct iovec piece = {(char[]){"word\n"}, 5};
    size_t len = 0;

    assert_int_equal(sock_send(child.fd, &piece, 1), 5);
    for (ssize_t n = 0; n >= 0; len += n > 0 ? (size_t)n : 0) {
        assert_true(ready(child.fd, false));
        piece = (struct iovec){text + len, sizeof text - 1 - len};
        n = sock_recv(child.fd, &piece, 1);
    }
    text[len] = '\0';
}

static void ends_as(const char *expected)
{
    uint64_t end_ns = clock_real() + PATIENCE_NS;
    char how[64] = "";

    while (!child_ended(&child, how, sizeof how))
        assert_true(clock_real() < end_ns);
    assert_string_equal(how, expected);
    assert_int_equal(child.pid, 0);
    assert_true(child_ended(&child, how, sizeof how));
}

TEST_WITH(talks_and_ends, make_folder, remove_folder)
{
    start("#!/bin/sh\nread line\necho got $line\necho lost >&2\nexit 7\n");
    talk();
    assert_string_equal(text, "got word\n");
    ends_as("exit status 7");
    child_end(&child);
    child_end(&child);
    assert_int_equal(child.fd, -1);
}

TEST_WITH(killed_ones_are_reaped, make_folder, remove_folder)
{
    start("#!/bin/sh\nexec sleep 1000\n");
    int pid = child.pid;
    child_end(&child);
    assert_int_equal(kill(pid, 0), -1);
    start("#!/bin/sh\nkill -9 $$\n");
    ends_as("signal 9");
    child_end(&child);
}

TEST_WITH(other_children_are_left_alone, make_folder, remove_folder)
{
    int status = 0;

    pid_t other = fork();
    if (other == 0)
        _exit(9);
    start("#!/bin/sh\nexit 0\n");
    ends_as("exit status 0");
    child_end(&child);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(WEXITSTATUS(status), 9);
}

TEST_WITH(others_may_have_reaped_it, make_folder, remove_folder)
{
    start("#!/bin/sh\nexit 0\n");
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    ends_as("exit status unknown, another part of the program reaped it");
    child_end(&child);
}

TEST_WITH(what_cannot_be_run_is_named, make_folder, remove_folder)
{
    struct error error;

    assert_int_equal(child_start(&child, "/nowhere/program", &error), HEARTH_INVALID);
    assert_non_null(strstr(error.text, "/nowhere/program"));
    write_script("#!/bin/sh\n", 0600);
    assert_int_equal(child_start(&child, script, &error), HEARTH_INVALID);
    assert_int_equal(child.pid, 0);
    assert_int_equal(child.fd, -1);
    assert_false(self_can_run(script));
    assert_false(self_can_run(folder));
    assert_false(self_can_run("/nowhere/program"));
    child_end(&child);
}

/* Programs that closed their standard descriptors get the line as one of these numbers. */
TEST_WITH(low_numbers_do_no_harm, make_folder, remove_folder)
{
    int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    close(STDIN_FILENO);
    start("#!/bin/sh\nread line\necho got $line\n");
    talk();
    child_end(&child);
    if (in >= 0) {
        dup2(in, STDIN_FILENO);
        close(in);
    }
    assert_string_equal(text, "got word\n");
}

TEST_WITH(where_we_are, make_folder, remove_folder)
{
    char program[4096], library[4096];

    assert_true(self_program_folder(program, sizeof program));
    assert_true(program[0] == '/');
    assert_true(self_library_folder(library, sizeof library)); /* linked statically: the program's */
    assert_false(self_program_folder(program, 1));
}
