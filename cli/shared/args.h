/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a subcommand: a table of flags is parsed, checked and shown as help. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes of every subcommand. */
enum { EXIT_GOOD = 0, EXIT_FAILED_CHECK = 1, EXIT_USAGE = 2 };

#define ARGS_GO       (-1) /* args_parse: carry on */
#define ARG_LIST_MAX  256
#define ARG_SIZE_MAX  (UINT64_C(1) << 40) /* 1024G: larger is a slip of the finger */
#define ARG_COUNT_MAX 1000000000000.0     /* 1000B, likewise */

struct arg_list {
    size_t item[ARG_LIST_MAX];
    size_t count;
};

enum arg_type {
    ARG_FLAG,     /* bool; takes no value */
    ARG_INT,      /* int, min..max */
    ARG_REAL,     /* double > 0 */
    ARG_SIZE,     /* size_t, bytes: 4096, 64K, 1.5M, 1GB (powers of 1024) */
    ARG_COUNT,    /* size_t >= 1, of things: 4096, 350M, 1.3B (powers of 1000) */
    ARG_SIZES,    /* struct arg_list of sizes, by commas */
    ARG_INTS,     /* struct arg_list of whole numbers >= 1, by commas */
    ARG_RATE,     /* double, bytes per second: 100mbit, 1Gbps (decimal bits) */
    ARG_DURATION, /* double, seconds: 200us, 1ms, 2s */
    ARG_CHOICE,   /* int: index of the name */
    ARG_TEXT,     /* const char *, lent by argv */
    ARG_WORD,     /* const char *, lent by argv: stands alone, without a flag; in the order of the table */
    ARG_REST      /* char **, lent by argv: what stands after --, which is not ours to read; if it must be
                     there (min 1), also from the first word on that is no flag */
};

typedef const char *arg_choice(int index); /* NULL after the last */

struct arg {
    const char *name; /* without the dashes; a single character has only one */
    enum arg_type type;
    void *target; /* holds the default; written when the flag is there */
    const char *about;
    int64_t min, max;       /* ARG_INT; ARG_SIZE, ARG_SIZES: min only; ARG_WORD, ARG_REST: min 1 = it must be
                               there */
    bool *given;            /* NULL, or set where the flag is there: some mean nothing beside others */
    const char *word;       /* ARG_INT: this word stands for 0 */
    arg_choice *choice;     /* ARG_CHOICE */
    const char *value_name; /* in the help; NULL = by type */
};

struct usage {
    const char *name;  /* "plan", "bench cluster" */
    const char *about; /* what it does, in a sentence or two */
    const char *example;
    const struct arg *args;
    size_t count;
    const char *exit_codes; /* for the help; NULL: the usual ones */
    const char *program;    /* NULL: hearth; others have no name besides */
};

#define USAGE_ARGS(list) .args = (list), .count = sizeof(list) / sizeof *(list)

/* argv[0] is the command's own name. ARGS_GO, or the code to exit with: EXIT_GOOD after --help, EXIT_USAGE
 * after a message that names the flag, the value and what is accepted. */
int args_parse(const struct usage *usage, int argc, char **argv);

/* For what only the command can see: says it with the command's name and the way to help. EXIT_USAGE. */
int args_refuse(const struct usage *usage, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says what the command, "plan", could not do. EXIT_FAILED_CHECK. */
int command_fail(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One value by itself. false: not acceptable, the target is untouched (but by ARG_TEXT and ARG_WORD). */
bool args_set(const struct arg *arg, const char *text);
bool args_int(const char *text, int64_t min, int64_t max, int64_t *value);

/* The name that needs the fewest changes to become `text`; NULL if none is near. */
const char *args_nearest(const char *text, const char *const *names, size_t count);

/* ---- commands that are several: hearth itself, hearth bench, hearth trust, hearth job ---- */

struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0]: its name, or that of the command which it is part of */
    const char *brief, *example;
};

struct subcommand_list {
    const char *command; /* " trust"; "": hearth itself */
    const char *what;    /* they are: "command" */
    const char *about;   /* some lines for the overview */
    const struct subcommand *list;
    size_t count;
};

/* Runs the one that argv[1] names, or shows them all. An exit code. */
int subcommand_run(const struct subcommand_list *s, int argc, char **argv);
