/* SPDX-License-Identifier: Apache-2.0 */
/* UDP: Linux with its batches, and a portable twin with a system call for each datagram. */
#define _GNU_SOURCE 1 /* recvmmsg, struct in6_pktinfo */
#include "os/datagram.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/fork.h"
#include "os/sock_native.h"

#if defined(__linux__) && !defined(HEARTH_POSIX)
#define LINUX 1
#include <linux/errqueue.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#else
#define LINUX 0
#endif

#define HEADERS_V4      28u /* IP and UDP */
#define HEADERS_V6      48u
#define MTU_USUAL       1500u
#define MTU_LOOPBACK    16384u
#define SEGMENTS_MAX    64u /* datagrams of a batch */
#define CALL_TRIES      8   /* each may only report what befell an earlier datagram */
#define DROP_ERRORS_MAX 64  /* mishaps that are read in one go */

/* ---- making and ending ---- */

/* As much as we may have, and not less than the system gives by itself. */
static void buffer_set(int fd, int force, int plain, int bytes)
{
    int now = 0;
    socklen_t len = sizeof now;

    if (force != 0 && setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof bytes) == 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, plain, &now, &len) == 0 && now >= bytes)
        return;
    for (; bytes > now && setsockopt(fd, SOL_SOCKET, plain, &bytes, sizeof bytes) != 0;)
        bytes /= 2; /* some systems refuse what is too much */
}

static void buffers_set(int fd, int bytes)
{
#if LINUX
    buffer_set(fd, SO_RCVBUFFORCE, SO_RCVBUF, bytes);
    buffer_set(fd, SO_SNDBUFFORCE, SO_SNDBUF, bytes);
#else
    buffer_set(fd, 0, SO_RCVBUF, bytes);
    buffer_set(fd, 0, SO_SNDBUF, bytes);
#endif
}

/* What the system refuses stays as it was. */
static void option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

