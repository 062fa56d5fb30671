/* SPDX-License-Identifier: Apache-2.0 */
/* The table of addresses: lookup, order, backoff. */
#include "cluster/known_addrs.h"

#include <stdio.h>
#include <string.h>

#include "core/hash.h"

#define ROOM_FIRST      64
#define HEAD_STARTS_MAX 8               /* most head starts that an address waits */
#define CONTEST_MIN_NS  (10 * NS_PER_S) /* between two dials of an address whose node is connected */
#define CONTEST_MAX     6               /* doublings of it */
#define SWEEP_NS        (30 * NS_PER_S)
#define DIALS_TIER_MAX  28 /* dials at once to addresses of one tier: neither starves the other */
/* While others wait, a dial must progress within this time, which doubles with every try: a thousand dead
 * addresses take a few seconds. */
#define SLOW_CONNECT_NS   (100 * NS_PER_MS)
#define SLOW_HANDSHAKE_NS (400 * NS_PER_MS) /* once the socket is connected */
#define SLOW_SHIFT        6
#define HANDSHAKE_NS      (5 * NS_PER_S)
#define FORGET_NS         (600 * NS_PER_S)  /* without a tip, never proven */
#define FORGET_LATE_NS    (3600 * NS_PER_S) /* without a tip, others */

struct dialer_setup known_addrs_dialing(uint64_t connect_timeout_ns, uint64_t seed)
{
    return (struct dialer_setup){
        .attempts_max = KNOWN_ADDR_DIALS_MAX,
        .tier_max = DIALS_TIER_MAX,
        .drops_slow = true,
        .pause_ns = KNOWN_ADDR_PAUSE_MIN,
        .pause_miss_ns = KNOWN_ADDR_PAUSE_MIN,
        .pause_max_ns = KNOWN_ADDR_PAUSE_MAX,
        .pause_known_ns = KNOWN_ADDR_PAUSE_KNOWN,
        .misses_max = UINT32_MAX,
        .connect_ns = connect_timeout_ns,
        .handshake_ns = HANDSHAKE_NS,
        .slow_connect_ns = SLOW_CONNECT_NS,
        .slow_handshake_ns = SLOW_HANDSHAKE_NS,
        .slow_shift = SLOW_SHIFT,
        .seed = seed,
    };
}

void known_addrs_init(struct known_addrs *c, struct heap *heap, const struct identity *self,
                      struct dialer *dialer, uint64_t now_ns)
{
    *c = (struct known_addrs){.heap = heap, .self = *self, .dialer = dialer, .swept_ns = now_ns};
    for (int i = 0; i < KNOWN_ADDR_BUCKETS; i++)
        c->buckets[i] = -1;
}

