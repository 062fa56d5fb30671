/* SPDX-License-Identifier: Apache-2.0 */
/* A command that is several: `hearth trust add`, `hearth job list`. */
#ifndef CLI_SUBCOMMAND_H
#define CLI_SUBCOMMAND_H

#include <stddef.h>

struct subcommand {
    const char *name, *brief;
};

struct subcommand_list {
    const char *command;            /* "trust" */
    const char *about;              /* some lines for the overview */
    const char *example, *try_name; /* of the overview: a whole line, and whose --help to read */
    const struct subcommand *list;  /* [count] */
    size_t count;
};

/* Which of them argv[1] names. ARGS_GO; or an exit code, after the overview or a message. */
int subcommand_find(const struct subcommand_list *s, int argc, char **argv, size_t *index);

#endif
