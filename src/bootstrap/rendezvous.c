/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting: who is there, what they must agree on, and what each of them is told.
 *
 * The members' part of a roster is the same for all, so it is kept once; a connection's output is a few
 * bytes of its own around it. A new roster is made only when nobody is still being sent the last one. */
#include "bootstrap/rendezvous.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/register_trust.h"
#include "bootstrap/settings_diff.h"
#include "core/bytes.h"
#include "core/prng.h"
#include "security/vault.h"
#include "wire/frame.h"
#include "wire/meeting.h"
#include "wire/record.h"

#define OUT_MAX 1024u /* welcome, the head of a roster, go, refuse: less than 512 */
#define IN_MAX  (MEETING_HEADER_LEN + MEETING_SMALL_MAX)

#define ADMITTED_NS NS_PER_S /* a handshake that has begun well is not disturbed for so long */

enum incoming_state { STRANGER, MEMBER, LEAVING };

struct registrant {
    enum incoming_state state;
    bool gone, ready;
    struct rendezvous_origin origin;
    uint64_t source;      /* sock_addr_network */
    uint64_t admitted_ns; /* since then it has knocked as only members can; 0: it has not */
    bool proven;          /* by its handshake, to be: */
    struct identity peer;
    uint64_t order;       /* of coming, and then of registering */
    uint64_t deadline_ns; /* member: of its patience; else it is sent away then */
    int wanted, rank;
    struct meeting_member member;
    uint8_t in[IN_MAX];
    size_t in_len;
    uint8_t out[OUT_MAX];
    size_t out_len, sent; /* sent: of all that is to be sent, the roster included */
    bool has_roster;      /* r->roster goes out behind the first roster_at bytes of `out` */
    size_t roster_at;
};

enum phase { GATHERING, AGREEING, OVER };

struct rendezvous {
    struct rendezvous_setup setup;
    struct guard guard;
    enum phase phase;
    struct error error; /* why it is over; HEARTH_OK: GO */
    struct prng prng;
    uint64_t cluster, orders;
    struct registrant **incoming; /* [limit] */
    int limit, open, members;
    int *ranks;                     /* [size], scratch: which connection has the rank */
    struct meeting_member *listed;  /* [size], scratch */
    uint8_t *roster;                /* the members of a roster, encoded */
    size_t roster_len, roster_size; /* used, allocated */
};

/* ---- open and close ---- */

int rendezvous_open(const struct rendezvous_setup *setup, struct rendezvous **out, struct error *error)
{
    assert(setup->size >= 1 && setup->size <= (int)MEETING_MEMBERS_MAX);
    struct rendezvous *r = heap_alloc(setup->heap, 1, sizeof *r);
    if (!r)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory");
    r->setup = *setup;
    r->limit = setup->size + RENDEZVOUS_STRANGERS + 1; /* one more, until the oldest is closed */
    r->incoming = heap_alloc(setup->heap, (size_t)r->limit, sizeof(struct registrant *));
    r->ranks = heap_alloc(setup->heap, (size_t)setup->size, sizeof(int));
    r->listed = heap_alloc(setup->heap, (size_t)setup->size, sizeof(struct meeting_member));
    if (!r->incoming || !r->ranks || !r->listed) {
        rendezvous_close(r);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory for %d members",
                         setup->size);
    }
    prng_init(&r->prng, setup->seed);
    guard_init(&r->guard, &setup->log, setup->size);
    error_clear(&r->error);
    *out = r;
    return HEARTH_OK;
}

/* It may hold the secret. */
static void incoming_free(struct registrant *g)
{
    if (g)
        wipe(g->out, sizeof g->out);
    heap_free(g);
}

void rendezvous_close(struct rendezvous *r)
{
    if (!r)
        return;
    for (int i = 0; r->incoming && i < r->limit; i++)
        incoming_free(r->incoming[i]);
    heap_free(r->incoming);
    heap_free(r->ranks);
    heap_free(r->listed);
    heap_free(r->roster);
    heap_free(r);
}

struct guard *rendezvous_guard(struct rendezvous *r)
{
    return &r->guard;
}

int rendezvous_limit(const struct rendezvous *r)
{
    return r->limit;
}

bool rendezvous_over(const struct rendezvous *r, struct error *error)
{
    if (error)
        *error = r->error;
    return r->phase == OVER;
}

