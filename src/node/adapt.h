/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a formed group adopt another ring order, all at the same place. */
#pragma once

#include "membership/topology.h"
#include "node/node.h"

/* Collective. `wanted`: what rank 0 proposes; NULL: nothing new, or this is another rank. HEARTH_OK: all have
 * adopted it, or there was nothing new (*adopted has size 0). Else nobody has; only if a member cannot know
 * that, the members of its node end with HEARTH_VIEW_CHANGED. */
int MUST_CHECK adapt_together(hearth_group *group, const struct ring_order *wanted, int64_t timeout_ms,
                              struct ring_order *adopted, struct error *error);
