/* SPDX-License-Identifier: Apache-2.0 */
/* Records from anybody: any bytes harm nothing, and no forged record opens. What lies behind the tag is
 * reached by sealing bytes of the input with the right key: what comes out is compared with RFC 8446.
 *
 * The input is a list: a length (2 bytes, little-endian), what it is (1 byte: 0 a record as it stands, 1 what
 * is to be sealed: data, type, padding), its bytes. */
#include <stdlib.h>
#include <string.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "core/types.h"
#include "security/records.h"

#define TAG_LEN   16
#define NONCE_LEN 12

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* The other end, written anew. */
struct peer {
    uint8_t secret[RECORD_SECRET_LEN];
    uint8_t sequence; /* few records come */
};

static void expand(const uint8_t *secret, const char *label, uint8_t *target, size_t len)
{
    char info[64] = {0, (char)len, (char)(6 + strlen(label)), 't', 'l', 's', '1', '3', ' '};
    memcpy(info + 9, label, strlen(label));
    gnutls_datum_t key = {(uint8_t *)(uintptr_t)secret, RECORD_SECRET_LEN};
    gnutls_datum_t text = {(uint8_t *)info, (unsigned)(10 + strlen(label))};
    if (gnutls_hkdf_expand(GNUTLS_MAC_SHA256, &key, &text, target, len) != 0)
        abort();
}

static size_t peer_seal(struct peer *peer, const uint8_t *inner, size_t len, uint8_t *record)
{
    uint8_t key[16], nonce[NONCE_LEN];
    gnutls_datum_t key_of = {key, sizeof key};
    gnutls_aead_cipher_hd_t cipher;
    size_t sealed = len + TAG_LEN;
    expand(peer->secret, "key", key, sizeof key);
    expand(peer->secret, "iv", nonce, sizeof nonce);
    nonce[NONCE_LEN - 1] ^= peer->sequence++;
    memcpy(record, (uint8_t[]){23, 3, 3, (uint8_t)(sealed >> 8), (uint8_t)sealed}, RECORD_HEADER_LEN);
    if (gnutls_aead_cipher_init(&cipher, GNUTLS_CIPHER_AES_128_GCM, &key_of) != 0 ||
        gnutls_aead_cipher_encrypt(cipher, nonce, sizeof nonce, record, RECORD_HEADER_LEN, TAG_LEN, inner,
                                   len, record + RECORD_HEADER_LEN, &sealed) != 0)
        abort();
    gnutls_aead_cipher_deinit(cipher);
    return RECORD_HEADER_LEN + sealed;
}

/* What a receiver has to say to it; changes the keys where it has to. */
static ssize_t expected(struct peer *peer, const uint8_t *inner, size_t len)
{
    if (len > RECORD_DATA_MAX + 1)
        return HEARTH_PROTOCOL;
    while (len > 0 && inner[len - 1] == 0)
        len--;
    if (len == 0)
        return HEARTH_PROTOCOL;
    uint8_t type = inner[--len];
    if (type == 23)
        return (ssize_t)len;
    if (type == 21 && len == 2)
        return HEARTH_PEER_LOST;
    if (type != 22 || len != 5 || memcmp(inner, "\x18\0\0\1", 4) != 0 || inner[4] > 1)
        return HEARTH_PROTOCOL;
    uint8_t next[RECORD_SECRET_LEN];
    expand(peer->secret, "traffic upd", next, sizeof next);
    memcpy(peer->secret, next, sizeof next);
    peer->sequence = 0;
    return 0;
}

/* In blocks of just the right size, so that a sanitizer sees a byte too many. */
static ssize_t open_copy(struct records *records, const uint8_t *record, size_t len, const uint8_t *inner)
{
    uint8_t *copy = malloc(len), *target = malloc(len - RECORD_EXTRA + 1);
    if (!copy || !target)
        abort();
    memcpy(copy, record, len);
    ssize_t n = records_open_one(records, copy, len, target);
    if (n > 0 && (!inner || memcmp(target, inner, (size_t)n) != 0))
        abort();
    free(copy);
    free(target);
    return n;
}

static bool open_raw(struct records *records, const uint8_t *bytes, size_t len)
{
    size_t whole = len >= RECORD_HEADER_LEN ? records_length(bytes) : 0;
    if (whole > RECORD_MAX || (whole > 0 && whole < RECORD_EXTRA))
        abort();
    if (whole == 0 || whole > len) /* a transport waits for the rest, or ends */
        return false;
    if (open_copy(records, bytes, whole, NULL) != HEARTH_PROTOCOL)
        abort();
    return true;
}

static bool open_sealed(struct records *records, struct peer *peer, const uint8_t *inner, size_t len,
                        bool bad)
{
    static uint8_t record[RECORD_MAX];
    if (len == 0 || len > RECORD_MAX - RECORD_HEADER_LEN - TAG_LEN)
        return bad;
    size_t sealed = peer_seal(peer, inner, len, record);
    ssize_t want = bad ? HEARTH_PROTOCOL : expected(peer, inner, len);
    if (open_copy(records, record, sealed, inner) != want)
        abort();
    return want < 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct records_start start = {.in_secret = {1}};
    struct peer peer = {.secret = {1}};
    struct heap heap;
    bool bad = false;
    heap_init(&heap, 0);
    struct records *records = records_open_at(&heap, &start);
    if (!records)
        abort();
    for (int count = 0; len >= 3 && count < 100; count++) {
        size_t part = bytes[0] | (size_t)bytes[1] << 8;
        bool sealed = bytes[2] & 1;
        bytes += 3;
        len -= 3;
        part = part < len ? part : len;
        bad = sealed ? open_sealed(records, &peer, bytes, part, bad) : open_raw(records, bytes, part) || bad;
        bytes += part;
        len -= part;
    }
    records_close(records);
    if (heap.blocks != 0)
        abort();
    return 0;
}
