/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes find each other by what they are told, are joined by one connection each pair, and tell messages. */
#include <unistd.h>

#include "cluster/peer_conn.h"
#include "cluster_fixture.h"
#include "connect/secure_stream.h"
#include "os/clock.h"
#include "relay.h"
#include "support/suite.h"

static struct cluster_fixture fixture;
static struct cluster_fixture *const v = &fixture;

static bool all_got(struct cluster_fixture *unused, void *count)
{
    for (int i = 0; i < v->size; i++)
        if (v->all[i].messages < *(const uint64_t *)count)
            return false;
    return true;
}

static bool one_got(struct cluster_fixture *unused, void *count)
{
    return v->all[1].messages >= *(const uint64_t *)count;
}

static bool lost_one(struct cluster_fixture *unused, void *number)
{
    return v->all[*(const int *)number].lost > 0;
}

static struct peer_set *peer_set_of(int number)
{
    return v->all[number].peer_set;
}

static void pair_open(uint64_t seed)
{
    fixture_open(v, 2, seed);
    fixture_node_meet(v, 0, 1);
    fixture_until(v, fixture_whole, NULL);
}

TEST(six_are_joined_to_each_other)
{
    uint64_t each = 5;
    uint8_t payload[100];

    fixture_open(v, 6, 1);
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            if (a != b)
                fixture_node_meet(v, a, b);
    fixture_until(v, fixture_whole, NULL);
    message_fill(payload, sizeof payload, 1);
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            if (a != b)
                assert_true(peer_set_send(peer_set_of(a), fixture_node_id(v, b), MESSAGE_BEAT, payload, 100));
    fixture_until(v, all_got, &each);
    for (int a = 0; a < 6; a++) {
        assert_int_equal(v->all[a].damaged, 0);
        assert_int_equal(v->all[a].lost, 0);
        assert_int_equal(v->all[a].linked, 5);
    }
    fixture_close(v);
}

static bool all_sleep(struct cluster_fixture *unused, void *none)
{
    struct sock_wait items[PEER_SET_WAITS_MAX];
    bool asleep = true;

    for (int i = 0; i < 2; i++) {
        uint64_t deadline_ns = NEVER_NS;
        asleep = asleep && peer_set_waits(peer_set_of(i), items, PEER_SET_WAITS_MAX, &deadline_ns) == 2 &&
                 deadline_ns == NEVER_NS && sock_wait(items, 2, clock_real()) == 0;
    }
    return asleep;
}

TEST(who_has_nothing_to_do_sleeps)
{
    pair_open(15);
    fixture_until(v, all_sleep, NULL);
    fixture_for(v, 50 * NS_PER_MS);
    assert_true(all_sleep(v, NULL)); /* and nothing wakes them */
    fixture_close(v);
}

/* ---- who is where ---- */

TEST(a_seed_may_be_anybody)
{
    struct sock_addr addr;

    fixture_open(v, 2, 2);
    addr = fixture_node_addr(v, 1);
    peer_set_known_addr(peer_set_of(0), &addr, NULL, false, clock_real());
    fixture_until(v, fixture_whole, NULL);
    assert_string_equal(v->all[0].info, "node-1");
    assert_string_equal(v->all[1].info, "node-0");
    fixture_close(v);
}

static bool is_self(struct cluster_fixture *unused, void *none)
{
    return peer_set_of(0)->known_addrs.list[0].self;
}

TEST(ourselves_are_dialled_once)
{
    struct sock_addr self;
    struct relay relay;

    fixture_open(v, 2, 3);
    self = fixture_node_addr(v, 0);
    relay_open(&relay, &self);
    v->relay = &relay;
    peer_set_known_addr(peer_set_of(0), &relay.addr, NULL, false, clock_real()); /* the user said so */
    fixture_until(v, is_self, NULL);
    peer_set_known_addr(peer_set_of(0), &relay.addr, fixture_node_id(v, 1), true, clock_real());
    fixture_for(v, 300 * NS_PER_MS);
    assert_int_equal(relay.passed, 1);
    assert_int_equal(v->all[0].linked, 0);
    assert_int_equal(peer_set_of(0)->count, 0);
    fixture_node_meet(v, 0, 1); /* its other address */
    fixture_until(v, fixture_whole, NULL);
    relay_close(&relay);
    fixture_close(v);
}

