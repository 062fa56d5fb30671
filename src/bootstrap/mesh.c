/* SPDX-License-Identifier: Apache-2.0 */
/* Dials, greets and hears until every pair has its channels. What is to be dialled and which socket is kept,
 * pairing.c says; who comes to us, door.c hears; here are the sockets between.
 *
 *   we dial:      dialling --connected, GREET sent--> greeted --WELCOME--> kept (the lower rank says CONFIRM)
 *   peer dials:   (door) --GREET--> kept, if we have the lower rank and say WELCOME
 *                                   offered, if not: WELCOME said --CONFIRM--> kept
 */
#include "bootstrap/mesh.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/door.h"
#include "bootstrap/pairing.h"
#include "os/clock.h"
#include "os/random.h"

#define LINES_MAX      256       /* sockets that are not kept yet, besides those at the door */
#define DIALS_MAX      192       /* of them ours; the rest is left to those that come */
#define LOOPBACK_BYTES (1 << 20) /* buffers of a connection inside a machine */
#define REASON_MAX     120
#define WHY_MAX        (SOCK_TEXT_MAX + REASON_MAX + 2)
#define LIST_MAX       (PAIRING_WAYS * (WHY_MAX + 2))

static_assert(MESH_CHANNELS_MAX == GREETING_CHANNELS_MAX, "every channel can be greeted");
static_assert(LINES_MAX + DOOR_WAITS_MAX <= SOCK_WAIT_MAX, "all sockets can be waited for at once");

enum line_state { LINE_FREE, LINE_DIALLING, LINE_GREETED, LINE_OFFERED };

struct line {
    enum line_state state;
    int fd, peer, channel;
    int way;          /* how we dialled; -1: the peer did */
    uint8_t channels; /* as the peer said, when it dialled */
    bool local;
    uint64_t began_ns; /* to dial */
    uint64_t greeted_ns;
    uint64_t round_trip_ns; /* of the connect */
    bool ready;             /* something has come */
    struct sock_addr addr;
    size_t got;
    uint8_t bytes[GREETING_LEN];
};

/* All about one peer that is not among its sockets. */
struct side {
    struct pairing pairing;
    char why[PAIRING_WAYS][WHY_MAX]; /* how far we came by each way; empty: not tried */
};

struct mesh {
    const struct mesh_setup *setup;
    const struct roster *roster;
    struct mesh_peer *peers;
    struct side *sides;
    int missing; /* peers */
    uint64_t now_ns;
    struct line lines[LINES_MAX];
    struct sock_wait waits[LINES_MAX + DOOR_WAITS_MAX];
};

static const struct member *member_of(const struct mesh *mesh, int rank)
{
    return &mesh->roster->members[rank];
}

/* ---- what kind of link each pair gets ----------------------------------------------------------------- */

static bool can_share(const struct member *a, const struct member *b)
{
    return a->host_id == b->host_id && (a->features & b->features & FEATURE_SHM) != 0;
}

/* An address beyond this machine that the link to `rank` would use, of either end; NULL: none. */
static const struct sock_addr *untrusted(const struct mesh *mesh, int rank)
{
    const struct member *ends[] = {member_of(mesh, rank), member_of(mesh, mesh->roster->rank)};

    if (mesh->setup->trust_network)
        return NULL;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < ends[i]->addr_count; j++)
            if (!sock_addr_loopback(&ends[i]->addrs[j]))
                return &ends[i]->addrs[j];
    return NULL;
}

static int refuse_network(int rank, const struct member *member, const struct sock_addr *addr,
                          struct error *error)
{
    char text[SOCK_TEXT_MAX];

    sock_addr_text(addr, text, sizeof(text));
    return error_set(error, HEARTH_INVALID, rank,
                     "rank %d (%s): %s is beyond this machine, and tcp is not encrypted in this version; if "
                     "you trust this network, say so: trust_network, HEARTH_TRUST_NETWORK=1 or "
                     "--i-trust-this-network",
                     rank, member->name, text);
}

