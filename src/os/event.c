/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor that becomes readable: eventfd on Linux, a pair of sockets elsewhere and in the posix build (a
 * pipe whose reader is gone would raise a signal). */
#include "os/event.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
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

/* It has no file type, unlike pipes and sockets, which raise a signal when nobody reads. */
static bool is_event(mode_t mode)
{
    return (mode & S_IFMT) == 0;
}

static ssize_t event_write(int fd, const void *bytes, size_t len)
{
    return write(fd, bytes, len);
}

#else

#include <sys/socket.h>

#include "os/sock.h"

int event_open(struct event *e)
{
    int fd[2];

    if (sock_pair(fd) != HEARTH_OK)
        return HEARTH_SYSTEM;
    e->read_fd = fd[0];
    e->write_fd = fd[1];
    return HEARTH_OK;
}

static bool is_event(mode_t mode)
{
    return S_ISSOCK(mode);
}

static ssize_t event_write(int fd, const void *bytes, size_t len)
{
    return send(fd, bytes, len, MSG_NOSIGNAL);
}

#endif

int event_adopt(struct event *e, int fd)
{
    struct stat facts;

    if (fstat(fd, &facts) != 0 || !is_event(facts.st_mode) || fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        close(fd);
        return HEARTH_PROTOCOL;
    }
    e->read_fd = e->write_fd = fd;
    return HEARTH_OK;
}

void event_signal(struct event *e)
{
    uint64_t one = 1;
    ssize_t done;

    /* A full socket or counter (EAGAIN) is readable already, which is all that is asked for. */
    do
        done = event_write(e->write_fd, &one, sizeof one);
    while (done < 0 && errno == EINTR);
}

void event_clear(struct event *e)
{
    uint8_t signals[256];
    ssize_t len;

    do
        len = read(e->read_fd, signals, sizeof signals);
    while ((len < 0 && errno == EINTR) || len == (ssize_t)sizeof signals);
}

void event_close(struct event *e)
{
    if (e->write_fd >= 0 && e->write_fd != e->read_fd)
        close(e->write_fd);
    if (e->read_fd >= 0)
        close(e->read_fd);
    e->read_fd = e->write_fd = -1;
}
