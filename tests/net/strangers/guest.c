/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers that speak TLS, each with a certificate of its own: one that knows only the old version, one that
 * has heard a knock and guesses the proof, and a man in the middle, who passes on all that he reads. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "net/strangers/stranger.h"

#define LIKE_A_MEMBER                                                                                        \
    "NONE:+VERS-TLS1.3:+AES-128-GCM:+CHACHA20-POLY1305:+AEAD:+GROUP-X25519:+SIGN-EDDSA-ED25519:+CTYPE-X509:" \
    "%DISABLE_TLS13_COMPAT_MODE:%NO_TICKETS"
#define OLD          "NORMAL:-VERS-ALL:+VERS-TLS1.2"
#define PROOF_BYTES  64
#define MEETINGS_MAX 64 /* of a man in the middle, before he goes home */

/* ---- a key, a certificate ---- */

static bool certificate_fill(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key)
{
    time_t now = time(NULL);
    return gnutls_x509_privkey_generate(key, GNUTLS_PK_EDDSA_ED25519, 256, 0) == 0 &&
           gnutls_x509_crt_set_version(crt, 3) == 0 && gnutls_x509_crt_set_serial(crt, "\1", 1) == 0 &&
           gnutls_x509_crt_set_activation_time(crt, now - 1000) == 0 &&
           gnutls_x509_crt_set_expiration_time(crt, now + 100000) == 0 &&
           gnutls_x509_crt_set_key(crt, key) == 0 &&
           gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA512, 0) == 0;
}

static bool certificate_new(gnutls_certificate_credentials_t *out)
{
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;
    if (gnutls_certificate_allocate_credentials(out) != 0 || gnutls_x509_privkey_init(&key) != 0 ||
        gnutls_x509_crt_init(&crt) != 0)
        return false;
    bool good = certificate_fill(crt, key) && gnutls_certificate_set_x509_key(*out, &crt, 1, key) == 0;
    if (!good)
        fprintf(stderr, "GnuTLS makes no certificate\n");
    gnutls_x509_crt_deinit(crt);
    gnutls_x509_privkey_deinit(key);
    return good;
}

static void session_free(gnutls_session_t session)
{
    void *certificate = NULL;
    gnutls_credentials_get(session, GNUTLS_CRD_CERTIFICATE, &certificate);
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(certificate);
}

static bool session_new(gnutls_session_t *out, bool dials, const char *priority, const char *knock)
{
    gnutls_certificate_credentials_t certificate;
    gnutls_datum_t alpn = {(unsigned char *)"hearth/1", 8};
    unsigned flags = dials ? GNUTLS_CLIENT : GNUTLS_SERVER;
    if (!certificate_new(&certificate) || gnutls_init(out, flags | GNUTLS_NO_TICKETS) != 0 ||
        gnutls_priority_set_direct(*out, priority, NULL) != 0 ||
        gnutls_credentials_set(*out, GNUTLS_CRD_CERTIFICATE, certificate) != 0 ||
        gnutls_alpn_set_protocols(*out, &alpn, 1, 0) != 0)
        return false;
    if (dials && knock[0] != '\0')
        gnutls_server_name_set(*out, GNUTLS_NAME_DNS, knock, strlen(knock));
    if (!dials)
        gnutls_certificate_server_set_request(*out, GNUTLS_CERT_REQUIRE);
    gnutls_handshake_set_timeout(*out, PATIENCE_MS);
    gnutls_record_set_timeout(*out, PATIENCE_MS);
    return true;
}

static int shake(gnutls_session_t session)
{
    int status;
    do
        status = gnutls_handshake(session);
    while (status < 0 && gnutls_error_is_fatal(status) == 0);
    return status;
}

/* ---- hellos ---- */

