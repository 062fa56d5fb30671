/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of plans: who sends to whom, step by step, or as a Graphviz graph. */
#ifndef CLI_DRAW_H
#define CLI_DRAW_H

#include "collective/plan.h"

/* A line per step with the messages of one lane, "0>1 p3": rank 0 sends part 3 to rank 1. Nothing if they are
 * too many to be legible. plans[size]. */
void draw_steps(const struct plan *plans, int size);
/* A digraph: an edge per pair with its messages and bytes, hosts as boxes. Of one rank only its own edges;
 * RANK_NONE: all. */
void draw_dot(const struct plan *plans, int size, const int *host, int rank);

#endif
