/* SPDX-License-Identifier: Apache-2.0 */
/* Stream sockets: listening, dialling, moving bytes, waiting. */
#define _GNU_SOURCE 1 /* accept4, ppoll, struct ucred */
#include "os/sock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/fork.h"
#include "os/sock_native.h"

#if defined(__linux__) && !defined(HEARTH_POSIX)
#define LINUX 1
#include <linux/tcp.h> /* the C library's own struct tcp_info ends too early */
#else
#define LINUX 0
#include <netinet/tcp.h>
#endif

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0 /* then there is SO_NOSIGPIPE */
#endif

#define PIECES_MAX 1024 /* what the system takes at once */

/* ---- making and ending ---- */

/* Between socket and fcntl another thread may fork and exec: only the calls of Linux close that gap. */
static bool manners(int fd)
{
#if defined(SO_NOSIGPIPE)
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) != 0)
        return false;
#endif
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

#if !LINUX
static int well_mannered(int fd)
{
    if (fd >= 0 && !manners(fd)) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}
#endif

int sock_make(int family, int type)
{
#if LINUX
    return socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
#else
    return well_mannered(socket(family, type, 0));
#endif
}

static int socket_take(int listener, struct sockaddr *from, socklen_t *len)
{
#if LINUX
    return accept4(listener, from, len, SOCK_CLOEXEC | SOCK_NONBLOCK);
#else
    return well_mannered(accept(listener, from, len));
#endif
}

/* A congestion control that was in use leaves its pacing behind when it is replaced (Linux, bbr). So the
 * choice is made before there is a connection; what is accepted inherits it from its listener. */
static void choose_congestion(int fd)
{
#if defined(TCP_CONGESTION)
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
#else
    (void)fd;
#endif
}

static int stream_open(const struct sock_addr *addr)
{
    int family = sock_addr_native(addr)->sa_family;
    int fd = sock_make(family, SOCK_STREAM);
    fork_closes(fd);
    if (fd >= 0 && family != AF_UNIX)
        choose_congestion(fd);
    return fd;
}

void sock_close(int fd)
{
    fork_keeps(fd);
    if (fd >= 0)
        close(fd);
}

void sock_finish(int fd)
{
    shutdown(fd, SHUT_WR);
}

int sock_local(int fd, struct sock_addr *out)
{
    struct sockaddr_storage native;
    socklen_t len = sizeof native;

    if (getsockname(fd, (struct sockaddr *)&native, &len) != 0 ||
        !sock_addr_take(out, (struct sockaddr *)&native, len))
        return HEARTH_SYSTEM;
    return HEARTH_OK;
}

int sock_pair(int fds[2])
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return HEARTH_SYSTEM;
    if (!manners(pair[0]) || !manners(pair[1])) {
        close(pair[0]);
        close(pair[1]);
        return HEARTH_SYSTEM;
    }
    memcpy(fds, pair, sizeof pair);
    return HEARTH_OK;
}

/* ---- listening ---- */

static int refuse(struct error *error, int status, const char *what, const struct sock_addr *addr, int why)
{
    char text[SOCK_TEXT_MAX];
    sock_addr_text(addr, text, sizeof text);
    enum hearth_reason reason = why == EADDRINUSE            ? HEARTH_REASON_ADDRESS_IN_USE
                                : status == HEARTH_PEER_LOST ? HEARTH_REASON_UNREACHABLE
                                                             : HEARTH_REASON_NONE;
    return error_because(error, reason, status, RANK_NONE, "cannot %s %s: %s", what, text, strerror(why));
}

static int tcp_bind(int fd, const struct sock_addr *addr)
{
    int on = 1, off = 0;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* "::" hears IPv4 too. */
    if (sock_addr_family(addr) == SOCK_IPV6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, sock_addr_wildcard(addr) ? &off : &on, sizeof on);
    return bind(fd, sock_addr_native(addr), addr->len);
}

int sock_listen(const struct sock_addr *addr, int backlog, int *fd, struct sock_addr *bound,
                struct error *error)
{
    struct sock_addr where = *addr;
    int lock = -1;