bool rendezvous_quiet(const struct rendezvous *r)
{
    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i] && !r->incoming[i]->gone && r->incoming[i]->state == LEAVING)
            return false;
    return true;
}

/* ---- output ---- */

static size_t incoming_unsent(const struct rendezvous *r, const struct registrant *g)
{
    return g->out_len + (g->has_roster ? r->roster_len : 0) - g->sent;
}

static void incoming_tell(struct registrant *g, uint8_t kind, const void *payload, size_t len)
{
    assert(g->out_len + MEETING_HEADER_LEN + len <= sizeof g->out);
    meeting_seal(kind, payload, len, NULL, 0, g->out + g->out_len);
    if (len > 0)
        memcpy(g->out + g->out_len + MEETING_HEADER_LEN, payload, len);
    g->out_len += MEETING_HEADER_LEN + len;
}

static void incoming_tell_roster(struct rendezvous *r, struct registrant *g)
{
    struct meeting_place place = {r->cluster, (uint32_t)g->rank, (uint32_t)r->setup.size};
    uint8_t *head = g->out + g->out_len;

    assert(incoming_unsent(r, g) == 0 && g->out_len == 0);
    meeting_place_encode(&place, head + MEETING_HEADER_LEN, MEETING_PLACE_LEN);
    meeting_seal(MEETING_ROSTER, head + MEETING_HEADER_LEN, MEETING_PLACE_LEN, r->roster, r->roster_len,
                 head);
    g->out_len = g->roster_at = MEETING_HEADER_LEN + MEETING_PLACE_LEN;
    g->has_roster = true;
    g->ready = false;
}

/* Adds what is left of a piece after the first *skip bytes. */
static int piece_add(struct iovec *pieces, int count, const uint8_t *bytes, size_t len, size_t *skip)
{
    size_t skipped = *skip < len ? *skip : len;
    *skip -= skipped;
    if (skipped == len)
        return count;
    pieces[count] =
        (struct iovec){.iov_base = (void *)(uintptr_t)(bytes + skipped), .iov_len = len - skipped};
    return count + 1;
}

int rendezvous_output(const struct rendezvous *r, int conn, struct iovec pieces[3])
{
    const struct registrant *g = r->incoming[conn];
    size_t skip = g->sent, first = g->has_roster ? g->roster_at : g->out_len;

    int count = piece_add(pieces, 0, g->out, first, &skip);
    if (g->has_roster)
        count = piece_add(pieces, count, r->roster, r->roster_len, &skip);
    return piece_add(pieces, count, g->out + first, g->out_len - first, &skip);
}

/* ---- members come and go ---- */

static void incoming_leave(struct rendezvous *r, struct registrant *g, uint64_t now_ns)
{
    r->members -= g->state == MEMBER;
    g->state = LEAVING;
    g->deadline_ns = now_ns + RENDEZVOUS_STRANGER_NS;
}

static void incoming_refuse(struct rendezvous *r, struct registrant *g, const struct error *error,
                            uint64_t now_ns)
{
    uint8_t payload[8 + ERROR_TEXT_MAX];
    size_t len = error_encode(error, payload, sizeof payload);

    incoming_tell(g, MEETING_REFUSE, payload, len);
    incoming_leave(r, g, now_ns);
}

/* Ends the meeting for all who have registered. */
static void meeting_fail(struct rendezvous *r, const struct error *error, uint64_t now_ns)
{
    r->phase = OVER;
    r->error = *error;
    log_write(&r->setup.log, HEARTH_LOG_INFO, "HEARTH-REFUSED", "%s", error->text);
    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i] && r->incoming[i]->state == MEMBER)
            incoming_refuse(r, r->incoming[i], error, now_ns);
}

/* A member that leaves before GO frees its place. */
static void incoming_drop(struct rendezvous *r, struct registrant *g)
{
    if (g->state == MEMBER) {
        r->members--;
        if (r->phase == AGREEING)
            r->phase = GATHERING;
        log_write(&r->setup.log, HEARTH_LOG_INFO, "HEARTH-LEFT",
                  "process %u on %s left before all had agreed: its place is free again",
                  (unsigned)g->member.process, g->member.name);
    }
    g->state = STRANGER;
    g->gone = true;
}

