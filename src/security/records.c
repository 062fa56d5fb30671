/* SPDX-License-Identifier: Apache-2.0 */
/* The record layer of TLS 1.3 (RFC 8446, chapter 5), from and to any memory.
 *
 *     17 03 03 length | encrypted: data, type, zeros | tag
 *
 * GnuTLS's own record layer copies: a record into a buffer, then out of it. Here the cipher itself reads the
 * user's pieces and writes the buffer of the socket, and back. It takes several pieces, if all but the last
 * are a multiple of its block; what lies across a border goes through a block on the stack. */
#include "security/records.h"

#include <assert.h>
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "core/types.h"
#include "security/vault.h"

#define TAG_LEN     16u
#define NONCE_LEN   12u
#define KEY_LEN_MAX 32u
#define GRAIN       64u /* a multiple of the block of either cipher */

/* Records under one key. AES-GCM may have 2^24.5 (RFC 8446, 5.5). */
#define KEY_RECORDS_MAX (UINT64_C(1) << 23)

enum record_type { TYPE_ALERT = 21, TYPE_HANDSHAKE = 22, TYPE_DATA = 23 };

static_assert(RECORD_EXTRA == RECORD_HEADER_LEN + 1 + TAG_LEN, "header, type, tag");

/* One direction. */
struct cipher_lane {
    gnutls_cipher_hd_t cipher;
    uint64_t sequence; /* of the next record under this key */
    uint8_t *secret;   /* in the vault: [RECORD_SECRET_LEN] */
    uint8_t iv[NONCE_LEN];
};

struct records {
    gnutls_cipher_algorithm_t algorithm;
    struct cipher_lane out, in;
    uint8_t *secrets; /* both, in the vault */
    bool asked;       /* the peer wants us to change our keys too */
    bool bad;         /* something did not belong here */
};

/* ---- keys ---- */

/* HKDF-Expand-Label of RFC 8446, 7.1, without context. */
static bool expand(const uint8_t *secret, const char *label, uint8_t *target, size_t len)
{
    uint8_t info[32] = {0, (uint8_t)len, (uint8_t)(6 + strlen(label)), 't', 'l', 's', '1', '3', ' '};
    size_t label_len = strlen(label);
    gnutls_datum_t key = {(uint8_t *)(uintptr_t)secret, RECORD_SECRET_LEN};
    gnutls_datum_t text = {info, (unsigned)(label_len + 10)};
    assert(label_len + 10 <= sizeof info);
    memcpy(info + 9, label, label_len);
    return gnutls_hkdf_expand(GNUTLS_MAC_SHA256, &key, &text, target, len) == 0;
}

/* A new cipher from the lane's secret. */
static bool lane_key(struct cipher_lane *lane, gnutls_cipher_algorithm_t algorithm)
{
    uint8_t key[KEY_LEN_MAX];
    size_t len = gnutls_cipher_get_key_size(algorithm);
    gnutls_cipher_hd_t cipher = NULL;
    gnutls_datum_t key_of = {key, (unsigned)len}, iv_of = {lane->iv, NONCE_LEN};
    bool made = expand(lane->secret, "key", key, len) && expand(lane->secret, "iv", lane->iv, NONCE_LEN) &&
                gnutls_cipher_init(&cipher, algorithm, &key_of, &iv_of) == 0;
    wipe(key, sizeof key);
    if (!made)
        return false;
    if (lane->cipher)
        gnutls_cipher_deinit(lane->cipher);
    lane->cipher = cipher;
    return true;
}

static bool lane_update(struct cipher_lane *lane, gnutls_cipher_algorithm_t algorithm)
{
    uint8_t next[RECORD_SECRET_LEN];
    bool made = expand(lane->secret, "traffic upd", next, sizeof next);
    memcpy(lane->secret, next, sizeof next);
    wipe(next, sizeof next);
    lane->sequence = 0;
    return made && lane_key(lane, algorithm);
}

