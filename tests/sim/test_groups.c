/* SPDX-License-Identifier: Apache-2.0 */
/* Several groups over the same links on virtual time: they never meet, one that closes leaves nothing. */
#include "core/hash.h"
#include "mix.h"
#include "support/suite.h"

#define GROUPS_MAX 4

struct world {
    struct sim sim;
    struct prng prng;
    int count;                        /* groups beside the world */
    struct mix mixes[GROUPS_MAX + 1]; /* the last is the world's */
};

/* Some members in any order, at least one. */
static int draw_members(struct prng *prng, int size, int *members)
{
    int all[SIM_MAX], count = 1 + (int)prng_below(prng, (uint64_t)size);
    for (int i = 0; i < size; i++)
        all[i] = i;
    for (int i = 0; i < count; i++) {
        int k = i + (int)prng_below(prng, (uint64_t)(size - i));
        members[i] = all[k];
        all[k] = all[i];
    }
    return count;
}

/* The member makes its handle of the group: others may have sent to it long ago. */
static void group_join(struct world *w, int number, int rank)
{
    struct mix *mix = &w->mixes[number];
    hearth_node *node = w->sim.nodes[mix->members[rank]];
    struct group_view view = *group_view(node->world.group);
    int host[SIM_MAX];
    view.group = 1000 + (uint64_t)number;
    view.size = mix->size;
    for (int i = 0; i < mix->size; i++)
        host[i] = w->sim.host[mix->members[i]];
    view.host = host;
    assert_ok(node_group(node, &view, mix->members, &mix->groups[rank]));
}

static void world_open(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    prng_init(&w->prng, seed);
    sim_draw(&w->sim, 2 + (int)prng_below(&w->prng, 5), seed);
    sim_start(&w->sim);
    w->count = 1 + (int)prng_below(&w->prng, GROUPS_MAX);
    for (int i = 0; i < w->count; i++) {
        int members[SIM_MAX], size = draw_members(&w->prng, w->sim.size, members);
        mix_draw_some(&w->mixes[i], members, size, seed * 10 + (uint64_t)i, 20000);
    }
    mix_draw(&w->mixes[w->count], &w->sim, seed, 20000);
}

static void world_close(struct world *w)
{
    for (int i = 0; i <= w->count; i++)
        mix_free(&w->mixes[i]);
    sim_stop(&w->sim);
}

/* One thing happens, anywhere. False: nothing is left to happen. */
static bool step(struct world *w, bool join)
{
    int number = (int)prng_below(&w->prng, (uint64_t)w->count + 1);
    struct mix *mix = &w->mixes[number];
    int rank = (int)prng_below(&w->prng, (uint64_t)mix->size);
    if (join && !mix->groups[rank] && prng_below(&w->prng, 4) == 0)
        group_join(w, number, rank);
    if (prng_below(&w->prng, 3) > 0 && mix_post(mix, &w->sim))
        return true;
    bool calls = false, ended = true;
    for (int i = 0; i <= w->count; i++)
        calls = calls || mix_can_post(&w->mixes[i], &w->sim, !join);
    bool more = sim_step(&w->sim, calls ? w->sim.now_ns + 50 * NS_PER_MS : NEVER_NS);
    for (int i = 0; i <= w->count; i++)
        ended = mix_collect(&w->mixes[i], w->sim.now_ns) && ended;
    return calls || (more && !ended);
}

static uint64_t run_groups(uint64_t seed)
{
    static struct world w;
    world_open(&w, seed);
    while (step(&w, true))
        continue;
    for (int i = 0; i <= w.count; i++)
        mix_check_good(&w.mixes[i]);
    uint64_t hash = hash_mix(w.sim.log_hash, w.sim.now_ns);
    for (int i = 0; i <= w.count; i++)
        hash = mix_hash(&w.mixes[i], hash);
    sim_run_until(&w.sim, w.sim.now_ns + 10 * NS_PER_S);
    sim_check_idle(&w.sim);
    for (int i = 0; i < w.count; i++)
        for (int r = 0; r < w.mixes[i].size; r++)
            hearth_group_close(w.mixes[i].groups[r]);
    sim_run_until(&w.sim, w.sim.now_ns + 10 * NS_PER_S);
    sim_check_idle(&w.sim);
    world_close(&w);
    return hash;
}

TEST_WITH(groups_do_not_meet, NULL, say_seed)
{
    run_seeds(150, 8, run_groups);
}

/* A member closes a group that others are still busy in: theirs end, no credit or memory stays with it. */
static uint64_t run_closing(uint64_t seed)
{
    static struct world w;
    world_open(&w, seed);
    for (int i = 0; i < w.count; i++) {
        for (int k = 0; k < w.mixes[i].count; k++)
            w.mixes[i].jobs[k].opts.timeout_ms = 100000;
        for (int r = 0; r < w.mixes[i].size; r++)
            if (prng_below(&w.prng, 3) > 0) /* the others never come */
                group_join(&w, i, r);
    }
    bool more = true;
    while (more) {
        more = step(&w, false);
        int number = (int)prng_below(&w.prng, (uint64_t)w.count);
        struct mix *mix = &w.mixes[number];
        int rank = (int)prng_below(&w.prng, (uint64_t)mix->size);
        if (mix->groups[rank] && prng_below(&w.prng, 30) == 0) {
            hearth_group_close(mix->groups[rank]);
            mix->groups[rank] = NULL;
        }
    }
    for (int g = 0; g <= w.count; g++) {
        const struct mix *mix = &w.mixes[g];
        for (int i = 0; i < mix->count; i++) {
            for (int r = 0; r < mix->size; r++) {
                const struct job_member *m = &mix->jobs[i].member[r];
                if (m->request && m->status == HEARTH_PENDING)
                    fail_msg("group %d, %s: rank %d still waits", g, job_name(&mix->jobs[i]), r);
                if (g == w.count && m->status != HEARTH_OK)
                    fail_msg("world, %s: rank %d: %s", job_name(&mix->jobs[i]), r, m->error.text);
            }
        }
        mix_check(mix);
    }
    for (int i = 0; i < w.count; i++)
        for (int r = 0; r < w.mixes[i].size; r++) {
            if (!w.mixes[i].groups[r]) /* who never came makes its handle and drops it */
                group_join(&w, i, r);
            hearth_group_close(w.mixes[i].groups[r]);
        }
    sim_run_until(&w.sim, w.sim.now_ns + 10 * NS_PER_S);
    sim_check_idle(&w.sim);
    world_close(&w);
    return 0;
}

TEST_WITH(a_group_that_closes_leaves_nothing, NULL, say_seed)
{
    run_seeds(150, 0, run_closing);
}
