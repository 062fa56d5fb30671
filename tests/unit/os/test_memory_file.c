/* SPDX-License-Identifier: Apache-2.0 */
/* A file without a name: its bytes are there for whoever holds the descriptor, and for a program only when it
 * was handed on. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/memory.h"
#include "support/suite.h"

static const char words[] = "not for everybody";

TEST(test_bytes)
{
    char read_back[64] = "";
    struct stat about;
    int fd = -1;
    assert_int_equal(memory_file_make(words, sizeof words, &fd), HEARTH_OK);
    assert_true(fd > STDERR_FILENO);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
    assert_int_equal(read(fd, read_back, sizeof read_back), sizeof words);
    assert_string_equal(read_back, words);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_size, sizeof words);
    assert_int_equal(about.st_nlink, 0); /* no name anywhere */
    assert_int_equal(pwrite(fd, "X", 1, 0), -1);
    close(fd);
}

/* Also where a standard descriptor is free. */
TEST(test_above_standard)
{
    int saved = dup(STDIN_FILENO), fd = -1;
    close(STDIN_FILENO);
    int status = memory_file_make(words, sizeof words, &fd);
    assert_true(dup2(saved, STDIN_FILENO) == STDIN_FILENO);
    close(saved);
    assert_int_equal(status, HEARTH_OK);
    assert_true(fd > STDERR_FILENO);
    close(fd);
}

/* The exit code of a program that looks for the descriptor. */
static int program_finds(int fd, bool handed_on)
{
    char test[64];
    int status = 0;
    snprintf(test, sizeof test, "read line </dev/fd/%d && test \"$line\" = 'not for everybody'", fd);
    pid_t pid = fork();
    if (pid == 0) {
        if (handed_on && memory_file_hand_on(fd))
            _exit(100);
        if (!freopen("/dev/null", "w", stderr))
            _exit(101);
        execl("/bin/sh", "sh", "-c", test, (char *)NULL);
        _exit(102);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(test_hand_on)
{
    static const char line[] = "not for everybody\n";
    int fd = -1;
    assert_int_equal(memory_file_make(line, strlen(line), &fd), HEARTH_OK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    int code = program_finds(fd, false);
    assert_true(code != 0 && code < 100);
    assert_int_equal(program_finds(fd, true), 0);
    close(fd);
    assert_int_equal(memory_file_hand_on(fd), HEARTH_SYSTEM);
}
