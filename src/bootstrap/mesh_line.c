/* SPDX-License-Identifier: Apache-2.0 */
/* One socket of a mesh, from dialling (or from the listener) to the moment it is kept or given up.
 *
 *   we dial:      dialling --connected--> shaking --proven, GREET sent--> greeted --WELCOME--> kept
 *                                                                         (the lower rank says CONFIRM)
 *   peer dials:   (listener) --GREET--> kept, if we have the lower rank and say WELCOME
 *                                   offered, if not: WELCOME said --CONFIRM--> kept
 */
#include "bootstrap/mesh_line.h"

#include <assert.h>
#include <stdio.h>

#include "os/clock.h"
#include "os/sock.h"
#include "security/records.h"

#define LOOPBACK_BYTES (1 << 20) /* buffers of a connection inside a machine */

static_assert(MESH_CHANNELS_MAX == GREETING_CHANNELS_MAX, "every channel can be greeted");

/* ---- lines -------------------------------------------------------------------------------------------- */

struct line *line_find(struct mesh *mesh)
{
    for (int i = 0; i < LINES_MAX; i++)
        if (mesh->lines[i].state == LINE_FREE)
            return &mesh->lines[i];
    return NULL;
}

void line_close(struct line *line)
{
    secure_stream_close(line->stream);
    line->stream = NULL;
    line->state = LINE_FREE;
}

/* Remembers why we did not come further that way; the text names the address. */
static void why_keep(struct mesh *mesh, const struct line *line, enum hearth_reason reason, const char *text)
{
    struct side *side = &mesh->sides[line->peer];

    if (line->via < 0)
        return;
    snprintf(side->why[line->via], MESH_WHY_MAX, "%.*s", MESH_WHY_MAX - 1, text);
    side->failed[line->via] = true;
    if (reason != HEARTH_REASON_NONE)
        side->reason = reason;
}

static void why_because(struct mesh *mesh, const struct line *line, enum hearth_reason reason,
                        const char *what)
{
    char addr[SOCK_TEXT_MAX], text[MESH_WHY_MAX];

    sock_addr_text(&line->addr, addr, sizeof addr);
    snprintf(text, sizeof text, "%s: %.*s", addr, MESH_REASON_MAX, what);
    why_keep(mesh, line, reason, text);
}

/* How far we are; of less interest than why the last attempt failed. */
static void why_note(struct mesh *mesh, const struct line *line, const char *progress)
{
    struct side *side = &mesh->sides[line->peer];

    if (line->via < 0 || side->failed[line->via])
        return;
    why_because(mesh, line, HEARTH_REASON_NONE, progress);
    side->failed[line->via] = false;
}

/* What we dialled led to nothing. It is tried again, as the dialer sees fit. */
static void dial_failed(struct mesh *mesh, const struct line *line, enum dial_fault fault)
{
    struct side *side = &mesh->sides[line->peer];
    bool ours = fault == DIAL_SYSTEM || fault == DIAL_OTHER_USER;

    side->unreached = side->unreached || fault == DIAL_UNREACHABLE;
    if (line->via == PAIRING_LOCAL && ours && pairing_fall_back(&side->pairing, mesh->now_ns))
        log_write(&mesh->setup->log, HEARTH_LOG_WARN, "HEARTH-NO-SHM",
                  "rank %d is on this host, but is joined by tcp: %s", line->peer, side->why[PAIRING_LOCAL]);
}

/* Closes a line that led to nothing. */
static void line_fail(struct mesh *mesh, struct line *line, enum dial_fault fault)
{
    struct pairing *pairing = &mesh->sides[line->peer].pairing;

    line_close(line);
    if (line->via < 0)
        return;
    dialer_failed(&mesh->driver.dialer, &pairing->channels[line->channel].tries[line->via], fault,
                  mesh->now_ns);
    dial_failed(mesh, line, fault);
}

