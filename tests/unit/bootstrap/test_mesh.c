/* SPDX-License-Identifier: Apache-2.0 */
/* Members in threads join over loopback and unix sockets, plain and not: every channel leads to its twin,
 * nothing is left over, and whoever does not come, or is not who he says, is named. */
#include <sys/resource.h>

#include "bootstrap/mesh.h"
#include "connect/listener.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/thread.h"
#include "security/records.h"
#include "support/persons.h"
#include "support/suite.h"

#define MEMBERS_MAX 6
#define STRANGERS   100 /* at each listener: more than it has places */

static bool secure;

static int choose(void **state)
{
    secure = *state;
    return 0;
}

/* One member; what the test changes stands in the cluster before it runs. */
struct node {
    struct thread thread;
    struct credentials *credentials;
    struct listener *listener;
    struct roster roster;
    struct peer_info members[MEMBERS_MAX]; /* its own view of them */
    struct mesh_setup setup;
    struct mesh_peer peers[MEMBERS_MAX];
    struct error error;
    int status;
    int logged;     /* lines HEARTH-JOINED */
    int complaints; /* HEARTH-STRANGER, at WARN */
    char complaint[400];
};

struct cluster {
    struct heap heap;
    int size;
    struct node nodes[MEMBERS_MAX];
};

static struct cluster cluster; /* of the test that runs */

static void set_addr(struct net_addr *net, const char *text)
{
    struct sock_addr addr;

    assert_int_equal(sock_addr_parse(text, 0, &addr), HEARTH_OK);
    assert_true(sock_addr_to_net(&addr, net));
}

static void node_log(void *arg, enum hearth_log_level level, const char *id, const char *text)
{
    struct node *node = arg;

    node->logged += strcmp(id, "HEARTH-JOINED") == 0;
    if (strcmp(id, "HEARTH-STRANGER") != 0 || level > HEARTH_LOG_WARN)
        return;
    node->complaints++;
    snprintf(node->complaint, sizeof node->complaint, "%s", text);
}

static struct credentials *node_person(struct cluster *c, int rank, uint8_t secret)
{
    struct node *n = &c->nodes[rank];

    credentials_close(n->credentials);
    n->credentials = person(&c->heap, secret, 100 + (uint64_t)rank);
    n->setup.credentials = n->credentials;
    return n->credentials;
}

static void fixture_open(struct cluster *c, int size, bool share)
{
    uint64_t id;
    struct peer_info members[MEMBERS_MAX];

    memset(c, 0, sizeof *c);
    memset(members, 0, sizeof members);
    heap_init(&c->heap, 0);
    c->size = size;
    assert_int_equal(random_bytes(&id, sizeof id), HEARTH_OK);
    for (int i = 0; i < size; i++) {
        struct node *n = &c->nodes[i];
        struct half_open_setup listener = {
            .heap = &c->heap, .log = {node_log, n, HEARTH_LOG_DEBUG}, .patience_ns = 5 * NS_PER_S};
        assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &listener.listen), HEARTH_OK);
        assert_int_equal(listener_open(&listener, &n->listener, &n->error), HEARTH_OK);
        members[i] = (struct peer_info){.id.instance = 100 + (uint64_t)i, .host_id = 7, .addr_count = 1};
        members[i].features = share ? PEER_SHM : 0;
        struct sock_addr addr = half_open_addr(n->listener->half_open);
        assert_true(sock_addr_to_net(&addr, &members[i].addrs[0]));
        snprintf(members[i].name, sizeof members[i].name, "host%d", i);
        if (secure)
            members[i].id.node = credentials_self(node_person(c, i, 1))->node;
    }
    for (int i = 0; i < size; i++) {
        struct node *n = &c->nodes[i];
        memcpy(n->members, members, sizeof members);
        n->roster = (struct roster){.cluster = id | 1, .rank = i, .size = size, .members = n->members};
        n->setup = (struct mesh_setup){
            .heap = &c->heap,
            .log = {node_log, n, HEARTH_LOG_DEBUG},
            .roster = &n->roster,
            .listener = n->listener,
            .deadline_ns = clock_real() + 60 * NS_PER_S,
            .connect_timeout_ns = 5 * NS_PER_S,
            .connect_retries = 3,
            .credentials = n->credentials,
        };
    }
}

