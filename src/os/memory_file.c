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

#if defined(__linux__) && !defined(HEARTH_POSIX)

static int nameless(void)
{
    return memfd_create("hearth", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static bool freeze(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
}

#else

static int nameless(void)
{
    char memory[] = "/dev/shm/hearth-XXXXXX", disk[] = "/tmp/hearth-XXXXXX";
    char *name = memory;
    int fd = mkstemp(name); /* mode 0600 */
    if (fd < 0) {
        name = disk;
        fd = mkstemp(name);
    }
    if (fd < 0)
        return -1;
    unlink(name);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/* There are no seals: a process of the same user is trusted not to change it. */
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

int memory_file_make(const void *bytes, size_t len, int *fd)
{
    int made = nameless(), high = made < 0 ? -1 : fcntl(made, F_DUPFD_CLOEXEC, FIRST_FREE);
    if (made >= 0)
        close(made);
    if (high < 0)
        return HEARTH_SYSTEM;
    if (!write_all(high, bytes, len) || lseek(high, 0, SEEK_SET) != 0 || !freeze(high)) {
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
