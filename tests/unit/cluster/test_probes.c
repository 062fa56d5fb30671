/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that measure each other over real connections of this machine; as if each was a host of its own. */
#include "cluster/probe_messages.h"
#include "cluster/probe_peers.h"
#include "cluster/probes.h"
#include "os/clock.h"
#include "stream_pair.h"
#include "support/suite.h"

#define NODES   3
#define WAIT_NS (20 * NS_PER_S)

struct node {
    struct credentials *credentials;
    struct peer_set *peer_set;
    struct outbox outbox;
    struct probes *probes;
    int linked;
    int orders, results, tables; /* messages that it sent: PROBE, MEASURED, LINKS */
    int connections;             /* for probes that it dialled */
    bool deaf;                   /* what comes to it is thrown away */
};

static struct heap heap;
static struct node nodes[NODES];
static struct view view;
/* Probes are told that it is so much later; each step is that much longer than it was. */
static uint64_t later_ns, longer_ns;

static uint64_t probes_now(void)
{
    return clock_real() + later_ns;
}

/* ---- driving them ---- */

static void open_node(int number, const char *second_addr)
{
    struct node *n = &nodes[number];
    struct peer_set_setup setup = {
        .heap = &heap, .connect_timeout_ns = 5 * NS_PER_S, .seed = (uint64_t)number, .now_ns = clock_real()};
    struct error error;

    n->credentials = secure_stream_person(&heap, (uint64_t)number + 1);
    setup.credentials = n->credentials;
    assert_int_equal(sock_addr_parse("127.0.0.1:0", 0, &setup.listen), HEARTH_OK);
    struct sock_addr addr = setup.listen;
    for (int i = 0; i < (second_addr ? 2 : 1); i++) {
        setup.self.addr_count += sock_addr_to_net(&addr, &setup.self.addrs[i]);
        if (second_addr)
            assert_int_equal(sock_addr_parse(second_addr, 0, &addr), HEARTH_OK);
    }
    setup.self.host_id = 100u + (uint64_t)number;
    setup.self.cores = 1;
    snprintf(setup.self.name, sizeof setup.self.name, "node-%d", number);
    snprintf(setup.self.platform, sizeof setup.self.platform, "test");
    if (peer_set_open(&setup, &n->peer_set, &error) != HEARTH_OK)
        fail_msg("%s", error.text);
    outbox_init(&n->outbox, &heap);
    struct probes_setup probes = {.heap = &heap,
                                  .peer_set = n->peer_set,
                                  .outbox = &n->outbox,
                                  .self = peer_set_self(n->peer_set)->id,
                                  .now_ns = clock_real()};
    assert_int_equal(probes_open(&probes, &n->probes), HEARTH_OK);
}

static void send_all(struct node *n)
{
    struct outbox_message *message;

    while ((message = outbox_take(&n->outbox))) {
        n->orders += message->kind == MESSAGE_PROBE;
        n->results += message->kind == MESSAGE_MEASURED;
        n->tables += message->kind == MESSAGE_LINKS;
        (void)peer_set_send(n->peer_set, &message->to, message->kind, message->payload, message->len);
        heap_free(message);
    }
}

static void hear_all(struct node *n)
{
    struct peer_news news;
    const char *what = "";

    while (peer_news(n->peer_set, &news)) {
        n->linked += news.kind == PEER_LINKED;
        if (news.kind == PEER_MESSAGE && !n->deaf)
            assert_int_equal(
                probes_input(n->probes,
                             &(struct received){&news.info.id, news.message, news.payload, news.len},
                             probes_now(), &what),
                HEARTH_OK);
        if (news.kind != PEER_PROBE)
            continue;
        n->connections += news.dialled && news.stream;
        probes_take(n->probes, news.stream, &news.info.id, news.dialled, probes_now());
    }
}

