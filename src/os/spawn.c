/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and processes. posix_spawn: unlike fork it does not copy the tables of a big process's memory. */
#define _GNU_SOURCE 1 /* closefrom among the actions, pipes that close on exec, dladdr */
#include "os/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/fork.h"
#include "os/sock.h"

#if defined(__linux__) && !defined(HEARTH_POSIX)
#define LINUX 1
#include <sys/prctl.h>
#else
#define LINUX 0
#endif

#define FIRST_OURS   3    /* descriptors below it are the child's */
#define OPEN_MAX_2   4096 /* how far we look where the system cannot close all */
#define PATH_LEN_MAX 4096

extern char **environ;

/* ---- where our code is ---- */

static bool folder_of(const char *file, char *path, size_t size)
{
    const char *slash = strrchr(file, '/');

    if (!slash || slash == file || (size_t)(slash - file) >= size)
        return false;
    memcpy(path, file, (size_t)(slash - file));
    path[slash - file] = '\0';
    return true;
}

bool self_program_folder(char *path, size_t size)
{
    char file[PATH_LEN_MAX];
    ssize_t len = readlink("/proc/self/exe", file, sizeof file - 1);

    if (len <= 0)
        return false;
    file[len] = '\0';
    return folder_of(file, path, size);
}

bool self_library_folder(char *path, size_t size)
{
    static const char here = 0; /* any address of ours */
    Dl_info info;

    return dladdr(&here, &info) != 0 && info.dli_fname && folder_of(info.dli_fname, path, size);
}

bool self_can_run(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

/* ---- a child ---- */

/* Everything from FIRST_OURS on. Ours close by themselves; those of the program that uses us may not. */
static int close_others(posix_spawn_file_actions_t *actions)
{
#if defined(__GLIBC__) && !defined(HEARTH_POSIX) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
    return posix_spawn_file_actions_addclosefrom_np(actions, FIRST_OURS);
#else
    int failed = 0;

    for (int fd = FIRST_OURS; fd < OPEN_MAX_2 && failed == 0; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC))
            failed = posix_spawn_file_actions_addclose(actions, fd);
    }
    return failed;
#endif
}

static int actions_make(posix_spawn_file_actions_t *actions, int fd)
{
    int failed = posix_spawn_file_actions_adddup2(actions, fd, STDIN_FILENO);

    if (failed == 0)
        failed = posix_spawn_file_actions_adddup2(actions, fd, STDOUT_FILENO);
    if (failed == 0)
        failed = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    return failed == 0 ? close_others(actions) : failed;
}

static int attributes_make(posix_spawnattr_t *attributes)
{
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    int failed = posix_spawnattr_setsigmask(attributes, &none);
    if (failed == 0)
        failed = posix_spawnattr_setsigdefault(attributes, &all);
    if (failed == 0)
        failed = posix_spawnattr_setpgroup(attributes, 0);
    if (failed == 0)
        failed = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                          POSIX_SPAWN_SETPGROUP);
    return failed;
}

/* The environment may hold the cluster's secret, which is none of its business. */
static void environment_make(char *list[static 3])
{
    static const char *const kept[] = {"PATH=", "LD_LIBRARY_PATH="};
    int n = 0;

    for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++)
        for (char **e = environ; e && *e; e++) {
            if (strncmp(*e, kept[k], strlen(kept[k])) == 0) {
                list[n++] = *e;
                break;
            }
        }
    list[n] = NULL;
}

/* errno's kind of number. */
static int start(pid_t *pid, const char *path, int fd)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char *arguments[] = {(char *)path, NULL}, *environment[3];

    int failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0)
        return failed;
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        failed = actions_make(&actions, fd);
        if (failed == 0)
            failed = attributes_make(&attributes);
        environment_make(environment);
        if (failed == 0)
            failed = posix_spawn(pid, path, &actions, &attributes, arguments, environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* The child's end: above the numbers that it is to become, and blocking, as programs expect. */
static int childs_end(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OURS);

    if (high >= 0)
        (void)fcntl(high, F_SETFL, fcntl(high, F_GETFL) & ~O_NONBLOCK);
    return high;
}

int child_start(struct child *child, const char *path, struct error *error)
{
    int fds[2];
    pid_t pid = 0;

    *child = (struct child){.fd = -1};
    if (sock_pair(fds) != HEARTH_OK)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot start %s: %s", path, strerror(errno));
    int end = childs_end(fds[1]);
    int failed = end >= 0 ? start(&pid, path, end) : errno;
    sock_close(end);
    sock_close(fds[1]);
    if (failed != 0) {
        sock_close(fds[0]);
        bool missing = failed == ENOENT || failed == EACCES || failed == ENOTDIR || failed == ENOEXEC;
        return error_set(error, missing ? HEARTH_INVALID : HEARTH_SYSTEM, RANK_NONE, "cannot start %s: %s",
                         path, strerror(failed));
    }
    fork_closes(fds[0]); /* or a forked child would keep it from seeing our end */
    *child = (struct child){.pid = (int)pid, .fd = fds[0]};
    return HEARTH_OK;
}

static void status_text(int status, char *how, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(how, size, "signal %d", WTERMSIG(status));
    else
        snprintf(how, size, "exit status %d", WEXITSTATUS(status));
}

bool child_ended(struct child *child, char *how, size_t size)
{
    int status = 0;
    pid_t done;

    if (child->pid == 0)
        return true;
    do
        done = waitpid(child->pid, &status, WNOHANG);
    while (done < 0 && errno == EINTR);
    if (done == 0)
        return false;
    child->pid = 0;
    if (done > 0)
        status_text(status, how, size);
    else
        snprintf(how, size, "exit status unknown, another part of the program reaped it");
    return true;
}

void child_end(struct child *child)
{
    char how[64];

    /* It has not been reaped, so its number is still its own. */
    if (!child_ended(child, how, sizeof how)) {
        (void)kill(child->pid, SIGKILL);
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        child->pid = 0;
    }
    sock_close(child->fd);
    child->fd = -1;
}

/* ---- ties ---- */

static bool end_with(int parent, int signal_number)
{
#if LINUX
    (void)prctl(PR_SET_PDEATHSIG, signal_number);
#endif
    (void)signal_number;
    return getppid() == parent; /* it may have ended before we asked */
}

bool leash_tie(int parent)
{
    return end_with(parent, SIGKILL);
}

bool leash_tie_gently(int parent)
{
    return end_with(parent, SIGTERM);
}

void leash_inherit(void)
{
#if LINUX
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
}
