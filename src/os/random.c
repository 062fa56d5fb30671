/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes: getrandom on Linux, /dev/urandom elsewhere and in the posix build. */
#include "os/random.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#if defined(__linux__) && !defined(HEARTH_POSIX)

#include <sys/random.h>

static ssize_t draw(void *target, size_t len)
{
    return getrandom(target, len, 0);
}

#else

static ssize_t draw(void *target, size_t len)
{
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, target, len);

    if (fd >= 0)
        close(fd);
    return got;
}

#endif

int random_bytes(void *target, size_t len)
{
    uint8_t *at = target;

    while (len > 0) {
        ssize_t got = draw(at, len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return HEARTH_SYSTEM;
        at += got;
        len -= (size_t)got;
    }
    return HEARTH_OK;
}
