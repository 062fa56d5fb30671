/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: hello, messages, and the choice between two. docs/cluster_messages.md, "hello", has the
 * rules. */
#include "cluster/peer_conn.h"

#include <stdio.h>
#include <string.h>

#define BUFFER_BYTES (256 << 10)    /* small: there are many such connections */
#define SHORT_NS     (2 * NS_PER_S) /* after a shorter life it is not dialled again at once */

/* ---- open and close ----------------------------------------------------------------------------------- */

struct peer_conn *peer_conn_open(struct peer_set *f, bool dialled)
{
    struct peer_conn *conn = f->count < CONNS_MAX ? heap_alloc(f->heap, 1, sizeof *conn) : NULL;

    if (!conn)
        return NULL;
    conn->dialled = dialled;
    conn->purpose = HELLO_MESSAGES;
    conn->known = -1;
    dial_target_init(&conn->target, 0);
    conn->deadline_ns = NEVER_NS;
    message_reader_init(&conn->reader, f->heap, &cluster_kinds);
    message_queue_init(&conn->queue, f->heap, PEER_CONN_QUEUE_MAX);
    list_init(&conn->news_item);
    list_init(&conn->hot_item);
    list_push(&f->conns, &conn->item);
    f->count++;
    return conn;
}

void peer_conn_free(struct peer_conn *conn)
{
    list_remove(&conn->item);
    list_remove(&conn->news_item);
    list_remove(&conn->hot_item);
    list_remove(&conn->target.item);
    secure_stream_close(conn->stream);
    message_reader_fini(&conn->reader);
    message_queue_fini(&conn->queue);
    heap_free(conn);
}

/* Its news is delivered before it is freed. */
static void peer_conn_over(struct peer_set *f, struct peer_conn *conn)
{
    if (conn->state == PEER_CONN_OVER)
        return;
    conn->state = PEER_CONN_OVER;
    list_remove(&conn->hot_item);
    conn->more = false;
    f->count--;
    f->ended.sent += conn->bytes_sent;
    f->ended.received += conn->bytes_received;
    f->ended.dropped += conn->messages_dropped;
}

static void peer_conn_close(struct peer_set *f, struct peer_conn *conn)
{
    peer_conn_over(f, conn);
    secure_stream_close(conn->stream);
    conn->stream = NULL;
}

void conns_reap(struct peer_set *f)
{
    struct list *at, *after;

    LIST_EACH (at, after, &f->conns) {
        struct peer_conn *conn = container_of(at, struct peer_conn, item);
        if (conn->state == PEER_CONN_OVER && conn->news == 0 && conn != f->lent)
            peer_conn_free(conn);
    }
}

void peer_conn_tell(struct peer_set *f, struct peer_conn *conn, enum peer_news_kind kind)
{
    if (conn->news == 0)
        list_push(&f->news, &conn->news_item);
    conn->news |= 1u << kind;
}

void peer_conn_heat(struct peer_set *f, struct peer_conn *conn)
{
    list_remove(&conn->hot_item);
    list_push(&f->hot, &conn->hot_item);
}

/* ---- choice of one ------------------------------------------------------------------------------------ */

/* Whether this one stays if both ends dialled. */
static bool stays(const struct peer_set *f, const struct peer_conn *conn)
{
    return conn->dialled == (identity_compare(&f->id, &conn->peer) < 0);
}

struct peer_conn *peer_conn_best(const struct peer_set *f, const struct identity *peer)
{
    struct list *at, *after;
    struct peer_conn *conn, *best = NULL;

    PEER_CONN_EACH (conn, at, after, f)
        if (conn->state == PEER_CONN_READY && identity_equal(&conn->peer, peer) && (!best || !stays(f, best)))
            best = conn;
    return best;
}

int conns_linked(const struct peer_set *f)
{
    struct list *at, *after;
    struct peer_conn *conn;
    int count = 0;

    PEER_CONN_EACH (conn, at, after, f)
        count += conn->state == PEER_CONN_READY && peer_conn_best(f, &conn->peer) == conn;
    return count;
}

