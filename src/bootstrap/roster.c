/* SPDX-License-Identifier: Apache-2.0 */
/* How members agree on the roster: one opens the rendezvous, the others dial it.
 *
 * Rank 0 opens it where ranks are given, else the first member that owns the address. It takes part like all
 * others, through a connection without a socket. */
#include "bootstrap/roster.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/rendezvous_dial.h"
#include "bootstrap/server.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/random.h"
#include "wire/meeting.h"

#define PORT_RENDEZVOUS 52415
#define PORT_PEERS      52416
#define BACKLOG         1024
#define FILES_OWN       32                /* of the process, beside connections to members */
#define LINGER_NS       NS_PER_S          /* for others to read GO or the reason of a failure */
#define SERVE_PAUSE_NS  (250 * NS_PER_MS) /* until an address that was in use is tried again */

struct session {
    const struct roster_setup *setup;
    const char *where; /* the rendezvous, as it was given */
    int rank;
    struct sock_addr addrs[RESOLVE_MAX]; /* of the rendezvous */
    int addr_count;
    uint64_t seed;
    struct secret *offer; /* what we offer, where that is to be */
    struct rendezvous_client client;
    struct rendezvous_dial dial;
    struct server server;
    bool may_serve, serves;
    uint64_t serve_ns; /* next attempt to */
    struct sock_wait *items;
};

/* ---- open files ---- */

bool members_share(const struct peer_info *a, const struct peer_info *b)
{
    return a->host_id == b->host_id && (a->features & b->features & PEER_SHM) != 0;
}

/* Without this check members would fail one by one, each for what the others did not take any more. */
int roster_files_check(const struct roster *roster, int channels, struct error *error)
{
    const struct peer_info *members = roster->members;
    size_t needed = FILES_OWN;

    for (int i = 0; i < roster->size; i++)
        if (i != roster->rank)
            needed += !members || members_share(&members[i], &members[roster->rank]) ? 1 : (size_t)channels;
    if (needed <= sock_count_max())
        return HEARTH_OK;
    return error_set(
        error, HEARTH_LIMIT, RANK_NONE,
        "the connections to %d members need %s%zu open files, and this process may have %zu: allow it more "
        "(ulimit -n %zu), or have fewer connections to each member (HEARTH_CONNECTIONS)",
        roster->size - 1, members ? "" : "at least ", needed, sock_count_max(), needed);
}

/* Whether all connections are known to be of our own user. */
static bool session_local(const struct session *s)
{
    return sock_addr_family(&s->addrs[0]) == SOCK_UNIX;
}

/* ---- what was given ---- */

static size_t printable_len(const char *text)
{
    size_t len = 0;
    while (text[len] >= 0x20 && text[len] <= 0x7e)
        len++;
    return len;
}

static int setup_check(const struct roster_setup *s, struct error *error)
{
    size_t printable = printable_len(s->job);
    if (s->size < 1 || s->size > ROSTER_MEMBERS_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: a world of %d members: it may have 1 to %d",
                         s->size, ROSTER_MEMBERS_MAX);
    if (s->rank < RANK_NONE || s->rank >= s->size)
        return error_set(error, HEARTH_INVALID, RANK_NONE, "open: rank %d in a world of %d members", s->rank,
                         s->size);
    if (strlen(s->job) >= MEETING_JOB_MAX)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: job has %zu characters; it takes at most %u: \"%.32s...\"", strlen(s->job),
                         MEETING_JOB_MAX - 1, s->job);
    if (s->job[printable] != '\0')
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: job: byte %zu is 0x%02x, which is not printable ASCII", printable,
                         (unsigned)(uint8_t)s->job[printable]);
    if (s->size > 1 && !s->peers && !s->rendezvous)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: %d members need a rendezvous or a list of peers", s->size);
    return HEARTH_OK;
}

/* ---- a static list ---- */

static bool ours(const struct sock_addr *addrs, int count, uint16_t port)
{
    for (int i = 0; i < count; i++)
        if ((port == 0 || sock_addr_port(&addrs[i]) == port) && host_owns(&addrs[i]))
            return true;
    return false;
}

