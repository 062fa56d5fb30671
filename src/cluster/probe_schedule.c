/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the next path to measure, and keeps the table. */
#include "cluster/probe_schedule.h"

#include <string.h>

#include "cluster/probe_sketch.h"

#define RETRY_NS    (5 * NS_PER_S)
#define RETRY_LIMIT 16              /* doublings */
#define SHIFTED_NS  (60 * NS_PER_S) /* a changed round trip makes a path due after this time */
#define CONFIRM_NS  (30 * NS_PER_S)
#define SHIFTED_US  2000 /* smaller changes are noise */
#define AGE_MAX     65535

static struct schedule_pair *pair_of(struct schedule *s, int from, int to)
{
    return &s->pairs[from * VIEW_MEMBERS_MAX + to];
}

static const struct schedule_pair *pair_at(const struct schedule *s, int from, int to)
{
    return &s->pairs[from * VIEW_MEMBERS_MAX + to];
}

static const struct path_measure *path_at(const struct topology *t, int from, int to)
{
    return &t->paths[from * VIEW_MEMBERS_MAX + to];
}

void schedule_init(struct schedule *s, double share, uint64_t refresh_ns, uint32_t number)
{
    memset(s, 0, sizeof *s);
    s->share = share;
    s->refresh_ns = refresh_ns;
    s->number = number;
}

/* ---- members ------------------------------------------------------------------------------------------ */

static bool moved(const struct peer_info *then, const struct peer_info *now)
{
    return then->addr_count != now->addr_count ||
           memcmp(then->addrs, now->addrs, (size_t)now->addr_count * sizeof now->addrs[0]) != 0;
}

static int find(const struct peer_info *members, int count, const struct identity *id)
{
    for (int i = 0; i < count; i++)
        if (identity_equal(&members[i].id, id))
            return i;
    return -1;
}

/* Moves the pairs to the new indices of their members. */
static void pairs_follow(struct schedule *s, const int *was)
{
    memcpy(s->before, s->pairs, sizeof s->before);
    memset(s->pairs, 0, sizeof s->pairs);
    for (int from = 0; from < s->size; from++)
        for (int to = 0; to < s->size; to++)
            if (was[from] >= 0 && was[to] >= 0)
                *pair_of(s, from, to) = s->before[was[from] * VIEW_MEMBERS_MAX + was[to]];
}

void schedule_view(struct schedule *s, const struct view *view)
{
    struct peer_info old[VIEW_MEMBERS_MAX];
    bool spared[VIEW_MEMBERS_MAX];
    struct schedule_order *order = &s->order;
    int was[VIEW_MEMBERS_MAX], size = s->size;
    struct identity ends[2] = {s->members[order->from].id, s->members[order->to].id};

    memcpy(old, s->members, sizeof old);
    memcpy(spared, s->spared, sizeof spared);
    s->size = view->size;
    for (int i = 0; i < view->size; i++) {
        s->members[i] = view->members[i];
        was[i] = find(old, size, &s->members[i].id);
        s->spared[i] = was[i] >= 0 && spared[was[i]];
    }
    pairs_follow(s, was);
    for (int to = 0; to < view->size; to++) /* its new addresses are tried, too */
        for (int from = 0; was[to] >= 0 && from < view->size; from++)
            if (moved(&old[was[to]], &s->members[to])) {
                pair_of(s, from, to)->addr_next = 0;
                pair_of(s, from, to)->moved = true;
            }
    if (!s->ordered)
        return;
    order->from = find(s->members, s->size, &ends[0]);
    order->to = find(s->members, s->size, &ends[1]);
    s->ordered = order->from >= 0 && order->to >= 0;
    if (!s->ordered)
        order->from = order->to = 0;
}

void schedule_spare(struct schedule *s, const struct identity *members, int count)
{
    s->job = count > 0;
    for (int i = 0; i < s->size; i++) {
        s->spared[i] = false;
        for (int k = 0; k < count; k++)
            s->spared[i] |= identity_equal(&s->members[i].id, &members[k]);
    }
}

