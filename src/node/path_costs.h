/* SPDX-License-Identifier: Apache-2.0 */
/* What the plans of a node's groups rest on: the links as all members assume them, and what was measured of
 * them since. */
#pragma once

#include "node/node.h"

struct ring_order;

/* Between processes of one machine, through its own sockets. */
extern const struct link_cost loopback_cost;

#define CHOICE_MIN_S 20e-6 /* between machines, whatever the clock says */
#define LINE_YIELD   0.94  /* payload in what a line carries */

/* A long way needs more in flight: a lane that has sent its first piece hears of the last one several trips
 * later. Six times what the line holds fills it with every algorithm (bench-net): so many bytes, or what is
 * given. */
size_t window_for(const struct link_cost *across, size_t given);

/* Plans of the node's world go by its path costs from now on: costs, and the sites that members name. */
void path_costs_begin(hearth_node *node);
/* Plans of the group go by this ring order of its members: map of hosts and sites, order of rings, costs.
 * All members do so at the same place. False: operations of the group are in flight, and nothing has
 * changed. */
bool MUST_CHECK path_costs_adopt(hearth_group *group, const struct ring_order *order);

/* Frees what it holds. */
void path_costs_fini(struct path_costs *costs);
