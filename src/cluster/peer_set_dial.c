/* SPDX-License-Identifier: Apache-2.0 */
/* Dials known addresses and nodes to probe: the knock, and what follows the handshake. */
#include "cluster/peer_conn.h"

/* ---- after the handshake ------------------------------------------------------------------------------ */

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

/* Ends an attempt to a node that is connected already. */
static void settle(struct peer_set *f, struct peer_conn *conn, const struct identity *peer, bool linked)
{
    known_addrs_proven(&f->known_addrs, conn->known, peer, linked, conn->round_trip_ns, f->now_ns);
    known_addrs_released(&f->known_addrs, conn->known);
    conn->known = -1;
    peer_conn_fail(f, conn, "it is connected already");
}

/* The identity is proven. */
static void shaken(struct peer_set *f, struct peer_conn *conn)
{
    const struct identity *peer = secure_stream_peer(conn->stream);

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
            peer_conn_fail(f, conn, "this node has the most connections it can have");
            return;
        }
        known_addrs_proven(&f->known_addrs, conn->known, peer, false, conn->round_trip_ns, f->now_ns);
    }
    conn->peer = *peer;
    conn->state = PEER_CONN_GREETED;
    conn->deadline_ns = f->now_ns + PEER_CONN_ANSWER_NS;
    if (!peer_conn_hello(f, conn))
        peer_conn_fail(f, conn, "the connection broke at once");
    else
        peer_conn_heat(f, conn);
}

/* Any machine can announce an address, so a knock for a sighting is valid at that address only. An address
 * from the user or a peer may be that of a router, which the node behind it does not see. A peer names the
 * node, but another one may have replaced it, so every other knock is for any node. */
static struct knock_target knock_target(const struct known_addr *e)
{
    if (e->seed)
        return (struct knock_target){.kind = KNOCK_OPEN};
    if (e->trusted && e->claimed && e->target.tries % 2 == 0)
        return (struct knock_target){.kind = KNOCK_NODE, .node = e->who.node};
    return (struct knock_target){.kind = KNOCK_ADDRESS, .addr = e->addr};
}

static void request_known_addr(void *arg, const struct dial_target *target, struct dial_request *request)
{
    struct peer_set *f = arg;
    struct known_addr *e = &f->known_addrs.list[target->key];

    e->tried_ns = f->now_ns;
    *request = (struct dial_request){.addr = e->addr, .credentials = f->credentials, .to = knock_target(e)};
}

static void request_probe(void *arg, const struct dial_target *target, struct dial_request *request)
{
    const struct peer_conn *conn = container_of(target, struct peer_conn, target);
    const struct peer_set *f = arg;

    *request = (struct dial_request){
        .addr = conn->addr,
        .credentials = f->credentials,
        .to = {.kind = KNOCK_NODE, .node = conn->peer.node},
    };
}

int dial_prepare(struct peer_set *f, uint64_t connect_timeout_ns, uint64_t seed)
{
    struct dialer_setup setup = known_addrs_dialing(connect_timeout_ns, seed);
    struct dialer_setup probes = {
        .attempts_max = PEER_SET_PROBES_MAX,
        .misses_max = UINT32_MAX,
        .connect_ns = connect_timeout_ns,
        .handshake_ns = PEER_CONN_HELLO_NS,
    };
    int status = dial_driver_open(&f->driver, f->heap, &setup, request_known_addr, f);

    return status ? status : dial_driver_open(&f->probe_driver, f->heap, &probes, request_probe, f);
}

/* ---- results ------------------------------------------------------------------------------------------ */

static void proceed(struct peer_set *f, struct peer_conn *conn, const struct dial_event *event)
{
    conn->stream = event->stream;
    conn->round_trip_ns = event->round_trip_ns;
    shaken(f, conn);
}

static void known_addr_dialled(struct peer_set *f, const struct dial_event *event)
{
    int index = (int)event->target->key;
    struct error why = event->error;
    char text[SOCK_TEXT_MAX];

    if (event->kind == DIAL_FAILED) {
        sock_addr_text(&event->addr, text, sizeof text);
        if (event->round_trip_ns > 0) /* else the text names the address */
            error_set(&why, event->error.status, RANK_NONE, "%s: %s", text, event->error.text);
        known_addrs_failed(&f->known_addrs, index, why.text, f->now_ns);
        return;
    }
    struct peer_conn *conn = peer_conn_open(f, true);
    if (!conn) {
        secure_stream_close(event->stream);
        known_addrs_failed(&f->known_addrs, index, "no memory for a connection", f->now_ns);
        return;
    }
    conn->known = index;
    conn->addr = event->addr;
    proceed(f, conn, event);
}

static void probe_dialled(struct peer_set *f, const struct dial_event *event)
{
    struct peer_conn *conn = container_of(event->target, struct peer_conn, target);

    dialer_cancelled(&f->probe_driver.dialer, &conn->target);
    dialer_unwant(&f->probe_driver.dialer, &conn->target);
    if (event->kind == DIAL_FAILED && event->round_trip_ns == 0) /* the text names the address */
        peer_conn_fail_named(f, conn, event->error.text);
    else if (event->kind == DIAL_FAILED)
        peer_conn_fail(f, conn, event->error.text);
    else
        proceed(f, conn, event);
}

void dial_tell_all(struct peer_set *f)
{
    struct dial_event event;

    while (dial_next(&f->driver, &event))
        if (event.kind != DIAL_CONNECTED)
            known_addr_dialled(f, &event);
    while (dial_next(&f->probe_driver, &event))
        if (event.kind != DIAL_CONNECTED)
            probe_dialled(f, &event);
}

void dial_pump_all(struct peer_set *f)
{
    dial_pump(&f->driver, f->now_ns);
    dial_pump(&f->probe_driver, f->now_ns);
    dial_tell_all(f);
}
