/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a subcommand: a table of flags is parsed, checked and shown as help. */
#include "cli/shared/args.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/shared/text.h"

#define NAME_MAX_LEN 48
#define ACCEPTED_MAX 256
#define HELP_WIDTH   96
#define HELP_COLUMN  22
#define NAMES_MAX    64

/* ---- single values ---- */

bool args_int(const char *text, int64_t min, int64_t max, int64_t *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (!(isdigit((unsigned char)text[0]) || text[0] == '-') || *end || errno || number < min || number > max)
        return false;
    *value = number;
    return true;
}

/* A finite number >= 0 and what follows it. strtod alone would take "inf", "nan" and "0x1p3". */
static bool real_with_unit(const char *text, double *number, const char **unit)
{
    size_t len = strspn(text, "0123456789.");
    char digits[32];
    char *end;
    if (len == 0 || len >= sizeof digits)
        return false;
    memcpy(digits, text, len);
    digits[len] = 0;
    *number = strtod(digits, &end);
    *unit = text + len;
    return *end == 0 && end != digits && isfinite(*number);
}

struct unit {
    const char *name;
    double factor;
};

static bool by_unit(const char *text, const struct unit *units, size_t count, double *value)
{
    double number;
    const char *unit;
    if (!real_with_unit(text, &number, &unit))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(unit, units[i].name) == 0) {
            *value = number * units[i].factor;
            return true;
        }
    }
    return false;
}

bool args_size(const char *text, size_t *bytes)
{
    static const struct unit units[] = {
        {"", 1},        {"B", 1},        {"K", 1024},   {"KB", 1024},   {"KiB", 1024},   {"M", 0x1p20},
        {"MB", 0x1p20}, {"MiB", 0x1p20}, {"G", 0x1p30}, {"GB", 0x1p30}, {"GiB", 0x1p30},
    };
    double value;
    if (!by_unit(text, units, sizeof units / sizeof *units, &value) || value > (double)ARG_SIZE_MAX ||
        value != floor(value))
        return false;
    *bytes = (size_t)value;
    return true;
}

bool args_count(const char *text, size_t *count)
{
    static const struct unit units[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}};
    double value;
    if (!by_unit(text, units, sizeof units / sizeof *units, &value) || value < 1 || value > ARG_COUNT_MAX)
        return false;
    size_t whole = (size_t)(value + 0.5); /* 1.3 * 1e9 is not whole in doubles */
    if (fabs(value - (double)whole) > value * 1e-15)
        return false;
    *count = whole;
    return true;
}

/* "Mbps", "mbps"; "MBps" may mean bytes, and is not taken. */
static bool per_second(const char *text, double *value)
{
    static const char prefixes[] = "kmgt";
    double number, factor = 1;
    const char *unit;
    if (!real_with_unit(text, &number, &unit))
        return false;
    const char *prefix = *unit ? strchr(prefixes, tolower((unsigned char)*unit)) : NULL;
    for (int i = 0; prefix && i <= (int)(prefix - prefixes); i++)
        factor *= 1000;
    *value = number * factor / 8;
    return strcmp(unit + (!!prefix), "bps") == 0;
}

bool args_rate(const char *text, double *bytes_per_s)
{
    static const struct unit units[] = {{"bit", 1.0 / 8},    {"kbit", 1e3 / 8},   {"mbit", 1e6 / 8},
                                        {"gbit", 1e9 / 8},   {"tbit", 1e12 / 8},  {"bit/s", 1.0 / 8},
                                        {"kbit/s", 1e3 / 8}, {"mbit/s", 1e6 / 8}, {"gbit/s", 1e9 / 8},
                                        {"tbit/s", 1e12 / 8}};
    double value;
    if (!by_unit(text, units, sizeof units / sizeof *units, &value) && !per_second(text, &value))
        return false;
    if (value <= 0)
        return false;
    *bytes_per_s = value;
    return true;
}

bool args_duration(const char *text, double *seconds)
{
    static const struct unit units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    if (strcmp(text, "0") == 0) {
        *seconds = 0;
        return true;
    }
    return by_unit(text, units, sizeof units / sizeof *units, seconds);
}

static bool set_real(const char *text, double *value)
{
    double number;
    const char *unit;
    if (!real_with_unit(text, &number, &unit) || *unit || number <= 0)
        return false;
    *value = number;
    return true;
}

