/* SPDX-License-Identifier: Apache-2.0 */
/* TCP_INFO and TCP_NOTSENT_LOWAT, where there are such. */
#include "os/tcp_facts.h"

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#if defined(__linux__) && !defined(HEARTH_POSIX)
#include <linux/tcp.h> /* the C library's own struct ends too early */

#define NS_PER_US 1000

uint64_t tcp_least_round_trip(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        len < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt ||
        info.tcpi_min_rtt == UINT32_MAX)
        return 0;
    return (uint64_t)info.tcpi_min_rtt * NS_PER_US;
}

void tcp_hold_back(int fd, int bytes)
{
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

#else

uint64_t tcp_least_round_trip(int fd)
{
    (void)fd;
    return 0;
}

void tcp_hold_back(int fd, int bytes)
{
    (void)fd;
    (void)bytes;
}

#endif
