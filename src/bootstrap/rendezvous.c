/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting: its members, what they must agree on, and the messages to each of them.
 *
 * The members' part of a roster is the same for all, so it is kept once; a connection's output is a few
 * bytes of its own around it. A new roster is made only when the last one is sent to all. */
#include "bootstrap/rendezvous.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/settings_diff.h"
#include "core/bytes.h"
#include "core/prng.h"
#include "security/vault.h"
#include "wire/frame.h"
#include "wire/meeting.h"
#include "wire/record.h"

#define OUT_MAX 1024u /* welcome, the head of a roster, go, refuse: less than 512 */

enum registrant_state { UNREGISTERED, MEMBER, LEAVING };

struct registrant {
    enum registrant_state state;
    bool gone, ready;
    struct rendezvous_origin origin;
    uint64_t order;       /* of coming, and then of registering */
    uint64_t deadline_ns; /* member: of its patience; else it is closed then */
    int wanted, rank;
    struct peer_info member;
    struct message_reader in;
    struct message_queue out; /* shares r->roster with the others */
};

enum phase { GATHERING, AGREEING, OVER };

struct rendezvous {
    struct rendezvous_setup setup;
    enum phase phase;
    struct error error; /* why it is over; HEARTH_OK: GO */
    struct prng prng;
    uint64_t cluster, orders;
    struct registrant **incoming; /* [limit] */
    int limit, open, members;
    int *ranks;      /* [size], scratch: which connection has the rank */
    uint8_t *roster; /* the members of a roster, encoded */
    size_t roster_len;
};

/* NULL: the connection is not one of a member. */
static struct registrant *member_at(const struct rendezvous *r, int conn)
{
    return r->incoming[conn] && r->incoming[conn]->state == MEMBER ? r->incoming[conn] : NULL;
}

/* ---- open and close ---- */

int rendezvous_open(const struct rendezvous_setup *setup, struct rendezvous **out, struct error *error)
{
    assert(setup->size >= 1 && setup->size <= (int)MEETING_MEMBERS_MAX);
    struct rendezvous *r = heap_alloc(setup->heap, 1, sizeof *r);
    if (!r)
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory");
    r->setup = *setup;
    r->limit = setup->size + RENDEZVOUS_LEAVING + 1; /* one more, until the oldest is closed */
    r->incoming = heap_alloc(setup->heap, (size_t)r->limit, sizeof(struct registrant *));
    r->ranks = heap_alloc(setup->heap, (size_t)setup->size, sizeof(int));
    if (!r->incoming || !r->ranks) {
        rendezvous_close(r);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "rendezvous: no memory for %d members",
                         setup->size);
    }
    prng_init(&r->prng, setup->seed);
    error_clear(&r->error);
    *out = r;
    return HEARTH_OK;
}

/* What was said may hold the secret. */
static void out_wipe(struct registrant *c)
{
    if (c->out.bytes)
        wipe(c->out.bytes, c->out.room);
}

static void incoming_free(struct registrant *c)
{
    if (!c)
        return;
    out_wipe(c);
    message_queue_fini(&c->out);
    message_reader_fini(&c->in);
    heap_free(c);
}

