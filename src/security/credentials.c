/* SPDX-License-Identifier: Apache-2.0 */
/* What a node brings to its handshakes, and TLS sessions that are set up with it. */
#include "security/credentials.h"

#include <stdio.h>
#include <string.h>

#include <gnutls/gnutls.h>

#include "os/host.h"
#include "os/random.h"
#include "security/certificate.h"

#define ALPN                  "hearth/1"
#define HANDSHAKE_MESSAGE_MAX 4096
#define NO_TLS                "it speaks no TLS 1.3 with the keys and suites that members have"
#define NO_CERTIFICATE        "it does not take our certificate"
#define UNKNOWN_IDENTITY      GNUTLS_E_UNKNOWN_SRP_USERNAME /* GnuTLS makes unknown_psk_identity of it */

/* One group, one signature, two suites, one version: there is nothing to be talked down to. */
#define PRIORITY(ciphers)                                                                                    \
    "NONE:+VERS-TLS1.3:+AEAD:+GROUP-X25519:+SIGN-EDDSA-ED25519:+CTYPE-X509:" ciphers                         \
    ":%DISABLE_TLS13_COMPAT_MODE:%NO_TICKETS"
#define AES_FIRST    PRIORITY("+AES-128-GCM:+CHACHA20-POLY1305")
#define CHACHA_FIRST PRIORITY("+CHACHA20-POLY1305:+AES-128-GCM")

struct credentials {
    struct node_key *key;
    struct secret *secret;
    struct trust_list *trust;
    struct identity self;
    struct knocks *knocks; /* heard by listeners */
    gnutls_priority_t priority;
    gnutls_certificate_credentials_t certificate;
};

/* ---- opening ---- */

static int set_up(struct credentials *c, enum suite_order suites)
{
    bool aes = suites == SUITES_AES_FIRST || (suites == SUITES_FOR_CPU && processor_has_aes());
    int done = gnutls_priority_init2(&c->priority, aes ? AES_FIRST : CHACHA_FIRST, NULL, 0);

    if (done == 0)
        done = gnutls_certificate_allocate_credentials(&c->certificate);
    return done ? done : certificate_make(c->key, c->certificate);
}

int credentials_open(const struct credentials_setup *setup, struct credentials **out, struct error *error)
{
    struct credentials *c = heap_alloc(setup->heap, 1, sizeof *c);
    struct knocks *knocks = heap_alloc(setup->heap, 1, sizeof *knocks);
    int done;

    if (!c || !knocks) {
        heap_free(c);
        heap_free(knocks);
        node_key_close(setup->key);
        secret_close(setup->secret);
        trust_list_close(setup->trust);
        return error_set(error, HEARTH_NO_MEMORY, RANK_NONE, "no memory for the node's credentials");
    }
    c->key = setup->key;
    c->secret = setup->secret;
    c->trust = setup->trust;
    c->knocks = knocks;
    c->self = (struct identity){.node = *node_key_id(c->key), .instance = setup->instance};
    done = set_up(c, setup->suites);
    if (done) {
        credentials_close(c);
        return error_set(error, done == GNUTLS_E_MEMORY_ERROR ? HEARTH_NO_MEMORY : HEARTH_SYSTEM, RANK_NONE,
                         "GnuTLS does not take the node's key: %s", gnutls_strerror(done));
    }
    *out = c;
    return HEARTH_OK;
}

int credentials_copy(const struct credentials *from, struct heap *heap, uint64_t instance,
                     struct credentials **out, struct error *error)
{
    struct credentials_setup setup = {.heap = heap, .instance = instance};
    int status = node_key_copy(from->key, &setup.key, error);

    if (!status)
        status = secret_copy(from->secret, &setup.secret, error);
    if (!status && from->trust)
        status = trust_list_copy(from->trust, heap, &setup.trust, error);
    if (!status)
        return credentials_open(&setup, out, error);
    node_key_close(setup.key);
    secret_close(setup.secret);
    return status;
}

void credentials_close(struct credentials *c)
{
    if (!c)
        return;
    if (c->certificate)
        gnutls_certificate_free_credentials(c->certificate);
    if (c->priority)
        gnutls_priority_deinit(c->priority);
    node_key_close(c->key);
    secret_close(c->secret);
    trust_list_close(c->trust);
    heap_free(c->knocks);
    heap_free(c);
}

const struct identity *credentials_self(const struct credentials *c)
{
    return &c->self;
}

const struct secret *credentials_secret(const struct credentials *c)
{
    return c->secret;
}

