/* SPDX-License-Identifier: Apache-2.0 */
/* Several collectives under several tags, called by every member in an order of its own. */
#include "mix.h"

#include "collective/state.h"
#include "support/suite.h"

/* A random order of all jobs in which those of one tag keep theirs: draws among the first of each tag. */
static void draw_order(struct mix *mix, int *order)
{
    bool done[MIX_MAX] = {false};
    for (int n = 0; n < mix->count; n++) {
        int first[MIX_MAX], firsts = 0;
        for (int i = 0; i < mix->count; i++) {
            bool is_first = !done[i];
            for (int k = 0; k < i; k++)
                is_first = is_first && (done[k] || mix->jobs[k].opts.tag != mix->jobs[i].opts.tag);
            if (is_first)
                first[firsts++] = i;
        }
        order[n] = first[prng_below(&mix->prng, (uint64_t)firsts)];
        done[order[n]] = true;
    }
}

void mix_draw_some(struct mix *mix, const int *members, int size, uint64_t seed, size_t bytes_max)
{
    memset(mix, 0, sizeof *mix);
    prng_init(&mix->prng, seed ^ 0x6d6978);
    mix->count = 1 + (int)prng_below(&mix->prng, MIX_MAX);
    mix->size = size;
    memcpy(mix->members, members, (size_t)size * sizeof *members);
    uint64_t tags = 1 + prng_below(&mix->prng, 5);
    for (int i = 0; i < mix->count; i++) {
        job_draw(&mix->jobs[i], &mix->prng, size, 1 + prng_below(&mix->prng, bytes_max / 8));
        mix->jobs[i].opts.tag = prng_below(&mix->prng, tags) * 1000;
    }
    for (int r = 0; r < size; r++)
        draw_order(mix, mix->order[r]);
}

void mix_draw(struct mix *mix, struct sim *sim, uint64_t seed, size_t bytes_max)
{
    static const int members[SIM_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    mix_draw_some(mix, members, sim->size, seed, bytes_max);
    for (int r = 0; r < sim->size; r++)
        mix->groups[r] = sim_world(sim, r);
}

void mix_free(struct mix *mix)
{
    for (int i = 0; i < mix->count; i++)
        job_free(&mix->jobs[i]);
}

static void post_next(struct mix *mix, int rank)
{
    struct job *job = &mix->jobs[mix->order[rank][mix->next[rank]]];
    int status = job_post(job, mix->groups[rank], rank);
    if (status == HEARTH_UNSUPPORTED) { /* nothing has happened: the first to call it finds out for all */
        job->opts.algo = HEARTH_ALGO_AUTO;
        job->opts.flags &= (uint32_t)~HEARTH_FLAG_RANK_ORDER;
        status = job_post(job, mix->groups[rank], rank);
    }
    mix->next[rank]++;
}

bool mix_collect(struct mix *mix, uint64_t now_ns)
{
    bool all = true;
    for (int i = 0; i < mix->count; i++)
        all = job_collect(&mix->jobs[i], now_ns) && all;
    return all;
}

static bool may_call(const struct mix *mix, const struct sim *sim, int rank, bool with_group)
{
    return mix->next[rank] < mix->count && sim->nodes[mix->members[rank]] &&
           (mix->groups[rank] || !with_group);
}

bool mix_can_post(const struct mix *mix, const struct sim *sim, bool with_group)
{
    for (int r = 0; r < mix->size; r++)
        if (may_call(mix, sim, r, with_group))
            return true;
    return false;
}

bool mix_post(struct mix *mix, struct sim *sim)
{
    int late[SIM_MAX], count = 0;
    for (int r = 0; r < mix->size; r++)
        if (may_call(mix, sim, r, true))
            late[count++] = r;
    if (count == 0)
        return false;
    post_next(mix, late[prng_below(&mix->prng, (uint64_t)count)]);
    mix_collect(mix, sim->now_ns);
    return true;
}

/* While calls are still to be made nobody may sleep so long that others lose their patience. */
#define SLEEP_NS (50 * NS_PER_MS)

bool mix_step(struct mix *mix, struct sim *sim, uint64_t until_ns)
{
    if (prng_below(&mix->prng, 3) > 0 && mix_post(mix, sim))
        return true;
    bool calls = mix_can_post(mix, sim, true);
    uint64_t soon = sim->now_ns + SLEEP_NS;
    bool more = sim_step(sim, calls && soon < until_ns ? soon : until_ns);
    bool ended = mix_collect(mix, sim->now_ns);
    return calls || (more && !ended);
}

void mix_check(const struct mix *mix)
{
    for (int i = 0; i < mix->count; i++)
        job_check_all(&mix->jobs[i]);
}

void mix_check_good(const struct mix *mix)
{
    for (int i = 0; i < mix->count; i++)
        for (int r = 0; r < mix->size; r++) {
            const struct job_member *m = &mix->jobs[i].member[r];
            if (m->status != HEARTH_OK)
                fail_msg("%s: rank %d: %s: %s", job_name(&mix->jobs[i]), r, hearth_status_name(m->status),
                         m->error.text);
        }
    mix_check(mix);
}

void mix_close_node(struct mix *mix, struct sim *sim, int rank)
{
    sim_close_node(sim, rank);
    for (int i = 0; i < mix->count; i++)
        mix->jobs[i].member[rank].request = NULL;
}

uint64_t mix_hash(const struct mix *mix, uint64_t hash)
{
    for (int i = 0; i < mix->count; i++)
        hash = job_hash(&mix->jobs[i], hash);
    return hash;
}

static bool joined(struct sim *sim, int a, int b)
{
    return a != b && sim->nodes[a] && sim->nodes[b] && link_up(&sim->nodes[a]->engine->peers[b].link) &&
           link_up(&sim->nodes[b]->engine->peers[a].link);
}

void sim_check_idle(struct sim *sim)
{
    for (int a = 0; a < sim->size; a++) {
        if (!sim->nodes[a])
            continue;
        const struct engine *engine = sim->nodes[a]->engine;
        assert_int_equal(engine->ops_count, 0);
        assert_true(list_empty(&engine->active));
        for (int b = 0; b < sim->size; b++) {
            if (!joined(sim, a, b))
                continue;
            const struct peer *peer = &engine->peers[b];
            const struct link *other = &sim->nodes[b]->engine->peers[a].link;
            assert_true(list_empty(&peer->early));
            assert_int_equal(peer->early_bytes, 0);
            assert_int_equal(peer->note_count, 0);
            assert_false(link_has_data(&peer->link));
            if (peer->link.eager_released != other->eager_spent)
                fail_msg("rank %d spent %u of its eager budget at rank %d, which released %u", b,
                         other->eager_spent, a, peer->link.eager_released);
        }
    }
}
