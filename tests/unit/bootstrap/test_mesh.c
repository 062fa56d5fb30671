/* SPDX-License-Identifier: Apache-2.0 */
/* Members in threads join over loopback and unix sockets: every channel leads to its twin, nothing is left
 * over, and whoever does not come is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bootstrap/door.h"
#include "bootstrap/mesh.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/thread.h"

#define MEMBERS_MAX 6
#define STRANGERS   100 /* at each door: more than it has places */

/* One member; what the test changes stands in the cluster before it runs. */
struct node {
    struct thread thread;
    struct door *door;
    struct roster roster;
    struct member members[MEMBERS_MAX]; /* its own view of them */
    struct mesh_setup setup;
    struct mesh_peer peers[MEMBERS_MAX];
    struct error error;
    int status;
    int logged; /* lines HEARTH-JOINED */
};

struct cluster {
    struct heap heap;
    int size;
    struct node nodes[MEMBERS_MAX];
};

static void node_log(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    struct node *node = arg;

    (void)level;
    (void)text;
    node->logged += strcmp(id, "HEARTH-JOINED") == 0;
}

static void cluster_open(struct cluster *c, int size, bool share)
{
    uint64_t cluster;
    struct member members[MEMBERS_MAX];

    memset(c, 0, sizeof(*c));
    memset(members, 0, sizeof(members));
    heap_init(&c->heap, 0);
    c->size = size;
    assert_int_equal(random_bytes(&cluster, sizeof(cluster)), HEARTH_OK);
    for (int i = 0; i < size; i++) {
        struct node *n = &c->nodes[i];
        struct door_setup door = {.heap = &c->heap, .port_tries = 0, .greeting_ns = 5 * NS_PER_S};
        assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &door.listen), HEARTH_OK);
        assert_int_equal(door_open(&door, &n->door, &n->error), HEARTH_OK);
        members[i] = (struct member){.instance = 100 + (uint64_t)i, .host_id = 7, .addr_count = 1};
        members[i].features = share ? FEATURE_SHM : 0;
        members[i].addrs[0] = door_addr(n->door);
        snprintf(members[i].name, sizeof(members[i].name), "host%d", i);
    }
    for (int i = 0; i < size; i++) {
        struct node *n = &c->nodes[i];
        memcpy(n->members, members, sizeof(members));
        n->roster = (struct roster){.cluster = cluster | 1, .rank = i, .size = size, .members = n->members};
        n->setup = (struct mesh_setup){
            .heap = &c->heap,
            .log = {node_log, n, HEARTH_LOG_DEBUG},
            .roster = &n->roster,
            .door = n->door,
            .deadline_ns = clock_real() + 60 * NS_PER_S,
            .connect_timeout_ns = 5 * NS_PER_S,
            .connect_retries = 3,
        };
    }
}

static void node_run(void *arg)
{
    struct node *n = arg;
    n->status = mesh_join(&n->setup, n->peers, &n->error);
}

/* All but those in the set of bits `absent`. */
static void cluster_run(struct cluster *c, unsigned absent)
{
    for (int i = 0; i < c->size; i++)
        if (!(absent >> i & 1))
            assert_int_equal(thread_start(&c->nodes[i].thread, "member", node_run, &c->nodes[i]), HEARTH_OK);
    for (int i = 0; i < c->size; i++)
        if (!(absent >> i & 1))
            thread_join(&c->nodes[i].thread);
}

static void cluster_close(struct cluster *c, unsigned absent)
{
    for (int i = 0; i < c->size; i++) {
        if (!(absent >> i & 1))
            mesh_close(c->nodes[i].peers, c->size);
        door_close(c->nodes[i].door);
    }
    assert_int_equal(c->heap.blocks, 0);
}

/* The first byte that a channel carries after the greeting is the other end's. */
static void assert_twins(int a, int b, uint8_t mark)
{
    uint8_t got = 0;
    struct iovec out = {&mark, 1}, in = {&got, 1};
    struct sock_wait wait = {.fd = b, .want_recv = true};

    assert_true(a >= 0 && b >= 0);
    assert_int_equal(sock_send(a, &out, 1), 1);
    for (int i = 0; i < 10 && sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S) == 0; i++)
        continue;
    assert_int_equal(sock_recv(b, &in, 1), 1);
    assert_int_equal(got, mark);
    assert_int_equal(sock_recv(b, &in, 1), 0);
}

