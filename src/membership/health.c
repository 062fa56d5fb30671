/* SPDX-License-Identifier: Apache-2.0 */
/* The health of a peer, from its last traffic and its answers. */
#include "membership/health.h"

#include <string.h>

#include "core/hash.h"

#define LEAST_RISE 16               /* the least latency rises by 1/16 with each answer: doubled after 12 */
#define SLOW_TIMES 4                /* an answer is slow if it took so many times the average */
#define SLOW_NS    (50 * NS_PER_MS) /* and longer than this */

static const struct health_preset presets[] = {
    {"default", NS_PER_S, 3 * NS_PER_S, 500 * NS_PER_MS, 2},
    {"low-latency", 250 * NS_PER_MS, NS_PER_S, 250 * NS_PER_MS, 2},
    {"high-latency", 3 * NS_PER_S, 12 * NS_PER_S, 2 * NS_PER_S, 2},
};

const struct health_preset *health_preset_find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

const char *health_state_name(enum health_state state)
{
    static const char *const names[] = {"unknown", "healthy", "degraded", "unhealthy", "dead"};
    return (size_t)state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}

void health_init(struct health *h, const struct health_preset *preset, uint64_t now_ns)
{
    *h = (struct health){
        .preset = preset, .heard_ns = now_ns, .unlinked_ns = now_ns, .next_ns = now_ns, .paused_ns = now_ns};
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* When silence makes it dead. A peer that was never connected has as long as a silent one. */
static uint64_t death_ns(const struct health *h)
{
    if (h->linked)
        return later(h->heard_ns, h->paused_ns) + h->preset->dead_ns;
    uint64_t patience = h->state == HEALTH_UNKNOWN ? h->preset->dead_ns : h->preset->reconnect_ns;
    return later(h->unlinked_ns, h->paused_ns) + patience;
}

static enum health_state state_at(const struct health *h, uint64_t now_ns)
{
    if (h->state == HEALTH_DEAD || now_ns >= death_ns(h))
        return HEALTH_DEAD; /* until it is heard or connected again */
    if (h->state == HEALTH_UNKNOWN)
        return HEALTH_UNKNOWN;
    if (!h->linked || h->missed >= (uint32_t)h->preset->unhealthy_after)
        return HEALTH_UNHEALTHY;
    bool slow = h->last_latency_ns > SLOW_NS && h->last_latency_ns > SLOW_TIMES * h->latency_ns;
    return h->missed > 0 || slow ? HEALTH_DEGRADED : HEALTH_HEALTHY;
}

void health_heard(struct health *h, uint64_t now_ns)
{
    h->heard_ns = later(h->heard_ns, now_ns);
    h->missed = 0;
    if (!h->linked)
        return; /* the last messages of a closed connection */
    if (h->state == HEALTH_DEAD || h->state == HEALTH_UNKNOWN)
        h->state = HEALTH_HEALTHY;
    h->state = state_at(h, now_ns);
}

void health_linked(struct health *h, uint64_t now_ns)
{
    if (!h->linked)
        h->next_ns = now_ns; /* a heartbeat at once */
    h->linked = true;
    health_heard(h, now_ns);
}

void health_unlinked(struct health *h, uint64_t now_ns)
{
    if (h->linked)
        h->unlinked_ns = now_ns;
    h->linked = false;
    h->state = state_at(h, now_ns);
}

void health_answer(struct health *h, uint64_t latency_ns, uint64_t now_ns)
{
    h->answered++;
    /* Compared with the average before it, so that one slow answer shows. */
    h->last_latency_ns = latency_ns > 0 ? latency_ns : 1;
    health_heard(h, now_ns);
    /* It rises slowly, to follow a path that has become longer. */
    uint64_t least = h->least_latency_ns + h->least_latency_ns / LEAST_RISE + 1;
    bool first = h->latency_ns == 0;
    h->least_latency_ns = first || h->last_latency_ns < least ? h->last_latency_ns : least;
    if (first)
        h->latency_ns = h->last_latency_ns;
    else
        h->latency_ns = h->latency_ns - h->latency_ns / 5 + h->last_latency_ns / 5;
}

/* Spreads the heartbeats of nodes that started together. */
static uint64_t jittered(const struct health *h, uint64_t now_ns)
{
    uint64_t beat = h->preset->beat_ns, span = beat / 5;
    return now_ns + beat - span / 2 + hash_mix(h->heard_ns, now_ns) % (span + 1);
}

bool health_tick(struct health *h, uint64_t now_ns)
{
    bool due = h->linked && now_ns >= h->next_ns;
    if (due) {
        uint64_t since = later(h->heard_ns, h->paused_ns);
        uint64_t missed = (now_ns - since) / (h->preset->beat_ns + h->preset->beat_ns / 4);
        if (missed > h->missed) {
            h->failed += missed - h->missed;
            h->missed = (uint32_t)missed;
        }
        h->next_ns = jittered(h, now_ns);
    }
    if (h->state != HEALTH_DEAD)
        h->silent = h->linked;
    h->state = state_at(h, now_ns);
    return due;
}

void health_paused(struct health *h, uint64_t now_ns)
{
    h->paused_ns = later(h->paused_ns, now_ns);
}

uint64_t health_deadline(const struct health *h)
{
    uint64_t deadline = h->linked ? h->next_ns : NEVER_NS;
    if (h->state != HEALTH_DEAD) {
        uint64_t death = death_ns(h);
        deadline = death < deadline ? death : deadline;
    }
    return deadline;
}

double health_uptime(const struct health *h)
{
    uint64_t all = h->answered + h->failed;
    return all == 0 ? 1.0 : (double)h->answered / (double)all;
}