static void step(void)
{
    static struct sock_wait items[NODES * (PEER_SET_WAITS_MAX + PROBES_WAITS_MAX)];
    uint64_t deadline_ns = clock_real() + (longer_ns > 0 ? 1 : 50) * NS_PER_MS, due_ns = NEVER_NS;
    size_t count = 0;

    for (int i = 0; i < NODES; i++) {
        count += peer_set_waits(nodes[i].peer_set, items + count, PEER_SET_WAITS_MAX, &deadline_ns);
        count += probes_waits(nodes[i].probes, items + count, PROBES_WAITS_MAX, &due_ns);
    }
    due_ns = due_ns > later_ns ? due_ns - later_ns : 0;
    (void)sock_wait(items, count, due_ns < deadline_ns ? due_ns : deadline_ns);
    later_ns += longer_ns;
    for (int i = 0; i < NODES; i++) {
        peer_set_pump(nodes[i].peer_set, clock_real());
        hear_all(&nodes[i]);
        probes_pump(nodes[i].probes, probes_now());
        send_all(&nodes[i]);
    }
}

typedef bool done_fn(void);

static void until(done_fn *done, const char *what)
{
    uint64_t deadline_ns = clock_real() + WAIT_NS;

    while (!done()) {
        if (clock_real() > deadline_ns)
            fail_msg("after %d s: not %s", (int)(WAIT_NS / NS_PER_S), what);
        step();
    }
}

static bool all_linked(void)
{
    for (int i = 0; i < NODES; i++)
        if (nodes[i].linked < NODES - 1)
            return false;
    return true;
}

/* All are members, this one leads. */
static void agree(int leader)
{
    view.instance = 5;
    view.epoch++;
    view.size = NODES;
    view.leader = leader;
    for (int i = 0; i < NODES; i++)
        view.members[i] = *peer_set_self(nodes[i].peer_set);
    for (int i = 0; i < NODES; i++)
        probes_view(nodes[i].probes, &view, i == leader, probes_now());
}

static const struct path_measure *path(int who, int from, int to)
{
    return &probes_links(nodes[who].probes, NULL)->paths[from * VIEW_MEMBERS_MAX + to];
}

static bool all_know_all(void)
{
    for (int who = 0; who < NODES; who++)
        for (int from = 0; from < NODES; from++)
            for (int to = 0; to < NODES; to++)
                if (from != to && path(who, from, to)->mbit_x10 == 0)
                    return false;
    return true;
}

static void begin(const char *second_addr)
{
    memset(&view, 0, sizeof view);
    for (int i = 0; i < NODES; i++)
        open_node(i, second_addr);
    for (int a = 0; a < NODES; a++)
        for (int b = 0; b < NODES; b++) {
            struct sock_addr addr = peer_set_addr(nodes[b].peer_set);
            if (a != b)
                peer_set_known_addr(nodes[a].peer_set, &addr, &peer_set_self(nodes[b].peer_set)->id, true,
                                    clock_real());
        }
    until(all_linked, "joined to each other");
    longer_ns = 10 * NS_PER_MS;
}

/* ---- tests ---- */

static int tear_down(void **state)
{
    for (int i = 0; i < NODES; i++) {
        probes_close(nodes[i].probes);
        if (nodes[i].peer_set) {
            outbox_fini(&nodes[i].outbox);
            peer_set_close(nodes[i].peer_set);
        }
        credentials_close(nodes[i].credentials);
    }
    return heap.blocks == 0 ? 0 : -1;
}

static int set_up(void **state)
{
    heap_init(&heap, 0);
    memset(nodes, 0, sizeof nodes);
    later_ns = longer_ns = 0;
    return 0;
}

