/* SPDX-License-Identifier: Apache-2.0 */
/* hearth_config_env: the variables about the cluster, and what a launcher fills in where they say nothing. */
#include <inttypes.h>

#include "conform/fixture.h"
#include "node/environment.h"
#include "node/node.h"

/* ---- numbers ---- */

static const struct number {
    const char *name;
    uint64_t low, high; /* accepted; what is beyond is not */
    const char *below, *above;
} numbers[] = {
    {"HEARTH_RANK", 0, 65535, "-1", "65536"},
    {"HEARTH_WORLD_SIZE", 1, 65536, "0", "65537"},
    {"HEARTH_PORT", 0, 65535, "-1", "65536"},
    {"HEARTH_CONNECTIONS", 0, 8, "-1", "9"},
    {"HEARTH_DATAGRAM_BYTES", 0, 65507, "-1", "65508"},
    {"HEARTH_LINK_MBPS", 1, 1000000, "0", "1000001"},
    {"HEARTH_OPEN_TIMEOUT_MS", 1, UINT64_C(31536000000), "0", "31536000001"},
    {"HEARTH_CONNECT_TIMEOUT_MS", 1, UINT64_C(31536000000), "0", "31536000001"},
    {"HEARTH_CONNECT_RETRIES", 0, 1000, "-1", "1001"},
    {"HEARTH_PEER_TIMEOUT_MS", 100, UINT64_C(31536000000), "99", "31536000001"},
    {"HEARTH_TRUST_NETWORK", 0, 1, "-1", "2"},
    {"HEARTH_PLAIN", 0, 1, "-1", "2"},
    {"HEARTH_SECRET_FD", 0, 65535, "-1", "65536"},
    {"HEARTH_FORM_TIMEOUT_MS", 1, UINT64_C(31536000000), "0", "31536000001"},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static uint64_t number_field(const struct hearth_config *c, int i)
{
    const uint64_t fields[NUMBERS] = {(uint64_t)c->rank,
                                      (uint64_t)c->world_size,
                                      c->port,
                                      tuning_of(c)->connections,
                                      tuning_of(c)->datagram_bytes,
                                      c->link_mbps,
                                      (uint64_t)c->open_timeout_ms,
                                      (uint64_t)tuning_of(c)->connect_timeout_ms,
                                      tuning_of(c)->connect_retries,
                                      (uint64_t)c->peer_timeout_ms,
                                      (uint64_t)c->trust_network,
                                      (uint64_t)c->plain,
                                      (uint64_t)environment_of(c)->secret_fd,
                                      (uint64_t)c->form_timeout_ms};
    return fields[i];
}

/* ---- strings ---- */

static const char *const strings[] = {
    "HEARTH_PEERS",  "HEARTH_RENDEZVOUS",  "HEARTH_JOB",      "HEARTH_BIND",   "HEARTH_ADVERTISE",
    "HEARTH_SECRET", "HEARTH_SECRET_FILE", "HEARTH_KEY_FILE", "HEARTH_SITE",   "HEARTH_SEEDS",
    "HEARTH_MDNS",   "HEARTH_TRANSPORT",   "HEARTH_DISCOVER", "HEARTH_HEALTH",
};
enum { STRINGS = sizeof strings / sizeof *strings };
enum { WORDS = 3 }; /* the last ones: they take certain words only */

static const char *string_field(const struct hearth_config *c, int i)
{
    const char *const fields[STRINGS] = {
        c->peers,    c->rendezvous, c->job,   c->bind, c->advertise, c->secret,   c->secret_file,
        c->key_file, c->site,       c->seeds, c->mdns, c->transport, c->discover, c->health,
    };
    return fields[i];
}

static int clear_environment(void **state)
{
    static const char *const launchers[] = {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_RANK",
        "PMI_SIZE",
        "SLURM_PROCID",
        "SLURM_STEP_ID",
    };
    for (int i = 0; i < NUMBERS; i++)
        unsetenv(numbers[i].name);
    for (int i = 0; i < STRINGS; i++)
        unsetenv(strings[i]);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        unsetenv(launchers[i]);
    return 0;
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void expect_others_plain(const struct hearth_config *c, int number, int string)
{
    struct hearth_config plain;
    hearth_config_init(&plain);
    for (int i = 0; i < NUMBERS; i++)
        check(i == number || number_field(c, i) == number_field(&plain, i), "%s changed", numbers[i].name);
    for (int i = 0; i < STRINGS; i++)
        check(i == string || same(string_field(c, i), string_field(&plain, i)), "%s changed", strings[i]);
}

/* The config that is read when this variable alone is set. */
static struct hearth_config taken(const char *name, const char *value)
{
    struct hearth_config config;
    clear_environment(NULL);
    setenv(name, value, 1);
    hearth_config_init(&config);
    check_ok(hearth_config_env(&config));
    return config;
}

static void refused(const char *name, const char *value, const char *help)
{
    struct hearth_config config, before;
    char quoted[TEXT_MAX];
    hearth_config_init(&config);
    before = config;
    clear_environment(NULL);
    setenv("HEARTH_JOB", "other", 1); /* good ones beside it are not taken either */
    setenv(name, value, 1);
    snprintf(quoted, sizeof quoted, "\"%s\"", value);
    if (!check(hearth_config_env(&config) == HEARTH_INVALID, "%s=%s is taken", name, value))
        return;
    check_text(hearth_error_text(), name);
    check_text(hearth_error_text(), quoted);
    check_text(hearth_error_text(), help);
    check(memcmp(&config, &before, sizeof config) == 0, "%s=%s changed something", name, value);
}

TEST_WITH(test_numbers, clear_environment, NULL)
{
    for (int i = 0; i < NUMBERS; i++) {
        for (int high = 0; high < 2; high++) {
            char text[32];
            uint64_t wanted = high ? numbers[i].high : numbers[i].low;
            snprintf(text, sizeof text, "%" PRIu64, wanted);
            struct hearth_config config = taken(numbers[i].name, text);
            check(number_field(&config, i) == wanted, "%s is %" PRIu64, numbers[i].name,
                  number_field(&config, i));
            expect_others_plain(&config, i, -1);
        }
    }
    checks_end();
}

TEST_WITH(test_bad_numbers, clear_environment, NULL)
{
    for (int i = 0; i < NUMBERS; i++) {
        const char *const bad[] = {
            numbers[i].below, numbers[i].above, "", " ", "x", "1x", "+1", "1K", "0x1", "18446744073709551617",
        };
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
            refused(numbers[i].name, bad[k], "");
    }
    checks_end();
}

static void string_taken(int i, const char *value)
{
    struct hearth_config config = taken(strings[i], value);
    check(same(string_field(&config, i), value), "%s=%s", strings[i], value);
    expect_others_plain(&config, -1, i);
}

TEST_WITH(test_strings, clear_environment, NULL)
{
    for (int i = 0; i < STRINGS - WORDS; i++)
        string_taken(i, "some text"); /* what it means is looked at when a node is opened */
    checks_end();
}

TEST_WITH(test_no_helper, clear_environment, NULL)
{
    check(same(taken("HEARTH_MDNS", "").mdns, ""), "HEARTH_MDNS"); /* empty is another thing than not set */
    checks_end();
}

TEST_WITH(test_words, clear_environment, NULL)
{
    const int transport = STRINGS - 3, discover = STRINGS - 2, health = STRINGS - 1;
    const char *const bad[] = {
        "", " ", "mdns ", "Mdns", "MDNS", "on", "1", "default,low-latency", "low_latency", "some text"};
    string_taken(transport, "auto");
    string_taken(transport, "tcp");
    string_taken(transport, "quic");
    string_taken(transport, "shm");
    string_taken(discover, "mdns");
    string_taken(discover, "off");
    string_taken(health, "default");
    string_taken(health, "low-latency");
    string_taken(health, "high-latency");
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        refused(strings[transport], bad[k], "auto, tcp, quic or shm");
        refused(strings[discover], bad[k], "mdns or off");
        refused(strings[health], bad[k], "low-latency or high-latency");
    }
    refused(strings[discover], "default", "mdns or off");
    refused(strings[health], "mdns", "low-latency or high-latency");
    checks_end();
}

/* What the environment may not say, the program may not either. */
TEST_WITH(test_bad_fields, clear_environment, NULL)
{
    static const char *const texts[] = {"discover", "health", "health", "form_timeout_ms", "roles"};
    for (int i = 0; i < (int)(sizeof texts / sizeof *texts); i++) {
        hearth_node *node = NULL;
        struct hearth_config config;
        hearth_config_init(&config);
        config.discover = i == 0 ? "bonjour" : NULL;
        config.health = i == 1 ? "best" : i == 2 ? NULL : config.health;
        config.form_timeout_ms = i == 3 ? 0 : config.form_timeout_ms;
        config.roles = i == 4 ? 8 : config.roles;
        check_error(hearth_node_open(&config, &node), HEARTH_INVALID, texts[i]);
        hearth_node_close(node);
    }
    checks_end();
}

/* ---- launchers ---- */

static void set_torchrun(void)
{
    clear_environment(NULL);
    setenv("RANK", "2", 1);
    setenv("WORLD_SIZE", "4", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
}

struct mixed {
    const char *set[3][2]; /* name and value, beside what torchrun sets */
    int rank, world_size;
    const char *launcher;
};

TEST_WITH(test_launcher_fills_in_what_is_open, clear_environment, NULL)
{
    const struct mixed cases[] = {
        {{{NULL}}, 2, 4, "127.0.0.1:29501"},
        {{{"HEARTH_RANK", "1"}}, 1, 4, "127.0.0.1:29501"},
        {{{"HEARTH_RENDEZVOUS", "127.0.0.1:1"}}, 2, 4, ""},
        {{{"HEARTH_PEERS", "127.0.0.1:1,127.0.0.1:2"}}, 2, 0, ""},
        {{{"HEARTH_RENDEZVOUS", "127.0.0.1:1"}, {"HEARTH_WORLD_SIZE", "8"}}, 2, 8, ""},
        {{{"HEARTH_RENDEZVOUS", "127.0.0.1:1"}, {"HEARTH_WORLD_SIZE", "8"}, {"HEARTH_RANK", "7"}}, 7, 8, ""},
        {{{"HEARTH_PEERS", "127.0.0.1:1,127.0.0.1:2"}, {"HEARTH_RANK", "0"}}, 0, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hearth_config config;
        set_torchrun();
        for (int k = 0; k < 3 && cases[i].set[k][0]; k++)
            setenv(cases[i].set[k][0], cases[i].set[k][1], 1);
        hearth_config_init(&config);
        check_ok(hearth_config_env(&config));
        check(config.rank == cases[i].rank, "case %zu: rank %d", i, config.rank);
        check(config.world_size == cases[i].world_size, "case %zu: world_size %d", i, config.world_size);
        const char *found = environment_of(&config)->rendezvous;
        check(strcmp(found, cases[i].launcher) == 0, "case %zu: %s", i, found);
    }
    checks_end();
}

/* What the program has set counts as said. */
TEST_WITH(test_launcher_comes_after_the_program, clear_environment, NULL)
{
    struct hearth_config config;
    set_torchrun();
    hearth_config_init(&config);
    config.rank = 0;
    config.world_size = 2;
    config.rendezvous = "127.0.0.1:9";
    check_ok(hearth_config_env(&config));
    check(config.rank == 0 && config.world_size == 2, "rank %d of %d", config.rank, config.world_size);
    check(environment_of(&config)->rendezvous[0] == '\0', "%s", environment_of(&config)->rendezvous);
    checks_end();
}

TEST_WITH(test_bad_launchers, clear_environment, NULL)
{
    struct hearth_config config, before;
    set_torchrun();
    setenv("RANK", "four", 1);
    hearth_config_init(&config);
    before = config;
    check_error(hearth_config_env(&config), HEARTH_INVALID, "RANK");
    check_text(hearth_error_text(), "\"four\"");
    check(memcmp(&config, &before, sizeof config) == 0, "something changed");
    /* Who says all leaves nothing to fill in, and RANK may be somebody else's word. */
    setenv("HEARTH_RENDEZVOUS", "127.0.0.1:1", 1);
    setenv("HEARTH_WORLD_SIZE", "2", 1);
    setenv("HEARTH_RANK", "1", 1);
    check_ok(hearth_config_env(&config));
    checks_end();
}
