/* SPDX-License-Identifier: Apache-2.0 */
/* Filters packets for avahi: libavahi-core calls this program's recvmsg, which drops bad packets. */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "discovery/mdns_packet.h"

typedef ssize_t recvmsg_fn(int fd, struct msghdr *message, int flags);

/* From the network, and not from the kernel, which tells avahi about interfaces. avahi takes a packet into
 * one piece. */
static bool from_network(const struct msghdr *message)
{
    const struct sockaddr *from = message->msg_name;

    return from && message->msg_namelen >= sizeof from->sa_family && message->msg_iovlen == 1 &&
           (from->sa_family == AF_INET || from->sa_family == AF_INET6);
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    static recvmsg_fn *next;

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "recvmsg");
    if (!next) {
        errno = ENOSYS;
        return -1;
    }
    ssize_t len = next(fd, message, flags);
    if (len < 0 || !from_network(message) || mdns_packet_good(message->msg_iov[0].iov_base, (size_t)len))
        return len;
    errno = EAGAIN; /* which avahi takes for a packet that the kernel threw away */
    return -1;
}