static void node_run(void *arg)
{
    struct node *n = arg;
    n->status = mesh_join(&n->setup, n->peers, &n->error);
}

/* All but those in the set of bits `absent`. */
static void cluster_start(struct cluster *c, unsigned absent)
{
    for (int i = 0; i < c->size; i++)
        if (!(absent >> i & 1))
            assert_int_equal(thread_start(&c->nodes[i].thread, "member", node_run, &c->nodes[i]), HEARTH_OK);
}

static void cluster_wait(struct cluster *c, unsigned absent)
{
    for (int i = 0; i < c->size; i++)
        if (!(absent >> i & 1))
            thread_join(&c->nodes[i].thread);
}

static void fixture_run(struct cluster *c, unsigned absent)
{
    cluster_start(c, absent);
    cluster_wait(c, absent);
}

static void fixture_close(struct cluster *c, unsigned absent)
{
    for (int i = 0; i < c->size; i++) {
        if (!(absent >> i & 1))
            mesh_close(c->nodes[i].peers, c->size);
        listener_close(c->nodes[i].listener);
        credentials_close(c->nodes[i].credentials);
    }
    assert_int_equal(c->heap.blocks, 0);
}

/* One end of a channel, as a transport gets it. */
struct pipe_end {
    int fd;
    struct records *records;
};

static void end_write(struct pipe_end end, uint8_t mark)
{
    uint8_t bytes[RECORD_MAX] = {mark};
    struct iovec piece = {bytes, 1}, source = {&mark, 1};

    if (end.records)
        piece.iov_len = records_seal(end.records, &source, 1, 1, bytes);
    assert_int_equal(sock_send(end.fd, &piece, 1), (int)piece.iov_len);
}

static uint8_t end_read(struct pipe_end end)
{
    uint8_t bytes[RECORD_MAX] = {0};
    struct iovec piece = {bytes, sizeof bytes};
    struct sock_wait wait = {.fd = end.fd, .want_recv = true};

    for (int i = 0; i < 10 && sock_wait(&wait, 1, clock_real() + 10 * NS_PER_S) == 0; i++)
        continue;
    ssize_t len = sock_recv(end.fd, &piece, 1);
    assert_int_equal(len, end.records ? 1 + RECORD_EXTRA : 1);
    if (end.records)
        assert_int_equal(records_open_one(end.records, bytes, (size_t)len, bytes), 1);
    assert_int_equal(sock_recv(end.fd, &piece, 1), 0);
    return bytes[0];
}

/* The first byte that a channel carries after the greeting is the other end's. */
static void assert_twins(struct pipe_end a, struct pipe_end b, uint8_t mark)
{
    assert_true(a.fd >= 0 && b.fd >= 0);
    end_write(a, mark);
    assert_int_equal(end_read(b), mark);
}

static struct pipe_end end_of(const struct mesh_peer *peer, int channel)
{
    return (struct pipe_end){peer->fds[channel], peer->records[channel]};
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
                assert_int_equal(!!here->records[k], secure && kind == MESH_TCP && k < channels);
                if (k < channels)
                    assert_twins(end_of(here, k), end_of(there, k), ++mark);
            }
        }
    }
}

/* All of them, and are closed again. */
static void assert_joins(struct cluster *c, enum mesh_kind kind, int channels)
{
    fixture_run(c, 0);
    assert_joined(c, kind, channels);
    fixture_close(c, 0);
}

TEST_BOTH(members_join_over_tcp, choose, NULL)
{
    for (int size = 1; size <= MEMBERS_MAX; size++) {
        fixture_open(&cluster, size, false);
        for (int i = 0; i < size; i++)
            cluster.nodes[i].setup.channels = 1 + size;
        assert_joins(&cluster, MESH_TCP, 1 + size);
    }
}

TEST_BOTH(members_of_a_host_join_over_unix_sockets, choose, NULL)
{
    for (int size = 2; size <= MEMBERS_MAX; size++) {
        fixture_open(&cluster, size, true);
        for (int i = 0; i < size; i++)
            cluster.nodes[i].setup.choice = size % 2 ? MESH_ONLY_SHM : MESH_AUTO;
        fixture_run(&cluster, 0);
        assert_joined(&cluster, MESH_UNIX, 1);
        struct sock_addr addr;
        struct error error;
        int fd = -1;
        listener_local_addr(cluster.nodes[0].roster.cluster, 0, &addr);
        assert_int_equal(sock_dial(&addr, NULL, &fd, &error), HEARTH_PEER_LOST); /* nothing is left behind */
        fixture_close(&cluster, 0);
    }
}

