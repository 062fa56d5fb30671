/* SPDX-License-Identifier: Apache-2.0 */
/* All connections of a node to others of its cluster: opening, waiting, news, state. */
#include "cluster/peer_set.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cluster/peer_conn.h"
#include "os/host.h"

#define MESSAGES_AT_ONCE 64 /* of one connection, before it must wait for the next peer_set_pump */

static_assert(CONNS_MAX + HALF_OPEN_WAITS_MAX + KNOWN_ADDR_DIALS_MAX + PEER_SET_PROBES_MAX <=
                  PEER_SET_WAITS_MAX,
              "all can be waited for");

/* ---- opening ------------------------------------------------------------------------------------------ */

/* The first message of an incoming connection must be a valid hello; longer ones are refused. */
static enum half_open_verdict judge(void *arg, const struct half_open_incoming *guest, const uint8_t *bytes,
                                    size_t len, size_t *wants, const char **why)
{
    struct message_header header;
    struct message_hello hello;

    enum half_open_verdict verdict = half_open_message(&hello_kinds, bytes, len, wants, &header, why);
    if (verdict != HALF_OPEN_THROUGH)
        return verdict;
    return hello_check(arg, guest->stream, bytes + MESSAGE_HEADER_LEN, header.len, &hello, why)
               ? HALF_OPEN_AWAY
               : HALF_OPEN_THROUGH;
}

/* Fills in the bound port. */
static void set_self(struct peer_set *f, const struct peer_info *self)
{
    struct sock_addr bound = half_open_addr(f->half_open);

    f->self = *self;
    f->self.id = f->id;
    for (int i = 0; i < f->self.addr_count; i++)
        if (f->self.addrs[i].port == 0)
            f->self.addrs[i].port = sock_addr_port(&bound);
}

int peer_set_open(const struct peer_set_setup *setup, struct peer_set **out, struct error *error)
{
    struct peer_set *f = heap_alloc(setup->heap, 1, sizeof *f);
    struct half_open_setup half_open = {
        .heap = setup->heap,
        .log = setup->log,
        .listen = setup->listen,
        .port_tries = setup->port_tries,
        .patience_ns = PEER_CONN_HELLO_NS,
        .words_first = MESSAGE_HEADER_LEN,
        .words_max = MESSAGE_HEADER_LEN + MESSAGE_HELLO_MAX,
        .judge = judge,
        .arg = f,
    };

    if (!f)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for connections to other nodes");
    f->heap = setup->heap;
    f->log = setup->log;
    f->credentials = setup->credentials;
    f->id = *credentials_self(setup->credentials);
    f->now_ns = setup->now_ns;
    list_init(&f->conns);
    list_init(&f->news);
    list_init(&f->hot);
    known_addrs_init(&f->known_addrs, setup->heap, &f->id, &f->driver.dialer, setup->now_ns);
    int status = half_open_open(&half_open, &f->half_open, error);
    if (status == HEARTH_OK && dial_prepare(f, setup->connect_timeout_ns, setup->seed) != HEARTH_OK)
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for connections to other nodes");
    if (status) {
        peer_set_close(f);
        return status;
    }
    set_self(f, &setup->self);
    half_open_trust(f->half_open, setup->credentials);
    *out = f;
    return HEARTH_OK;
}

/* Closing a socket with unread bytes would reset it and lose the last messages. */
static void part(struct peer_conn *conn)
{
    uint8_t bytes[1024];

    peer_conn_flush(conn);
    sock_finish(secure_stream_fd(conn->stream));
    for (int i = 0; i < MESSAGES_AT_ONCE && secure_stream_recv(conn->stream, bytes, sizeof bytes) > 0; i++)
        continue;
}

void peer_set_close(struct peer_set *f)
{
    if (!f)
        return;
    while (!list_empty(&f->conns)) {
        struct peer_conn *conn = container_of(f->conns.next, struct peer_conn, item);
        if (conn->state == PEER_CONN_READY)
            part(conn);
        peer_conn_free(conn);
    }
    half_open_close(f->half_open);
    dial_driver_close(&f->driver);
    dial_driver_close(&f->probe_driver);
    known_addrs_fini(&f->known_addrs);
    heap_free(f);
}

