/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends dial at the same moment, over ways that pass bytes on as they like: one connection stays, the
 * same at both ends, and nobody is ever told that it was lost. */
#include "cluster/peer_conn.h"
#include "cluster_fixture.h"
#include "os/clock.h"
#include "relay.h"
#include "support/suite.h"

#define RACES        150
#define NODES        3
#define RACE_NS      (20 * NS_PER_S) /* a safety net */
#define STEPS_CALMED 400             /* without a change: it stays so */

struct race {
    struct cluster_fixture fixture;
    struct relay relays[NODES]; /* in front of each */
};

static struct race race;

static void move(struct race *r)
{
    struct prng *prng = &r->fixture.prng;
    int which = (int)prng_below(prng, 2 * NODES);

    if (which < NODES)
        fixture_node_move(&r->fixture, which);
    else
        relay_step(&r->relays[which - NODES], prng);
}

/* One connection for each pair, and each is the same one at both ends. */
static bool settled(const struct race *r)
{
    struct peer_set_state states[NODES][8];
    const struct cluster_fixture *v = &r->fixture;
    int counts[NODES];

    for (int i = 0; i < NODES; i++) {
        counts[i] = peer_set_list(v->all[i].peer_set, states[i], 8);
        if (v->all[i].peer_set->count != NODES - 1 || counts[i] != NODES - 1)
            return false;
    }
    for (int i = 0; i < NODES; i++)
        for (int k = 0; k < counts[i]; k++) {
            const struct peer_set_state *s = &states[i][k];
            for (int j = 0; j < NODES; j++)
                for (int l = 0; l < counts[j]; l++)
                    if (identity_equal(&s->id, fixture_node_id(v, j)) &&
                        identity_equal(&states[j][l].id, fixture_node_id(v, i)) &&
                        (!s->linked || s->dialled_by_us == states[j][l].dialled_by_us))
                        return false;
        }
    return true;
}

static void run(struct race *r, uint64_t seed)
{
    struct cluster_fixture *v = &r->fixture;
    uint64_t deadline_ns = clock_real() + RACE_NS;
    int calm = 0;

    fixture_open(v, NODES, seed);
    for (int i = 0; i < NODES; i++) {
        struct sock_addr addr = fixture_node_addr(v, i);
        relay_open(&r->relays[i], &addr);
    }
    for (int a = 0; a < NODES; a++)
        for (int b = 0; b < NODES; b++)
            if (a != b)
                peer_set_known_addr(v->all[a].peer_set, &r->relays[b].addr, NULL, false, clock_real());
    while (calm < STEPS_CALMED && clock_real() < deadline_ns) {
        move(r);
        calm = settled(r) ? calm + 1 : 0;
    }
    for (int i = 0; i < NODES; i++)
        if (calm < STEPS_CALMED || v->all[i].lost > 0 || v->all[i].linked != NODES - 1)
            fail_msg("seed %llu: node %d has %d connections, was told %d joined, %d lost (%s)",
                     (unsigned long long)seed, i, v->all[i].peer_set->count, v->all[i].linked, v->all[i].lost,
                     v->all[i].text);
    for (int i = 0; i < NODES; i++)
        relay_close(&r->relays[i]);
    fixture_close(v);
}

TEST(one_connection_stays)
{
    for (uint64_t seed = 1; seed <= RACES; seed++)
        run(&race, seed);
}
