/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's part of measuring: which way is next, and what results make of the table. A machine: no I/O,
 * no clock.
 *
 *  - One order at a time in the whole cluster. First the few ways that show who is near to whom
 *    (probe_sketch.h); then all that were never tried; then, once, the other addresses of members that have
 *    several; then whatever is due again, the oldest first.
 *  - Due again: after `refresh`; a minute after the last time if the round trip has changed twofold; half a
 *    minute after a first result, and after one that is much lower than what was known: a machine that was
 *    busy looks like a slow line, so that such a result counts in full only when it comes twice; what failed,
 *    after 5 s, then twice as long each time, at most `refresh`.
 *  - What is due again waits until orders have taken no more than `share` of the time: of the whole cluster's
 *    time, because nobody knows which members have a line in common.
 *  - While a job runs its members are left alone, and of the others only ways that were never tried are
 *    measured. Ways inside of a host are never, those of guests only if they came to measure. */
#pragma once

#include "cluster/probe_messages.h"

/* How long an order may take, the answer included: to dial, shake hands, probe. */
#define SCHEDULE_ORDER_NS (8 * NS_PER_S)

/* From one member to another. */
struct schedule_pair {
    bool tried;           /* an order for it has ended */
    bool low, confirm;    /* the last result was low; it is to be confirmed */
    bool moved;           /* the other end has new addresses: what was measured before does not count */
    uint64_t tried_ns;    /* when */
    uint64_t measured_ns; /* when a rate came last; 0: never */
    uint32_t probed_us;   /* the round trip then */
    uint8_t failures;     /* in a row */
    uint8_t addr_next;    /* the first of the addresses that was not tried yet */
};

struct schedule_order {
    uint32_t number;
    int from, to;
    int addr;   /* index of an address of `to`; -1: the best that `from` knows */
    bool other; /* one more address of a way that was tried: it counts if it is better */
};

struct schedule {
    double share;
    uint64_t refresh_ns;
    int size;
    struct peer_info members[VIEW_MEMBERS_MAX];
    bool spared[VIEW_MEMBERS_MAX];                                    /* takes part in a job */
    struct schedule_pair pairs[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX];  /* from, to: as in struct topology */
    struct schedule_pair before[VIEW_MEMBERS_MAX * VIEW_MEMBERS_MAX]; /* while members change places */
    bool job;                                                         /* one runs */
    struct schedule_order order;
    bool ordered; /* `order` is under way */
    uint64_t ordered_ns;
    uint32_t number;   /* of the last order */
    uint64_t quiet_ns; /* until then nothing is done again */
};

void schedule_init(struct schedule *s, double share, uint64_t refresh_ns, uint32_t number);
/* The members from now on; what is known of those who stay is kept. */
void schedule_view(struct schedule *s, const struct view *view);
/* Whether ways from and to it are measured: not those of guests, unless they came to measure. */
bool schedule_measures(const struct peer_info *member);
void schedule_spare(struct schedule *s, const struct identity *members, int count);
/* We lead from now on, and this is the table that was told last: what it holds counts as tried. */
void schedule_take_over(struct schedule *s, const struct topology *table, uint64_t now_ns);

/* True: give this order now; it is under way from then on. */
bool schedule_next(struct schedule *s, const struct topology *table, uint64_t now_ns,
                   struct schedule_order *order);
/* The order of this number, given to this member (index), has ended. False: no such order is under way. */
bool schedule_end(struct schedule *s, const struct topology *table, uint32_t number, int from,
                  enum probe_outcome outcome, uint64_t now_ns);
/* When to call schedule_next, at the latest (it ends an order that got no answer, too). */
uint64_t schedule_deadline(const struct schedule *s, const struct topology *table, uint64_t now_ns);
bool schedule_settled(const struct schedule *s); /* every way that is to be measured was tried */
/* The ways that show who is near to whom were. */
bool schedule_sketched(const struct schedule *s, const struct topology *table);

/* What member `from` (index) says of one of its ways, into the table; call it before schedule_end. False:
 * nothing that matters has changed. */
bool schedule_result(struct schedule *s, struct topology *table, int from, const struct measured_path *path,
                     uint64_t now_ns);
void schedule_hosts(const struct schedule *s, struct topology *table); /* says who shares a host */
void schedule_ages(const struct schedule *s, struct topology *table, uint64_t now_ns);
