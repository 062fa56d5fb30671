/* SPDX-License-Identifier: Apache-2.0 */
/* Between topology_arrange.c and topology_sites.c: hosts into sites. */
#pragma once

#include "membership/topology.h"

/* What ways between hosts carry, tenths of Mbit/s, the same in both directions; 0: not measured. */
struct site_paths {
    int hosts;
    uint32_t speed[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX];
};

/* site[host]: the lowest host of its site. */
void topology_sites(const struct site_paths *paths, int *site);
