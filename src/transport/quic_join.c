/* SPDX-License-Identifier: Apache-2.0 */
/* Who is who: dialling, accepting, and the proofs in stream 0, before a line is anybody's.
 *
 *   dialler                         listener
 *   handshake, knock  ------------>           one hash for who does not know the secret
 *                     <------------  handshake
 *   proof             ------------>           a member that we wait for?
 *                     <------------  proof, and room for all streams
 *
 * Strangers are heard only while a peer is awaited. Then: QUIC_HALF_OPEN lines at most, each with small
 * buffers and five seconds; beyond a few, a stranger must first show that it receives at its address; if all
 * are taken, the address that has the most gives one up. */
#include <assert.h>
#include <string.h>

#include "os/clock.h"
#include "security/proof.h"
#include "security/trust_list.h"
#include "transport/quic_line.h"

#define AGAIN_NS     (50 * NS_PER_MS) /* before a peer that was too busy is dialled again */
#define WINDOW_NEAR  (1u << 20)       /* on loopback: fits a cache */
#define WINDOW_MIN   (4u << 20) /* elsewhere: a busy host answers only when it is our turn, in milliseconds */
#define WINDOW_MAX   (16u << 20)
#define RATE_GUESS   1.25e9 /* bytes per second, where nobody knows */
#define PATH_GUESS_S 2e-3
#define PULSE_NS     (50 * NS_PER_MS) /* silence of ours; an answer, or that nobody answers, comes at once */
#define PULSE_PEERS  16               /* so many of them; with more peers it beats slower */
#define IDLE_PARTS   3                /* and beats at least so often in the time after which a peer is lost */
#define BUSY_ALERT   80               /* internal_error: come again later */

/* Large enough that a line is never idle for want of room: twice what is on its way at full rate. */
static size_t window_for(const struct quic *quic, const struct quic_line *line, uint64_t round_trip_ns)
{
    double rate = quic->setup.rate_bytes_per_s > 0 ? quic->setup.rate_bytes_per_s : RATE_GUESS;
    double path_s = (double)round_trip_ns / (double)NS_PER_S;
    if (round_trip_ns == 0)
        path_s = sock_addr_loopback(&line->remote) ? 0 : PATH_GUESS_S;
    size_t window = sock_addr_loopback(&line->remote) ? WINDOW_NEAR : WINDOW_MIN;
    while (window < WINDOW_MAX && (double)window < 2 * rate * path_s)
        window *= 2;
    return window;
}

/* ---- lines ---- */

static bool admit(void *arg, bool weak)
{
    struct quic_line *line = arg;
    return admission_take(&line->quic->admission, sock_addr_network(&line->remote), weak, clock_real());
}

/* A process that is killed takes its port along, but only who sends to it hears of that. */
static uint64_t pulse_of(const struct quic *quic)
{
    uint64_t idle_ns = quic->setup.idle_ns, pulse_ns = PULSE_NS;
    if (quic->wanted_count > PULSE_PEERS)
        pulse_ns = pulse_ns * (uint64_t)quic->wanted_count / PULSE_PEERS;
    return idle_ns > 0 && idle_ns / IDLE_PARTS < pulse_ns ? idle_ns / IDLE_PARTS : pulse_ns;
}

/* Stream 0, with room for no more than a stranger may say. */
static struct quic_stream *first_stream(struct quic_line *line)
{
    struct quic_stream *stream = quic_stream_new(line, 0);
    if (stream && !quic_ring_make(line->quic->heap, &stream->in, QUIC_STRANGER_MAX)) {
        quic_stream_free(stream);
        return NULL;
    }
    return stream;
}