/* Which entry of the list we are. */
static int own_place(const struct roster_setup *s, int *rank, struct error *error)
{
    struct sock_addr listener = {.len = 0}, addrs[RESOLVE_MAX];
    struct error why;
    int found = RANK_NONE, count;

    if (s->listener >= 0 && sock_local(s->listener, &listener) != HEARTH_OK)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "open: the listening port cannot be found out");
    uint16_t port = listener.len > 0 ? sock_addr_port(&listener) : 0;
    error_clear(&why);
    for (int i = 0; i < s->size; i++) {
        if (resolve(s->peers[i], PORT_PEERS, s->deadline_ns, addrs, &count, &why) != HEARTH_OK ||
            !ours(addrs, count, port))
            continue;
        if (found >= 0)
            return error_set(error, HEARTH_INVALID, RANK_NONE,
                             "open: peers %d (%s) and %d (%s) are both this process: give it its rank "
                             "(HEARTH_RANK)",
                             found, s->peers[found], i, s->peers[i]);
        found = i;
    }
    if (found < 0)
        return error_set(error, HEARTH_INVALID, RANK_NONE,
                         "open: no entry of peers is an address of this machine with port %u: give the rank "
                         "(HEARTH_RANK) or correct the list%s%s",
                         port, why.text[0] ? "; " : "", why.text);
    *rank = found;
    return HEARTH_OK;
}

/* The list wins over what members found out about themselves; a name that cannot be looked up here leaves
 * them as they are. */
static void list_apply(const struct roster_setup *s, struct roster *roster)
{
    struct sock_addr addrs[RESOLVE_MAX];
    struct error why;
    int count;

    for (int i = 0; i < roster->size; i++) {
        struct peer_info *m = &roster->members[i];
        if (i == roster->rank)
            continue;
        if (resolve(s->peers[i], PORT_PEERS, s->deadline_ns, addrs, &count, &why) != HEARTH_OK) {
            log_write(&s->log, HEARTH_LOG_WARN, "HEARTH-PEER-UNKNOWN", "%s", why.text);
            continue;
        }
        m->addr_count = 0;
        for (int k = 0; k < count && m->addr_count < ROSTER_ADDRS_MAX; k++)
            m->addr_count += sock_addr_to_net(&addrs[k], &m->addrs[m->addr_count]);
    }
}

/* ---- serving ---- */

/* What to listen on for an address of the rendezvous; false: not ours. A machine's own name often leads it
 * to its loopback, and rank 0 may be behind a translation of addresses: both listen everywhere. */
static bool serve_addr(const struct session *s, const struct sock_addr *addr, struct sock_addr *out)
{
    struct sock_addr number;
    bool named = sock_addr_parse(s->where, 1, &number) != HEARTH_OK && strncmp(s->where, "localhost", 9) != 0;
    bool owned = sock_addr_family(addr) == SOCK_UNIX || host_owns(addr);
    char text[SOCK_TEXT_MAX];

    *out = *addr;
    if (owned && !(named && sock_addr_loopback(addr)))
        return true;
    if (!owned && s->rank != 0)
        return false;
    snprintf(text, sizeof text, sock_addr_family(addr) == SOCK_IPV6 ? "[::]:%u" : "0.0.0.0:%u",
             sock_addr_port(addr));
    return sock_addr_parse(text, 0, out) == HEARTH_OK;
}

/* Listens on all addresses that are ours. HEARTH_LIMIT: another process does; count 0: none is ours. */
static int serve_listen(struct session *s, int *listeners, int *count, struct error *error)
{
    struct sock_addr addr;

    *count = 0;
    for (int i = 0; i < s->addr_count; i++) {
        if (!serve_addr(s, &s->addrs[i], &addr))
            continue;
        int status = sock_listen(&addr, BACKLOG, &listeners[*count], NULL, error);
        if (status == HEARTH_OK)
            (*count)++;
        else if (*count == 0)
            return status;
    }
    return HEARTH_OK;
}

static int serve_begin(struct session *s, const int *listeners, int count, bool borrowed, struct error *error)
{
    const struct roster_setup *setup = s->setup;
    struct rendezvous_setup r = {
        .heap = setup->heap,
        .log = setup->log,
        .job = setup->job,
        .settings_text = setup->settings_text,
        .size = setup->size,
        .settings = setup->settings,
        .seed = s->seed,
        .deadline_ns = setup->deadline_ns,
        .credentials = session_local(s) ? NULL : setup->credentials,
    };
    const struct secret *secret = setup->credentials ? credentials_secret(setup->credentials) : s->offer;

    if (secret)
        r.space = secret_namespace(secret);
    if (secret && session_local(s))
        r.secret = secret_bytes(secret);
    int status = server_open(&s->server, &r, listeners, count, borrowed, error);
    if (status != HEARTH_OK)
        return status;
    s->serves = true;
    rendezvous_dial_close(&s->dial);
    rendezvous_client_begin(&s->client, clock_real());
    return server_join(&s->server, r.credentials ? credentials_self(r.credentials) : NULL, clock_real(),
                       error);
}