/* Given ranks first, then the free ones in the order of coming. */
static void ranks_assign(struct rendezvous *r)
{
    for (int rank = 0; rank < r->setup.size; rank++)
        r->ranks[rank] = -1;
    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i] && r->incoming[i]->state == MEMBER && r->incoming[i]->wanted >= 0)
            r->ranks[r->incoming[i]->wanted] = i;
    for (int rank = 0; rank < r->setup.size; rank++) {
        uint64_t first = UINT64_MAX;
        if (r->ranks[rank] >= 0)
            continue;
        for (int i = 0; i < r->limit; i++) {
            const struct registrant *g = r->incoming[i];
            if (g && g->state == MEMBER && g->wanted < 0 && g->rank < 0 && g->order < first) {
                first = g->order;
                r->ranks[rank] = i;
            }
        }
        r->incoming[r->ranks[rank]]->rank = rank;
    }
}

static int roster_make(struct rendezvous *r)
{
    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i])
            r->incoming[i]->rank = r->incoming[i]->wanted;
    ranks_assign(r);
    for (int rank = 0; rank < r->setup.size; rank++)
        r->listed[rank] = r->incoming[r->ranks[rank]]->member;
    size_t len = meeting_members_len(r->listed, (size_t)r->setup.size);
    if (len > r->roster_size) {
        heap_free(r->roster);
        r->roster = heap_alloc(r->setup.heap, 1, len);
        r->roster_size = r->roster ? len : 0;
        if (!r->roster)
            return HEARTH_NO_MEMORY;
    }
    r->roster_len = meeting_members_encode(r->listed, (size_t)r->setup.size, r->roster, len);
    do
        r->cluster = prng_u64(&r->prng);
    while (r->cluster == 0);
    return HEARTH_OK;
}

/* When all are here and have read what they were told so far: the roster to all. */
static void meeting_try_roster(struct rendezvous *r, uint64_t now_ns)
{
    struct error error;

    if (r->phase != GATHERING || r->members < r->setup.size)
        return;
    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i] && r->incoming[i]->state == MEMBER && incoming_unsent(r, r->incoming[i]) > 0)
            return;
    if (roster_make(r) != HEARTH_OK) {
        error_set(&error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory for the roster");
        meeting_fail(r, &error, now_ns);
        return;
    }
    r->phase = AGREEING;
    for (int rank = 0; rank < r->setup.size; rank++)
        incoming_tell_roster(r, r->incoming[r->ranks[rank]]);
}

static void meeting_try_go(struct rendezvous *r, uint64_t now_ns)
{
    uint8_t payload[8];

    if (r->phase != AGREEING)
        return;
    for (int rank = 0; rank < r->setup.size; rank++)
        if (!r->incoming[r->ranks[rank]]->ready)
            return;
    r->phase = OVER;
    size_t len = meeting_cluster_encode(r->cluster, payload, sizeof payload);
    for (int rank = 0; rank < r->setup.size; rank++) {
        incoming_tell(r->incoming[r->ranks[rank]], MEETING_GO, payload, len);
        incoming_leave(r, r->incoming[r->ranks[rank]], now_ns);
    }
}

static bool may_go(const struct registrant *g)
{
    return g && g->state != MEMBER && !g->gone;
}

/* In the middle of a handshake that has begun well: where many come from one address, they would push out
 * each other. */
static bool is_busy(const struct registrant *g, uint64_t now_ns)
{
    return g->admitted_ns > 0 && now_ns < g->admitted_ns + ADMITTED_NS;
}

static bool goes_before(const struct registrant *a, const struct registrant *b, uint64_t now_ns)
{
    bool busy = is_busy(a, now_ns);

    return busy != is_busy(b, now_ns) ? !busy : a->order < b->order;
}

/* Of the address that has most connections that are not members', the oldest: as at the listener. */
static struct registrant *incoming_to_go(const struct rendezvous *r, uint64_t now_ns)
{
    struct registrant *worst = NULL;
    int most = 0;

    for (int i = 0; i < r->limit; i++) {
        struct registrant *g = r->incoming[i];
        int count = 0;
        if (!may_go(g))
            continue;
        for (int k = 0; k < r->limit; k++)
            count += may_go(r->incoming[k]) && r->incoming[k]->source == g->source;
        if (!worst || count > most || (count == most && goes_before(g, worst, now_ns))) {
            worst = g;
            most = count;
        }
    }
    return worst;
}

