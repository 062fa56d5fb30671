/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows into a caller's buffer, as snprintf does: what does not fit is counted and left out. */
#ifndef CORE_PAPER_H
#define CORE_PAPER_H

#include <stdbool.h>
#include <stddef.h>

struct paper {
    char *text;
    size_t size; /* of the buffer */
    size_t len;  /* of the whole text, whether it fits or not */
};

struct paper paper_of(char *text, size_t size); /* empty, and terminated if there is room for that */
void paper_print(struct paper *paper, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes; anything but printable ASCII becomes '?'. */
void paper_quote(struct paper *paper, const char *text);

#endif
