/* SPDX-License-Identifier: Apache-2.0 */
/* Records with GnuTLS's own record layer at the other end, after a real handshake through memory. */
#include <errno.h>

#include <gnutls/gnutls.h>

#include "core/types.h"
#include "security/records.h"
#include "support/suite.h"

#define WIRE_BYTES (1u << 20)

#define TLS13(suite) "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK:-CIPHER-ALL:+" suite
#define AES          TLS13("AES-128-GCM")
#define CHACHA       TLS13("CHACHA20-POLY1305")
#define CCM          TLS13("AES-128-CCM")
#define TLS12        "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-PSK"

/* Bytes on their way. */
struct wire {
    uint8_t bytes[WIRE_BYTES];
    size_t begin, end;
};

enum { CLIENT, SERVER };

struct world {
    struct heap heap;
    gnutls_session_t session[2];
    struct record_secrets secrets[2];
    struct wire wire[2]; /* towards [end] */
    int ours;            /* the end that gave its session to records */
    struct records *records;
    gnutls_session_t theirs;
    gnutls_psk_client_credentials_t client;
    gnutls_psk_server_credentials_t server;
};

static struct world world;

static int other_end(const void *wire)
{
    return wire == &world.wire[CLIENT] ? SERVER : CLIENT;
}

/* Both get the wire towards their own end. */
static ssize_t wire_push(gnutls_transport_ptr_t wire, const void *bytes, size_t len)
{
    struct wire *out = &world.wire[other_end(wire)];
    assert_true(len <= WIRE_BYTES - out->end);
    memcpy(out->bytes + out->end, bytes, len);
    out->end += len;
    return (ssize_t)len;
}

static ssize_t wire_pull(gnutls_transport_ptr_t ptr, void *target, size_t len_max)
{
    struct wire *wire = ptr;
    size_t len = wire->end - wire->begin < len_max ? wire->end - wire->begin : len_max;
    if (len == 0) {
        gnutls_transport_set_errno(world.session[1 - other_end(ptr)], EAGAIN);
        return -1;
    }
    memcpy(target, wire->bytes + wire->begin, len);
    wire->begin += len;
    if (wire->begin == wire->end)
        wire->begin = wire->end = 0;
    return (ssize_t)len;
}

static int wire_wait(gnutls_transport_ptr_t wire, unsigned ms)
{
    return ((struct wire *)wire)->begin < ((struct wire *)wire)->end;
}

static int psk_of(gnutls_session_t session, const char *name, gnutls_datum_t *key)
{
    key->size = 16;
    key->data = gnutls_malloc(key->size);
    memset(key->data, 7, key->size);
    return 0;
}

static void handshake(struct world *w)
{
    int status[2] = {GNUTLS_E_AGAIN, GNUTLS_E_AGAIN};
    for (int turn = 0; turn < 100 && (status[0] != 0 || status[1] != 0); turn++) {
        int end = turn % 2;
        if (status[end] != 0)
            status[end] = gnutls_handshake(w->session[end]);
        assert_true(status[end] == 0 || !gnutls_error_is_fatal(status[end]));
    }
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

static struct world *sessions_open(const char *suite, bool watched)
{
    struct world *w = &world;
    static uint8_t key[16];
    memset(w, 0, sizeof *w);
    memset(key, 7, sizeof key);
    heap_init(&w->heap, 0);
    gnutls_datum_t key_of = {key, sizeof key};
    gnutls_psk_allocate_client_credentials(&w->client);
    gnutls_psk_set_client_credentials(w->client, "test", &key_of, GNUTLS_PSK_KEY_RAW);
    gnutls_psk_allocate_server_credentials(&w->server);
    gnutls_psk_set_server_credentials_function(w->server, psk_of);
    for (int end = 0; end < 2; end++) {
        unsigned flags = GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS;
        assert_int_equal(
            gnutls_init(&w->session[end], flags | (end == CLIENT ? GNUTLS_CLIENT : GNUTLS_SERVER)), 0);
        gnutls_session_t session = w->session[end];
        assert_int_equal(gnutls_priority_set_direct(session, suite, NULL), 0);
        gnutls_credentials_set(session, GNUTLS_CRD_PSK,
                               end == CLIENT ? (void *)w->client : (void *)w->server);
        gnutls_transport_set_ptr(session, &w->wire[end]);
        gnutls_transport_set_push_function(session, wire_push);
        gnutls_transport_set_pull_function(session, wire_pull);
        gnutls_transport_set_pull_timeout_function(session, wire_wait);
        if (watched)
            records_watch(session, &w->secrets[end]);
    }
    handshake(w);
    return w;
}

/* This end goes over to records, after some bytes each way that show that numbers go on. */
static struct world *world_open(const char *suite, int ours)
{
    struct world *w = sessions_open(suite, true);
    char got[8];
    for (int end = 0; end < 2; end++) {
        assert_int_equal(gnutls_record_send(w->session[end], "before", 6), 6);
        assert_int_equal(gnutls_record_recv(w->session[1 - end], got, sizeof got), 6);
    }
    w->ours = ours;
    w->theirs = w->session[1 - ours];
    w->records = records_open(&w->heap, w->session[ours]);
    assert_non_null(w->records);
    w->session[ours] = NULL;
    return w;
}

static void world_close(struct world *w)
{
    for (int end = 0; end < 2; end++)
        if (w->session[end])
            gnutls_deinit(w->session[end]);
    records_close(w->records);
    gnutls_psk_free_client_credentials(w->client);
    gnutls_psk_free_server_credentials(w->server);
    assert_int_equal(w->heap.blocks, 0);
}

/* ---- talking ---- */

static uint8_t big[RECORD_DATA_MAX], got[RECORD_DATA_MAX];

static void we_send(struct world *w, size_t len)
{
    struct wire *wire = &w->wire[1 - w->ours];
    struct iovec pieces[2] = {{big, len / 3}, {big + len / 3, len - len / 3}};
    wire->end += records_seal(w->records, pieces, 2, len, wire->bytes + wire->end);
}

static void they_hear(struct world *w, size_t len)
{
    memset(got, 0, sizeof got);
    ssize_t n = gnutls_record_recv(w->theirs, got, sizeof got);
    if (n == GNUTLS_E_AGAIN) /* it was a change of keys */
        n = gnutls_record_recv(w->theirs, got, sizeof got);
    assert_int_equal(n, len);
    assert_memory_equal(got, big, len);
}

/* Opens the next record on the wire: what records_open_one says. */
static ssize_t we_open(struct world *w)
{
    struct wire *wire = &w->wire[w->ours];
    assert_true(wire->end - wire->begin >= RECORD_HEADER_LEN);
    size_t len = records_length(wire->bytes + wire->begin);
    assert_true(len > 0 && len <= wire->end - wire->begin);
    ssize_t n = records_open_one(w->records, wire->bytes + wire->begin, len, got);
    wire->begin += len;
    return n;
}

static void they_send(struct world *w, size_t len)
{
    assert_int_equal(gnutls_record_send(w->theirs, big, len), len);
    memset(got, 0, sizeof got);
    assert_int_equal(we_open(w), len);
    assert_memory_equal(got, big, len);
}

static void talk(struct world *w)
{
    static const size_t lens[] = {1, 64, 100, 1000, 16384};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        we_send(w, lens[i]);
        they_hear(w, lens[i]);
        they_send(w, lens[i]);
    }
}

