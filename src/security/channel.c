/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds whole records to GnuTLS, and judges what comes of it: handshake, proofs, messages. */
#include "security/channel.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include <gnutls/gnutls.h>

#include "security/proof.h"
#include "security/records.h"
#include "security/vault.h"

#define EARLY_RECORD_MAX 4096u /* behind the header, before the proof */
#define LATE_RECORD_MAX  (RECORD_MAX - RECORD_HEADER_LEN)
#define EARLY_OUT        2048u /* our side of a handshake has below 1 KiB */
#define OUT_MAX          (4 * CHANNEL_MESSAGE_MAX)
#define PLAIN_MAX        (4 * CHANNEL_MESSAGE_MAX)
#define SEAL_ROOM        64u /* what a record has more, and a change of keys before it */

enum { TLS_ALERT = 21, TLS_HANDSHAKE = 22, TLS_DATA = 23 };

enum channel_stage {
    STAGE_TLS,   /* the TLS handshake */
    STAGE_PROOF, /* the peer's proof is awaited */
    STAGE_READY,
    STAGE_OVER /* `failure` says why */
};

/* Bytes from `taken` to `len` are in use. */
struct channel_buffer {
    uint8_t *bytes;
    size_t room, taken, len;
};

struct channel {
    struct session_setup setup;
    gnutls_session_t session;
    struct record_secrets secrets; /* for records_open */
    enum channel_stage stage;
    bool overflow;      /* more was to be sent than there is room for */
    size_t early_bytes; /* given before the proof */
    struct identity peer;
    bool peer_known;
    struct channel_buffer in;    /* one record, as far as it has come */
    struct channel_buffer out;   /* for the peer */
    struct channel_buffer plain; /* what came out of records, for channel_recv */
    struct error failure;        /* also why our callbacks turned the peer away, before the stage is over */
};

/* ---- buffers ---- */

static bool buffer_grow(struct heap *heap, struct channel_buffer *buffer, size_t room)
{
    uint8_t *bytes;

    if (buffer->room >= room)
        return true;
    bytes = heap_alloc_raw(heap, 1, room);
    if (!bytes)
        return false;
    if (buffer->bytes) {
        memcpy(bytes, buffer->bytes, buffer->len);
        wipe(buffer->bytes, buffer->room);
        heap_free(buffer->bytes);
    }
    buffer->bytes = bytes;
    buffer->room = room;
    return true;
}

static void buffer_close(struct channel_buffer *buffer)
{
    if (buffer->bytes)
        wipe(buffer->bytes, buffer->room);
    heap_free(buffer->bytes);
}

/* Moves what is in use to the front. */
static void buffer_settle(struct channel_buffer *buffer)
{
    if (buffer->taken == 0)
        return;
    memmove(buffer->bytes, buffer->bytes + buffer->taken, buffer->len - buffer->taken);
    buffer->len -= buffer->taken;
    buffer->taken = 0;
}

/* ---- GnuTLS reads from `in` and writes to `out` ---- */

static ssize_t pull(gnutls_transport_ptr_t arg, void *target, size_t len)
{
    struct channel *channel = arg;
    size_t left = channel->in.len - channel->in.taken;

    if (left == 0) {
        gnutls_transport_set_errno(channel->session, EAGAIN);
        return -1;
    }
    if (len > left)
        len = left;
    memcpy(target, channel->in.bytes + channel->in.taken, len);
    channel->in.taken += len;
    return (ssize_t)len;
}

static ssize_t push(gnutls_transport_ptr_t arg, const void *source, size_t len)
{
    struct channel *channel = arg;
    struct channel_buffer *out = &channel->out;

    buffer_settle(out);
    if (len > out->room - out->len) {
        channel->overflow = true;
        gnutls_transport_set_errno(channel->session, EIO);
        return -1;
    }
    memcpy(out->bytes + out->len, source, len);
    out->len += len;
    return (ssize_t)len;
}

/* ---- opening and closing ---- */

int channel_open(const struct session_setup *setup, struct channel **out, struct error *error)
{
    struct channel *c = heap_alloc(setup->heap, 1, sizeof *c);
    int status;

    if (!c || !buffer_grow(setup->heap, &c->in, RECORD_HEADER_LEN) ||
        !buffer_grow(setup->heap, &c->out, EARLY_OUT)) {
        channel_close(c);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for a connection's handshake");
    }
    c->setup = *setup;
    c->setup.refusal = &c->failure;
    status = credentials_session(&c->setup, &c->session, error);
    if (status == HEARTH_OK) {
        records_watch(c->session, &c->secrets);
        gnutls_transport_set_ptr(c->session, c);
        gnutls_transport_set_pull_function(c->session, pull);
        gnutls_transport_set_push_function(c->session, push);
        if (setup->role == CHANNEL_DIALS && gnutls_handshake(c->session) != GNUTLS_E_AGAIN)
            status = error_set(error, HEARTH_SYSTEM, RANK_NONE, "GnuTLS makes no hello");
    }
    if (status) {
        channel_close(c);
        return status;
    }
    *out = c;
    return HEARTH_OK;
}

