/* SPDX-License-Identifier: Apache-2.0 */
/* What a function prints, as a text, for tests of output. */
#pragma once

#include <jansson.h>
#include <stdio.h>

struct printed {
    char *text;
    size_t len;
    FILE *file;
};

FILE *printed_open(struct printed *printed);
const char *printed_text(struct printed *printed); /* closes the file */
void printed_free(struct printed *printed);

/* What a function prints of an object; good until the next call. */
const char *page_of(void (*print)(const json_t *object, FILE *file), const json_t *object);

/* A cluster of three, as a node tells of it: desk leads and is self, nas is well, laptop is slow and
 * degraded; attic is revoked, a neighbour has another cluster. The caller's. */
json_t *sample_status(void);

/* Fails the test unless `part` is in the text; or is. */
void assert_has(const char *text, const char *part);
void assert_lacks(const char *text, const char *part);