    int status = sock_unix_enter(addr, true, &lock, error);
    if (status != HEARTH_OK)
        return status;
    int s = stream_open(addr);
    if (s < 0) {
        status = refuse(error, HEARTH_SYSTEM, "listen on", addr, errno);
        goto leave;
    }
    int failed = sock_addr_family(addr) == SOCK_UNIX ? sock_unix_bind(s, addr) : tcp_bind(s, addr);
    if (failed != 0 || listen(s, backlog) != 0) {
        status = refuse(error, errno == EADDRINUSE ? HEARTH_LIMIT : HEARTH_SYSTEM, "listen on", addr, errno);
        goto close_socket;
    }
    if (sock_addr_family(addr) != SOCK_UNIX && sock_local(s, &where) != HEARTH_OK) {
        status = refuse(error, HEARTH_SYSTEM, "listen on", addr, errno);
        goto close_socket;
    }
    *fd = s;
    if (bound)
        *bound = where;
    goto leave;

close_socket:
    sock_close(s);
leave:
    sock_close(lock);
    return status;
}

void sock_unlisten(int fd)
{
    struct sock_addr addr;
    bool private;

    if (fd < 0)
        return;
    if (sock_local(fd, &addr) == HEARTH_OK && sock_addr_path(&addr, &private))
        unlink(sock_addr_path(&addr, &private));
    sock_close(fd);
}

int sock_accept(int listener, int *fd, struct sock_addr *from)
{
    struct sockaddr_storage native;
    socklen_t len = sizeof native;

    memset(&native, 0, sizeof native);
    int s = socket_take(listener, (struct sockaddr *)&native, &len);
    if (s < 0) {
        switch (errno) {
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
            return HEARTH_LIMIT;
        case EBADF:
        case EINVAL:
        case ENOTSOCK:
            return HEARTH_SYSTEM;
        default: /* nobody waits, or whoever did is gone again */
            return HEARTH_PENDING;
        }
    }
    fork_closes(s);
    if (from && !sock_addr_take(from, (struct sockaddr *)&native, len)) {
        sock_close(s);
        return HEARTH_SYSTEM;
    }
    *fd = s;
    return HEARTH_OK;
}

/* ---- dialling ---- */

/* No listener, no route, or too busy: another attempt may succeed. */
static bool peers_fault(int why)
{
    static const int faults[] = {ECONNREFUSED, ECONNRESET, ECONNABORTED, ENETUNREACH, EHOSTUNREACH, EHOSTDOWN,
                                 ENETDOWN,     ETIMEDOUT,  ENOENT,       EAGAIN,      EADDRNOTAVAIL};

    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (why == faults[i])
            return true;
    return false;
}

static int dial(const struct sock_addr *to, const struct sock_addr *from, int *fd, struct error *error)
{
    int status = sock_unix_enter(to, false, NULL, error);
    if (status != HEARTH_OK)
        return status;
    int s = stream_open(to);
    if (s < 0)
        return refuse(error, HEARTH_SYSTEM, "dial", to, errno);
    if (from && bind(s, sock_addr_native(from), from->len) != 0) {
        status = refuse(error, HEARTH_SYSTEM, "dial from", from, errno);
        goto close_socket;
    }
    int err;
    do
        err = connect(s, sock_addr_native(to), to->len);
    while (err != 0 && errno == EINTR && sock_addr_family(to) == SOCK_UNIX);
    if (err != 0 && errno != EINPROGRESS && errno != EINTR) {
        status = refuse(error, peers_fault(errno) ? HEARTH_PEER_LOST : HEARTH_SYSTEM, "dial", to, errno);
        goto close_socket;
    }
    *fd = s;
    return HEARTH_OK;

close_socket:
    sock_close(s);
    return status;
}

int sock_dial(const struct sock_addr *to, const struct sock_addr *from, int *fd, struct error *error)
{
    struct sock_addr other;
    struct error why;

    int status = dial(to, from, fd, error);
    if (status == HEARTH_PEER_LOST && sock_unix_elsewhere(to, &other) &&
        dial(&other, from, fd, &why) == HEARTH_OK)
        return HEARTH_OK;
    return status;
}

static int pending_error(int fd)
{
    int why = 0;
    socklen_t len = sizeof why;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) == 0 ? why : errno;
}

/* Whoever dials a port of its own machine that nobody listens on may be given that port as its own, and then
 * the connection leads to itself. */
static bool met_itself(int fd, const struct sock_addr *to)
{
    struct sock_addr here;
    return sock_addr_family(to) != SOCK_UNIX && sock_local(fd, &here) == HEARTH_OK &&
           sock_addr_equal(&here, to);
}

int sock_dialled(int fd, const struct sock_addr *to, struct error *error)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    int why = pending_error(fd);
    if (why == 0 && getpeername(fd, (struct sockaddr *)&peer, &len) == 0) {
        if (met_itself(fd, to))
            return refuse(error, HEARTH_PEER_LOST, "dial", to, ECONNREFUSED);
        return HEARTH_OK;
    }
    if (why == 0 && poll(&p, 1, 0) <= 0)
        return HEARTH_PENDING;
    if (why == 0)
        why = pending_error(fd);
    if (why == 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0)
        return HEARTH_PENDING;
    return refuse(error, HEARTH_PEER_LOST, "dial", to, why != 0 ? why : ECONNRESET);
}

