/* SPDX-License-Identifier: Apache-2.0 */
/* A few assemblies that hear each other at once, for tests of single rules. (tests/sim has the storms.) */
#pragma once

#include "membership/consensus.h"
#include "people.h"

#define CIRCLE_MAX 5

struct circle {
    struct heap heap;
    uint64_t now_ns;
    int size;
    struct consensus *who[CIRCLE_MAX]; /* NULL: it has died */
    struct peer_info info[CIRCLE_MAX];
    struct outbox outbox[CIRCLE_MAX];
    struct event_log events[CIRCLE_MAX];
    uint64_t events_seen[CIRCLE_MAX]; /* places of circle_next_event */
    bool linked[CIRCLE_MAX][CIRCLE_MAX];
    bool mute[CIRCLE_MAX]; /* its messages are lost */
};

void circle_open(struct circle *c, int size); /* persons 0..size-1; change `peer` before circle_start */
void circle_start(struct circle *c);
void circle_close(struct circle *c);
void circle_link(struct circle *c, int a, int b);
void circle_link_all(struct circle *c);
void circle_run(struct circle *c, uint64_t ns);
void circle_die(struct circle *c, int who, enum parting how); /* the others see the connection end */
int circle_leader(const struct circle *c);                    /* who leads; -1: nobody, -2: several */
/* The next event of this kind that `who` has; false: none. Others before it are dropped. */
bool circle_event(struct circle *c, int who, enum hearth_event_kind kind, struct hearth_event *event);
bool circle_next_event(struct circle *c, int who, struct hearth_event *event); /* of any kind */