static void assert_joined(struct cluster *c, enum mesh_kind kind, int channels)
{
    uint8_t mark = 0;

    for (int i = 0; i < c->size; i++) {
        if (c->nodes[i].status)
            fail_msg("rank %d: %s", i, c->nodes[i].error.text);
        assert_int_equal(c->nodes[i].logged, c->size - 1);
        assert_int_equal(c->nodes[i].peers[i].kind, MESH_NONE);
    }
    for (int i = 0; i < c->size; i++) {
        for (int j = 0; j < c->size; j++) {
            const struct mesh_peer *here = &c->nodes[i].peers[j], *there = &c->nodes[j].peers[i];
            if (i == j)
                continue;
            assert_int_equal(here->kind, kind);
            assert_int_equal(here->count, channels);
            assert_true(here->round_trip_ns > 0);
            for (int k = 0; k < MESH_CHANNELS_MAX; k++) {
                assert_int_equal(here->fds[k] >= 0, k < channels);
                if (k < channels)
                    assert_twins(here->fds[k], there->fds[k], ++mark);
            }
        }
    }
}

static void members_join_over_tcp(void **state)
{
    static struct cluster c;

    (void)state;
    for (int size = 1; size <= MEMBERS_MAX; size++) {
        cluster_open(&c, size, false);
        for (int i = 0; i < size; i++)
            c.nodes[i].setup.channels = 1 + size;
        cluster_run(&c, 0);
        assert_joined(&c, MESH_TCP, 1 + size);
        cluster_close(&c, 0);
    }
}

static void members_of_a_host_join_over_unix_sockets(void **state)
{
    static struct cluster c;

    (void)state;
    for (int size = 2; size <= MEMBERS_MAX; size++) {
        cluster_open(&c, size, true);
        for (int i = 0; i < size; i++)
            c.nodes[i].setup.wish = size % 2 ? MESH_WISH_SHM : MESH_AUTO;
        cluster_run(&c, 0);
        assert_joined(&c, MESH_UNIX, 1);
        struct sock_addr addr;
        struct error error;
        int fd = -1;
        door_local_addr(c.nodes[0].roster.cluster, 0, &addr);
        assert_int_equal(sock_dial(&addr, NULL, &fd, &error), HEARTH_PEER_LOST); /* nothing is left behind */
        cluster_close(&c, 0);
    }
}

static void the_lower_rank_decides_the_channels(void **state)
{
    static struct cluster c;

    (void)state;
    cluster_open(&c, 2, false);
    c.nodes[0].setup.channels = MESH_CHANNELS_MAX;
    c.nodes[1].setup.channels = 1;
    cluster_run(&c, 0);
    assert_joined(&c, MESH_TCP, MESH_CHANNELS_MAX);
    cluster_close(&c, 0);
}

/* An address that nobody answers at, before and behind the good one. */
static void a_good_address_among_bad_ones_is_found(void **state)
{
    static struct cluster c;

    (void)state;
    cluster_open(&c, 3, false);
    for (int i = 0; i < 3; i++) {
        c.nodes[i].setup.channels = 3;
        for (int j = 0; j < 3; j++) {
            struct member *m = &c.nodes[i].members[j];
            m->addr_count = 3;
            m->addrs[1] = m->addrs[0];
            assert_int_equal(sock_addr_parse("127.0.0.1:1", 0, &m->addrs[0]), HEARTH_OK);
            assert_int_equal(sock_addr_parse("[::1]:1", 0, &m->addrs[2]), HEARTH_OK);
        }
    }
    cluster_run(&c, 0);
    assert_joined(&c, MESH_TCP, 3);
    cluster_close(&c, 0);
}

static void the_lower_rank_dials_when_the_higher_has_a_wrong_address(void **state)
{
    static struct cluster c;

    (void)state;
    cluster_open(&c, 2, false);
    c.nodes[0].setup.channels = c.nodes[1].setup.channels = 4;
    assert_int_equal(sock_addr_parse("127.0.0.1:1", 0, &c.nodes[1].members[0].addrs[0]), HEARTH_OK);
    cluster_run(&c, 0);
    assert_joined(&c, MESH_TCP, 4);
    cluster_close(&c, 0);
}