static void options_set(struct datagram_port *port, bool v6)
{
#if LINUX
    int on = 1;
    option(port->fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    option(port->fd, IPPROTO_IP, IP_RECVERR, 1);
    if (v6) {
        option(port->fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
        option(port->fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
    }
    option(port->fd, IPPROTO_UDP, UDP_GRO, 1);
    /* A socket that takes a size of segments has the option; then each batch brings its own. */
    port->segments = setsockopt(port->fd, IPPROTO_UDP, UDP_SEGMENT, &on, sizeof on) == 0;
    option(port->fd, IPPROTO_UDP, UDP_SEGMENT, 0);
#else
    (void)v6;
#if defined(IP_DONTFRAG)
    option(port->fd, IPPROTO_IP, IP_DONTFRAG, 1);
#endif
    port->segments = false;
#endif
}

static int refuse(struct error *error, const struct sock_addr *addr, int why)
{
    char text[SOCK_TEXT_MAX];
    sock_addr_text(addr, text, sizeof text);
    bool taken = why == EADDRINUSE;
    return error_because(error, taken ? HEARTH_REASON_ADDRESS_IN_USE : HEARTH_REASON_NONE,
                         taken ? HEARTH_LIMIT : HEARTH_SYSTEM, RANK_NONE, "cannot take datagrams at %s: %s",
                         text, strerror(why));
}

int datagram_open(const struct sock_addr *local, int buffer_bytes, struct datagram_port *port,
                  struct sock_addr *bound, struct error *error)
{
    enum sock_family family = sock_addr_family(local);
    bool v6 = family == SOCK_IPV6;
    struct sock_addr where;

    if (family != SOCK_IPV4 && family != SOCK_IPV6)
        return refuse(error, local, EAFNOSUPPORT);
    int fd = sock_make(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM);
    if (fd < 0)
        return refuse(error, local, errno);
    fork_closes(fd);
    *port = (struct datagram_port){.fd = fd, .mapped = v6};
    if (v6)
        option(fd, IPPROTO_IPV6, IPV6_V6ONLY, !sock_addr_wildcard(local));
    if (bind(fd, sock_addr_native(local), local->len) != 0 || sock_local(fd, &where) != HEARTH_OK) {
        int why = errno;
        datagram_close(port);
        return refuse(error, local, why);
    }
    buffers_set(fd, buffer_bytes);
    options_set(port, v6);
    if (bound)
        *bound = where;
    return HEARTH_OK;
}

void datagram_close(struct datagram_port *port)
{
    sock_close(port->fd);
    port->fd = -1;
}

/* ---- sizes ---- */

/* Of the interface; 0: the system does not tell. */
static size_t mtu_towards(const struct sock_addr *to)
{
#if LINUX
    bool v6 = sock_addr_family(to) == SOCK_IPV6;
    int mtu = 0;
    socklen_t len = sizeof mtu;
    int fd = sock_make(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM);

    if (fd < 0)
        return 0;
    if (connect(fd, sock_addr_native(to), to->len) != 0 ||
        getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &len) != 0)
        mtu = 0;
    close(fd);
    return mtu > 0 ? (size_t)mtu : 0;
#else
    (void)to;
    return 0;
#endif
}

size_t datagram_size(const struct sock_addr *to)
{
    size_t headers = sock_addr_family(to) == SOCK_IPV6 ? HEADERS_V6 : HEADERS_V4, mtu = mtu_towards(to);
    if (mtu == 0)
        mtu = sock_addr_loopback(to) ? MTU_LOOPBACK : MTU_USUAL;
    size_t size = mtu > headers ? mtu - headers : 0;
    size = size > DATAGRAM_BATCH ? DATAGRAM_BATCH : size;
    return size > DATAGRAM_SIZE_SAFE ? size : DATAGRAM_SIZE_SAFE;
}

/* ---- out ---- */

/* The system's form of an address, as this socket wants it. */
static socklen_t native_to(const struct datagram_port *port, const struct sock_addr *to,
                           struct sockaddr_storage *native)
{
    if (!port->mapped || sock_addr_family(to) != SOCK_IPV4) {
        memcpy(native, to->raw, to->len);
        return to->len;
    }
    struct sockaddr_in v4;
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    memcpy(&v4, to->raw, sizeof v4);
    v6.sin6_port = v4.sin_port;
    v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
    memcpy(&v6.sin6_addr.s6_addr[12], &v4.sin_addr, 4);
    memcpy(native, &v6, sizeof v6);
    return sizeof v6;
}

static int outcome_of(int why)
{
    switch (why) {
    case EAGAIN:
#if EWOULDBLOCK != EAGAIN
    case EWOULDBLOCK:
#endif
    case ENOBUFS:
    case ENOMEM:
        return HEARTH_PENDING;
    case EMSGSIZE:
        return HEARTH_LIMIT;
    default: /* no way there, or nobody: as good as lost on the way */
        return HEARTH_OK;
    }
}

/* A call may fail with what befell an earlier datagram, perhaps another peer's: then it is made again. */
static bool says_earlier(struct datagram_port *port, int why)
{
    bool mishap = why == ECONNREFUSED || why == EHOSTUNREACH || why == ENETUNREACH;
    port->mishaps = port->mishaps || mishap;
    return why == EINTR || mishap;
}

static int send_message(struct datagram_port *port, const struct msghdr *message)
{
    for (int tries = 0; tries < CALL_TRIES; tries++) {
        if (sendmsg(port->fd, message, 0) >= 0)
            return HEARTH_OK;
        if (!says_earlier(port, errno))
            return outcome_of(errno);
    }
    return HEARTH_OK;
}

static int send_each(struct datagram_port *port, struct msghdr *message, size_t size)
{
    struct iovec *piece = message->msg_iov;
    uint8_t *at = piece->iov_base, *end = at + piece->iov_len;
    bool any = false;

    for (; at < end; at += piece->iov_len) {
        piece->iov_base = at;
        piece->iov_len = (size_t)(end - at) < size ? (size_t)(end - at) : size;
        int status = send_message(port, message);
        if (status == HEARTH_PENDING && any)
            return HEARTH_OK; /* the rest is lost: half a batch cannot be sent again */
        if (status != HEARTH_OK)
            return status;
        any = true;
    }
    return HEARTH_OK;
}

int datagram_send(struct datagram_port *port, const struct sock_addr *to, const void *bytes, size_t len,
                  size_t size)
{
    struct sockaddr_storage native;
    struct iovec piece = {(void *)(uintptr_t)bytes, len};
    struct msghdr message = {.msg_name = &native, .msg_iov = &piece, .msg_iovlen = 1};

    assert(len > 0 && len <= DATAGRAM_BATCH && size > 0);
    message.msg_namelen = native_to(port, to, &native);
    if (len <= size)
        return send_message(port, &message);
#if LINUX
    if (port->segments && len <= SEGMENTS_MAX * size) {
        union {
            struct cmsghdr align;
            uint8_t bytes[CMSG_SPACE(sizeof(uint16_t))];
        } control = {0};
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_UDP;
        header->cmsg_type = UDP_SEGMENT;
        header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        uint16_t segment = (uint16_t)size;
        memcpy(CMSG_DATA(header), &segment, sizeof segment);
        return send_message(port, &message);
    }
#endif
    return send_each(port, &message, size);
}

/* ---- in ---- */

#if LINUX

#define CONTROL_BYTES 64 /* beside a batch: the size of its datagrams */

static size_t segment_size(struct msghdr *message, size_t len)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        int size;
        if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO)
            continue;
        memcpy(&size, CMSG_DATA(c), sizeof size);
        if (size > 0 && (size_t)size < len)
            return (size_t)size;
    }
    return len;
}

