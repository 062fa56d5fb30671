/* SPDX-License-Identifier: Apache-2.0 */
/* What an all_reduce among machines takes at least, whatever its algorithm, by ways that were measured. */
#ifndef CLI_CLUSTER_BOUND_H
#define CLI_CLUSTER_BOUND_H

#include "cli/cluster/cluster_status.h"

struct cluster_bound {
    double
        narrowest; /* bytes a second: what gets from some machine to another by the best route; 0: unknown */
    double s_per_byte; /* of the buffer; 0: unknown */
};
/* Of members with these ids, in any order; a machine may have several. Two things hold for every algorithm:
 *  - the numbers of each machine must get to every other one, each byte at least once;
 *  - all machines together send and receive at least 2 (machines - 1) buffers: to add, and to tell the sum.
 * Unknown if a way between two machines was not measured, or there is one machine. Ways that look like one
 * line and are several, and short bursts, may still be faster. */
struct cluster_bound cluster_bound(const struct cluster_status *status, const char *const *ids, int count);

#endif
