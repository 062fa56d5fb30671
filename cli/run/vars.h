/* SPDX-License-Identifier: Apache-2.0 */
/* A list of variables for a process that is started: "NAME=value". */
#ifndef CLI_VARS_H
#define CLI_VARS_H

#include <stdbool.h>
#include <stddef.h>

struct vars {
    char **list; /* [max + 1], NULL at the end */
    size_t count, max;
    bool full; /* or no memory: something is missing */
};

bool vars_open(struct vars *vars, size_t max); /* false: no memory */
void vars_add(struct vars *vars, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Frees a list and what it holds; NULL is allowed. */
void vars_free(char **list);

#endif
