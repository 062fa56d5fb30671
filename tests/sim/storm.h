/* SPDX-License-Identifier: Apache-2.0 */
/* A seeded storm over a cluster, and what came of it. */
#pragma once

#include "hostile.h"
#include "sim_cluster.h"

struct storm_result {
    bool fine;
    uint64_t settled_ns; /* from the last fault until all agreed */
    uint64_t dead_ns;    /* of the preset */
    char failure[512];
};

/* Size, weather and faults from the seed. A hostile member is there until the storm is over; then it has been
 * put out, and the others must come together. */
struct storm_result storm_run(uint64_t seed, enum hostility hostile, FILE *trace);
