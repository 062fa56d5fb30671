/* SPDX-License-Identifier: Apache-2.0 */
/* Which of this machine's addresses others reach it by, and ports that are free on it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUTE_TEXT_MAX  64 /* of an address in numbers, with its final 0 */
#define ROUTE_IFACE_MAX 32

/* Whether the text is an address, in numbers, of this machine. */
bool route_owns(const char *text);

/* The address from which this machine would send to `host`, and the interface that has it. false: `why`
 * says. */
bool route_to(const char *host, char *address, char *interface, char *why, size_t size);
/* The address of an interface, IPv4 first, or the address itself if the text is one of ours. */
bool route_bind(const char *text, char *address, char *interface, char *why, size_t size);

/* The interface that a job's connections go by: that of `bind` (NULL or empty: not said), else the one that
 * leads to the address `master`. Names of hosts are not looked up. false: none is known. */
bool route_interface(const char *bind, const char *master, char *interface);
/* For --bind (NULL: not given). ARGS_GO, or EXIT_USAGE after a message. */
struct usage;
int route_check_bind(const struct usage *usage, const char *bind);

/* Two neighbouring TCP ports that nobody listens on; 0: none found. */
uint16_t route_ports(void);
