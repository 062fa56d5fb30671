/* SPDX-License-Identifier: Apache-2.0 */
/* hearth_config_env: every variable, good and bad. A bad one is named with its value and changes nothing. */
#include <inttypes.h>

#include "conform/fixture.h"
#include "node/environment.h"
#include "node/node.h"

static const char *const names[] = {
    "HEARTH_OP_TIMEOUT_MS",
    "HEARTH_CHUNK_BYTES",
    "HEARTH_WINDOW_BYTES",
    "HEARTH_EAGER_BYTES",
    "HEARTH_MEMORY_MAX",
    "HEARTH_OPS_MAX",
    "HEARTH_SPIN_US",
    "HEARTH_ALGO",
    "HEARTH_LOG_LEVEL",
    "HEARTH_RATE",
    "HEARTH_CODEC",
    "HEARTH_COMPRESSED_ALLREDUCE_MAX_BYTES",
    "HEARTH_COMPRESS_THREADS",
};
enum { NAMES = sizeof names / sizeof *names };

static int clear_environment(void **state)
{
    for (int i = 0; i < NAMES; i++)
        unsetenv(names[i]);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    return 0;
}

/* Codecs that the tests set, as numbers. */
static uint64_t codec_number(const char *codec)
{
    return strcmp(codec, "none") == 0 ? 0 : strcmp(codec, "int8") == 0 ? 1 : strlen(codec);
}

/* The field as a number, by the index of its variable. */
static uint64_t field(const struct hearth_config *c, int name)
{
    const uint64_t fields[NAMES] = {(uint64_t)c->op_timeout_ms,
                                    tuning_of(c)->chunk_bytes,
                                    tuning_of(c)->window_bytes,
                                    tuning_of(c)->eager_bytes,
                                    c->memory_max,
                                    tuning_of(c)->ops_max,
                                    tuning_of(c)->spin_us,
                                    (uint64_t)tuning_of(c)->algo,
                                    (uint64_t)c->log_level,
                                    c->rate,
                                    codec_number(c->codec),
                                    tuning_of(c)->compressed_allreduce_max_bytes,
                                    c->compress_threads};
    return fields[name];
}

static void set_alone(int name, const char *value)
{
    clear_environment(NULL);
    setenv(names[name], value, 1);
}

struct good {
    int name;
    const char *value;
    uint64_t field;
};

