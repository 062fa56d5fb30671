/* SPDX-License-Identifier: Apache-2.0 */
/* Files of one user. A file is judged by its open descriptor, so that nobody can put another one in its place
 * between the look and the reading. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* flock */
#endif
#include "os/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/host.h"
#include "os/random.h"

#define LOCK_NS       (10 * NS_PER_S)
#define LOCK_LOOK_NS  (10 * NS_PER_MS)
#define SUFFIX_RANDOM 6 /* bytes in the name of a temporary file */
#define SUFFIX_MAX    24

static int refused(struct error *error, const char *path, const char *why)
{
    return error_set(error, HEARTH_INVALID, RANK_NONE, "%s %s", path, why);
}

static int failed(struct error *error, const char *path, const char *what)
{
    return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot %s %s: %s", what, path, strerror(errno));
}

/* ---- reading ---- */

static int open_failed(const char *path, bool *missing, struct error *error)
{
    switch (errno) {
    case ENOENT:
        *missing = true;
        return refused(error, path, "is missing");
    case ELOOP:
    case EMLINK: /* what some systems say of a link */
        return refused(error, path, "is a symbolic link: put the file itself there, or give its own path");
    case ENOTDIR:
        return refused(error, path, "has a parent that is not a directory: correct the path");
    case ENXIO: /* a socket */
        return refused(error, path, "is not a regular file: move it away, or give another path");
    case ENAMETOOLONG:
        return refused(error, path, "is too long for a path");
    default:
        return failed(error, path, "open");
    }
}

static int check_rights(const char *path, enum private_kind kind, const struct stat *about,
                        struct error *error)
{
    const unsigned mode = about->st_mode & 07777u, others = kind == PRIVATE_SECRET ? 077 : 022;

    if (S_ISDIR(about->st_mode))
        return refused(error, path, "is a directory: give the path of a file in it");
    if (!S_ISREG(about->st_mode))
        return refused(error, path, "is not a regular file: move it away, or give another path");
    if (about->st_uid != geteuid())
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "%s belongs to user %lu, and this process to %lu: use a file of your own, or chown it", path,
            (unsigned long)about->st_uid, (unsigned long)geteuid());
    if (mode & others)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "%s can be %s by others (mode %04o): chmod %s %s",
                         path, mode & 022 ? "written" : "read", mode,
                         mode & 022 && others == 022 ? "go-w" : "600", path);
    return HEARTH_OK;
}

/* From the beginning to the end: HEARTH_OK, HEARTH_LIMIT: it is longer than the room, or HEARTH_SYSTEM. */
static int read_whole(int fd, uint8_t *target, size_t *len)
{
    size_t have = 0;
    uint8_t more;

    for (;;) {
        bool full = have == *len;
        ssize_t got = pread(fd, full ? &more : target + have, full ? 1 : *len - have, (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return HEARTH_SYSTEM;
        if (got == 0)
            break;
        if (full)
            return HEARTH_LIMIT;
        have += (size_t)got;
    }
    *len = have;
    return HEARTH_OK;
}

int private_file_read(const char *path, enum private_kind kind, void *target, size_t *len, bool *missing,
                      struct error *error)
{
    /* O_NONBLOCK: a pipe without a writer would keep us for ever. O_NOCTTY: nor do we want a terminal. */
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;
    int status;

    *missing = false;
    if (fd < 0)
        return open_failed(path, missing, error);
    if (fstat(fd, &about) != 0)
        status = failed(error, path, "look at");
    else
        status = check_rights(path, kind, &about, error);
    if (!status) {
        status = read_whole(fd, target, len);
        if (status == HEARTH_LIMIT)
            status = refused(error, path, "is too long for such a file: move it away");
        else if (status)
            failed(error, path, "read");
    }
    close(fd);
    return status;
}

int private_file_read_fd(int fd, void *target, size_t *len, struct error *error)
{
    int status = read_whole(fd, target, len);

    if (status == HEARTH_LIMIT)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "descriptor %d has too much to read", fd);
    if (status && (errno == EBADF || errno == ESPIPE || errno == EISDIR))
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "descriptor %d is not an open file that can be read from its beginning: %s", fd,
                         strerror(errno));
    if (status)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot read descriptor %d: %s", fd,
                         strerror(errno));
    return HEARTH_OK;
}

void private_file_close_fd(int fd)
{
    close(fd);
}

/* ---- writing ---- */

static int make_directory(const char *directory, struct error *error)
{
    struct stat about;

    if (mkdir(directory, 0700) == 0)
        return HEARTH_OK;
    int why = errno; /* a directory that is there may be refused for many reasons, and that is all right */
    if (stat(directory, &about) == 0 && S_ISDIR(about.st_mode))
        return HEARTH_OK;
    errno = why == EEXIST ? ENOTDIR : why;
    return failed(error, directory, "make the directory");
}

/* The directory of the path, "." if it names none, and those above it: made if they are missing. */
static int make_parents(const char *path, char parent[static PRIVATE_PATH_MAX], struct error *error)
{
    const char *last = strrchr(path, '/');
    size_t len = last == path ? 1 : last ? (size_t)(last - path) : 0;
    int status = HEARTH_OK;

    if (strlen(path) + SUFFIX_MAX > PRIVATE_PATH_MAX || !*(last ? last + 1 : path))
        return error_set(error, HEARTH_INVALID, RANK_NONE, "\"%s\" is not the path of a file", path);
    snprintf(parent, PRIVATE_PATH_MAX, "%.*s", len > 0 ? (int)len : 1, len > 0 ? path : ".");
    for (char *slash = strchr(parent + 1, '/'); slash && !status; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        status = make_directory(parent, error);
        *slash = '/';
    }
    return status ? status : make_directory(parent, error);
}