void channel_close(struct channel *c)
{
    if (!c)
        return;
    if (c->session)
        gnutls_deinit(c->session);
    buffer_close(&c->in);
    buffer_close(&c->out);
    buffer_close(&c->plain);
    wipe(c, sizeof *c);
    heap_free(c);
}

/* ---- ends ---- */

static int fail(struct channel *c, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct channel *c, int status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)error_vset(&c->failure, status, RANK_NONE, format, args);
    va_end(args);
    c->stage = STAGE_OVER;
    return status;
}

static const char *tls_text(int code)
{
    switch (code) {
    case GNUTLS_E_UNSUPPORTED_VERSION_PACKET:
    case GNUTLS_E_NO_CIPHER_SUITES:
    case GNUTLS_E_NO_COMMON_KEY_SHARE:
        return "it offers no TLS 1.3 with the keys and suites that members have";
    case GNUTLS_E_NO_APPLICATION_PROTOCOL:
        return "it does not speak hearth/1";
    case GNUTLS_E_NO_CERTIFICATE_FOUND:
    case GNUTLS_E_CERTIFICATE_REQUIRED:
        return "it shows no certificate";
    case GNUTLS_E_DECRYPTION_FAILED:
        return "it sends a record that is forged, damaged or repeated";
    case GNUTLS_E_PUSH_ERROR:
        return "it wants a longer answer than any member needs";
    default:
        return NULL;
    }
}

/* GnuTLS gave an error: sets status and text, and sends the peer an alert unless it sent one itself. */
static int fail_tls(struct channel *c, int code)
{
    const char *text;

    if (code == GNUTLS_E_FATAL_ALERT_RECEIVED || code == GNUTLS_E_WARNING_ALERT_RECEIVED) {
        gnutls_alert_description_t alert = gnutls_alert_get(c->session);
        const char *name = gnutls_alert_get_name(alert);
        const struct alert_meaning *known = session_alert((int)alert);

        if (known) {
            (void)fail(c, HEARTH_PEER_LOST, "%s", known->text);
            c->failure.reason = known->reason;
            return HEARTH_PEER_LOST;
        }
        return fail(c, HEARTH_PEER_LOST, "it refuses us (TLS alert %d, %s)", (int)alert,
                    name ? name : "unknown");
    }
    if (code == GNUTLS_E_SESSION_EOF)
        return fail(c, HEARTH_PEER_LOST, "it closed the connection");
    if (code == GNUTLS_E_MEMORY_ERROR)
        return fail(c, HEARTH_NO_MEMORY, "no memory for TLS");
    if (!c->overflow)
        (void)gnutls_alert_send_appropriate(c->session, code);
    if (c->failure.status) {
        c->stage = STAGE_OVER;
        return c->failure.status;
    }
    text = tls_text(code);
    if (text)
        return fail(c, HEARTH_PROTOCOL, "%s", text);
    return fail(c, HEARTH_PROTOCOL, "its TLS is wrong: %s", gnutls_strerror(code));
}

/* ---- the steps ---- */

static bool transmit(struct channel *c, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    while (len > 0) { /* one record, unless the peer wants smaller ones */
        ssize_t sent = gnutls_record_send(c->session, at, len);

        if (sent <= 0)
            return false;
        at += sent;
        len -= (size_t)sent;
    }
    return true;
}

static void refuse(struct channel *c, enum proof_reason reason)
{
    uint8_t message[PROOF_LEN];

    proof_refuse(reason, message);
    (void)transmit(c, message, PROOF_LEN); /* the peer sees us close in any case */
}

/* Before any key of the secret is used for this peer. */
static int judge(struct channel *c)
{
    const struct trust_list *trust = credentials_trust(c->setup.credentials);
    enum trust_verdict verdict = trust ? trust_list_judge(trust, &c->peer.node) : TRUST_YES;
    char id[NODE_ID_SHORT];

    if (verdict == TRUST_YES)
        return HEARTH_OK;
    node_id_short(&c->peer.node, id);
    refuse(c, verdict == TRUST_REVOKED ? PROOF_REVOKED : PROOF_UNLISTED);
    c->stage = STAGE_OVER;
    return error_because(&c->failure, HEARTH_REASON_KEY_REFUSED, HEARTH_PROTOCOL, RANK_NONE, "%s: %s",
                         trust_verdict_text(verdict), id);
}

