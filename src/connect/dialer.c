/* SPDX-License-Identifier: Apache-2.0 */
/* The list of wanted targets, the table of attempts, pauses and the window. */
#include "connect/dialer.h"

#include <assert.h>

#define PAUSE_SHIFT_MAX 6 /* doublings */
#define PACES           4 /* a handshake is slow when it takes so many times as long as others */

void dialer_init(struct dialer *d, const struct dialer_setup *setup, uint64_t now_ns)
{
    assert(setup->attempts_max > 0 && setup->attempts_max <= DIAL_ATTEMPTS_MAX);
    *d = (struct dialer){.setup = *setup, .now_ns = now_ns, .window = setup->attempts_max};
    if (setup->tier_max == 0)
        d->setup.tier_max = setup->attempts_max;
    if (setup->adapts && d->window > DIAL_WINDOW_FIRST)
        d->window = DIAL_WINDOW_FIRST;
    prng_init(&d->prng, setup->seed);
    list_init(&d->wanted);
}

/* ---- targets ------------------------------------------------------------------------------------------ */

void dial_target_init(struct dial_target *t, uint32_t key)
{
    *t = (struct dial_target){.key = key, .attempt = -1, .next_ns = NEVER_NS};
    list_init(&t->item);
}

bool dial_target_busy(const struct dial_target *t)
{
    return t->attempt >= 0;
}

bool dial_target_wanted(const struct dial_target *t)
{
    return !list_empty(&t->item);
}

void dialer_want(struct dialer *d, struct dial_target *t, uint64_t at_ns)
{
    if (!dial_target_wanted(t))
        list_push(&d->wanted, &t->item);
    t->next_ns = at_ns;
    d->settled = false;
}

void dialer_unwant(struct dialer *d, struct dial_target *t)
{
    list_remove(&t->item);
    d->settled = false;
}

void dialer_want_anew(struct dialer *d, struct dial_target *t, uint64_t at_ns)
{
    t->tries = t->misses = 0;
    dialer_want(d, t, at_ns);
}

void dialer_move(struct dialer *d, struct dial_target *to, const struct dial_target *from)
{
    *to = *from;
    if (to->attempt >= 0)
        d->attempts[to->attempt].target = to;
    if (dial_target_wanted(from))
        to->item.prev->next = to->item.next->prev = &to->item;
    else
        list_init(&to->item);
}

/* ---- the window --------------------------------------------------------------------------------------- */

/* Half as many, once for all attempts that were under way then. */
static void window_shrink(struct dialer *d, uint64_t began_ns)
{
    if (!d->setup.adapts || began_ns < d->shrunk_ns)
        return;
    d->window = d->window / 2 > DIAL_WINDOW_MIN ? d->window / 2 : DIAL_WINDOW_MIN;
    d->careful = true;
    d->good = 0;
    d->shrunk_ns = d->now_ns;
}

static void window_grow(struct dialer *d)
{
    if (d->careful && ++d->good < d->window)
        return;
    d->good = 0;
    d->window += d->window < d->setup.attempts_max;
}

/* ---- output ------------------------------------------------------------------------------------------- */

static bool under_way(const struct dial_attempt *a)
{
    return a->state != ATTEMPT_FREE;
}

/* What is under way, as far as it matters for whether one more may be started. */
struct dialer_load {
    int counted; /* those that are not slow */
    int of_tier[DIAL_TIERS];
    int place; /* a free one; -1: none */
    bool won;  /* first_wins, and there is one */
};

static struct dialer_load load_of(const struct dialer *d)
{
    struct dialer_load load = {.place = -1};

    for (int i = 0; i < d->setup.attempts_max; i++) {
        const struct dial_attempt *a = &d->attempts[i];
        if (!under_way(a)) {
            load.place = load.place < 0 ? i : load.place;
            continue;
        }
        load.counted += d->now_ns < a->slow_ns;
        load.of_tier[a->target->tier]++;
        load.won = load.won || (d->setup.first_wins && a->state > ATTEMPT_CONNECTING);
    }
    return load;
}

static int busy_there(const struct dialer *d, uint64_t network)
{
    int count = 0;

    for (int i = 0; i < d->setup.attempts_max && network != 0; i++)
        count += under_way(&d->attempts[i]) && d->attempts[i].target->network == network;
    return count;
}