/* The record's nonce and its header, which is authenticated, enter the cipher. */
static bool lane_begin(const struct cipher_lane *lane, const uint8_t *header)
{
    uint8_t nonce[NONCE_LEN];
    memcpy(nonce, lane->iv, sizeof nonce);
    for (unsigned i = 0; i < 8; i++)
        nonce[NONCE_LEN - 1 - i] ^= (uint8_t)(lane->sequence >> 8 * i);
    gnutls_cipher_set_iv(lane->cipher, nonce, sizeof nonce);
    return gnutls_cipher_add_auth(lane->cipher, header, RECORD_HEADER_LEN) == 0;
}

/* ---- beginning and end ---- */

static int note_secret(gnutls_session_t session, const char *label, const gnutls_datum_t *secret)
{
    struct record_secrets *secrets = gnutls_session_get_ptr(session);
    if (secret->size != RECORD_SECRET_LEN) /* another hash, which records_open refuses */
        return 0;
    if (strcmp(label, "CLIENT_TRAFFIC_SECRET_0") == 0) {
        memcpy(secrets->client, secret->data, RECORD_SECRET_LEN);
        secrets->have_client = true;
    } else if (strcmp(label, "SERVER_TRAFFIC_SECRET_0") == 0) {
        memcpy(secrets->server, secret->data, RECORD_SECRET_LEN);
        secrets->have_server = true;
    }
    return 0;
}

void records_watch(struct gnutls_session_int *session, struct record_secrets *secrets)
{
    *secrets = (struct record_secrets){0};
    gnutls_session_set_ptr(session, secrets);
    gnutls_session_set_keylog_function(session, note_secret);
}

/* Whether the session uses the key of this secret in this direction; how far it has come. */
static bool uses_secret(gnutls_session_t session, bool read, const uint8_t *secret, uint64_t *sequence)
{
    gnutls_datum_t key = {NULL, 0};
    uint8_t count[8], derived[KEY_LEN_MAX];
    if (gnutls_record_get_state(session, read, NULL, NULL, &key, count) != 0 || key.size > sizeof derived)
        return false;
    bool same = expand(secret, "key", derived, key.size) && gnutls_memcmp(derived, key.data, key.size) == 0;
    wipe(derived, sizeof derived);
    *sequence = 0;
    for (int i = 0; i < 8; i++)
        *sequence = *sequence << 8 | count[i];
    return same;
}

/* Which end we are shows in the keys that are in use. */
static bool start_of(gnutls_session_t session, struct records_start *start)
{
    const struct record_secrets *secrets = gnutls_session_get_ptr(session);
    gnutls_cipher_algorithm_t algorithm = gnutls_cipher_get(session);
    if (gnutls_protocol_get_version(session) != GNUTLS_TLS1_3 || !secrets || !secrets->have_client ||
        !secrets->have_server)
        return false;
    if (algorithm != GNUTLS_CIPHER_AES_128_GCM && algorithm != GNUTLS_CIPHER_CHACHA20_POLY1305)
        return false;
    start->chacha = algorithm == GNUTLS_CIPHER_CHACHA20_POLY1305;
    bool client = uses_secret(session, false, secrets->client, &start->out_sequence);
    const uint8_t *out = client ? secrets->client : secrets->server;
    const uint8_t *in = client ? secrets->server : secrets->client;
    memcpy(start->out_secret, out, RECORD_SECRET_LEN);
    memcpy(start->in_secret, in, RECORD_SECRET_LEN);
    return uses_secret(session, false, out, &start->out_sequence) &&
           uses_secret(session, true, in, &start->in_sequence);
}

struct records *records_open(struct heap *heap, struct gnutls_session_int *session)
{
    struct records_start start;
    struct records *records = start_of(session, &start) ? records_open_at(heap, &start) : NULL;
    wipe(&start, sizeof start);
    gnutls_deinit(session);
    return records;
}

