/* SPDX-License-Identifier: Apache-2.0 */
/* The map of a cluster from what a node says of it (docs/man/hearth.1, STATUS): for people, for graphviz, for
 * programs. Pure: an object in, text out. */
#pragma once

#include <jansson.h>
#include <stdio.h>

void topology_print(const json_t *status, FILE *file);
void topology_dot(const json_t *status, FILE *file);
/* {"cluster", "view": {"epoch", "members"}, "links", "order", "sites", "bottleneck": {"from", "to", "mbit"}};
 * the caller's. NULL: no memory. */
json_t *topology_part(const json_t *status);