int rendezvous_conn_open(struct rendezvous *r, const struct rendezvous_origin *origin, uint64_t now_ns,
                         int *conn)
{
    int place = 0;

    while (place < r->limit && r->incoming[place])
        place++;
    if (place == r->limit)
        return HEARTH_LIMIT;
    struct registrant *g = heap_alloc(r->setup.heap, 1, sizeof *g);
    if (!g)
        return HEARTH_NO_MEMORY;
    g->origin = *origin;
    g->source = sock_addr_network(&origin->from);
    g->order = ++r->orders;
    g->wanted = g->rank = RANK_NONE;
    g->deadline_ns = now_ns + RENDEZVOUS_STRANGER_NS;
    struct registrant *worst = r->open + 1 == r->limit ? incoming_to_go(r, now_ns) : NULL;
    if (worst)
        worst->gone = true;
    r->incoming[place] = g;
    r->open++;
    *conn = place;
    return HEARTH_OK;
}

void rendezvous_conn_closed(struct rendezvous *r, int conn, uint64_t now_ns)
{
    incoming_drop(r, r->incoming[conn]);
    incoming_free(r->incoming[conn]);
    r->incoming[conn] = NULL;
    r->open--;
    meeting_try_roster(r, now_ns);
}

void rendezvous_conn_admitted(struct rendezvous *r, int conn, uint64_t now_ns)
{
    r->incoming[conn]->admitted_ns = now_ns;
}

void rendezvous_conn_proven(struct rendezvous *r, int conn, const struct identity *peer)
{
    r->incoming[conn]->proven = true;
    r->incoming[conn]->peer = *peer;
}

bool rendezvous_conn_gone(const struct rendezvous *r, int conn)
{
    return r->incoming[conn]->gone;
}

/* ---- registering ---- */

/* What ends the meeting for all: HEARTH_OK, or the contradiction. */
static int register_check(const struct rendezvous *r, const struct meeting_register *in, struct error *error)
{
    const struct rendezvous_setup *s = &r->setup;
    unsigned process = in->member.process;
    const char *host = in->member.name;
    char text[ERROR_TEXT_MAX / 2];

    if (in->version_min > FRAME_VERSION || in->version_max < FRAME_VERSION)
        return error_set(
            error, HEARTH_PROTOCOL, in->rank,
            "rendezvous: process %u on %s speaks protocol versions %u to %u, others speak %u: run "
            "the same version of Hearth everywhere",
            process, host, in->version_min, in->version_max, FRAME_VERSION);
    if (in->size != (uint32_t)s->size)
        return error_set(error, HEARTH_MISMATCH, in->rank,
                         "rendezvous: process %u on %s expects %u members, others expect %d", process, host,
                         (unsigned)in->size, s->size);
    if (in->settings != s->settings) {
        settings_diff_text(in->settings_text, s->settings_text, text, sizeof text);
        return error_set(error, HEARTH_MISMATCH, in->rank,
                         "rendezvous: process %u on %s has other settings than the rest: %s", process, host,
                         text);
    }
    for (int i = 0; in->rank >= 0 && i < r->limit; i++) {
        const struct registrant *g = r->incoming[i];
        if (g && g->state == MEMBER && g->wanted == in->rank)
            return error_set(
                error, HEARTH_MISMATCH, in->rank,
                "rendezvous: rank %d was given twice: to process %u on %s and to process %u on %s",
                (int)in->rank, (unsigned)g->member.process, g->member.name, process, host);
    }
    return HEARTH_OK;
}

/* What concerns only this connection. */
static int register_refuse(const struct rendezvous *r, const struct meeting_register *in, struct error *error)
{
    if (strcmp(in->job, r->setup.job) != 0)
        return error_set(error, HEARTH_MISMATCH, RANK_NONE,
                         "rendezvous: the job here is \"%s\"; process %u on %s wants \"%s\"", r->setup.job,
                         (unsigned)in->member.process, in->member.name, in->job);
    if (r->phase == OVER && r->error.status != HEARTH_OK) {
        *error = r->error;
        return error->status;
    }
    if (r->phase == OVER)
        return error_set(error, HEARTH_LIMIT, RANK_NONE,
                         "rendezvous: the %d members have met already, process %u on %s came too late",
                         r->setup.size, (unsigned)in->member.process, in->member.name);
    return HEARTH_OK;
}

/* A member whose connection broke comes again: its old one goes. */
static void member_replace(struct rendezvous *r, const struct meeting_member *m)
{
    for (int i = 0; i < r->limit; i++) {
        struct registrant *g = r->incoming[i];
        if (g && g->state == MEMBER && g->member.instance == m->instance &&
            memcmp(g->member.node, m->node, sizeof m->node) == 0)
            incoming_drop(r, g);
    }
}

