/* SPDX-License-Identifier: Apache-2.0 */
/* Dials addresses: whom, how many at once, how long one may take while others wait. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster/peer_conn.h"

#define DIALS_MAX      32 /* at once */
#define DIALS_TIER_MAX 28 /* of them to addresses of one tier: neither starves the other */
/* With others waiting, a dial must get somewhere within such a time, which doubles with every try: a thousand
 * addresses that nobody answers at are through in a few seconds. Where many handshakes at once take long, for
 * one end or the other has much to do, four times as long as they take. */
#define YIELD_CONNECT_NS (100 * NS_PER_MS)
#define YIELD_SHAKE_NS   (400 * NS_PER_MS) /* more, once it is connected */
#define YIELD_SHIFT_MAX  6

/* ---- how many at once --------------------------------------------------------------------------------- */

struct dials {
    int count, of_tier[KNOWN_ADDR_TIERS];
    uint64_t houses[DIALS_MAX];
};

static bool is_dial(const struct peer_conn *conn)
{
    return conn->known >= 0 && conn->state <= PEER_CONN_GREETED;
}

static int tier_of(const struct peer_set *f, const struct peer_conn *conn)
{
    return known_addr_tier(&f->known_addrs.list[conn->known]);
}

static void dials_count(const struct peer_set *f, struct dials *dials)
{
    struct list *at, *after;
    struct peer_conn *conn;

    *dials = (struct dials){.count = 0};
    PEER_CONN_EACH (conn, at, after, f) {
        if (!is_dial(conn) || dials->count == DIALS_MAX)
            continue;
        dials->houses[dials->count++] = f->known_addrs.list[conn->known].house;
        dials->of_tier[tier_of(f, conn)]++;
    }
}

/* The one that is to make room for a address of this tier, now or later; NULL: there is none. Who was
 * proven and greeted stays: the listener may think already that we are joined. */
static struct peer_conn *first_to_yield(const struct peer_set *f, int tier)
{
    struct list *at, *after;
    struct peer_conn *conn, *first = NULL;

    PEER_CONN_EACH (conn, at, after, f)
        if (is_dial(conn) && conn->state != PEER_CONN_GREETED && tier_of(f, conn) >= tier &&
            (!first || conn->yield_ns < first->yield_ns))
            first = conn;
    return first;
}

static bool full(const struct dials *dials, int tier)
{
    return dials->count >= DIALS_MAX || dials->of_tier[tier] >= DIALS_TIER_MAX;
}

/* ---- dialling ----------------------------------------------------------------------------------------- */

struct peer_conn *dial_open(struct peer_set *f, const struct sock_addr *addr, struct error *error)
{
    struct peer_conn *conn = peer_conn_open(f, true);

    if (!conn) {
        error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a connection");
        return NULL;
    }
    conn->addr = *addr;
    conn->deadline_ns = f->now_ns + f->connect_timeout_ns;
    if (sock_dial(addr, NULL, &conn->fd, error) == HEARTH_OK)
        return conn;
    f->count--;
    peer_conn_free(conn);
    return NULL;
}

static uint64_t patience(const struct peer_set *f, const struct peer_conn *conn, uint64_t first_ns)
{
    uint32_t tries = conn->known >= 0 ? f->known_addrs.list[conn->known].tries : 0;

    return first_ns << (tries < YIELD_SHIFT_MAX ? tries : YIELD_SHIFT_MAX);
}

/* A handshake succeeded: that long they take. */
static void learn_pace(struct peer_set *f, const struct peer_conn *conn)
{
    uint64_t took_ns = f->now_ns - conn->connected_ns;

    f->shake_ns -= f->shake_ns / 8;
    f->shake_ns = took_ns > f->shake_ns ? took_ns : f->shake_ns;
}

static void dial_known_addr(struct peer_set *f, int index)
{
    struct error error;

    known_addrs_dialling(&f->known_addrs, index, f->now_ns);
    struct peer_conn *conn = dial_open(f, &f->known_addrs.list[index].addr, &error);
    if (!conn) {
        known_addrs_failed(&f->known_addrs, index, error.text, f->now_ns);
        return;
    }
    conn->known = index;
    conn->yield_ns = f->now_ns + patience(f, conn, YIELD_CONNECT_NS);
}

/* Whether one more of that tier was dialled. */
static bool dial_one(struct peer_set *f, int tier)
{
    struct dials dials;

    dials_count(f, &dials);
    int index = known_addrs_pick(&f->known_addrs, tier, dials.houses, dials.count, f->now_ns);
    if (index < 0)
        return false;
    if (full(&dials, tier)) {
        struct peer_conn *conn = first_to_yield(f, tier);
        if (!conn || f->now_ns < conn->yield_ns)
            return false;
        peer_conn_fail(f, conn, "no answer so soon, and many others wait");
    }
    dial_known_addr(f, index);
    return true;
}

void dial_due(struct peer_set *f)
{
    if (known_addrs_due(&f->known_addrs) <= f->now_ns)
        for (int tier = 0; tier < KNOWN_ADDR_TIERS; tier++)
            for (int i = 0; i < DIALS_MAX && dial_one(f, tier); i++)
                continue;
    known_addrs_settle(&f->known_addrs);
}

uint64_t dial_deadline(const struct peer_set *f)
{
    uint64_t deadline_ns = known_addrs_due(&f->known_addrs);
    struct dials dials;

    if (deadline_ns > f->now_ns)
        return deadline_ns;
    deadline_ns = f->now_ns + KNOWN_ADDR_PAUSE_MIN; /* somebody else may be due by then */
    dials_count(f, &dials);
    for (int tier = 0; tier < KNOWN_ADDR_TIERS; tier++) {
        if (known_addrs_pick(&f->known_addrs, tier, NULL, 0, f->now_ns) < 0)
            continue;
        const struct peer_conn *conn = first_to_yield(f, tier);
        uint64_t free_ns = !full(&dials, tier) ? f->now_ns : conn ? conn->yield_ns : NEVER_NS;
        deadline_ns = free_ns < deadline_ns ? free_ns : deadline_ns;
    }
    return deadline_ns;
}

