/* SPDX-License-Identifier: Apache-2.0 */
/* Values of flags, flags of a command line, and what is said when they are wrong. */
#include <math.h>
#include <unistd.h>

#include "cli/shared/args.h"
#include "cli/shared/text.h"
#include "support/suite.h"

/* ---- single values ---- */

/* Each text gives this number, or none (negative) and leaves the target alone. */
struct value {
    const char *text;
    double number;
};

static void assert_values(enum arg_type type, const struct value *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool whole = type == ARG_COUNT || type == ARG_SIZE;
        size_t bytes = 77;
        double real = 77;
        const struct arg arg = {.type = type, .target = whole ? (void *)&bytes : (void *)&real};
        bool good = args_set(&arg, values[i].text);
        double got = whole ? (double)bytes : real, expected = values[i].number < 0 ? 77 : values[i].number;
        if (good != (values[i].number >= 0) || fabs(got - expected) > expected * 1e-15)
            fail_msg("'%s' gives %d and %g", values[i].text, good, got);
    }
}

#define VALUES(type, ...)                                                                                    \
    assert_values(type, (const struct value[]){__VA_ARGS__},                                                 \
                  sizeof((const struct value[]){__VA_ARGS__}) / sizeof(struct value))

TEST(test_count)
{
    VALUES(ARG_COUNT, {"1", 1}, {"25000000", 25e6}, {"10K", 1e4}, {"350M", 350e6}, {"1.3B", 1.3e9},
           {"7b", 7e9}, {"0.5K", 500}, {"1000B", 1e12}, {"", -1}, {"0", -1}, {"-1", -1}, {"1.5", -1},
           {"1.0001K", -1}, {"1001B", -1}, {"1G", -1}, {"1T", -1}, {"B", -1}, {"1 B", -1}, {"inf", -1},
           {"1e9", -1});
}

TEST(test_size)
{
    VALUES(ARG_SIZE, {"0", 0}, {"4", 4}, {"1K", 1024}, {"64k", 65536}, {"100M", 104857600}, {"1G", 0x1p30},
           {"1KB", 1024}, {"1KiB", 1024}, {"512B", 512}, {"1.5M", 3 << 19}, {"0.5gb", 1 << 29},
           {"1024G", 0x1p40}, {"1099511627776", 0x1p40}, {"", -1}, {"K", -1}, {"-1", -1}, {"+1", -1},
           {" 1", -1}, {"1 K", -1}, {"1.3", -1}, {"1.3K", -1}, {"1KBit", -1}, {"1.5.0M", -1}, {"0x10", -1},
           {"1T", -1}, {"1025G", -1}, {"1M1", -1}, {"ten", -1}, {"1e3", -1}, {"99999999999999999999", -1},
           {"1099511627777", -1});
}

TEST(test_rate)
{
    VALUES(ARG_RATE, {"1gbit", 125e6}, {"100mbit", 12.5e6}, {"2.5Gbit", 312.5e6}, {"10gbit", 1.25e9},
           {"8bit", 1}, {"100Mbps", 12.5e6}, {"1gbps", 125e6}, {"8bps", 1}, {"1Gbit/s", 125e6}, {"", -1},
           {"1", -1}, {"gbit", -1}, {"0gbit", -1}, {"-1gbit", -1}, {"1gb", -1}, {"1MBps", -1},
           {"infgbit", -1}, {"nangbit", -1}, {"1.2.3gbit", -1}, {"bps", -1}, {"1psb", -1}, {"1xbps", -1});
}

TEST(test_duration)
{
    VALUES(ARG_DURATION, {"200us", 200e-6}, {"1ms", 1e-3}, {"0.5s", 0.5}, {"20ns", 20e-9}, {"0", 0}, {"", -1},
           {"5", -1}, {"us", -1}, {"-1us", -1}, {"1min", -1}, {"1 us", -1}, {"inf s", -1}, {"0x1us", -1},
           {".us", -1});
}