struct sock_addr peer_set_addr(const struct peer_set *f)
{
    return half_open_addr(f->half_open);
}

const struct peer_info *peer_set_self(const struct peer_set *f)
{
    return &f->self;
}

void peer_set_describe(struct peer_set *f, const struct peer_info *self)
{
    struct list *at, *after;
    struct peer_conn *conn;

    set_self(f, self);
    PEER_CONN_EACH (conn, at, after, f)
        if (conn->state == PEER_CONN_READY)
            (void)peer_conn_put(f, conn, MESSAGE_HELLO, NULL, 0);
}

/* ---- addresses --------------------------------------------------------------------------------------- */

void peer_set_known_addr(struct peer_set *f, const struct sock_addr *addr, const struct identity *claim,
                         bool trusted, uint64_t now_ns)
{
    struct known_addr_tip tip = {.addr = addr, .claim = claim, .trusted = trusted};
    enum sock_family family = sock_addr_family(addr);

    if ((family != SOCK_IPV4 && family != SOCK_IPV6) || sock_addr_port(addr) == 0 ||
        sock_addr_wildcard(addr) || (claim && identity_equal(claim, &f->id)))
        return;
    tip.linked = claim && peer_conn_best(f, claim);
    known_addrs_tell(&f->known_addrs, &tip, now_ns);
}

void peer_set_left(struct peer_set *f, const struct identity *peer)
{
    known_addrs_left(&f->known_addrs, peer);
}

bool peer_set_has_left(const struct peer_set *f, const struct identity *peer)
{
    return known_addrs_has_left(&f->known_addrs, peer);
}

/* A connection from an address that this machine lost is dead, but the system takes minutes to notice. */
static bool stranded(const struct peer_conn *conn)
{
    struct sock_addr local;

    return conn->stream && sock_local(secure_stream_fd(conn->stream), &local) == HEARTH_OK &&
           !host_owns(&local);
}

void peer_set_hurry(struct peer_set *f, uint64_t now_ns)
{
    struct list *at, *after;
    struct peer_conn *conn;

    f->now_ns = now_ns;
    PEER_CONN_EACH (conn, at, after, f) {
        if (!stranded(conn))
            continue;
        if (conn->state <= PEER_CONN_GREETED)
            peer_conn_fail(f, conn, "this machine's address has changed");
        else
            peer_conn_lose(f, conn, "this machine's address has changed");
    }
    dial_network_changed(&f->driver);
    dial_network_changed(&f->probe_driver);
    dial_tell_all(f);
    known_addrs_hurry(&f->known_addrs, now_ns);
}

int peer_set_dial_probe(struct peer_set *f, const struct identity *to, const struct sock_addr *addr,
                        uint64_t now_ns)
{
    const struct peer_conn *by = peer_conn_best(f, to);
    int best = known_addrs_best(&f->known_addrs, to);

    if (!by)
        return HEARTH_PEER_LOST;
    if (conns_probes(f) >= PEER_SET_PROBES_MAX)
        return HEARTH_LIMIT;
    if (!addr && by->dialled)
        addr = &by->addr;
    else if (!addr && best >= 0)
        addr = &f->known_addrs.list[best].addr;
    if (!addr)
        return HEARTH_PEER_LOST;
    f->now_ns = now_ns;
    struct peer_conn *conn = peer_conn_open(f, true);
    if (!conn)
        return HEARTH_NO_MEMORY;
    conn->addr = *addr;
    conn->purpose = HELLO_PROBE;
    conn->peer = *to;
    dialer_want(&f->probe_driver.dialer, &conn->target, 0); /* at once */
    return HEARTH_OK;
}

/* ---- progress ----------------------------------------------------------------------------------------- */

static struct sock_wait wait_for(const struct peer_conn *conn)
{
    if (!conn->stream)
        return (struct sock_wait){.fd = -1};
    return (struct sock_wait){
        .fd = secure_stream_fd(conn->stream),
        .want_recv = true,
        .want_send = conn->queue.len > 0 || secure_stream_wants_send(conn->stream),
    };
}