struct trust_list *credentials_trust(const struct credentials *c)
{
    return c->trust;
}

/* ---- sessions ---- */

static int refuse(const struct session_setup *setup, enum hearth_reason reason, const char *why, int code)
{
    error_because(setup->refusal, reason, HEARTH_PROTOCOL, RANK_NONE, "%s", why);
    return code;
}

static int refuse_knock(const struct session_setup *setup, enum knock_verdict verdict, const char *name)
{
    const enum hearth_reason reason = HEARTH_REASON_SECRET_DIFFERS;
    char text[64];

    if (verdict == KNOCK_WRONG)
        return refuse(setup, reason,
                      "its knock is wrong: it does not know the secret, or means another listener",
                      UNKNOWN_IDENTITY);
    if (verdict == KNOCK_NONE)
        return refuse(setup, reason, "it does not know the secret (no knock)", GNUTLS_E_UNRECOGNIZED_NAME);
    snprintf(text, sizeof text, "it has another secret (its namespace is %.8s...)", name);
    return refuse(setup, reason, text, GNUTLS_E_UNRECOGNIZED_NAME);
}

/* At the listener, when the hello is parsed and nothing was computed yet. The codes that are returned become
 * alerts: unrecognized_name without the secret, internal_error when we are busy. The user's pointer of a
 * session is not ours: ngtcp2 has it, or records. That of the database is free, as nothing is resumed. */
static int on_hello(gnutls_session_t session)
{
    struct session_setup *setup = gnutls_db_get_ptr(session);
    char name[KNOCK_LEN + 1];
    size_t len = sizeof name;
    unsigned int type = 0;
    struct knock_target self = {.node = setup->credentials->self.node, .addr = setup->at};
    bool named = gnutls_server_name_get(session, name, &len, &type, 0) == 0 && type == GNUTLS_NAME_DNS;
    enum knock_verdict verdict =
        named ? knock_check(setup->credentials->secret, &self, knock_minute(), name, len) : KNOCK_NONE;

    if (verdict != KNOCK_GOOD && verdict != KNOCK_WEAK)
        return refuse_knock(setup, verdict, name);
    if (!setup->admitted && setup->admit) {
        if (!knocks_add(setup->credentials->knocks, name))
            return refuse(setup, HEARTH_REASON_BUSY, "it repeats a knock that it has heard",
                          GNUTLS_E_INTERNAL_ERROR);
        if (!setup->admit(setup->admit_arg, verdict == KNOCK_WEAK))
            return refuse(setup, HEARTH_REASON_BUSY, "too many come at once", GNUTLS_E_INTERNAL_ERROR);
    }
    setup->admitted = true; /* a second hello of the same session (a retry) is the same connection */
    return 0;
}

/* The signature was checked by GnuTLS; dates, names and issuers mean nothing to us. */
static int on_certificate(gnutls_session_t session)
{
    const struct session_setup *setup = gnutls_db_get_ptr(session);
    gnutls_datum_t protocol;
    struct node_id id;
    const char *what = NULL;

    if (gnutls_alpn_get_selected_protocol(session, &protocol)) /* a hello that names none gets this far */
        return refuse(setup, HEARTH_REASON_VERSION_DIFFERS, "it does not speak " ALPN,
                      GNUTLS_E_NO_APPLICATION_PROTOCOL);
    if (credentials_peer(session, &id, &what))
        return refuse(setup, HEARTH_REASON_NONE, what, GNUTLS_E_CERTIFICATE_ERROR);
    return 0;
}

/* GnuTLS would write a session's secrets to a file that SSLKEYLOGFILE names. */
static int keep_quiet(gnutls_session_t session, const char *label, const gnutls_datum_t *secret)
{
    (void)session, (void)label, (void)secret;
    return 0;
}

static int knock(const struct session_setup *setup, gnutls_session_t session)
{
    uint8_t random[KNOCK_RANDOM_LEN];
    char name[KNOCK_LEN + 1];

    if (random_bytes(random, sizeof random) ||
        knock_make(setup->credentials->secret, &setup->to, knock_minute(), random, name))
        return GNUTLS_E_RANDOM_FAILED;
    return gnutls_server_name_set(session, GNUTLS_NAME_DNS, name, KNOCK_LEN);
}