static bool before(const struct dial_target *a, int busy_a, const struct dial_target *b, int busy_b)
{
    if (busy_a != busy_b)
        return busy_a < busy_b;
    if (a->tries != b->tries)
        return a->tries < b->tries;
    return a->next_ns < b->next_ns;
}

/* The next target of a tier; NULL: none is due. */
static struct dial_target *pick(const struct dialer *d, int tier)
{
    struct dial_target *best = NULL;
    int best_busy = 0;

    for (const struct list *at = d->wanted.next; at != &d->wanted; at = at->next) {
        struct dial_target *t = container_of(at, struct dial_target, item);
        if (t->attempt >= 0 || t->next_ns > d->now_ns || t->tier != tier)
            continue;
        int busy = busy_there(d, t->network);
        if (!best || before(t, busy, best, best_busy)) {
            best = t;
            best_busy = busy;
        }
    }
    return best;
}

/* The attempt that is to make room for a target of this tier; NULL: none. `most`: the tiers above it stay. Of
 * one that is held the other end may think already that it stays. */
static struct dial_attempt *slowest(struct dialer *d, int tier, int most)
{
    struct dial_attempt *first = NULL;

    for (int i = 0; i < d->setup.attempts_max && d->setup.drops_slow; i++) {
        struct dial_attempt *a = &d->attempts[i];
        bool may_go = a->state == ATTEMPT_CONNECTING || a->state == ATTEMPT_OPEN;
        if (may_go && d->now_ns >= a->slow_ns && a->target->tier >= tier && a->target->tier <= most &&
            (!first || a->slow_ns < first->slow_ns))
            first = a;
    }
    return first;
}

static uint64_t slow_after(const struct dialer *d, const struct dial_target *t, uint64_t first_ns)
{
    uint32_t most = (uint32_t)d->setup.slow_shift;

    return first_ns << (t->tries < most ? t->tries : most);
}

static uint64_t later(uint64_t now_ns, uint64_t by_ns)
{
    return by_ns < NEVER_NS - now_ns ? now_ns + by_ns : NEVER_NS;
}

static void start(struct dialer *d, struct dial_target *t, int place)
{
    t->attempt = (int16_t)place;
    d->attempts[place] = (struct dial_attempt){
        .target = t,
        .state = ATTEMPT_CONNECTING,
        .began_ns = d->now_ns,
        .deadline_ns = later(d->now_ns, d->setup.connect_ns),
        .slow_ns = d->now_ns + slow_after(d, t, d->setup.slow_connect_ns),
    };
}

static void attempt_end(struct dialer *d, struct dial_target *t)
{
    if (t->attempt >= 0)
        d->attempts[t->attempt] = (struct dial_attempt){.state = ATTEMPT_FREE};
    t->attempt = -1;
    d->settled = false;
}

/* Ends an attempt for a reason of ours. */
static bool drop(struct dialer *d, struct dial_attempt *a, enum dial_why why, struct dial_order *order)
{
    *order = (struct dial_order){why, a->target, (int)(a - d->attempts)};
    dialer_failed(d, a->target, why == DIAL_LATE_CONNECT ? DIAL_UNREACHABLE : DIAL_CLOSED, d->now_ns);
    return true;
}

static bool drop_late(struct dialer *d, struct dial_order *order)
{
    for (int i = 0; i < d->setup.attempts_max; i++) {
        struct dial_attempt *a = &d->attempts[i];
        if (under_way(a) && d->now_ns >= a->deadline_ns)
            return drop(d, a, a->state == ATTEMPT_OPEN ? DIAL_LATE_HANDSHAKE : DIAL_LATE_CONNECT, order);
    }
    return false;
}

static bool start_due(struct dialer *d, struct dial_order *order)
{
    struct dialer_load load = load_of(d);

    for (int tier = 0; tier < DIAL_TIERS && !load.won && load.counted < d->window; tier++) {
        struct dial_target *t = pick(d, tier);
        if (!t)
            continue;
        bool tier_full = load.of_tier[tier] >= d->setup.tier_max;
        if (load.place >= 0 && !tier_full) {
            start(d, t, load.place);
            *order = (struct dial_order){DIAL_START, t, load.place};
            return true;
        }
        struct dial_attempt *slow = slowest(d, tier, tier_full ? tier : DIAL_TIERS);
        if (slow)
            return drop(d, slow, DIAL_MAKES_ROOM, order);
    }
    return false;
}