static bool newer(uint32_t serial, uint32_t than)
{
    return (int32_t)(serial - than) > 0;
}

int conns_probes(const struct peer_set *f)
{
    int count = 0;

    for (const struct list *at = f->conns.next; at != &f->conns; at = at->next) {
        const struct peer_conn *conn = container_of(at, struct peer_conn, item);
        count += conn->purpose == HELLO_PROBE && (conn->state != PEER_CONN_OVER || conn->news != 0);
    }
    return count;
}

/* Whether a dialler's hello is too late: sent before another connection became ready at both ends. */
static bool unwanted(const struct peer_set *f, const struct identity *peer, uint32_t serial)
{
    struct list *at, *after;
    struct peer_conn *conn;

    PEER_CONN_EACH (conn, at, after, f)
        if (conn->state == PEER_CONN_READY && identity_equal(&conn->peer, peer) &&
            !newer(serial, conn->peer_serial))
            return true;
    return false;
}

/* A new hello of the peer: its end has lost the connections that were ready before. */
static bool close_lost(struct peer_set *f, const struct identity *peer, uint32_t serial)
{
    struct list *at, *after;
    struct peer_conn *conn;
    bool any = false;

    PEER_CONN_EACH (conn, at, after, f) {
        if ((conn->state == PEER_CONN_READY || conn->state == PEER_CONN_RETIRING) &&
            identity_equal(&conn->peer, peer) && newer(serial, conn->peer_serial)) {
            any = any || conn->state == PEER_CONN_READY;
            peer_conn_close(f, conn);
        }
    }
    return any;
}

/* Sends nothing more on it, but still reads. */
static void retire(struct peer_conn *conn, uint64_t now_ns)
{
    conn->state = PEER_CONN_RETIRING;
    conn->deadline_ns = now_ns + PEER_CONN_RETIRE_NS;
    peer_conn_flush(conn);
}

/* ---- hello -------------------------------------------------------------------------------------------- */

/* Checked again at the hello: the trust list may have changed since the handshake, and a change is applied
 * only to connected nodes. */
static bool may_come(const struct peer_set *f, const struct identity *peer, const char **what)
{
    const struct trust_list *list = credentials_trust(f->credentials);
    enum trust_verdict verdict = list ? trust_list_judge(list, &peer->node) : TRUST_YES;

    if (verdict != TRUST_YES)
        *what = trust_verdict_text(verdict);
    return verdict == TRUST_YES;
}

int hello_check(const struct peer_set *f, const struct secure_stream *stream, const void *payload, size_t len,
                struct message_hello *hello, const char **what)
{
    const struct identity *peer = secure_stream_peer(stream);

    if (message_hello_decode(hello, payload, len, what))
        return HEARTH_PROTOCOL;
    if (!peer || !identity_equal(peer, &hello->info.id)) {
        *what = "its hello names another node than its key proves";
        return HEARTH_PROTOCOL;
    }
    if (identity_equal(peer, &f->id)) {
        *what = "it is this node itself";
        return HEARTH_PROTOCOL;
    }
    return may_come(f, peer, what) ? HEARTH_OK : HEARTH_PROTOCOL;
}

static size_t hello_make(struct peer_set *f, uint8_t purpose, uint8_t *target)
{
    struct message_hello hello = {
        .version_min = MESSAGE_VERSION,
        .version_max = MESSAGE_VERSION,
        .purpose = purpose,
        .serial = ++f->serial,
        .info = f->self,
    };

    return message_hello_encode(&hello, target);
}

bool peer_conn_hello(struct peer_set *f, struct peer_conn *conn)
{
    uint8_t bytes[MESSAGE_HEADER_LEN + MESSAGE_HELLO_MAX];
    size_t len = hello_make(f, conn->purpose, bytes + MESSAGE_HEADER_LEN);

    message_seal(MESSAGE_HELLO, bytes + MESSAGE_HEADER_LEN, len, NULL, 0, bytes);
    conn->bytes_sent += MESSAGE_HEADER_LEN + len;
    /* A hello fits into an empty socket buffer, or the socket is broken. */
    return secure_stream_send(conn->stream, bytes, MESSAGE_HEADER_LEN + len);
}