TEST_BOTH(the_lower_rank_decides_the_channels, choose, NULL)
{
    fixture_open(&cluster, 2, false);
    cluster.nodes[0].setup.channels = MESH_CHANNELS_MAX;
    cluster.nodes[1].setup.channels = 1;
    assert_joins(&cluster, MESH_TCP, MESH_CHANNELS_MAX);
}

/* An address that nobody answers at, before and behind the good one. */
TEST_BOTH(a_good_address_among_bad_ones_is_found, choose, NULL)
{
    fixture_open(&cluster, 3, false);
    for (int i = 0; i < 3; i++) {
        cluster.nodes[i].setup.channels = 3;
        for (int j = 0; j < 3; j++) {
            struct peer_info *m = &cluster.nodes[i].members[j];
            m->addr_count = 3;
            m->addrs[1] = m->addrs[0];
            set_addr(&m->addrs[0], "127.0.0.1:1");
            set_addr(&m->addrs[2], "[::1]:1");
        }
    }
    assert_joins(&cluster, MESH_TCP, 3);
}

TEST_SECURE(the_lower_rank_dials_when_the_higher_has_a_wrong_address, choose, NULL)
{
    fixture_open(&cluster, 2, false);
    cluster.nodes[0].setup.channels = cluster.nodes[1].setup.channels = 4;
    set_addr(&cluster.nodes[1].members[0].addrs[0], "127.0.0.1:1");
    assert_joins(&cluster, MESH_TCP, 4);
}

/* A secure stream to a member that is joining in its thread, as this person. */
static struct secure_stream *dial(struct cluster *c, const struct sock_addr *to,
                                  const struct credentials *who)
{
    struct session_setup setup = {.heap = &c->heap, .credentials = who, .role = CHANNEL_DIALS};
    struct secure_stream *stream = NULL;
    struct error error;
    int fd = -1, status = HEARTH_PENDING;

    assert_int_equal(sock_dial(to, NULL, &fd, &error), HEARTH_OK);
    assert_int_equal(secure_stream_open(&setup, fd, &stream), HEARTH_OK);
    for (int i = 0; i < LOOKS_MAX && status == HEARTH_PENDING; i++) {
        struct sock_wait wait = {.fd = fd, .want_recv = true};
        status = secure_stream_pump(stream, &error);
        if (status == HEARTH_PENDING)
            (void)sock_wait(&wait, 1, clock_real() + 50 * NS_PER_MS);
    }
    assert_int_equal(status, HEARTH_OK);
    return stream;
}

/* Says this, and hears the answer to it if there is one to come. False: the other end closed. */
static bool converse(struct secure_stream *stream, const struct greeting *say, struct greeting *answer)
{
    uint8_t bytes[GREETING_LEN];
    const char *what = "";
    ssize_t len = 0;

    greeting_encode(say, bytes);
    assert_true(secure_stream_send(stream, bytes, sizeof bytes));
    for (int i = 0; i < LOOKS_MAX && answer && len == 0; i++) {
        struct sock_wait wait = {.fd = secure_stream_fd(stream), .want_recv = true};
        (void)sock_wait(&wait, 1, clock_real() + 50 * NS_PER_MS);
        len = secure_stream_recv(stream, bytes, sizeof bytes);
    }
    if (!answer || len < 0)
        return len == 0;
    assert_int_equal(len, GREETING_LEN);
    assert_int_equal(greeting_decode(answer, bytes, &what), HEARTH_OK);
    return true;
}

