/* SPDX-License-Identifier: Apache-2.0 */
/* Dials and greets until every pair has its channels. pairing.c decides what is dialled and which socket is
 * kept, connect/listener.c takes incoming connections, mesh_line.c has the sockets in between. */
#include "bootstrap/mesh.h"

#include <assert.h>
#include <stdio.h>

#include "bootstrap/mesh_line.h"
#include "os/clock.h"
#include "os/random.h"
#include "security/records.h"

/* What the window counts: a connect that takes longer leads nowhere, a handshake is closed at the listener.
 */
#define CONNECT_NS   (200 * NS_PER_MS)
#define HANDSHAKE_NS (5 * NS_PER_S)
#define LIST_MAX     (PAIRING_VIAS * (MESH_WHY_MAX + 2))

static_assert(LINES_MAX + HALF_OPEN_WAITS_MAX + DIAL_ATTEMPTS_MAX <= SOCK_WAIT_MAX,
              "all sockets can be waited for at once");

/* ---- what kind of link each pair gets ----------------------------------------------------------------- */

/* An address beyond this machine that the link to `rank` would use, of either end; false: none. */
static bool untrusted(const struct mesh *mesh, int rank, struct sock_addr *far)
{
    const struct peer_info *ends[] = {member_of(mesh, rank), member_of(mesh, mesh->roster->rank)};

    if (mesh->setup->trust_network || mesh->setup->credentials)
        return false;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < ends[i]->addr_count; j++) {
            *far = sock_addr_of(&ends[i]->addrs[j]);
            if (!sock_addr_loopback(far))
                return true;
        }
    return false;
}

static int refuse_network(int rank, const struct peer_info *member, const struct sock_addr *addr,
                          struct error *error)
{
    char text[SOCK_TEXT_MAX];

    sock_addr_text(addr, text, sizeof text);
    return error_set(error, HEARTH_INVALID, rank,
                     "rank %d (%s): %s is beyond this machine, and this connection would be plain, for all "
                     "to read and change; leave plain away, or, if you trust this network, say so: "
                     "trust_network, HEARTH_TRUST_NETWORK=1 or --i-trust-this-network",
                     rank, member->name, text);
}

static int side_init(struct mesh *mesh, int rank, struct error *error)
{
    const struct mesh_setup *s = mesh->setup;
    const struct peer_info *member = member_of(mesh, rank);
    struct sock_addr far_addr;
    bool far = untrusted(mesh, rank, &far_addr);
    bool share = members_share(member, member_of(mesh, mesh->roster->rank));
    bool local = share && s->choice != MESH_ONLY_TCP;

    if (s->choice == MESH_ONLY_SHM && !share)
        return error_set(error, HEARTH_INVALID, rank,
                         "rank %d (%s) cannot be reached through shared memory: it is on another host, or "
                         "was started without; choose the transport auto or tcp",
                         rank, member->name);
    if (!local && far)
        return refuse_network(rank, member, &far_addr, error);
    struct pairing_setup setup = {
        .decides = mesh->roster->rank < rank,
        .local = local,
        .remote = s->choice != MESH_ONLY_SHM && !far,
        .addr_count = member->addr_count < ROSTER_ADDRS_MAX ? member->addr_count : ROSTER_ADDRS_MAX,
        .channels = s->channels,
        .rate_bytes_per_s = s->rate_bytes_per_s,
        .connect_timeout_ns = s->connect_timeout_ns,
        .connect_retries = s->connect_retries,
        .dialer = &mesh->driver.dialer,
        .key = (uint32_t)rank * PAIRING_TARGETS,
    };
    pairing_init(&mesh->sides[rank].pairing, &setup, mesh->now_ns);
    mesh->missing++;
    return HEARTH_OK;
}

/* ---- the peer dials ----------------------------------------------------------------------------------- */

/* What we keep needs no place among the lines; so the lower rank always has an answer, and the pairs of a
 * large cluster cannot wait for each other in a circle. */
static void incoming_welcome(struct mesh *mesh, const struct half_open_incoming *incoming,
                             const struct greeting *g)
{
    struct line *place = line_find(mesh);
    struct line line = {
        .state = LINE_OFFERED,
        .stream = incoming->stream,
        .peer = (int)g->from,
        .channel = g->channel,
        .via = -1,
        .channels = g->channels,
        .local = incoming->local,
        .round_trip_ns = g->round_trip_ns,
        .addr = incoming->from,
    };

    enum pairing_verdict verdict = pairing_greeted(&mesh->sides[line.peer].pairing, g->channel, g->channels,
                                                   incoming->local, g->round_trip_ns, mesh->now_ns);
    if (verdict == PAIRING_DROP || (verdict == PAIRING_OFFER && !place)) {
        listener_refuse(incoming->stream, g, verdict == PAIRING_DROP ? GREETING_TAKEN : GREETING_BUSY);
        return;
    }
    if (incoming->local) /* the end that dialled has no name of its own */
        listener_local_addr(mesh->roster->cluster, line.peer, &line.addr);
    for (int i = 0; i < mesh->roster->size; i++)
        pairing_yield(&mesh->sides[i].pairing, mesh->now_ns);
    bool said = line_say(mesh, &line, GREETING_WELCOME);
    if (verdict == PAIRING_KEEP)
        line_keep(mesh, &line);
    else if (said)
        *place = line;
    else
        line_close(&line);
}