TEST_WITH(all_are_measured_and_told, set_up, tear_down)
{
    struct sock_addr best;
    uint64_t changed = 0;

    begin(NULL);
    agree(1);
    assert_false(probes_settled(nodes[1].probes));
    until(all_know_all, "measured");
    assert_true(probes_settled(nodes[1].probes));
    assert_false(probes_settled(nodes[0].probes)); /* the leader's to say */
    int connections = 0;
    for (int i = 0; i < NODES; i++) {
        connections += nodes[i].connections;
        assert_true(nodes[i].connections == NODES - 1);
        for (int k = 0; k < NODES; k++) {
            struct sock_addr addr = peer_set_addr(nodes[k].peer_set);
            assert_int_equal(probes_best_addr(nodes[i].probes, &peer_set_self(nodes[k].peer_set)->id, &best),
                             i != k);
            assert_true(i == k || sock_addr_equal(&best, &addr));
        }
    }
    assert_int_equal(connections, NODES * (NODES - 1)); /* each way once */
    assert_int_equal(nodes[1].orders, (NODES - 1) * (NODES - 1));
    assert_int_equal(nodes[1].results, 0); /* its own it knows */
    const struct topology *links = probes_links(nodes[2].probes, &changed);
    assert_true(changed > 0 && links->instance == 5 && links->epoch == view.epoch && links->size == NODES);
    assert_int_equal(path(2, 0, 1)->quality, 1);
}

static bool second_is_settled(void)
{
    return probes_settled(nodes[2].probes);
}

TEST_WITH(next_leader_goes_on, set_up, tear_down)
{
    begin(NULL);
    agree(0);
    until(all_know_all, "measured");
    agree(2);
    assert_true(all_know_all()); /* nothing is forgotten */
    until(second_is_settled, "settled");
    for (int i = 0; i < 5; i++)
        step();
    assert_int_equal(nodes[2].orders, 0);
    assert_int_equal(path(2, 0, 1)->quality, 1);
}

TEST_WITH(second_addresses_are_tried, set_up, tear_down)
{
    struct sock_addr best;
    int connections = 0;

    begin("127.0.0.1:1"); /* nobody is there */
    agree(0);
    until(all_know_all, "measured");
    for (uint64_t end_ns = clock_real() + 300 * NS_PER_MS; clock_real() < end_ns;)
        step();
    for (int i = 0; i < NODES; i++)
        connections += nodes[i].connections;
    assert_int_equal(connections, NODES * (NODES - 1));
    assert_true(nodes[0].orders > (NODES - 1) * (NODES - 1)); /* the others were ordered, and failed */
    for (int i = 1; i < NODES; i++) {
        struct sock_addr addr = peer_set_addr(nodes[i].peer_set);
        assert_true(probes_best_addr(nodes[0].probes, &peer_set_self(nodes[i].peer_set)->id, &best));
        assert_true(sock_addr_equal(&best, &addr));
    }
}

static bool others_know_each_other(void)
{
    return path(0, 1, 2)->mbit_x10 > 0 && path(0, 2, 1)->mbit_x10 > 0;
}

TEST_WITH(jobs_are_spared, set_up, tear_down)
{
    struct identity busy = {.instance = 0};

    begin(NULL);
    busy = peer_set_self(nodes[0].peer_set)->id; /* the leader itself; and one that nobody knows */
    for (int i = 0; i < NODES; i++)
        probes_spare(nodes[i].probes, &busy, 1, probes_now());
    agree(0);
    until(others_know_each_other, "measured");
    assert_true(probes_settled(nodes[0].probes));
    assert_true(path(0, 0, 1)->mbit_x10 == 0 && path(0, 2, 0)->mbit_x10 == 0);
    for (int i = 0; i < NODES; i++)
        probes_spare(nodes[i].probes, NULL, 0, probes_now());
    assert_false(probes_settled(nodes[0].probes));
    until(all_know_all, "measured");
}

static bool leader_sends(void)
{
    struct sock_wait items[PROBES_WAITS_MAX];
    uint64_t deadline_ns = NEVER_NS;

    return probes_waits(nodes[0].probes, items, PROBES_WAITS_MAX, &deadline_ns) > 0;
}