void known_addrs_fini(struct known_addrs *c)
{
    heap_free(c->list);
    c->list = NULL;
    c->room = c->count = 0;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

static int *bucket_of(struct known_addrs *c, const struct sock_addr *addr)
{
    return &c->buckets[hash64(2, addr->raw, addr->len) % KNOWN_ADDR_BUCKETS];
}

static struct known_addr *find(struct known_addrs *c, const struct sock_addr *addr)
{
    for (int i = *bucket_of(c, addr); i >= 0; i = c->list[i].next)
        if (sock_addr_equal(&c->list[i].addr, addr))
            return &c->list[i];
    return NULL;
}

static void forget(struct known_addrs *c, int index)
{
    int *link = bucket_of(c, &c->list[index].addr);

    while (*link != index)
        link = &c->list[*link].next;
    *link = c->list[index].next;
    dialer_unwant(c->dialer, &c->list[index].target);
    c->list[index] = (struct known_addr){.used = false};
    c->count--;
}

int known_addr_tier(const struct known_addr *e)
{
    return e->proven || e->trusted || e->seed ? 0 : 1;
}

static bool is_dialled(const struct known_addr *e)
{
    return e->used && dial_target_busy(&e->target);
}

/* Updates the dialer after a change of an entry. */
static void refresh(struct known_addrs *c, struct known_addr *e, uint64_t next_ns)
{
    e->target.tier = (uint8_t)known_addr_tier(e);
    e->target.known = e->proven;
    e->target.next_ns = next_ns;
    if (e->self || (e->linked && !e->contested))
        dialer_unwant(c->dialer, &e->target);
    else
        dialer_want(c->dialer, &e->target, next_ns);
}

/* Entries with a larger value are replaced first. 0: stays. */
static uint64_t worth_forgetting(const struct known_addr *e)
{
    if (is_dialled(e) || (e->linked && e->proven) || e->seed)
        return 0;
    if (e->proven)
        return 1;
    if (e->trusted)
        return 2 + (e->target.tries > 0);
    return 4 + (e->target.tries < 16 ? e->target.tries : 16);
}

/* A place for an entry of this tier; -1: none of lower value. */
static int place_free(struct known_addrs *c, int tier)
{
    uint64_t most = tier == 0 ? 0 : 3; /* a mere sighting replaces only sightings */
    int place = -1;

    for (int i = 0; i < c->room; i++) {
        const struct known_addr *e = &c->list[i];
        uint64_t worth = worth_forgetting(e);
        if (worth > most || (place >= 0 && worth == most && e->told_ns < c->list[place].told_ns)) {
            most = worth;
            place = i;
        }
    }
    if (place >= 0)
        forget(c, place);
    return place;
}

static bool grow(struct known_addrs *c)
{
    int room = c->room > 0 ? 2 * c->room : ROOM_FIRST;
    struct known_addr *list = heap_alloc(c->heap, (size_t)room, sizeof *list);

    if (!list)
        return false;
    for (int i = 0; i < c->room; i++) {
        list[i] = c->list[i];
        if (list[i].used)
            dialer_move(c->dialer, &list[i].target, &c->list[i].target);
    }
    heap_free(c->list);
    c->list = list;
    c->room = room;
    return true;
}

static int place_find(struct known_addrs *c, int tier)
{
    if (c->count == c->room && (c->room >= KNOWN_ADDRS_MAX || !grow(c)))
        return place_free(c, tier);
    for (int i = 0; i < c->room; i++)
        if (!c->list[i].used)
            return i;
    return -1;
}

/* How many addresses of the same node are dialled before this one. */
static uint64_t ahead(const struct known_addrs *c, const struct identity *who, uint64_t now_ns)
{
    uint64_t count = 0;

    for (int i = 0; i < c->room && count < HEAD_STARTS_MAX; i++) {
        const struct known_addr *e = &c->list[i];
        count += e->used && e->claimed && e->target.tries == 0 && !e->self &&
                 (is_dialled(e) || e->target.next_ns + KNOWN_ADDR_HEAD_START >= now_ns) &&
                 identity_equal(&e->who, who);
    }
    return count;
}

/* Both ends often learn of each other at the same time. */
static uint64_t courtesy(const struct known_addrs *c, const struct identity *who)
{
    return identity_compare(&c->self, who) > 0 ? KNOWN_ADDR_COURTESY : 0;
}

static void add(struct known_addrs *c, const struct known_addr_tip *tip, uint64_t now_ns)
{
    int place = place_find(c, tip->trusted || !tip->claim ? 0 : 1);
    int *bucket = bucket_of(c, tip->addr);

    if (place < 0)
        return;
    uint64_t wait_ns = 0;
    if (tip->claim)
        wait_ns = courtesy(c, tip->claim) + ahead(c, tip->claim, now_ns) * KNOWN_ADDR_HEAD_START;
    c->list[place] = (struct known_addr){
        .used = true,
        .seed = !tip->claim,
        .trusted = tip->trusted,
        .claimed = tip->claim,
        .linked = tip->claim && tip->linked,
        .next = *bucket,
        .order = c->told++,
        .told_ns = now_ns,
        .addr = *tip->addr,
    };
    if (tip->claim)
        c->list[place].who = *tip->claim;
    dial_target_init(&c->list[place].target, (uint32_t)place);
    c->list[place].target.network = sock_addr_network(tip->addr);
    refresh(c, &c->list[place], now_ns + wait_ns);
    *bucket = place;
    c->count++;
}

/* Another node may listen there. While the known one is connected, one dial is cheap, but repeated claims
 * must not cause many. */
static void contest(struct known_addrs *c, struct known_addr *e, uint64_t now_ns)
{
    if (e->contested)
        return;
    e->contested = true;
    uint64_t look_ns = e->contest_ns > now_ns ? e->contest_ns : now_ns;
    refresh(c, e, e->linked ? look_ns : e->target.next_ns);
}

void known_addrs_tell(struct known_addrs *c, const struct known_addr_tip *tip, uint64_t now_ns)
{
    struct known_addr *e = find(c, tip->addr);

    if (tip->claim && known_addrs_has_left(c, tip->claim))
        return;
    if (!e) {
        add(c, tip, now_ns);
        return;
    }
    e->told_ns = now_ns;
    if (!tip->claim) {
        if (!e->seed && !e->proven)
            contest(c, e, now_ns);
        e->seed = true;
    } else if (e->claimed && !identity_equal(&e->who, tip->claim)) {
        contest(c, e, now_ns);
    }
    e->trusted = e->trusted || tip->trusted;
    e->target.tier = (uint8_t)known_addr_tier(e);
}

void known_addrs_sweep(struct known_addrs *c, uint64_t now_ns)
{
    if (now_ns < c->swept_ns + SWEEP_NS)
        return;
    c->swept_ns = now_ns;
    for (int i = 0; i < c->room; i++) {
        const struct known_addr *e = &c->list[i];
        uint64_t keep_ns = known_addr_tier(e) == 0 ? FORGET_LATE_NS : FORGET_NS;
        if (e->used && !e->seed && !is_dialled(e) && !e->linked && now_ns >= e->told_ns + keep_ns)
            forget(c, i);
    }
}

/* ---- outcomes ------ ---------------------------------------------------------------------------------- */

/* The dial for a contesting claim is over. */
static void contest_end(struct known_addr *e, uint64_t now_ns)
{
    if (!e->contested)
        return;
    e->contested = false;
    if (!e->linked)
        return;
    e->contest_ns = now_ns + (CONTEST_MIN_NS << (e->contests < CONTEST_MAX ? e->contests : CONTEST_MAX));
    e->contests++;
}

void known_addrs_failed(struct known_addrs *c, int index, const char *why, uint64_t now_ns)
{
    struct known_addr *e = &c->list[index];

    snprintf(e->why, sizeof e->why, "%s", why);
    contest_end(e, now_ns);
    if (is_dialled(e))
        dialer_failed(c->dialer, &e->target, DIAL_CLOSED, now_ns);
    refresh(c, e, e->target.next_ns);
}

void known_addrs_released(struct known_addrs *c, int index)
{
    dialer_cancelled(c->dialer, &c->list[index].target);
}

void known_addrs_given_up(struct known_addrs *c, int index, uint64_t now_ns)
{
    known_addrs_released(c, index);
    refresh(c, &c->list[index], now_ns + KNOWN_ADDR_PAUSE_MIN);
}

void known_addrs_self(struct known_addrs *c, int index)
{
    struct known_addr *e = &c->list[index];

    e->self = true;
    e->contested = e->linked = e->proven = e->claimed = false;
    snprintf(e->why, sizeof e->why, "it is this node itself");
    known_addrs_released(c, index);
    refresh(c, e, e->target.next_ns);
}

void known_addrs_proven(struct known_addrs *c, int index, const struct identity *who, bool linked,
                        uint64_t round_trip_ns, uint64_t now_ns)
{
    struct known_addr *e = &c->list[index];

    contest_end(e, now_ns);
    e->claimed = e->proven = true;
    e->who = *who;
    e->linked = linked;
    e->round_trip_ns = round_trip_ns;
    e->why[0] = '\0';
    refresh(c, e, now_ns + KNOWN_ADDR_PAUSE_MIN);
}

static bool is_of(const struct known_addr *e, const struct identity *who)
{
    return e->used && e->claimed && identity_equal(&e->who, who);
}

void known_addrs_linked(struct known_addrs *c, const struct identity *who)
{
    for (int i = 0; i < c->room; i++) {
        struct known_addr *e = &c->list[i];
        if (!is_of(e, who))
            continue;
        e->linked = true;
        refresh(c, e, e->target.next_ns);
    }
}

static bool better(const struct known_addr *a, const struct known_addr *b)
{
    if (a->proven != b->proven)
        return a->proven;
    if (a->round_trip_ns != b->round_trip_ns && a->round_trip_ns > 0 && b->round_trip_ns > 0)
        return a->round_trip_ns < b->round_trip_ns;
    return a->order < b->order;
}

int known_addrs_best(const struct known_addrs *c, const struct identity *who)
{
    int best = -1;

    for (int i = 0; i < c->room; i++)
        if (is_of(&c->list[i], who) && (best < 0 || better(&c->list[i], &c->list[best])))
            best = i;
    return best;
}

/* Restarts an address: as soon as possible, after better ones of the same node. */
static void begin_anew(struct known_addrs *c, struct known_addr *e, uint64_t now_ns)
{
    uint64_t rank = 0;

    for (int i = 0; i < c->room && e->claimed && rank < HEAD_STARTS_MAX; i++)
        rank += is_of(&c->list[i], &e->who) && better(&c->list[i], e);
    e->target.tries = 0;
    refresh(c, e, now_ns + rank * KNOWN_ADDR_HEAD_START + (e->claimed ? courtesy(c, &e->who) : 0));
}

void known_addrs_lost(struct known_addrs *c, const struct identity *who, bool at_once, uint64_t now_ns)
{
    for (int i = 0; i < c->room; i++) {
        struct known_addr *e = &c->list[i];
        if (!is_of(e, who))
            continue;
        e->linked = false;
        e->contests = 0;
        e->contest_ns = 0;
        if (at_once)
            begin_anew(c, e, now_ns);
        else if (!is_dialled(e)) {
            dialer_failed(c->dialer, &e->target, DIAL_CLOSED, now_ns);
            refresh(c, e, e->target.next_ns);
        }
    }
}

bool known_addrs_has_left(const struct known_addrs *c, const struct identity *who)
{
    for (uint64_t i = 0; i < c->left_count && i < KNOWN_ADDRS_LEFT_MAX; i++)
        if (identity_equal(&c->left[i], who))
            return true;
    return false;
}

void known_addrs_left(struct known_addrs *c, const struct identity *who)
{
    if (!known_addrs_has_left(c, who))
        c->left[c->left_count++ % KNOWN_ADDRS_LEFT_MAX] = *who;
    for (int i = 0; i < c->room; i++) {
        struct known_addr *e = &c->list[i];
        if (!is_of(e, who) || is_dialled(e))
            continue;
        if (e->seed) {
            e->claimed = e->proven = e->linked = false;
            refresh(c, e, e->target.next_ns);
        } else {
            forget(c, i);
        }
    }
}

void known_addrs_hurry(struct known_addrs *c, uint64_t now_ns)
{
    for (int i = 0; i < c->room; i++) {
        struct known_addr *e = &c->list[i];
        if (!e->used || e->linked)
            continue;
        e->self = false;
        begin_anew(c, e, now_ns);
    }
}
