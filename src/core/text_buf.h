/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows into a caller's buffer, as snprintf does: what does not fit is counted and left out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct text_buf {
    char *text;
    size_t size; /* of the buffer */
    size_t len;  /* of the whole text, whether it fits or not */
};

struct text_buf text_buf_of(char *text, size_t size); /* empty, and terminated if there is room for that */
void text_buf_print(struct text_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes; anything but printable ASCII becomes '?'. */
void text_buf_quote(struct text_buf *buf, const char *text);
