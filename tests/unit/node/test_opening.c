/* SPDX-License-Identifier: Apache-2.0 */
/* What hearth_node_open makes of its config before it talks to anybody: copies, defaults, and refusals that
 * say what is wrong. */
#include "node/environment.h"
#include "node/opening.h"
#include "support/suite.h"

#define FOREIGN "192.0.2.1:52415" /* an address for documentation: nobody's */

static struct hearth_config config;

static int setup(void **state)
{
    hearth_config_init(&config);
    return 0;
}

static void expect_refused(const char *words)
{
    struct opening o;
    struct error error = {0};
    int status = opening_init(&o, &config, NULL, &error);
    if (status != HEARTH_INVALID || !strstr(error.text, words))
        fail_msg("status %d, \"%s\" instead of \"%s\"", status, error.text, words);
    opening_fini(&o);
    hearth_config_init(&config);
}

static void accept_config(struct opening *o)
{
    struct error error = {0};
    if (opening_init(o, &config, NULL, &error) != HEARTH_OK)
        fail_msg("refused: %s", error.text);
}

static void expect_size(int size)
{
    struct opening o;
    accept_config(&o);
    assert_int_equal(o.size, size);
    opening_fini(&o);
    hearth_config_init(&config);
}

/* ---- what is taken ---- */

TEST_WITH(nothing_said_is_a_world_of_one, setup, NULL)
{
    struct opening o;
    accept_config(&o);
    assert_int_equal(o.size, 1);
    assert_int_equal(o.rank, -1);
    assert_int_equal(o.choice, MESH_AUTO);
    assert_null(o.peers);
    assert_string_equal(o.own.job, "hearth");
    opening_fini(&o);
    config.world_size = 1;
    expect_size(1);
}

TEST_WITH(peers_are_split_and_copied, setup, NULL)
{
    char peers[] = "127.0.0.1:1, 127.0.0.1 ,  [::1]:3", job[] = "alpha";
    config.peers = peers;
    config.job = job;
    config.rank = 2;
    struct opening o;
    accept_config(&o);
    memset(peers, 'x', sizeof peers - 1);
    memset(job, 'x', sizeof job - 1);
    assert_int_equal(o.size, 3);
    assert_int_equal(o.rank, 2);
    assert_string_equal(o.peers[0], "127.0.0.1:1");
    assert_string_equal(o.peers[1], "127.0.0.1");
    assert_string_equal(o.peers[2], "[::1]:3");
    assert_string_equal(o.config->peers, "127.0.0.1:1, 127.0.0.1 ,  [::1]:3");
    assert_string_equal(o.config->job, "alpha");
    opening_fini(&o);
    opening_fini(&o); /* harmless */
}

TEST_WITH(sizes_that_fit, setup, NULL)
{
    config.peers = "127.0.0.1:1,127.0.0.1:2";
    config.world_size = 2;
    expect_size(2);
    config.peers = "127.0.0.1:1";
    expect_size(1);
    config.rendezvous = "127.0.0.1:7000";
    config.world_size = 1024;
    config.rank = 1023;
    expect_size(1024);
    config.rendezvous = "unix:/nowhere/at/all";
    config.world_size = 2;
    expect_size(2);
    config.rendezvous = FOREIGN; /* a world of one goes nowhere */
    config.world_size = 1;
    expect_size(1);
}

TEST_WITH(the_launchers_place_is_used_if_no_other_is_given, setup, NULL)
{
    static const struct hearth_environment found = {.secret_fd = -1, .rendezvous = "unix:@hearth-test"};
    config.environment = &found;
    config.world_size = 2;
    struct opening o;
    accept_config(&o);
    assert_string_equal(o.config->rendezvous, "unix:@hearth-test");
    opening_fini(&o);
    config.rendezvous = "127.0.0.1:7000";
    accept_config(&o);
    assert_string_equal(o.config->rendezvous, "127.0.0.1:7000");
    opening_fini(&o);
    config.rendezvous = NULL;
    config.peers = "127.0.0.1:1,127.0.0.1:2";
    accept_config(&o);
    assert_null(o.config->rendezvous);
    opening_fini(&o);
}

TEST_WITH(transports_by_name, setup, NULL)
{
    static const struct {
        const char *name;
        enum mesh_choice choice;
        enum quic_choice quic;
    } cases[] = {{NULL, MESH_AUTO, QUIC_IF_FASTER},
                 {"auto", MESH_AUTO, QUIC_IF_FASTER},
                 {"tcp", MESH_ONLY_TCP, QUIC_NEVER},
                 {"quic", MESH_ONLY_TCP, QUIC_ALWAYS},
                 {"shm", MESH_ONLY_SHM, QUIC_NEVER}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config.transport = cases[i].name;
        struct opening o;
        accept_config(&o);
        assert_int_equal(o.choice, cases[i].choice);
        assert_int_equal(o.quic_choice, cases[i].quic);
        opening_fini(&o);
    }
    static const char *const bad[] = {"", "TCP", "mem", "tcp ", "rdma"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[40];
        snprintf(words, sizeof words, "transport is \"%s\"", bad[i]);
        config.transport = bad[i];
        expect_refused(words);
    }
    config.transport = "quic";
    config.plain = 1;
    expect_refused("quic is always encrypted");
    config.plain = 1;
    struct opening o;
    accept_config(&o);
    assert_int_equal(o.quic_choice, QUIC_NEVER);
    opening_fini(&o);
    hearth_config_init(&config);
    config.transport = "shm";
    config.peers = "127.0.0.1:1,127.0.0.1:2";
    expect_refused("with transport shm use rendezvous");
}

