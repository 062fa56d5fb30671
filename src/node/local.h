/* SPDX-License-Identifier: Apache-2.0 */
/* For the command: calls for nodes in its own process, beyond the public interface. */
#pragma once

#include <hearth.h>

#include "cluster/status_snapshot.h"

/* hearth_node_open_local with a latency of `latency_ns`. */
int local_open_far(const struct hearth_config *config, int count, uint64_t latency_ns, hearth_node *nodes[]);

/* The cluster of the node. Returns a status; HEARTH_UNSUPPORTED: it has none. */
int node_cluster_status(hearth_node *node, struct cluster_status *status);
