/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold in a cluster at every moment. */
#pragma once

#include "sim_cluster.h"

/* After everything that a node did: one view for each epoch of an instance, one leader for each term, and
 * epochs that only rise, and no guest that leads. */
void facts_check(struct sim_cluster *sim, int node);
/* Guests have no part in elections. */
void facts_message(struct sim_cluster *sim, int node, uint8_t kind);
void facts_fail(struct sim_cluster *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void facts_free(struct sim_cluster *sim);