/* ---- what is refused ---- */

TEST_WITH(bad_peers_are_named_by_rank, setup, NULL)
{
    static const struct {
        const char *peers, *words;
    } cases[] = {
        {"", "rank 0"},
        {",", "rank 0"},
        {" ", "rank 0"},
        {"127.0.0.1:1,", "rank 1"},
        {"127.0.0.1:1,,127.0.0.1:3", "rank 1"},
        {"127.0.0.1:1,127.0.0.1:99999", "rank 1"},
        {"127.0.0.1:1,127.0.0.1:x", "rank 1"},
        {"127.0.0.1:1,127.0.0.1:2,[::1:3", "rank 2"},
        {"127.0.0.1:1,two words:5", "rank 1"},
        {"127.0.0.1:1,host:2,127.0.0.1:1", "rank 0 and rank 2 are both 127.0.0.1:1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config.peers = cases[i].peers;
        expect_refused(cases[i].words);
    }
}

TEST_WITH(members_that_do_not_add_up, setup, NULL)
{
    config.peers = "127.0.0.1:1,127.0.0.1:2";
    config.rendezvous = "127.0.0.1:7000";
    expect_refused("both given");
    config.peers = "127.0.0.1:1,127.0.0.1:2";
    config.world_size = 3;
    expect_refused("peers lists 2 members, but world_size is 3");
    config.rendezvous = "127.0.0.1:7000";
    expect_refused("needs world_size");
    config.world_size = 2;
    expect_refused("nothing says where");
    config.rendezvous = "127.0.0.1:7000";
    config.world_size = 1025;
    expect_refused("world_size is 1025");
    config.rank = 1;
    expect_refused("rank is 1, but there are only 1");
    config.peers = "127.0.0.1:1,127.0.0.1:2";
    config.rank = 2;
    expect_refused("rank is 2, but there are only 2");
}

TEST_WITH(negative_numbers_are_no_members, setup, NULL)
{
    config.world_size = -2;
    expect_refused("world_size is -2");
    config.rendezvous = "127.0.0.1:7000";
    config.world_size = -1;
    expect_refused("world_size is -1");
    config.rank = -2;
    expect_refused("rank is -2");
}

TEST_WITH(too_many_peers, setup, NULL)
{
    enum { EACH = sizeof "127.0.0.1:1000," - 1, COUNT = 1025 };
    static char peers[EACH * COUNT + 1];
    for (int i = 0; i < COUNT; i++)
        snprintf(peers + i * EACH, EACH + 1, "127.0.0.1:%04u,", (1000u + (unsigned)i) % 10000u);
    peers[EACH * COUNT - 1] = '\0';
    config.peers = peers;
    expect_refused("1025 members");
    config.peers = peers + EACH;
    expect_size(COUNT - 1);
}

TEST_WITH(texts_have_a_limit, setup, NULL)
{
    static char text[65537];
    memset(text, 'j', sizeof text - 1);
    config.job = text;
    expect_refused("longer than 65535");
    config.advertise = text;
    expect_refused("longer than 65535");
}

/* ---- trust ---- */

TEST_WITH(other_machines_need_a_word_where_all_is_plain, setup, NULL)
{
    config.rendezvous = FOREIGN;
    config.world_size = 2;
    expect_size(2); /* it is encrypted */
    config.plain = 1;
    config.rendezvous = FOREIGN;
    config.world_size = 2;
    expect_refused("trust_network");
    config.plain = 1;
    config.peers = "127.0.0.1:1," FOREIGN;
    expect_refused(FOREIGN " is another machine");
    config.plain = 1;
    config.rendezvous = "[2001:db8::1]:5";
    config.world_size = 2;
    expect_refused("trust_network");
    config.rendezvous = FOREIGN;
    config.world_size = 2;
    config.plain = config.trust_network = 1;
    expect_size(2);
    config.peers = "127.0.0.1:1," FOREIGN;
    config.plain = config.trust_network = 1;
    expect_size(2);
    config.peers = "127.0.0.1:1,127.0.0.2:1,[::1]:5,localhost:9"; /* all of them here */
    expect_size(4);
}

/* ---- memory ---- */

TEST_WITH(no_memory_at_any_point_leaves_nothing, setup, NULL)
{
    int refused = 0, status = HEARTH_NO_MEMORY;
    config.peers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    config.bind = "127.0.0.1";
    config.world_size = 900; /* not what peers has: places that are not there must not be looked at */
    for (size_t memory = 1; memory < 100000 && status == HEARTH_NO_MEMORY; memory += 8) {
        struct opening o;
        struct error error = {0};
        config.memory_max = memory;
        status = opening_init(&o, &config, NULL, &error);
        refused += status == HEARTH_NO_MEMORY;
        opening_fini(&o);
    }
    assert_int_equal(status, HEARTH_INVALID); /* in the end there is enough to see that it does not add up */
    assert_true(refused > 3);
}

/* ---- ports ---- */

TEST_WITH(ports_of_peers, setup, NULL)
{
    static const struct {
        const char *peer;
        uint16_t port;
    } cases[] = {
        {"host:5", 5},          {"host", 77},
        {"[::1]:65535", 65535}, {"::1", 77},
        {"[::1]", 77},          {"[fe80::1%lo]:9", 9},
        {"host:0", 0},          {"host:65536", 77},
        {"host:", 77},          {"host:99999999999999", 77},
        {"1.2.3.4:80", 80},     {"", 77},
        {"fe80::1:80", 77},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (opening_peer_port(cases[i].peer, 77) != cases[i].port)
            fail_msg("%s: %u", cases[i].peer, opening_peer_port(cases[i].peer, 77));
}