bool line_say(struct mesh *mesh, const struct line *line, enum greeting_kind kind)
{
    const struct roster *r = mesh->roster;
    int count = mesh->sides[line->peer].pairing.count;
    struct greeting g = {
        .kind = (uint8_t)kind,
        .channel = (uint8_t)line->channel,
        .channels = count > 0 ? (uint8_t)count : line->channels,
        .from = (uint32_t)r->rank,
        .to = (uint32_t)line->peer,
        .cluster = r->cluster,
        .from_instance = r->members[r->rank].id.instance,
        .to_instance = r->members[line->peer].id.instance,
        .round_trip_ns = line->round_trip_ns,
    };
    uint8_t bytes[GREETING_LEN];

    greeting_encode(&g, bytes);
    /* So little fits into a socket that is as good as empty, or it is broken. */
    return secure_stream_send(line->stream, bytes, sizeof bytes);
}

/* One line per peer. */
static void joined_log(const struct mesh *mesh, int rank)
{
    const struct mesh_peer *peer = &mesh->peers[rank];
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&peer->addr, text, sizeof text);
    log_write(&mesh->setup->log, HEARTH_LOG_INFO, "HEARTH-JOINED",
              "rank %d (%s) by %s, %s, %d connection%s, round trip %.3f ms", rank,
              member_of(mesh, rank)->name, peer->kind == MESH_UNIX ? "shared memory" : "tcp", text,
              peer->count, peer->count == 1 ? "" : "s", (double)peer->round_trip_ns / 1e6);
}

/* The line cannot be released: the cluster cannot be made. */
static void line_broken(struct mesh *mesh, const struct line *line, int status)
{
    bool stopped = status == HEARTH_PENDING && stop_asked(mesh->setup->stop);
    const char *why = stopped                      ? "it had not taken our answer yet"
                      : status == HEARTH_PENDING   ? "it says more than a greeting, or takes no answer"
                      : status == HEARTH_PEER_LOST ? "it closed its connection while it was being joined"
                                                   : "no memory for its connection";

    if (status == HEARTH_PENDING)
        status = stopped ? HEARTH_TIMEOUT : HEARTH_PROTOCOL;
    error_set(mesh->broken, status, line->peer, "rank %d (%s): %s", line->peer,
              member_of(mesh, line->peer)->name, why);
}

/* Takes the socket out of its secure stream. Unless memory ends or the peer is gone, only one that breaks the
 * rules makes this fail: it said more than it may before the first frame, or it reads nothing. */
static bool line_release(struct mesh *mesh, struct line *line)
{
    struct mesh_peer *peer = &mesh->peers[line->peer];
    struct records *records = NULL;
    int fd = -1, status;

    while ((status = secure_stream_release(line->stream, &fd, &records)) == HEARTH_PENDING &&
           secure_stream_wants_send(line->stream) && clock_real() < mesh->setup->deadline_ns &&
           !stop_asked(mesh->setup->stop)) {
        struct sock_wait wait = {.fd = secure_stream_fd(line->stream), .want_send = true};
        (void)sock_wait(&wait, 1, stop_look(mesh->setup->stop, mesh->setup->deadline_ns));
    }
    if (status == HEARTH_PENDING || status == HEARTH_PEER_LOST)
        line_close(line);
    line->stream = NULL;
    if (status != HEARTH_OK) {
        line_broken(mesh, line, status);
        return false;
    }
    peer->fds[line->channel] = fd;
    if (line->local) { /* descriptors are handed over as they are */
        records_close(records);
        records = NULL;
    }
    peer->records[line->channel] = records;
    return true;
}