/* A group that begins has its lines for itself, at once. */
TEST_WITH(a_probe_ends_where_a_job_begins, set_up, tear_down)
{
    struct identity busy;

    begin(NULL);
    busy = peer_set_self(nodes[0].peer_set)->id;
    agree(0);
    until(leader_sends, "begun");
    probes_spare(nodes[0].probes, &busy, 1, probes_now());
    assert_false(leader_sends());
    until(others_know_each_other, "measured"); /* it goes on elsewhere */
    assert_int_equal(path(0, 0, 1)->mbit_x10, 0);
}

static bool first_has_given_up(void)
{
    return probes_settled(nodes[0].probes);
}

/* A member that does not answer holds up nobody for ever. */
TEST_WITH(silence_ends, set_up, tear_down)
{
    begin(NULL);
    nodes[2].deaf = true;
    agree(0);
    until(first_has_given_up, "given up");
    assert_true(path(0, 0, 1)->mbit_x10 > 0 && path(0, 1, 2)->mbit_x10 > 0);
    assert_true(path(0, 2, 1)->mbit_x10 == 0);
}

static bool round_trip_is_known(void)
{
    return path(1, 0, 2)->round_trip_us == 1500 && path(1, 0, 2)->loss_ppm == 10;
}

static bool traffic_is_known(void)
{
    return path(1, 2, 0)->mbit_x10 > 0;
}

TEST_WITH(members_tell_what_they_see, set_up, tear_down)
{
    const struct identity *ids[NODES];

    begin(NULL);
    for (int i = 0; i < NODES; i++)
        ids[i] = &peer_set_self(nodes[i].peer_set)->id;
    for (int i = 0; i < NODES; i++) /* all run a job: nothing is probed */
        probes_spare(nodes[i].probes, (struct identity[]){*ids[0], *ids[1], *ids[2]}, 3, probes_now());
    agree(1);
    probes_round_trip(nodes[0].probes, ids[2], 1500 * NS_PER_US, 10, PATH_WIRELESS);
    probes_traffic(nodes[2].probes, ids[0], PEER_TRAFFIC_BYTES / 2, 50 * NS_PER_MS);
    until(round_trip_is_known, "told of a round trip");
    assert_int_equal(path(1, 0, 2)->kind, PATH_WIRELESS);
    assert_int_equal(path(1, 2, 0)->mbit_x10, 0); /* too little */
    probes_traffic(nodes[2].probes, ids[0], PEER_TRAFFIC_BYTES / 2, 50 * NS_PER_MS);
    later_ns += 5 * NS_PER_S; /* until then it would be too soon to tell again */
    until(traffic_is_known, "told of traffic");
    assert_in_range(path(1, 2, 0)->mbit_x10, 840, 920); /* 10 MiB/s, with headers */
    assert_int_equal(nodes[1].orders, 0);
}

TEST_WITH(messages_are_checked, set_up, tear_down)
{
    struct probe_order order = {.number = 1};
    uint8_t message[PROBE_MESSAGE_MAX] = {0};
    const char *what = NULL;

    begin(NULL);
    agree(0);
    const struct identity *leader = &peer_set_self(nodes[0].peer_set)->id;
    const struct identity *other = &peer_set_self(nodes[2].peer_set)->id;
    struct probes *probes = nodes[1].probes;
    for (uint8_t kind = MESSAGE_PROBE; kind <= MESSAGE_LOAD; kind++) {
        what = NULL;
        assert_int_equal(
            probes_input(probes, &(struct received){leader, kind, message, 3}, clock_real(), &what),
            HEARTH_PROTOCOL);
        assert_non_null(what);
    }
    order.to = *other; /* from one who does not lead: not obeyed */
    size_t len = probe_order_encode(&order, message, sizeof message);
    assert_int_equal(
        probes_input(probes, &(struct received){other, MESSAGE_PROBE, message, len}, clock_real(), &what),
        HEARTH_OK);
    assert_null(outbox_take(&nodes[1].outbox));
    order.to = *leader; /* an address that it does not have: not now */
    assert_int_equal(sock_addr_parse("10.1.2.3:4", 0, &order.addr), HEARTH_OK);
    len = probe_order_encode(&order, message, sizeof message);
    assert_int_equal(
        probes_input(probes, &(struct received){leader, MESSAGE_PROBE, message, len}, clock_real(), &what),
        HEARTH_OK);
    struct outbox_message *answer = outbox_take(&nodes[1].outbox);
    struct measured measured;
    assert_non_null(answer);
    assert_int_equal(answer->kind, MESSAGE_MEASURED);
    assert_true(measured_decode(&measured, answer->payload, answer->len, &what));
    assert_true(measured.number == 1 && measured.outcome == PROBE_NOT_NOW);
    heap_free(answer);
}

