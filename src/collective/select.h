/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm: a pure function of (view, call). Everything it uses is agreed, so all members choose the
 * same; the choice is in the fingerprint. */
#pragma once

#include "collective/plan.h"

/* The cost model: alpha per hop, bytes over a port's rate, gamma per byte combined, overhead per message.
 * Seconds the whole collective takes; HUGE_VAL if the algorithm cannot do it. */
double select_price(const struct plan_call *call, enum hearth_algo algo, const struct group_view *view);

/* The cheapest that can do the call (and keeps rank_order); ties go to the lower enum value. `call->algo`
 * and then view->algo win over the model if they are not HEARTH_ALGO_AUTO; HEARTH_UNSUPPORTED with a text
 * that lists what there is if that one cannot do it. (view->algo is a preference: where it cannot do the call
 * the model decides.) */
int MUST_CHECK select_algo(const struct plan_call *call, const struct group_view *view,
                           enum hearth_algo *algo, struct error *error);
