/* SPDX-License-Identifier: Apache-2.0 */
/* Dials candidates: whom, how many at once, how long one may take while others wait. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "home/tie.h"

#define DIALS_MAX      32 /* at once */
#define DIALS_TIER_MAX 28 /* of them to candidates of one tier: neither starves the other */
/* With others waiting, a dial must get somewhere within such a time, which doubles with every try: a thousand
 * addresses that nobody answers at are through in a few seconds. Where many handshakes at once take long, for
 * one end or the other has much to do, four times as long as they take. */
#define YIELD_CONNECT_NS (100 * NS_PER_MS)
#define YIELD_SHAKE_NS   (400 * NS_PER_MS) /* more, once it is connected */
#define YIELD_SHIFT_MAX  6

/* ---- how many at once --------------------------------------------------------------------------------- */

struct dials {
    int count, of_tier[CANDIDATE_TIERS];
    uint64_t houses[DIALS_MAX];
};

static bool is_dial(const struct tie *tie)
{
    return tie->candidate >= 0 && tie->state <= TIE_GREETED;
}

static int tier_of(const struct fellows *f, const struct tie *tie)
{
    return candidate_tier(&f->candidates.list[tie->candidate]);
}

static void dials_count(const struct fellows *f, struct dials *dials)
{
    struct list *at, *after;
    struct tie *tie;

    *dials = (struct dials){.count = 0};
    TIE_EACH (tie, at, after, f) {
        if (!is_dial(tie) || dials->count == DIALS_MAX)
            continue;
        dials->houses[dials->count++] = f->candidates.list[tie->candidate].house;
        dials->of_tier[tier_of(f, tie)]++;
    }
}

/* The one that is to make room for a candidate of this tier, now or later; NULL: there is none. Who was
 * proven and greeted stays: the listener may think already that we are joined. */
static struct tie *first_to_yield(const struct fellows *f, int tier)
{
    struct list *at, *after;
    struct tie *tie, *first = NULL;

    TIE_EACH (tie, at, after, f)
        if (is_dial(tie) && tie->state != TIE_GREETED && tier_of(f, tie) >= tier &&
            (!first || tie->yield_ns < first->yield_ns))
            first = tie;
    return first;
}

static bool full(const struct dials *dials, int tier)
{
    return dials->count >= DIALS_MAX || dials->of_tier[tier] >= DIALS_TIER_MAX;
}

/* ---- dialling ----------------------------------------------------------------------------------------- */

struct tie *dial_open(struct fellows *f, const struct sock_addr *addr, struct error *error)
{
    struct tie *tie = tie_open(f, true);

    if (!tie) {
        error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a connection");
        return NULL;
    }
    tie->addr = *addr;
    tie->deadline_ns = f->now_ns + f->connect_timeout_ns;
    if (sock_dial(addr, NULL, &tie->fd, error) == HEARTH_OK)
        return tie;
    f->count--;
    tie_free(tie);
    return NULL;
}

static uint64_t patience(const struct fellows *f, const struct tie *tie, uint64_t first_ns)
{
    uint32_t tries = tie->candidate >= 0 ? f->candidates.list[tie->candidate].tries : 0;

    return first_ns << (tries < YIELD_SHIFT_MAX ? tries : YIELD_SHIFT_MAX);
}

/* A handshake succeeded: that long they take. */
static void learn_pace(struct fellows *f, const struct tie *tie)
{
    uint64_t took_ns = f->now_ns - tie->connected_ns;

    f->shake_ns -= f->shake_ns / 8;
    f->shake_ns = took_ns > f->shake_ns ? took_ns : f->shake_ns;
}

static void dial_candidate(struct fellows *f, int index)
{
    struct error error;

    candidates_dialling(&f->candidates, index, f->now_ns);
    struct tie *tie = dial_open(f, &f->candidates.list[index].addr, &error);
    if (!tie) {
        candidates_failed(&f->candidates, index, error.text, f->now_ns);
        return;
    }
    tie->candidate = index;
    tie->yield_ns = f->now_ns + patience(f, tie, YIELD_CONNECT_NS);
}

/* Whether one more of that tier was dialled. */
static bool dial_one(struct fellows *f, int tier)
{
    struct dials dials;

    dials_count(f, &dials);
    int index = candidates_pick(&f->candidates, tier, dials.houses, dials.count, f->now_ns);
    if (index < 0)
        return false;
    if (full(&dials, tier)) {
        struct tie *tie = first_to_yield(f, tier);
        if (!tie || f->now_ns < tie->yield_ns)
            return false;
        tie_fail(f, tie, "no answer so soon, and many others wait");
    }
    dial_candidate(f, index);
    return true;
}

void dial_due(struct fellows *f)
{
    if (candidates_due(&f->candidates) <= f->now_ns)
        for (int tier = 0; tier < CANDIDATE_TIERS; tier++)
            for (int i = 0; i < DIALS_MAX && dial_one(f, tier); i++)
                continue;
    candidates_settle(&f->candidates);
}

uint64_t dial_deadline(const struct fellows *f)
{
    uint64_t deadline_ns = candidates_due(&f->candidates);
    struct dials dials;

    if (deadline_ns > f->now_ns)
        return deadline_ns;
    deadline_ns = f->now_ns + CANDIDATE_PAUSE_MIN; /* somebody else may be due by then */
    dials_count(f, &dials);
    for (int tier = 0; tier < CANDIDATE_TIERS; tier++) {
        if (candidates_pick(&f->candidates, tier, NULL, 0, f->now_ns) < 0)
            continue;
        const struct tie *tie = first_to_yield(f, tier);
        uint64_t free_ns = !full(&dials, tier) ? f->now_ns : tie ? tie->yield_ns : NEVER_NS;
        deadline_ns = free_ns < deadline_ns ? free_ns : deadline_ns;
    }
    return deadline_ns;
}