void rendezvous_close(struct rendezvous *r)
{
    if (!r)
        return;
    for (int i = 0; r->incoming && i < r->limit; i++)
        incoming_free(r->incoming[i]);
    heap_free(r->incoming);
    heap_free(r->ranks);
    heap_free(r->roster);
    heap_free(r);
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

static void incoming_tell(struct registrant *c, uint8_t kind, const void *payload, size_t len)
{
    bool fits = message_queue_put(&c->out, kind, payload, len);

    assert(fits); /* room was taken when it came */
    (void)fits;
}

static void incoming_tell_roster(struct rendezvous *r, struct registrant *c)
{
    struct meeting_place place = {r->cluster, (uint32_t)c->rank, (uint32_t)r->setup.size};
    uint8_t head[MEETING_PLACE_LEN];

    assert(message_queue_len(&c->out) == 0);
    size_t len = meeting_place_encode(&place, head, sizeof head);
    bool fits = message_queue_put_shared(&c->out, MEETING_ROSTER, head, len, r->roster, r->roster_len);
    assert(fits);
    (void)fits;
    c->ready = false;
}

size_t rendezvous_output(const struct rendezvous *r, int conn, const uint8_t **bytes)
{
    return message_queue_front(&r->incoming[conn]->out, SIZE_MAX, bytes);
}

/* ---- members come and go ---- */

static void incoming_leave(struct rendezvous *r, struct registrant *c, uint64_t now_ns)
{
    r->members -= c->state == MEMBER;
    c->state = LEAVING;
    c->deadline_ns = now_ns + RENDEZVOUS_LEAVE_NS;
}

static void incoming_refuse(struct rendezvous *r, struct registrant *c, const struct error *error,
                            uint64_t now_ns)
{
    uint8_t payload[8 + ERROR_TEXT_MAX];
    size_t len = error_encode(error, payload, sizeof payload);

    incoming_tell(c, MEETING_REFUSE, payload, len);
    incoming_leave(r, c, now_ns);
}

/* Ends the meeting for all members. */
static void meeting_fail(struct rendezvous *r, const struct error *error, uint64_t now_ns)
{
    r->phase = OVER;
    r->error = *error;
    log_write(&r->setup.log, HEARTH_LOG_INFO, "HEARTH-REFUSED", "%s", error->text);
    for (int i = 0; i < r->limit; i++)
        if (member_at(r, i))
            incoming_refuse(r, member_at(r, i), error, now_ns);
}

/* A member that leaves before GO frees its place. */
static void incoming_drop(struct rendezvous *r, struct registrant *c)
{
    if (c->state == MEMBER) {
        r->members--;
        if (r->phase == AGREEING)
            r->phase = GATHERING;
        log_write(&r->setup.log, HEARTH_LOG_INFO, "HEARTH-LEFT",
                  "process %u on %s left before all had agreed: its place is free again",
                  (unsigned)c->member.process, c->member.name);
    }
    out_wipe(c);
    message_queue_clear(&c->out); /* a roster that it shares may be replaced before it is closed */
    c->state = UNREGISTERED;
    c->gone = true;
}

/* Which connection asked for which rank, -1: none; gives how many did. */
static int ranks_given(struct rendezvous *r)
{
    int given = 0;

    for (int rank = 0; rank < r->setup.size; rank++)
        r->ranks[rank] = -1;
    for (int i = 0; i < r->limit; i++) {
        const struct registrant *c = member_at(r, i);
        if (!c || c->wanted < 0)
            continue;
        r->ranks[c->wanted] = i;
        given++;
    }
    return given;
}

/* Given ranks first, then the free ones in the order of coming. */
static void ranks_assign(struct rendezvous *r)
{
    (void)ranks_given(r);
    for (int rank = 0; rank < r->setup.size; rank++) {
        uint64_t first = UINT64_MAX;
        if (r->ranks[rank] >= 0)
            continue;
        for (int i = 0; i < r->limit; i++) {
            const struct registrant *c = member_at(r, i);
            if (c && c->wanted < 0 && c->rank < 0 && c->order < first) {
                first = c->order;
                r->ranks[rank] = i;
            }
        }
        r->incoming[r->ranks[rank]]->rank = rank;
    }
}

static int roster_make(struct rendezvous *r)
{
    if (!r->roster)
        r->roster = heap_alloc_raw(r->setup.heap, (size_t)r->setup.size, PEER_LEN_MAX);
    if (!r->roster)
        return HEARTH_NO_MEMORY;
    struct writer w = writer_of(r->roster, (size_t)r->setup.size * PEER_LEN_MAX);
    for (int i = 0; i < r->limit; i++)
        if (r->incoming[i])
            r->incoming[i]->rank = r->incoming[i]->wanted;
    ranks_assign(r);
    for (int rank = 0; rank < r->setup.size; rank++)
        peer_put(&w, &r->incoming[r->ranks[rank]]->member);
    assert(!w.bad);
    r->roster_len = (size_t)(w.at - r->roster);
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
        if (member_at(r, i) && message_queue_len(&member_at(r, i)->out) > 0)
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

/* Of those that were told why they are refused, the oldest; NULL: none. */
static struct registrant *oldest_leaving(const struct rendezvous *r)
{
    struct registrant *oldest = NULL;

    for (int i = 0; i < r->limit; i++) {
        struct registrant *c = r->incoming[i];
        if (c && c->state == LEAVING && !c->gone && (!oldest || c->order < oldest->order))
            oldest = c;
    }
    return oldest;
}

int rendezvous_conn_open(struct rendezvous *r, const struct rendezvous_origin *origin, uint64_t now_ns,
                         int *conn)
{
    int place = 0;

    while (place < r->limit && r->incoming[place])
        place++;
    if (place == r->limit)
        return HEARTH_LIMIT;
    struct registrant *c = heap_alloc(r->setup.heap, 1, sizeof *c);
    if (!c)
        return HEARTH_NO_MEMORY;
    message_reader_init(&c->in, r->setup.heap, &meeting_to_rendezvous);
    message_queue_init(&c->out, r->setup.heap, OUT_MAX);
    if (!message_reader_reserve(&c->in, MEETING_SMALL_MAX) || !message_queue_reserve(&c->out, OUT_MAX)) {
        incoming_free(c);
        return HEARTH_NO_MEMORY;
    }
    c->origin = *origin;
    c->order = ++r->orders;
    c->wanted = c->rank = RANK_NONE;
    c->deadline_ns = now_ns + RENDEZVOUS_LEAVE_NS;
    struct registrant *oldest = r->open + 1 == r->limit ? oldest_leaving(r) : NULL;
    if (oldest)
        oldest->gone = true;
    r->incoming[place] = c;
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

bool rendezvous_conn_gone(const struct rendezvous *r, int conn)
{
    return r->incoming[conn]->gone;
}

/* ---- registering ---- */

int mixed_error(bool others_encrypt, const char *one, struct error *error)
{
    return error_because(error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_MISMATCH, RANK_NONE,
                         "rendezvous: the others %s, %s %s: start all members with plain, or (better) none",
                         others_encrypt ? "encrypt" : "are plain", one,
                         others_encrypt ? "is plain" : "encrypts");
}

/* Whether a member that registers is the one that its handshake has proven (`peer`, NULL: there was none)
 * and of our cluster. HEARTH_OK, or a refusal of this connection with what to do. */
static int register_trust(const struct rendezvous_setup *s, const struct identity *peer,
                          const struct meeting_register *in, struct error *error)
{
    unsigned process = in->member.process;
    const char *host = in->member.name;
    bool plain = bytes_zero(in->member.id.node.bytes, NODE_ID_LEN);
    char name[PEER_NAME_MAX + 32];

    if (plain != !s->space) {
        snprintf(name, sizeof name, "process %u on %s", process, host);
        int status = mixed_error(plain, name, error);
        error->rank = in->rank;
        return status;
    }
    if (s->credentials && !(peer && identity_equal(peer, &in->member.id)))
        return error_set(error, HEARTH_PROTOCOL, in->rank,
                         "rendezvous: process %u on %s: it speaks for another member than the one that its "
                         "handshake has proven",
                         process, host);
    if (s->space && !bytes_zero(in->space, NAMESPACE_LEN) && memcmp(in->space, s->space, NAMESPACE_LEN) != 0)
        return error_because(
            error, HEARTH_REASON_SECRET_DIFFERS, HEARTH_MISMATCH, in->rank,
            "rendezvous: process %u on %s has the secret of another cluster: give all members the "
            "same (hearth join TOKEN, HEARTH_SECRET_FILE), or none of them (then one is made for "
            "this job)",
            process, host);
    return HEARTH_OK;
}

/* What ends the meeting for all: HEARTH_OK, or the contradiction. */
static int register_check(const struct rendezvous *r, const struct meeting_register *in, struct error *error)
{
    const struct rendezvous_setup *s = &r->setup;
    unsigned process = in->member.process;
    const char *host = in->member.name;
    char text[ERROR_TEXT_MAX / 2];

    if (in->version_min > FRAME_VERSION || in->version_max < FRAME_VERSION)
        return error_because(
            error, HEARTH_REASON_VERSION_DIFFERS, HEARTH_PROTOCOL, in->rank,
            "rendezvous: process %u on %s speaks protocol versions %u to %u, others speak %u: run "
            "the same version of Hearth everywhere",
            process, host, in->version_min, in->version_max, FRAME_VERSION);
    if (in->size != (uint32_t)s->size)
        return error_because(error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_MISMATCH, in->rank,
                             "rendezvous: process %u on %s expects %u members, others expect %d", process,
                             host, (unsigned)in->size, s->size);
    if (in->settings != s->settings) {
        settings_diff_text(in->settings_text, s->settings_text, text, sizeof text);
        return error_because(error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_MISMATCH, in->rank,
                             "rendezvous: process %u on %s has other settings than the rest: %s", process,
                             host, text);
    }
    for (int i = 0; in->rank >= 0 && i < r->limit; i++) {
        const struct registrant *c = member_at(r, i);
        if (c && c->wanted == in->rank)
            return error_because(
                error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_MISMATCH, in->rank,
                "rendezvous: rank %d was given twice: to process %u on %s and to process %u on %s",
                (int)in->rank, (unsigned)c->member.process, c->member.name, process, host);
    }
    return HEARTH_OK;
}

/* What concerns only this connection. */
static int register_refuse(const struct rendezvous *r, const struct meeting_register *in, struct error *error)
{
    if (strcmp(in->job, r->setup.job) != 0)
        return error_because(error, HEARTH_REASON_SETTINGS_DIFFER, HEARTH_MISMATCH, RANK_NONE,
                             "rendezvous: the job here is \"%s\"; process %u on %s wants \"%s\"",
                             r->setup.job, (unsigned)in->member.process, in->member.name, in->job);
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
static void member_replace(struct rendezvous *r, const struct peer_info *m)
{
    for (int i = 0; i < r->limit; i++) {
        struct registrant *c = member_at(r, i);
        if (c && identity_equal(&c->member.id, &m->id))
            incoming_drop(r, c);
    }
}

static void incoming_welcome(const struct rendezvous *r, struct registrant *c)
{
    struct meeting_welcome welcome = {.present = (uint32_t)r->members, .size = (uint32_t)r->setup.size};
    uint8_t payload[MEETING_WELCOME_MAX];

    if (r->setup.secret && c->origin.local) {
        welcome.has_secret = true;
        memcpy(welcome.secret, r->setup.secret, sizeof welcome.secret);
    }
    incoming_tell(c, MEETING_WELCOME, payload, meeting_welcome_encode(&welcome, payload, sizeof payload));
    wipe(&welcome, sizeof welcome);
    wipe(payload, sizeof payload);
}

static void incoming_register(struct rendezvous *r, struct registrant *c, const struct meeting_register *in,
                              uint64_t now_ns)
{
    struct error error;

    if (register_trust(&r->setup, c->origin.peer, in, &error) != HEARTH_OK) {
        admission_log_complain(r->setup.admissions, &c->origin.from, error.text);
        incoming_refuse(r, c, &error, now_ns);
        return;
    }
    if (register_refuse(r, in, &error) != HEARTH_OK) {
        incoming_refuse(r, c, &error, now_ns);
        return;
    }
    member_replace(r, &in->member);
    if (register_check(r, in, &error) != HEARTH_OK) {
        incoming_refuse(r, c, &error, now_ns);
        meeting_fail(r, &error, now_ns);
        return;
    }
    if (r->members == r->setup.size) {
        error_set(&error, HEARTH_LIMIT, RANK_NONE,
                  "rendezvous: all %d places are taken, process %u on %s is one too many", r->setup.size,
                  (unsigned)in->member.process, in->member.name);
        incoming_refuse(r, c, &error, now_ns);
        return;
    }
    c->state = MEMBER;
    c->order = ++r->orders;
    c->wanted = in->rank;
    c->member = in->member;
    c->deadline_ns = now_ns + in->patience_ms * NS_PER_MS;
    r->members++;
    incoming_welcome(r, c);
}

/* ---- input ---- */

/* A member that cannot be one: the others would wait for it in vain. */
static bool incoming_object(struct rendezvous *r, const struct registrant *c, const uint8_t *payload,
                            size_t len, uint64_t now_ns)
{
    struct error why;
    char rank[24] = "";

    if (error_decode(&why, payload, len) != HEARTH_OK)
        return false;
    if (c->wanted >= 0)
        snprintf(rank, sizeof rank, "rank %d, ", c->wanted);
    why.rank = c->wanted;
    error_wrap(&why, &why, "rendezvous: %sprocess %u on %s, cannot take part: %s", rank,
               (unsigned)c->member.process, c->member.name, why.text);
    meeting_fail(r, &why, now_ns);
    return true;
}

/* One whole message; false: this is none of ours. */
static bool incoming_hear(struct rendezvous *r, struct registrant *c, uint64_t now_ns)
{
    const uint8_t *payload = c->in.payload;
    size_t len = c->in.header.len;
    uint8_t kind = c->in.header.kind;
    struct meeting_register in;
    uint64_t cluster;

    if (c->state == UNREGISTERED && kind == MEETING_REGISTER) {
        if (meeting_register_decode(&in, payload, len) != HEARTH_OK)
            return false;
        incoming_register(r, c, &in, now_ns);
        return true;
    }
    if (c->state == MEMBER && kind == MEETING_REFUSE)
        return incoming_object(r, c, payload, len, now_ns);
    if (c->state != MEMBER || kind != MEETING_READY ||
        meeting_cluster_decode(&cluster, payload, len) != HEARTH_OK)
        return c->state == LEAVING;
    c->ready = cluster == r->cluster; /* else it speaks of an earlier roster */
    meeting_try_go(r, now_ns);
    return true;
}

void rendezvous_input(struct rendezvous *r, int conn, const void *bytes, size_t len, uint64_t now_ns)
{
    struct registrant *c = r->incoming[conn];
    struct reader in = reader_of(bytes, len);
    const char *what;

    while (!c->gone && reader_left(&in) > 0) {
        int status = message_reader_feed(&c->in, &in, &what);
        if (status == HEARTH_PENDING)
            return;
        if (status != HEARTH_OK || !incoming_hear(r, c, now_ns))
            incoming_drop(r, c);
        message_reader_next(&c->in);
    }
    meeting_try_roster(r, now_ns);
}

void rendezvous_sent(struct rendezvous *r, int conn, size_t len, uint64_t now_ns)
{
    struct registrant *c = r->incoming[conn];

    message_queue_sent(&c->out, len);
    if (message_queue_len(&c->out) > 0)
        return;
    out_wipe(c);
    meeting_try_roster(r, now_ns);
}

/* ---- time ---- */

/* Of the whole meeting: its own, or that of the least patient member, which would leave then anyway. */
static uint64_t meeting_deadline(const struct rendezvous *r)
{
    uint64_t deadline = r->setup.deadline_ns;

    for (int i = 0; i < r->limit; i++)
        if (member_at(r, i) && member_at(r, i)->deadline_ns < deadline)
            deadline = member_at(r, i)->deadline_ns;
    return deadline;
}

/* The missing members: by rank where all that came had one, else by number. */
static void missing_error(struct rendezvous *r, struct error *error)
{
    char text[ERROR_TEXT_MAX / 2];
    int given = ranks_given(r), first = RANK_NONE;

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
        const struct registrant *c = r->incoming[r->ranks[rank]];
        if (c->ready)
            continue;
        error_set(error, HEARTH_TIMEOUT, rank,
                  "rendezvous: rank %d (process %u on %s) did not confirm the roster before the deadline",
                  rank, (unsigned)c->member.process, c->member.name);
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