/* HEARTH_PENDING: serves now, or dials and tries again later. */
static int serve_try(struct session *s, uint64_t now_ns, struct error *error)
{
    int listeners[RESOLVE_MAX], count = 1;
    struct error why;
    bool borrowed = s->setup->peers && s->setup->listener >= 0;

    static_assert(RESOLVE_MAX <= HALF_OPEN_LISTENERS, "all of them");
    listeners[0] = s->setup->listener;
    int status = borrowed ? HEARTH_OK : serve_listen(s, listeners, &count, &why);
    if (status == HEARTH_OK && count > 0) {
        status = serve_begin(s, listeners, count, borrowed, error);
        return status == HEARTH_OK ? HEARTH_PENDING : status;
    }
    s->serve_ns = now_ns + SERVE_PAUSE_NS;
    s->may_serve = count > 0 || status == HEARTH_LIMIT;
    if (status == HEARTH_OK || status == HEARTH_LIMIT)
        return HEARTH_PENDING;
    if (s->rank == 0)
        return error_wrap(error, &why, "rendezvous: %s", why.text);
    s->dial.last = why;
    return HEARTH_PENDING;
}

/* Bytes between the server and its own member. */
static int serve_talk(struct session *s, uint64_t now_ns, struct error *error)
{
    struct rendezvous *meeting = s->server.meeting;
    struct iovec piece;
    const uint8_t *bytes;
    size_t len;
    int status = HEARTH_PENDING;

    do {
        piece = rendezvous_client_output(&s->client);
        rendezvous_input(meeting, s->server.self, piece.iov_base, piece.iov_len, now_ns);
        rendezvous_client_sent(&s->client, piece.iov_len);
        len = rendezvous_output(meeting, s->server.self, &bytes);
        if (len > 0) {
            status = rendezvous_client_input(&s->client, bytes, len, error);
            rendezvous_sent(meeting, s->server.self, len, now_ns);
        }
    } while (status == HEARTH_PENDING && (len > 0 || rendezvous_client_output(&s->client).iov_len > 0));
    return status;
}

/* Until all have read how it ended. After GO no connection is accepted: later ones are for the mesh. After a
 * contradiction late members are told of it. */
static void serve_linger(struct session *s, int status)
{
    uint64_t now_ns = clock_real(), end_ns = now_ns + LINGER_NS;
    bool wait_for_more = status != HEARTH_OK && status != HEARTH_TIMEOUT;

    server_part(&s->server, now_ns);
    if (!wait_for_more)
        half_open_unlisten(s->server.half_open);
    while (now_ns < end_ns && (wait_for_more || !rendezvous_quiet(s->server.meeting))) {
        uint64_t deadline_ns = end_ns;
        sock_wait(s->items, server_waits(&s->server, s->items, &deadline_ns), deadline_ns);
        now_ns = clock_real();
        server_pump(&s->server, s->items, now_ns);
    }
}

/* ---- the whole ---- */

static int late(const struct session *s, struct error *error)
{
    if (s->client.objection.status != HEARTH_OK) { /* which was not sent */
        *error = s->client.objection;
        return error->status;
    }
    if (s->dial.chosen >= 0)
        return error_set(error, HEARTH_TIMEOUT, RANK_NONE,
                         "rendezvous: registered at %s, but not all %d members came before the deadline",
                         s->where, s->setup->size);
    return error_because(error, s->dial.last.reason, HEARTH_TIMEOUT, RANK_NONE,
                         "rendezvous: %s could not be reached before the deadline%s%s%s", s->where,
                         s->dial.last.text[0] ? "; last: " : "", s->dial.last.text,
                         s->rank > 0 ? " (rank 0 opens it)" : "");
}

static int session_run(struct session *s, struct error *error)
{
    const struct roster_setup *setup = s->setup;

    for (;;) {
        uint64_t now_ns = clock_real(), deadline_ns = setup->deadline_ns;
        int status = HEARTH_PENDING;
        if (!s->serves && s->may_serve && s->dial.chosen < 0 && now_ns >= s->serve_ns)
            status = serve_try(s, now_ns, error);
        if (status == HEARTH_PENDING && s->serves) {
            server_pump(&s->server, s->items, now_ns);
            status = serve_talk(s, now_ns, error);
        } else if (status == HEARTH_PENDING) {
            status = rendezvous_dial_pump(&s->dial, now_ns, error);
        }
        if (status != HEARTH_PENDING)
            return status;
        if (now_ns >= setup->deadline_ns)
            return late(s, error);
        size_t count;
        if (s->serves) {
            count = server_waits(&s->server, s->items, &deadline_ns);
        } else {
            count = rendezvous_dial_waits(&s->dial, s->items, &deadline_ns);
            if (s->may_serve && s->dial.chosen < 0 && s->serve_ns < deadline_ns)
                deadline_ns = s->serve_ns;
        }
        sock_wait(s->items, count, deadline_ns);
    }
}

