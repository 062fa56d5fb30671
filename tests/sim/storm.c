/* SPDX-License-Identifier: Apache-2.0 */
/* Storms: faults drawn from a seed, then calm, in which all must come together. */
#include "storm.h"

#include <stdlib.h>
#include <string.h>

#define BOUND   5              /* times the preset's dead_ns from the last fault to agreement, at least */
#define LEAST   (8 * NS_PER_S) /* waiting to be taken in takes as long in hasty presets */
#define CALM_NS (3 * NS_PER_S) /* and so long it must last */
#define STEP_NS (50 * NS_PER_MS)

static uint64_t below(struct sim_cluster *t, uint64_t limit)
{
    return prng_below(&t->prng, limit);
}

/* Most towns are small, some are not. */
static int draw_size(uint64_t seed)
{
    struct prng p;
    prng_init(&p, seed ^ UINT64_C(0x51ce));
    uint64_t kind = prng_below(&p, 100);
    if (kind < 65)
        return 3 + (int)prng_below(&p, 3);
    if (kind < 96)
        return 6 + (int)prng_below(&p, 4);
    if (kind < 99)
        return 10 + (int)prng_below(&p, 8);
    return seed % 7 == 0 ? 18 + (int)prng_below(&p, SIM_CLUSTER_MAX - 17) : 18;
}

/* Mostly the default for all, else another one for all, or "mixed": each has its own. */
static const char *draw_preset(uint64_t seed)
{
    struct prng p;
    prng_init(&p, seed ^ UINT64_C(0x93e5e7));
    uint64_t kind = prng_below(&p, 10);
    return kind < 7 ? "default" : kind == 7 ? "low-latency" : kind == 8 ? "high-latency" : "mixed";
}

static void draw_weather(struct sim_cluster *t)
{
    static const uint64_t latencies[] = {100 * NS_PER_US, NS_PER_MS, 5 * NS_PER_MS, 40 * NS_PER_MS};
    t->latency_ns = latencies[below(t, 4)];
    t->jitter_ns = t->latency_ns * (1 + below(t, 3));
    t->lose = below(t, 2) ? (uint32_t)below(t, 300) : 0;
    t->twice = below(t, 2) ? (uint32_t)below(t, 200) : 0;
    t->mix = below(t, 2) ? (uint32_t)below(t, 300) : 0;
}

/* A node in this state, or -1. */
static int pick(struct sim_cluster *t, enum sim_node_state state)
{
    int found[SIM_CLUSTER_MAX], count = 0;
    for (int i = 0; i < t->size; i++)
        if (t->nodes[i].state == state)
            found[count++] = i;
    return count > 0 ? found[below(t, (uint64_t)count)] : -1;
}

/* Two sides that do not hear each other: told (the connections break) or in silence. */
static void part(struct sim_cluster *t)
{
    bool side[SIM_CLUSTER_MAX], told = below(t, 2);
    int count = 0;
    for (int i = 0; i < t->size; i++)
        count += side[i] = below(t, 2);
    sim_cluster_trace(t, "    CUT %d of %d off%s", count, t->size, told ? "" : ", in silence");
    for (int a = 0; a < t->size; a++) {
        for (int b = a + 1; b < t->size; b++) {
            if (side[a] == side[b])
                continue;
            if (told)
                sim_cluster_unlink(t, a, b);
            t->roads[a][b].dark = t->roads[b][a].dark = true;
        }
    }
}

static void heal(struct sim_cluster *t)
{
    sim_cluster_trace(t, "    HEAL");
    for (int a = 0; a < t->size; a++)
        for (int b = 0; b < t->size; b++)
            t->roads[a][b].dark = false;
    sim_cluster_link_all(t, 500 * NS_PER_MS);
}

static void break_road(struct sim_cluster *t, int a, int b)
{
    if (a < 0 || b < 0 || a == b || t->nodes[a].state == SIM_NODE_EMPTY ||
        t->nodes[b].state == SIM_NODE_EMPTY)
        return;
    bool stands = t->roads[a][b].linked && t->roads[b][a].linked;
    sim_cluster_trace(t, "    road %d-%d %s", a, b, stands ? "BREAKS" : "STANDS");
    if (stands) {
        sim_cluster_unlink(t, a, b);
    } else if (!t->roads[a][b].dark) {
        sim_cluster_link(t, a, b);
    }
}

