/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers, liars and forged sightings: bounded, refused, and true nodes are joined all the same. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/peer_conn.h"
#include "cluster_fixture.h"
#include "connect/secure_stream.h"
#include "os/clock.h"
#include "os/random.h"
#include "relay.h"
#include "support/suite.h"

#define FORGED 1000

static struct cluster_fixture fixture;
static struct cluster_fixture *const v = &fixture;

static bool first_pair(struct cluster_fixture *unused, void *none)
{
    return joined(v, 0, 1);
}

static bool pair_and_third(struct cluster_fixture *unused, void *none)
{
    return joined(v, 0, 2) && joined(v, 1, 2);
}

/* How node `number` says that it stands with `who`. */
static struct peer_set_state state_of(int number, const struct identity *who)
{
    static struct peer_set_state list[64];
    int count = peer_set_list(v->all[number].peer_set, list, 64);

    for (int i = 0; i < count; i++)
        if (identity_equal(&list[i].id, who))
            return list[i];
    return (struct peer_set_state){.why = "not listed"};
}

static bool tells(int number, const struct identity *who, const char *text)
{
    return strstr(state_of(number, who).why, text);
}

/* ---- forged sightings ---- */

static void forge(int number, const char *format, uint16_t port)
{
    char text[64];
    struct sock_addr addr;
    struct identity id;

    snprintf(text, sizeof text, format, 1 + number / 250, 1 + number % 250);
    assert_int_equal(sock_addr_parse(text, port, &addr), HEARTH_OK);
    assert_int_equal(random_bytes(&id, sizeof id), HEARTH_OK);
    peer_set_known_addr(v->all[0].peer_set, &addr, &id, false, clock_real());
}

/* A port where connections are neither taken nor refused: its queue is full. */
struct silence {
    int listener, callers[8];
    struct sock_addr addr;
};