TEST_WITH(test_good_values, clear_environment, NULL)
{
    const struct good cases[] = {
        {0, "1", 1},
        {0, "60000", 60000},
        {1, "16384", 16384},
        {1, "16K", 16384},
        {1, "1M", 1u << 20},
        {2, "65536", 65536},
        {2, "1G", 1u << 30},
        {2, "3M", 3u << 20},
        {3, "16K", 16384},
        {3, "64M", 64u << 20},
        {4, "0", 0},
        {4, "5G", UINT64_C(5) << 30},
        {5, "1", 1},
        {5, "5000", 5000},
        {6, "0", 0},
        {6, "1000", 1000},
        {7, "auto", HEARTH_ALGO_AUTO},
        {7, "ring", HEARTH_ALGO_RING},
        {7, "direct", HEARTH_ALGO_DIRECT},
        {7, "halving", HEARTH_ALGO_HALVING},
        {7, "tree", HEARTH_ALGO_TREE},
        {7, "star", HEARTH_ALGO_STAR},
        {7, "hierarchical", HEARTH_ALGO_HIERARCHICAL},
        {7, "exchange", HEARTH_ALGO_EXCHANGE},
        {8, "error", HEARTH_LOG_ERROR},
        {8, "warn", HEARTH_LOG_WARN},
        {8, "info", HEARTH_LOG_INFO},
        {8, "debug", HEARTH_LOG_DEBUG},
        {9, "0", 0},
        {9, "64000", 64000},
        {9, "100mbit", 100000000},
        {9, "1gbit", 1000000000},
        {9, "2.5gbit", 2500000000},
        {9, "0.125mbit", 125000},
        {9, "64.0005kbit", 64000},
        {9, "1000gbit", UINT64_C(1000000000000)},
        {10, "none", 0},
        {10, "int8", 1},
        {10, "topk:0.01,values=int8", 21},
        {11, "0", 0},
        {11, "8G", UINT64_C(8) << 30},
        {12, "1", 1},
        {12, "64", 64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hearth_config config, plain;
        hearth_config_init(&config);
        plain = config;
        set_alone(cases[i].name, cases[i].value);
        check_ok(hearth_config_env(&config));
        for (int k = 0; k < NAMES; k++) {
            uint64_t wanted = k == cases[i].name ? cases[i].field : field(&plain, k);
            check(field(&config, k) == wanted, "%s=%s: %s is %" PRIu64, names[cases[i].name], cases[i].value,
                  names[k], field(&config, k));
        }
        hearth_node *node = NULL; /* what is taken from the environment can be opened */
        check_ok(hearth_node_open_local(&config, 1, &node));
        hearth_node_close(node);
    }
    checks_end();
}

static void bad(int name, const char *value)
{
    struct hearth_config config, before;
    char quoted[TEXT_MAX];
    hearth_config_init(&config);
    struct hearth_tuning tuning; /* fields that the caller has set stay too */
    hearth_tuning_init(&tuning);
    tuning.ops_max = 77;
    config.tuning = &tuning;
    before = config;
    clear_environment(NULL);
    setenv("HEARTH_SPIN_US", "13", 1); /* good ones beside it are not taken either */
    setenv("HEARTH_CHUNK_BYTES", "32K", 1);
    setenv(names[name], value, 1);
    snprintf(quoted, sizeof quoted, "\"%s\"", value);
    if (!check(hearth_config_env(&config) == HEARTH_INVALID, "%s=%s is taken", names[name], value))
        return;
    check_text(hearth_error_text(), names[name]);
    check_text(hearth_error_text(), quoted);
    check(memcmp(&config, &before, sizeof config) == 0, "%s=%s changed something", names[name], value);
}

TEST_WITH(test_bad_values, clear_environment, NULL)
{
    /* no numbers, or not only; for those that take one */
    const char *const words[] = {"",
                                 " ",
                                 "x",
                                 "-1",
                                 "+5",
                                 " 5",
                                 "5 ",
                                 "5x",
                                 "0x10",
                                 "1e6",
                                 "5KK",
                                 "5T",
                                 "K",
                                 "1.5",
                                 "18446744073709551616",
                                 "99999999999999999999999",
                                 "17179869184G"};
    const int numbers[] = {0, 1, 2, 3, 4, 5, 6, 9, 11, 12};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            bad(numbers[n], words[i]);
    /* beyond the limits */
    bad(0, "0");
    bad(0, "1K"); /* not a size */
    bad(0, "31536000001");
    bad(1, "16383");
    bad(1, "17M");
    bad(2, "16383");
    bad(2, "16777216000000G");
    bad(3, "8K");
    bad(3, "65M");
    bad(5, "0");
    bad(5, "1048577");
    bad(5, "4294967297"); /* must not wrap to 1 */
    bad(6, "1000001");
    bad(6, "4294967296");
    bad(9, "63999");
    bad(9, "63.999kbit");
    bad(9, "1000.1gbit");
    bad(9, "1000000000001");
    bad(9, "10000000000gbit"); /* must not wrap */
    bad(12, "0");
    bad(12, "65");
    const char *const no_rates[] = {"mbit",     ".5gbit",   "1tbit",     "1Mbit",
                                    "100mbit ", "100 mbit", "1.2.3gbit", "-1"};
    for (size_t i = 0; i < sizeof no_rates / sizeof *no_rates; i++)
        bad(9, no_rates[i]);
    /* names */
    const char *const no_algos[] = {"", "Ring", "ring ", "rings", "7", "?"};
    for (size_t i = 0; i < sizeof no_algos / sizeof *no_algos; i++)
        bad(7, no_algos[i]);
    const char *const no_levels[] = {"", "WARN", "warning", "2", "trace"};
    for (size_t i = 0; i < sizeof no_levels / sizeof *no_levels; i++)
        bad(8, no_levels[i]);
    const char *const no_codecs[] = {"zip", "topk", "topk:2", "int8,values=f32", "Int8"};
    for (size_t i = 0; i < sizeof no_codecs / sizeof *no_codecs; i++)
        bad(10, no_codecs[i]);
    checks_end();
}

TEST_WITH(test_all_at_once_and_none, clear_environment, NULL)
{
    struct hearth_config config, plain;
    hearth_config_init(&config);
    plain = config;
    check_ok(hearth_config_env(&config));
    check(memcmp(&config, &plain, sizeof config) == 0, "an empty environment changed something");
    const char *const values[NAMES] = {"5000", "32K",   "1M",    "64K",  "1G", "99", "7",
                                       "tree", "debug", "1gbit", "int8", "2G", "2"};
    const uint64_t wanted[NAMES] = {
        5000,       32768, 1u << 20,          65536, 1u << 30, 99, 7, HEARTH_ALGO_TREE, HEARTH_LOG_DEBUG,
        1000000000, 1,     UINT64_C(2) << 30, 2};
    for (int i = 0; i < NAMES; i++)
        setenv(names[i], values[i], 1);
    check_ok(hearth_config_env(&config));
    for (int i = 0; i < NAMES; i++)
        check(field(&config, i) == wanted[i], "%s is %" PRIu64, names[i], field(&config, i));
    check_status(hearth_config_env(NULL), HEARTH_INVALID);
    config.size = 5;
    check_error(hearth_config_env(&config), HEARTH_INVALID, "hearth_config_init");
    checks_end();
}

/* Opening does not look at the environment. */
TEST_WITH(test_only_config_env_reads_it, clear_environment, clear_environment)
{
    struct fixture c;
    for (int i = 0; i < NAMES; i++)
        setenv(names[i], "nonsense", 1);
    fixture_open(&c, 2, NULL);
    fixture_works(&c);
    fixture_close(&c);
}

/* Where key and secret are kept. */
TEST_WITH(test_folder, clear_environment, clear_environment)
{
    static const struct {
        const char *config, *home, *folder;
    } cases[] = {
        {NULL, NULL, ""},
        {NULL, "/home/u", "/home/u/.config/hearth"},
        {"/etc/u", "/home/u", "/etc/u/hearth"},
        {"not/from/the/root", "/home/u", "/home/u/.config/hearth"},
        {"", "relative", ""},
    };
    char home[400];
    struct hearth_config config;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clear_environment(NULL);
        if (cases[i].config)
            setenv("XDG_CONFIG_HOME", cases[i].config, 1);
        if (cases[i].home)
            setenv("HOME", cases[i].home, 1);
        hearth_config_init(&config);
        check_ok(hearth_config_env(&config));
        const char *folder = environment_of(&config)->folder;
        check(strcmp(folder, cases[i].folder) == 0, "the folder is \"%s\", not \"%s\"", folder,
              cases[i].folder);
        const struct hearth_environment *first = config.environment;
        check_ok(hearth_config_env(&config));
        check(config.environment == first, "what was found already takes memory again");
    }
    memset(home, 'h', sizeof home - 1);
    home[0] = '/';
    home[sizeof home - 1] = '\0';
    setenv("HOME", home, 1);
    hearth_config_init(&config);
    check_status(hearth_config_env(&config), HEARTH_INVALID);
    check(strstr(hearth_error_text(), "HOME"), "\"%s\" does not say which", hearth_error_text());
    checks_end();
}