struct records *records_open_at(struct heap *heap, const struct records_start *start)
{
    struct records *records = heap_alloc(heap, 1, sizeof *records);
    if (!records)
        return NULL;
    records->secrets = vault_alloc(2 * (size_t)RECORD_SECRET_LEN);
    if (!records->secrets) {
        heap_free(records);
        return NULL;
    }
    records->algorithm = start->chacha ? GNUTLS_CIPHER_CHACHA20_POLY1305 : GNUTLS_CIPHER_AES_128_GCM;
    records->out = (struct cipher_lane){.secret = records->secrets, .sequence = start->out_sequence};
    records->in =
        (struct cipher_lane){.secret = records->secrets + RECORD_SECRET_LEN, .sequence = start->in_sequence};
    memcpy(records->out.secret, start->out_secret, RECORD_SECRET_LEN);
    memcpy(records->in.secret, start->in_secret, RECORD_SECRET_LEN);
    if (lane_key(&records->out, records->algorithm) && lane_key(&records->in, records->algorithm))
        return records;
    records_close(records);
    return NULL;
}

void records_close(struct records *records)
{
    if (!records)
        return;
    if (records->out.cipher)
        gnutls_cipher_deinit(records->out.cipher);
    if (records->in.cipher)
        gnutls_cipher_deinit(records->in.cipher);
    vault_free(records->secrets);
    wipe(records, sizeof *records);
    heap_free(records);
}

/* ---- out ---- */

/* A record being written. */
struct pour {
    gnutls_cipher_hd_t cipher;
    uint8_t *target;
    bool bad;
    size_t carried; /* bytes across a border between pieces */
    uint8_t carry[GRAIN];
};

static void pour_block(struct pour *pour, const void *bytes, size_t len)
{
    if (len > 0 && gnutls_cipher_encrypt2(pour->cipher, bytes, len, pour->target, len) != 0)
        pour->bad = true;
    pour->target += len;
}

static void pour_bytes(struct pour *pour, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        size_t now;
        if (pour->carried == 0 && len >= GRAIN) {
            now = len - len % GRAIN;
            pour_block(pour, bytes, now);
        } else {
            now = len < GRAIN - pour->carried ? len : GRAIN - pour->carried;
            memcpy(pour->carry + pour->carried, bytes, now);
            pour->carried = (pour->carried + now) % GRAIN;
            if (pour->carried == 0)
                pour_block(pour, pour->carry, GRAIN);
        }
        bytes += now;
        len -= now;
    }
}

static size_t seal(struct records *records, enum record_type type, const struct iovec *pieces, size_t len,
                   uint8_t *target)
{
    struct cipher_lane *lane = &records->out;
    struct pour pour = {.cipher = lane->cipher, .target = target + RECORD_HEADER_LEN};
    size_t sealed = len + 1 + TAG_LEN;
    uint8_t last = (uint8_t)type;
    target[0] = TYPE_DATA;
    target[1] = target[2] = 3;
    target[3] = (uint8_t)(sealed >> 8);
    target[4] = (uint8_t)sealed;
    if (!lane_begin(lane, target))
        return 0;
    for (size_t left = len; left > 0; pieces++) {
        size_t now = pieces->iov_len < left ? pieces->iov_len : left;
        pour_bytes(&pour, pieces->iov_base, now);
        left -= now;
    }
    pour_bytes(&pour, &last, 1);
    pour_block(&pour, pour.carry, pour.carried);
    if (pour.bad || gnutls_cipher_tag(lane->cipher, pour.target, TAG_LEN) != 0)
        return 0;
    lane->sequence++;
    return RECORD_HEADER_LEN + sealed;
}

/* Tells the peer that our keys change, and changes them. */
static size_t seal_update(struct records *records, uint8_t *target)
{
    uint8_t message[5] = {24, 0, 0, 1, 0}; /* key_update, update_not_requested */
    struct iovec piece = {message, sizeof message};
    size_t len = seal(records, TYPE_HANDSHAKE, &piece, sizeof message, target);
    assert(len <= RECORD_UPDATE_LEN);
    if (len == 0 || !lane_update(&records->out, records->algorithm))
        return 0;
    records->asked = false;
    return len;
}

