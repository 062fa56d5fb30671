/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a subcommand: a table of flags is parsed, checked and shown as help. */
#include "cli/shared/args.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
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
#define SHOWN_MAX    32 /* of a word too many: tokens and keys are longer */

/* ---- values ---- */

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

static const struct unit {
    const char *name; /* any case */
    double factor;
} no_unit[] = {{"", 1}, {NULL, 0}},
  size_units[] = {{"", 1},       {"B", 1},       {"K", 1024},     {"KB", 1024},
                  {"KiB", 1024}, {"M", 0x1p20},  {"MB", 0x1p20},  {"MiB", 0x1p20},
                  {"G", 0x1p30}, {"GB", 0x1p30}, {"GiB", 0x1p30}, {NULL, 0}},
  count_units[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {NULL, 0}},
  rate_units[] = {{"bit", 1.0 / 8},    {"bit/s", 1.0 / 8},   {"bps", 1.0 / 8},    {"kbit", 1e3 / 8},
                  {"kbit/s", 1e3 / 8}, {"kbps", 1e3 / 8},    {"mbit", 1e6 / 8},   {"mbit/s", 1e6 / 8},
                  {"mbps", 1e6 / 8},   {"gbit", 1e9 / 8},    {"gbit/s", 1e9 / 8}, {"gbps", 1e9 / 8},
                  {"tbit", 1e12 / 8},  {"tbit/s", 1e12 / 8}, {"tbps", 1e12 / 8},  {NULL, 0}},
  time_units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};

/* A finite number >= 0 with its unit. strtod alone would take "inf", "nan" and "0x1p3". */
static bool with_unit(const char *text, const struct unit *unit, double *value)
{
    size_t len = strspn(text, "0123456789.");
    char digits[32], *end;
    if (len == 0 || len >= sizeof digits)
        return false;
    memcpy(digits, text, len);
    digits[len] = 0;
    double number = strtod(digits, &end);
    while (unit->name && strcasecmp(text + len, unit->name) != 0)
        unit++;
    *value = number * unit->factor;
    return unit->name && *end == 0 && end != digits && isfinite(number);
}

/* What numbers with units there are; the smallest size is up to the flag. */
static const struct {
    const struct unit *units;
    double min, max;
    bool whole;
} numbers[] = {
    [ARG_REAL] = {no_unit, DBL_MIN, HUGE_VAL, false},
    [ARG_RATE] = {rate_units, DBL_MIN, HUGE_VAL, false},
    [ARG_DURATION] = {time_units, 0, HUGE_VAL, false},
    [ARG_SIZE] = {size_units, 0, (double)ARG_SIZE_MAX, true},
    [ARG_COUNT] = {count_units, 1, ARG_COUNT_MAX, true},
};

static bool read_number(const struct arg *arg, enum arg_type type, const char *text, double *value)
{
    const char *bytes = strchr(text, 'B');
    if (type == ARG_DURATION && strcmp(text, "0") == 0) {
        *value = 0;
        return true;
    }
    if (type == ARG_RATE && bytes && tolower((unsigned char)bytes[1]) == 'p') /* "MBps" may mean bytes */
        return false;
    if (!with_unit(text, numbers[type].units, value) || *value < numbers[type].min ||
        *value > numbers[type].max || (type == ARG_SIZE && *value < (double)arg->min))
        return false;
    double whole = floor(*value + 0.5); /* 1.3 * 1e9 is not whole in doubles */
    return !numbers[type].whole || fabs(*value - whole) <= whole * 1e-15;
}

static bool set_int(const struct arg *arg, const char *text)
{
    int64_t value = 0;
    if (!(arg->word && strcmp(text, arg->word) == 0) && !args_int(text, arg->min, arg->max, &value))
        return false;
    *(int *)arg->target = (int)value;
    return true;
}

