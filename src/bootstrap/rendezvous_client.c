/* SPDX-License-Identifier: Apache-2.0 */
/* Registers, reads rosters, answers them. */
#include "bootstrap/rendezvous_client.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/rendezvous.h"
#include "security/vault.h"
#include "wire/frame.h"
#include "wire/meeting.h"
#include "wire/record.h"

/* A registration and some confirmations of rosters, or an objection. */
#define OUT_MAX (MESSAGE_HEADER_LEN + MEETING_SMALL_MAX + 512u)

static_assert(MEETING_SPACE_LEN == NAMESPACE_LEN, "as it travels");
static_assert(MEETING_SECRET_LEN == SECRET_LEN, "as it travels");
static_assert(ROSTER_MEMBERS_MAX == MEETING_MEMBERS_MAX, "as it travels");

void roster_fini(struct roster *roster)
{
    heap_free(roster->members);
    roster->members = NULL;
    wipe(roster->secret, sizeof roster->secret);
    roster->has_secret = false;
}

/* ---- out ---- */

int rendezvous_client_init(struct rendezvous_client *c, const struct roster_setup *setup, int rank)
{
    *c = (struct rendezvous_client){.setup = setup, .rank = rank};
    message_reader_init(&c->in, setup->heap, &meeting_to_member);
    message_queue_init(&c->out, setup->heap, OUT_MAX);
    return message_queue_reserve(&c->out, OUT_MAX) ? HEARTH_OK : HEARTH_NO_MEMORY;
}

/* A welcome has the secret in it. */
static void in_wipe(struct rendezvous_client *c)
{
    if (c->in.payload)
        wipe(c->in.payload, c->in.room);
}

void rendezvous_client_fini(struct rendezvous_client *c)
{
    in_wipe(c);
    wipe(c->secret, sizeof c->secret);
    message_reader_fini(&c->in);
    message_queue_fini(&c->out);
    roster_fini(&c->roster);
}

/* Instead of going on: all are told why. False: too much is unsent. */
static bool out_object(struct rendezvous_client *c)
{
    uint8_t payload[8 + ERROR_TEXT_MAX];

    return message_queue_put(&c->out, MEETING_REFUSE, payload,
                             error_encode(&c->objection, payload, sizeof payload));
}