static void late(struct peer_set *f, struct peer_conn *conn)
{
    if (conn->state == PEER_CONN_GREETED)
        peer_conn_fail(f, conn, "it did not answer our hello in time");
    else
        peer_conn_lose(f, conn, "it did not close a retired connection"); /* without news */
}

static void conns_pump(struct peer_set *f)
{
    struct sock_wait items[CONNS_MAX];
    struct peer_conn *all[CONNS_MAX], *conn;
    struct list *at, *after;
    size_t count = 0;

    PEER_CONN_EACH (conn, at, after, f) {
        items[count] = wait_for(conn);
        all[count++] = conn;
    }
    (void)sock_wait(items, count, 0);
    for (size_t i = 0; i < count; i++) {
        conn = all[i];
        conn->messages_left = MESSAGES_AT_ONCE;
        if (conn->state == PEER_CONN_OVER)
            continue;
        if (items[i].ready || conn->more) {
            peer_conn_flush(conn);
            peer_conn_heat(f, conn);
        }
        if (conn->state != PEER_CONN_OVER && f->now_ns >= conn->deadline_ns)
            late(f, conn);
    }
}

static void arrivals(struct peer_set *f)
{
    uint8_t words[MESSAGE_HEADER_LEN + MESSAGE_HELLO_MAX];
    struct half_open_incoming guest;
    struct message_hello hello;
    const char *what;
    size_t len;

    while (half_open_take(f->half_open, &guest, words, &len)) {
        int status =
            hello_check(f, guest.stream, words + MESSAGE_HEADER_LEN, len - MESSAGE_HEADER_LEN, &hello, &what);
        assert(status == HEARTH_OK); /* hello_check has decoded it */
        (void)status;
        peer_conn_arrive(f, &guest, &hello);
    }
}

void peer_set_pump(struct peer_set *f, uint64_t now_ns)
{
    f->now_ns = now_ns;
    conns_reap(f);
    conns_pump(f);
    half_open_pump(f->half_open, now_ns);
    arrivals(f);
    known_addrs_sweep(&f->known_addrs, now_ns);
    dial_pump_all(f);
}

size_t peer_set_waits(const struct peer_set *f, struct sock_wait *items, size_t max, uint64_t *deadline_ns)
{
    size_t count = half_open_waits(f->half_open, items, max, deadline_ns);
    uint64_t due_ns = NEVER_NS;
    struct list *at, *after;
    struct peer_conn *conn;

    count += dial_waits(&f->driver, items + count, max - count, &due_ns);
    count += dial_waits(&f->probe_driver, items + count, max - count, &due_ns);
    PEER_CONN_EACH (conn, at, after, f) {
        if (count < max && conn->stream)
            items[count++] = wait_for(conn);
        uint64_t peer_conn_ns = conn->more ? 0 : conn->deadline_ns;
        due_ns = peer_conn_ns < due_ns ? peer_conn_ns : due_ns;
    }
    if (!list_empty(&f->hot) || !list_empty(&f->news))
        due_ns = 0;
    *deadline_ns = due_ns < *deadline_ns ? due_ns : *deadline_ns;
    return count;
}

/* ---- messages and news --------------------------------------------------------------------------------- */

bool peer_set_send(struct peer_set *f, const struct identity *to, uint8_t kind, const void *payload,
                   size_t len)
{
    struct peer_conn *conn = peer_conn_best(f, to);

    assert(kind > MESSAGE_HELLO && kind < MESSAGE_LOAD);
    return conn && peer_conn_put(f, conn, kind, payload, len);
}

void peer_set_drop(struct peer_set *f, const struct identity *peer, const char *why)
{
    struct list *at, *after;
    struct peer_conn *conn;

    PEER_CONN_EACH (conn, at, after, f)
        if (conn->state >= PEER_CONN_READY && identity_equal(&conn->peer, peer))
            peer_conn_lose(f, conn, why);
}

