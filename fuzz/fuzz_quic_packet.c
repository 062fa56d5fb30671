/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams of strangers into an endpoint that waits for somebody: no crash, bounded memory, nobody gets in.
 *
 * The input is a list of datagrams: kind (1 byte), length (2), bytes. Kind 0: as they are. Others are made
 * into an Initial packet with keys as QUIC prescribes, so that what is inside is reached: kind 1 as its
 * frames, kind 2 as bytes of the TLS handshake, behind those that came before. */
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "transport/quic_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#if !defined(HEARTH_QUIC)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    (void)bytes;
    (void)len;
    return 0;
}

#else

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#define MEMORY_MAX    (16u << 20)
#define DATAGRAMS_MAX 64
#define PACKET_LEN    1200u
#define HEADER_LEN    28u /* flags, version, both ids, no token, length, number */
#define TAG_LEN       16u
#define PLAIN_MAX     (PACKET_LEN - HEADER_LEN - TAG_LEN)
#define FRAME_CRYPTO  6u

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* ---- packets as QUIC wants them ---- */

struct keys {
    uint8_t key[16], iv[12], mask_key[16];
};

static void expand(const uint8_t secret[32], const char *label, uint8_t *target, size_t len)
{
    uint8_t info[64] = {0, (uint8_t)len, (uint8_t)(6 + strlen(label)), 't', 'l', 's', '1', '3', ' '};
    memcpy(info + 9, label, strlen(label));
    gnutls_datum_t key = {(unsigned char *)(uintptr_t)secret, 32};
    gnutls_datum_t text = {info, (unsigned)(10 + strlen(label))};
    must(gnutls_hkdf_expand(GNUTLS_MAC_SHA256, &key, &text, target, len) == 0);
}

/* RFC 9001, 5.2: everybody can make these. */
static void initial_keys(const uint8_t *id, size_t len, struct keys *keys)
{
    static uint8_t salt[] = {0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
                             0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a};
    uint8_t first[32], client[32];
    gnutls_datum_t key = {(unsigned char *)(uintptr_t)id, (unsigned)len}, with = {salt, sizeof salt};
    must(gnutls_hkdf_extract(GNUTLS_MAC_SHA256, &key, &with, first) == 0);
    expand(first, "client in", client, sizeof client);
    expand(client, "quic key", keys->key, sizeof keys->key);
    expand(client, "quic iv", keys->iv, sizeof keys->iv);
    expand(client, "quic hp", keys->mask_key, sizeof keys->mask_key);
}

static void mask_header(const struct keys *keys, uint8_t packet[PACKET_LEN])
{
    gnutls_cipher_hd_t cipher;
    gnutls_datum_t key = {(unsigned char *)(uintptr_t)keys->mask_key, 16};
    uint8_t zero[16] = {0}, mask[16];
    gnutls_datum_t iv = {zero, sizeof zero};
    must(gnutls_cipher_init(&cipher, GNUTLS_CIPHER_AES_128_CBC, &key, &iv) == 0);
    must(gnutls_cipher_encrypt2(cipher, packet + HEADER_LEN + 2, 16, mask, sizeof mask) == 0);
    gnutls_cipher_deinit(cipher);
    packet[0] ^= mask[0] & 0x0f;
    packet[HEADER_LEN - 2] ^= mask[1];
    packet[HEADER_LEN - 1] ^= mask[2];
}