void schedule_take_over(struct schedule *s, const struct topology *table, uint64_t now_ns)
{
    s->ordered = false;
    for (int from = 0; from < s->size; from++)
        for (int to = 0; to < s->size; to++) {
            const struct path_measure *path = path_at(table, from, to);
            struct schedule_pair *pair = pair_of(s, from, to);
            uint64_t age_ns = path->age_s * NS_PER_S;
            uint64_t then_ns = now_ns > age_ns ? now_ns - age_ns : 1;
            if (path->mbit_x10 == 0 || (pair->tried && pair->tried_ns >= then_ns))
                continue;
            *pair = (struct schedule_pair){.tried = true,
                                           .tried_ns = then_ns,
                                           .measured_ns = then_ns,
                                           .probed_us = path->round_trip_us,
                                           .addr_next = PEER_ADDRS_MAX};
        }
}

/* ---- the next order ----------------------------------------------------------------------------------- */

bool schedule_measures(const struct peer_info *member)
{
    return (member->features & (PEER_GUEST | PEER_BENCH)) != PEER_GUEST;
}

/* Whether this path is measured at all. */
static bool counts(const struct schedule *s, int from, int to)
{
    const struct peer_info *a = &s->members[from], *b = &s->members[to];

    return from != to && a->host_id != b->host_id && schedule_measures(a) && schedule_measures(b);
}

static bool alone(const struct schedule *s, int from, int to)
{
    return s->spared[from] || s->spared[to];
}

static bool shifted(const struct schedule_pair *pair, const struct path_measure *path)
{
    uint64_t was_us = pair->probed_us, is_us = path->round_trip_us;

    return was_us > 0 && is_us > 0 && (is_us > 2 * was_us + SHIFTED_US || was_us > 2 * is_us + SHIFTED_US);
}

/* When it is due again. */
static uint64_t due_ns(const struct schedule *s, const struct schedule_pair *pair,
                       const struct path_measure *path)
{
    uint64_t wait_ns = s->refresh_ns;

    if (pair->failures > 0)
        wait_ns = RETRY_NS << (pair->failures < RETRY_LIMIT ? pair->failures - 1 : RETRY_LIMIT);
    else if (shifted(pair, path))
        wait_ns = SHIFTED_NS;
    if (pair->failures == 0 && pair->confirm)
        wait_ns = CONFIRM_NS;
    return pair->tried_ns + (wait_ns < s->refresh_ns ? wait_ns : s->refresh_ns);
}

/* Orders of the first round, by merit: the paths of the sketch; then all untried ones, before other
 * addresses, and those to the next members before those to farther ones, so that each member sends and
 * receives early. */
static int merit(const struct schedule *s, const struct sketch *sketch, int from, int to)
{
    const struct schedule_pair *pair = pair_at(s, from, to);
    int distance = (to - from + s->size) % s->size, near = sketch_merit(s, sketch, from, to);

    if (!counts(s, from, to) || alone(s, from, to))
        return 0;
    if (near > 0)
        return 3 * VIEW_MEMBERS_MAX + near;
    if (!pair->tried)
        return 3 * VIEW_MEMBERS_MAX - distance;
    if (!s->job && pair->addr_next < s->members[to].addr_count)
        return 2 * VIEW_MEMBERS_MAX - distance;
    return 0;
}

static bool pick_first(const struct schedule *s, const struct topology *table, struct schedule_order *order)
{
    struct sketch sketch;
    int best = 0;

    sketch_make(s, table, &sketch);
    for (int from = 0; from < s->size; from++)
        for (int to = 0; to < s->size; to++)
            if (merit(s, &sketch, from, to) > best) {
                const struct schedule_pair *pair = pair_at(s, from, to);
                bool has_addr = pair->addr_next < s->members[to].addr_count;
                best = merit(s, &sketch, from, to);
                *order = (struct schedule_order){.from = from,
                                                 .to = to,
                                                 .addr = has_addr ? pair->addr_next : -1,
                                                 .other = pair->tried && pair->addr_next > 0};
            }
    return best > 0;
}