static void silence_open(struct silence *s)
{
    struct sock_addr any;
    struct error error;

    assert_int_equal(sock_addr_parse("0.0.0.0:0", 0, &any), HEARTH_OK);
    assert_int_equal(sock_listen(&any, 0, &s->listener, &s->addr, &error), HEARTH_OK);
    assert_int_equal(sock_addr_parse("127.0.0.1", sock_addr_port(&s->addr), &s->addr), HEARTH_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(sock_dial(&s->addr, NULL, &s->callers[i], &error), HEARTH_OK);
}

static void silence_close(struct silence *s)
{
    for (int i = 0; i < 8; i++)
        sock_close(s->callers[i]);
    sock_unlisten(s->listener);
}

TEST(a_true_one_has_its_turn_among_silent_ones)
{
    struct silence silence;

    silence_open(&silence);
    fixture_open(v, 2, 1);
    for (int i = 0; i < FORGED; i++)
        forge(i, "127.1.%d.%d", sock_addr_port(&silence.addr));
    fixture_step(v);
    fixture_node_meet(v, 0, 1);
    fixture_until(v, first_pair, NULL);
    for (int i = 0; i < v->all[0].peer_set->known_addrs.room; i++) /* not after many rounds */
        assert_true(v->all[0].peer_set->known_addrs.list[i].target.tries <= 2);
    assert_true(v->all[0].peer_set->count <= 32 + 1);
    fixture_close(v);
    silence_close(&silence);
}

/* Addresses of a node are dialled side by side. */
TEST(a_silent_address_does_not_hold_up_another)
{
    struct silence silence;

    silence_open(&silence);
    fixture_open(v, 2, 9);
    peer_set_known_addr(v->all[0].peer_set, &silence.addr, fixture_node_id(v, 1), true, clock_real());
    fixture_node_meet(v, 0, 1);
    fixture_until(v, first_pair, NULL);
    const struct known_addr *silent = &v->all[0].peer_set->known_addrs.list[0];
    assert_true(sock_addr_equal(&silent->addr, &silence.addr));
    assert_int_equal(silent->target.tries, 0); /* it had not failed yet, and is not needed any more */
    assert_false(dial_target_busy(&silent->target));
    assert_int_equal(v->all[0].peer_set->count, 1);
    fixture_close(v);
    silence_close(&silence);
}

TEST(a_true_one_has_its_turn_among_those_who_are_others)
{
    struct sock_addr addr;

    fixture_open(v, 3, 2);
    fixture_node_stop(v, 2);
    v->listen = "0.0.0.0:0";
    fixture_node_start(v, 2, NULL);
    addr = fixture_node_addr(v, 2);
    for (int i = 0; i < FORGED; i++) /* all of them are node 2 */
        forge(i, "127.2.%d.%d", sock_addr_port(&addr));
    fixture_step(v);
    fixture_node_meet(v, 0, 1);
    fixture_until(v, first_pair, NULL);
    assert_in_range(v->all[0].linked, 1, 2);
    assert_int_equal(v->all[0].lost, 0);
    fixture_close(v);
}

/* ---- those who have themselves dialled ---- */

static bool passed_some(struct cluster_fixture *unused, void *relay)
{
    return ((const struct relay *)relay)->passed >= 3;
}

/* A stranger announces itself as node 1, and passes what it hears on to node 1: fresh, and as it is. */
TEST(what_a_stranger_hears_is_worth_nothing_elsewhere)
{
    struct sock_addr addr;
    struct relay relay;

    fixture_open(v, 3, 14);
    addr = fixture_node_addr(v, 1);
    relay_open(&relay, &addr);
    v->relay = &relay;
    peer_set_known_addr(v->all[0].peer_set, &relay.addr, fixture_node_id(v, 1), false, clock_real());
    peer_set_known_addr(v->all[2].peer_set, &relay.addr, fixture_node_id(v, 1), false, clock_real());
    fixture_until(v, passed_some, &relay);
    assert_true(tells(0, fixture_node_id(v, 1), "another node listens there") ||
                tells(2, fixture_node_id(v, 1), "another node listens there"));
    for (int i = 0; i < 3; i++)
        assert_int_equal(v->all[i].linked, 0);
    fixture_node_meet(v, 0, 1); /* where it is */
    fixture_node_meet(v, 0, 2);
    fixture_node_meet(v, 2, 1);
    fixture_until(v, first_pair, NULL);
    fixture_until(v, pair_and_third, NULL);
    relay_close(&relay);
    v->relay = NULL;
    fixture_close(v);
}

/* ---- who is refused ---- */

static bool other_secret_told(struct cluster_fixture *unused, void *none)
{
    return tells(0, fixture_node_id(v, 1), "another secret");
}

TEST(another_secret_is_refused)
{
    struct person_setup stranger = {.secret = FIXTURE_SECRET + 1, .instance = 5};

    fixture_open(v, 3, 3);
    fixture_node_stop(v, 1);
    fixture_node_start(v, 1, fixture_credentials(v, &stranger));
    fixture_node_meet(v, 0, 1);
    fixture_node_meet(v, 1, 0);
    fixture_node_meet(v, 0, 2);
    fixture_until(v, other_secret_told, NULL);
    fixture_for(v, 300 * NS_PER_MS);
    assert_int_equal(v->all[0].linked, 1);
    assert_int_equal(v->all[1].linked, 0);
    assert_true(joined(v, 0, 2));
    fixture_close(v);
}

static bool revocation_told(struct cluster_fixture *unused, void *none)
{
    return tells(0, fixture_node_id(v, 1), "revoked") && tells(1, fixture_node_id(v, 0), "revoked");
}

TEST(a_revoked_key_is_refused)
{
    fixture_open(v, 3, 4);
    struct person_setup person = {
        .secret = FIXTURE_SECRET, .instance = 5, .revoked = &fixture_node_id(v, 1)->node};
    fixture_node_stop(v, 0);
    fixture_node_start(v, 0, fixture_credentials(v, &person));
    fixture_node_meet(v, 0, 1);
    fixture_node_meet(v, 1, 0);
    fixture_node_meet(v, 0, 2);
    fixture_node_meet(v, 1, 2);
    fixture_until(v, revocation_told, NULL);
    fixture_until(v, pair_and_third, NULL);
    assert_int_equal(v->all[0].linked, 1);
    assert_int_equal(v->all[1].linked, 1);
    fixture_close(v);
}

/* ---- members who say what may not be said ---- */

struct rogue {
    struct credentials *credentials;
    struct secure_stream *stream;
    uint32_t serial;
};

/* Dials node 0 and is proven. */
static void rogue_dial(struct rogue *r)
{
    struct session_setup setup = {.heap = &v->heap, .credentials = r->credentials, .role = CHANNEL_DIALS};
    struct sock_addr to = fixture_node_addr(v, 0);
    struct error error;
    int fd = -1, status = HEARTH_PENDING;

    assert_int_equal(sock_dial(&to, NULL, &fd, &error), HEARTH_OK);
    struct sock_wait wait = {.fd = fd, .want_send = true};
    assert_int_equal(sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S), 1);
    assert_int_equal(sock_dialled(fd, &to, &error), HEARTH_OK);
    assert_int_equal(secure_stream_open(&setup, fd, &r->stream), HEARTH_OK);
    for (int i = 0; i < 1000 && status == HEARTH_PENDING; i++) {
        status = secure_stream_pump(r->stream, &error);
        fixture_step(v);
    }
    assert_int_equal(status, HEARTH_OK);
}