/* For a reconnect. */
static void learn_addresses(struct peer_set *f, const struct peer_conn *conn)
{
    for (int i = 0; i < conn->info.addr_count; i++) {
        struct sock_addr addr = sock_addr_of(&conn->info.addrs[i]);
        struct known_addr_tip tip = {.addr = &addr, .claim = &conn->peer, .trusted = true, .linked = true};
        known_addrs_tell(&f->known_addrs, &tip, f->now_ns);
    }
}

/* The peer is connected: stops other dials to it. */
static void hang_up(struct peer_set *f, const struct identity *peer)
{
    for (int i = 0; i < KNOWN_ADDR_DIALS_MAX; i++) {
        const struct dial_attempt *a = &f->driver.dialer.attempts[i];
        if (a->state != ATTEMPT_CONNECTING && a->state != ATTEMPT_OPEN)
            continue;
        const struct known_addr *e = &f->known_addrs.list[a->target->key];
        if (e->claimed && !e->contested && identity_equal(&e->who, peer))
            known_addrs_given_up(&f->known_addrs, (int)a->target->key, f->now_ns);
    }
}

static void joined_log(const struct peer_set *f, const struct peer_conn *conn)
{
    char id[NODE_ID_SHORT], text[SOCK_TEXT_MAX];

    node_id_short(&conn->peer.node, id);
    sock_addr_text(&conn->addr, text, sizeof text);
    log_write(&f->log, HEARTH_LOG_INFO, "HEARTH-PEER", "%s (%s) is connected, %s %s", conn->info.name, id,
              conn->dialled ? "dialled at" : "came from", text);
}

/* Both hellos are exchanged. */
static void peer_conn_ready(struct peer_set *f, struct peer_conn *conn, const struct message_hello *hello,
                            bool replaces)
{
    const struct peer_conn *other = peer_conn_best(f, &hello->info.id);

    conn->peer = hello->info.id;
    conn->info = hello->info;
    conn->peer_serial = hello->serial;
    conn->state = PEER_CONN_READY;
    conn->ready_ns = f->now_ns;
    conn->deadline_ns = NEVER_NS;
    sock_tune(secure_stream_fd(conn->stream),
              &(struct sock_tuning){.send_bytes = BUFFER_BYTES, .recv_bytes = BUFFER_BYTES});
    if (conn->known >= 0) {
        known_addrs_proven(&f->known_addrs, conn->known, &conn->peer, true, conn->round_trip_ns, f->now_ns);
        known_addrs_released(&f->known_addrs, conn->known);
    }
    conn->known = -1;
    learn_addresses(f, conn);
    if (other || replaces) {
        if (peer_conn_best(f, &conn->peer) == conn)
            peer_conn_tell(f, conn, PEER_AGAIN);
        return;
    }
    known_addrs_linked(&f->known_addrs, &conn->peer);
    hang_up(f, &conn->peer);
    joined_log(f, conn);
    peer_conn_tell(f, conn, PEER_LINKED);
}

/* Both ends of a probe connection are ready: the caller owns it. */
static void hand_over(struct peer_set *f, struct peer_conn *conn)
{
    sock_tune(secure_stream_fd(conn->stream), &(struct sock_tuning){.congestion = true});
    conn->info = (struct peer_info){.id = conn->peer};
    peer_conn_over(f, conn);
    peer_conn_tell(f, conn, PEER_PROBE);
}

