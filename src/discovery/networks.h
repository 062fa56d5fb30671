/* SPDX-License-Identifier: Apache-2.0 */
/* Which interfaces mDNS is to use, and which of their addresses others are told. */
#pragma once

#include "discovery/mdns_line.h"
#include "os/host.h"

#define NETWORKS_MAX 16

struct network {
    char name[INTERFACE_NAME_MAX];
    bool loopback;
    char line[MDNS_LINE_MAX + 1]; /* `address` with its newline */
};

struct networks {
    struct network list[NETWORKS_MAX];
    int count;
};

/* From a sorted list of interfaces: those of the best kind that are plugged in (networks, else VPNs, else
 * bridges of containers), and always loopback, where nodes of the same host find each other. `bind` (may be
 * NULL): only the interface or the address of that name. */
void networks_choose(struct networks *networks, const struct interface *list, int count, const char *bind);
/* As the machine has them now; none, if the system does not tell. */
void networks_look(struct networks *networks, const char *bind);
const struct network *networks_find(const struct networks *networks, const char *name); /* NULL: no */
bool networks_equal(const struct networks *a, const struct networks *b);