static const struct {
    const char *suite;
    int ours;
} ways[] = {{AES, CLIENT}, {AES, SERVER}, {CHACHA, CLIENT}, {CHACHA, SERVER}};
#define WAYS (sizeof ways / sizeof *ways)

TEST(both_understand_each_other)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct world *w = world_open(ways[i].suite, ways[i].ours);
        talk(w);
        world_close(w);
    }
}

TEST(their_change_of_keys_is_followed)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct world *w = world_open(ways[i].suite, ways[i].ours);
        for (int times = 0; times < 3; times++) {
            assert_int_equal(gnutls_session_key_update(w->theirs, 0), 0);
            assert_int_equal(we_open(w), 0);
            talk(w);
        }
        world_close(w);
    }
}

/* They ask for ours too: it stands before our next data, once. */
TEST(we_change_keys_when_asked)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct world *w = world_open(ways[i].suite, ways[i].ours);
        for (int times = 0; times < 3; times++) {
            assert_int_equal(gnutls_session_key_update(w->theirs, GNUTLS_KU_PEER), 0);
            assert_int_equal(we_open(w), 0);
            const struct wire *wire = &w->wire[1 - w->ours];
            size_t before = wire->end;
            we_send(w, 100);
            assert_true(wire->end - before > 100 + RECORD_EXTRA);
            they_hear(w, 100);
            before = wire->end;
            we_send(w, 100);
            assert_int_equal(wire->end - before, 100 + RECORD_EXTRA);
            they_hear(w, 100);
            talk(w);
        }
        world_close(w);
    }
}

TEST(padding_is_taken_off)
{
    static const size_t pads[] = {1, 60, 64, 100, 1000};
    struct world *w = world_open(AES, CLIENT);
    for (size_t i = 0; i < sizeof pads / sizeof *pads; i++) {
        assert_int_equal(gnutls_record_send2(w->theirs, big, 333, pads[i], 0), 333);
        assert_int_equal(we_open(w), 333);
        assert_memory_equal(got, big, 333);
    }
    world_close(w);
}

TEST(goodbyes_are_heard)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct world *w = world_open(ways[i].suite, ways[i].ours);
        struct wire *wire = &w->wire[1 - w->ours];
        size_t len = records_bye(w->records, wire->bytes + wire->end);
        assert_int_equal(len, RECORD_EXTRA + 2);
        wire->end += len;
        assert_int_equal(gnutls_record_recv(w->theirs, got, sizeof got), 0);
        assert_int_equal(gnutls_bye(w->theirs, GNUTLS_SHUT_WR), 0);
        assert_int_equal(we_open(w), HEARTH_PEER_LOST);
        world_close(w);
    }
}

/* A message of the handshake that has no business after it. */
TEST(a_new_ticket_is_refused)
{
    struct world *w = world_open(AES, CLIENT);
    gnutls_datum_t key = {NULL, 0};
    assert_int_equal(gnutls_session_ticket_key_generate(&key), 0);
    assert_int_equal(gnutls_session_ticket_enable_server(w->theirs, &key), 0);
    assert_int_equal(gnutls_session_ticket_send(w->theirs, 1, 0), 0);
    assert_int_equal(we_open(w), HEARTH_PROTOCOL);
    gnutls_free(key.data);
    world_close(w);
}

/* ---- sessions that give no records ---- */

static void expect_none(struct world *w)
{
    w->records = records_open(&w->heap, w->session[CLIENT]);
    w->session[CLIENT] = NULL;
    assert_null(w->records);
    world_close(w);
}

TEST(other_sessions_are_refused)
{
    expect_none(sessions_open(AES, false));
    expect_none(sessions_open(CCM, true));
    expect_none(sessions_open(TLS12, true));
    struct world *w = sessions_open(AES, true);
    assert_int_equal(gnutls_session_key_update(w->session[CLIENT], 0), 0);
    expect_none(w);
    w = sessions_open(AES, true);
    atomic_store(&w->heap.fail_after, 0);
    expect_none(w);
}

int main(void)
{
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (uint8_t)(i * 2654435761u >> 9);
    return suite_run();
}