/* ---- values of flags ---- */

static bool set_int(const struct arg *arg, const char *text)
{
    int64_t value = 0;
    if (!(arg->word && strcmp(text, arg->word) == 0) && !args_int(text, arg->min, arg->max, &value))
        return false;
    *(int *)arg->target = (int)value;
    return true;
}

static bool set_size(const struct arg *arg, const char *text)
{
    size_t value;
    if (!args_size(text, &value) || value < (size_t)arg->min)
        return false;
    *(size_t *)arg->target = value;
    return true;
}

static bool list_item(const struct arg *arg, const char *text, size_t *value)
{
    int64_t number;
    if (arg->type == ARG_SIZES)
        return args_size(text, value) && *value >= (size_t)arg->min;
    if (!args_int(text, 1, INT32_MAX, &number))
        return false;
    *value = (size_t)number;
    return true;
}

static bool set_list(const struct arg *arg, const char *text)
{
    struct arg_list list = {.count = 0};
    char item[32];
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        if (list.count == ARG_LIST_MAX || len >= sizeof item)
            return false;
        memcpy(item, at, len);
        item[len] = 0;
        if (!list_item(arg, item, &list.item[list.count++]))
            return false;
        at += len;
        if (!*at)
            break;
    }
    *(struct arg_list *)arg->target = list;
    return true;
}

static bool set_choice(const struct arg *arg, const char *text)
{
    for (int i = 0; arg->choice(i); i++) {
        if (strcmp(arg->choice(i), text) == 0) {
            *(int *)arg->target = i;
            return true;
        }
    }
    return false;
}

static bool set_value(const struct arg *arg, const char *text)
{
    switch (arg->type) {
    case ARG_INT:
        return set_int(arg, text);
    case ARG_REAL:
        return set_real(text, arg->target);
    case ARG_SIZE:
        return set_size(arg, text);
    case ARG_COUNT:
        return args_count(text, arg->target);
    case ARG_SIZES:
    case ARG_INTS:
        return set_list(arg, text);
    case ARG_RATE:
        return args_rate(text, arg->target);
    case ARG_DURATION:
        return args_duration(text, arg->target);
    case ARG_CHOICE:
        return set_choice(arg, text);
    case ARG_TEXT:
    case ARG_WORD:
        *(const char **)arg->target = text;
        return *text != 0;
    case ARG_FLAG:
    case ARG_REST:
        break;
    }
    return false;
}

/* ---- words ---- */

static const char *dashes(const char *name)
{
    return name[0] && !name[1] ? "-" : "--";
}

static const char *program_of(const struct usage *usage)
{
    return usage->program ? usage->program : "hearth ";
}

static const struct arg *find_rest(const struct usage *usage)
{
    for (size_t i = 0; i < usage->count; i++) {
        if (usage->args[i].type == ARG_REST)
            return &usage->args[i];
    }
    return NULL;
}

static void join_choices(const struct arg *arg, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; arg->choice(i) && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "", arg->choice(i));
}

static void accepted(const struct arg *arg, char *text, size_t size)
{
    static const char *const by_type[] = {
        [ARG_FLAG] = "no value",
        [ARG_REAL] = "a number above 0, like 0.1",
        [ARG_COUNT] = "a whole number from 1 to 1000B, plain or with K, M or B (powers of 1000), like 350M",
        [ARG_RATE] = "bits per second with a unit, like 100mbit, 1gbit, 2.5gbit or 100Mbps",
        [ARG_DURATION] = "a time with a unit, like 200us, 1ms or 0.5s",
        [ARG_INTS] = "whole numbers from 1, by commas, like 4,4",
        [ARG_TEXT] = "a text",
        [ARG_WORD] = "a word",
        [ARG_REST] = "a program",
    };
    char min[32];
    snprintf(min, sizeof min, " (at least %lld)", (long long)arg->min);
    if (arg->type == ARG_INT && arg->word)
        snprintf(text, size, "%s, or a whole number from %lld to %lld", arg->word, (long long)arg->min,
                 (long long)arg->max);
    else if (arg->type == ARG_INT)
        snprintf(text, size, "a whole number from %lld to %lld", (long long)arg->min, (long long)arg->max);
    else if (arg->type == ARG_CHOICE)
        join_choices(arg, text, size);
    else if (arg->type == ARG_SIZE)
        snprintf(text, size,
                 "whole bytes%s, plain or with K, M or G (powers of 1024), like 64K or 1.5M, up to 1024G",
                 min);
    else if (arg->type == ARG_SIZES)
        snprintf(text, size, "sizes by commas, like 4,64K,100M%s, K, M and G are powers of 1024", min);
    else
        snprintf(text, size, "%s", by_type[arg->type]);
}