static void rogue_open(struct rogue *r)
{
    struct person_setup person = {.secret = FIXTURE_SECRET, .instance = 99};

    r->credentials = fixture_credentials(v, &person);
    r->serial = 0;
    rogue_dial(r);
}

static void rogue_close(struct rogue *r)
{
    secure_stream_close(r->stream);
    credentials_close(r->credentials);
}

/* Header of the payload that stands behind it. */
static void seal(uint8_t *bytes, uint8_t kind, size_t len)
{
    message_seal(kind, bytes + MESSAGE_HEADER_LEN, len, NULL, 0, bytes);
}

static size_t rogue_hello(struct rogue *r, uint8_t *bytes)
{
    struct message_hello hello = {
        .version_min = 1, .version_max = 9, .purpose = HELLO_MESSAGES, .serial = ++r->serial};

    hello.info.id = *credentials_self(r->credentials);
    snprintf(hello.info.name, sizeof hello.info.name, "rogue");
    size_t len = message_hello_encode(&hello, bytes + MESSAGE_HEADER_LEN);
    seal(bytes, MESSAGE_HELLO, len);
    return MESSAGE_HEADER_LEN + len;
}

static bool rogue_out(struct cluster_fixture *unused, void *arg)
{
    struct rogue *r = arg;
    uint8_t bytes[1024];

    for (;;) {
        ssize_t len = secure_stream_recv(r->stream, bytes, sizeof bytes);
        if (len <= 0)
            return len < 0;
    }
}

/* Says these bytes as its first ones, and is sent away. */
static void assert_first_words_refused(void (*spoil)(uint8_t *bytes, size_t *len))
{
    uint8_t bytes[2048] = {0};
    struct rogue r;

    rogue_open(&r);
    size_t len = rogue_hello(&r, bytes);
    spoil(bytes, &len);
    assert_true(secure_stream_send(r.stream, bytes, len));
    fixture_until(v, rogue_out, &r);
    rogue_close(&r);
    assert_int_equal(v->all[0].linked, 0);
}

