/* SPDX-License-Identifier: Apache-2.0 */
/* What another program prints, within a time. */
#include "cli/doctor/capture.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/shared/signals.h"
#include "os/sock.h"

extern char **environ;

static pid_t start(const char *const *argv, int output)
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    /* The arguments are not written to; posix_spawnp only says so in its text. */
    bool good = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
                posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) == 0 &&
                posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    return good ? pid : -1;
}

/* True: it has closed its output. What does not fit is read and dropped, so that it can end. */
static bool read_all(int fd, char *text, size_t size, uint64_t deadline_ns)
{
    size_t len = 0;
    text[0] = 0;
    for (;;) {
        char piece[4096];
        struct sock_wait item = {.fd = fd, .want_recv = true};
        if (sock_wait(&item, 1, deadline_ns) == 0)
            return false;
        ssize_t got = read(fd, piece, sizeof piece);
        if (got <= 0)
            return got == 0;
        for (ssize_t i = 0; i < got && len + 1 < size; i++)
            text[len++] = piece[i];
        text[len] = 0;
    }
}

int capture(const char *const *argv, char *text, size_t size, uint64_t deadline_ns)
{
    int ends[2], status = 0;
    text[0] = 0;
    if (!pipe_open(ends))
        return -1;
    pid_t pid = start(argv, ends[1]);
    close(ends[1]);
    bool ended = pid > 0 && read_all(ends[0], text, size, deadline_ns);
    close(ends[0]);
    if (pid <= 0)
        return -1;
    if (!ended)
        kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid || !ended || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}