/* The order that is due first, and when; NEVER_NS: none. */
static uint64_t pick_again(const struct schedule *s, const struct topology *table,
                           struct schedule_order *order)
{
    uint64_t best_ns = NEVER_NS;

    for (int from = 0; !s->job && from < s->size; from++)
        for (int to = 0; to < s->size; to++) {
            const struct schedule_pair *pair = pair_at(s, from, to);
            if (!counts(s, from, to) || !pair->tried)
                continue;
            uint64_t at_ns = due_ns(s, pair, path_at(table, from, to));
            if (at_ns >= best_ns)
                continue;
            best_ns = at_ns;
            *order = (struct schedule_order){.from = from, .to = to, .addr = -1};
        }
    return best_ns == NEVER_NS || best_ns > s->quiet_ns ? best_ns : s->quiet_ns;
}

bool schedule_next(struct schedule *s, const struct topology *table, uint64_t now_ns,
                   struct schedule_order *order)
{
    if (s->ordered && now_ns >= s->ordered_ns + SCHEDULE_ORDER_NS)
        (void)schedule_end(s, table, s->number, s->order.from, PROBE_FAILED, now_ns);
    if (s->ordered || (!pick_first(s, table, order) && pick_again(s, table, order) > now_ns))
        return false;
    s->number = s->number + 1 != 0 ? s->number + 1 : 1;
    order->number = s->number;
    s->order = *order;
    s->ordered = true;
    s->ordered_ns = now_ns;
    return true;
}

uint64_t schedule_deadline(const struct schedule *s, const struct topology *table, uint64_t now_ns)
{
    struct schedule_order order;

    if (s->ordered)
        return s->ordered_ns + SCHEDULE_ORDER_NS;
    return pick_first(s, table, &order) ? now_ns : pick_again(s, table, &order);
}

bool schedule_end(struct schedule *s, const struct topology *table, uint32_t number, int from,
                  enum probe_outcome outcome, uint64_t now_ns)
{
    struct schedule_pair *pair = pair_of(s, s->order.from, s->order.to);
    uint64_t took_ns = now_ns > s->ordered_ns ? now_ns - s->ordered_ns : 0;

    if (!s->ordered || number != s->number || from != s->order.from)
        return false;
    s->ordered = false;
    s->quiet_ns = now_ns + (uint64_t)((double)took_ns * (1 / s->share - 1));
    if (s->order.addr == pair->addr_next && (s->order.other || outcome != PROBE_NOT_NOW))
        pair->addr_next++;
    if (s->order.other && outcome != PROBE_DONE)
        return true; /* only another address was tried; the path itself is unchanged */
    pair->tried = true;
    pair->tried_ns = now_ns;
    pair->probed_us = path_at(table, s->order.from, s->order.to)->round_trip_us;
    pair->failures = (uint8_t)(outcome == PROBE_DONE ? 0 : pair->failures < 255 ? pair->failures + 1 : 255);
    return true;
}

bool schedule_settled(const struct schedule *s)
{
    for (int from = 0; from < s->size; from++)
        for (int to = 0; to < s->size; to++)
            if (counts(s, from, to) && !alone(s, from, to) && !pair_at(s, from, to)->tried)
                return false;
    return true;
}