TEST(test_int)
{
    int64_t value = 7;
    assert_true(args_int("1", 1, 9, &value) && value == 1);
    assert_true(args_int("-3", -9, 9, &value) && value == -3);
    value = 7;
    assert_false(args_int("0", 1, 9, &value));
    assert_false(args_int("10", 1, 9, &value));
    assert_false(args_int("", 0, 9, &value));
    assert_false(args_int("3x", 0, 9, &value));
    assert_false(args_int(" 3", 0, 9, &value));
    assert_false(args_int("99999999999999999999", 0, INT64_MAX, &value));
    assert_int_equal(value, 7);
}

TEST(test_nearest)
{
    static const char *const names[] = {"ranks", "rank", "bytes", "algo"};
    assert_string_equal(args_nearest("rnaks", names, 4), "ranks");
    assert_string_equal(args_nearest("byte", names, 4), "bytes");
    assert_string_equal(args_nearest("al", names, 4), "algo");
    assert_null(args_nearest("xylophone", names, 4));
    assert_null(args_nearest("zzz", names, 4));
}

/* ---- command lines ---- */

static const char *colour(int index)
{
    static const char *const names[] = {"red", "green"};
    return index < 2 ? names[index] : NULL;
}

struct options {
    bool json;
    int ranks, iters, colour;
    size_t bytes;
    struct arg_list sizes, hosts;
    double rate, rtt_s, lr;
    const char *data;
};

#define WORDS_MAX 8

static char said[1024], *argv[WORDS_MAX + 1]; /* standard error and words of the last parse */

static int parse_words(const struct usage *usage, const char *const *words)
{
    static char copies[WORDS_MAX][64];
    int argc = 0, saved = dup(STDERR_FILENO);
    for (; words[argc]; argc++) {
        assert_true(argc < WORDS_MAX);
        snprintf(copies[argc], sizeof copies[argc], "%s", words[argc]);
        argv[argc] = copies[argc];
    }
    argv[argc] = NULL;
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    int code = args_parse(usage, argc, argv);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
    return code;
}

#define PARSE(usage, ...) parse_words(usage, (const char *const[]){"test", __VA_ARGS__, NULL})

static int parse(struct options *o, const char *const *words)
{
    const struct arg args[] = {
        {"json", ARG_FLAG, &o->json, .about = "flag"},
        {"ranks", ARG_INT, &o->ranks, .about = "int", .min = 1, .max = 99},
        {"iters", ARG_INT, &o->iters, .about = "int", .min = 1, .max = 99, .word = "auto"},
        {"colour", ARG_CHOICE, &o->colour, .about = "choice", .choice = colour},
        {"bytes", ARG_SIZE, &o->bytes, .about = "size", .min = 1},
        {"sizes", ARG_SIZES, &o->sizes, .about = "sizes", .min = 1},
        {"hosts", ARG_INTS, &o->hosts, .about = "ints"},
        {"rate", ARG_RATE, &o->rate, .about = "rate"},
        {"rtt", ARG_DURATION, &o->rtt_s, .about = "time"},
        {"lr", ARG_REAL, &o->lr, .about = "real"},
        {"data", ARG_TEXT, &o->data, .about = "text"},
    };
    const struct usage usage = {"test", "About.", "hearth test", USAGE_ARGS(args)};
    return parse_words(&usage, words);
}

TEST(test_parse)
{
    struct options o = {.ranks = 8, .iters = 5};
    const char *const first[] = {"test",           "--ranks",      "3", "--json", "--bytes=64K",
                                 "--colour=green", "--iters=auto", NULL};
    assert_int_equal(parse(&o, first), ARGS_GO);
    assert_string_equal(said, "");
    assert_true(o.json && o.ranks == 3 && o.bytes == 65536 && o.colour == 1 && o.iters == 0);
    const char *const second[] = {"test",         "--sizes",   "4,1K,2M",  "--hosts=4,4",
                                  "--rate=1gbit", "--rtt=1ms", "--lr=0.5", NULL};
    assert_int_equal(parse(&o, second), ARGS_GO);
    assert_true(o.sizes.count == 3 && o.sizes.item[1] == 1024 && o.sizes.item[2] == 2 << 20);
    assert_true(o.hosts.count == 2 && o.hosts.item[0] == 4);
    assert_true(o.rate == 125e6 && fabs(o.rtt_s - 1e-3) < 1e-15 && o.lr == 0.5);
    assert_int_equal(o.ranks, 3);
}