void sock_tune(int fd, const struct sock_tuning *tuning)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (tuning->congestion)
        choose_congestion(fd);
    if (tuning->send_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &tuning->send_bytes, sizeof tuning->send_bytes);
    if (tuning->recv_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &tuning->recv_bytes, sizeof tuning->recv_bytes);
}

uint64_t tcp_least_round_trip(int fd)
{
#if LINUX
    struct tcp_info info;
    socklen_t len = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
        len >= offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt &&
        info.tcpi_min_rtt != UINT32_MAX)
        return info.tcpi_min_rtt * NS_PER_US;
#endif
    (void)fd;
    return 0;
}

void tcp_hold_back(int fd, int bytes)
{
#if LINUX
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
#endif
    (void)fd;
    (void)bytes;
}

/* ---- bytes ---- */

static bool not_now(int why)
{
    return why == EAGAIN || why == EWOULDBLOCK || why == ENOBUFS || why == ENOMEM;
}

static ssize_t send_once(int fd, const struct iovec *pieces, int count)
{
    if (count == 1) /* cheaper: the system has no list to copy */
        return send(fd, pieces->iov_base, pieces->iov_len, MSG_NOSIGNAL);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces};
    message.msg_iovlen = (unsigned)(count < PIECES_MAX ? count : PIECES_MAX);
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

ssize_t sock_send(int fd, const struct iovec *pieces, int count)
{
    ssize_t done;

    do
        done = send_once(fd, pieces, count);
    while (done < 0 && errno == EINTR);
    return done >= 0 ? done : not_now(errno) ? 0 : HEARTH_PEER_LOST;
}

static size_t pieces_len(const struct iovec *pieces, int count)
{
    size_t len = 0;
    for (int i = 0; i < count; i++)
        len += pieces[i].iov_len;
    return len;
}

ssize_t sock_recv(int fd, const struct iovec *pieces, int count)
{
    ssize_t done;

    do
        done = count == 1 ? recv(fd, pieces->iov_base, pieces->iov_len, 0)
                          : readv(fd, pieces, count < PIECES_MAX ? count : PIECES_MAX);
    while (done < 0 && errno == EINTR);
    if (done > 0)
        return done;
    if (done == 0) /* the end, unless nothing was asked for */
        return pieces_len(pieces, count) > 0 ? HEARTH_PEER_LOST : 0;
    return not_now(errno) ? 0 : HEARTH_PEER_LOST;
}

/* ---- waiting ---- */

static int poll_until(struct pollfd *polls, size_t count, uint64_t deadline_ns)
{
    uint64_t now_ns = deadline_ns == NEVER_NS ? 0 : clock_real();
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
#if LINUX
    struct timespec left = {.tv_sec = (time_t)(left_ns / NS_PER_S), .tv_nsec = (long)(left_ns % NS_PER_S)};
    return ppoll(polls, count, deadline_ns == NEVER_NS ? NULL : &left, NULL);
#else
    uint64_t left_ms = left_ns / NS_PER_MS + (left_ns % NS_PER_MS != 0);
    return poll(polls, (nfds_t)count,
                deadline_ns == NEVER_NS ? -1 : (int)(left_ms < INT_MAX ? left_ms : INT_MAX));
#endif
}

size_t sock_count_max(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return (size_t)files.rlim_cur;
}

int sock_wait(struct sock_wait *items, size_t count, uint64_t deadline_ns)
{
    struct pollfd polls[SOCK_WAIT_MAX];
    size_t used = 0;
    int ready = 0;

    assert(count <= SOCK_WAIT_MAX);
    /* No more than there are descriptors: poll takes no longer list than the process may have files open. */
    for (size_t i = 0; i < count; i++) {
        items[i].ready = false;
        if (items[i].fd < 0)
            continue;
        polls[used] = (struct pollfd){.fd = items[i].fd};
        polls[used++].events =
            (short)((items[i].want_recv ? POLLIN : 0) | (items[i].want_send ? POLLOUT : 0));
    }
    if (poll_until(polls, used, deadline_ns) <= 0)
        return 0;
    used = 0;
    for (size_t i = 0; i < count; i++)
        if (items[i].fd >= 0) {
            items[i].ready = polls[used++].revents != 0;
            ready += items[i].ready;
        }
    return ready;
}
