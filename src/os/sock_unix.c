/* SPDX-License-Identifier: Apache-2.0 */
/* What only unix sockets have: files that outlive their owner, descriptors as messages, the peer's user. */
#define _GNU_SOURCE 1 /* struct ucred */
#include "os/sock_native.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/hash.h"

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0
#endif
#if !defined(MSG_CMSG_CLOEXEC)
#define MSG_CMSG_CLOEXEC 0
#endif

#define TMP           "/tmp"
#define SWEEP_MAX     1024 /* files of the folder that are looked at */
#define LOCK_TRIES    2000 /* with LOCK_PAUSE_NS between them: ten seconds */
#define LOCK_PAUSE_NS 5000000
#define MESSAGE_MAX   256

/* ---- files ---- */

/* Others can neither list, write nor replace what is in it. */
static bool is_private(const struct stat *s)
{
    return S_ISDIR(s->st_mode) && s->st_uid == geteuid() && (s->st_mode & 077) == 0;
}

static void folder_of_tmp(char folder[SOCK_FOLDER_MAX])
{
    snprintf(folder, SOCK_FOLDER_MAX, TMP "/hearth-%lu", (unsigned long)geteuid());
}

/* false: it is not set, or no good. */
static bool folder_of_session(char folder[SOCK_FOLDER_MAX])
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    struct stat s;

    return base && base[0] == '/' && lstat(base, &s) == 0 && is_private(&s) &&
           snprintf(folder, SOCK_FOLDER_MAX, "%s/hearth", base) < SOCK_FOLDER_MAX;
}

void sock_folder(char folder[SOCK_FOLDER_MAX])
{
    if (!folder_of_session(folder))
        folder_of_tmp(folder);
}

static bool is_in(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return strncmp(path, folder, len) == 0 && path[len] == '/' && !strchr(path + len + 1, '/');
}

bool sock_folder_holds(const char *path)
{
    char folder[SOCK_FOLDER_MAX];

    if (folder_of_session(folder) && is_in(path, folder))
        return true;
    folder_of_tmp(folder);
    return is_in(path, folder);
}

uint64_t sock_names_id(void)
{
    char folder[SOCK_FOLDER_MAX];
    struct stat s;

    if (!folder_of_session(folder))
        snprintf(folder, sizeof folder, TMP);
    else
        *strrchr(folder, '/') = '\0';
    return stat(folder, &s) == 0 ? hash_mix((uint64_t)s.st_dev, (uint64_t)s.st_ino) : 0;
}

bool sock_unix_elsewhere(const struct sock_addr *addr, struct sock_addr *other)
{
    char folder[SOCK_FOLDER_MAX];
    bool private = false;
    const char *path = sock_addr_path(addr, &private);

    folder_of_tmp(folder);
    if (!path || !private || is_in(path, folder))
        return false;
    sock_addr_in_folder(other, folder, strrchr(path, '/') + 1);
    return true;
}

static int folder_refuse(const char *folder, const struct stat *s, struct error *error)
{
    static const char *const help = "remove it, or set XDG_RUNTIME_DIR to a folder of yours with mode 0700";
    if (S_ISLNK(s->st_mode) || !S_ISDIR(s->st_mode))
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "the folder for sockets, %s, is a %s: %s", folder,
                         S_ISLNK(s->st_mode) ? "symbolic link" : "file", help);
    if (s->st_uid != geteuid())
        return error_set(error, HEARTH_SYSTEM, RANK_NONE,
                         "the folder for sockets, %s, belongs to user %lu and not to %lu: %s", folder,
                         (unsigned long)s->st_uid, (unsigned long)geteuid(), help);
    return error_set(error, HEARTH_SYSTEM, RANK_NONE,
                     "the folder for sockets, %s, can be entered by others (mode %04o): chmod 700 %s", folder,
                     (unsigned)s->st_mode & 07777u, folder);
}

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
    return is_private(&s) ? HEARTH_OK : folder_refuse(folder, &s, error);
}

static void folder_of(const char *path, char folder[sizeof(struct sockaddr_un)])
{
    size_t len = (size_t)(strrchr(path, '/') - path);
    snprintf(folder, sizeof(struct sockaddr_un), "%.*s", len > 0 ? (int)len : 1, path);
}

/* Two that find a stale file at once must not replace each other's: one at a time in a folder. */
static int folder_lock(const char *path, int *lock, struct error *error)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    char folder[sizeof(struct sockaddr_un)];

    folder_of(path, folder);
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

/* A socket file, and no process has the socket any more. A datagram socket cannot be connected with one of
 * streams, but it is told whether there is one, and the owner notices nothing. */
static bool stale(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct stat s;

    if (lstat(path, &s) != 0 || !S_ISSOCK(s.st_mode) || strlen(path) >= sizeof un.sun_path)
        return false;
    memcpy(un.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0)
        return false;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    bool refused = connect(fd, (const struct sockaddr *)&un, sizeof un) != 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* What killed processes left, in the folder that is ours alone. Under the lock of the folder. */
static void sweep(const char *folder)
{
    char path[sizeof(struct sockaddr_un)];
    DIR *list = opendir(folder);
    const struct dirent *entry;

    for (int i = 0; list && i < SWEEP_MAX && (entry = readdir(list)); i++)
        if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < sizeof path && stale(path))
            unlink(path);
    if (list)
        closedir(list);
}

int sock_unix_enter(const struct sock_addr *addr, bool to_listen, int *lock, struct error *error)
{
    char folder[sizeof(struct sockaddr_un)];
    bool private = false;
    const char *path = sock_addr_path(addr, &private);
    int status = HEARTH_OK;

    if (!path)
        return HEARTH_OK;
    folder_of(path, folder);
    if (private)
        status = folder_check(folder, to_listen, error);
    if (to_listen && status == HEARTH_OK)
        status = folder_lock(path, lock, error);
    if (to_listen && status == HEARTH_OK && private)
        sweep(folder);
    return status;
}

int sock_unix_bind(int fd, const struct sock_addr *addr)
{
    bool private;
    const char *path = sock_addr_path(addr, &private);

    int err = bind(fd, sock_addr_native(addr), addr->len);
    if (err != 0 && errno == EADDRINUSE) {
        if (stale(path))
            unlink(path);
        err = bind(fd, sock_addr_native(addr), addr->len); /* also for its errno */
    }
    return err != 0 ? err : chmod(path, 0600);
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
    memset(&control, 0, sizeof control);
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

    for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c; c = CMSG_NXTHDR(head, c)) {
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

    memset(&control, 0, sizeof control);
    do {
        head.msg_controllen = sizeof control;
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
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && len == sizeof peer &&
           peer.uid == geteuid();
#else
    uid_t user;
    gid_t group;
    return getpeereid(fd, &user, &group) == 0 && user == geteuid();
#endif
}
