/* SPDX-License-Identifier: Apache-2.0 */
/* The basis of the plans of a node's groups: links as all members assume them, and later measures. */
#pragma once

#include "node/node.h"

struct ring_order;

/* Between processes of one machine, through its own sockets. */
extern const struct link_cost loopback_cost;

#define CHOICE_MIN_S 20e-6 /* between machines, at least */
#define LINE_YIELD   0.94  /* payload share of a line */

/* A long path needs more bytes in flight: a lane gets its last piece several round trips after the first. Six
 * times the bandwidth-delay product fills the line with every algorithm (bench-net); at least `given`. */
size_t window_for(const struct link_cost *across, size_t given);

/* Plans of the node's world use its path costs from now on: costs, and the sites that members name. */
void path_costs_begin(hearth_node *node);
/* Plans of the group use this ring order: map of hosts and sites, order, costs. All members call this at the
 * same point. False: operations of the group are in flight, and nothing has changed. */
bool MUST_CHECK path_costs_adopt(hearth_group *group, const struct ring_order *order);

/* Frees what it holds. */
void path_costs_fini(struct path_costs *costs);
