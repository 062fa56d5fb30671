/* SPDX-License-Identifier: Apache-2.0 */
/* Folders, files and children for the tests of key files. */
#define _GNU_SOURCE
#include "folder.h"
#include "support/suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

static char made[FOLDER_PATH_MAX];

int folder_make(void **state)
{
    const char *base = getenv("TMPDIR");

    umask(022);
    snprintf(made, sizeof made, "%s/hearth-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(made) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    return remove(path);
}

int folder_remove(void **state)
{
    return nftw(made, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *folder(void)
{
    return made;
}

const char *folder_path(const char *name)
{
    static char paths[8][2 * FOLDER_PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", made, name);
    return path;
}

void file_put(const char *path, const void *bytes, size_t len, mode_t mode)
{
    int fd;

    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

size_t file_get(const char *path, void *bytes, size_t len_max)
{
    int fd = open(path, O_RDONLY);
    ssize_t len;

    assert_true(fd >= 0);
    len = read(fd, bytes, len_max);
    assert_true(len >= 0);
    close(fd);
    return (size_t)len;
}

unsigned file_mode(const char *path)
{
    struct stat about;

    assert_int_equal(lstat(path, &about), 0);
    return about.st_mode & 07777u;
}

int file_count(const char *directory, const char *known, const char **other)
{
    static char name[256];
    DIR *list = opendir(directory);
    struct dirent *entry;
    int count = 0;

    assert_non_null(list);
    if (other)
        *other = NULL;
    while ((entry = readdir(list))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        count++;
        if (other && strcmp(entry->d_name, known) != 0) {
            snprintf(name, sizeof name, "%s", entry->d_name);
            *other = name;
        }
    }
    closedir(list);
    return count;
}

pid_t fork_start(int (*work)(void *arg), void *arg)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        _exit(work(arg));
    return child;
}

int fork_end(pid_t child)
{
    int status = 0;
    pid_t ended;

    do
        ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    assert_int_equal(ended, child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

int child_run(int (*work)(void *arg), void *arg)
{
    return fork_end(fork_start(work, arg));
}

#if defined(__linux__)

bool links_refused(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_link
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_link, 1, 0),
#else
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 1, 0),
#endif
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof rules[0], .filter = rules};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#else

bool links_refused(void)
{
    return false;
}

#endif