static void packet_make(uint8_t packet[PACKET_LEN], unsigned number, const uint8_t plain[PLAIN_MAX])
{
    static const uint8_t id[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    size_t rest = PACKET_LEN - HEADER_LEN + 2, sealed = PACKET_LEN - HEADER_LEN;
    struct keys keys;
    uint8_t *at = packet;
    *at++ = 0xc1; /* Initial, a number of two bytes */
    memcpy(at, "\0\0\0\1\x08", 5);
    memcpy(at + 5, id, 8);
    at += 13;
    *at++ = 8;
    memcpy(at, "stranger", 8);
    at += 8;
    *at++ = 0; /* no token */
    *at++ = (uint8_t)(0x40 | rest >> 8);
    *at++ = (uint8_t)rest;
    *at++ = (uint8_t)(number >> 8);
    *at++ = (uint8_t)number;
    must(at == packet + HEADER_LEN);
    initial_keys(id, sizeof id, &keys);
    keys.iv[10] ^= (uint8_t)(number >> 8);
    keys.iv[11] ^= (uint8_t)number;
    gnutls_aead_cipher_hd_t cipher;
    gnutls_datum_t key = {keys.key, sizeof keys.key};
    must(gnutls_aead_cipher_init(&cipher, GNUTLS_CIPHER_AES_128_GCM, &key) == 0);
    must(gnutls_aead_cipher_encrypt(cipher, keys.iv, sizeof keys.iv, packet, HEADER_LEN, TAG_LEN, plain,
                                    PLAIN_MAX, at, &sealed) == 0);
    gnutls_aead_cipher_deinit(cipher);
    mask_header(&keys, packet);
}

/* ---- the endpoint ---- */

struct world {
    struct heap heap;
    struct credentials *credentials;
    struct quic *quic;
    struct quic_peer peer;
    struct sock_addr from;
    unsigned packets;
    size_t handshake; /* bytes of it that were sent */
};

static void world_open(struct world *w)
{
    struct credentials_setup setup = {.heap = &w->heap, .instance = 1};
    uint8_t secret[SECRET_LEN];
    struct error error;
    memset(secret, 7, sizeof secret);
    heap_init(&w->heap, 0);
    must(node_key_fresh(&setup.key, &error) == HEARTH_OK);
    must(secret_from_bytes(secret, "fuzz", &setup.secret, &error) == HEARTH_OK);
    must(credentials_open(&setup, &w->credentials, &error) == HEARTH_OK);
    struct quic_setup quic = {.heap = &w->heap, .credentials = w->credentials};
    must(sock_addr_parse("127.0.0.1", 0, &quic.local) == HEARTH_OK);
    must(quic_open(&quic, &w->quic, &error) == HEARTH_OK);
    must(sock_addr_parse("127.0.0.1:1", 0, &w->from) == HEARTH_OK);
    w->peer = (struct quic_peer){.identity = {.instance = 2}, .streams = 2};
    quic_join_begin(w->quic, &w->peer, 1);
}

static void world_close(struct world *w)
{
    must(w->peer.count == 0);
    quic_join_end(w->quic);
    must(w->quic->half_open == 0);
    quic_close(w->quic);
    credentials_close(w->credentials);
    must(w->heap.blocks == 0);
}

static void say(struct world *w, uint8_t kind, const uint8_t *bytes, size_t len)
{
    uint8_t packet[PACKET_LEN], plain[PLAIN_MAX] = {0}; /* zeros are padding */
    if (kind == 0) {
        quic_deliver(w->quic, bytes, len, &w->from, clock_real());
        return;
    }
    size_t head = kind == 2 ? 5 : 0;
    len = len < PLAIN_MAX - head ? len : PLAIN_MAX - head;
    if (kind == 2) {
        uint8_t frame[5] = {FRAME_CRYPTO, (uint8_t)(0x40 | (w->handshake >> 8 & 0x3f)), (uint8_t)w->handshake,
                            (uint8_t)(0x40 | len >> 8), (uint8_t)len};
        memcpy(plain, frame, sizeof frame);
        w->handshake += len;
    }
    memcpy(plain + head, bytes, len);
    packet_make(packet, w->packets++, plain);
    quic_deliver(w->quic, packet, sizeof packet, &w->from, clock_real());
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct world w = {0};
    world_open(&w);
    for (int i = 0; i < DATAGRAMS_MAX && len >= 3; i++) {
        uint8_t kind = bytes[0] % 3;
        size_t size = (size_t)bytes[1] | (size_t)bytes[2] << 8;
        size = size < len - 3 ? size : len - 3;
        if (size > 0)
            say(&w, kind, bytes + 3, size);
        bytes += 3 + size;
        len -= 3 + size;
        quic_join_step(w.quic, clock_real(), NEVER_NS);
        must(w.heap.bytes < MEMORY_MAX);
    }
    world_close(&w);
    return 0;
}

#endif