static int set_up_session(struct session_setup *setup, gnutls_session_t session)
{
    const struct credentials *c = setup->credentials;
    static const gnutls_datum_t alpn = {(unsigned char *)ALPN, sizeof(ALPN) - 1};
    int done;

    if ((done = gnutls_priority_set(session, c->priority)) ||
        (done = gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, c->certificate)) ||
        (done = gnutls_alpn_set_protocols(session, &alpn, 1, GNUTLS_ALPN_MANDATORY)))
        return done;
    gnutls_handshake_set_max_packet_length(session, HANDSHAKE_MESSAGE_MAX);
    gnutls_session_set_keylog_function(session, keep_quiet);
    gnutls_session_set_verify_function(session, on_certificate);
    gnutls_db_set_ptr(session, setup);
    if (setup->role == CHANNEL_DIALS)
        return knock(setup, session);
    gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
    gnutls_handshake_set_post_client_hello_function(session, on_hello);
    return 0;
}

int credentials_session(struct session_setup *setup, struct gnutls_session_int **out, struct error *error)
{
    unsigned int flags = GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS | GNUTLS_NO_AUTO_SEND_TICKET |
                         GNUTLS_NO_EXTENSIONS;
    gnutls_session_t session = NULL;
    int done;

    flags |= setup->role == CHANNEL_DIALS ? GNUTLS_CLIENT : GNUTLS_SERVER;
    if (setup->quic)
        flags |= GNUTLS_NO_END_OF_EARLY_DATA; /* QUIC has no such message; there is no early data anyway */
    setup->admitted = false;
    done = gnutls_init(&session, flags);
    if (done == 0)
        done = set_up_session(setup, session);
    if (done) {
        if (session)
            gnutls_deinit(session);
        return error_set(error, done == GNUTLS_E_MEMORY_ERROR ? HEARTH_NO_MEMORY : HEARTH_SYSTEM, RANK_NONE,
                         "no TLS session can be made: %s", gnutls_strerror(done));
    }
    *out = session;
    return HEARTH_OK;
}

int credentials_peer(struct gnutls_session_int *session, struct node_id *id, const char **what)
{
    unsigned int count = 0;
    const gnutls_datum_t *shown = gnutls_certificate_get_peers(session, &count);
    uint8_t public_key[PUBLIC_KEY_LEN];

    *what = "it shows no certificate";
    if (!shown || count == 0)
        return HEARTH_PROTOCOL;
    *what = "it shows more than one certificate";
    if (count != 1)
        return HEARTH_PROTOCOL;
    *what = "its certificate has no Ed25519 key";
    if (certificate_key(shown->data, shown->size, public_key))
        return HEARTH_PROTOCOL;
    node_id_of(public_key, id);
    return HEARTH_OK;
}

static const struct alert_meaning alerts[] = {
    {GNUTLS_A_CLOSE_NOTIFY, HEARTH_REASON_NONE, "it closed the connection"},
    {GNUTLS_A_UNRECOGNIZED_NAME, HEARTH_REASON_SECRET_DIFFERS,
     "it has another secret, or belongs to another cluster"},
    {GNUTLS_A_UNKNOWN_PSK_IDENTITY, HEARTH_REASON_NOT_HEARTH,
     "another node listens there, or a router passes connections on to it"},
    {GNUTLS_A_INTERNAL_ERROR, HEARTH_REASON_BUSY, "it is busy: come again later"},
    {GNUTLS_A_PROTOCOL_VERSION, HEARTH_REASON_NOT_HEARTH, NO_TLS},
    {GNUTLS_A_HANDSHAKE_FAILURE, HEARTH_REASON_NOT_HEARTH, NO_TLS},
    {GNUTLS_A_INSUFFICIENT_SECURITY, HEARTH_REASON_NOT_HEARTH, NO_TLS},
    {GNUTLS_A_NO_APPLICATION_PROTOCOL, HEARTH_REASON_VERSION_DIFFERS, "it does not speak " ALPN},
    {GNUTLS_A_BAD_CERTIFICATE, HEARTH_REASON_NONE, NO_CERTIFICATE},
    {GNUTLS_A_UNSUPPORTED_CERTIFICATE, HEARTH_REASON_NONE, NO_CERTIFICATE},
    {GNUTLS_A_CERTIFICATE_UNKNOWN, HEARTH_REASON_NONE, NO_CERTIFICATE},
    {GNUTLS_A_CERTIFICATE_REQUIRED, HEARTH_REASON_NONE, NO_CERTIFICATE},
};

const struct alert_meaning *session_alert(int alert)
{
    for (size_t i = 0; i < sizeof alerts / sizeof alerts[0]; i++)
        if (alerts[i].alert == alert)
            return &alerts[i];
    return NULL;
}