/* A line from `remote`, or to the peer that is wanted there. NULL with an error. */
static struct quic_line *line_begin(struct quic *quic, const struct sock_addr *remote,
                                    struct quic_peer *wanted, const struct quic_hello *hello,
                                    uint64_t deadline_ns, struct error *error)
{
    uint64_t now_ns = clock_real();
    struct gnutls_session_int *session;
    struct quic_line *line = quic_line_new(quic, !hello);
    if (!line || !(line->streams[0] = first_stream(line)))
        goto no_memory;
    line->stream_count = 1;
    line->remote = *remote;
    line->began_ns = now_ns;
    line->deadline_ns = deadline_ns;
    line->paced = !sock_addr_loopback(remote);
    line->datagram_size = quic->setup.datagram_size > 0 ? quic->setup.datagram_size : datagram_size(remote);
    line->session = (struct session_setup){.credentials = quic->setup.credentials,
                                           .role = line->dials ? CHANNEL_DIALS : CHANNEL_LISTENS,
                                           .quic = true,
                                           .admit = line->dials ? NULL : admit,
                                           .admit_arg = line,
                                           .refusal = &line->refusal};
    if (wanted)
        line->session.to = (struct knock_target){.kind = KNOCK_NODE, .node = wanted->identity.node};
    if (credentials_session(&line->session, &session, error) != HEARTH_OK) {
        quic_line_end(line, 0);
        return NULL;
    }
    struct quic_engine_setup setup = {
        .heap = quic->heap,
        .events = &quic_line_events,
        .arg = line,
        .remote = *remote,
        .datagram_size = line->datagram_size,
        .paced = line->paced,
        .idle_ns = quic->setup.idle_ns,
        .pulse_ns = pulse_of(quic),
        .deadline_ns = deadline_ns,
        .now_ns = now_ns,
    };
    memcpy(setup.tag, line->tag, sizeof setup.tag);
    if (quic_engine_open(&setup, hello, session, &line->engine) != HEARTH_OK)
        goto no_memory;
    line->wanted = wanted;
    line->due_ns = now_ns;
    quic_line_dirty(line);
    return line;

no_memory:
    if (line)
        quic_line_end(line, 0);
    error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "quic: no memory for a connection");
    return NULL;
}

/* Room for a link's traffic instead of a stranger's. */
static bool widen(struct quic_stream *stream, size_t window)
{
    struct heap *heap = stream->line->quic->heap;
    struct quic_ring wide, narrow = stream->in;
    if (!stream->out.bytes && !quic_ring_make(heap, &stream->out, window))
        return false;
    if (!quic_ring_make(heap, &wide, window))
        return false;
    wide.end = quic_ring_get(&narrow, wide.bytes, window);
    heap_free(narrow.bytes);
    stream->in = wide;
    return true;
}

/* ---- the peer is known ---- */

static bool hand_over(struct quic_line *line, struct quic_peer *peer)
{
    struct quic *quic = line->quic;
    size_t window = window_for(quic, line, peer->round_trip_ns);
    for (int i = 0; i < peer->streams; i++) {
        if (i > 0 && !(line->streams[i] = quic_stream_new(line, i)))
            return false;
        line->stream_count = i + 1;
        if (!widen(line->streams[i], window))
            return false;
    }
    quic_engine_welcome(line->engine, peer->streams, window);
    quic->half_open -= !line->dials;
    line->stage = LINE_UP;
    for (int i = 0; i < peer->streams; i++) {
        line->streams[i]->live = true;
        peer->conns[i] = &line->streams[i]->conn;
    }
    line->live = peer->count = peer->streams;
    quic_line_dirty(line);
    return true;
}

/* ---- an end without a link ---- */

static void say(struct quic *quic, const struct quic_line *line, const char *why)
{
    char text[SOCK_TEXT_MAX];
    if (!quic_meter_take(&quic->words, clock_real()))
        return;
    sock_addr_text(&line->remote, text, sizeof text);
    log_write(&quic->setup.log, HEARTH_LOG_WARN, "HEARTH-STRANGER", "%s is sent away (quic): %s", text, why);
}

/* Closes the line: a stranger's for ever; a peer may be dialled again, unless `for_good`. */
static void turn_away(struct quic_line *line, enum hearth_reason reason, const char *why, bool for_good,
                      uint64_t code)
{
    struct quic_peer *peer = line->wanted;
    if (!peer) {
        say(line->quic, line, why);
    } else {
        char text[SOCK_TEXT_MAX];
        sock_addr_text(&line->remote, text, sizeof text);
        error_because(&peer->why, reason, HEARTH_PEER_LOST, RANK_NONE, "quic: no link with %s: %s", text,
                      why);
        peer->over = for_good;
        peer->again_ns = clock_real() + AGAIN_NS;
    }
    quic_line_end(line, code);
}

static void refuse(struct quic_line *line, enum proof_reason reason, const char *why)
{
    struct quic_stream *stream = line->streams[0];
    uint8_t message[PROOF_LEN];
    proof_refuse(reason, message);
    if (quic_ring_make(line->quic->heap, &stream->out, sizeof message)) {
        quic_ring_put(&stream->out, message, sizeof message);
        quic_line_write(line, clock_real());
    }
    turn_away(line, HEARTH_REASON_NONE, why, true, reason);
}