static struct proof proof_of(const struct channel *c, enum channel_role speaker)
{
    const struct identity *self = credentials_self(c->setup.credentials);
    bool dials = c->setup.role == CHANNEL_DIALS;

    return (struct proof){
        .role = speaker,
        .dialler = dials ? *self : c->peer,
        .listener = dials ? c->peer : *self,
    };
}

static int prove(struct channel *c)
{
    struct proof proof = proof_of(c, c->setup.role);
    uint8_t message[PROOF_LEN];

    if (proof_make(c->setup.credentials, c->session, &proof, message) || !transmit(c, message, PROOF_LEN))
        return fail(c, HEARTH_SYSTEM, "GnuTLS does not let us prove the secret");
    return HEARTH_OK;
}

static int step_tls(struct channel *c)
{
    int done = gnutls_handshake(c->session), status;
    const char *what;

    if (done == GNUTLS_E_AGAIN && c->setup.role == CHANNEL_LISTENS && !c->setup.admitted)
        return fail(c, HEARTH_PROTOCOL, "its hello is not in one record");
    if (done == GNUTLS_E_AGAIN)
        return HEARTH_PENDING;
    if (done)
        return fail_tls(c, done);
    if (credentials_peer(c->session, &c->peer.node, &what))
        return fail(c, HEARTH_PROTOCOL, "%s", what);
    c->peer_known = true;
    c->stage = STAGE_PROOF;
    if (c->setup.role == CHANNEL_LISTENS)
        return HEARTH_PENDING; /* its proof is on the way: a refusal could be lost if that were left unread */
    status = judge(c);
    if (status == HEARTH_OK)
        status = prove(c);
    return status == HEARTH_OK ? HEARTH_PENDING : status;
}

static int step_proof(struct channel *c)
{
    bool dials = c->setup.role == CHANNEL_DIALS;
    struct proof proof = proof_of(c, dials ? CHANNEL_LISTENS : CHANNEL_DIALS);
    uint8_t message[PROOF_LEN + 1];
    ssize_t len = gnutls_record_recv(c->session, message, sizeof message);
    int status;

    if (len == GNUTLS_E_AGAIN)
        return HEARTH_PENDING;
    if (len == 0)
        return fail(c, HEARTH_PEER_LOST, "it closed the connection before its proof");
    if (len < 0)
        return fail_tls(c, (int)len);
    if (!dials && judge(c))
        return c->failure.status;
    if (len != PROOF_LEN)
        return fail(c, HEARTH_PROTOCOL, "its proof has not %u bytes", PROOF_LEN);
    status = proof_check(c->setup.credentials, c->session, &proof, message, &c->failure);
    if (status == HEARTH_PROTOCOL)
        refuse(c, PROOF_WRONG);
    if (status) {
        c->stage = STAGE_OVER;
        return status;
    }
    c->peer = dials ? proof.listener : proof.dialler;
    if (!dials && prove(c))
        return c->failure.status;
    c->stage = STAGE_READY;
    return HEARTH_OK;
}

/* Room for len bytes, and soon for more, but not beyond the limit. */
static size_t room_for(size_t len, size_t limit)
{
    size_t room = 256;

    while (room < len)
        room *= 2;
    return room < limit ? room : limit;
}

static int step_ready(struct channel *c)
{
    struct channel_buffer *plain = &c->plain;
    size_t len_max = c->in.len - RECORD_HEADER_LEN;
    ssize_t len;

    buffer_settle(plain);
    if (plain->len + len_max > PLAIN_MAX)
        return fail(c, HEARTH_LIMIT, "messages come in and are not taken");
    if (!buffer_grow(c->setup.heap, plain, room_for(plain->len + len_max, PLAIN_MAX)))
        return fail(c, HEARTH_NO_MEMORY, "no memory for a message");
    while ((len = gnutls_record_recv(c->session, plain->bytes + plain->len, plain->room - plain->len)) > 0)
        plain->len += (size_t)len;
    if (len == GNUTLS_E_AGAIN)
        return HEARTH_OK;
    if (len == 0)
        return fail(c, HEARTH_PEER_LOST, "it closed the connection");
    return fail_tls(c, (int)len);
}

/* ---- records ---- */

static size_t record_len(const struct channel *c)
{
    return RECORD_HEADER_LEN + (size_t)(c->in.bytes[3] << 8 | c->in.bytes[4]);
}