static void incoming_meet(struct mesh *mesh, const struct half_open_incoming *incoming,
                          const struct greeting *g)
{
    const struct roster *r = mesh->roster;

    bool known = g->from < (uint32_t)r->size && g->from_instance == r->members[g->from].id.instance;
    if (known && mesh_proven(mesh, incoming->stream, (int)g->from)) {
        incoming_welcome(mesh, incoming, g);
        return;
    }
    char why[MESH_REASON_MAX];
    snprintf(why, sizeof why, "it calls itself rank %u, and the roster knows another%s", (unsigned)g->from,
             known ? ": it speaks for another member" : "");
    admission_log_complain(half_open_admissions(mesh->setup->listener->half_open), &incoming->from, why);
    secure_stream_close(incoming->stream);
}

/* ---- the end of it ------------------------------------------------------------------------------------ */

static void why_list(const struct side *side, char list[LIST_MAX])
{
    size_t len = 0;

    list[0] = '\0';
    for (int via = 0; via < PAIRING_VIAS; via++)
        if (side->why[via][0])
            len += (size_t)snprintf(list + len, LIST_MAX - len, "%s%s", len > 0 ? "; " : "", side->why[via]);
    if (len == 0)
        snprintf(list, LIST_MAX, "no address to dial, and it did not come");
}

static int missing_error(const struct mesh *mesh, int rank, int status, struct error *error)
{
    const struct side *side = &mesh->sides[rank];
    char list[LIST_MAX], others[48] = "";

    why_list(side, list);
    if (mesh->missing > 1)
        snprintf(others, sizeof others, ", nor %d other%s", mesh->missing - 1, mesh->missing > 2 ? "s" : "");
    return error_because(error, side->reason, status, rank, "rank %d (%s) could not be joined%s%s%s: %s",
                         rank, member_of(mesh, rank)->name, status == HEARTH_TIMEOUT ? " in time" : "",
                         others, side->unreached ? " (firewall? wrong network: --bind, --advertise)" : "",
                         list);
}

/* HEARTH_PENDING, or what ends the attempt. Then `unjoined` is set, unless we were asked to stop. */
static int mesh_verdict(const struct mesh *mesh, struct error *error)
{
    bool stopped = stop_asked(mesh->setup->stop);
    bool late = stopped || mesh->now_ns >= mesh->setup->deadline_ns;
    int first = RANK_NONE;

    if (mesh->broken->status != HEARTH_OK)
        return error->status;
    if (mesh->missing == 0)
        return HEARTH_OK;
    for (int i = mesh->roster->size - 1; i >= 0; i--) {
        const struct pairing *p = &mesh->sides[i].pairing;
        bool lost =
            i != mesh->roster->rank && !pairing_done(p) && (late || pairing_hopeless(p, mesh->now_ns));
        first = lost ? i : first;
        if (mesh->setup->unjoined && !stopped)
            mesh->setup->unjoined[i] = lost;
    }
    if (first < 0)
        return HEARTH_PENDING;
    return missing_error(mesh, first, late ? HEARTH_TIMEOUT : HEARTH_PEER_LOST, error);
}

static void mesh_sleep(struct mesh *mesh)
{
    uint64_t until_ns = mesh->setup->deadline_ns;
    size_t first =
               half_open_waits(mesh->setup->listener->half_open, mesh->waits, HALF_OPEN_WAITS_MAX, &until_ns),
           count = first;

    for (int i = 0; i < LINES_MAX; i++) {
        const struct line *line = &mesh->lines[i];
        if (line->state != LINE_FREE)
            mesh->waits[count++] = secure_stream_wait(line->stream);
    }
    count += dial_waits(&mesh->driver, mesh->waits + count, DIAL_ATTEMPTS_MAX, &until_ns);
    for (int i = 0; i < mesh->roster->size; i++) {
        uint64_t due_ns = i == mesh->roster->rank ? NEVER_NS : pairing_due(&mesh->sides[i].pairing);
        until_ns = due_ns < until_ns ? due_ns : until_ns;
    }
    (void)sock_wait(mesh->waits, count, stop_look(mesh->setup->stop, until_ns));
    for (int i = 0; i < LINES_MAX; i++)
        if (mesh->lines[i].state != LINE_FREE)
            mesh->lines[i].ready = mesh->waits[first++].ready;
}

