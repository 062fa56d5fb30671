/* SPDX-License-Identifier: Apache-2.0 */
/* For LD_PRELOAD: every TCP socket of a program begins with cubic, whatever the system's default is.
 *
 * Peers take the system's congestion control; on some machines that is one made for long ways (bbr), which
 * halves what loopback can carry. Accepted connections inherit it from the socket that listens. A socket that
 * cannot have it fails: a program must not run otherwise than its row says. */
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

int socket(int domain, int type, int protocol)
{
    static const char name[] = "cubic";
    int (*next)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    int fd = next ? next(domain, type, protocol) : -1;
    int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 || kind != SOCK_STREAM || (domain != AF_INET && domain != AF_INET6))
        return fd;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, sizeof name - 1) == 0)
        return fd;
    close(fd);
    return -1;
}
