/* SPDX-License-Identifier: Apache-2.0 */
/* What a node says of its cluster (docs/man/hearth.1, STATUS), for people, for graphviz and for programs.
 * Pure: an object in, text out. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#define STATUS_LINKS_SHOWN 24 /* more are counted only: `hearth topology` shows them all */

/* Everything, trouble first. */
void status_print(const json_t *status, FILE *file);
/* The nodes that were seen: the array "nodes". */
void nodes_print(const json_t *nodes, FILE *file);

/* The map of the cluster. */
void topology_print(const json_t *status, FILE *file);
void topology_dot(const json_t *status, FILE *file);
/* {"cluster", "view": {"epoch", "members"}, "links", "order", "sites", "bottleneck": {"from", "to", "mbit"}};
 * the caller's. NULL: no memory. */
json_t *topology_part(const json_t *status);

const json_t *members_of(const json_t *status);
const json_t *member_of(const json_t *status, int64_t rank); /* NULL: none has it */
/* The name of a member by its rank, for people; "rank 7" if none has it. */
const char *member_name(const json_t *status, int64_t rank, char *target, size_t size);
/* "8 cores, 15.6 GiB, avx2" */
void machine_text(const json_t *member, char *target, size_t size);
