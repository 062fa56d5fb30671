/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of one process that are far from each other: for measurements. */
#ifndef NODE_LOCAL_H
#define NODE_LOCAL_H

#include <hearth.h>

/* hearth_open_local, and what they send takes `latency_ns` to arrive (0: nothing). */
int local_open_far(const struct hearth_config *config, int count, uint64_t latency_ns, hearth_node *nodes[]);

#endif
