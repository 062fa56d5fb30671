/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes: getrandom on Linux, /dev/urandom elsewhere and in the posix build. */
#include "os/random.h"

#include <errno.h>

#if defined(__linux__) && !defined(HEARTH_POSIX)

#include <sys/random.h>

int random_bytes(void *target, size_t len)
{
    uint8_t *at = target;

    while (len > 0) {
        ssize_t got = getrandom(at, len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return HEARTH_SYSTEM;
        at += got;
        len -= (size_t)got;
    }
    return HEARTH_OK;
}

#else

#include <fcntl.h>
#include <unistd.h>

int random_bytes(void *target, size_t len)
{
    uint8_t *at = target;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return HEARTH_SYSTEM;
    while (len > 0) {
        ssize_t got = read(fd, at, len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        at += got;
        len -= (size_t)got;
    }
    close(fd);
    return len == 0 ? HEARTH_OK : HEARTH_SYSTEM;
}

#endif