/* The lower rank's greeting of channel 1 comes before all that it says of channel 0. */
TEST_BOTH(channels_may_come_in_any_order, choose, NULL)
{
    struct pipe_end ends[2] = {{-1, NULL}, {-1, NULL}};

    fixture_open(&cluster, 2, false);
    cluster.nodes[1].members[0].addr_count = 0; /* it cannot dial us */
    struct sock_addr to = sock_addr_of(&cluster.nodes[1].members[1].addrs[0]);
    assert_int_equal(thread_start(&cluster.nodes[1].thread, "member", node_run, &cluster.nodes[1]),
                     HEARTH_OK);
    for (int i = 1; i >= 0; i--) {
        struct greeting g = {
            GREETING_GREET, 0, (uint8_t)i, 2, 0, 1, cluster.nodes[0].roster.cluster, 100, 101, 5};
        struct secure_stream *stream = dial(&cluster, &to, cluster.nodes[0].credentials);
        struct greeting answer;
        assert_true(converse(stream, &g, &answer));
        assert_int_equal(answer.kind, GREETING_WELCOME);
        assert_int_equal(answer.channel, i);
        assert_int_equal(answer.channels, 2);
        g.kind = GREETING_CONFIRM;
        assert_true(converse(stream, &g, NULL));
        assert_int_equal(secure_stream_release(stream, &ends[i].fd, &ends[i].records), HEARTH_OK);
    }
    thread_join(&cluster.nodes[1].thread);
    assert_int_equal(cluster.nodes[1].status, HEARTH_OK);
    assert_int_equal(cluster.nodes[1].peers[0].count, 2);
    for (int i = 0; i < 2; i++) {
        assert_twins(ends[i], end_of(&cluster.nodes[1].peers[0], i), (uint8_t)(7 + i));
        sock_close(ends[i].fd);
        records_close(ends[i].records);
    }
    fixture_close(&cluster, 1u << 0);
}

/* Strangers that say nothing, or nothing good, stand at every listener before the members come. */
TEST_BOTH(members_join_between_strangers, choose, NULL)
{
    int fds[3 * STRANGERS];

    fixture_open(&cluster, 3, false);
    for (int i = 0; i < 3; i++)
        cluster.nodes[i].setup.channels = 2;
    for (int i = 0; i < 3 * STRANGERS; i++) {
        struct iovec piece = {(void *)(uintptr_t) "HM GET / HTTP", (size_t)i % 13};
        struct sock_addr to = half_open_addr(cluster.nodes[i % 3].listener->half_open);
        struct error error;
        fds[i] = -1;
        assert_int_equal(sock_dial(&to, NULL, &fds[i], &error), HEARTH_OK);
        (void)sock_send(fds[i], &piece, 1);
    }
    fixture_run(&cluster, 0);
    assert_joined(&cluster, MESH_TCP, 2);
    for (int i = 0; i < 3 * STRANGERS; i++)
        sock_close(fds[i]);
    fixture_close(&cluster, 0);
}

TEST_SECURE(a_member_that_does_not_come_is_named, choose, NULL)
{
    static struct cluster clusters[2];

    for (int share = 0; share < 2; share++) {
        fixture_open(&clusters[share], 3, share);
        for (int i = 0; i < 3; i++)
            clusters[share].nodes[i].setup.deadline_ns = clock_real() + 2 * NS_PER_S;
        cluster_start(&clusters[share], 1u << 1);
    }
    for (int share = 0; share < 2; share++) {
        struct cluster *c = &clusters[share];
        cluster_wait(c, 1u << 1);
        for (int i = 0; i < 3; i += 2) {
            const struct error *e = &c->nodes[i].error;
            assert_int_equal(c->nodes[i].status, HEARTH_TIMEOUT);
            assert_int_equal(e->rank, 1);
            assert_non_null(strstr(e->text, "rank 1 (host1)"));
            assert_non_null(strstr(e->text, share ? "unix:@hearth-" : "127.0.0.1:"));
            assert_null(strstr(e->text, "firewall")); /* somebody listens, or it is no network */
            for (int j = 0; j < 3; j++)
                assert_int_equal(c->nodes[i].peers[j].fds[0], -1);
        }
        fixture_close(c, 1u << 1);
    }
}