static void restart(struct sim_cluster *t)
{
    int node = pick(t, SIM_NODE_EMPTY);
    if (node < 0)
        return;
    sim_cluster_start(t, node);
    for (int i = 0; i < t->size; i++)
        if (i != node && t->nodes[i].state != SIM_NODE_EMPTY && !t->roads[i][node].dark)
            sim_cluster_link_at(t, node, i, below(t, 300 * NS_PER_MS));
}

/* A vote that is handed over may make the hostile one a quorum by itself. */
static bool hostile_inherits(const struct sim_cluster *t, int node)
{
    if (t->hostile < 0 || t->lied || node == t->hostile)
        return false;
    return view_find(consensus_view(t->nodes[node].consensus), &t->nodes[t->hostile].info.id) >= 0;
}

static void fault(struct sim_cluster *t)
{
    int lives = pick(t, SIM_NODE_LIVES), frozen = pick(t, SIM_NODE_FROZEN), leader = sim_cluster_leader(t);
    int victim = leader >= 0 && below(t, 3) == 0 ? leader : lives; /* leaders have it harder */
    uint64_t kind = below(t, 13);
    if (kind <= 3 && (victim < 0 || 2 * sim_cluster_living(t) < t->size))
        kind = 4 + below(t, 5); /* enough are away: let some come back */
    if (kind == 0 && sim_cluster_living(t) > 1)
        sim_cluster_crash(t, victim, below(t, 3) == 0);
    else if (kind == 1 && sim_cluster_living(t) > 1 && !hostile_inherits(t, victim))
        sim_cluster_leave(t, victim);
    else if (kind == 2)
        sim_cluster_freeze(t, victim);
    else if (kind == 3)
        sim_cluster_sleep(t, victim, below(t, 60 * NS_PER_S));
    else if (kind <= 5)
        restart(t);
    else if (kind == 6 && frozen >= 0)
        sim_cluster_thaw(t, frozen);
    else if (kind == 7)
        part(t);
    else if (kind == 8)
        heal(t);
    else if (kind <= 10)
        break_road(t, lives, (int)below(t, (uint64_t)t->size));
    else if (kind == 11 && lives >= 0)
        sim_cluster_describe(t, lives);
    else if (leader >= 0)
        sim_cluster_busy(t, leader, below(t, 2));
}

static void end_of_faults(struct sim_cluster *t)
{
    sim_cluster_trace(t, "    THE STORM IS OVER");
    t->lose = t->twice = t->mix = 0;
    for (int i = 0; i < t->size; i++) {
        if (t->nodes[i].state == SIM_NODE_FROZEN)
            sim_cluster_thaw(t, i);
        if (t->nodes[i].state == SIM_NODE_LIVES)
            sim_cluster_busy(t, i, false);
    }
    heal(t);
}

/* One that is not in the leader's instance: it was told of views there that never were. */
static int left_behind(const struct sim_cluster *t)
{
    int leader = sim_cluster_leader(t);
    for (int i = 0; i < t->size && leader >= 0; i++)
        if (t->nodes[i].state != SIM_NODE_EMPTY && consensus_view(t->nodes[i].consensus)->instance !=
                                                       consensus_view(t->nodes[leader].consensus)->instance)
            return i;
    return -1;
}

/* Jobs ran there, and most of its members have gone for good: that is where a person must decide. Or one of
 * them has believed a liar that was the only one it knew. */
static bool person_needed(struct sim_cluster *t)
{
    if (!sim_cluster_stuck(t) && !t->lied)
        return false;
    int node = sim_cluster_stuck(t) ? pick(t, SIM_NODE_LIVES) : left_behind(t);
    if (node < 0)
        return false;
    sim_cluster_trace(t, "    a person starts %d anew", node);
    sim_cluster_crash(t, node, false);
    t->guests = 0;
    sim_cluster_start(t, node);
    sim_cluster_link_all(t, 100 * NS_PER_MS);
    return true;
}

/* Of the most patient preset. */
static uint64_t dead_ns(const struct sim_cluster *t)
{
    return (t->preset ? t->preset : health_preset_find("high-latency"))->dead_ns;
}

static uint64_t bound_ns(const struct sim_cluster *t)
{
    uint64_t bound = BOUND * dead_ns(t);
    return bound > LEAST ? bound : LEAST;
}