static int side_init(struct mesh *mesh, int rank, uint64_t seed, struct error *error)
{
    const struct mesh_setup *s = mesh->setup;
    const struct member *member = member_of(mesh, rank);
    const struct sock_addr *far = untrusted(mesh, rank);
    bool share = can_share(member, member_of(mesh, mesh->roster->rank));
    bool local = share && s->wish != MESH_WISH_TCP;

    if (s->wish == MESH_WISH_SHM && !share)
        return error_set(error, HEARTH_INVALID, rank,
                         "rank %d (%s) cannot be reached through shared memory: it is on another host, or "
                         "was started without; choose the transport auto or tcp",
                         rank, member->name);
    if (!local && far)
        return refuse_network(rank, member, far, error);
    struct pairing_setup setup = {
        .decides = mesh->roster->rank < rank,
        .local = local,
        .remote = s->wish != MESH_WISH_SHM && !far,
        .addr_count = member->addr_count,
        .channels = s->channels,
        .rate_bytes_per_s = s->rate_bytes_per_s,
        .connect_timeout_ns = s->connect_timeout_ns,
        .connect_retries = s->connect_retries,
    };
    pairing_init(&mesh->sides[rank].pairing, &setup, seed, mesh->now_ns);
    mesh->missing++;
    return HEARTH_OK;
}

/* ---- lines -------------------------------------------------------------------------------------------- */

static struct line *line_find(struct mesh *mesh, int max)
{
    for (int i = 0; i < max; i++)
        if (mesh->lines[i].state == LINE_FREE)
            return &mesh->lines[i];
    return NULL;
}

static void line_close(struct line *line)
{
    sock_close(line->fd);
    line->state = LINE_FREE;
}

/* Remembers how far we came that way. What the system's part says names the address already. */
static void why_set(struct mesh *mesh, const struct line *line, const char *reason)
{
    char text[SOCK_TEXT_MAX];

    if (line->way < 0)
        return;
    sock_addr_text(&line->addr, text, sizeof(text));
    bool named = strstr(reason, text) != NULL;
    snprintf(mesh->sides[line->peer].why[line->way], WHY_MAX, "%s%s%.*s", named ? "" : text,
             named ? "" : ": ", REASON_MAX, reason);
}

/* Closes a line that led to nothing. What we dialled is tried again, as the pairing sees fit. */
static void line_fail(struct mesh *mesh, struct line *line, enum pairing_fault fault)
{
    struct side *side = &mesh->sides[line->peer];

    if (line->way >= 0)
        pairing_failed(&side->pairing, line->channel, line->way, fault, mesh->now_ns);
    line_close(line);
    if (line->way == PAIRING_LOCAL && fault == FAULT_SYSTEM &&
        pairing_fall_back(&side->pairing, mesh->now_ns))
        log_write(&mesh->setup->log, HEARTH_LOG_WARN, "HEARTH-NO-SHM",
                  "rank %d is on this host, but is joined by tcp: %s", line->peer, side->why[PAIRING_LOCAL]);
}

static bool line_say(struct mesh *mesh, const struct line *line, enum greeting_kind kind)
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
        .from_instance = r->members[r->rank].instance,
        .to_instance = r->members[line->peer].instance,
        .round_trip_ns = line->round_trip_ns,
    };
    uint8_t bytes[GREETING_LEN];
    struct iovec piece = {bytes, sizeof(bytes)};

    greeting_encode(&g, bytes);
    /* So little fits into a socket that is as good as empty, or it is broken. */
    return sock_send(line->fd, &piece, 1) == GREETING_LEN;
}

/* One line per peer, for people. */
static void joined_log(const struct mesh *mesh, int rank)
{
    const struct mesh_peer *peer = &mesh->peers[rank];
    char text[SOCK_TEXT_MAX];

    sock_addr_text(&peer->addr, text, sizeof(text));
    log_write(&mesh->setup->log, HEARTH_LOG_INFO, "HEARTH-JOINED",
              "rank %d (%s) by %s, %s, %d connection%s, round trip %.3f ms", rank,
              member_of(mesh, rank)->name, peer->kind == MESH_UNIX ? "shared memory" : "tcp", text,
              peer->count, peer->count == 1 ? "" : "s", (double)peer->round_trip_ns / 1e6);
}

