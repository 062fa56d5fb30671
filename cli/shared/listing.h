/* SPDX-License-Identifier: Apache-2.0 */
/* What a command has found, as JSON objects: printed as they are for programs, in columns for people. */
#pragma once

#include "cli/shared/json.h"
#include "cli/shared/table.h"

enum column_form {
    FORM_TEXT,
    FORM_NUMBER, /* "1998" */
    FORM_COUNT,  /* "1,998" */
    FORM_BYTES,
    FORM_US,    /* microseconds: "12.3 us" */
    FORM_SPEED, /* bytes a second: "8.4 GB/s" */
    FORM_MBIT,  /* "940 Mbit/s" */
    FORM_RATIO,
    FORM_SHARE,
    FORM_EXACT /* of a flag: "yes", or "NO" in red */
};

#define LISTING_COLUMNS_MAX 16

struct column;
struct listing_cell {
    const json_t *row;
    const struct column *column;
    const void *arg; /* of the table */
    char text[TABLE_CELL_MAX];
};

struct column {
    const char *head, *key;
    enum column_form form;
    int width;        /* of lines that are printed as they come; negative: to the left. In tables texts
                            stand to the left, other forms to the right */
    const char *none; /* for a number that is not there, or is not above 0; NULL: it is printed as 0 */
    bool zero;        /* with `none`: 0 is a number like others */
    void (*write)(struct listing_cell *cell); /* instead of `form` */
};

#define LISTING_COLUMNS(list) .columns = (list), .count = sizeof(list) / sizeof *(list)

struct listing {
    const struct column *columns;
    size_t count;
    json_t *doc; /* NULL: for people */
};

/* False after a message. */
bool listing_open(struct listing *listing, bool json, int argc, char **argv);
void listing_head(const struct listing *listing);             /* names the columns; nothing with --json */
void listing_row(const struct listing *listing, json_t *row); /* takes the row over; NULL: no memory */
/* Prints the JSON, if there is any. `code`, or EXIT_FAILED_CHECK after a message. */
int listing_close(struct listing *listing, int code);

/* A new string, "?" for what is not UTF-8: that has no place in JSON. */
json_t *json_text(const char *text);

/* A document with this one row, which it takes over. EXIT_GOOD, or EXIT_FAILED_CHECK after a message. */
int listing_one(int argc, char **argv, json_t *row);

/* Prints an object for programs as it is. The same codes. */
int print_answer(const json_t *object);
/* What people asked for has been written. The same codes. */
int print_done(void);

/* The objects of an array as a table, with a head; columns are as wide as they must be. */
struct listing_table {
    const struct column *columns;
    size_t count;
    const void *arg;                        /* for `write` of columns */
    enum paint (*paint)(const json_t *row); /* NULL: none */
    size_t most;                            /* rows; 0: all */
};
void listing_print(const struct listing_table *what, const json_t *rows, FILE *file, const char *indent);