static void incoming_welcome(const struct rendezvous *r, struct registrant *g)
{
    struct meeting_welcome welcome = {.present = (uint32_t)r->members, .size = (uint32_t)r->setup.size};
    uint8_t payload[MEETING_WELCOME_MAX];

    if (r->setup.secret && g->origin.local) {
        welcome.has_secret = true;
        memcpy(welcome.secret, r->setup.secret, sizeof welcome.secret);
    }
    incoming_tell(g, MEETING_WELCOME, payload, meeting_welcome_encode(&welcome, payload, sizeof payload));
    wipe(&welcome, sizeof welcome);
    wipe(payload, sizeof payload);
}

static void incoming_register(struct rendezvous *r, struct registrant *g, const struct meeting_register *in,
                              uint64_t now_ns)
{
    struct error error;

    if (register_trust(&r->setup, g->proven ? &g->peer : NULL, in, &error) != HEARTH_OK) {
        guard_complain(&r->guard, &g->origin.from, error.text);
        incoming_refuse(r, g, &error, now_ns);
        return;
    }
    if (register_refuse(r, in, &error) != HEARTH_OK) {
        incoming_refuse(r, g, &error, now_ns);
        return;
    }
    member_replace(r, &in->member);
    if (register_check(r, in, &error) != HEARTH_OK) {
        incoming_refuse(r, g, &error, now_ns);
        meeting_fail(r, &error, now_ns);
        return;
    }
    if (r->members == r->setup.size) {
        error_set(&error, HEARTH_LIMIT, RANK_NONE,
                  "rendezvous: all %d places are taken, process %u on %s is one too many", r->setup.size,
                  (unsigned)in->member.process, in->member.name);
        incoming_refuse(r, g, &error, now_ns);
        return;
    }
    g->state = MEMBER;
    g->order = ++r->orders;
    g->wanted = in->rank;
    g->member = in->member;
    g->deadline_ns = now_ns + in->patience_ms * NS_PER_MS;
    r->members++;
    incoming_welcome(r, g);
}

/* ---- input ---- */

/* A member that cannot be one: the others would wait for it in vain. */
static bool incoming_object(struct rendezvous *r, const struct registrant *g, const uint8_t *payload,
                            size_t len, uint64_t now_ns)
{
    struct error why, error;
    char rank[24] = "";

    if (error_decode(&why, payload, len) != HEARTH_OK)
        return false;
    if (g->wanted >= 0)
        snprintf(rank, sizeof rank, "rank %d, ", g->wanted);
    error_set(&error, why.status, g->wanted, "rendezvous: %sprocess %u on %s, cannot take part: %s", rank,
              (unsigned)g->member.process, g->member.name, why.text);
    meeting_fail(r, &error, now_ns);
    return true;
}

/* One whole message; false: this is none of ours. */
static bool incoming_hear(struct rendezvous *r, struct registrant *g, const struct meeting_header *h,
                          const uint8_t *payload, uint64_t now_ns)
{
    struct meeting_register in;
    uint64_t cluster;

    if (!meeting_intact(h, payload))
        return false;
    if (g->state == STRANGER && h->kind == MEETING_REGISTER) {
        if (meeting_register_decode(&in, payload, h->length) != HEARTH_OK)
            return false;
        incoming_register(r, g, &in, now_ns);
        return true;
    }
    if (g->state == MEMBER && h->kind == MEETING_REFUSE)
        return incoming_object(r, g, payload, h->length, now_ns);
    if (g->state != MEMBER || h->kind != MEETING_READY ||
        meeting_cluster_decode(&cluster, payload, h->length) != HEARTH_OK)
        return g->state == LEAVING;
    g->ready = cluster == r->cluster; /* else it speaks of an earlier roster */
    meeting_try_go(r, now_ns);
    return true;
}

/* Takes what is still missing of the message at hand. */
static size_t incoming_take(struct registrant *g, size_t wanted, const uint8_t *bytes, size_t len)
{
    size_t missing = wanted - g->in_len, take = missing < len ? missing : len;

    memcpy(g->in + g->in_len, bytes, take);
    g->in_len += take;
    return take;
}