/* The line becomes a channel of the peer; all others that were to be the same are closed. */
static void line_keep(struct mesh *mesh, struct line *line)
{
    const struct pairing *pairing = &mesh->sides[line->peer].pairing;
    struct mesh_peer *peer = &mesh->peers[line->peer];

    /* The system's own choice of buffers grows too slowly to catch up with memory. */
    int bytes = sock_addr_loopback(&line->addr) ? LOOPBACK_BYTES : 0;
    if (!line->local)
        sock_tune(line->fd,
                  &(struct sock_tuning){.congestion = true, .send_bytes = bytes, .recv_bytes = bytes});
    peer->fds[line->channel] = line->fd;
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

static void line_connected(struct mesh *mesh, struct line *line)
{
    line->round_trip_ns = clock_real() - line->began_ns;
    if (line->local && !sock_same_user(line->fd)) {
        why_set(mesh, line, "another user listens there");
        line_fail(mesh, line, FAULT_SYSTEM);
    } else if (!line_say(mesh, line, GREETING_GREET)) {
        why_set(mesh, line, "the connection broke at once");
        line_fail(mesh, line, FAULT_CLOSED);
    } else {
        why_set(mesh, line, "connected, but it does not answer");
        line->greeted_ns = clock_real();
        line->state = LINE_GREETED;
    }
}

static void line_look(struct mesh *mesh, struct line *line)
{
    struct error error;
    int status = sock_dialled(line->fd, &line->addr, &error);

    if (status == HEARTH_OK) {
        line_connected(mesh, line);
    } else if (status != HEARTH_PENDING) {
        why_set(mesh, line, error.text);
        line_fail(mesh, line, FAULT_UNREACHABLE);
    } else if (mesh->now_ns >= line->began_ns + mesh->setup->connect_timeout_ns) {
        why_set(mesh, line, "no answer, connect timed out");
        line_fail(mesh, line, FAULT_UNREACHABLE);
    }
}

/* The local end to dial from, where it suits. */
static const struct sock_addr *dial_from(const struct mesh *mesh, const struct sock_addr *to)
{
    const struct sock_addr *from = mesh->setup->from;

    if (!from || sock_addr_family(from) != sock_addr_family(to) || sock_addr_wildcard(from))
        return NULL;
    return from;
}

static void peer_dial(struct mesh *mesh, struct line *line, int rank, int channel, int way)
{
    struct error error;

    *line = (struct line){
        .state = LINE_DIALLING,
        .fd = -1,
        .peer = rank,
        .channel = channel,
        .way = way,
        .local = way == PAIRING_LOCAL,
    };
    if (!line->local)
        line->addr = member_of(mesh, rank)->addrs[way];
    else
        door_local_addr(mesh->roster->cluster, rank, &line->addr);
    line->began_ns = clock_real();
    int status = sock_dial(&line->addr, dial_from(mesh, &line->addr), &line->fd, &error);
    if (status) {
        why_set(mesh, line, error.text);
        line_fail(mesh, line, status == HEARTH_PEER_LOST ? FAULT_UNREACHABLE : FAULT_SYSTEM);
        return;
    }
    why_set(mesh, line, "no answer yet");
    line_look(mesh, line);
}

static void dial_due(struct mesh *mesh)
{
    struct line *line = line_find(mesh, DIALS_MAX);
    int size = mesh->roster->size;

    /* Each begins with the rank below its own, so that not all come to the same one first. */
    for (int i = 1; i < size && line; i++) {
        int rank = (mesh->roster->rank + size - i) % size, channel, way;
        struct pairing *pairing = &mesh->sides[rank].pairing;
        while (line && !pairing_done(pairing) && pairing_dial(pairing, mesh->now_ns, &channel, &way)) {
            peer_dial(mesh, line, rank, channel, way);
            line = line_find(mesh, DIALS_MAX);
        }
    }
}

/* ---- answers ------------------------------------------------------------------------------------------ */

/* Whether it comes from the end that it must come from. */
static bool from_peer(const struct mesh *mesh, const struct line *line, const struct greeting *g)
{
    const struct roster *r = mesh->roster;

    return g->cluster == r->cluster && g->from == (uint32_t)line->peer && g->to == (uint32_t)r->rank &&
           g->from_instance == r->members[line->peer].instance &&
           g->to_instance == r->members[r->rank].instance && g->channel == line->channel;
}

static void line_welcomed(struct mesh *mesh, struct line *line, const struct greeting *g)
{
    struct pairing *pairing = &mesh->sides[line->peer].pairing;
    uint64_t answer_ns = clock_real() - line->greeted_ns;

    if (answer_ns < line->round_trip_ns)
        line->round_trip_ns = answer_ns;
    enum pairing_verdict verdict =
        pairing_welcomed(pairing, line->channel, g->channels, line->way, line->round_trip_ns, mesh->now_ns);
    if (verdict != PAIRING_KEEP) {
        line_fail(mesh, line, FAULT_CLOSED);
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

    if (greeting_decode(&g, line->bytes, &what) || !from_peer(mesh, line, &g)) {
        why_set(mesh, line, what);
    } else if (g.kind == GREETING_REFUSE) {
        why_set(mesh, line, greeting_reason_text(g.reason));
    } else if (line->state == LINE_GREETED && g.kind == GREETING_WELCOME) {
        line_welcomed(mesh, line, &g);
        return;
    } else if (line->state == LINE_OFFERED && g.kind == GREETING_CONFIRM &&
               pairing_confirmed(pairing, line->channel, g.channels, line->local, mesh->now_ns) ==
                   PAIRING_KEEP) {
        line_keep(mesh, line);
        return;
    } else {
        why_set(mesh, line, "it answers out of turn");
    }
    line_fail(mesh, line, FAULT_CLOSED);
}

/* Reads the answer and not a byte more: frames may follow at once. */
static void line_hear(struct mesh *mesh, struct line *line)
{
    struct iovec piece = {line->bytes + line->got, GREETING_LEN - line->got};
    ssize_t len = sock_recv(line->fd, &piece, 1);

    if (len < 0) {
        why_set(mesh, line, "connected, but it closed without an answer");
        line_fail(mesh, line, FAULT_CLOSED);
        return;
    }
    line->got += (size_t)len;
    if (line->got == GREETING_LEN)
        line_answered(mesh, line);
}

/* ---- the peer dials ----------------------------------------------------------------------------------- */

/* What we keep needs no place among the lines; so the lower rank always has an answer, and the pairs of a
 * large cluster cannot wait for each other in a circle. */
static void guest_welcome(struct mesh *mesh, const struct door_guest *guest)
{
    const struct greeting *g = &guest->greeting;
    struct line *place = line_find(mesh, LINES_MAX);
    struct line line = {
        .state = LINE_OFFERED,
        .fd = guest->fd,
        .peer = (int)g->from,
        .channel = g->channel,
        .way = -1,
        .channels = g->channels,
        .local = guest->local,
        .round_trip_ns = g->round_trip_ns,
        .addr = guest->from,
    };

    enum pairing_verdict verdict = pairing_greeted(&mesh->sides[line.peer].pairing, g->channel, g->channels,
                                                   guest->local, g->round_trip_ns, mesh->now_ns);
    if (verdict == PAIRING_DROP || (verdict == PAIRING_OFFER && !place)) {
        door_refuse(guest->fd, g, verdict == PAIRING_DROP ? GREETING_TAKEN : GREETING_BUSY);
        return;
    }
    if (guest->local) /* the end that dialled has no name of its own */
        door_local_addr(mesh->roster->cluster, line.peer, &line.addr);
    bool said = line_say(mesh, &line, GREETING_WELCOME);
    if (verdict == PAIRING_KEEP)
        line_keep(mesh, &line);
    else if (said)
        *place = line;
    else
        line_close(&line);
}

static void guest_meet(struct mesh *mesh, const struct door_guest *guest)
{
    const struct greeting *g = &guest->greeting;
    const struct roster *r = mesh->roster;

    if (g->from < (uint32_t)r->size && g->from_instance == r->members[g->from].instance) {
        guest_welcome(mesh, guest);
        return;
    }
    log_write(&mesh->setup->log, HEARTH_LOG_DEBUG, "HEARTH-STRANGER",
              "one that calls itself rank %u is sent away: the roster knows another", (unsigned)g->from);
    sock_close(guest->fd);
}

/* ---- the end of it ------------------------------------------------------------------------------------ */

static void why_list(const struct side *side, char list[LIST_MAX])
{
    size_t len = 0;

    list[0] = '\0';
    for (int way = 0; way < PAIRING_WAYS; way++)
        if (side->why[way][0])
            len += (size_t)snprintf(list + len, LIST_MAX - len, "%s%s", len > 0 ? "; " : "", side->why[way]);
    if (len == 0)
        snprintf(list, LIST_MAX, "no address to dial, and it did not come");
}

static int missing_error(const struct mesh *mesh, int rank, int status, struct error *error)
{
    const struct side *side = &mesh->sides[rank];
    char list[LIST_MAX], others[48] = "";

    why_list(side, list);
    if (mesh->missing > 1)
        snprintf(others, sizeof(others), ", nor %d other%s", mesh->missing - 1, mesh->missing > 2 ? "s" : "");
    return error_set(
        error, status, rank,
        "rank %d (%s) could not be joined%s%s (firewall? wrong network: --bind, --advertise): %s", rank,
        member_of(mesh, rank)->name, status == HEARTH_TIMEOUT ? " in time" : "", others, list);
}

/* HEARTH_PENDING, or what ends the attempt. */
static int mesh_verdict(const struct mesh *mesh, struct error *error)
{
    bool late = mesh->now_ns >= mesh->setup->deadline_ns;

    if (mesh->missing == 0)
        return HEARTH_OK;
    for (int i = 0; i < mesh->roster->size; i++) {
        const struct pairing *p = &mesh->sides[i].pairing;
        if (i == mesh->roster->rank || pairing_done(p))
            continue;
        if (late || pairing_hopeless(p, mesh->now_ns))
            return missing_error(mesh, i, late ? HEARTH_TIMEOUT : HEARTH_PEER_LOST, error);
    }
    return HEARTH_PENDING;
}

static void mesh_sleep(struct mesh *mesh)
{
    uint64_t until_ns = mesh->setup->deadline_ns;
    size_t first = door_waits(mesh->setup->door, mesh->waits, DOOR_WAITS_MAX, &until_ns), count = first;

    for (int i = 0; i < LINES_MAX; i++) {
        const struct line *line = &mesh->lines[i];
        bool dialling = line->state == LINE_DIALLING;
        if (line->state == LINE_FREE)
            continue;
        mesh->waits[count++] =
            (struct sock_wait){.fd = line->fd, .want_recv = !dialling, .want_send = dialling};
        if (dialling && line->began_ns + mesh->setup->connect_timeout_ns < until_ns)
            until_ns = line->began_ns + mesh->setup->connect_timeout_ns;
    }
    /* What is due cannot be done while there is no place for it. */
    for (int i = 0; line_find(mesh, DIALS_MAX) && i < mesh->roster->size; i++) {
        uint64_t due_ns = i == mesh->roster->rank ? NEVER_NS : pairing_due(&mesh->sides[i].pairing);
        until_ns = due_ns < until_ns ? due_ns : until_ns;
    }
    (void)sock_wait(mesh->waits, count, until_ns);
    for (int i = 0; i < LINES_MAX; i++)
        if (mesh->lines[i].state != LINE_FREE)
            mesh->lines[i].ready = mesh->waits[first++].ready;
}

static int mesh_run(struct mesh *mesh, struct error *error)
{
    for (;;) {
        struct door_guest guest;

        mesh->now_ns = clock_real();
        door_pump(mesh->setup->door, mesh->now_ns);
        while (door_take(mesh->setup->door, &guest))
            guest_meet(mesh, &guest);
        for (int i = 0; i < LINES_MAX; i++) {
            struct line *line = &mesh->lines[i];
            if (line->state == LINE_DIALLING)
                line_look(mesh, line);
            else if (line->state != LINE_FREE && line->ready)
                line_hear(mesh, line);
        }
        dial_due(mesh);
        int status = mesh_verdict(mesh, error);
        if (status != HEARTH_PENDING)
            return status;
        mesh_sleep(mesh);
    }
}

/* ---- joining ------------------------------------------------------------------------------------------ */

static int mesh_prepare(struct mesh *mesh, struct error *error)
{
    const struct mesh_setup *s = mesh->setup;
    const struct roster *r = mesh->roster;
    bool local = false;
    uint64_t seed;

    if (s->channels < 0 || s->channels > MESH_CHANNELS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%d connections to each peer: 1 to %d are possible", s->channels, MESH_CHANNELS_MAX);
    int status = random_bytes(&seed, sizeof(seed));
    if (status)
        return error_set(error, status, RANK_NONE, "the system has no random numbers");
    mesh->now_ns = clock_real();
    for (int i = 0; i < r->size; i++) {
        if (i == r->rank)
            continue;
        status = side_init(mesh, i, seed + (uint64_t)i, error);
        if (status)
            return status;
        local = local || mesh->sides[i].pairing.setup.local;
    }
    struct door_self self = {r->cluster, r->members[r->rank].instance, r->rank};
    door_receive(s->door, &self);
    if (!local)
        return HEARTH_OK;
    struct error reason;
    status = door_open_local(s->door, &reason);
    if (status == HEARTH_OK)
        return status;
    if (s->wish == MESH_WISH_SHM)
        return error_set(error, status, RANK_NONE, "%s", reason.text);
    /* Members of this host may still be dialled by us, or fall back to TCP. */
    log_write(&s->log, HEARTH_LOG_WARN, "HEARTH-NO-SHM", "no socket for members of this host: %s",
              reason.text);
    return HEARTH_OK;
}

int mesh_join(const struct mesh_setup *setup, struct mesh_peer *peers, struct error *error)
{
    const struct roster *roster = setup->roster;
    struct mesh *mesh = heap_alloc(setup->heap, 1, sizeof(*mesh));
    struct side *sides = heap_alloc(setup->heap, (size_t)roster->size, sizeof(*sides));
    int status;

    for (int i = 0; i < roster->size; i++) {
        peers[i] = (struct mesh_peer){.kind = MESH_NONE};
        for (int j = 0; j < MESH_CHANNELS_MAX; j++)
            peers[i].fds[j] = -1;
    }
    if (!mesh || !sides) {
        status = error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory to join %d members", roster->size);
        goto free_mesh;
    }
    mesh->setup = setup;
    mesh->roster = roster;
    mesh->peers = peers;
    mesh->sides = sides;
    status = mesh_prepare(mesh, error);
    if (status == HEARTH_OK)
        status = mesh_run(mesh, error);
    for (int i = 0; i < LINES_MAX; i++)
        if (mesh->lines[i].state != LINE_FREE)
            line_close(&mesh->lines[i]);
    door_settle(setup->door);
    if (status)
        mesh_close(peers, roster->size);

free_mesh:
    heap_free(sides);
    heap_free(mesh);
    return status;
}

void mesh_close(struct mesh_peer *peers, int size)
{
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < MESH_CHANNELS_MAX; j++) {
            sock_close(peers[i].fds[j]);
            peers[i].fds[j] = -1;
        }
        peers[i].kind = MESH_NONE;
        peers[i].count = 0;
    }
}
