/* SPDX-License-Identifier: Apache-2.0 */
/* What only unix sockets have: files that outlive their owner, descriptors as messages, the peer's user. */
#define _GNU_SOURCE 1 /* struct ucred */
#include "os/sock_unix.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "os/sock_native.h"

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0
#endif
#if !defined(MSG_CMSG_CLOEXEC)
#define MSG_CMSG_CLOEXEC 0
#endif

#define LOCK_TRIES    200 /* with LOCK_PAUSE_NS between them: a second */
#define LOCK_PAUSE_NS 5000000
#define MESSAGE_MAX   256

/* ---- files ---- */

/* Whoever can write in the folder could put a socket of their own there. */
static int folder_check(const char *folder, bool make, struct error *error)
{
    struct stat s;

    if (make && mkdir(folder, 0700) != 0 && errno != EEXIST)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot make the folder %s: %s", folder,
                         strerror(errno));
    if (lstat(folder, &s) != 0)
        return errno == ENOENT ? HEARTH_OK /* then nobody listens either */
                               : error_set(error, HEARTH_SYSTEM, RANK_NONE,
                                           "cannot look at the folder %s: %s", folder, strerror(errno));
    if (!S_ISDIR(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 077) != 0)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE,
                         "%s is not a folder that only user %lu may enter: remove it", folder,
                         (unsigned long)geteuid());
    return HEARTH_OK;
}

/* Two that find a stale file at once must not replace each other's: one at a time in a folder. */
static int folder_lock(const char *path, int *lock, struct error *error)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    char folder[sizeof(struct sockaddr_un)];
    size_t len = (size_t)(strrchr(path, '/') - path);

    snprintf(folder, sizeof(folder), "%.*s", len > 0 ? (int)len : 1, path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            *lock = fd;
            return HEARTH_OK;
        }
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        nanosleep(&pause, NULL);
    }
    int why = errno;
    if (fd >= 0)
        close(fd);
    return error_set(error, HEARTH_SYSTEM, RANK_NONE, "cannot listen on unix:%s: the folder: %s", path,
                     strerror(why));
}

int sock_unix_enter(const struct sock_addr *addr, bool to_listen, int *lock, struct error *error)
{
    char folder[SOCK_FOLDER_MAX];
    bool private = false;
    const char *path = sock_addr_path(addr, &private);
    int status = HEARTH_OK;

    if (path != NULL && private) {
        sock_folder(folder);
        status = folder_check(folder, to_listen, error);
    }
    if (path != NULL && to_listen && status == HEARTH_OK)
        status = folder_lock(path, lock, error);
    return status;
}

/* A socket file, and nobody listens on it. */
static bool stale(const struct sock_addr *addr, const char *path)
{
    struct stat s;

    if (lstat(path, &s) != 0 || !S_ISSOCK(s.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0)
        return false;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    bool refused = connect(fd, sock_addr_native(addr), addr->len) != 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

int sock_unix_bind(int fd, const struct sock_addr *addr)
{
    bool private;
    const char *path = sock_addr_path(addr, &private);

    int err = bind(fd, sock_addr_native(addr), addr->len);
    if (path == NULL)
        return err;
    if (err != 0 && errno == EADDRINUSE && stale(addr, path)) {
        unlink(path);
        err = bind(fd, sock_addr_native(addr), addr->len);
    }
    if (err == 0)
        err = chmod(path, 0600);
    return err;
}

/* ---- descriptors ---- */

union control {
    struct cmsghdr align;
    uint8_t bytes[CMSG_SPACE(sizeof(int) * SOCK_FDS_MAX)];
};

int sock_send_fds(int fd, const void *message, size_t len, const int *fds, int count)
{
    struct iovec piece = {.iov_base = (void *)(uintptr_t)message, .iov_len = len};
    struct msghdr head = {.msg_iov = &piece, .msg_iovlen = 1};
    union control control;
    ssize_t done;

    assert(len >= 1 && len <= MESSAGE_MAX && count >= 0 && count <= SOCK_FDS_MAX);
    memset(&control, 0, sizeof(control));
    if (count > 0) {
        size_t bytes = sizeof(int) * (size_t)count;
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(&control.align), fds, bytes);
        head.msg_control = &control;
        head.msg_controllen = CMSG_SPACE(bytes);
    }
    do
        done = sendmsg(fd, &head, MSG_NOSIGNAL);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? HEARTH_PENDING
                                                                           : HEARTH_PEER_LOST;
    /* So short a message goes whole or not at all. */
    return (size_t)done == len ? HEARTH_OK : HEARTH_PEER_LOST;
}

/* Those beyond count_max are closed. */
static int take_fds(struct msghdr *head, int *fds, int count_max)
{
    int count = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c != NULL; c = CMSG_NXTHDR(head, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t came = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < came; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (count < count_max) {
                fcntl(fd, F_SETFD, FD_CLOEXEC);
                fds[count++] = fd;
            } else {
                close(fd);
            }
        }
    }
    return count;
}

ssize_t sock_recv_fds(int fd, void *message, size_t len_max, int *fds, int count_max, int *count)
{
    struct iovec piece = {.iov_base = message, .iov_len = len_max};
    union control control;
    struct msghdr head = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control};
    ssize_t done;

    memset(&control, 0, sizeof(control));
    do {
        head.msg_controllen = sizeof(control);
        done = recvmsg(fd, &head, MSG_CMSG_CLOEXEC);
    } while (done < 0 && errno == EINTR);
    *count = 0;
    if (done < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : HEARTH_PEER_LOST;
    *count = take_fds(&head, fds, count_max);
    return done == 0 ? HEARTH_PEER_LOST : done;
}

bool sock_same_user(int fd)
{
#if defined(SO_PEERCRED)
    struct ucred peer;
    socklen_t len = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && len == sizeof(peer) &&
           peer.uid == geteuid();
#else
    uid_t user;
    gid_t group;
    return getpeereid(fd, &user, &group) == 0 && user == geteuid();
#endif
}
