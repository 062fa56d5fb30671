/* SPDX-License-Identifier: Apache-2.0 */
/* A list of variables for a process that is started: "NAME=value". */
#include "cli/run/vars.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool vars_open(struct vars *vars, size_t max)
{
    *vars = (struct vars){.list = calloc(max + 1, sizeof *vars->list), .max = max};
    return vars->list;
}

void vars_add(struct vars *vars, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = vars->count < vars->max && len >= 0 ? malloc((size_t)len + 1) : NULL;
    if (!text) {
        vars->full = true;
        return;
    }
    va_start(args, format);
    vsnprintf(text, (size_t)len + 1, format, args);
    va_end(args);
    vars->list[vars->count++] = text;
}

void vars_free(char **list)
{
    for (char **var = list; var && *var; var++)
        free(*var);
    free(list);
}