size_t records_seal(struct records *records, const struct iovec *pieces, int count, size_t len,
                    uint8_t *target)
{
    size_t update = 0;
    (void)count;
    assert(len >= 1 && len <= RECORD_DATA_MAX && count >= 1);
    if (records->asked || records->out.sequence >= KEY_RECORDS_MAX) {
        update = seal_update(records, target);
        if (update == 0)
            return 0;
    }
    size_t sealed = seal(records, TYPE_DATA, pieces, len, target + update);
    return sealed > 0 ? update + sealed : 0;
}

size_t records_bye(struct records *records, uint8_t *target)
{
    uint8_t message[2] = {1, 0}; /* warning, close_notify */
    struct iovec piece = {message, sizeof message};
    return seal(records, TYPE_ALERT, &piece, sizeof message, target);
}

/* ---- in ---- */

size_t records_length(const uint8_t header[static RECORD_HEADER_LEN])
{
    size_t sealed = (size_t)header[3] << 8 | header[4];
    if (header[0] != TYPE_DATA || header[1] != 3 || header[2] != 3 || sealed < 1 + TAG_LEN)
        return 0;
    return RECORD_HEADER_LEN + sealed <= RECORD_MAX ? RECORD_HEADER_LEN + sealed : 0;
}

/* Decrypts data and type; the type does not fit into the target any more. False: forged. */
static bool unseal(struct cipher_lane *lane, const uint8_t *record, size_t data_len, uint8_t *target,
                   uint8_t *type)
{
    const uint8_t *source = record + RECORD_HEADER_LEN;
    size_t whole = data_len - data_len % GRAIN, rest = data_len - whole + 1;
    uint8_t last[GRAIN], tag[TAG_LEN];
    if (!lane_begin(lane, record))
        return false;
    if (whole > 0 && gnutls_cipher_decrypt2(lane->cipher, source, whole, target, whole) != 0)
        return false;
    if (gnutls_cipher_decrypt2(lane->cipher, source + whole, rest, last, rest) != 0 ||
        gnutls_cipher_tag(lane->cipher, tag, TAG_LEN) != 0)
        return false;
    if (gnutls_memcmp(tag, source + data_len + 1, TAG_LEN) != 0)
        return false;
    memcpy(target + whole, last, rest - 1);
    *type = last[rest - 1];
    lane->sequence++;
    return true;
}

/* The only message that may come after the handshake, and alone in its record: its end is where the keys
 * change. */
static ssize_t take_handshake(struct records *records, const uint8_t *message, size_t len)
{
    static const uint8_t update[4] = {24, 0, 0, 1};
    if (len != 5 || memcmp(message, update, sizeof update) != 0 || message[4] > 1)
        return HEARTH_PROTOCOL;
    if (!lane_update(&records->in, records->algorithm))
        return HEARTH_NO_MEMORY;
    records->asked = records->asked || message[4] == 1;
    return 0;
}

/* Any alert ends the connection; one that is not close_notify only says why. */
static ssize_t take_content(struct records *records, uint8_t type, const uint8_t *bytes, size_t len)
{
    switch (type) {
    case TYPE_DATA:
        return (ssize_t)len;
    case TYPE_HANDSHAKE:
        return take_handshake(records, bytes, len);
    case TYPE_ALERT:
        return len == 2 ? HEARTH_PEER_LOST : HEARTH_PROTOCOL;
    default:
        return HEARTH_PROTOCOL;
    }
}

ssize_t records_open_one(struct records *records, uint8_t *record, size_t len, void *target)
{
    uint8_t type = 0, *bytes = target;
    ssize_t status = HEARTH_PROTOCOL;
    if (!records->bad && len >= RECORD_EXTRA && records_length(record) == len &&
        len <= RECORD_DATA_MAX + RECORD_EXTRA) {
        size_t data_len = len - RECORD_EXTRA;
        if (unseal(&records->in, record, data_len, bytes, &type)) {
            while (type == 0 && data_len > 0) /* padding */
                type = bytes[--data_len];
            status = take_content(records, type, bytes, data_len);
        }
    }
    records->bad = status < 0;
    return status;
}