/* Plays a lower rank: says this on the socket, and hears the answer to it if there is one to come. */
static struct greeting converse(int fd, const struct greeting *say, bool answered)
{
    uint8_t bytes[GREETING_LEN];
    struct iovec piece = {bytes, sizeof(bytes)};
    struct sock_wait wait = {.fd = fd, .want_recv = true};
    struct greeting answer = *say;
    const char *what = "";

    greeting_encode(say, bytes);
    assert_int_equal(sock_send(fd, &piece, 1), GREETING_LEN);
    if (answered) {
        assert_int_equal(sock_wait(&wait, 1, clock_real() + 20 * NS_PER_S), 1);
        assert_int_equal(sock_recv(fd, &piece, 1), GREETING_LEN);
        assert_int_equal(greeting_decode(&answer, bytes, &what), HEARTH_OK);
    }
    return answer;
}

/* The lower rank's greeting of channel 1 comes before all that it says of channel 0. */
static void channels_may_come_in_any_order(void **state)
{
    static struct cluster c;
    int fds[2] = {-1, -1};
    struct error error;

    (void)state;
    cluster_open(&c, 2, false);
    c.nodes[1].members[0].addr_count = 0; /* it cannot dial us */
    struct sock_addr to = c.nodes[1].members[1].addrs[0];
    assert_int_equal(thread_start(&c.nodes[1].thread, "member", node_run, &c.nodes[1]), HEARTH_OK);
    for (int i = 1; i >= 0; i--) {
        struct greeting g = {GREETING_GREET, 0, (uint8_t)i, 2, 0, 1, c.nodes[0].roster.cluster, 100, 101, 5};
        assert_int_equal(sock_dial(&to, NULL, &fds[i], &error), HEARTH_OK);
        struct greeting answer = converse(fds[i], &g, true);
        assert_int_equal(answer.kind, GREETING_WELCOME);
        assert_int_equal(answer.channel, i);
        assert_int_equal(answer.channels, 2);
        g.kind = GREETING_CONFIRM;
        (void)converse(fds[i], &g, false);
    }
    thread_join(&c.nodes[1].thread);
    assert_int_equal(c.nodes[1].status, HEARTH_OK);
    assert_int_equal(c.nodes[1].peers[0].count, 2);
    for (int i = 0; i < 2; i++) {
        assert_twins(fds[i], c.nodes[1].peers[0].fds[i], (uint8_t)(7 + i));
        sock_close(fds[i]);
    }
    cluster_close(&c, 1u << 0);
}

/* Strangers that say nothing, or nothing good, stand at every door before the members come. */
static void members_join_between_strangers(void **state)
{
    static struct cluster c;
    int fds[3 * STRANGERS];

    (void)state;
    cluster_open(&c, 3, false);
    for (int i = 0; i < 3; i++)
        c.nodes[i].setup.channels = 2;
    for (int i = 0; i < 3 * STRANGERS; i++) {
        struct iovec piece = {(void *)(uintptr_t) "HG GET / HTTP", (size_t)i % 13};
        struct sock_addr to = door_addr(c.nodes[i % 3].door);
        struct error error;
        fds[i] = -1;
        assert_int_equal(sock_dial(&to, NULL, &fds[i], &error), HEARTH_OK);
        (void)sock_send(fds[i], &piece, 1);
    }
    cluster_run(&c, 0);
    assert_joined(&c, MESH_TCP, 2);
    for (int i = 0; i < 3 * STRANGERS; i++)
        sock_close(fds[i]);
    cluster_close(&c, 0);
}

static void a_member_that_does_not_come_is_named(void **state)
{
    static struct cluster c;

    (void)state;
    for (int share = 0; share < 2; share++) {
        cluster_open(&c, 3, share);
        for (int i = 0; i < 3; i++)
            c.nodes[i].setup.deadline_ns = clock_real() + 2 * NS_PER_S;
        cluster_run(&c, 1u << 1);
        for (int i = 0; i < 3; i += 2) {
            const struct error *e = &c.nodes[i].error;
            assert_int_equal(c.nodes[i].status, HEARTH_TIMEOUT);
            assert_int_equal(e->rank, 1);
            assert_non_null(strstr(e->text, "rank 1 (host1)"));
            assert_non_null(strstr(e->text, share ? "unix:@hearth-" : "127.0.0.1:"));
            assert_non_null(strstr(e->text, "firewall"));
            for (int j = 0; j < 3; j++)
                assert_int_equal(c.nodes[i].peers[j].fds[0], -1);
        }
        cluster_close(&c, 1u << 1);
    }
}

