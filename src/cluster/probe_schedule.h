/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's part of measuring: the next path to measure, and the table of results. A state machine: no
 * I/O, no clock.
 *
 *  - One order at a time in the whole cluster. First the few paths of the sketch (probe_sketch.h); then all
 *    untried ones; then, once, the other addresses of members that have several; then whatever is due again,
 *    the oldest first.
 *  - Due again: after `refresh`; a minute after the last time if the round trip has changed twofold; half a
 *    minute after a first result, and after one that is much lower than the known rate: a busy machine looks
 *    like a slow line, so such a result counts in full only when it is confirmed; after a failure, in 5 s,
 *    doubled each time, at most `refresh`.
 *  - Repeated orders wait until orders have taken no more than `share` of the time of the whole cluster,
 *    because it is unknown which members share a line.
 *  - While a job runs its members are left alone, and of the others only untried paths are measured. Paths
 *    inside a host are never measured, those of guests only if they came to measure. */
#pragma once

#include "cluster/probe_messages.h"

/* The time limit of an order with its answer: dial, handshake, probe. */
#define SCHEDULE_ORDER_NS (8 * NS_PER_S)

/* From one member to another. */
struct schedule_pair {
    bool tried;           /* an order for it has ended */
    bool low, confirm;    /* the last result was low; it needs confirmation */
    bool moved;           /* the other end has new addresses: older measures do not count */
    uint64_t tried_ns;    /* when */
    uint64_t measured_ns; /* when a rate was last measured; 0: never */
    uint32_t probed_us;   /* the round trip then */
    uint8_t failures;     /* in a row */
    uint8_t addr_next;    /* the first untried address */
};

struct schedule_order {
    uint32_t number;
    int from, to;
    int addr;   /* index of an address of `to`; -1: the best that `from` knows */
    bool other; /* another address of a tried path: it counts if it is better */
};

struct schedule {
    double share;
    uint64_t refresh_ns;
    int size;
    struct peer_info members[VIEW_MEMBERS_MAX];
    bool spared[VIEW_MEMBERS_MAX];                                    /* takes part in a job */
    struct schedule_pair pairs[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX];  /* from, to: as in struct topology */
    struct schedule_pair before[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX]; /* while indices change */
    bool job;                                                         /* a job runs */
    struct schedule_order order;
    bool ordered; /* `order` is active */
    uint64_t ordered_ns;
    uint32_t number;   /* of the last order */
    uint64_t quiet_ns; /* until then no repeated orders */
};

void schedule_init(struct schedule *s, double share, uint64_t refresh_ns, uint32_t number);
/* Changes to another view; keeps the measures of members that stay. */
void schedule_view(struct schedule *s, const struct view *view);
/* Whether paths from and to it are measured: not those of guests, unless they came to measure. */
bool schedule_measures(const struct peer_info *member);
void schedule_spare(struct schedule *s, const struct identity *members, int count);
/* This node leads from now on; paths in the last table count as tried. */
void schedule_take_over(struct schedule *s, const struct topology *table, uint64_t now_ns);

/* True: give this order now; it is active from then on. */
bool schedule_next(struct schedule *s, const struct topology *table, uint64_t now_ns,
                   struct schedule_order *order);
/* The order of this number, given to this member (index), has ended. False: no such order is active. */
bool schedule_end(struct schedule *s, const struct topology *table, uint32_t number, int from,
                  enum probe_outcome outcome, uint64_t now_ns);
/* When to call schedule_next at the latest (it also ends an unanswered order). */
uint64_t schedule_deadline(const struct schedule *s, const struct topology *table, uint64_t now_ns);
bool schedule_settled(const struct schedule *s); /* every path to measure was tried */
/* The paths of the sketch were tried. */
bool schedule_sketched(const struct schedule *s, const struct topology *table);

/* Merges a report of member `from` (index) on one of its paths into the table; call it before schedule_end.
 * False: no relevant change. */
bool schedule_result(struct schedule *s, struct topology *table, int from, const struct measured_path *path,
                     uint64_t now_ns);
void schedule_hosts(const struct schedule *s, struct topology *table); /* marks paths inside a host */
void schedule_ages(const struct schedule *s, struct topology *table, uint64_t now_ns);
