/* SPDX-License-Identifier: Apache-2.0 */
/* A forked child does not keep a connection open, and its own descriptors are its own. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/fork.h"
#include "support/suite.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void child_ends_well(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

TEST(test_child_has_none_of_it)
{
    int marked[2], other[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, marked), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
    fork_closes(marked[0]);
    fork_closes(other[0]);
    fork_keeps(other[0]);
    pid_t pid = fork();
    if (pid == 0)
        _exit(!is_open(marked[0]) && is_open(marked[1]) && is_open(other[0]) ? 0 : 1);
    child_ends_well(pid);
    assert_true(is_open(marked[0]));
    fork_keeps(marked[0]);
    for (int i = 0; i < 2; i++) {
        close(marked[i]);
        close(other[i]);
    }
}

/* What the child opens gets the number of what was closed, and a child of it keeps that. */
TEST(test_marks_are_not_inherited)
{
    int fd = dup(STDERR_FILENO);
    assert_true(fd >= 0);
    fork_closes(fd);
    pid_t pid = fork();
    if (pid == 0) {
        if (dup(STDERR_FILENO) != fd)
            _exit(1);
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(is_open(fd) ? 0 : 2);
        int status = -1;
        waitpid(grandchild, &status, 0);
        _exit(status == 0 ? 0 : 3);
    }
    child_ends_well(pid);
    fork_keeps(fd);
    close(fd);
}

TEST(test_what_is_out_of_range_is_let_be)
{
    fork_closes(-1);
    fork_keeps(-1);
    fork_closes(FORK_FD_MAX + 1);
    fork_keeps(FORK_FD_MAX + 1);
    pid_t pid = fork();
    if (pid == 0)
        _exit(is_open(STDERR_FILENO) ? 0 : 1);
    child_ends_well(pid);
}
