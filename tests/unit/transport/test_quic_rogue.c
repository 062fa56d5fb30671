/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer may say inside of QUIC when its handshake is complete, for which a knock that was overheard is
 * enough: it ends its own line, and nothing else. */
#include "os/clock.h"
#include "os/host.h"

#include "quic_pair.h"
#include "support/suite.h"

#if !defined(HEARTH_QUIC)

int main(void)
{
    return 77;
}

#else

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#define ENDLESS (SIZE_MAX / 2)

static struct quic_pair pair;

/* The library's own end of a side's only line. */
static ngtcp2_conn *native(int side)
{
    struct quic_line *line = pair.sides[side].quic->lines[0];
    ngtcp2_crypto_conn_ref *ref = gnutls_session_get_ptr(quic_engine_session(line->engine));
    return ref->get_conn(ref);
}

/* Side `from` says these bytes in TLS, behind its handshake: the other one is done with it. */
static void say_late(int from, const uint8_t *bytes, size_t len)
{
    pair_open_joined(&pair, &(struct pair_options){0});
    assert_int_equal(
        ngtcp2_conn_submit_crypto_data(native(from), NGTCP2_CRYPTO_LEVEL_APPLICATION, bytes, len), 0);
    struct traffic list[2];
    for (int i = 0; i < 2; i++)
        list[i] = (struct traffic){.conn = pair.sides[i].peer.conns[1],
                                   .seed_out = (uint64_t)i,
                                   .seed_in = (uint64_t)(1 - i),
                                   .in = ENDLESS,
                                   .out = ENDLESS};
    uint64_t until_ns = clock_real() + PATIENCE_NS;
    while (list[1 - from].lost == 0 && clock_real() < until_ns) {
        bool moved = traffic_move(&list[0]);
        if (!traffic_move(&list[1]) && !moved)
            pair_rest(&pair);
    }
    assert_int_equal(list[1 - from].lost, HEARTH_PEER_LOST);
    quic_pair_close(&pair);
}

TEST(a_change_of_keys_in_tls_ends_the_line)
{
    static const uint8_t update[] = {24, 0, 0, 1, 0}, update_and_ask[] = {24, 0, 0, 1, 1};
    for (int from = 0; from < 2; from++) {
        say_late(from, update, sizeof update);
        say_late(from, update_and_ask, sizeof update_and_ask);
    }
}

TEST(other_words_in_tls_end_the_line)
{
    static const uint8_t ticket[] = {4, 0, 0, 4, 0, 0, 0, 0}, half[] = {24, 0};
    for (int from = 0; from < 2; from++) {
        say_late(from, ticket, sizeof ticket);
        say_late(from, half, sizeof half);
    }
}

/* ---- frames that no member sends ---- */

#define SECRET_BYTES 32
#define NUMBER       (1u << 20) /* of the first packet that is forged: above those that were sent */
#define NUMBER_LEN   4u
#define SEAL_LEN     16u
#define PLAIN_MAX    256u

static uint8_t traffic_secret[SECRET_BYTES]; /* of who dials */

static int note_secret(gnutls_session_t session, const char *label, const gnutls_datum_t *secret)
{
    if (strcmp(label, "CLIENT_TRAFFIC_SECRET_0") == 0)
        memcpy(traffic_secret, secret->data, SECRET_BYTES);
    return 0;
}

static void expand(const char *label, uint8_t *target, size_t len)
{
    uint8_t info[32] = {0, (uint8_t)len, (uint8_t)(6 + strlen(label)), 't', 'l', 's', '1', '3', ' '};
    gnutls_datum_t key = {traffic_secret, SECRET_BYTES}, text = {info, (unsigned)(10 + strlen(label))};
    memcpy(info + 9, label, strlen(label));
    assert_int_equal(gnutls_hkdf_expand(GNUTLS_MAC_SHA256, &key, &text, target, len), 0);
}

/* The bits that hide a packet's number (RFC 9001, 5.4.3). */
static void mask_of(uint8_t *sample, uint8_t mask[16])
{
    uint8_t key[16], zero[16] = {0};
    gnutls_datum_t key_of = {key, sizeof key}, zero_of = {zero, sizeof zero};
    gnutls_cipher_hd_t cipher;
    expand("quic hp", key, sizeof key);
    assert_int_equal(gnutls_cipher_init(&cipher, GNUTLS_CIPHER_AES_128_CBC, &key_of, &zero_of), 0);
    assert_int_equal(gnutls_cipher_encrypt2(cipher, sample, 16, mask, 16), 0);
    gnutls_cipher_deinit(cipher);
}