static int mesh_run(struct mesh *mesh, struct error *error)
{
    for (;;) {
        struct half_open_incoming incoming;
        struct greeting greeting;
        struct dial_event event;

        mesh->now_ns = clock_real();
        half_open_pump(mesh->setup->listener->half_open, mesh->now_ns);
        while (listener_take(mesh->setup->listener, &incoming, &greeting))
            incoming_meet(mesh, &incoming, &greeting);
        for (int i = 0; i < LINES_MAX; i++)
            if (mesh->lines[i].ready && mesh->lines[i].state != LINE_FREE)
                line_hear(mesh, &mesh->lines[i]);
        dial_pump(&mesh->driver, mesh->now_ns);
        while (dial_next(&mesh->driver, &event))
            mesh_dialled(mesh, &event);
        int status = mesh_verdict(mesh, error);
        if (status != HEARTH_PENDING)
            return status;
        mesh_sleep(mesh);
    }
}

/* ---- joining ------------------------------------------------------------------------------------------ */

/* A peer listens before it is in the roster, so an address that cannot be reached will hardly become
 * better: it is tried again only so often. Its unix socket is opened later, and one that closes on us
 * may have had its reasons: those are tried for as long as there is time. */
static int dialer_prepare(struct mesh *mesh, uint64_t seed)
{
    struct dialer_setup setup = {
        .attempts_max = DIAL_ATTEMPTS_MAX,
        .adapts = true,
        .pause_ns = PAIRING_BACKOFF_NS,
        .pause_miss_ns = PAIRING_REFUSED_NS,
        .pause_max_ns = PAIRING_BACKOFF_MAX,
        .misses_max = mesh->setup->connect_retries,
        .connect_ns = mesh->setup->connect_timeout_ns,
        .handshake_ns = NEVER_NS, /* the other end closes it, or our own deadline comes */
        .slow_connect_ns = CONNECT_NS,
        .slow_handshake_ns = HANDSHAKE_NS,
        .seed = seed,
    };

    return dial_driver_open(&mesh->driver, mesh->setup->heap, &setup, mesh_request, mesh);
}

static int mesh_prepare(struct mesh *mesh, struct error *error)
{
    const struct mesh_setup *s = mesh->setup;
    const struct roster *r = mesh->roster;
    bool local = false;
    uint64_t seed;

    if (s->channels < 0 || s->channels > MESH_CHANNELS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "%d connections to each peer: 1 to %d are possible", s->channels, MESH_CHANNELS_MAX);
    int status = random_bytes(&seed, sizeof seed);
    if (status)
        return error_set(error, status, RANK_NONE, "the system has no random numbers");
    mesh->now_ns = clock_real();
    status = dialer_prepare(mesh, seed);
    if (status)
        return error_set(error, status, RANK_NONE, "no memory to join %d members", r->size);
    /* Each begins with the rank below its own, so that not all come to the same one first. */
    for (int i = 1; i < r->size; i++) {
        int rank = (r->rank + r->size - i) % r->size;
        status = side_init(mesh, rank, error);
        if (status)
            return status;
        local = local || mesh->sides[rank].pairing.setup.local;
    }
    status = roster_files_check(r, s->channels > 0 ? s->channels : MESH_CHANNELS_NEAR, error);
    if (status)
        return status;
    struct listener_self self = {r->cluster, r->members[r->rank].id.instance, r->rank, s->credentials};
    listener_receive(s->listener, &self);
    if (!local)
        return HEARTH_OK;
    struct error reason;
    status = listener_open_local(s->listener, &reason);
    if (status == HEARTH_OK)
        return status;
    if (s->choice == MESH_ONLY_SHM)
        return error_set(error, status, RANK_NONE, "%s", reason.text);
    /* Members of this host may still be dialled by us, or fall back to TCP. */
    log_write(&s->log, HEARTH_LOG_WARN, "HEARTH-NO-SHM", "no socket for members of this host: %s",
              reason.text);
    return HEARTH_OK;
}

int mesh_join(const struct mesh_setup *setup, struct mesh_peer *peers, struct error *error)
{
    const struct roster *roster = setup->roster;
    struct mesh *mesh = heap_alloc(setup->heap, 1, sizeof *mesh);
    struct side *sides = heap_alloc(setup->heap, (size_t)roster->size, sizeof *sides);
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
    mesh->broken = error;
    error_clear(error);
    status = mesh_prepare(mesh, error);
    if (status == HEARTH_OK)
        status = mesh_run(mesh, error);
    for (int i = 0; i < LINES_MAX; i++)
        if (mesh->lines[i].state != LINE_FREE)
            line_close(&mesh->lines[i]);
    dial_driver_close(&mesh->driver);
    listener_settle(setup->listener);
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
            records_close(peers[i].records[j]);
            peers[i].records[j] = NULL;
        }
        peers[i].kind = MESH_NONE;
        peers[i].count = 0;
    }
}
