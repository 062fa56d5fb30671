/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of texts, printed in columns that are as wide as they must be. What others sent cannot move a cursor:
 * control characters become '?'. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/shared/text.h"

#define TABLE_COLUMNS_MAX 70
#define TABLE_CELL_MAX    200 /* with the final 0; longer texts are cut */

struct table_cell {
    char text[TABLE_CELL_MAX];
    enum paint paint;
};

struct table {
    const char *align; /* lent: one character for each column: 'l' or 'r' */
    size_t columns, rows, cap;
    struct table_cell *cells; /* [rows][columns]; the first row is the head */
    bool broken;              /* no memory for some row */
};

void table_open(struct table *table, const char *align);
void table_close(struct table *table);

/* As many texts as there are columns; NULL ends them early, the rest is empty. */
void table_row(struct table *table, enum paint paint, const char *const *texts, size_t count);
/* Columns without any text below the head are left out, and so is the space at the end of lines. */
void table_print(const struct table *table, FILE *file, const char *indent);

/* Rows that are printed as they come: each column has its width, negative is to the left. */
void columns_print(FILE *file, const int *widths, const char *const *texts, size_t count);
#define COLUMNS(widths, ...)                                                                                 \
    columns_print(stdout, widths, (const char *const[]){__VA_ARGS__},                                        \
                  sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* A copy that is safe to print; always terminated. Gives `target`. */
char *plain_text(const char *text, char *target, size_t size);

#define TABLE_ROW(table, paint, ...)                                                                         \
    table_row(table, paint, (const char *const[]){__VA_ARGS__},                                              \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
