/* SPDX-License-Identifier: Apache-2.0 */
/* A command that is several: `hearth` itself, `hearth bench`, `hearth trust`, `hearth job`. */
#pragma once

#include <stddef.h>

struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0]: its name, or that of the command which it is part of */
    const char *brief, *example;
};

struct subcommand_list {
    const char *command; /* "trust"; NULL: hearth itself */
    const char *what;    /* they are: "command" */
    const char *about;   /* some lines for the overview */
    const struct subcommand *list;
    size_t count;
};

/* Runs the one that argv[1] names, or shows them all. An exit code. */
int subcommand_run(const struct subcommand_list *s, int argc, char **argv);
