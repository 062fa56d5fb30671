/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking sockets with a limit of time, addresses as digits, IPv4 and IPv6. */
#include "net/strangers/sights.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALERT 21 /* type of a record */

uint64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

bool place_parse(char **arguments, struct place *place)
{
    char *end;
    long port = strtol(arguments[1], &end, 10);
    *place = (struct place){.host = arguments[0], .port = (uint16_t)port};
    return *end == '\0' && port > 0 && port <= UINT16_MAX;
}

/* ---- sockets ---- */

static int dial_kind(const struct place *place, int kind)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = kind & ~(SOCK_NONBLOCK)}, *found;
    char port[8];
    snprintf(port, sizeof port, "%u", place->port);
    if (getaddrinfo(place->host, port, &hints, &found) != 0)
        return -1;
    int fd = socket(found->ai_family, kind, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

int dial(const struct place *place, bool wait)
{
    return dial_kind(place, wait ? SOCK_STREAM : SOCK_STREAM | SOCK_NONBLOCK);
}

int dial_udp(const struct place *place)
{
    return dial_kind(place, SOCK_DGRAM);
}

int listen_at(uint16_t port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&addr, sizeof addr) == 0 && listen(fd, 64) == 0)
        return fd;
    perror("listen");
    close(fd);
    return -1;
}

bool readable(int fd, int ms)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ms) == 1;
}

int accept_within(int listener, int ms)
{
    return readable(listener, ms) ? accept(listener, NULL, NULL) : -1;
}

bool send_all(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* ---- what is seen ---- */

void sight_take(struct sight *sight, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len && sight->bytes + i < sizeof sight->head; i++)
        sight->head[sight->bytes + i] = bytes[i];
    sight->bytes += len;
    while (len > 0) {
        if (sight->left > 0) { /* inside of a record */
            size_t part = len < sight->left ? len : sight->left;
            sight->left -= part;
            bytes += part;
            len -= part;
            continue;
        }
        sight->header[sight->header_len++] = *bytes++;
        len--;
        if (sight->header_len < sizeof sight->header)
            continue;
        sight->header_len = 0;
        sight->left = (size_t)sight->header[3] << 8 | sight->header[4];
        sight->last = sight->header[0];
    }
}

void watch(int fd, int ms, struct sight *sight)
{
    uint8_t bytes[4096];
    uint64_t deadline = clock_ms() + (uint64_t)ms;
    while (clock_ms() < deadline) {
        if (!readable(fd, (int)(deadline - clock_ms())))
            continue;
        ssize_t got = recv(fd, bytes, sizeof bytes, 0);
        if (got > 0) {
            sight_take(sight, bytes, (size_t)got);
            continue;
        }
        sight->closed = got == 0;
        sight->reset = got < 0;
        return;
    }
}

void sight_print(const char *what, const struct sight *sight, const char *more)
{
    printf("{\"what\":\"%s\",\"bytes\":%zu,\"head\":\"", what, sight->bytes);
    for (size_t i = 0; i < sizeof sight->head && i < sight->bytes; i++)
        printf("%02x", sight->head[i]);
    printf("\",\"alert\":%s,\"closed\":%s,\"reset\":%s%s}\n", sight->last == ALERT ? "true" : "false",
           sight->closed ? "true" : "false", sight->reset ? "true" : "false", more);
    fflush(stdout);
}

/* ---- files ---- */

size_t read_file(const char *path, uint8_t *target, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t len = file ? fread(target, 1, size, file) : 0;
    if (file)
        fclose(file);
    return len;
}

bool write_file(const char *path, const void *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");
    bool good = file && fwrite(bytes, 1, len, file) == len;
    return file && fclose(file) == 0 && good;
}
