/* SPDX-License-Identifier: Apache-2.0 */
/* How a peer is: beats answered, beats missed, an average of how long answers take. A machine without I/O;
 * the consensus has one for each peer. */
#pragma once

#include "core/types.h"

/* When to ask, when silence is suspicious, when it is death. Three are known by name: default (1 s, 3 s),
 * low-latency (0.25 s, 1 s), high-latency (3 s, 12 s); members of a
 * cluster may have different ones: each says how often it wants to hear from the others. (The seed's:
 * 5/15, 0.5/2, 10/30 s; a home cluster recovers sooner.) */
struct health_preset {
    const char *name;
    uint64_t beat_ns;      /* a beat to each peer every so often, with jitter of a tenth */
    uint64_t dead_ns;      /* nothing heard for so long: dead */
    uint64_t reconnect_ns; /* a connection that broke has so long to come back: then dead */
    int unhealthy_after;   /* beats missed in a row */
};
const struct health_preset *health_preset_find(const char *name); /* NULL: no such preset */

enum health_state { HEALTH_UNKNOWN, HEALTH_HEALTHY, HEALTH_DEGRADED, HEALTH_UNHEALTHY, HEALTH_DEAD };
const char *health_state_name(enum health_state state);

struct health {
    const struct health_preset *preset;
    enum health_state state;
    bool linked;          /* a connection stands */
    uint64_t heard_ns;    /* when anything came last */
    uint64_t unlinked_ns; /* since when there is no connection */
    uint64_t next_ns;     /* of the next beat */
    uint64_t latency_ns;  /* moving average, 0.2 for each new sample; 0: none yet */
    uint64_t last_latency_ns;
    uint64_t least_latency_ns; /* of late: without what waits in a line that is full for a while */
    uint32_t missed;           /* beats in a row */
    uint64_t answered, failed; /* ever */
    uint64_t paused_ns;        /* we ourselves did not run until then: nobody else's silence counts before */
    bool works_with_us;        /* it is in a group with us */
    uint64_t late_ns;          /* how late its pieces come there */
};
void health_init(struct health *h, const struct health_preset *preset, uint64_t now_ns);
void health_linked(struct health *h, uint64_t now_ns);
void health_unlinked(struct health *h, uint64_t now_ns);
void health_heard(struct health *h, uint64_t now_ns);                       /* any message, any traffic */
void health_answer(struct health *h, uint64_t latency_ns, uint64_t now_ns); /* to a beat of ours */
/* True: a beat is due now (and next_ns moves on). Moves the state on. A caller that finds that it was not run
 * for long says so with health_paused, once: then the silence before does not count. */
bool health_tick(struct health *h, uint64_t now_ns);
void health_paused(struct health *h, uint64_t now_ns);
uint64_t health_deadline(const struct health *h);
double health_uptime(const struct health *h); /* answered / all, 1 while there were none */
