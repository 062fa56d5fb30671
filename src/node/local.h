/* SPDX-License-Identifier: Apache-2.0 */
/* What the command asks of nodes in its own process, beyond the public interface. */
#pragma once

#include <hearth.h>

#include "cluster/status_snapshot.h"

/* hearth_node_open_local, and what they send takes `latency_ns` to arrive (0: nothing). */
int local_open_far(const struct hearth_config *config, int count, uint64_t latency_ns, hearth_node *nodes[]);

/* The cluster of the node. A status; HEARTH_UNSUPPORTED: it is in none. */
int node_cluster_status(hearth_node *node, struct cluster_status *status);
