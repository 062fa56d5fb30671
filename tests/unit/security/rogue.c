/* SPDX-License-Identifier: Apache-2.0 */
/* Bare GnuTLS over memory, with keys and certificates of any kind. */
#include <errno.h>

#include <gnutls/abstract.h>
#include <gnutls/x509.h>

#include "security/knock.h"

#include "rogue.h"
#include "support/suite.h"

static ssize_t pull(gnutls_transport_ptr_t arg, void *target, size_t len)
{
    struct rogue *rogue = arg;
    size_t left = rogue->in.len - rogue->in_taken;

    if (left == 0) {
        gnutls_transport_set_errno(rogue->session, EAGAIN);
        return -1;
    }
    if (len > left)
        len = left;
    memcpy(target, rogue->in.bytes + rogue->in_taken, len);
    rogue->in_taken += len;
    return (ssize_t)len;
}

static ssize_t push(gnutls_transport_ptr_t arg, const void *source, size_t len)
{
    struct rogue *rogue = arg;

    assert_true(rogue->out.len + len <= sizeof rogue->out.bytes);
    memcpy(rogue->out.bytes + rogue->out.len, source, len);
    rogue->out.len += len;
    return (ssize_t)len;
}

static void draw_key(gnutls_x509_privkey_t key, enum rogue_key kind)
{
    switch (kind) {
    case ROGUE_ECDSA:
        assert_int_equal(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
                                                      GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
                         0);
        break;
    case ROGUE_RSA:
        assert_int_equal(gnutls_x509_privkey_generate(key, GNUTLS_PK_RSA, 2048, 0), 0);
        break;
    default:
        assert_int_equal(gnutls_x509_privkey_generate(key, GNUTLS_PK_EDDSA_ED25519, 256, 0), 0);
    }
}

static void make_certificate(gnutls_x509_privkey_t key, enum rogue_key kind, gnutls_pcert_st *shown)
{
    gnutls_digest_algorithm_t hash = kind == ROGUE_ED25519 ? GNUTLS_DIG_SHA512 : GNUTLS_DIG_SHA256;
    gnutls_x509_crt_t crt;

    assert_int_equal(gnutls_x509_crt_init(&crt), 0);
    assert_int_equal(gnutls_x509_crt_set_version(crt, 3), 0);
    assert_int_equal(gnutls_x509_crt_set_serial(crt, "\x01", 1), 0);
    assert_int_equal(gnutls_x509_crt_set_dn(crt, "CN=rogue", NULL), 0);
    assert_int_equal(gnutls_x509_crt_set_activation_time(crt, 0), 0);
    assert_int_equal(gnutls_x509_crt_set_expiration_time(crt, 1), 0); /* long ago: dates mean nothing */
    assert_int_equal(gnutls_x509_crt_set_key(crt, key), 0);
    assert_int_equal(gnutls_x509_crt_sign2(crt, crt, key, hash, 0), 0);
    assert_int_equal(gnutls_pcert_import_x509(shown, crt, 0), 0);
    gnutls_x509_crt_deinit(crt);
}

static void show_certificates(struct rogue *rogue, const struct rogue_options *options)
{
    gnutls_x509_privkey_t key;
    gnutls_privkey_t signs;
    gnutls_pcert_st list[ROGUE_CERTIFICATES_MAX];
    int count = options->certificates ? options->certificates : 1;

    assert_int_equal(gnutls_x509_privkey_init(&key), 0);
    draw_key(key, options->key);
    for (int i = 0; i < count; i++)
        make_certificate(key, options->key, &list[i]);
    assert_int_equal(gnutls_privkey_init(&signs), 0);
    assert_int_equal(gnutls_privkey_import_x509(signs, key, GNUTLS_PRIVKEY_IMPORT_AUTO_RELEASE), 0);
    assert_true(gnutls_certificate_set_key(rogue->credentials, NULL, 0, list, count, signs) >= 0);
}

/* Of all that were opened in this test. */
static struct {
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
} opened[ROGUES_MAX];
static int opened_count;

static void set_transport(struct rogue *rogue)
{
    assert_true(opened_count < ROGUES_MAX);
    opened[opened_count].session = rogue->session;
    opened[opened_count++].credentials = rogue->credentials;
    gnutls_transport_set_ptr(rogue->session, rogue);
    gnutls_transport_set_pull_function(rogue->session, pull);
    gnutls_transport_set_push_function(rogue->session, push);
}

void rogue_open(struct rogue *rogue, const struct rogue_options *options)
{
    const char *alpn = options->alpn ? options->alpn : "hearth/1";
    gnutls_datum_t protocol = {(unsigned char *)(uintptr_t)alpn, (unsigned)strlen(alpn)};

    memset(rogue, 0, sizeof *rogue);
    rogue->code = GNUTLS_E_AGAIN;
    if (!options->like)
        assert_int_equal(gnutls_certificate_allocate_credentials(&rogue->credentials), 0);
    if (!options->like && options->key != ROGUE_NO_KEY)
        show_certificates(rogue, options);
    assert_int_equal(gnutls_init(&rogue->session, GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS |
                                                      (options->listens ? GNUTLS_SERVER : GNUTLS_CLIENT)),
                     0);
    assert_int_equal(
        gnutls_priority_set_direct(rogue->session, options->priority ? options->priority : ROGUE_TLS13, NULL),
        0);
    assert_int_equal(gnutls_credentials_set(rogue->session, GNUTLS_CRD_CERTIFICATE,
                                            options->like ? options->like->credentials : rogue->credentials),
                     0);
    if (*alpn)
        assert_int_equal(gnutls_alpn_set_protocols(rogue->session, &protocol, 1, 0), 0);
    if (options->knock)
        assert_int_equal(
            gnutls_server_name_set(rogue->session, GNUTLS_NAME_DNS, options->knock, strlen(options->knock)),
            0);
    if (options->listens)
        gnutls_certificate_server_set_request(rogue->session, GNUTLS_CERT_REQUEST);
    if (options->limit)
        assert_int_equal(gnutls_record_set_max_recv_size(rogue->session, (size_t)options->limit), 0);
    set_transport(rogue);
}