/* Refused everywhere: no need to wait for the deadline. */
static void a_member_that_nobody_can_reach_is_given_up(void **state)
{
    static struct cluster c;

    (void)state;
    cluster_open(&c, 2, false);
    c.nodes[0].setup.connect_timeout_ns = 100 * NS_PER_MS;
    c.nodes[0].setup.connect_retries = 0;
    assert_int_equal(sock_addr_parse("127.0.0.1:1", 0, &c.nodes[0].members[1].addrs[0]), HEARTH_OK);
    cluster_run(&c, 1u << 1);
    assert_int_equal(c.nodes[0].status, HEARTH_PEER_LOST);
    assert_non_null(strstr(c.nodes[0].error.text, "127.0.0.1:1: Connection refused"));
    cluster_close(&c, 1u << 1);
}

static void beyond_this_machine_trust_is_asked_for(void **state)
{
    static struct cluster c;

    (void)state;
    cluster_open(&c, 2, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sock_addr_parse("192.0.2.1:9", 0, &c.nodes[i].members[1].addrs[0]), HEARTH_OK);
    cluster_run(&c, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(c.nodes[i].status, HEARTH_INVALID);
        assert_non_null(strstr(c.nodes[i].error.text, "192.0.2.1:9"));
        assert_non_null(strstr(c.nodes[i].error.text, "--i-trust-this-network"));
    }
    cluster_close(&c, 0);
}

static void shared_memory_that_cannot_be_is_an_error(void **state)
{
    static struct cluster c;

    (void)state;
    cluster_open(&c, 2, true);
    for (int i = 0; i < 2; i++) {
        c.nodes[i].setup.wish = MESH_WISH_SHM;
        c.nodes[i].members[1].host_id = 8;
    }
    cluster_run(&c, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(c.nodes[i].status, HEARTH_INVALID);
        assert_int_equal(c.nodes[i].error.rank, !i);
    }
    cluster_close(&c, 0);
}

static void wrong_numbers_of_connections_are_refused(void **state)
{
    static struct cluster c;

    (void)state;
    cluster_open(&c, 2, false);
    c.nodes[0].setup.channels = MESH_CHANNELS_MAX + 1;
    c.nodes[1].setup.channels = -1;
    cluster_run(&c, 0);
    assert_int_equal(c.nodes[0].status, HEARTH_INVALID);
    assert_int_equal(c.nodes[1].status, HEARTH_INVALID);
    cluster_close(&c, 0);
}

static void no_memory_is_an_error(void **state)
{
    static struct cluster c;

    (void)state;
    for (int after = 0; after < 2; after++) {
        cluster_open(&c, 2, false);
        c.heap.fail_after = after;
        c.nodes[0].status = mesh_join(&c.nodes[0].setup, c.nodes[0].peers, &c.nodes[0].error);
        assert_int_equal(c.nodes[0].status, HEARTH_NO_MEMORY);
        cluster_close(&c, 1u << 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_join_over_tcp),
        cmocka_unit_test(members_of_a_host_join_over_unix_sockets),
        cmocka_unit_test(the_lower_rank_decides_the_channels),
        cmocka_unit_test(a_good_address_among_bad_ones_is_found),
        cmocka_unit_test(the_lower_rank_dials_when_the_higher_has_a_wrong_address),
        cmocka_unit_test(channels_may_come_in_any_order),
        cmocka_unit_test(members_join_between_strangers),
        cmocka_unit_test(a_member_that_does_not_come_is_named),
        cmocka_unit_test(a_member_that_nobody_can_reach_is_given_up),
        cmocka_unit_test(beyond_this_machine_trust_is_asked_for),
        cmocka_unit_test(shared_memory_that_cannot_be_is_an_error),
        cmocka_unit_test(wrong_numbers_of_connections_are_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