void peer_conn_arrive(struct peer_set *f, const struct half_open_incoming *guest,
                      const struct message_hello *hello)
{
    const struct identity *peer = &hello->info.id;
    bool linked = peer_conn_best(f, peer);
    const char *why = NULL;

    if (hello->purpose == HELLO_PROBE && !linked)
        why = "a probe from a node that is not connected";
    else if (hello->purpose == HELLO_PROBE && conns_probes(f) >= PEER_SET_PROBES_MAX)
        why = "too many probes";
    else if (hello->purpose == HELLO_MESSAGES && unwanted(f, peer, hello->serial))
        why = "it is connected already";
    else if (hello->purpose == HELLO_MESSAGES && !linked && conns_linked(f) >= PEER_SET_MAX)
        why = "this node has the most connections it can have";
    struct peer_conn *conn = why ? NULL : peer_conn_open(f, false);
    if (!conn) {
        log_write(&f->log, HEARTH_LOG_DEBUG, "HEARTH-PEER", "%s is refused: %s", hello->info.name,
                  why ? why : "too many connections");
        secure_stream_close(guest->stream);
        return;
    }
    conn->stream = guest->stream;
    conn->addr = guest->from;
    conn->peer = *peer;
    conn->purpose = hello->purpose;
    conn->state = PEER_CONN_GREETED;
    bool replaces = hello->purpose == HELLO_MESSAGES && close_lost(f, peer, hello->serial);
    (void)peer_conn_hello(f, conn); /* a failure shows at the next read */
    if (conn->purpose == HELLO_PROBE)
        hand_over(f, conn);
    else
        peer_conn_ready(f, conn, hello, replaces);
    if (conn->state == PEER_CONN_READY)
        peer_conn_heat(f, conn);
}

/* The listener's answer to our hello. */
static void greeted(struct peer_set *f, struct peer_conn *conn, const struct message_hello *hello)
{
    struct list *at, *after;
    struct peer_conn *other;

    if (hello->purpose != conn->purpose) {
        peer_conn_fail(f, conn, "its hello has another purpose");
        return;
    }
    if (conn->purpose == HELLO_PROBE) {
        hand_over(f, conn);
        return;
    }
    peer_conn_ready(f, conn, hello, false);
    if (!stays(f, conn))
        return; /* if there are two, the peer closes this one later */
    PEER_CONN_EACH (other, at, after, f)
        if (other != conn && other->state == PEER_CONN_READY && identity_equal(&other->peer, &conn->peer))
            retire(other, f->now_ns);
}