static bool looked_at(struct cluster_fixture *unused, void *none)
{
    const struct known_addr *e = &peer_set_of(0)->known_addrs.list[0];

    return e->contests > 0 && !dial_target_busy(&e->target);
}

TEST(an_address_is_whose_it_proves_to_be)
{
    struct sock_addr one, two;

    fixture_open(v, 3, 4);
    one = fixture_node_addr(v, 1);
    two = fixture_node_addr(v, 2);
    peer_set_known_addr(peer_set_of(0), &two, fixture_node_id(v, 1), false, clock_real());
    peer_set_known_addr(peer_set_of(0), &one, fixture_node_id(v, 1), false, clock_real());
    fixture_node_meet(v, 1, 2);
    fixture_until(v, fixture_whole, NULL);
    const struct known_addr *e = &peer_set_of(0)->known_addrs.list[0];
    assert_true(e->proven && identity_equal(&e->who, fixture_node_id(v, 2)));
    for (int i = 0; i < 20; i++) { /* said again: looked at once, not again and again */
        peer_set_known_addr(peer_set_of(0), &two, fixture_node_id(v, 1), false, clock_real());
        fixture_step(v);
    }
    fixture_until(v, looked_at, NULL);
    assert_int_equal(e->contests, 1);
    assert_int_equal(v->all[0].again + v->all[2].again, 0);
    assert_int_equal(v->all[0].lost + v->all[1].lost + v->all[2].lost, 0);
    fixture_close(v);
}

TEST(a_node_that_restarts_is_another_one)
{
    char folder[] = "/tmp/hearth-peers-XXXXXX", path[64];
    int zero = 0;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/key", folder);
    struct person_setup person = {.secret = FIXTURE_SECRET, .instance = 11, .key = path};
    fixture_open(v, 2, 5);
    fixture_node_stop(v, 1);
    fixture_node_start(v, 1, fixture_credentials(v, &person));
    struct identity first = *fixture_node_id(v, 1);
    struct sock_addr addr = fixture_node_addr(v, 1);
    char listen[SOCK_TEXT_MAX];
    sock_addr_text(&addr, listen, sizeof listen);
    fixture_node_meet(v, 0, 1);
    fixture_until(v, fixture_whole, NULL);
    fixture_node_stop(v, 1);
    fixture_until(v, lost_one, &zero);
    v->listen = listen; /* where it was */
    person.instance = 12;
    fixture_node_start(v, 1, fixture_credentials(v, &person));
    assert_true(node_id_equal(&first.node, &fixture_node_id(v, 1)->node));
    fixture_until(v, fixture_whole, NULL); /* nobody had to tell */
    assert_int_equal(v->all[0].linked, 2);
    assert_false(peer_set_send(peer_set_of(0), &first, MESSAGE_BEAT, "x", 1));
    fixture_close(v);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/key.lock", folder);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- loss ---- */

static bool both_lost(struct cluster_fixture *unused, void *none)
{
    return v->all[0].lost == 1 && v->all[1].lost == 1;
}

TEST(what_was_lost_is_made_again)
{
    struct sock_addr addr;
    struct relay relay;

    fixture_open(v, 2, 6);
    addr = fixture_node_addr(v, 1);
    relay_open(&relay, &addr);
    v->relay = &relay;
    peer_set_known_addr(peer_set_of(0), &relay.addr, fixture_node_id(v, 1), true, clock_real());
    fixture_until(v, fixture_whole, NULL);
    relay_close(&relay);
    v->relay = NULL;
    fixture_until(v, both_lost, NULL);
    assert_string_equal(v->all[0].text, "it closed the connection, or the connection broke");
    fixture_until(v, fixture_whole, NULL); /* by the addresses that they have told each other */
    fixture_close(v);
}

TEST(who_is_dropped_hears_it_and_comes_back)
{
    int one = 1;

    pair_open(7);
    peer_set_drop(peer_set_of(0), fixture_node_id(v, 1), "for a test");
    fixture_until(v, lost_one, &one);
    assert_string_equal(v->all[0].text, "for a test");
    fixture_until(v, fixture_whole, NULL);
    fixture_close(v);
}

TEST(a_goodbye_arrives)
{
    int one = 1;

    pair_open(8);
    assert_true(peer_set_send(peer_set_of(0), fixture_node_id(v, 1), MESSAGE_LEAVE, NULL, 0));
    assert_true(peer_set_send(peer_set_of(1), fixture_node_id(v, 0), MESSAGE_BEAT, "unread", 6));
    peer_set_close(peer_set_of(0));
    v->all[0].peer_set = NULL;
    fixture_until(v, lost_one, &one);
    assert_int_equal(v->all[1].messages, 1);
    assert_int_equal(v->all[1].kind, MESSAGE_LEAVE);
    fixture_close(v);
}

/* ---- messages ---- */

TEST(the_largest_messages_go_both_ways)
{
    static uint8_t payload[MESSAGE_PAYLOAD_MAX];
    uint64_t each = 14;

    pair_open(9);
    for (uint64_t i = 0; i < each; i++)
        for (int from = 0; from < 2; from++) {
            size_t len = i == 3 ? 0 : sizeof payload - i * 1000;
            message_fill(payload, len, i);
            assert_true(
                peer_set_send(peer_set_of(from), fixture_node_id(v, !from), MESSAGE_LINKS, payload, len));
        }
    fixture_until(v, all_got, &each);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(v->all[i].damaged, 0);
        assert_int_equal(v->all[i].len, sizeof payload - 13000);
    }
    assert_false(
        peer_set_send(peer_set_of(0), fixture_node_id(v, 1), MESSAGE_LINKS, payload, sizeof payload + 1));
    fixture_close(v);
}