/* ---- proofs ---- */

static bool judge(struct quic_line *line, const char **why, enum proof_reason *reason)
{
    const struct trust_list *trust = credentials_trust(line->quic->setup.credentials);
    enum trust_verdict verdict = trust ? trust_list_judge(trust, &line->peer.node) : TRUST_YES;
    *reason = verdict == TRUST_REVOKED ? PROOF_REVOKED : PROOF_UNLISTED;
    *why = trust_verdict_text(verdict);
    return verdict == TRUST_YES;
}

/* The dialler's proof sets out. */
static void prove_first(struct quic_line *line)
{
    const struct credentials *credentials = line->quic->setup.credentials;
    struct quic_stream *stream = line->streams[0];
    struct proof proof = {.role = CHANNEL_DIALS, .dialler = *credentials_self(credentials)};
    size_t window = window_for(line->quic, line, line->wanted->round_trip_ns);
    uint8_t message[PROOF_LEN];

    proof.listener.node = line->peer.node;
    if (proof_make(credentials, quic_engine_session(line->engine), &proof, message) != HEARTH_OK ||
        !quic_ring_make(line->quic->heap, &stream->out, window) || quic_engine_stream(line->engine) != 0) {
        turn_away(line, HEARTH_REASON_NO_MEMORY, "no proof can be made", true, 0);
        return;
    }
    stream->open = true;
    quic_ring_put(&stream->out, message, sizeof message);
    line->stage = LINE_PROVES;
    quic_line_dirty(line);
}

/* The handshake is complete. */
static void shaken(struct quic_line *line)
{
    const char *why = NULL;
    enum proof_reason reason;
    if (credentials_peer(quic_engine_session(line->engine), &line->peer.node, &why) != HEARTH_OK)
        turn_away(line, HEARTH_REASON_NOT_HEARTH, why, true, 0);
    else if (!line->dials)
        line->stage = LINE_PROVES;
    else if (!node_id_equal(&line->peer.node, &line->wanted->identity.node))
        turn_away(line, HEARTH_REASON_NOT_HEARTH, "another node answers at its address", true, 0);
    else if (!judge(line, &why, &reason))
        turn_away(line, HEARTH_REASON_KEY_REFUSED, why, true, 0);
    else
        prove_first(line);
}

static struct quic_peer *find_awaited(const struct quic *quic, const struct identity *identity)
{
    for (int i = 0; i < quic->wanted_count; i++) {
        struct quic_peer *peer = &quic->wanted[i];
        if (!peer->dials && peer->count == 0 && peer->identity.instance == identity->instance &&
            node_id_equal(&peer->identity.node, &identity->node))
            return peer;
    }
    return NULL;
}

/* The listener has the dialler's proof, and answers with its own. */
static void answer(struct quic_line *line, const uint8_t *message)
{
    const struct credentials *credentials = line->quic->setup.credentials;
    struct gnutls_session_int *session = quic_engine_session(line->engine);
    struct proof proof = {.role = CHANNEL_DIALS, .dialler = line->peer};
    uint8_t ours[PROOF_LEN];
    const char *why = NULL;
    struct error error;
    enum proof_reason reason;

    proof.listener.node = credentials_self(credentials)->node;
    if (proof_check(credentials, session, &proof, message, &error) != HEARTH_OK) {
        refuse(line, PROOF_WRONG, error.text);
        return;
    }
    line->peer = proof.dialler;
    if (!judge(line, &why, &reason)) {
        refuse(line, reason, why);
        return;
    }
    struct quic_peer *peer = find_awaited(line->quic, &line->peer);
    if (!peer) {
        refuse(line, PROOF_LATER, "it is none of the members that we wait for");
        return;
    }
    proof.role = CHANNEL_LISTENS;
    proof.listener = *credentials_self(credentials);
    if (proof_make(credentials, session, &proof, ours) != HEARTH_OK || !hand_over(line, peer))
        turn_away(line, HEARTH_REASON_NO_MEMORY, "no memory", false, PROOF_LATER);
    else
        quic_ring_put(&line->streams[0]->out, ours, sizeof ours);
}

