/* SPDX-License-Identifier: Apache-2.0 */
/* Asks every planner for its price and takes the cheapest. */
#include "collective/select.h"

#include <math.h>

#include "collective/planners.h"

double select_price(const struct plan_call *call, enum hearth_algo algo, const struct view *view)
{
    const struct planner *planner = planner_of(algo);

    if (planner == NULL || !planner->can(call))
        return HUGE_VAL;
    return planner->price(call, &view->inside, &view->across);
}

int select_algo(const struct plan_call *call, const struct view *view, enum hearth_algo *algo,
                struct error *error)
{
    if (call->algo != HEARTH_AUTO) {
        const struct planner *planner = planner_of(call->algo);
        if (planner == NULL)
            return error_set(error, HEARTH_INVALID, RANK_NONE, "%s: there is no algorithm number %d",
                             plan_kind_name(call->kind), (int)call->algo);
        if (!planner->can(call))
            return call_refuse(call, call->algo, error);
        *algo = call->algo;
        return HEARTH_OK;
    }
    const struct planner *wish = planner_of(view->algo);
    if (wish != NULL && wish->can(call)) {
        *algo = view->algo;
        return HEARTH_OK;
    }
    double best = 0;
    enum hearth_algo cheapest = HEARTH_AUTO;
    for (int i = 0; i < ALGO_COUNT; i++) {
        const struct planner *planner = planner_of((enum hearth_algo)i);
        if (planner == NULL || !planner->can(call))
            continue;
        double price = planner->price(call, &view->inside, &view->across);
        if (cheapest == HEARTH_AUTO || price < best) {
            best = price;
            cheapest = planner->algo;
        }
    }
    if (cheapest == HEARTH_AUTO)
        return error_set(error, HEARTH_UNSUPPORTED, RANK_NONE, "no algorithm can do %s",
                         plan_kind_name(call->kind));
    *algo = cheapest;
    return HEARTH_OK;
}
