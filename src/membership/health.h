/* SPDX-License-Identifier: Apache-2.0 */
/* The health of a peer: heartbeats answered and missed, average latency. A state machine without I/O; the
 * consensus has one for each peer. */
#pragma once

#include "core/types.h"

/* Intervals of failure detection: default (1 s, 3 s), low-latency (0.25 s, 1 s), high-latency (3 s, 12 s).
 * Members of a cluster may have different presets: each tells the others its interval. */
struct health_preset {
    const char *name;
    uint64_t beat_ns;      /* heartbeat interval, with jitter of a tenth */
    uint64_t dead_ns;      /* a peer that is silent this long is dead */
    uint64_t reconnect_ns; /* time for a broken connection to come back; then the peer is dead */
    int unhealthy_after;   /* missed heartbeats in a row */
};
const struct health_preset *health_preset_find(const char *name); /* NULL: no such preset */

enum health_state { HEALTH_UNKNOWN, HEALTH_HEALTHY, HEALTH_DEGRADED, HEALTH_UNHEALTHY, HEALTH_DEAD };
const char *health_state_name(enum health_state state);

struct health {
    const struct health_preset *preset;
    enum health_state state;
    bool linked;          /* connected */
    bool silent;          /* it was when it died */
    uint64_t heard_ns;    /* last traffic */
    uint64_t unlinked_ns; /* not connected since */
    uint64_t next_ns;     /* of the next heartbeat */
    uint64_t latency_ns;  /* moving average, 0.2 for each new sample; 0: none yet */
    uint64_t last_latency_ns;
    uint64_t least_latency_ns; /* recent minimum: without the wait in a full queue */
    uint32_t missed;           /* heartbeats in a row */
    uint64_t answered, failed; /* in total */
    uint64_t paused_ns;        /* this node did not run until then: earlier silence does not count */
    bool works_with_us;        /* it is in a group with this node */
    uint64_t late_ns;          /* how late its pieces arrive there */
};
void health_init(struct health *h, const struct health_preset *preset, uint64_t now_ns);
void health_linked(struct health *h, uint64_t now_ns);
void health_unlinked(struct health *h, uint64_t now_ns);
void health_heard(struct health *h, uint64_t now_ns);                       /* any message, any traffic */
void health_answer(struct health *h, uint64_t latency_ns, uint64_t now_ns); /* to a heartbeat */
/* Updates the state. True: a heartbeat is due now. A caller that did not run for long calls health_paused
 * once, so that the silence before does not count. */
bool health_tick(struct health *h, uint64_t now_ns);
void health_paused(struct health *h, uint64_t now_ns);
uint64_t health_deadline(const struct health *h);
double health_uptime(const struct health *h); /* answered / all, 1 while there were none */