void line_keep(struct mesh *mesh, struct line *line)
{
    const struct pairing *pairing = &mesh->sides[line->peer].pairing;
    struct mesh_peer *peer = &mesh->peers[line->peer];

    /* The system's own choice of buffers grows too slowly to catch up with memory. */
    int bytes = sock_addr_loopback(&line->addr) ? LOOPBACK_BYTES : 0;
    if (!line_release(mesh, line))
        return;
    if (!line->local)
        sock_tune(peer->fds[line->channel],
                  &(struct sock_tuning){.congestion = true, .send_bytes = bytes, .recv_bytes = bytes});
    peer->round_trip_ns = pairing->round_trip_ns;
    if (line->channel == 0) {
        peer->kind = line->local ? MESH_UNIX : MESH_TCP;
        peer->addr = line->addr;
    }
    line->state = LINE_FREE;
    for (int i = 0; i < LINES_MAX; i++) {
        struct line *other = &mesh->lines[i];
        if (other->state != LINE_FREE && other->peer == line->peer && other->channel == line->channel)
            line_close(other);
    }
    if (!pairing_done(pairing))
        return;
    peer->count = pairing->count;
    mesh->missing--;
    joined_log(mesh, line->peer);
}

/* ---- we dial ------------------------------------------------------------------------------------------ */

bool mesh_proven(const struct mesh *mesh, const struct secure_stream *stream, int rank)
{
    const struct identity *peer = secure_stream_peer(stream);
    const struct peer_info *member = member_of(mesh, rank);

    if (!mesh->setup->credentials)
        return true;
    return peer && identity_equal(peer, &member->id);
}

static void line_greet(struct mesh *mesh, struct line *line)
{
    if (!mesh_proven(mesh, line->stream, line->peer)) {
        why_because(mesh, line, HEARTH_REASON_NOT_HEARTH, "another member listens there");
        line_fail(mesh, line, DIAL_WRONG_PEER);
    } else if (!line_say(mesh, line, GREETING_GREET)) {
        why_because(mesh, line, HEARTH_REASON_PEER_CLOSED, "the connection broke at once");
        line_fail(mesh, line, DIAL_CLOSED);
    } else {
        why_note(mesh, line, "connected, but it does not answer");
        line->greeted_ns = clock_real();
    }
}

/* Ours may be long because we had something else to do. */
static void round_trip_known(struct line *line, int fd, uint64_t ours_ns)
{
    uint64_t systems_ns = line->local ? 0 : tcp_least_round_trip(fd);

    if (systems_ns > 0 && systems_ns < ours_ns)
        ours_ns = systems_ns;
    if (line->round_trip_ns == 0 || ours_ns < line->round_trip_ns)
        line->round_trip_ns = ours_ns;
}

/* The local end to dial from, where it suits. */
static const struct sock_addr *dial_from(const struct mesh *mesh, const struct sock_addr *to)
{
    const struct sock_addr *from = mesh->setup->from;

    if (!from || sock_addr_family(from) != sock_addr_family(to) || sock_addr_wildcard(from))
        return NULL;
    return from;
}

/* What a target stands for: see pairing_setup.key. */
static struct line line_of(const struct mesh *mesh, const struct dial_target *target)
{
    int place = (int)(target->key % PAIRING_TARGETS);
    struct line line = {
        .state = LINE_GREETED,
        .peer = (int)(target->key / PAIRING_TARGETS),
        .channel = place / PAIRING_VIAS,
        .via = place % PAIRING_VIAS,
        .local = place % PAIRING_VIAS == PAIRING_LOCAL,
    };

    if (line.local)
        listener_local_addr(mesh->roster->cluster, line.peer, &line.addr);
    else
        line.addr = sock_addr_of(&member_of(mesh, line.peer)->addrs[line.via]);
    return line;
}

void mesh_request(void *arg, const struct dial_target *target, struct dial_request *request)
{
    struct mesh *mesh = arg;
    struct line line = line_of(mesh, target);

    *request = (struct dial_request){
        .addr = line.addr,
        .from = dial_from(mesh, &line.addr),
        .credentials = mesh->setup->credentials,
        .to = {.kind = KNOCK_NODE, .node = member_of(mesh, line.peer)->id.node},
    };
    why_note(mesh, &line, "no answer yet");
}

