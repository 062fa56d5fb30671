/* SPDX-License-Identifier: Apache-2.0 */
/* What can be seen of peers from here. Arrival skew: who comes late. A piece that another member had to make
 * first says nothing about its sender; a peer's own first piece does. One look at the clock for each. */
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

/* A link that was stuck when we last looked has been busy since: there were bytes all the time, whoever slept
 * in between. */
void traffic_look(struct engine *engine, uint64_t now)
{
    engine->stuck = false;
    for (int i = 0; i < engine->size; i++) {
        struct peer *peer = &engine->peers[i];
        bool stuck = peer->joined && link_stuck(&peer->link);
        if (peer->stuck_ns != 0) {
            struct metrics_peer *m = &engine->metrics->peer[i];
            atomic_fetch_add_explicit(&m->busy_ns, now - peer->stuck_ns, memory_order_relaxed);
            atomic_fetch_add_explicit(&m->busy_bytes, peer->link.written - peer->written,
                                      memory_order_relaxed);
        }
        if (stuck || peer->stuck_ns != 0)
            peer->written = peer->link.written;
        peer->stuck_ns = stuck ? now : 0;
        engine->stuck = engine->stuck || stuck;
    }
}

void engine_traffic(const struct engine *engine, int rank, uint64_t *bytes, uint64_t *busy_ns)
{
    const struct metrics_peer *m = &engine->metrics->peer[rank];
    *busy_ns = atomic_load_explicit(&m->busy_ns, memory_order_relaxed);
    *bytes = atomic_load_explicit(&m->busy_bytes, memory_order_relaxed);
}

uint64_t engine_skew(const struct engine *engine, int rank)
{
    return atomic_load_explicit(&engine->metrics->peer[rank].skew_ns, memory_order_relaxed);
}

uint64_t engine_peer_heard(const struct engine *engine, int rank)
{
    return engine->peers[rank].joined ? link_heard(&engine->peers[rank].link) : 0;
}