/* A little less than we really wait, so that the rendezvous can still name the missing members. */
static uint32_t patience_ms(uint64_t now_ns, uint64_t deadline_ns)
{
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    uint64_t margin_ns = left_ns / 10 < NS_PER_S ? left_ns / 10 : NS_PER_S;
    uint64_t ms = (left_ns - margin_ns) / NS_PER_MS;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

void rendezvous_client_begin(struct rendezvous_client *c, uint64_t now_ns)
{
    const struct roster_setup *s = c->setup;
    uint8_t payload[MEETING_SMALL_MAX];
    struct meeting_register r = {
        .version_min = FRAME_VERSION,
        .version_max = FRAME_VERSION,
        .rank = c->rank,
        .size = (uint32_t)s->size,
        .patience_ms = patience_ms(now_ns, s->deadline_ns),
        .settings = s->settings,
        .member = s->self,
    };

    snprintf(r.job, sizeof r.job, "%s", s->job);
    snprintf(r.settings_text, sizeof r.settings_text, "%s", s->settings_text);
    if (s->credentials)
        memcpy(r.space, secret_namespace(credentials_secret(s->credentials)), sizeof r.space);
    c->welcomed = c->refused = false;
    message_reader_next(&c->in);
    message_queue_clear(&c->out);
    roster_fini(&c->roster);
    bool fits = message_queue_put(&c->out, MEETING_REGISTER, payload,
                                  meeting_register_encode(&r, payload, sizeof payload)) &&
                (c->objection.status == HEARTH_OK || out_object(c));
    assert(fits); /* room was taken for all of it */
    (void)fits;
}

struct iovec rendezvous_client_output(const struct rendezvous_client *c)
{
    const uint8_t *bytes = NULL;
    size_t len = message_queue_front(&c->out, SIZE_MAX, &bytes);

    return (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
}

void rendezvous_client_sent(struct rendezvous_client *c, size_t len)
{
    message_queue_sent(&c->out, len);
}

/* ---- in ---- */

/* Whether a roster speaks of us, and gives us what we asked for. */
static bool place_fits(const struct rendezvous_client *c, const struct meeting_place *p,
                       const struct peer_info *members)
{
    return p->size == (uint32_t)c->setup->size && (c->rank < 0 || p->rank == (uint32_t)c->rank) &&
           identity_equal(&members[p->rank].id, &c->setup->self.id);
}

/* The secret must come where it is handed out, and nowhere else; one that we had before must be the same. */
static int secret_check(const struct rendezvous_client *c, const struct meeting_welcome *w,
                        struct error *error)
{
    const struct credentials *own = c->setup->credentials;

    if (w->has_secret != c->wants_secret)
        return mixed_error(w->has_secret, "this process", error);
    if (w->has_secret && own && memcmp(secret_bytes(credentials_secret(own)), w->secret, SECRET_LEN) != 0)
        return error_because(
            error, HEARTH_REASON_SECRET_DIFFERS, HEARTH_MISMATCH, RANK_NONE,
            "rendezvous: the others have the secret of another cluster: give all members the same "
            "(hearth join TOKEN, HEARTH_SECRET_FILE), or none of them (then one is made for this "
            "job)");
    return HEARTH_OK;
}

static int hear_welcome(struct rendezvous_client *c, const uint8_t *payload, size_t len, struct error *error)
{
    struct meeting_welcome welcome = {.has_secret = false};
    int status = meeting_welcome_decode(&welcome, payload, len);

    if (status == HEARTH_OK) {
        c->welcomed = true;
        status = secret_check(c, &welcome, error);
        c->refused = status != HEARTH_OK;
    }
    if (status == HEARTH_OK && welcome.has_secret) {
        memcpy(c->secret, welcome.secret, sizeof c->secret);
        c->has_secret = true;
    }
    wipe(&welcome, sizeof welcome);
    return status == HEARTH_OK ? HEARTH_PENDING : status;
}

static int hear_roster(struct rendezvous_client *c, const uint8_t *payload, size_t len)
{
    size_t max = (size_t)c->setup->size;
    struct peer_info *members = heap_alloc(c->setup->heap, max, sizeof(struct peer_info));
    struct meeting_place place;

    if (!members)
        return HEARTH_NO_MEMORY;
    if (meeting_roster_decode(&place, members, max, payload, len) || !place_fits(c, &place, members)) {
        heap_free(members);
        return HEARTH_PROTOCOL;
    }
    members[place.rank] = c->setup->self; /* with what does not travel */
    roster_fini(&c->roster);
    c->roster = (struct roster){
        .cluster = place.cluster, .rank = (int)place.rank, .size = (int)place.size, .members = members};
    if (roster_files_check(&c->roster, c->setup->channels, &c->objection) != HEARTH_OK)
        return out_object(c) ? HEARTH_PENDING : HEARTH_PROTOCOL;
    uint8_t ready[8];
    size_t ready_len = meeting_cluster_encode(place.cluster, ready, sizeof ready);
    return message_queue_put(&c->out, MEETING_READY, ready, ready_len) ? HEARTH_PENDING : HEARTH_PROTOCOL;
}

static int hear_go(const struct rendezvous_client *c, const uint8_t *payload, size_t len)
{
    uint64_t cluster;

    if (!c->roster.members || meeting_cluster_decode(&cluster, payload, len) != HEARTH_OK)
        return HEARTH_PROTOCOL;
    return cluster == c->roster.cluster ? HEARTH_OK : HEARTH_PROTOCOL;
}

static int hear(struct rendezvous_client *c, struct error *error)
{
    const uint8_t *payload = c->in.payload;
    size_t len = c->in.header.len;
    struct error refusal;

    switch (c->in.header.kind) {
    case MEETING_WELCOME:
        return hear_welcome(c, payload, len, error);
    case MEETING_ROSTER:
        return hear_roster(c, payload, len);
    case MEETING_GO:
        return hear_go(c, payload, len);
    default:
        if (error_decode(&refusal, payload, len) != HEARTH_OK)
            return HEARTH_PROTOCOL;
        c->refused = true;
        *error = refusal;
        return refusal.status;
    }
}

int rendezvous_client_input(struct rendezvous_client *c, const void *bytes, size_t len, struct error *error)
{
    struct reader in = reader_of(bytes, len);
    const char *what = "";
    int status = HEARTH_PENDING;

    while (status == HEARTH_PENDING && reader_left(&in) > 0) {
        status = message_reader_feed(&c->in, &in, &what);
        if (status == HEARTH_PENDING)
            return status;
        if (status == HEARTH_OK) {
            what = "a message that does not fit";
            status = hear(c, error);
        }
        in_wipe(c);
        message_reader_next(&c->in);
    }
    if (status == HEARTH_NO_MEMORY && !c->refused)
        return error_set(error, status, RANK_NONE, "rendezvous: no memory for the roster of %d members",
                         c->setup->size);
    if (status == HEARTH_PROTOCOL && !c->refused)
        return error_because(error, HEARTH_REASON_NOT_HEARTH, status, RANK_NONE,
                             "what answers there is not a rendezvous of Hearth (%s)", what);
    return status;
}