void rendezvous_input(struct rendezvous *r, int conn, const void *bytes, size_t len, uint64_t now_ns)
{
    struct registrant *g = r->incoming[conn];
    const uint8_t *at = bytes, *end = at + len;
    struct meeting_header header;
    const char *what;

    while (!g->gone && at < end) {
        if (g->in_len < MEETING_HEADER_LEN)
            at += incoming_take(g, MEETING_HEADER_LEN, at, (size_t)(end - at));
        if (g->in_len < MEETING_HEADER_LEN)
            return;
        bool good =
            meeting_header_decode(&header, g->in, &what) == HEARTH_OK && header.length <= MEETING_SMALL_MAX;
        if (good) {
            at += incoming_take(g, MEETING_HEADER_LEN + header.length, at, (size_t)(end - at));
            if (g->in_len < MEETING_HEADER_LEN + header.length)
                return;
            g->in_len = 0;
            good = incoming_hear(r, g, &header, g->in + MEETING_HEADER_LEN, now_ns);
        }
        if (!good)
            incoming_drop(r, g);
    }
    meeting_try_roster(r, now_ns);
}

void rendezvous_sent(struct rendezvous *r, int conn, size_t len, uint64_t now_ns)
{
    struct registrant *g = r->incoming[conn];

    assert(len <= incoming_unsent(r, g));
    g->sent += len;
    if (incoming_unsent(r, g) > 0)
        return;
    wipe(g->out, g->out_len);
    g->out_len = g->sent = 0;
    g->has_roster = false;
    meeting_try_roster(r, now_ns);
}

/* ---- time ---- */

/* Of the whole meeting: its own, or that of the least patient member, who would leave then anyway. */
static uint64_t meeting_deadline(const struct rendezvous *r)
{
    uint64_t deadline = r->setup.deadline_ns;

    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i] && r->incoming[i]->state == MEMBER && r->incoming[i]->deadline_ns < deadline)
            deadline = r->incoming[i]->deadline_ns;
    return deadline;
}

/* Who did not come: by rank where all that came had one, else by number. */
static void missing_error(struct rendezvous *r, struct error *error)
{
    char text[ERROR_TEXT_MAX / 2];
    int given = 0, first = RANK_NONE;

    for (int rank = 0; rank < r->setup.size; rank++)
        r->ranks[rank] = -1;
    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i] && r->incoming[i]->state == MEMBER && r->incoming[i]->wanted >= 0) {
            r->ranks[r->incoming[i]->wanted] = i;
            given++;
        }
    for (int rank = r->setup.size - 1; rank >= 0; rank--)
        first = r->ranks[rank] < 0 ? rank : first;
    missing_text(r->ranks, r->setup.size, text, sizeof text);
    if (given == r->members && given > 0)
        error_set(error, HEARTH_TIMEOUT, first,
                  "rendezvous: %d of %d members came before the deadline; missing: rank %s", r->members,
                  r->setup.size, text);
    else
        error_set(error, HEARTH_TIMEOUT, RANK_NONE,
                  "rendezvous: %d of %d members came before the deadline; %d are missing, of the ranks %s",
                  r->members, r->setup.size, r->setup.size - r->members, text);
}

static void unready_error(struct rendezvous *r, struct error *error)
{
    for (int rank = 0; rank < r->setup.size; rank++) {
        const struct registrant *g = r->incoming[r->ranks[rank]];
        if (g->ready)
            continue;
        error_set(error, HEARTH_TIMEOUT, rank,
                  "rendezvous: rank %d (process %u on %s) did not confirm the roster before the deadline",
                  rank, (unsigned)g->member.process, g->member.name);
        return;
    }
}

void rendezvous_tick(struct rendezvous *r, uint64_t now_ns)
{
    struct error error;

    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i] && r->incoming[i]->state != MEMBER && now_ns >= r->incoming[i]->deadline_ns)
            r->incoming[i]->gone = true;
    if (r->phase == OVER || now_ns < meeting_deadline(r))
        return;
    if (r->phase == AGREEING)
        unready_error(r, &error);
    else
        missing_error(r, &error);
    meeting_fail(r, &error, now_ns);
}

uint64_t rendezvous_deadline(const struct rendezvous *r)
{
    uint64_t deadline = r->phase == OVER ? NEVER_NS : meeting_deadline(r);

    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i] && r->incoming[i]->state != MEMBER && !r->incoming[i]->gone &&
            r->incoming[i]->deadline_ns < deadline)
            deadline = r->incoming[i]->deadline_ns;
    return deadline;
}