TEST(what_does_not_fit_is_dropped_and_counted)
{
    static uint8_t payload[MESSAGE_PAYLOAD_MAX];
    uint64_t sent = 0, dropped = 0;

    pair_open(10);
    message_fill(payload, sizeof payload, 1);
    while (dropped < 5) /* nobody reads */
        if (peer_set_send(peer_set_of(0), fixture_node_id(v, 1), MESSAGE_BEAT, payload, sizeof payload))
            sent++;
        else
            dropped++;
    assert_int_equal(peer_set_traffic(peer_set_of(0)).dropped, 5);
    assert_in_range(sent, PEER_CONN_QUEUE_MAX / sizeof payload - 1, 64);
    fixture_until(v, one_got, &sent);
    fixture_for(v, 20 * NS_PER_MS);
    assert_int_equal(v->all[1].messages, sent);
    assert_int_equal(v->all[1].damaged, 0);
    assert_int_equal(v->all[1].bytes, sent * sizeof payload);
    peer_set_drop(peer_set_of(0), fixture_node_id(v, 1), "test"); /* what was counted stays counted */
    assert_int_equal(peer_set_traffic(peer_set_of(0)).dropped, 5);
    assert_true(peer_set_traffic(peer_set_of(0)).sent > sent * sizeof payload);
    fixture_close(v);
}

static bool told_again(struct cluster_fixture *unused, void *name)
{
    return strcmp(v->all[1].info, name) == 0;
}

TEST(a_node_may_describe_itself_anew)
{
    struct peer_info self;

    pair_open(11);
    self = *peer_set_self(peer_set_of(0));
    struct sock_addr addr, bound = fixture_node_addr(v, 0);
    addr = sock_addr_of(&self.addrs[0]);
    assert_true(sock_addr_equal(&addr, &bound)); /* with its port */
    snprintf(self.name, sizeof self.name, "renamed");
    peer_set_describe(peer_set_of(0), &self);
    fixture_until(v, told_again, "renamed");
    assert_int_equal(v->all[1].again, 1);
    assert_int_equal(v->all[1].lost, 0);
    fixture_close(v);
}

/* ---- probes ---- */

static bool probed(struct cluster_fixture *unused, void *count)
{
    return v->all[0].probes == *(const int *)count && v->all[1].probes == *(const int *)count;
}

static bool probe_failed(struct cluster_fixture *unused, void *none)
{
    return v->all[0].probes_failed == 1;
}

static void assert_tells(struct secure_stream *from, struct secure_stream *to)
{
    char word[8] = {0};
    struct sock_wait wait = {.fd = secure_stream_fd(to), .want_recv = true};

    assert_true(secure_stream_send(from, "bytes", 5));
    for (int i = 0; i < 10 && sock_wait(&wait, 1, clock_real() + NS_PER_S) == 0; i++)
        continue;
    assert_int_equal(secure_stream_recv(to, word, sizeof word), 5);
    assert_string_equal(word, "bytes");
}

