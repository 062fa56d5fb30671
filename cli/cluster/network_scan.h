/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for nodes by itself, for as long as somebody waits: where no node runs that could be asked. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

struct look {
    const char *helper, *seeds, *bind; /* as in discovery/finder.h */
    const uint8_t *space;              /* our cluster's name on the network; NULL: we have none */
    double wait_s;
    bool until_first; /* a node was seen, or mDNS works and has had its time: enough */
    bool progress;    /* show how long it takes */
};
/* *found is what `hearth nodes --json` prints, the caller's: {"running": false, "nodes", "discovery"}, as in
 * docs/man/hearth.1, STATUS. */
int MUST_CHECK network_scan(const struct look *look, json_t **found, struct error *error);