static const char *value_name(const struct arg *arg)
{
    static const char *const names[] = {
        [ARG_FLAG] = "",       [ARG_INT] = "N",      [ARG_REAL] = "X",    [ARG_SIZE] = "SIZE",
        [ARG_SIZES] = "SIZES", [ARG_INTS] = "N,N..", [ARG_RATE] = "RATE", [ARG_DURATION] = "TIME",
        [ARG_CHOICE] = "NAME", [ARG_TEXT] = "TEXT",  [ARG_REST] = "",     [ARG_COUNT] = "COUNT",
        [ARG_WORD] = "",
    };
    return arg->value_name ? arg->value_name : names[arg->type];
}

/* Words wrapped at HELP_WIDTH, later lines indented; the first line is at `column` already. */
static void print_wrapped(const char *text, int indent, int column)
{
    for (bool first = true; *text; first = false) {
        int len = (int)strcspn(text, " ");
        if (!first && column + 1 + len > HELP_WIDTH)
            column = printf("\n%*s", indent, "") - 1;
        else if (!first)
            column += printf(" ");
        column += printf("%.*s", len, text);
        text += len;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_arg(const struct arg *arg)
{
    char flag[NAME_MAX_LEN], choices[ACCEPTED_MAX], about[2 * ACCEPTED_MAX];
    if (arg->type == ARG_REST)
        snprintf(flag, sizeof flag, "-- %s", arg->name);
    else if (arg->type == ARG_WORD)
        snprintf(flag, sizeof flag, "%s", arg->name);
    else
        snprintf(flag, sizeof flag, "%s%s %s", dashes(arg->name), arg->name, value_name(arg));
    snprintf(about, sizeof about, "%s", arg->about);
    if (arg->type == ARG_CHOICE) {
        join_choices(arg, choices, sizeof choices);
        snprintf(about, sizeof about, "%s: %s", arg->about, choices);
    }
    int column = printf("  %-*s", HELP_COLUMN - 2, flag);
    if (column > HELP_COLUMN) /* too long to stand beside it */
        column = printf("\n%*s", HELP_COLUMN, "") - 1;
    print_wrapped(about, HELP_COLUMN, column);
}

static bool has_type(const struct usage *usage, enum arg_type one, enum arg_type other)
{
    for (size_t i = 0; i < usage->count; i++) {
        if (usage->args[i].type == one || usage->args[i].type == other)
            return true;
    }
    return false;
}

static void print_usage(const struct usage *usage)
{
    const struct arg *rest = find_rest(usage);
    printf("%susage:%s %s%s", paint(stdout, PAINT_BOLD), paint(stdout, PAINT_NONE), program_of(usage),
           usage->name);
    for (size_t i = 0; i < usage->count; i++) {
        const struct arg *arg = &usage->args[i];
        if (arg->type == ARG_WORD)
            printf(arg->min ? " %s" : " [%s]", arg->name);
    }
    printf(" [options]");
    if (rest)
        printf(rest->min ? " -- %s" : " [-- %s]", rest->name);
    printf("\n\n");
}

static void print_help(const struct usage *usage)
{
    const char *bold = paint(stdout, PAINT_BOLD), *none = paint(stdout, PAINT_NONE);
    const struct arg *rest = find_rest(usage);
    print_usage(usage);
    print_wrapped(usage->about, 0, 0);
    putchar('\n');
    for (size_t i = 0; i < usage->count; i++)
        print_arg(&usage->args[i]);
    putchar('\n');
    if (has_type(usage, ARG_SIZE, ARG_SIZES))
        puts("SIZE: bytes, plain or with K, M or G, powers of 1024 (100M and 100MB are 104,857,600 bytes).");
    if (has_type(usage, ARG_COUNT, ARG_COUNT))
        puts("COUNT: plain or with K, M or B, powers of 1000 (1.3B is 1,300,000,000).");
    if (has_type(usage, ARG_RATE, ARG_DURATION))
        puts("RATE: bits a second, decimal: 100mbit, 1gbit, 100Mbps. TIME: 200us, 1ms, 2s.");
    if (usage->exit_codes)
        printf("Exit code: %s\n", usage->exit_codes);
    else if (rest)
        puts("Exit code: 0 when all ended with 0, else that of the first that failed (128 + N: killed by "
             "signal\n"
             "N; 126, 127: could not be run, was not found), 1 the launcher failed, 2 wrong usage.");
    else
        puts("Exit code: 0 done, 1 a check or the work failed, 2 wrong usage.");
    printf("\n%sexample:%s\n  %s\n", bold, none, usage->example);
}

int args_refuse(const struct usage *usage, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s%s: ", program_of(usage), usage->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nTry: %s%s --help\n", program_of(usage), usage->name);
    va_end(args);
    return EXIT_USAGE;
}

int command_fail(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "hearth %s: ", name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_FAILED_CHECK;
}

/* ---- near names ---- */

/* Changes (insert, delete, replace) from a to b; names are short, so the plain table does. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LEN + 1], len_b = strlen(b);
    if (len_b > NAME_MAX_LEN)
        return SIZE_MAX;
    for (size_t j = 0; j <= len_b; j++)
        row[j] = j;
    for (size_t i = 1; *a; i++, a++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= len_b; j++) {
            size_t replaced = diagonal + (*a != b[j - 1]);
            size_t edge = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < edge ? replaced : edge;
        }
    }
    return row[len_b];
}

const char *args_nearest(const char *text, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(text) / 2 + 2;
    for (size_t i = 0; i < count; i++) {
        size_t prefix = strncmp(names[i], text, strlen(text)) == 0 && *text;
        size_t d = prefix ? 1 : distance(text, names[i]);
        size_t longer = strlen(names[i]) > strlen(text) ? strlen(names[i]) : strlen(text);
        if (d < best_distance && (prefix || d < longer)) { /* not by changing every message */
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

/* `word`: as it was typed. */
static int refuse_flag(const struct usage *usage, const char *word, const char *name)
{
    int len = (int)strcspn(word, "=");
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < usage->count && count < NAMES_MAX - 1; i++) {
        if (usage->args[i].type != ARG_REST && usage->args[i].type != ARG_WORD)
            names[count++] = usage->args[i].name;
    }
    names[count++] = "help";
    const char *near = args_nearest(name, names, count);
    if (near)
        return args_refuse(usage, "there is no flag %.*s; did you mean %s%s?", len, word, dashes(near), near);
    return args_refuse(usage, "there is no flag %.*s", len, word);
}