void mesh_dialled(struct mesh *mesh, const struct dial_event *event)
{
    struct line line = line_of(mesh, event->target), *place = line_find(mesh);

    if (event->kind == DIAL_FAILED) {
        if (event->round_trip_ns == 0) /* the text names the address already */
            why_keep(mesh, &line, event->error.reason, event->error.text);
        else
            why_because(mesh, &line, event->error.reason, event->error.text);
        dial_failed(mesh, &line, event->fault);
    } else if (event->kind == DIAL_CONNECTED) {
        why_note(mesh, &line, "connected, but it does not answer");
    } else if (!place) {
        line.stream = event->stream;
        line_fail(mesh, &line, DIAL_CLOSED);
    } else {
        line.stream = event->stream;
        line.round_trip_ns = event->round_trip_ns;
        *place = line;
        line_greet(mesh, place);
    }
}

/* ---- answers ------------------------------------------------------------------------------------------ */

/* Whether it comes from the end that it must come from. */
static bool from_peer(const struct mesh *mesh, const struct line *line, const struct greeting *g)
{
    const struct roster *r = mesh->roster;

    return g->cluster == r->cluster && g->from == (uint32_t)line->peer && g->to == (uint32_t)r->rank &&
           g->from_instance == r->members[line->peer].id.instance &&
           g->to_instance == r->members[r->rank].id.instance && g->channel == line->channel;
}

static void line_welcomed(struct mesh *mesh, struct line *line, const struct greeting *g)
{
    struct pairing *pairing = &mesh->sides[line->peer].pairing;

    round_trip_known(line, secure_stream_fd(line->stream), clock_real() - line->greeted_ns);
    enum pairing_verdict verdict =
        pairing_welcomed(pairing, line->channel, g->channels, line->via, line->round_trip_ns, mesh->now_ns);
    if (verdict != PAIRING_KEEP) {
        line_fail(mesh, line, DIAL_CLOSED);
        return;
    }
    /* Decided is decided, even if the socket breaks now: the link will find out. */
    if (pairing->setup.decides)
        (void)line_say(mesh, line, GREETING_CONFIRM);
    line_keep(mesh, line);
}

static void line_answered(struct mesh *mesh, struct line *line)
{
    struct pairing *pairing = &mesh->sides[line->peer].pairing;
    struct greeting g;
    const char *what = "answered for another member";
    enum dial_fault fault = DIAL_CLOSED;

    if (greeting_decode(&g, line->bytes, &what) || !from_peer(mesh, line, &g)) {
        why_because(mesh, line, HEARTH_REASON_NONE, what);
    } else if (g.kind == GREETING_REFUSE) {
        why_because(mesh, line, HEARTH_REASON_NONE, greeting_reason_text(g.reason));
        fault = g.reason == GREETING_BUSY ? DIAL_CUT : DIAL_CLOSED;
    } else if (line->state == LINE_GREETED && g.kind == GREETING_WELCOME) {
        line_welcomed(mesh, line, &g);
        return;
    } else if (line->state == LINE_OFFERED && g.kind == GREETING_CONFIRM &&
               pairing_confirmed(pairing, line->channel, g.channels, line->local, mesh->now_ns) ==
                   PAIRING_KEEP) {
        line_keep(mesh, line);
        return;
    } else {
        why_because(mesh, line, HEARTH_REASON_NONE, "it answers out of turn");
    }
    line_fail(mesh, line, fault);
}

/* Reads the answer and not a byte more: frames may follow at once. */
void line_hear(struct mesh *mesh, struct line *line)
{
    struct error error;
    int status = secure_stream_pump(line->stream, &error);
    ssize_t len = secure_stream_recv(line->stream, line->bytes + line->got, GREETING_LEN - line->got);

    if (len < 0 || (len == 0 && status != HEARTH_OK)) {
        why_because(mesh, line, HEARTH_REASON_NONE,
                    secure_stream_mixed(line->stream) ? secure_stream_mixed_text(line->stream)
                                                      : "connected, but it closed without an answer");
        line_fail(mesh, line, DIAL_CUT);
        return;
    }
    line->got += (size_t)len;
    if (line->got == GREETING_LEN)
        line_answered(mesh, line);
}