bool schedule_sketched(const struct schedule *s, const struct topology *table)
{
    struct sketch sketch;

    sketch_make(s, table, &sketch);
    for (int from = 0; from < s->size; from++)
        for (int to = 0; to < s->size; to++)
            if (counts(s, from, to) && !alone(s, from, to) && sketch_merit(s, &sketch, from, to) > 0)
                return false;
    return true;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

/* A busy machine makes a line look slower, nothing makes it look faster. So a result that is lower by a fifth
 * counts less until it is confirmed, and one that is higher by a quarter replaces the old value. */
static void probe_into(struct schedule_pair *pair, struct path_measure *into, struct path_measure *sample)
{
    uint64_t known = into->mbit_x10, seen = sample->mbit_x10;
    bool low = seen * 5 < known * 4;

    if (low && !pair->low)
        sample->mbit_x10 = (uint32_t)((known * 2 + seen) / 3);
    if (seen * 4 > known * 5)
        into->mbit_x10 = 0;
    pair->confirm = known == 0 || (low && !pair->low);
    pair->low = low;
}

/* Operations share their lines: a higher rate is proof, a lower one hardly a hint. */
static uint32_t traffic_blend(uint32_t known, uint32_t seen)
{
    if (known == 0)
        return seen;
    return (uint32_t)(seen > known ? ((uint64_t)known + seen) / 2 : ((uint64_t)known * 7 + seen) / 8);
}

static void rate_into(struct schedule *s, struct path_measure *into, int from, int to,
                      const struct measured_path *path)
{
    bool other = s->ordered && s->order.other && s->order.from == from && s->order.to == to;
    struct path_measure sample = {.mbit_x10 = path->mbit_x10, .quality = 1};
    struct schedule_pair *pair = pair_of(s, from, to);

    if (path->how == MEASURED_TRAFFIC) {
        sample.mbit_x10 = traffic_blend(into->mbit_x10, path->mbit_x10);
        into->mbit_x10 = 0; /* the blend is what counts */
    } else if (pair->moved) {
        pair->moved = false;
        into->mbit_x10 = 0;
    } else if (other) { /* another address: operations use the better one */
        sample.mbit_x10 = path->mbit_x10 > into->mbit_x10 ? path->mbit_x10 : into->mbit_x10;
        into->mbit_x10 = 0;
    } else {
        probe_into(pair, into, &sample);
    }
    path_merge(into, &sample);
}

bool schedule_result(struct schedule *s, struct topology *table, int from, const struct measured_path *path,
                     uint64_t now_ns)
{
    int to = find(s->members, s->size, &path->to);

    if (to < 0 || to == from)
        return false;
    struct path_measure *into = topology_path(table, from, to), before = *into;
    struct schedule_pair *pair = pair_of(s, from, to);
    if (path->how != MEASURED_NOT) {
        rate_into(s, into, from, to, path);
        pair->measured_ns = now_ns;
        into->age_s = 0;
    }
    if (path->round_trip_us > 0) { /* an average already */
        into->round_trip_us = path->round_trip_us;
        into->loss_ppm = path->loss_ppm;
    }
    if (path->kind != PATH_UNKNOWN)
        into->kind = path->kind;
    if (s->members[from].host_id == s->members[to].host_id)
        into->kind = PATH_SAME_HOST;
    return memcmp(&before, into, sizeof before) != 0;
}

void schedule_hosts(const struct schedule *s, struct topology *table)
{
    for (int from = 0; from < s->size; from++)
        for (int to = 0; to < s->size; to++)
            if (from != to && s->members[from].host_id == s->members[to].host_id)
                topology_path(table, from, to)->kind = PATH_SAME_HOST;
}

void schedule_ages(const struct schedule *s, struct topology *table, uint64_t now_ns)
{
    for (int from = 0; from < s->size; from++)
        for (int to = 0; to < s->size; to++) {
            const struct schedule_pair *pair = pair_at(s, from, to);
            uint64_t age_s = now_ns > pair->measured_ns ? (now_ns - pair->measured_ns) / NS_PER_S : 0;
            if (pair->measured_ns > 0)
                topology_path(table, from, to)->age_s = (uint16_t)(age_s < AGE_MAX ? age_s : AGE_MAX);
        }
}