/* The dialler has the listener's. */
static void conclude(struct quic_line *line, const uint8_t *message)
{
    const struct credentials *credentials = line->quic->setup.credentials;
    struct proof proof = {.role = CHANNEL_LISTENS, .dialler = *credentials_self(credentials)};
    struct quic_peer *peer = line->wanted;
    struct error why;

    proof.listener.node = line->peer.node;
    if (proof_check(credentials, quic_engine_session(line->engine), &proof, message, &why) != HEARTH_OK) {
        turn_away(line, why.reason, why.text, why.reason != HEARTH_REASON_BUSY, PROOF_WRONG);
        return;
    }
    line->peer = proof.listener;
    if (proof.listener.instance != peer->identity.instance)
        turn_away(line, HEARTH_REASON_NOT_HEARTH, "another process of that node answers at its address", true,
                  PROOF_WRONG);
    else if (!hand_over(line, peer))
        turn_away(line, HEARTH_REASON_NO_MEMORY, "no memory", true, 0);
    else
        line->wanted = NULL;
}

/* ---- one step ---- */

static void line_step(struct quic_line *line, uint64_t now_ns)
{
    struct quic_stream *stream = line->streams[0];
    uint8_t message[PROOF_LEN];

    if (line->stage >= LINE_UP)
        return;
    if (line->stage == LINE_SHAKES && !line->lost && quic_engine_ready(line->engine)) {
        shaken(line);
        return;
    }
    /* Also of a line that is lost by now: its last words may be a refusal. */
    if (line->stage == LINE_PROVES && stream->in.end - stream->in.done >= PROOF_LEN) {
        quic_ring_get(&stream->in, message, sizeof message);
        stream->in_owed = sizeof message;
        if (line->dials)
            conclude(line, message);
        else
            answer(line, message);
        return;
    }
    if (line->lost) {
        int alert = quic_engine_alert(line->engine);
        const struct alert_meaning *known = session_alert(alert);
        turn_away(line, known ? known->reason : HEARTH_REASON_PEER_CLOSED, line->why,
                  alert >= 0 && alert != BUSY_ALERT, 0);
    } else if (now_ns >= line->deadline_ns) {
        turn_away(line, HEARTH_REASON_UNREACHABLE, "it has not shown in time who it is", false, 0);
    }
}

/* ---- strangers ---- */

static bool somebody_awaited(const struct quic *quic)
{
    for (int i = 0; i < quic->wanted_count; i++)
        if (!quic->wanted[i].dials && quic->wanted[i].count == 0)
            return true;
    return false;
}

static bool is_half_open(const struct quic_line *line)
{
    return line && line->stage < LINE_UP && !line->dials;
}

static int lines_from(const struct quic *quic, const struct sock_addr *from)
{
    int count = 0;
    for (int i = 0; i < quic->capacity; i++)
        count += is_half_open(quic->lines[i]) &&
                 sock_addr_network(&quic->lines[i]->remote) == sock_addr_network(from);
    return count;
}

/* The source with the most half-open lines gives up its oldest, if the newcomer's has fewer. */
static bool make_room(struct quic *quic, const struct sock_addr *from)
{
    struct quic_line *oldest = NULL;
    int most = lines_from(quic, from);
    for (int i = 0; i < quic->capacity; i++) {
        struct quic_line *line = quic->lines[i];
        if (!is_half_open(line))
            continue;
        int count = lines_from(quic, &line->remote);
        if (count > most || (oldest && count == most && line->began_ns < oldest->began_ns)) {
            oldest = line;
            most = count;
        }
    }
    if (oldest)
        quic_line_end(oldest, PROOF_LATER);
    return oldest;
}

static void ask_for_address(struct quic *quic, const struct quic_hello *hello, const struct sock_addr *from,
                            uint64_t now_ns)
{
    uint8_t packet[DATAGRAM_SIZE_SAFE];
    if (!quic_meter_take(&quic->retries, now_ns))
        return;
    size_t len = quic_retry_write(hello, quic->token_key, from, now_ns, packet, sizeof packet);
    if (len > 0 && datagram_send(&quic->port, from, packet, len, len) != HEARTH_OK)
        return; /* it will ask again */
}

void quic_stranger(struct quic *quic, const uint8_t *bytes, size_t len, const struct sock_addr *from,
                   uint64_t now_ns)
{
    struct quic_hello hello;
    struct error error;

    if (!somebody_awaited(quic) || !quic_hello_read(bytes, len, quic->token_key, from, now_ns, &hello))
        return;
    if (!hello.proven && quic->half_open >= QUIC_HALF_OPEN_FREE) {
        ask_for_address(quic, &hello, from, now_ns);
        return;
    }
    if (quic->half_open >= QUIC_HALF_OPEN && !make_room(quic, from))
        return;
    struct quic_line *line = line_begin(quic, from, NULL, &hello, now_ns + QUIC_GREETING_NS, &error);
    if (line)
        quic_line_read(line, bytes, len, now_ns);
}