/* When something may be due again, if nothing changes before. */
static uint64_t due(const struct dialer *d)
{
    uint64_t due_ns = NEVER_NS;
    bool waits = false;

    for (const struct list *at = d->wanted.next; at != &d->wanted; at = at->next) {
        const struct dial_target *t = container_of(at, struct dial_target, item);
        waits = waits || (t->attempt < 0 && t->next_ns <= d->now_ns);
        if (t->attempt < 0 && t->next_ns > d->now_ns && t->next_ns < due_ns)
            due_ns = t->next_ns;
    }
    for (int i = 0; i < d->setup.attempts_max; i++) {
        const struct dial_attempt *a = &d->attempts[i];
        if (!under_way(a))
            continue;
        due_ns = a->deadline_ns < due_ns ? a->deadline_ns : due_ns;
        if (waits && a->slow_ns > d->now_ns && a->slow_ns < due_ns)
            due_ns = a->slow_ns;
    }
    return due_ns;
}

void dialer_tick(struct dialer *d, uint64_t now_ns)
{
    d->now_ns = now_ns;
}

bool dialer_output(struct dialer *d, struct dial_order *order)
{
    if (d->settled && d->now_ns < d->due_ns)
        return false;
    if (drop_late(d, order) || start_due(d, order))
        return true;
    d->due_ns = due(d);
    d->settled = true;
    return false;
}

uint64_t dialer_deadline(const struct dialer *d)
{
    return d->settled ? d->due_ns : d->now_ns;
}

/* ---- input -------------------------------------------------------------------------------------------- */

void dialer_connected(struct dialer *d, struct dial_target *t, uint64_t now_ns)
{
    struct dial_attempt *a = &d->attempts[t->attempt];

    d->now_ns = now_ns;
    d->settled = false;
    a->state = ATTEMPT_OPEN;
    a->connected_ns = now_ns;
    a->deadline_ns = later(now_ns, d->setup.handshake_ns);
    a->slow_ns = now_ns + slow_after(d, t, d->setup.slow_handshake_ns) + PACES * d->pace_ns;
    for (int i = 0; i < d->setup.attempts_max && d->setup.first_wins; i++)
        if (d->attempts[i].state == ATTEMPT_CONNECTING)
            attempt_end(d, d->attempts[i].target);
}

void dialer_secured(struct dialer *d, struct dial_target *t, uint64_t now_ns)
{
    struct dial_attempt *a = &d->attempts[t->attempt];
    uint64_t took_ns = now_ns - a->connected_ns;

    d->now_ns = now_ns;
    d->pace_ns -= d->pace_ns / 8;
    d->pace_ns = took_ns > d->pace_ns ? took_ns : d->pace_ns;
    a->state = ATTEMPT_HELD;
    a->deadline_ns = NEVER_NS;
    d->settled = false;
}

void dialer_kept(struct dialer *d, struct dial_target *t, uint64_t round_trip_ns, uint64_t now_ns)
{
    d->now_ns = now_ns;
    if (t->attempt >= 0) {
        uint64_t began_ns = d->attempts[t->attempt].began_ns;
        if (now_ns - began_ns > DIAL_SLOW_NS + DIAL_ROUND_TRIPS * round_trip_ns)
            window_shrink(d, began_ns);
        else
            window_grow(d);
    }
    attempt_end(d, t);
    dialer_unwant(d, t);
}

void dialer_cancelled(struct dialer *d, struct dial_target *t)
{
    attempt_end(d, t);
}

void dialer_failed(struct dialer *d, struct dial_target *t, enum dial_fault fault, uint64_t now_ns)
{
    const struct dialer_setup *s = &d->setup;
    bool missed = fault == DIAL_UNREACHABLE || fault == DIAL_WRONG_PEER;
    uint64_t pause_ns = (missed ? s->pause_miss_ns : s->pause_ns)
                        << (t->tries < PAUSE_SHIFT_MAX ? t->tries : PAUSE_SHIFT_MAX);
    uint64_t most_ns = t->known ? s->pause_known_ns : s->pause_max_ns;

    d->now_ns = now_ns;
    if (fault == DIAL_CUT && t->attempt >= 0)
        window_shrink(d, d->attempts[t->attempt].began_ns);
    attempt_end(d, t);
    pause_ns = pause_ns < most_ns ? pause_ns : most_ns;
    t->tries++;
    t->misses += missed;
    if (t->misses > s->misses_max)
        dialer_unwant(d, t);
    else
        t->next_ns = now_ns + pause_ns / 2 + prng_below(&d->prng, pause_ns / 2 + 1);
}