int datagram_recv(struct datagram_port *port, struct datagrams *list, int count)
{
    struct mmsghdr messages[DATAGRAM_LIST_MAX];
    struct iovec pieces[DATAGRAM_LIST_MAX];
    struct sockaddr_storage from[DATAGRAM_LIST_MAX];
    _Alignas(8) uint8_t control[DATAGRAM_LIST_MAX][CONTROL_BYTES];

    assert(count > 0 && count <= DATAGRAM_LIST_MAX);
    for (int i = 0; i < count; i++) {
        pieces[i] = (struct iovec){list[i].bytes, DATAGRAM_BATCH};
        messages[i].msg_hdr = (struct msghdr){.msg_name = &from[i],
                                              .msg_namelen = sizeof from[i],
                                              .msg_iov = &pieces[i],
                                              .msg_iovlen = 1,
                                              .msg_control = control[i],
                                              .msg_controllen = CONTROL_BYTES};
    }
    int got = -1;
    for (int tries = 0; tries < CALL_TRIES && got < 0; tries++) {
        got = recvmmsg(port->fd, messages, (unsigned)count, MSG_DONTWAIT, NULL);
        if (got < 0 && !says_earlier(port, errno))
            return 0;
    }
    for (int i = 0; i < got; i++) {
        struct msghdr *m = &messages[i].msg_hdr;
        list[i].len = m->msg_flags & MSG_TRUNC ? 0 : messages[i].msg_len;
        list[i].size = segment_size(m, list[i].len);
        if (!sock_addr_take(&list[i].from, m->msg_name, m->msg_namelen))
            list[i].len = 0;
    }
    return got > 0 ? got : 0;
}

/* Whether this mishap means: nobody has the port. */
static bool means_refused(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        struct sock_extended_err why;
        bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR;
        bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR;
        if (!v4 && !v6)
            continue;
        memcpy(&why, CMSG_DATA(c), sizeof why);
        return (why.ee_origin == SO_EE_ORIGIN_ICMP && why.ee_type == ICMP_DEST_UNREACH &&
                why.ee_code == ICMP_PORT_UNREACH) ||
               (why.ee_origin == SO_EE_ORIGIN_ICMP6 && why.ee_type == ICMPV6_DEST_UNREACH &&
                why.ee_code == ICMPV6_PORT_UNREACH);
    }
    return false;
}

bool datagram_refused(struct datagram_port *port, struct datagram_refusal *refusal)
{
    for (int i = 0; i < DROP_ERRORS_MAX; i++) {
        struct sockaddr_storage to;
        _Alignas(8) uint8_t control[256];
        struct iovec piece = {refusal->quote, sizeof refusal->quote};
        struct msghdr message = {.msg_name = &to,
                                 .msg_namelen = sizeof to,
                                 .msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        ssize_t got = recvmsg(port->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
        if (got < 0)
            port->mishaps = false;
        if (got < 0)
            return false;
        refusal->len = (size_t)got;
        if (means_refused(&message) && sock_addr_take(&refusal->to, message.msg_name, message.msg_namelen))
            return true;
    }
    return false;
}

#else

int datagram_recv(struct datagram_port *port, struct datagrams *list, int count)
{
    int i = 0;
    for (int tries = 0; i < count && tries < count + CALL_TRIES; tries++) {
        struct sockaddr_storage from;
        socklen_t len = sizeof from;
        ssize_t got = recvfrom(port->fd, list[i].bytes, DATAGRAM_BATCH, 0, (struct sockaddr *)&from, &len);
        if (got < 0 && says_earlier(port, errno))
            continue;
        if (got < 0)
            break;
        list[i].len = list[i].size = (size_t)got;
        if (got > 0 && sock_addr_take(&list[i].from, (struct sockaddr *)&from, len))
            i++;
    }
    return i;
}

/* Portable systems tell an unconnected socket nothing. */
bool datagram_refused(struct datagram_port *port, struct datagram_refusal *refusal)
{
    (void)port;
    (void)refusal;
    return false;
}

#endif
