/* SPDX-License-Identifier: Apache-2.0 */
/* Text into a buffer that may be too small. */
#include "core/text_buf.h"

#include <stdarg.h>
#include <stdio.h>

struct text_buf text_buf_of(char *text, size_t size)
{
    if (size > 0)
        text[0] = '\0';
    return (struct text_buf){.text = text, .size = size};
}

void text_buf_print(struct text_buf *buf, const char *format, ...)
{
    va_list args;
    size_t room = buf->len < buf->size ? buf->size - buf->len : 0;

    va_start(args, format);
    int len = vsnprintf(room > 0 ? buf->text + buf->len : NULL, room, format, args);
    va_end(args);
    buf->len += len > 0 ? (size_t)len : 0;
}

void text_buf_quote(struct text_buf *buf, const char *text)
{
    text_buf_print(buf, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            text_buf_print(buf, "\\%c", *text);
        else
            text_buf_print(buf, "%c", *text >= ' ' && *text <= '~' ? *text : '?');
    }
    text_buf_print(buf, "\"");
}