static const char *nearest_choice(const struct arg *arg, const char *value)
{
    const char *names[NAMES_MAX];
    size_t count = 0;
    while (count < NAMES_MAX && arg->choice((int)count)) {
        names[count] = arg->choice((int)count);
        count++;
    }
    return args_nearest(value, names, count);
}

static int refuse_value(const struct usage *usage, const struct arg *arg, const char *value)
{
    char words[ACCEPTED_MAX];
    accepted(arg, words, sizeof words);
    const char *near = arg->type == ARG_CHOICE ? nearest_choice(arg, value) : NULL;
    if (near)
        return args_refuse(usage, "%s%s '%s' is not accepted; did you mean %s? It takes %s",
                           dashes(arg->name), arg->name, value, near, words);
    return args_refuse(usage, "%s%s '%s' is not accepted; it takes %s", dashes(arg->name), arg->name, value,
                       words);
}

/* ---- the command line ---- */

static const struct arg *find_arg(const struct usage *usage, const char *name)
{
    for (size_t i = 0; i < usage->count; i++) {
        if (usage->args[i].type != ARG_REST && usage->args[i].type != ARG_WORD &&
            strcmp(usage->args[i].name, name) == 0)
            return &usage->args[i];
    }
    return NULL;
}

/* The flag of "--name", "--name=value", "-n", "-n2" and "-n=2"; `value` is NULL if it stands alone. NULL:
 * there is no such flag, and `name` is what was typed. */