/* Node 0's list says so now, and its file is gone again. */
static void revoke_at_first(const struct node_id *id)
{
    struct trust_list *list = credentials_trust(v->all[0].credentials);
    struct trust_entry entry = {.id = *id, .revoked = true};
    struct error error;
    char path[128], folder[128];

    snprintf(folder, sizeof folder, "%s", trust_list_path(list));
    *strrchr(folder, '/') = '\0';
    assert_int_equal(mkdir(folder, 0700), 0); /* it went with the file: a change needs one that is there */
    close(open(trust_list_path(list), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(trust_list_set(list, id, &entry, &error), HEARTH_OK);
    assert_int_equal(unlink(trust_list_path(list)), 0);
    snprintf(path, sizeof path, "%s.lock", trust_list_path(list));
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* Who was proven, and has waited with its hello until its key was revoked, does not get in by that. */
TEST(a_key_that_is_revoked_before_its_hello_is_refused)
{
    uint8_t bytes[2048] = {0};
    struct rogue r;

    fixture_open(v, 2, 10);
    struct person_setup person = {
        .secret = FIXTURE_SECRET, .instance = 5, .revoked = &fixture_node_id(v, 1)->node};
    fixture_node_stop(v, 0);
    fixture_node_start(v, 0, fixture_credentials(v, &person));
    rogue_open(&r);
    revoke_at_first(&credentials_self(r.credentials)->node);
    size_t len = rogue_hello(&r, bytes);
    assert_true(secure_stream_send(r.stream, bytes, len));
    fixture_until(v, rogue_out, &r);
    assert_int_equal(v->all[0].linked, 0);
    rogue_close(&r);
    fixture_close(v);
}

static void spoil_magic(uint8_t *bytes, size_t *len)
{
    bytes[0] ^= 1;
}

static void spoil_version(uint8_t *bytes, size_t *len)
{
    bytes[2]++;
}

static void spoil_kind(uint8_t *bytes, size_t *len)
{
    seal(bytes, MESSAGE_BEAT, *len - MESSAGE_HEADER_LEN);
}

static void spoil_length(uint8_t *bytes, size_t *len)
{
    store_u32(bytes + 4, MESSAGE_HELLO_MAX + 1);
}

static void spoil_sum(uint8_t *bytes, size_t *len)
{
    bytes[*len - 1] ^= 1;
}

static void spoil_nothing_follows(uint8_t *bytes, size_t *len)
{
    seal(bytes, MESSAGE_HELLO, 0);
    *len = MESSAGE_HEADER_LEN;
}

static void spoil_purpose(uint8_t *bytes, size_t *len)
{
    bytes[MESSAGE_HEADER_LEN + 4] = 3;
    seal(bytes, MESSAGE_HELLO, *len - MESSAGE_HEADER_LEN);
}

static void spoil_probe(uint8_t *bytes, size_t *len)
{
    bytes[MESSAGE_HEADER_LEN + 4] = HELLO_PROBE; /* of a node that we are not joined to */
    seal(bytes, MESSAGE_HELLO, *len - MESSAGE_HEADER_LEN);
}

static void spoil_identity(uint8_t *bytes, size_t *len)
{
    bytes[MESSAGE_HEADER_LEN + 12 + 2 + 5] ^= 1;
    seal(bytes, MESSAGE_HELLO, *len - MESSAGE_HEADER_LEN);
}

static void spoil_versions(uint8_t *bytes, size_t *len)
{
    store_u16(bytes + MESSAGE_HEADER_LEN, MESSAGE_VERSION + 1);
    seal(bytes, MESSAGE_HELLO, *len - MESSAGE_HEADER_LEN);
}

static void spoil_all(uint8_t *bytes, size_t *len)
{
    assert_int_equal(random_bytes(bytes, 2048), HEARTH_OK);
    bytes[0] = 0;
    *len = 2048;
}

TEST(first_words_must_be_a_good_hello)
{
    fixture_open(v, 1, 5);
    assert_first_words_refused(spoil_magic);
    assert_first_words_refused(spoil_version);
    assert_first_words_refused(spoil_kind);
    assert_first_words_refused(spoil_length);
    assert_first_words_refused(spoil_sum);
    assert_first_words_refused(spoil_nothing_follows);
    assert_first_words_refused(spoil_purpose);
    assert_first_words_refused(spoil_probe);
    assert_first_words_refused(spoil_identity);
    assert_first_words_refused(spoil_versions);
    assert_first_words_refused(spoil_all);
    fixture_close(v);
}

static bool zero_joined(struct cluster_fixture *unused, void *none)
{
    return v->all[0].linked == 1;
}

static bool zero_lost(struct cluster_fixture *unused, void *none)
{
    return v->all[0].lost == 1;
}

/* Is joined, says this message, and is lost with that reason. */
static void assert_message_refused(const uint8_t *message, size_t len, const char *why)
{
    uint8_t bytes[2048];
    struct rogue r;

    fixture_open(v, 1, 6);
    rogue_open(&r);
    assert_true(secure_stream_send(r.stream, bytes, rogue_hello(&r, bytes)));
    fixture_until(v, zero_joined, NULL);
    assert_true(secure_stream_send(r.stream, message, len));
    fixture_until(v, zero_lost, NULL);
    assert_string_equal(v->all[0].text, why);
    rogue_close(&r);
    fixture_close(v);
}

TEST(messages_must_be_messages)
{
    uint8_t bytes[64] = {0};

    seal(bytes, MESSAGE_LOAD, 0);
    assert_message_refused(bytes, MESSAGE_HEADER_LEN, "kind: unknown, or not expected here");
    seal(bytes, MESSAGE_KIND_MAX + 1, 0);
    assert_message_refused(bytes, MESSAGE_HEADER_LEN, "kind: unknown, or not expected here");
    seal(bytes, MESSAGE_BEAT, 0);
    store_u32(bytes + 4, MESSAGE_PAYLOAD_MAX + 1);
    assert_message_refused(bytes, MESSAGE_HEADER_LEN, "length: more than this kind of message may have");
    seal(bytes, MESSAGE_HELLO, 40);
    assert_message_refused(bytes, MESSAGE_HEADER_LEN + 40, "its hello is malformed");
    seal(bytes, MESSAGE_BEAT, 40);
    bytes[MESSAGE_HEADER_LEN] ^= 1;
    assert_message_refused(bytes, MESSAGE_HEADER_LEN + 40, "crc: the message was damaged on its way");
    memset(bytes, 'x', sizeof bytes);
    assert_message_refused(bytes, sizeof bytes, "magic: not a control message of Hearth");
}

static void rogue_greet(struct rogue *r, uint32_t serial)
{
    uint8_t bytes[1024];

    r->serial = serial - 1;
    assert_true(secure_stream_send(r->stream, bytes, rogue_hello(r, bytes)));
}

/* A peer that greets anew has lost what we think is ready; one whose greeting comes late has not. */
TEST(a_newer_hello_replaces_an_older_does_not)
{
    struct rogue first, late, newer;

    fixture_open(v, 1, 7);
    rogue_open(&first);
    rogue_greet(&first, 10);
    fixture_until(v, zero_joined, NULL);
    late = newer = first;
    rogue_dial(&late);
    rogue_dial(&newer);
    rogue_greet(&late, 9);
    fixture_until(v, rogue_out, &late);
    assert_int_equal(v->all[0].again, 0);
    rogue_greet(&newer, 11);
    fixture_until(v, rogue_out, &first);
    assert_int_equal(v->all[0].again, 1);
    assert_int_equal(v->all[0].lost, 0);
    assert_int_equal(v->all[0].linked, 1);
    secure_stream_close(late.stream);
    secure_stream_close(newer.stream);
    rogue_close(&first);
    fixture_close(v);
}

/* ---- strangers ---- */

TEST(a_crowd_at_the_listener_keeps_nobody_out)
{
    enum { CROWD = 300 };
    static int fds[CROWD];
    struct sock_addr to;
    struct error error;

    fixture_open(v, 2, 8);
    to = fixture_node_addr(v, 0);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(sock_dial(&to, NULL, &fds[i], &error), HEARTH_OK);
        uint8_t byte = 0x16; /* as a handshake begins, and not one byte more */
        struct iovec piece = {&byte, 1};
        if (i % 2)
            (void)sock_send(fds[i], &piece, 1);
        if (i % 32 == 0)
            fixture_step(v);
    }
    fixture_node_meet(v, 1, 0);
    fixture_until(v, first_pair, NULL);
    assert_true(half_open_strangers(v->all[0].peer_set->half_open) <= HALF_OPEN_PLACES);
    for (int i = 0; i < CROWD; i++)
        sock_close(fds[i]);
    fixture_close(v);
}