/* Refused everywhere: no need to wait for the deadline. */
TEST_PLAIN(a_member_that_nobody_can_reach_is_given_up, choose, NULL)
{
    fixture_open(&cluster, 2, false);
    cluster.nodes[0].setup.connect_timeout_ns = 100 * NS_PER_MS;
    cluster.nodes[0].setup.connect_retries = 0;
    set_addr(&cluster.nodes[0].members[1].addrs[0], "127.0.0.1:1");
    fixture_run(&cluster, 1u << 1);
    assert_int_equal(cluster.nodes[0].status, HEARTH_PEER_LOST);
    assert_non_null(strstr(cluster.nodes[0].error.text, "127.0.0.1:1: Connection refused"));
    assert_non_null(strstr(cluster.nodes[0].error.text, "firewall"));
    fixture_close(&cluster, 1u << 1);
}

TEST_PLAIN(beyond_this_machine_trust_is_asked_for, choose, NULL)
{
    fixture_open(&cluster, 2, false);
    for (int i = 0; i < 2; i++)
        set_addr(&cluster.nodes[i].members[1].addrs[0], "192.0.2.1:9");
    fixture_run(&cluster, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cluster.nodes[i].status, HEARTH_INVALID);
        assert_non_null(strstr(cluster.nodes[i].error.text, "192.0.2.1:9"));
        assert_non_null(strstr(cluster.nodes[i].error.text, "--i-trust-this-network"));
    }
    fixture_close(&cluster, 0);
}

/* Encrypted, any address will do: here one that nobody answers at. */
TEST_SECURE(beyond_this_machine_a_secret_is_enough, choose, NULL)
{
    fixture_open(&cluster, 2, false);
    cluster.nodes[0].setup.deadline_ns = clock_real() + 200 * NS_PER_MS;
    set_addr(&cluster.nodes[0].members[1].addrs[0], "192.0.2.1:9");
    fixture_run(&cluster, 1u << 1);
    assert_int_equal(cluster.nodes[0].status, HEARTH_TIMEOUT);
    fixture_close(&cluster, 1u << 1);
}

enum flaw { KEY_OF_0, KEY_OF_1, SECRET_OF_1, PLAIN_0, PLAIN_1 };

/* A cluster of two that cannot join: one of them says the word, one complains in its log. */
struct misfit {
    enum flaw flaw;
    bool share;
    const char *word, *complaint;
};

static void misfit_open(struct cluster *c, const struct misfit *m)
{
    fixture_open(c, 2, m->share);
    if (m->flaw == KEY_OF_0 || m->flaw == KEY_OF_1)
        (void)node_person(c, m->flaw == KEY_OF_1, 1);
    else if (m->flaw == SECRET_OF_1)
        c->nodes[1].members[1].id.node = credentials_self(node_person(c, 1, 2))->node;
    else
        c->nodes[m->flaw == PLAIN_1].setup.credentials = NULL;
    for (int i = 0; i < 2; i++)
        c->nodes[i].setup.deadline_ns = clock_real() + 3 * NS_PER_S;
}

static void misfit_check(const struct cluster *c, const struct misfit *m)
{
    bool said = false, complained = false;

    for (int i = 0; i < 2; i++) {
        const struct node *n = &c->nodes[i];
        assert_true(n->status == HEARTH_TIMEOUT || n->status == HEARTH_PEER_LOST);
        said = said || strstr(n->error.text, m->word);
        assert_in_range(n->complaints, 0, 1); /* however often it came */
        complained = complained || strstr(n->complaint, m->complaint);
    }
    if (!said || !complained)
        fail_msg("flaw %d\n0: %s (%s)\n1: %s (%s)", m->flaw, c->nodes[0].error.text, c->nodes[0].complaint,
                 c->nodes[1].error.text, c->nodes[1].complaint);
}

TEST_SECURE(who_does_not_belong_is_named, choose, NULL)
{
    static const struct misfit misfits[] = {
        {KEY_OF_0, false, "another node listens there", ""},
        {KEY_OF_0, true, "another node listens there", ""},
        {KEY_OF_1, false, "", "speaks for another member"},
        {KEY_OF_1, true, "", "speaks for another member"},
        {SECRET_OF_1, false, "another secret", "another secret"},
        {SECRET_OF_1, true, "another secret", "another secret"},
        {PLAIN_0, false, "plain", "plain"},
        {PLAIN_1, false, "", "plain"},
    };
    static struct cluster clusters[sizeof misfits / sizeof misfits[0]];
    size_t count = sizeof misfits / sizeof misfits[0];

    for (size_t i = 0; i < count; i++) {
        misfit_open(&clusters[i], &misfits[i]);
        cluster_start(&clusters[i], 0);
    }
    for (size_t i = 0; i < count; i++) {
        cluster_wait(&clusters[i], 0);
        misfit_check(&clusters[i], &misfits[i]);
        fixture_close(&clusters[i], 0);
    }
}