/* Connections that nobody waits for, and more than there is room for. */
TEST_WITH(connections_are_bounded, set_up, tear_down)
{
    struct secure_stream *pair[2], *ends[3];
    struct sock_wait items[PROBES_WAITS_MAX];
    uint64_t deadline_ns = NEVER_NS;

    begin(NULL);
    agree(0);
    struct probes *probes = nodes[1].probes;
    const struct identity *other = &peer_set_self(nodes[2].peer_set)->id;
    secure_stream_pair(&heap, nodes[1].credentials, nodes[2].credentials, pair);
    probes_take(probes, pair[0], other, true, clock_real()); /* dialled, and not awaited */
    assert_int_equal(probes_waits(probes, items, PROBES_WAITS_MAX, &deadline_ns), 0);
    secure_stream_close(pair[1]);
    probes_take(probes, NULL, other, true, clock_real());
    for (int i = 0; i < 3; i++) {
        secure_stream_pair(&heap, nodes[2].credentials, nodes[1].credentials, pair);
        ends[i] = pair[0];
        probes_take(probes, pair[1], other, false, clock_real());
    }
    assert_int_equal(probes_waits(probes, items, PROBES_WAITS_MAX, &deadline_ns), PROBES_WAITS_MAX);
    uint8_t byte;
    struct sock_wait wait = {.fd = secure_stream_fd(ends[2]), .want_recv = true};
    assert_int_equal(sock_wait(&wait, 1, clock_real() + WAIT_NS), 1);
    assert_int_equal(secure_stream_recv(ends[2], &byte, 1), HEARTH_PEER_LOST);
    for (int i = 0; i < 3; i++)
        secure_stream_close(ends[i]);
}

TEST(best_of_several_addresses)
{
    struct probe_peer peer = {.kind = PATH_UNKNOWN};
    struct sock_addr addrs[PEER_ADDRS_MAX + 1], best;
    char text[32];

    assert_false(peer_best_addr(&peer, &best));
    peer_probed(&peer, NULL, 5000, PATH_WIRE);
    assert_false(peer_best_addr(&peer, &best));
    for (int i = 0; i <= PEER_ADDRS_MAX; i++) {
        snprintf(text, sizeof text, "10.0.0.%d:7", i + 1);
        assert_int_equal(sock_addr_parse(text, 0, &addrs[i]), HEARTH_OK);
        peer_probed(&peer, &addrs[i], i == 3 ? 900 : 100, PATH_WIRE);
    }
    assert_int_equal(peer.addr_count, PEER_ADDRS_MAX);
    assert_true(peer_best_addr(&peer, &best) && sock_addr_equal(&best, &addrs[3]));
    peer_probed(&peer, &addrs[5], 1000, PATH_WIRE);
    assert_true(peer_best_addr(&peer, &best) && sock_addr_equal(&best, &addrs[5]));
    peer_failed(&peer, &addrs[5]);
    assert_true(peer_best_addr(&peer, &best) && sock_addr_equal(&best, &addrs[3]));
}

/* ---- frame ---- */