static const struct arg *read_flag(const struct usage *usage, const char *word,
                                   char name[static NAME_MAX_LEN], const char **value)
{
    const char *flag = word + (word[1] == '-' ? 2 : 1), *equals = strchr(flag, '=');
    const char frame[2] = {flag[0], 0};
    const struct arg *arg = word[1] == '-' ? NULL : find_arg(usage, frame);
    if (arg) {
        snprintf(name, NAME_MAX_LEN, "%s", frame);
        *value = !flag[1] ? NULL : flag[1] == '=' ? flag + 2 : flag + 1;
        return arg;
    }
    snprintf(name, NAME_MAX_LEN, "%.*s", equals ? (int)(equals - flag) : (int)strlen(flag), flag);
    *value = equals ? equals + 1 : NULL;
    return word[1] == '-' ? find_arg(usage, name) : NULL;
}

/* One flag at argv[*at]; moves on past its value if that stands alone. ARGS_GO or an exit code. */
static int parse_flag(const struct usage *usage, int argc, char **argv, int *at)
{
    char name[NAME_MAX_LEN], words[ACCEPTED_MAX];
    const char *value;
    const struct arg *arg = read_flag(usage, argv[*at], name, &value);
    if (!arg)
        return refuse_flag(usage, argv[*at], name);
    if (arg->given)
        *arg->given = true;
    if (arg->type == ARG_FLAG && !value) {
        *(bool *)arg->target = true;
        return ARGS_GO;
    }
    if (arg->type == ARG_FLAG)
        return args_refuse(usage, "%s%s takes no value", dashes(name), name);
    if (!value && *at + 1 >= argc) {
        accepted(arg, words, sizeof words);
        return args_refuse(usage, "%s%s needs a value: %s", dashes(name), name, words);
    }
    if (!value)
        value = argv[++*at];
    return set_value(arg, value) ? ARGS_GO : refuse_value(usage, arg, value);
}

/* "--name", or one dash and a message. */
static bool is_flag(const char *word)
{
    if (word[0] != '-' || !word[1])
        return false;
    return word[1] == '-' ? word[2] != 0 : isalpha((unsigned char)word[1]) != 0;
}

/* The place in the table of the next ARG_WORD from there; usage->count: there is none. */
static size_t next_word(const struct usage *usage, size_t at)
{
    while (at < usage->count && usage->args[at].type != ARG_WORD)
        at++;
    return at;
}

static int refuse_word(const struct usage *usage, const char *word)
{
    if (find_rest(usage))
        return args_refuse(usage, "'%s' is not a flag; the program stands after --", word);
    if (next_word(usage, 0) < usage->count) /* without the word: it may be a secret */
        return args_refuse(usage, "there is a word too many");
    return args_refuse(usage, "'%s' is not a flag; flags begin with --", word);
}

static int parse_words(const struct usage *usage, int argc, char **argv)
{
    size_t word = next_word(usage, 0);
    for (int i = 1; i < argc; i++) {
        int code = ARGS_GO;
        if (is_flag(argv[i])) {
            code = parse_flag(usage, argc, argv, &i);
        } else if (word == usage->count) {
            code = refuse_word(usage, argv[i]);
        } else {
            *(const char **)usage->args[word].target = argv[i];
            word = next_word(usage, word + 1);
        }
        if (code != ARGS_GO)
            return code;
    }
    if (word < usage->count && usage->args[word].min)
        return args_refuse(usage, "%s is missing: %s", usage->args[word].name, usage->args[word].about);
    return ARGS_GO;
}

/* Where words that are not ours begin, which are written down; argc if there are none. */
static int cut_rest(const struct usage *usage, int argc, char **argv)
{
    const struct arg *rest = find_rest(usage);
    for (int i = 1; rest && i < argc; i++) {
        char name[NAME_MAX_LEN];
        const char *value;
        bool dashes_alone = strcmp(argv[i], "--") == 0;
        if (dashes_alone || (rest->min && !is_flag(argv[i]))) {
            *(char ***)rest->target = argv + i + dashes_alone;
            return i;
        }
        const struct arg *arg = is_flag(argv[i]) ? read_flag(usage, argv[i], name, &value) : NULL;
        i += arg && arg->type != ARG_FLAG && !value;
    }
    return argc;
}

int args_parse(const struct usage *usage, int argc, char **argv)
{
    argc = cut_rest(usage, argc, argv);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(usage);
            return EXIT_GOOD;
        }
    }
    return parse_words(usage, argc, argv);
}
