/* SPDX-License-Identifier: Apache-2.0 */
/* Files without a name: memfd on Linux; elsewhere and in the posix build a temporary file whose name is taken
 * away before anything is written, in memory if there is a place for that. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* memfd_create, seals */
#endif
#include "os/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_FREE 3 /* the standard ones are the program's */

struct ends {
    int writer, reader; /* -1: none */
};

#if defined(__linux__) && !defined(HEARTH_POSIX)

static bool nameless(struct ends *ends)
{
    ends->writer = memfd_create("hearth", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ends->reader = ends->writer < 0 ? -1 : dup(ends->writer);
    return ends->reader >= 0;
}

static bool freeze(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
}

#else

static bool nameless(struct ends *ends)
{
    char memory[] = "/dev/shm/hearth-XXXXXX", disk[] = "/tmp/hearth-XXXXXX";
    char *name = memory;
    ends->writer = mkstemp(name); /* mode 0600 */
    if (ends->writer < 0) {
        name = disk;
        ends->writer = mkstemp(name);
    }
    if (ends->writer < 0)
        return false;
    ends->reader = open(name, O_RDONLY | O_CLOEXEC);
    unlink(name);
    fcntl(ends->writer, F_SETFD, FD_CLOEXEC);
    return ends->reader >= 0;
}

/* There are no seals: who has the reader cannot write by it, and others of the same user are trusted. */
static bool freeze(int fd)
{
    return fd >= 0;
}

#endif

static bool write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, bytes, len);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        bytes += written;
        len -= (size_t)written;
    }
    return true;
}

static void close_end(int fd)
{
    if (fd >= 0)
        close(fd);
}

int memory_file_make(const void *bytes, size_t len, int *fd)
{
    struct ends ends = {-1, -1};
    bool good = nameless(&ends) && write_all(ends.writer, bytes, len) && freeze(ends.writer);
    int high = good ? fcntl(ends.reader, F_DUPFD_CLOEXEC, FIRST_FREE) : -1;
    close_end(ends.writer);
    close_end(ends.reader);
    if (high < 0)
        return HEARTH_SYSTEM;
    if (lseek(high, 0, SEEK_SET) != 0) {
        close(high);
        return HEARTH_SYSTEM;
    }
    *fd = high;
    return HEARTH_OK;
}

int memory_file_hand_on(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    return flags >= 0 && fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC) == 0 ? HEARTH_OK : HEARTH_SYSTEM;
}