/* ---- the handshake ------------------------------------------------------------------------------------ */

static bool greeting_already(const struct peer_set *f, const struct identity *peer)
{
    struct list *at, *after;
    struct peer_conn *conn;

    PEER_CONN_EACH (conn, at, after, f)
        if (conn->state == PEER_CONN_GREETED && conn->purpose == HELLO_MESSAGES &&
            identity_equal(&conn->peer, peer))
            return true;
    return false;
}

/* The address is what we thought or something else, but we are through with it. */
static void settle(struct peer_set *f, struct peer_conn *conn, const struct identity *peer, bool linked)
{
    known_addrs_proven(&f->known_addrs, conn->known, peer, linked, conn->round_trip_ns, f->now_ns);
    conn->known = -1;
    peer_conn_fail(f, conn, "it is joined already");
}

/* We know who is there. */
static void shaken(struct peer_set *f, struct peer_conn *conn)
{
    const struct identity *peer = secure_stream_peer(conn->stream);

    learn_pace(f, conn);
    if (conn->purpose == HELLO_PROBE && !identity_equal(peer, &conn->peer)) {
        peer_conn_fail(f, conn, "another node listens there");
        return;
    }
    if (identity_equal(peer, &f->id)) {
        known_addrs_self(&f->known_addrs, conn->known);
        conn->known = -1;
        peer_conn_fail(f, conn, "it is this node itself");
        return;
    }
    if (conn->purpose == HELLO_MESSAGES) {
        bool linked = peer_conn_best(f, peer);
        if (linked || greeting_already(f, peer)) {
            settle(f, conn, peer, linked);
            return;
        }
        if (conns_linked(f) >= PEER_SET_MAX) {
            peer_conn_fail(f, conn, "we are joined to as many nodes as can be");
            return;
        }
        known_addrs_proven(&f->known_addrs, conn->known, peer, false, conn->round_trip_ns, f->now_ns);
        known_addrs_dialling(&f->known_addrs, conn->known, f->now_ns);
    }
    conn->peer = *peer;
    conn->state = PEER_CONN_GREETED;
    conn->deadline_ns = f->now_ns + PEER_CONN_ANSWER_NS;
    if (!peer_conn_hello(f, conn))
        peer_conn_fail(f, conn, "the connection broke at once");
    else
        peer_conn_heat(f, conn);
}

static void shake(struct peer_set *f, struct peer_conn *conn)
{
    struct error error;
    int status = secure_stream_pump(conn->stream, &error);

    if (status == HEARTH_OK)
        shaken(f, conn);
    else if (status != HEARTH_PENDING)
        peer_conn_fail(f, conn, error.text);
}

/* Anybody can announce an address: a knock there is good there alone. What the user or a peer says may be
 * the address of a router that passes us on, which the node behind it does not see; a peer says which node
 * that is, but another one may have come in its place, so every other time we knock at whoever is there. */
static struct knock_target knock_target(const struct peer_set *f, const struct peer_conn *conn)
{
    const struct known_addr *e = conn->known >= 0 ? &f->known_addrs.list[conn->known] : NULL;

    if (!e) /* a probe */
        return (struct knock_target){.kind = KNOCK_NODE, .node = conn->peer.node};
    if (e->seed)
        return (struct knock_target){.kind = KNOCK_OPEN};
    if (e->trusted && e->claimed && e->tries % 2 == 0)
        return (struct knock_target){.kind = KNOCK_NODE, .node = e->who.node};
    return (struct knock_target){.kind = KNOCK_ADDRESS, .addr = conn->addr};
}

static void connected(struct peer_set *f, struct peer_conn *conn)
{
    struct secure_stream_setup setup = {
        .heap = f->heap,
        .credentials = f->credentials,
        .role = CHANNEL_DIALS,
        .to = knock_target(f, conn),
    };
    int fd = conn->fd;

    conn->connected_ns = f->now_ns;
    conn->round_trip_ns = f->now_ns - conn->began_ns;
    conn->deadline_ns = f->now_ns + PEER_CONN_HELLO_NS;
    conn->yield_ns = f->now_ns + patience(f, conn, YIELD_SHAKE_NS) + 4 * f->shake_ns;
    conn->fd = -1;
    sock_tune(fd, &(struct sock_tuning){.congestion = false}); /* nothing waits for more to say */
    if (secure_stream_open(&setup, fd, &conn->stream) != HEARTH_OK) {
        peer_conn_fail(f, conn, "no memory for the connection");
        return;
    }
    conn->state = PEER_CONN_SHAKING;
    shake(f, conn);
}

void dial_move(struct peer_set *f, struct peer_conn *conn)
{
    struct error error;

    if (conn->state == PEER_CONN_SHAKING) {
        shake(f, conn);
        return;
    }
    int status = sock_dialled(conn->fd, &conn->addr, &error);
    if (status == HEARTH_OK)
        connected(f, conn);
    else if (status != HEARTH_PENDING)
        peer_conn_fail(f, conn, error.text);
}

const char *peer_conn_late_text(const struct peer_conn *conn)
{
    if (conn->state == PEER_CONN_DIALLING)
        return "no answer, connect timed out";
    return conn->state == PEER_CONN_SHAKING ? "connected, but it did not finish the handshake in time"
                                            : "it did not answer our hello in time";
}