/* A member that is to have a secret has it, or is handed one. */
static int secret_prepare(struct session *s, struct error *error)
{
    const struct roster_setup *setup = s->setup;

    if (setup->credentials || !setup->offer)
        return HEARTH_OK;
    if (!session_local(s))
        return error_set(
            error, HEARTH_INVALID, RANK_NONE,
            "open: members that meet at %s need the cluster's secret: hearth init on one machine, "
            "then hearth join TOKEN on the others (or HEARTH_SECRET_FILE)",
            s->where);
    return secret_from_bytes(setup->offer, NULL, &s->offer, error);
}

static int session_open(struct session *s, const struct roster_setup *setup, struct error *error)
{
    *s = (struct session){.setup = setup, .rank = setup->rank, .server.self = -1};
    s->where = setup->peers ? setup->peers[0] : setup->rendezvous;
    if (random_bytes(&s->seed, sizeof s->seed) != HEARTH_OK)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "open: the system gives no random numbers");
    int status = setup->peers && s->rank < 0 ? own_place(setup, &s->rank, error) : HEARTH_OK;
    if (status == HEARTH_OK)
        status = resolve(s->where, setup->peers ? PORT_PEERS : PORT_RENDEZVOUS, setup->deadline_ns, s->addrs,
                         &s->addr_count, error);
    if (status == HEARTH_OK)
        status = secret_prepare(s, error);
    if (status != HEARTH_OK)
        return status;
    s->may_serve = s->rank <= 0;
    s->items = heap_alloc(setup->heap, server_items(setup->size) + RENDEZVOUS_DIAL_WAITS_MAX,
                          sizeof(struct sock_wait));
    if (!s->items || rendezvous_client_init(&s->client, setup, s->rank) != HEARTH_OK ||
        rendezvous_dial_init(&s->dial, &s->client, s->addrs, s->addr_count, s->seed) != HEARTH_OK)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory");
    struct roster expected = {.size = setup->size, .rank = s->rank};
    if (roster_files_check(&expected, setup->channels, &s->client.objection) != HEARTH_OK)
        log_write(&setup->log, HEARTH_LOG_WARN, "HEARTH-FILES", "%s", s->client.objection.text);
    s->client.wants_secret = session_local(s) && (setup->credentials || setup->offer);
    return HEARTH_OK;
}

static void session_close(struct session *s)
{
    server_close(&s->server);
    rendezvous_dial_close(&s->dial);
    rendezvous_client_fini(&s->client);
    secret_close(s->offer);
    heap_free(s->items);
}

static int alone(const struct roster_setup *setup, struct roster *out, struct error *error)
{
    uint64_t cluster;

    if (random_bytes(&cluster, sizeof cluster) != HEARTH_OK)
        return error_set(error, HEARTH_SYSTEM, RANK_NONE, "open: the system gives no random numbers");
    struct peer_info *members = heap_alloc(setup->heap, 1, sizeof(struct peer_info));
    if (!members)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "open: no memory for the roster");
    members[0] = setup->self;
    *out = (struct roster){.cluster = cluster | 1, .rank = 0, .size = 1, .members = members};
    return HEARTH_OK;
}

int roster_agree(const struct roster_setup *setup, struct roster *out, struct error *error)
{
    struct session s;

    int status = setup_check(setup, error);
    if (status != HEARTH_OK)
        return status;
    if (setup->size == 1)
        return alone(setup, out, error);
    status = session_open(&s, setup, error);
    if (status == HEARTH_OK)
        status = session_run(&s, error);
    if (status == HEARTH_TIMEOUT && s.serves) { /* we may have waited at the wrong place */
        struct error why = *error;
        error_wrap(error, &why, "%s (we waited for them at %s)", why.text, s.where);
    }
    if (status == HEARTH_OK) {
        *out = s.client.roster;
        s.client.roster.members = NULL;
        out->has_secret = s.client.has_secret;
        memcpy(out->secret, s.client.secret, sizeof out->secret);
    }
    if (s.serves)
        serve_linger(&s, status);
    else
        rendezvous_dial_close(&s.dial); /* at once: tells the server that we have read all */
    session_close(&s);
    if (status == HEARTH_OK && setup->peers)
        list_apply(setup, out);
    return status;
}
