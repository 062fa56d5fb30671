/* SPDX-License-Identifier: Apache-2.0 */
/* What --json prints: one object {"command", "machine", "results": [...]}, made with jansson. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts the object; `argv` is the command with its arguments, without the program. NULL: no memory. */
json_t *doc_open(int argc, char **argv);
/* A new object at the end of "results", owned by the document. */
json_t *doc_row(json_t *doc);
/* The same with fields, "name:s ranks:i": what follows are their values in order. s: text, i: int, z: size_t,
 * b: bool, f: double, null when not finite. */
json_t *doc_add(json_t *doc, const char *fields, ...);
/* Prints the object and frees it. false with a message if it could not be written. */
bool doc_close(json_t *doc);

void row_text(json_t *row, const char *key, const char *value);
void row_count(json_t *row, const char *key, uint64_t value);
void row_real(json_t *row, const char *key, double value); /* null when not finite */
void row_bool(json_t *row, const char *key, bool value);

/* One line about the machine, for people: "AMD EPYC, 2 cores, 7.75 GiB". */
void machine_line(char *text, size_t size);

const char *json_text_of(const json_t *object, const char *key); /* lent by the object; "" */
int64_t json_count_of(const json_t *object, const char *key);    /* 0 */
double json_real_of(const json_t *object, const char *key);      /* 0; whole numbers count */
bool json_flag_of(const json_t *object, const char *key);        /* false */