static void knock_forge(char knock[static KNOCK_LEN + 1])
{
    uint8_t bytes[48];
    gnutls_rnd(GNUTLS_RND_NONCE, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(knock + 2 * i + i / 16, 4, "%02x%s", bytes[i], i % 16 == 15 ? "." : "");
    memcpy(knock + KNOCK_LEN - 7, ".hearth", 8);
}

bool knock_find(const uint8_t *bytes, size_t len, char knock[static KNOCK_LEN + 1])
{
    for (size_t i = KNOCK_LEN; i <= len; i++) {
        const uint8_t *at = bytes + i - KNOCK_LEN;
        if (memcmp(bytes + i - 7, ".hearth", 7) == 0 && at[32] == '.' && at[65] == '.') {
            memcpy(knock, at, KNOCK_LEN);
            knock[KNOCK_LEN] = '\0';
            return true;
        }
    }
    return false;
}

struct caught {
    uint8_t *target;
    size_t len;
};

static ssize_t catch_push(gnutls_transport_ptr_t arg, const void *bytes, size_t len)
{
    struct caught *caught = arg;
    if (caught->len + len > HELLO_MAX)
        return -1;
    memcpy(caught->target + caught->len, bytes, len);
    caught->len += len;
    return (ssize_t)len;
}

static ssize_t catch_pull(gnutls_transport_ptr_t arg, void *target, size_t len)
{
    (void)arg, (void)target, (void)len;
    return 0; /* closed: after the hello nobody goes on */
}

static int catch_timeout(gnutls_transport_ptr_t arg, unsigned ms)
{
    (void)arg, (void)ms;
    return 1;
}

size_t hello_forge(uint8_t target[static HELLO_MAX])
{
    gnutls_session_t session;
    char knock[KNOCK_LEN + 1];
    struct caught caught = {.target = target};
    knock_forge(knock);
    if (!session_new(&session, true, LIKE_A_MEMBER, knock))
        return 0;
    gnutls_transport_set_ptr(session, &caught);
    gnutls_transport_set_push_function(session, catch_push);
    gnutls_transport_set_pull_function(session, catch_pull);
    gnutls_transport_set_pull_timeout_function(session, catch_timeout);
    (void)shake(session);
    session_free(session);
    return caught.len;
}

/* ---- diallers ---- */

static const char *alert_text(gnutls_session_t session, int status)
{
    if (status != GNUTLS_E_FATAL_ALERT_RECEIVED && status != GNUTLS_E_WARNING_ALERT_RECEIVED)
        return "";
    const char *name = gnutls_alert_get_name(gnutls_alert_get(session));
    return name ? name : "unknown";
}

/* Bytes of one record, or less than 0. */
static ssize_t record_read(gnutls_session_t session, void *target, size_t size)
{
    ssize_t got;
    do
        got = gnutls_record_recv(session, target, size);
    while (got < 0 && gnutls_error_is_fatal((int)got) == 0);
    return got;
}

static int knock_read(const char *path, char knock[static KNOCK_LEN + 1])
{
    uint8_t hello[HELLO_MAX];
    size_t len = read_file(path, hello, sizeof hello);
    if (knock_find(hello, len, knock))
        return 0;
    fprintf(stderr, "%s: no member has knocked there\n", path);
    return 1;
}

static int visit(const char *what, char **arguments, const char *priority, const char *knock)
{
    struct place place;
    gnutls_session_t session;
    uint8_t proof[PROOF_BYTES] = "HP\x01\x01", answer[16384];
    ssize_t answered = -1;
    if (!place_parse(arguments, &place))
        return 2;
    int fd = dial(&place, true);
    if (fd < 0 || !session_new(&session, true, priority, knock)) {
        fprintf(stderr, "%s: nobody listens, or there is no session\n", what);
        return 1;
    }
    gnutls_transport_set_int(session, fd);
    int status = shake(session);
    const char *alert = alert_text(session, status);
    if (status == 0) {
        gnutls_rnd(GNUTLS_RND_NONCE, proof + 8, 8); /* instance */
        gnutls_rnd(GNUTLS_RND_NONCE, proof + 32, 32);
        gnutls_record_send(session, proof, sizeof proof);
        answered = record_read(session, answer, sizeof answer);
        alert = alert_text(session, (int)answered);
    }
    printf("{\"what\":\"%s\",\"handshake\":%s,\"alert\":\"%s\",\"error\":\"%s\",\"answer\":%zd,\"answer_"
           "kind\":%d,"
           "\"reason\":%d}\n",
           what, status == 0 ? "true" : "false", alert, status == 0 ? "" : gnutls_strerror_name(status),
           answered, answered >= 5 ? answer[3] : -1, answered >= 5 ? answer[4] : -1);
    session_free(session);
    close(fd);
    return 0;
}

int do_tls12(int count, char **arguments)
{
    char knock[KNOCK_LEN + 1];
    if (count != 2 && count != 3)
        return 2;
    knock_forge(knock);
    if (count == 3 && knock_read(arguments[2], knock) != 0)
        return 1;
    return visit("tls12", arguments, OLD, knock);
}

int do_guess(int count, char **arguments)
{
    char knock[KNOCK_LEN + 1];
    if (count != 3)
        return 2;
    return knock_read(arguments[2], knock) != 0 ? 1 : visit("guess", arguments, LIKE_A_MEMBER, knock);
}

/* ---- a man in the middle ---- */

struct middle {
    int inner, outer; /* sockets: to the dialler, to the listener */
    gnutls_session_t to_dialler, to_listener;
    int dialler_status, listener_status; /* of the handshakes */
    size_t up, down;                     /* bytes that he read and passed on */
    int answer_kind, reason;             /* of the first message of the listener */
    const char *ended_by;
};

/* The dialler's knock, as it comes: he knocks with it himself. */
static bool overhear(int fd, char knock[static KNOCK_LEN + 1])
{
    uint8_t hello[HELLO_MAX];
    for (uint64_t deadline = clock_ms() + PATIENCE_MS; clock_ms() < deadline;) {
        ssize_t len = readable(fd, 100) ? recv(fd, hello, sizeof hello, MSG_PEEK) : -1;
        if (len == 0)
            return false;
        if (len > 0 && knock_find(hello, (size_t)len, knock))
            return true;
    }
    return false;
}

static bool pass_on(struct middle *m, bool up)
{
    uint8_t bytes[16384];
    gnutls_session_t from = up ? m->to_dialler : m->to_listener, to = up ? m->to_listener : m->to_dialler;
    ssize_t got = record_read(from, bytes, sizeof bytes);
    if (got <= 0) {
        m->ended_by = up ? "dialler" : "listener";
        return false;
    }
    if (!up && m->down == 0 && got >= 5) {
        m->answer_kind = bytes[3];
        m->reason = bytes[4];
    }
    *(up ? &m->up : &m->down) += (size_t)got;
    return gnutls_record_send(to, bytes, (size_t)got) == got;
}

static void stand_between(struct middle *m)
{
    m->ended_by = "nobody";
    for (uint64_t deadline = clock_ms() + PATIENCE_MS; clock_ms() < deadline;) {
        struct pollfd polls[2] = {{.fd = m->inner, .events = POLLIN}, {.fd = m->outer, .events = POLLIN}};
        bool inner = gnutls_record_check_pending(m->to_dialler) > 0;
        bool outer = gnutls_record_check_pending(m->to_listener) > 0;
        poll(polls, 2, inner || outer ? 0 : 100);
        if ((inner || polls[0].revents != 0) && !pass_on(m, true))
            return;
        if ((outer || polls[1].revents != 0) && !pass_on(m, false))
            return;
    }
}

static void meet_in_the_middle(struct middle *m, const struct place *place)
{
    char knock[KNOCK_LEN + 1] = "";
    bool heard = overhear(m->inner, knock);
    m->outer = dial(place, true);
    m->dialler_status = m->listener_status = GNUTLS_E_INTERNAL_ERROR;
    if (m->outer >= 0 && session_new(&m->to_dialler, false, LIKE_A_MEMBER, "") &&
        session_new(&m->to_listener, true, LIKE_A_MEMBER, knock)) {
        gnutls_transport_set_int(m->to_dialler, m->inner);
        gnutls_transport_set_int(m->to_listener, m->outer);
        m->listener_status = shake(m->to_listener);
        m->dialler_status = shake(m->to_dialler);
        if (m->listener_status == 0 && m->dialler_status == 0)
            stand_between(m);
        session_free(m->to_dialler);
        session_free(m->to_listener);
    }
    printf("{\"what\":\"mitm\",\"knock\":%s,\"dialler\":\"%s\",\"listener\":\"%s\",\"up\":%zu,\"down\":%zu,"
           "\"answer_kind\":%d,\"reason\":%d,\"ended_by\":\"%s\"}\n",
           heard ? "true" : "false",
           m->dialler_status == 0 ? "open" : gnutls_strerror_name(m->dialler_status),
           m->listener_status == 0 ? "open" : gnutls_strerror_name(m->listener_status), m->up, m->down,
           m->answer_kind, m->reason, m->ended_by ? m->ended_by : "");
    fflush(stdout);
    close(m->inner);
    if (m->outer >= 0)
        close(m->outer);
}

int do_mitm(int count, char **arguments)
{
    struct place place, here;
    char *own[] = {"", count > 0 ? arguments[0] : ""};
    if (count != 3 || !place_parse(arguments + 1, &place) || !place_parse(own, &here))
        return 2;
    int listener = listen_at(here.port);
    if (listener < 0)
        return 1;
    for (int i = 0; i < MEETINGS_MAX; i++) {
        struct middle m = {.inner = accept_within(listener, PATIENCE_MS), .outer = -1};
        if (m.inner < 0)
            break;
        meet_in_the_middle(&m, &place);
    }
    close(listener);
    return 0;
}
