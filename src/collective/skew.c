/* SPDX-License-Identifier: Apache-2.0 */
/* Arrival skew: who comes late to operations, as seen from here. A piece that another member had to make first
 * says nothing about its sender; a peer's own first piece does. One look at the clock for each. */
#include "collective/state.h"

void skew_note(struct op *op, uint32_t flow, uint64_t index, bool early)
{
    const struct engine *engine = op->group->engine;
    const struct flow_table *table = &op->program->in[flow];
    if (index != 0 || !table->prompt)
        return;
    uint64_t now = early ? op->posted_ns : clock_now(engine->clock);
    uint64_t since = op->first_ns > op->posted_ns ? op->first_ns : op->posted_ns;
    bool compares = op->first_ns != 0 || op->program->prompt_count == 1;
    metrics_skew(engine->metrics, op->group->members[table->peer], compares && now > since ? now - since : 0);
    if (op->first_ns == 0)
        op->first_ns = now;
}

uint64_t engine_skew(const struct engine *engine, int rank)
{
    return atomic_load_explicit(&engine->metrics->peer[rank].skew_ns, memory_order_relaxed);
}
