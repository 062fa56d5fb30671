/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that becomes readable: eventfd on Linux, a pipe elsewhere and in the posix build. */
#include "os/event.h"

#include <errno.h>
#include <unistd.h>

#if defined(__linux__) && !defined(HEARTH_POSIX)

#include <sys/eventfd.h>

int event_open(struct event *e)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (fd < 0)
        return HEARTH_SYSTEM;
    e->read_fd = e->write_fd = fd;
    return HEARTH_OK;
}

#else

#include <fcntl.h>

/* Between pipe and fcntl another thread may fork and exec: only pipe2, which not every system has, closes
 * that gap. */
int event_open(struct event *e)
{
    int fd[2];

    if (pipe(fd) != 0)
        return HEARTH_SYSTEM;
    for (int i = 0; i < 2; i++) {
        if (fcntl(fd[i], F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd[i], F_SETFL, O_NONBLOCK) != 0) {
            close(fd[0]);
            close(fd[1]);
            return HEARTH_SYSTEM;
        }
    }
    e->read_fd = fd[0];
    e->write_fd = fd[1];
    return HEARTH_OK;
}

#endif

void event_signal(struct event *e)
{
    uint64_t one = 1;
    ssize_t done;

    /* A full pipe or counter (EAGAIN) is readable already, which is all that is asked for. */
    do
        done = write(e->write_fd, &one, sizeof(one));
    while (done < 0 && errno == EINTR);
}

void event_close(struct event *e)
{
    if (e->write_fd >= 0 && e->write_fd != e->read_fd)
        close(e->write_fd);
    if (e->read_fd >= 0)
        close(e->read_fd);
    e->read_fd = e->write_fd = -1;
}