static bool set_list(const struct arg *arg, const char *text)
{
    struct arg_list list = {.count = 0};
    char item[32];
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        int64_t number = 0;
        double size = 0;
        if (list.count == ARG_LIST_MAX || len >= sizeof item)
            return false;
        memcpy(item, at, len);
        item[len] = 0;
        if (arg->type == ARG_SIZES ? !read_number(arg, ARG_SIZE, item, &size)
                                   : !args_int(item, 1, INT32_MAX, &number))
            return false;
        list.item[list.count++] = arg->type == ARG_SIZES ? (size_t)(size + 0.5) : (size_t)number;
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

bool args_set(const struct arg *arg, const char *text)
{
    double value;
    switch (arg->type) {
    case ARG_INT:
        return set_int(arg, text);
    case ARG_REAL:
    case ARG_RATE:
    case ARG_DURATION:
        if (!read_number(arg, arg->type, text, &value))
            return false;
        *(double *)arg->target = value;
        return true;
    case ARG_SIZE:
    case ARG_COUNT:
        if (!read_number(arg, arg->type, text, &value))
            return false;
        *(size_t *)arg->target = (size_t)(value + 0.5);
        return true;
    case ARG_SIZES:
    case ARG_INTS:
        return set_list(arg, text);
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

/* ---- help ---- */

static const struct {
    const char *value_name, *accepted;
} types[] = {
    [ARG_FLAG] = {"", "no value"},
    [ARG_INT] = {"N", NULL},
    [ARG_REAL] = {"X", "a number above 0, like 0.1"},
    [ARG_SIZE] = {"SIZE", NULL},
    [ARG_COUNT] = {"COUNT",
                   "a whole number from 1 to 1000B, plain or with K, M or B (powers of 1000), like 350M"},
    [ARG_SIZES] = {"SIZES", NULL},
    [ARG_INTS] = {"N,N..", "whole numbers from 1, separated by commas, like 4,4"},
    [ARG_RATE] = {"RATE", "bits per second with a unit, like 100mbit, 1gbit, 2.5gbit or 100Mbps"},
    [ARG_DURATION] = {"TIME", "a time with a unit, like 200us, 1ms or 0.5s"},
    [ARG_CHOICE] = {"NAME", NULL},
    [ARG_TEXT] = {"TEXT", "a text"},
    [ARG_WORD] = {"", "a word"},
    [ARG_REST] = {"", "a program"},
};

static const char *dashes(const char *name)
{
    return name[0] && !name[1] ? "-" : "--";
}

/* The next of this type after `last`; NULL: from the first on. NULL: there is none. */
static const struct arg *find_type(const struct usage *usage, enum arg_type type, const struct arg *last)
{
    for (const struct arg *arg = last ? last + 1 : usage->args; arg < usage->args + usage->count; arg++) {
        if (arg->type == type)
            return arg;
    }
    return NULL;
}

static void accepted(const struct arg *arg, char *text, size_t size)
{
    long long min = arg->min, max = arg->max;
    size_t at = 0;
    snprintf(text, size, "%s", types[arg->type].accepted ? types[arg->type].accepted : "");
    if (arg->type == ARG_INT)
        snprintf(text, size, "%s%sa whole number from %lld to %lld", arg->word ? arg->word : "",
                 arg->word ? ", or " : "", min, max);
    if (arg->type == ARG_SIZE)
        snprintf(
            text, size,
            "whole bytes (at least %lld), plain or with K, M or G (powers of 1024), like 64K or 1.5M, up "
            "to 1024G",
            min);
    if (arg->type == ARG_SIZES)
        snprintf(text, size,
                 "sizes separated by commas, like 4,64K,100M (at least %lld; K, M and G are powers of 1024)",
                 min);
    for (int i = 0; arg->type == ARG_CHOICE && arg->choice(i) && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "", arg->choice(i));
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
    bool rest = arg->type == ARG_REST, word = arg->type == ARG_WORD, choice = arg->type == ARG_CHOICE;
    accepted(arg, choices, sizeof choices);
    snprintf(about, sizeof about, "%s%s%s", arg->about, choice ? ": " : "", choice ? choices : "");
    snprintf(flag, sizeof flag, "%s%s%s%s",
             rest   ? "-- "
             : word ? ""
                    : dashes(arg->name),
             arg->name, rest || word ? "" : " ",
             arg->value_name ? arg->value_name : types[arg->type].value_name);
    int column = printf("  %-*s", HELP_COLUMN - 2, flag);
    if (column > HELP_COLUMN) /* too long to stand beside it */
        column = printf("\n%*s", HELP_COLUMN, "") - 1;
    print_wrapped(about, HELP_COLUMN, column);
}

static const char *program_of(const struct usage *usage)
{
    return usage->program ? usage->program : "hearth ";
}

static void print_help(const struct usage *usage)
{
    const char *bold = paint(stdout, PAINT_BOLD), *none = paint(stdout, PAINT_NONE);
    const struct arg *rest = find_type(usage, ARG_REST, NULL);
    printf("%susage:%s %s%s", bold, none, program_of(usage), usage->name);
    for (const struct arg *word = NULL; (word = find_type(usage, ARG_WORD, word));)
        printf(word->min ? " %s" : " [%s]", word->name);
    printf(" [options]");
    if (rest)
        printf(rest->min ? " -- %s" : " [-- %s]", rest->name);
    printf("\n\n");
    print_wrapped(usage->about, 0, 0);
    putchar('\n');
    for (size_t i = 0; i < usage->count; i++)
        print_arg(&usage->args[i]);
    putchar('\n');
    if (find_type(usage, ARG_SIZE, NULL) || find_type(usage, ARG_SIZES, NULL))
        puts("SIZE: bytes, plain or with K, M or G, powers of 1024 (100M and 100MB are 104,857,600 bytes).");
    if (find_type(usage, ARG_COUNT, NULL))
        puts("COUNT: plain or with K, M or B, powers of 1000 (1.3B is 1,300,000,000).");
    if (find_type(usage, ARG_RATE, NULL) || find_type(usage, ARG_DURATION, NULL))
        puts("RATE: bits per second, decimal: 100mbit, 1gbit, 100Mbps. TIME: 200us, 1ms, 2s.");
    printf("Exit code: %s\n",
           usage->exit_codes ? usage->exit_codes
           : rest
               ? "0 when all ranks exited with 0, else that of the first failure (128 + N: killed by signal\n"
                 "N; 126: cannot be run; 127: not found), 1 the launcher failed, 2 wrong usage."
               : "0 done, 1 a check or the work failed, 2 wrong usage.");
    printf("\n%sexample:%s\n  %s\n", bold, none, usage->example);
}

/* ---- refusals ---- */

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
        if (d < best_distance && (prefix || d < longer)) { /* not by changing every character */
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

/* `word`: as it was typed. */
static int refuse_flag(const struct usage *usage, const char *word, const char *name)
{
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < usage->count && count < NAMES_MAX - 1; i++) {
        if (usage->args[i].type != ARG_REST && usage->args[i].type != ARG_WORD)
            names[count++] = usage->args[i].name;
    }
    names[count++] = "help";
    const char *near = args_nearest(name, names, count);
    return args_refuse(usage, "there is no flag %.*s%s%s%s%s", (int)strcspn(word, "="), word,
                       near ? "; did you mean " : "", near ? dashes(near) : "", near ? near : "",
                       near ? "?" : "");
}

static int refuse_value(const struct usage *usage, const struct arg *arg, const char *value)
{
    char words[ACCEPTED_MAX];
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (; arg->type == ARG_CHOICE && count < NAMES_MAX && arg->choice((int)count); count++)
        names[count] = arg->choice((int)count);
    const char *near = args_nearest(value, names, count);
    accepted(arg, words, sizeof words);
    return args_refuse(usage, "%s%s '%s' is not accepted; %s%s%s takes %s", dashes(arg->name), arg->name,
                       value, near ? "did you mean " : "", near ? near : "", near ? "? It" : "it", words);
}

/* ---- the command line ---- */

static const struct arg *find_flag(const struct usage *usage, const char *name)
{
    for (const struct arg *arg = usage->args; arg < usage->args + usage->count; arg++) {
        if (arg->type != ARG_REST && arg->type != ARG_WORD && strcmp(arg->name, name) == 0)
            return arg;
    }
    return NULL;
}

/* The flag of "--name", "--name=value", "-n", "-n2" and "-n=2"; `value` is NULL if it stands alone. NULL:
 * there is no such flag, and `name` is what was typed. */
static const struct arg *read_flag(const struct usage *usage, const char *word,
                                   char name[static NAME_MAX_LEN], const char **value)
{
    const char *flag = word + (word[1] == '-' ? 2 : 1), *equals = strchr(flag, '=');
    const char single[2] = {flag[0], 0};
    const struct arg *arg = word[1] == '-' ? NULL : find_flag(usage, single);
    if (arg) {
        snprintf(name, NAME_MAX_LEN, "%s", single);
        *value = !flag[1] ? NULL : flag[1] == '=' ? flag + 2 : flag + 1;
        return arg;
    }
    snprintf(name, NAME_MAX_LEN, "%.*s", equals ? (int)(equals - flag) : (int)strlen(flag), flag);
    *value = equals ? equals + 1 : NULL;
    return word[1] == '-' ? find_flag(usage, name) : NULL;
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
    if (arg->type == ARG_FLAG && value)
        return args_refuse(usage, "%s%s takes no value", dashes(name), name);
    if (arg->type == ARG_FLAG) {
        *(bool *)arg->target = true;
        return ARGS_GO;
    }
    if (!value && *at + 1 >= argc) {
        accepted(arg, words, sizeof words);
        return args_refuse(usage, "%s%s needs a value: %s", dashes(name), name, words);
    }
    if (!value)
        value = argv[++*at];
    return args_set(arg, value) ? ARGS_GO : refuse_value(usage, arg, value);
}

/* "--name", or one dash and a character. */
static bool is_flag(const char *word)
{
    if (word[0] != '-' || !word[1])
        return false;
    return word[1] == '-' ? word[2] != 0 : isalpha((unsigned char)word[1]) != 0;
}

static int refuse_word(const struct usage *usage, const char *word)
{
    if (find_type(usage, ARG_REST, NULL))
        return args_refuse(usage, "'%s' is not a flag; put the program after --", word);
    const struct arg *first = find_type(usage, ARG_WORD, NULL);
    if (first && (strlen(word) > SHOWN_MAX || strcmp(first->name, "TOKEN") == 0)) /* it may be a secret */
        return args_refuse(usage, "too many arguments");
    if (first)
        return args_refuse(usage, "too many arguments: '%s'", word);
    return args_refuse(usage, "'%s' is not a flag; flags begin with --", word);
}

static int parse_words(const struct usage *usage, int argc, char **argv)
{
    const struct arg *word = find_type(usage, ARG_WORD, NULL);
    for (int i = 1; i < argc; i++) {
        int code = ARGS_GO;
        if (is_flag(argv[i])) {
            code = parse_flag(usage, argc, argv, &i);
        } else if (!word) {
            code = refuse_word(usage, argv[i]);
        } else {
            *(const char **)word->target = argv[i];
            word = find_type(usage, ARG_WORD, word);
        }
        if (code != ARGS_GO)
            return code;
    }
    if (word && word->min)
        return args_refuse(usage, "%s is missing: %s", word->name, word->about);
    return ARGS_GO;
}

/* Where words that are not ours begin, which are written down; argc if there are none. */
static int cut_rest(const struct usage *usage, int argc, char **argv)
{
    const struct arg *rest = find_type(usage, ARG_REST, NULL);
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

/* ---- subcommands ---- */

static int print_overview(const struct subcommand_list *s, FILE *file)
{
    const char *bold = paint(file, PAINT_BOLD), *none = paint(file, PAINT_NONE);
    fprintf(file, "%s\n\n%susage:%s hearth%s %s [options]\n\n", s->about, bold, none, s->command,
            *s->command ? "WHAT" : "COMMAND");
    for (size_t i = 0; i < s->count; i++)
        fprintf(file, "  %s%-9s%s %s\n            %s\n", bold, s->list[i].name, none, s->list[i].brief,
                s->list[i].example);
    fprintf(file, "  %s%-9s%s shows the options of one: hearth%s help NAME, or hearth%s NAME --help\n", bold,
            "help", none, s->command, s->command);
    return file == stdout ? EXIT_GOOD : EXIT_USAGE;
}

static int refuse_command(const struct subcommand_list *s, const char *word)
{
    const char *names[NAMES_MAX] = {"help"}, *near = NULL;
    size_t count = 1;
    for (size_t i = 0; i < s->count && count < NAMES_MAX; i++)
        names[count++] = s->list[i].name;
    fprintf(stderr, "hearth%s: there is no ", s->command);
    if (word[0] == '-')
        fprintf(stderr, "flag %.64s here; a %s comes first", word, s->what);
    else
        fprintf(stderr, "%s '%.64s'", s->what, word);
    if (word[0] != '-' && (near = args_nearest(word, names, count)))
        fprintf(stderr, "; did you mean '%s'?", near);
    fprintf(stderr, "\nTry: hearth%s help\n", s->command);
    return EXIT_USAGE;
}

int subcommand_run(const struct subcommand_list *s, int argc, char **argv)
{
    char flag[] = "--help", *helped[] = {argv[0], NULL, flag, NULL};
    if (argc < 2)
        return print_overview(s, stderr);
    bool help = strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    if (help && argc == 2)
        return print_overview(s, stdout);
    const struct subcommand *found = s->list;
    while (found < s->list + s->count && strcmp(found->name, argv[1 + help]) != 0)
        found++;
    if (found == s->list + s->count)
        return refuse_command(s, argv[1 + help]);
    helped[1] = argv[1 + help];
    if (help)
        argc = 3, argv = helped;
    return *s->command ? found->run(argc, argv) : found->run(argc - 1, argv + 1);
}