static int check_header(struct channel *c)
{
    const uint8_t *header = c->in.bytes;
    bool ready = c->stage == STAGE_READY, first = c->early_bytes == RECORD_HEADER_LEN;
    size_t len = record_len(c) - RECORD_HEADER_LEN;
    size_t len_max = ready ? LATE_RECORD_MAX : EARLY_RECORD_MAX;

    if (header[0] < TLS_ALERT || header[0] > TLS_DATA || header[1] != 3 || header[2] > 4 || len == 0 ||
        (first && header[0] == TLS_DATA) || (ready && header[0] != TLS_DATA)) {
        if (first)
            return fail(c, HEARTH_PROTOCOL, "it speaks no TLS (are both ends plain, or neither?)");
        return fail(c, HEARTH_PROTOCOL, "it sends what is no TLS record");
    }
    if (len > len_max)
        return fail(c, HEARTH_PROTOCOL, "it sends a record of %zu bytes%s", len,
                    ready ? "" : " before it is proven");
    if (!buffer_grow(c->setup.heap, &c->in, room_for(RECORD_HEADER_LEN + len, RECORD_HEADER_LEN + len_max)))
        return fail(c, HEARTH_NO_MEMORY, "no memory for a record");
    return ready ? HEARTH_OK : HEARTH_PENDING;
}

static int step(struct channel *c)
{
    int status = c->stage == STAGE_TLS     ? step_tls(c)
                 : c->stage == STAGE_PROOF ? step_proof(c)
                                           : step_ready(c);

    if (c->stage != STAGE_OVER && c->in.taken != c->in.len)
        status = fail(c, HEARTH_PROTOCOL, "it sends more in a record than belongs there");
    c->in.taken = c->in.len = 0;
    return status;
}

size_t channel_wants(const struct channel *c)
{
    if (c->stage == STAGE_OVER)
        return 1;
    return (c->in.len < RECORD_HEADER_LEN ? RECORD_HEADER_LEN : record_len(c)) - c->in.len;
}

int channel_input(struct channel *c, const void *bytes, size_t len, struct error *error)
{
    int status = c->stage == STAGE_READY ? HEARTH_OK : HEARTH_PENDING;

    if (c->stage == STAGE_OVER || len == 0)
        goto out;
    if (len > channel_wants(c)) {
        (void)fail(c, HEARTH_INVALID, "more bytes were read than a channel wants");
        goto out;
    }
    if (c->stage != STAGE_READY)
        c->early_bytes += len;
    memcpy(c->in.bytes + c->in.len, bytes, len);
    c->in.len += len;
    if (c->early_bytes > CHANNEL_HANDSHAKE_MAX)
        status = fail(c, HEARTH_PROTOCOL, "it sends more than %u bytes before it is proven",
                      CHANNEL_HANDSHAKE_MAX);
    else if (c->in.len == RECORD_HEADER_LEN)
        status = check_header(c);
    else if (c->in.len > RECORD_HEADER_LEN && c->in.len == record_len(c))
        status = step(c);
out:
    if (c->stage != STAGE_OVER)
        return status;
    if (error)
        *error = c->failure;
    return c->failure.status;
}

struct iovec channel_output(const struct channel *c)
{
    return (struct iovec){c->out.bytes + c->out.taken, c->out.len - c->out.taken};
}

void channel_sent(struct channel *c, size_t len)
{
    assert(len <= c->out.len - c->out.taken);
    c->out.taken += len;
}

bool channel_ready(const struct channel *c)
{
    return c->stage == STAGE_READY;
}

const struct identity *channel_peer(const struct channel *c)
{
    return c->peer_known ? &c->peer : NULL;
}

/* ---- when it is ready ---- */

bool channel_send(struct channel *c, const void *bytes, size_t len)
{
    size_t room = c->out.len - c->out.taken + len + SEAL_ROOM;

    if (c->stage != STAGE_READY || len == 0 || len > CHANNEL_MESSAGE_MAX || room > OUT_MAX)
        return false;
    buffer_settle(&c->out);
    if (!buffer_grow(c->setup.heap, &c->out, room_for(room, OUT_MAX)))
        return false;
    if (transmit(c, bytes, len))
        return true;
    (void)fail(c, HEARTH_PROTOCOL, "it takes only smaller records than members send");
    return false;
}

size_t channel_recv(struct channel *c, void *target, size_t len_max)
{
    size_t left = c->plain.len - c->plain.taken, len = left < len_max ? left : len_max;

    if (len > 0)
        memcpy(target, c->plain.bytes + c->plain.taken, len);
    c->plain.taken += len;
    return len;
}

int channel_take_records(struct channel *c, struct records **out)
{
    struct records *records;

    if (c->stage != STAGE_READY || c->in.len > 0 || c->out.len > c->out.taken ||
        c->plain.len > c->plain.taken)
        return HEARTH_PENDING;
    records = records_open(c->setup.heap, c->session);
    c->session = NULL;
    channel_close(c);
    if (!records)
        return HEARTH_NO_MEMORY;
    *out = records;
    return HEARTH_OK;
}