void rogue_adopt(struct rogue *rogue, gnutls_session_t session)
{
    memset(rogue, 0, sizeof *rogue);
    rogue->code = GNUTLS_E_AGAIN;
    rogue->session = session;
    set_transport(rogue);
}

void rogues_close(void)
{
    for (int i = 0; i < opened_count; i++)
        gnutls_deinit(opened[i].session);
    for (int i = 0; i < opened_count; i++)
        if (opened[i].credentials)
            gnutls_certificate_free_credentials(opened[i].credentials);
    opened_count = 0;
}

void rogue_knock(uint8_t secret, char knock[static 128])
{
    static const uint8_t random[KNOCK_RANDOM_LEN] = {1, 2, 3};
    static const struct knock_target anybody = {.kind = KNOCK_OPEN};
    uint8_t bytes[SECRET_LEN];
    struct secret *made;
    struct error error;

    memset(bytes, secret, sizeof bytes);
    assert_int_equal(secret_from_bytes(bytes, "test", &made, &error), HEARTH_OK);
    assert_int_equal(knock_make(made, &anybody, knock_minute(), random, knock), HEARTH_OK);
    secret_close(made);
}

void rogue_carry(struct rogue *rogue, struct end *end)
{
    (void)end_feed(end, rogue->out.bytes, rogue->out.len, 0);
    rogue->out.len = 0;
    rogue->in.len += end_take(end, rogue->in.bytes + rogue->in.len, sizeof rogue->in.bytes - rogue->in.len);
}

void rogue_shake(struct rogue *rogue, struct end *end)
{
    for (int i = 0; i < 10 && rogue->code == GNUTLS_E_AGAIN; i++) {
        rogue->code = gnutls_handshake(rogue->session);
        rogue_carry(rogue, end);
    }
    if (rogue->code != 0 && rogue->code != GNUTLS_E_AGAIN) {
        (void)gnutls_alert_send_appropriate(rogue->session, rogue->code);
        rogue_carry(rogue, end);
    }
}

static void hand_over(struct rogue *from, struct rogue *to)
{
    assert_true(to->in.len + from->out.len <= sizeof to->in.bytes);
    memcpy(to->in.bytes + to->in.len, from->out.bytes, from->out.len);
    to->in.len += from->out.len;
    from->out.len = 0;
}

static void shake_once(struct rogue *rogue)
{
    if (rogue->code != GNUTLS_E_AGAIN)
        return;
    rogue->code = gnutls_handshake(rogue->session);
    if (rogue->code != 0 && rogue->code != GNUTLS_E_AGAIN)
        (void)gnutls_alert_send_appropriate(rogue->session, rogue->code);
}

void rogues_shake(struct rogue *a, struct rogue *b)
{
    for (int i = 0; i < 10; i++) {
        shake_once(a);
        hand_over(a, b);
        shake_once(b);
        hand_over(b, a);
    }
}

void rogue_joins(struct rogue *rogue, const struct rogue_options *options, struct end *end,
                 const struct credentials *listener, const struct credentials *secret)
{
    struct proof proof = {.role = CHANNEL_DIALS, .listener.node = credentials_self(listener)->node};
    uint8_t message[PROOF_LEN];

    end_open(end, listener, CHANNEL_LISTENS);
    rogue_open(rogue, options);
    rogue_shake(rogue, end);
    assert_int_equal(rogue->code, 0);
    proof.dialler = rogue_identity(rogue, 0xe);
    assert_int_equal(proof_make(secret, rogue->session, &proof, message), HEARTH_OK);
    rogue_say(rogue, end, message, PROOF_LEN);
    assert_int_equal(end->status, HEARTH_OK);
    assert_int_equal(rogue_hear(rogue, message, PROOF_LEN), PROOF_LEN); /* the listener's */
}

void rogue_say(struct rogue *rogue, struct end *end, const void *bytes, size_t len)
{
    assert_int_equal(gnutls_record_send(rogue->session, bytes, len), len);
    rogue_carry(rogue, end);
}

int rogue_hear(struct rogue *rogue, void *target, size_t len_max)
{
    return (int)gnutls_record_recv(rogue->session, target, len_max);
}

struct identity rogue_identity(struct rogue *rogue, uint64_t instance)
{
    struct identity identity = {.instance = instance};
    gnutls_x509_crt_t crt;
    gnutls_datum_t x = {NULL, 0};
    gnutls_ecc_curve_t curve;

    assert_int_equal(gnutls_x509_crt_init(&crt), 0);
    assert_int_equal(
        gnutls_x509_crt_import(crt, gnutls_certificate_get_ours(rogue->session), GNUTLS_X509_FMT_DER), 0);
    assert_int_equal(gnutls_x509_crt_get_pk_ecc_raw(crt, &curve, &x, NULL), 0);
    assert_int_equal(x.size, PUBLIC_KEY_LEN);
    node_id_of(x.data, &identity.node);
    gnutls_free(x.data);
    gnutls_x509_crt_deinit(crt);
    return identity;
}