TEST(a_probe_has_a_connection_of_its_own)
{
    int once = 1;

    pair_open(12);
    for (int from = 0; from < 2; from++) {
        v->all[0].probes = v->all[1].probes = 0;
        assert_int_equal(
            peer_set_dial_probe(peer_set_of(from), fixture_node_id(v, !from), NULL, clock_real()), HEARTH_OK);
        fixture_until(v, probed, &once);
        assert_true(v->all[from].secure_stream_dialled);
        assert_false(v->all[!from].secure_stream_dialled);
        assert_tells(v->all[from].stream, v->all[!from].stream);
        assert_tells(v->all[!from].stream, v->all[from].stream);
    }
    assert_int_equal(v->all[0].lost + v->all[1].lost, 0);
    assert_true(joined(v, 0, 1));
    fixture_close(v);
}

static bool first_pair(struct cluster_fixture *unused, void *none)
{
    return joined(v, 0, 1);
}

TEST(a_probe_that_cannot_be_is_told)
{
    struct sock_addr other;
    int made = 0;

    fixture_open(v, 3, 13);
    fixture_node_meet(v, 0, 1);
    fixture_until(v, first_pair, NULL);
    assert_int_equal(peer_set_dial_probe(peer_set_of(0), fixture_node_id(v, 2), NULL, clock_real()),
                     HEARTH_PEER_LOST);
    other = fixture_node_addr(v, 2);
    assert_int_equal(peer_set_dial_probe(peer_set_of(0), fixture_node_id(v, 1), &other, clock_real()),
                     HEARTH_OK);
    fixture_until(v, probe_failed, NULL);
    assert_non_null(strstr(v->all[0].text, "another node listens there"));
    while (peer_set_dial_probe(peer_set_of(0), fixture_node_id(v, 1), NULL, clock_real()) == HEARTH_OK)
        made++;
    assert_int_equal(made, PEER_SET_PROBES_MAX);
    assert_int_equal(peer_set_dial_probe(peer_set_of(0), fixture_node_id(v, 1), NULL, clock_real()),
                     HEARTH_LIMIT);
    fixture_until(v, probed, &made);
    fixture_close(v);
}

/* ---- memory ---- */

TEST(opening_without_memory_leaves_nothing)
{
    struct person_setup person = {.secret = FIXTURE_SECRET, .instance = 1};
    struct peer_set *peer_set = NULL;
    struct error error;
    int status = HEARTH_NO_MEMORY;

    fixture_open(v, 1, 14);
    struct credentials *credentials = fixture_credentials(v, &person);
    uint64_t blocks = v->heap.blocks;
    struct peer_set_setup setup = {.heap = &v->heap, .credentials = credentials, .now_ns = clock_real()};
    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &setup.listen), HEARTH_OK);
    for (int after = 0; status != HEARTH_OK; after++) {
        v->heap.fail_after = after;
        status = peer_set_open(&setup, &peer_set, &error);
        v->heap.fail_after = -1;
        assert_true(status == HEARTH_OK || (status == HEARTH_NO_MEMORY && v->heap.blocks == blocks));
    }
    peer_set_close(peer_set);
    setup.listen = fixture_node_addr(v, 0);
    assert_int_equal(peer_set_open(&setup, &peer_set, &error), HEARTH_LIMIT);
    assert_int_equal(v->heap.blocks, blocks);
    credentials_close(credentials);
    fixture_close(v);
}

/* Memory fails at some point of finding and joining; when it is back, they are joined. */
TEST(joining_survives_moments_without_memory)
{
    for (int after = 0; after < 150; after += 6) {
        fixture_open(v, 2, 1000 + (uint64_t)after);
        v->heap.fail_after = after;
        fixture_node_meet(v, 0, 1);
        fixture_node_meet(v, 1, 0);
        for (int i = 0; i < 6; i++) {
            fixture_node_move(v, i % 2);
            (void)peer_set_send(peer_set_of(0), fixture_node_id(v, 1), MESSAGE_BEAT, "message", 6);
        }
        v->heap.fail_after = -1;
        fixture_node_meet(v, 0, 1);
        fixture_until(v, fixture_whole, NULL);
        fixture_close(v);
    }
}