/* Each wrong line exits with 2 and says the flag, the value, and what it takes. */
TEST(test_refusals)
{
    static const struct {
        const char *words[4];
        const char *said[3];
    } cases[] = {
        {{"test", "--rnaks", "3"}, {"--rnaks", "did you mean --ranks"}},
        {{"test", "--wibblewobble"}, {"no flag --wibblewobble"}},
        {{"test", "--ranks", "0"}, {"--ranks '0'", "from 1 to 99"}},
        {{"test", "--ranks=100"}, {"--ranks '100'", "from 1 to 99"}},
        {{"test", "--ranks"}, {"--ranks needs a value", "from 1 to 99"}},
        {{"test", "--iters=none"}, {"--iters 'none'", "auto"}},
        {{"test", "--bytes=12Q"}, {"--bytes '12Q'", "K, M or G"}},
        {{"test", "--bytes=0"}, {"--bytes '0'", "at least 1"}},
        {{"test", "--sizes=1,,2"}, {"--sizes '1,,2'", "separated by commas"}},
        {{"test", "--sizes=1,2,"}, {"--sizes '1,2,'"}},
        {{"test", "--sizes=4,0"}, {"--sizes '4,0'"}},
        {{"test", "--hosts=0"}, {"--hosts '0'", "from 1"}},
        {{"test", "--rate=1"}, {"--rate '1'", "1gbit"}},
        {{"test", "--rtt=1"}, {"--rtt '1'", "200us"}},
        {{"test", "--lr=0"}, {"--lr '0'", "above 0"}},
        {{"test", "--colour=gren"}, {"--colour 'gren'", "did you mean green", "red, green"}},
        {{"test", "--json=1"}, {"--json takes no value"}},
        {{"test", "--data="}, {"--data ''"}},
        {{"test", "-x", "3"}, {"no flag -x"}},
        {{"test", "-xyz"}, {"no flag -xyz"}},
        {{"test", "-json"}, {"no flag -json; did you mean --json?"}},
        {{"test", "-5"}, {"'-5' is not a flag"}},
        {{"test", "word"}, {"'word' is not a flag"}},
        {{"test", "--"}, {"'--' is not a flag"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options o = {.ranks = 8};
        if (parse(&o, cases[i].words) != EXIT_USAGE)
            fail_msg("%s is accepted", cases[i].words[1]);
        for (size_t k = 0; k < 3 && cases[i].said[k]; k++) {
            if (!strstr(said, cases[i].said[k]))
                fail_msg("%s: '%s' does not say '%s'", cases[i].words[1], said, cases[i].said[k]);
        }
        assert_non_null(strstr(said, "hearth test --help"));
        assert_int_equal(o.ranks, 8);
    }
}

/* A single character has one dash; what stands after -- is not read. */
TEST(test_rest)
{
    int count = 1;
    char **rest = NULL;
    bool json = false;
    const struct arg args[] = {
        {"n", ARG_INT, &count, .about = "int", .min = 1, .max = 9},
        {"json", ARG_FLAG, &json, .about = "flag"},
        {"PROGRAM", ARG_REST, &rest, .about = "rest"},
    };
    const struct usage usage = {"test", "About.", "hearth test", USAGE_ARGS(args)};
    assert_int_equal(PARSE(&usage, "-n", "4", "--", "--json", "--help", "--"), ARGS_GO);
    assert_true(count == 4 && !json && rest == argv + 4);
    rest = NULL;
    assert_int_equal(PARSE(&usage, "-n=5", "--json"), ARGS_GO);
    assert_true(count == 5 && json && !rest);
    assert_int_equal(PARSE(&usage, "4"), EXIT_USAGE);
    assert_int_equal(PARSE(&usage, "-n6"), ARGS_GO);
    assert_true(count == 6);
}

/* Where a program must be there, it begins with the first word that is no flag. */
TEST(test_program_without_dashes)
{
    int count = 1;
    char **rest = NULL;
    bool given = false;
    const struct arg args[] = {
        {"n", ARG_INT, &count, .about = "int", .min = 1, .max = 9, .given = &given},
        {"PROGRAM", ARG_REST, &rest, .about = "rest", .min = 1},
    };
    const struct usage usage = {"test", "About.", "hearth test", USAGE_ARGS(args)};
    assert_int_equal(PARSE(&usage, "-n", "2", "prog", "--help", "--"), ARGS_GO);
    assert_true(count == 2 && given && rest == argv + 3);
    given = false;
    assert_int_equal(PARSE(&usage, "--", "-n"), ARGS_GO);
    assert_true(!given && rest == argv + 2);
}

/* Words stand alone, in the order of the table; one too many is named, unless it may be a secret. */
TEST(test_words)
{
    const char *id = NULL, *label = NULL, *file = NULL;
    bool json = false;
    const struct arg args[] = {
        {"file", ARG_TEXT, &file, .about = "text"},
        {"ID", ARG_WORD, &id, .about = "word", .min = 1},
        {"json", ARG_FLAG, &json, .about = "flag"},
        {"NAME", ARG_WORD, &label, .about = "word"},
    };
    const struct arg token_args[] = {{"TOKEN", ARG_WORD, &id, .about = "word"}};
    const struct usage usage = {"test", "About.", "hearth test", USAGE_ARGS(args)};
    const struct usage token_usage = {"test", "About.", "hearth test", USAGE_ARGS(token_args)};
    assert_int_equal(PARSE(&usage, "one", "--json", "-", "--file=x"), ARGS_GO);
    assert_true(id == argv[1] && label == argv[3] && json && strcmp(file, "x") == 0);
    id = label = NULL;
    assert_int_equal(PARSE(&usage, "--json", "one"), ARGS_GO);
    assert_true(id == argv[2] && !label);
    assert_int_equal(PARSE(&usage, "--json"), EXIT_USAGE);
    assert_int_equal(PARSE(&usage, "one", "one", "three"), EXIT_USAGE);
    assert_non_null(strstr(said, "too many arguments: 'three'"));
    assert_int_equal(PARSE(&usage, "one", "one", "hearth1-s3cret-0123456789abcdefghijk"), EXIT_USAGE);
    assert_non_null(strstr(said, "too many arguments"));
    assert_null(strstr(said, "s3cret"));
    assert_int_equal(PARSE(&token_usage, "one", "s3cret"), EXIT_USAGE);
    assert_non_null(strstr(said, "too many arguments"));
    assert_null(strstr(said, "s3cret"));
}

TEST(test_texts)
{
    assert_string_equal(text_bytes(4).s, "4 B");
    assert_string_equal(text_bytes(1835008).s, "1.75 MiB");
    assert_string_equal(text_bytes(104857600).s, "100 MiB");
    assert_string_equal(text_time(200e-6).s, "200 us");
    assert_string_equal(text_time(1.6766).s, "1.68 s");
    assert_string_equal(text_time(HUGE_VAL).s, "-");
    assert_string_equal(text_rate(125e6).s, "1 Gbit/s");
    assert_string_equal(text_count(0).s, "0");
    assert_string_equal(text_count(1998000).s, "1,998,000");
    assert_string_equal(text_count(UINT64_MAX).s, "18,446,744,073,709,551,615");
    assert_string_equal(text_ratio(0.844).s, "0.84");
    assert_string_equal(text_ratio(12339.9).s, "12,339");
}