/* The first news of a connection; false: outdated. */
static bool take_news(struct peer_set *f, struct peer_news *news)
{
    struct peer_conn *conn = container_of(f->news.next, struct peer_conn, news_item);
    enum peer_news_kind kind = PEER_LINKED;

    while (!(conn->news & 1u << kind))
        kind++;
    conn->news &= ~(1u << kind);
    if (conn->news == 0)
        list_remove(&conn->news_item);
    *news = (struct peer_news){.kind = kind, .info = conn->info};
    if (kind == PEER_LOST || kind == PEER_PROBE)
        snprintf(news->text, sizeof news->text, "%s", conn->why);
    if (kind == PEER_PROBE) {
        news->dialled = conn->dialled;
        news->stream = conn->stream;
        conn->stream = NULL;
    }
    return kind != PEER_AGAIN || peer_conn_best(f, &conn->peer) == conn;
}

static void lend(struct peer_set *f, struct peer_conn *conn, struct peer_news *news)
{
    *news = (struct peer_news){
        .kind = PEER_MESSAGE,
        .info.id = conn->peer,
        .message = conn->reader.header.kind,
        .payload = conn->reader.payload,
        .len = conn->reader.header.len,
    };
    f->lent = conn;
    peer_conn_heat(f, conn); /* after the others */
}

bool peer_news(struct peer_set *f, struct peer_news *news)
{
    if (f->lent)
        message_reader_next(&f->lent->reader);
    f->lent = NULL;
    for (;;) {
        if (!list_empty(&f->news)) {
            if (take_news(f, news))
                return true;
            continue;
        }
        if (list_empty(&f->hot))
            return false;
        struct peer_conn *conn = container_of(f->hot.next, struct peer_conn, hot_item);
        if (peer_conn_hear(f, conn) == HEARTH_OK) {
            lend(f, conn, news);
            return true;
        }
        list_remove(&conn->hot_item);
    }
}

struct peer_set_traffic peer_set_traffic(const struct peer_set *f)
{
    struct peer_set_traffic sum = f->ended;
    struct list *at, *after;
    struct peer_conn *conn;

    PEER_CONN_EACH (conn, at, after, f) {
        sum.sent += conn->bytes_sent;
        sum.received += conn->bytes_received;
        sum.dropped += conn->messages_dropped;
    }
    return sum;
}

/* ---- state -------------------------------------------------------------------------------------------- */

static bool listed(const struct peer_set_state *list, int count, const struct known_addr *e)
{
    for (int i = 0; i < count && e->claimed; i++)
        if (identity_equal(&list[i].id, &e->who))
            return true;
    return false;
}

/* Whether another address of the same node was tried later. */
static bool outdated(const struct known_addrs *c, const struct known_addr *e)
{
    for (int i = 0; i < c->room && e->claimed; i++) {
        const struct known_addr *o = &c->list[i];
        if (o->used && o->claimed && o->tried_ns > e->tried_ns && identity_equal(&o->who, &e->who))
            return true;
    }
    return false;
}

int peer_set_list(const struct peer_set *f, struct peer_set_state *list, int max)
{
    struct list *at, *after;
    struct peer_conn *conn;
    int count = 0;

    PEER_CONN_EACH (conn, at, after, f) {
        if (conn->state != PEER_CONN_READY || peer_conn_best(f, &conn->peer) != conn || count == max)
            continue;
        list[count++] = (struct peer_set_state){
            .id = conn->peer,
            .linked = true,
            .dialled_by_us = conn->dialled,
            .addr = conn->addr,
            .round_trip_ns = conn->round_trip_ns,
        };
    }
    for (int i = 0; i < f->known_addrs.room && count < max; i++) {
        const struct known_addr *e = &f->known_addrs.list[i];
        if (!e->used || e->linked || e->self || listed(list, count, e) || outdated(&f->known_addrs, e))
            continue;
        struct peer_set_state *s = &list[count++];
        *s = (struct peer_set_state){
            .addr = e->addr, .round_trip_ns = e->round_trip_ns, .attempts = e->target.tries};
        if (e->claimed)
            s->id = e->who;
        snprintf(s->why, sizeof s->why, "%s", e->why[0] ? e->why : "not reached yet");
    }
    return count;
}
