/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a formed group adopt another ring order, all at the same point. */
#pragma once

#include "membership/topology.h"
#include "node/node.h"

/* Collective. `wanted`: the proposal of rank 0; NULL: nothing new, or another rank. HEARTH_OK: all have
 * adopted it, or there was nothing new (*adopted has size 0). Else none has; if a member cannot know that,
 * operations of its node end with HEARTH_VIEW_CHANGED. */
int MUST_CHECK adapt_together(hearth_group *group, const struct ring_order *wanted, int64_t timeout_ms,
                              struct ring_order *adopted, struct error *error);