/* A new file beside the path, which nobody else has opened; -1: see errno. */
static int open_temporary(const char *path, char temporary[static PRIVATE_PATH_MAX])
{
    uint8_t drawn[SUFFIX_RANDOM];
    size_t len;

    if (random_bytes(drawn, sizeof drawn))
        return -1;
    len = (size_t)snprintf(temporary, PRIVATE_PATH_MAX, "%s.tmp-", path);
    for (size_t i = 0; i < sizeof drawn; i++)
        len += (size_t)snprintf(temporary + len, PRIVATE_PATH_MAX - len, "%02x", drawn[i]);
    return open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* After a loss of power the name is there too, where the file system knows how to do it. */
static void sync_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

/* Gives the file its name, if nobody else has it. */
static int place_new(const char *temporary, const char *path, bool *there, struct error *error)
{
    struct stat about;
    int lock = -1, status = HEARTH_OK;

    if (link(temporary, path) == 0)
        return HEARTH_OK;
    *there = errno == EEXIST;
    if (!*there && errno != EPERM && errno != ENOTSUP && errno != ENOSYS && errno != EMLINK)
        return failed(error, path, "write");
    if (!*there) { /* a file system without links: all who make this file come here, one after the other */
        status = private_file_lock(path, &lock, error);
        if (status)
            return status;
        *there = lstat(path, &about) == 0;
        if (!*there && rename(temporary, path) != 0)
            status = failed(error, path, "write");
        private_file_unlock(lock);
    }
    return *there ? refused(error, path, "is there already and stays as it is: move it away first") : status;
}

int private_file_write(const char *path, const void *bytes, size_t len, bool replace, bool *there,
                       struct error *error)
{
    char parent[PRIVATE_PATH_MAX], temporary[PRIVATE_PATH_MAX];
    int fd, status;
    bool written;

    *there = false;
    status = make_parents(path, parent, error);
    if (status)
        return status;
    fd = open_temporary(path, temporary);
    if (fd < 0)
        return failed(error, path, "write");
    /* The user's mask may have taken away too much. */
    written = file_write(fd, bytes, len) && fchmod(fd, 0600) == 0 && fsync(fd) == 0;
    if (!written)
        status = failed(error, path, "write");
    if (close(fd) != 0 && written) /* some file systems tell only now that there is no room */
        status = failed(error, path, "write");
    if (!status && !replace)
        status = place_new(temporary, path, there, error);
    else if (!status && rename(temporary, path) != 0)
        status = failed(error, path, "replace");
    if (status || !replace) /* one that was renamed is gone already */
        (void)unlink(temporary);
    if (!status)
        sync_directory(parent);
    return status;
}

/* ---- one at a time ---- */

#if defined(__linux__) && !defined(HEARTH_POSIX)

#include <sys/file.h>

static bool try_lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

#else

/* POSIX locks belong to a process: they keep two of its threads apart by chance only. */
static bool try_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &whole) == 0;
}

#endif

int private_file_lock(const char *path, int *lock, struct error *error)
{
    const struct timespec look = {.tv_nsec = (long)LOCK_LOOK_NS};
    const uint64_t deadline_ns = clock_real() + LOCK_NS;
    char name[PRIVATE_PATH_MAX], parent[PRIVATE_PATH_MAX];
    int fd, status;

    status = make_parents(path, parent, error);
    if (status)
        return status;
    snprintf(name, sizeof name, "%s.lock", path);
    fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0)
        return failed(error, name, "open");
    while (!try_lock(fd)) {
        bool busy = errno == EWOULDBLOCK || errno == EACCES || errno == EAGAIN || errno == EINTR;
        if (!busy)
            status = failed(error, name, "lock");
        else if (clock_real() > deadline_ns)
            status = error_set(error, HEARTH_TIMEOUT, RANK_NONE,
                               "%s is locked by another process: end that process", name);
        if (status) {
            close(fd);
            return status;
        }
        (void)nanosleep(&look, NULL);
    }
    *lock = fd;
    return HEARTH_OK;
}

void private_file_unlock(int lock)
{
    close(lock);
}

/* ---- what has changed ---- */

int private_file_stamp(const char *path, struct private_stamp *stamp, struct error *error)
{
    struct stat about;

    memset(stamp, 0, sizeof *stamp);
    if (lstat(path, &about) != 0)
        return errno == ENOENT || errno == ENOTDIR ? HEARTH_OK : failed(error, path, "look at");
#ifdef __APPLE__
    const struct timespec content = about.st_mtimespec, rights = about.st_ctimespec;
#else
    const struct timespec content = about.st_mtim, rights = about.st_ctim;
#endif
    const uint64_t facts[STAMP_FACTS] = {
        (uint64_t)about.st_dev,    (uint64_t)about.st_ino,  (uint64_t)about.st_size,
        (uint64_t)about.st_mode,   (uint64_t)about.st_uid,  (uint64_t)content.tv_sec,
        (uint64_t)content.tv_nsec, (uint64_t)rights.tv_sec, (uint64_t)rights.tv_nsec,
    };
    stamp->exists = true;
    memcpy(stamp->facts, facts, sizeof facts);
    return HEARTH_OK;
}

bool private_stamp_equal(const struct private_stamp *a, const struct private_stamp *b)
{
    return a->exists == b->exists && memcmp(a->facts, b->facts, sizeof a->facts) == 0;
}