/* ---- joining ---- */

static struct quic_line *line_for(const struct quic *quic, const struct quic_peer *peer)
{
    for (int i = 0; i < quic->capacity; i++)
        if (quic->lines[i] && quic->lines[i]->wanted == peer)
            return quic->lines[i];
    return NULL;
}

/* Dials whom it is time to dial. */
static void dial_all(struct quic *quic, uint64_t now_ns, uint64_t deadline_ns)
{
    for (int i = 0; i < quic->wanted_count; i++) {
        struct quic_peer *peer = &quic->wanted[i];
        if (!peer->dials || peer->count > 0 || peer->over || now_ns < peer->again_ns || line_for(quic, peer))
            continue;
        peer->over = !line_begin(quic, &peer->addr, peer, NULL, deadline_ns, &peer->why);
    }
}

static bool all_settled(const struct quic *quic)
{
    for (int i = 0; i < quic->wanted_count; i++)
        if (quic->wanted[i].count == 0 && !quic->wanted[i].over)
            return false;
    return true;
}

static void join_wait(struct quic *quic, uint64_t deadline_ns)
{
    uint64_t until_ns = quic->due_ns < deadline_ns ? quic->due_ns : deadline_ns;
    for (int i = 0; i < quic->wanted_count; i++) {
        const struct quic_peer *peer = &quic->wanted[i];
        if (peer->dials && peer->count == 0 && !peer->over && !line_for(quic, peer))
            until_ns = peer->again_ns < until_ns ? peer->again_ns : until_ns;
    }
    struct sock_wait item = {.fd = quic->port.fd, .want_recv = true, .want_send = quic->stuck};
    sock_wait(&item, 1, until_ns);
}

void quic_join_begin(struct quic *quic, struct quic_peer *peers, int count)
{
    for (int i = 0; i < count; i++) {
        assert(peers[i].streams >= 1 && peers[i].streams <= LINK_PIPES_MAX);
        peers[i].count = 0;
        peers[i].over = false;
        peers[i].again_ns = 0;
        error_clear(&peers[i].why);
    }
    quic->wanted = peers;
    quic->wanted_count = count;
}

void quic_join_step(struct quic *quic, uint64_t now_ns, uint64_t deadline_ns)
{
    dial_all(quic, now_ns, deadline_ns);
    quic_hear(quic);
    quic_tick(quic, now_ns);
    for (int i = 0; i < quic->capacity; i++)
        if (quic->lines[i])
            line_step(quic->lines[i], now_ns);
    quic_speak(quic);
}

void quic_join_end(struct quic *quic)
{
    for (int i = 0; i < quic->capacity; i++) {
        struct quic_line *line = quic->lines[i];
        if (line && line->stage < LINE_UP)
            quic_line_end(line, PROOF_LATER);
    }
    quic->wanted = NULL;
    quic->wanted_count = 0;
}

/* Why a peer is not there, if nothing better is known. */
static void explain(struct quic_peer *peer)
{
    char text[SOCK_TEXT_MAX];
    if (peer->why.status != HEARTH_OK)
        return;
    sock_addr_text(&peer->addr, text, sizeof text);
    error_because(
        &peer->why, HEARTH_REASON_UNREACHABLE, HEARTH_PEER_LOST, RANK_NONE, "quic: no link with %s: %s", text,
        peer->dials ? "no answer came in time; does a firewall stop UDP?" : "it did not come in time");
}

int quic_join(struct quic *quic, struct quic_peer *peers, int count, uint64_t deadline_ns,
              const struct stop *stop, struct error *error)
{
    int status = HEARTH_OK;
    quic_join_begin(quic, peers, count);
    for (uint64_t now_ns = clock_real(); !all_settled(quic) && now_ns < deadline_ns && !stop_asked(stop);
         now_ns = clock_real()) {
        quic_join_step(quic, now_ns, deadline_ns);
        if (!all_settled(quic) && !quic->ready)
            join_wait(quic, stop_look(stop, deadline_ns));
    }
    quic_join_end(quic);
    for (int i = 0; i < count; i++) {
        if (peers[i].count > 0)
            continue;
        explain(&peers[i]);
        if (status == HEARTH_OK)
            status = error_wrap(error, &peers[i].why, "%s", peers[i].why.text);
    }
    return status;
}