/* ---- the handshake ------------------------------------------------------------------------------------ */

static bool greeting_already(const struct fellows *f, const struct identity *peer)
{
    struct list *at, *after;
    struct tie *tie;

    TIE_EACH (tie, at, after, f)
        if (tie->state == TIE_GREETED && tie->purpose == HELLO_LETTERS && identity_equal(&tie->peer, peer))
            return true;
    return false;
}

/* The candidate is what we thought or something else, but we are through with it. */
static void settle(struct fellows *f, struct tie *tie, const struct identity *peer, bool linked)
{
    candidates_proven(&f->candidates, tie->candidate, peer, linked, tie->round_trip_ns, f->now_ns);
    tie->candidate = -1;
    tie_fail(f, tie, "it is joined already");
}

/* We know who is there. */
static void shaken(struct fellows *f, struct tie *tie)
{
    const struct identity *peer = tunnel_peer(tie->tunnel);

    learn_pace(f, tie);
    if (tie->purpose == HELLO_PROBE && !identity_equal(peer, &tie->peer)) {
        tie_fail(f, tie, "another node listens there");
        return;
    }
    if (identity_equal(peer, &f->id)) {
        candidates_self(&f->candidates, tie->candidate);
        tie->candidate = -1;
        tie_fail(f, tie, "it is this node itself");
        return;
    }
    if (tie->purpose == HELLO_LETTERS) {
        bool linked = tie_best(f, peer) != NULL;
        if (linked || greeting_already(f, peer)) {
            settle(f, tie, peer, linked);
            return;
        }
        if (ties_linked(f) >= FELLOWS_MAX) {
            tie_fail(f, tie, "we are joined to as many nodes as can be");
            return;
        }
        candidates_proven(&f->candidates, tie->candidate, peer, false, tie->round_trip_ns, f->now_ns);
        candidates_dialling(&f->candidates, tie->candidate, f->now_ns);
    }
    tie->peer = *peer;
    tie->state = TIE_GREETED;
    tie->deadline_ns = f->now_ns + TIE_ANSWER_NS;
    if (!tie_hello(f, tie))
        tie_fail(f, tie, "the connection broke at once");
    else
        tie_heat(f, tie);
}

static void shake(struct fellows *f, struct tie *tie)
{
    struct error error;
    int status = tunnel_pump(tie->tunnel, &error);

    if (status == HEARTH_OK)
        shaken(f, tie);
    else if (status != HEARTH_PENDING)
        tie_fail(f, tie, error.text);
}

/* Anybody can announce an address: a knock there is good there alone. What the user or a fellow says may be
 * the address of a router that passes us on, which the node behind it does not see; a fellow says which node
 * that is, but another one may have come in its place, so every other time we knock at whoever is there. */
static struct knock_target knock_target(const struct fellows *f, const struct tie *tie)
{
    const struct candidate *e = tie->candidate >= 0 ? &f->candidates.list[tie->candidate] : NULL;

    if (!e) /* a probe */
        return (struct knock_target){.kind = KNOCK_NODE, .node = tie->peer.node};
    if (e->seed)
        return (struct knock_target){.kind = KNOCK_OPEN};
    if (e->trusted && e->claimed && e->tries % 2 == 0)
        return (struct knock_target){.kind = KNOCK_NODE, .node = e->who.node};
    return (struct knock_target){.kind = KNOCK_ADDRESS, .addr = tie->addr};
}

static void connected(struct fellows *f, struct tie *tie)
{
    struct tunnel_setup setup = {
        .heap = f->heap,
        .credentials = f->credentials,
        .role = CHANNEL_DIALS,
        .to = knock_target(f, tie),
    };
    int fd = tie->fd;

    tie->connected_ns = f->now_ns;
    tie->round_trip_ns = f->now_ns - tie->began_ns;
    tie->deadline_ns = f->now_ns + TIE_HELLO_NS;
    tie->yield_ns = f->now_ns + patience(f, tie, YIELD_SHAKE_NS) + 4 * f->shake_ns;
    tie->fd = -1;
    sock_tune(fd, &(struct sock_tuning){.congestion = false}); /* nothing waits for more to say */
    if (tunnel_open(&setup, fd, &tie->tunnel) != HEARTH_OK) {
        tie_fail(f, tie, "no memory for the connection");
        return;
    }
    tie->state = TIE_SHAKING;
    shake(f, tie);
}

void dial_move(struct fellows *f, struct tie *tie)
{
    struct error error;

    if (tie->state == TIE_SHAKING) {
        shake(f, tie);
        return;
    }
    int status = sock_dialled(tie->fd, &tie->addr, &error);
    if (status == HEARTH_OK)
        connected(f, tie);
    else if (status != HEARTH_PENDING)
        tie_fail(f, tie, error.text);
}

const char *tie_late_text(const struct tie *tie)
{
    if (tie->state == TIE_DIALLING)
        return "no answer, connect timed out";
    return tie->state == TIE_SHAKING ? "connected, but it did not finish the handshake in time"
                                     : "it did not answer our hello in time";
}
