/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of strangers, and what they see on them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct place {
    const char *host; /* digits */
    uint16_t port;
};
bool place_parse(char **arguments, struct place *place); /* HOST PORT */

/* What a stranger's connection has seen. */
struct sight {
    size_t bytes;            /* that came */
    uint8_t head[5];         /* the first of them */
    uint8_t last;            /* type of the last record of TLS that came; 0: none */
    bool closed, reset;      /* by the other end, in order or not */
    uint8_t header[5];       /* of the record that comes, as far as it is here */
    size_t header_len, left; /* left: of that record behind the header */
};
void sight_take(struct sight *sight, const uint8_t *bytes, size_t len);
void sight_print(const char *what, const struct sight *sight, const char *more); /* more: ,"name":value */

uint64_t clock_ms(void);
int dial(const struct place *place, bool wait); /* -1: refused. Without `wait` it goes on behind our back */
int dial_udp(const struct place *place);
int listen_at(uint16_t port);
int accept_within(int listener, int ms); /* -1: nobody came */
bool readable(int fd, int ms);
bool send_all(int fd, const void *bytes, size_t len);
/* Takes what comes until the other end closes, or for so long. */
void watch(int fd, int ms, struct sight *sight);

size_t read_file(const char *path, uint8_t *target, size_t size); /* its length; 0: it cannot be read */
bool write_file(const char *path, const void *bytes, size_t len);
