/* SPDX-License-Identifier: Apache-2.0 */
/* Which of this machine's addresses others reach it by, and ports that are free on it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct usage;

struct route {
    char address[64];   /* of this machine, in numbers */
    char interface[32]; /* that has it */
    char why[256];      /* after a failure */
};

/* Whether the text is an address, in numbers, of this machine. */
bool route_owns(const char *text);
/* The way by which this machine would send to `host`; names are looked up only if `by_name`. */
bool route_to(const char *host, bool by_name, struct route *route);
/* The first address of an interface, IPv4 first, or the address itself if the text is one of ours. */
bool route_bind(const char *text, struct route *route);
/* For --bind (NULL: not given). ARGS_GO, or EXIT_USAGE after a message. */
int route_check_bind(const struct usage *usage, const char *bind);

/* Two neighbouring TCP ports that nobody listens on; 0: none found. */
uint16_t route_ports(void);