/* Rank 2 has the secret and says that it is rank 1: nothing comes of it, and rank 1 joins. */
TEST_SECURE(a_member_cannot_speak_for_another, choose, NULL)
{
    struct greeting answer;

    fixture_open(&cluster, 2, false);
    struct credentials *eve = person(&cluster.heap, 1, 101);
    struct greeting g = {GREETING_GREET, 0, 0, 0, 1, 0, cluster.nodes[0].roster.cluster, 101, 100, 5};
    assert_int_equal(thread_start(&cluster.nodes[0].thread, "member", node_run, &cluster.nodes[0]),
                     HEARTH_OK);
    struct sock_addr to = sock_addr_of(&cluster.nodes[0].members[0].addrs[0]);
    struct secure_stream *stream = dial(&cluster, &to, eve);
    assert_false(converse(stream, &g, &answer));
    secure_stream_close(stream);
    assert_int_equal(thread_start(&cluster.nodes[1].thread, "member", node_run, &cluster.nodes[1]),
                     HEARTH_OK);
    for (int i = 0; i < 2; i++)
        thread_join(&cluster.nodes[i].thread);
    assert_joined(&cluster, MESH_TCP, 2);
    assert_int_equal(cluster.nodes[0].complaints, 1);
    assert_non_null(strstr(cluster.nodes[0].complaint, "127.0.0.1:"));
    assert_non_null(strstr(cluster.nodes[0].complaint, "speaks for another member"));
    credentials_close(eve);
    fixture_close(&cluster, 0);
}

TEST_PLAIN(shared_memory_that_cannot_be_is_an_error, choose, NULL)
{
    fixture_open(&cluster, 2, true);
    for (int i = 0; i < 2; i++) {
        cluster.nodes[i].setup.choice = MESH_ONLY_SHM;
        cluster.nodes[i].members[1].host_id = 8;
    }
    fixture_run(&cluster, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cluster.nodes[i].status, HEARTH_INVALID);
        assert_int_equal(cluster.nodes[i].error.rank, !i);
    }
    fixture_close(&cluster, 0);
}

TEST_PLAIN(wrong_numbers_of_connections_are_refused, choose, NULL)
{
    fixture_open(&cluster, 2, false);
    cluster.nodes[0].setup.channels = MESH_CHANNELS_MAX + 1;
    cluster.nodes[1].setup.channels = -1;
    fixture_run(&cluster, 0);
    assert_int_equal(cluster.nodes[0].status, HEARTH_INVALID);
    assert_int_equal(cluster.nodes[1].status, HEARTH_INVALID);
    fixture_close(&cluster, 0);
}

/* Before anybody is dialled: what fails later for want of files has many faces. */
TEST_PLAIN(too_few_files_is_said_at_once, choose, NULL)
{
    struct rlimit files, few;

    fixture_open(&cluster, 2, false);
    cluster.nodes[0].setup.channels = MESH_CHANNELS_MAX;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    few = files;
    few.rlim_cur = 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    cluster.nodes[0].status =
        mesh_join(&cluster.nodes[0].setup, cluster.nodes[0].peers, &cluster.nodes[0].error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(cluster.nodes[0].status, HEARTH_LIMIT);
    assert_non_null(strstr(cluster.nodes[0].error.text, "ulimit -n"));
    assert_non_null(strstr(cluster.nodes[0].error.text, "may have 40"));
    fixture_close(&cluster, 1u << 1);
}

TEST_BOTH(no_memory_is_an_error, choose, NULL)
{
    for (int after = 0; after < 2; after++) {
        fixture_open(&cluster, 2, false);
        cluster.heap.fail_after = after;
        cluster.nodes[0].status =
            mesh_join(&cluster.nodes[0].setup, cluster.nodes[0].peers, &cluster.nodes[0].error);
        assert_int_equal(cluster.nodes[0].status, HEARTH_NO_MEMORY);
        fixture_close(&cluster, 1u << 1);
    }
}
