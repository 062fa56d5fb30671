/* SPDX-License-Identifier: Apache-2.0 */
/* Walks through a range of ports, from a place by chance, and takes those that can be bound. */
#include "ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FIRST 10000u
#define COUNT 22000u

static bool is_free(unsigned port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool good = fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof addr) == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

static unsigned by_chance(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((unsigned)t.tv_nsec / 1000 + (unsigned)getpid() * 2654435761u) % COUNT;
}

uint16_t free_port(void)
{
    static unsigned at, started;
    if (!started)
        at = by_chance();
    started = 1;
    for (unsigned i = 0; i < COUNT; i += 2) {
        unsigned port = FIRST + at;
        at = (at + 2) % COUNT;
        if (is_free(port) && is_free(port + 1))
            return (uint16_t)port;
    }
    return 0;
}