/* Side 1 says these frames to side 0, in a packet as the one that dials would make it. */
static void say_frames(uint32_t number, const uint8_t *frames, size_t len)
{
    const ngtcp2_cid *to = ngtcp2_conn_get_dcid(native(1));
    uint8_t packet[1 + QUIC_ID_MAX + NUMBER_LEN + PLAIN_MAX + SEAL_LEN] = {0x43}, key[16], iv[12], mask[16];
    uint8_t *at = packet + 1 + to->datalen, *body = at + NUMBER_LEN;
    size_t sealed = len + SEAL_LEN;
    gnutls_datum_t key_of = {key, sizeof key};
    gnutls_aead_cipher_hd_t cipher;
    struct sock_addr from = quic_addr(pair.sides[1].quic);
    assert_true(len <= PLAIN_MAX);
    expand("quic key", key, sizeof key);
    expand("quic iv", iv, sizeof iv);
    memcpy(packet + 1, to->data, to->datalen);
    for (unsigned i = 0; i < NUMBER_LEN; i++) {
        at[i] = (uint8_t)(number >> 8 * (NUMBER_LEN - 1 - i));
        iv[sizeof iv - NUMBER_LEN + i] ^= at[i];
    }
    assert_int_equal(gnutls_aead_cipher_init(&cipher, GNUTLS_CIPHER_AES_128_GCM, &key_of), 0);
    assert_int_equal(gnutls_aead_cipher_encrypt(cipher, iv, sizeof iv, packet, (size_t)(body - packet),
                                                SEAL_LEN, frames, len, body, &sealed),
                     0);
    gnutls_aead_cipher_deinit(cipher);
    mask_of(at + 4, mask);
    packet[0] ^= mask[0] & 0x1f;
    for (unsigned i = 0; i < NUMBER_LEN; i++)
        at[i] ^= mask[1 + i];
    quic_deliver(pair.sides[0].quic, packet, (size_t)(body - packet) + sealed, &from, clock_real());
}

/* Both join, and we see the secret of who dials. */
static void join_seen(void)
{
    bool seen = false;
    uint64_t until_ns = clock_real() + PATIENCE_NS;
    quic_pair_open(&pair, &(struct pair_options){0});
    for (int i = 0; i < 2; i++)
        quic_join_begin(pair.sides[i].quic, &pair.sides[i].peer, 1);
    while ((pair.sides[0].peer.count == 0 || pair.sides[1].peer.count == 0) && clock_real() < until_ns) {
        for (int i = 1; i >= 0; i--)
            quic_join_step(pair.sides[i].quic, clock_real(), until_ns);
        if (!seen)
            gnutls_session_set_keylog_function(quic_engine_session(pair.sides[1].quic->lines[0]->engine),
                                               note_secret);
        seen = true;
    }
    assert_int_equal(pair.sides[0].peer.count, 2);
    assert_int_equal(pair.sides[1].peer.count, 2);
    for (int i = 0; i < 2; i++)
        quic_join_end(pair.sides[i].quic);
}

/* An id for us to call it by, and that those before it be given up. */
static size_t new_id(uint8_t *target, uint8_t sequence, uint8_t before)
{
    memset(target, 0x70 + sequence, 28);
    memcpy(target, (uint8_t[]){0x18, sequence, before, 8}, 4);
    return 28;
}

TEST(ids_that_are_taken_back_end_the_line)
{
    uint8_t frames[PLAIN_MAX] = {0x4a, 0, 1, 0}; /* what ngtcp2 takes for a stream, and then: */
    size_t len = 4;
    if (!processor_has_aes()) /* packets are forged for this suite alone */
        skip();
    join_seen();
    len += new_id(frames + len, 5, 5);
    len += new_id(frames + len, 2, 0);
    len += new_id(frames + len, 2, 0);
    assert_false(pair.sides[0].quic->lines[0]->lost);
    say_frames(NUMBER, frames, len);
    assert_true(pair.sides[0].quic->lines[0]->lost);
    quic_pair_close(&pair);
}

/* The forger is able: what may be said is taken, and what may not be is not. */
TEST(forged_packets_are_taken)
{
    if (!processor_has_aes())
        skip();
    join_seen();
    say_frames(NUMBER, (uint8_t[]){0x01, 0x00}, 2);
    assert_false(pair.sides[0].quic->lines[0]->lost);
    say_frames(NUMBER + 1, (uint8_t[]){0x10, 0x40}, 2); /* half a frame */
    assert_true(pair.sides[0].quic->lines[0]->lost);
    quic_pair_close(&pair);
}

#endif