/* A new description of the peer. */
static void again(struct peer_set *f, struct peer_conn *conn, const struct message_hello *hello)
{
    conn->info = hello->info;
    conn->peer_serial = hello->serial;
    learn_addresses(f, conn);
    if (conn->state == PEER_CONN_READY)
        peer_conn_tell(f, conn, PEER_AGAIN);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* HEARTH_OK: a whole message. HEARTH_PENDING. Else `what` says why. */
static int read_message(struct peer_conn *conn, const char **what)
{
    for (;;) {
        uint8_t *target;
        size_t wants = message_reader_wants(&conn->reader, &target);
        ssize_t len = secure_stream_recv(conn->stream, target, wants);
        if (len == 0)
            return HEARTH_PENDING;
        if (len < 0) {
            *what = len == HEARTH_PEER_LOST ? "it closed the connection, or the connection broke"
                                            : "the connection delivered damaged data";
            return (int)len;
        }
        conn->bytes_received += (uint64_t)len;
        int status = message_reader_got(&conn->reader, (size_t)len, what);
        if (status != HEARTH_PENDING)
            return status;
    }
}

/* Handles a hello in any state. */
static int take_hello(struct peer_set *f, struct peer_conn *conn, const char **what)
{
    struct message_hello hello;

    if (hello_check(f, conn->stream, conn->reader.payload, conn->reader.header.len, &hello, what))
        return HEARTH_PROTOCOL;
    message_reader_next(&conn->reader);
    if (conn->state == PEER_CONN_GREETED)
        greeted(f, conn, &hello);
    else
        again(f, conn, &hello);
    return conn->state == PEER_CONN_OVER ? HEARTH_PEER_LOST : HEARTH_PENDING;
}

static int hear(struct peer_set *f, struct peer_conn *conn, const char **what)
{
    for (;;) {
        conn->more = conn->messages_left == 0; /* the others come first */
        int status = conn->more ? HEARTH_PENDING : read_message(conn, what);
        if (status)
            return status;
        conn->messages_left--;
        uint8_t kind = conn->reader.header.kind;
        if (kind != MESSAGE_HELLO && conn->state != PEER_CONN_GREETED)
            return HEARTH_OK;
        *what = "its first message is not a hello";
        status = kind == MESSAGE_HELLO ? take_hello(f, conn, what) : HEARTH_PROTOCOL;
        if (status != HEARTH_PENDING)
            return status;
    }
}

int peer_conn_hear(struct peer_set *f, struct peer_conn *conn)
{
    const char *what = "";
    int status = hear(f, conn, &what);

    if (status == HEARTH_OK || status == HEARTH_PENDING || conn->state == PEER_CONN_OVER)
        return status;
    if (conn->state == PEER_CONN_GREETED)
        peer_conn_fail(f, conn, what);
    else
        peer_conn_lose(f, conn, what);
    return status;
}

void peer_conn_flush(struct peer_conn *conn)
{
    const uint8_t *bytes;
    size_t len;

    while ((len = message_queue_front(&conn->queue, SECURE_STREAM_MESSAGE_MAX, &bytes)) > 0) {
        if (!secure_stream_send(conn->stream, bytes, len))
            return;
        conn->bytes_sent += len;
        message_queue_sent(&conn->queue, len);
    }
    struct error error;
    if (secure_stream_wants_send(conn->stream) && secure_stream_pump(conn->stream, &error) != HEARTH_OK)
        return; /* the next read says why */
    if (conn->state == PEER_CONN_RETIRING && !conn->finished && !secure_stream_wants_send(conn->stream)) {
        sock_finish(secure_stream_fd(conn->stream));
        conn->finished = true;
    }
}

bool peer_conn_put(struct peer_set *f, struct peer_conn *conn, uint8_t kind, const void *payload, size_t len)
{
    uint8_t hello[MESSAGE_HELLO_MAX];

    if (kind == MESSAGE_HELLO) {
        len = hello_make(f, conn->purpose, hello);
        payload = hello;
    }
    if (len > MESSAGE_PAYLOAD_MAX || !message_queue_put(&conn->queue, kind, payload, len)) {
        conn->messages_dropped++;
        return false;
    }
    peer_conn_flush(conn);
    return true;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

void peer_conn_fail(struct peer_set *f, struct peer_conn *conn, const char *what)
{
    char addr[SOCK_TEXT_MAX], why[KNOWN_ADDR_WHY_MAX];

    sock_addr_text(&conn->addr, addr, sizeof addr);
    snprintf(why, sizeof why, "%s: %s", addr, what);
    peer_conn_fail_named(f, conn, why);
}

void peer_conn_fail_named(struct peer_set *f, struct peer_conn *conn, const char *why)
{
    snprintf(conn->why, sizeof conn->why, "%s", why);
    if (conn->purpose == HELLO_PROBE) {
        conn->info = (struct peer_info){.id = conn->peer};
        peer_conn_tell(f, conn, PEER_PROBE);
    } else if (conn->known >= 0) {
        if (conn->state == PEER_CONN_GREETED && peer_conn_best(f, &conn->peer))
            known_addrs_given_up(&f->known_addrs, conn->known, f->now_ns);
        else
            known_addrs_failed(&f->known_addrs, conn->known, conn->why, f->now_ns);
    }
    peer_conn_close(f, conn);
}

void peer_conn_lose(struct peer_set *f, struct peer_conn *conn, const char *why)
{
    bool was_best = conn->state == PEER_CONN_READY && peer_conn_best(f, &conn->peer) == conn;
    char id[NODE_ID_SHORT];

    peer_conn_close(f, conn);
    if (!was_best)
        return;
    struct peer_conn *other = peer_conn_best(f, &conn->peer);
    if (other) {
        peer_conn_tell(f, other, PEER_AGAIN);
        return;
    }
    node_id_short(&conn->peer.node, id);
    snprintf(conn->why, sizeof conn->why, "%s", why);
    log_write(&f->log, HEARTH_LOG_INFO, "HEARTH-PEER", "%s (%s) is no longer connected: %s", conn->info.name,
              id, why);
    known_addrs_lost(&f->known_addrs, &conn->peer, f->now_ns >= conn->ready_ns + SHORT_NS, f->now_ns);
    peer_conn_tell(f, conn, PEER_LOST);
}