static bool one_step(struct sim_cluster *t)
{
    uint64_t second = t->now_ns / NS_PER_S;
    bool good = sim_cluster_run(t, t->now_ns + STEP_NS);
    if (t->now_ns / NS_PER_S != second)
        sim_cluster_link_all(t, 100 * NS_PER_MS); /* who lost a connection dials again */
    return good;
}

/* Who agrees only beats: three times what the beats need, for those that are dead and still connected, and
 * for the last words about what was agreed. */
static uint64_t quiet_messages(const struct sim_cluster *t)
{
    uint64_t beat = (t->preset ? t->preset : health_preset_find("low-latency"))->beat_ns;
    return 3 * (CALM_NS / beat + 2) * (uint64_t)(t->size * t->size);
}

/* Until all have agreed for a while. */
static bool calm(struct sim_cluster *t, struct storm_result *result)
{
    uint64_t begin = t->now_ns, since = t->now_ns, messages = t->messages;
    int helped = 0;
    char why[160];
    while (t->now_ns < since + CALM_NS) {
        if (!one_step(t))
            return false;
        if (sim_cluster_agrees(t, why, sizeof why))
            continue;
        since = t->now_ns;
        messages = t->messages;
        if (since <= begin + bound_ns(t))
            continue;
        if (helped > (t->lied ? t->size : 0) || !person_needed(t)) {
            sim_cluster_describe_all(t);
            snprintf(t->failure, sizeof t->failure, "no agreement %.0f s after the last fault: %s",
                     (double)bound_ns(t) / 1e9, why);
            return false;
        }
        helped++;
        begin = t->now_ns;
    }
    if (t->messages - messages > quiet_messages(t))
        snprintf(t->failure, sizeof t->failure, "%llu messages in %.0f s of agreement",
                 (unsigned long long)(t->messages - messages), (double)CALM_NS / 1e9);
    result->settled_ns = since - begin;
    result->dead_ns = dead_ns(t);
    sim_cluster_trace(t, "    ALL AGREED after %.2f s", (double)result->settled_ns / 1e9);
    return t->failure[0] == '\0';
}

/* Many lies between two faults, and in every other storm nothing else. */
static bool lies(struct sim_cluster *t, enum hostility hostile, uint64_t pause)
{
    bool good = true;
    for (uint64_t count = hostile != HOSTILE_NONE ? below(t, 8) : 0; good && count > 0; count--) {
        hostile_act(t, hostile);
        good = sim_cluster_run(t, t->now_ns + below(t, pause / 4));
    }
    return good;
}

static void put_out(struct sim_cluster *t)
{
    if (t->hostile >= 0 && t->nodes[t->hostile].state != SIM_NODE_EMPTY)
        sim_cluster_crash(t, t->hostile, below(t, 2));
}

struct storm_result storm_run(uint64_t seed, enum hostility hostile, FILE *trace)
{
    struct storm_result result = {.fine = false};
    struct sim_cluster *t = malloc(sizeof *t);
    static const uint32_t guests[] = {0, 50, 400}; /* of 1,000 */
    sim_cluster_open(t, &(struct sim_cluster_setup){.size = draw_size(seed),
                                                    .seed = seed,
                                                    .preset = draw_preset(seed),
                                                    .guests = guests[seed % 3],
                                                    .trace = trace});
    draw_weather(t);
    if (hostile != HOSTILE_NONE)
        t->hostile = (int)below(t, (uint64_t)t->size);
    t->lied = hostile == HOSTILE_AT_WILL;
    t->faults = hostile == HOSTILE_NONE || seed % 2;
    sim_cluster_link_all(t, below(t, 4) ? 2 * NS_PER_S : 0);
    static const uint64_t pauses[] = {20 * NS_PER_MS, 150 * NS_PER_MS, 600 * NS_PER_MS, 2 * NS_PER_S};
    uint64_t end = t->now_ns + 3 * NS_PER_S + below(t, 25 * NS_PER_S), pause = pauses[below(t, 4)];
    bool good = sim_cluster_run(t, t->now_ns + below(t, 2 * NS_PER_S));
    while (good && t->now_ns < end) {
        if (t->faults)
            fault(t);
        good = lies(t, hostile, pause) && sim_cluster_run(t, t->now_ns + below(t, 2 * pause));
    }
    if (good) {
        put_out(t);
        end_of_faults(t);
        good = calm(t, &result);
    }
    memcpy(result.failure, t->failure, sizeof result.failure);
    result.fine = good;
    sim_cluster_close(t);
    free(t);
    return result;
}
